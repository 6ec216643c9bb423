//! Runs by a model, with tools: a real store, a scripted provider over HTTP, tools of the test's own. `world::World`
//! is all of it; one file per story.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test that cannot go on has failed"
)]

mod approvals;
mod blocks;
mod rounds;
mod world;
