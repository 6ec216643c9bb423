//! Files as their users and the sandbox see them: the real binary, both databases, a folder and S3 servers, one file
//! per story. `world::World` is the server with its sandbox and Ann; `caller` is whoever asks.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "a test that cannot go on has failed; its tasks end with it"
)]

mod assets;
mod attaching;
mod bad_input;
mod browser;
mod caller;
mod content;
mod deleting;
mod direct;
mod disk;
mod empty;
mod executions;
mod kills;
mod memory;
mod names;
mod purging;
mod results;
#[path = "../turns/scripts.rs"]
#[expect(dead_code, reason = "shared with the stories of turns, which use the rest")]
mod scripts;
mod sharing;
#[path = "../turns/sse.rs"]
#[expect(dead_code, reason = "shared with the stories of turns, which use the rest")]
mod sse;
mod uploading;
mod workspace_files;
mod world;
