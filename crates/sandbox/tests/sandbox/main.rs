//! The built-in sandbox as a process of its own, against a server of the test's: the protocol, the walls of a room,
//! its limits, its end.

#![cfg(target_os = "linux")]
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "a story that cannot go on has failed, in its setup too; its tasks end with it"
)]

mod world;

mod archives;
mod cancelling;
mod escapes;
mod leaks;
mod limits;
mod protocol;
mod python;
mod start;
