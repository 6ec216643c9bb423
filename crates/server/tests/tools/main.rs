//! Tools of other servers, through whole turns: the published MCP servers, a scripted one that does what none should,
//! Composio, and who may add a server where.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a story that cannot go on has failed, in its setup too"
)]

#[path = "../turns/sse.rs"]
#[expect(dead_code, reason = "the stories of turns use the rest")]
mod sse;

mod adding;
mod composio;
mod fake;
mod hostile;
mod pins;
mod published;
mod stdio;
mod world;
