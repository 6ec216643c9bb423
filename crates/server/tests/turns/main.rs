//! Turns as their clients see them: a real server, a scripted sandbox behind it, both databases, one file per
//! story. `world::World` is the server with its sandbox and one person; `sse` reads what a run streams.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "a test that cannot go on has failed; its tasks end with it"
)]

mod accepting;
mod agent;
mod agents;
mod ask;
mod bad_input;
mod branches;
mod cancelling;
mod disconnecting;
mod endings;
mod envelope;
mod finishes;
mod first_turn;
mod gateway;
mod hostile;
mod idempotency;
mod limits;
mod lines;
mod process;
mod queue;
mod races;
mod random;
mod real_model;
mod reload;
mod responses;
mod resume;
mod scripts;
mod shapes;
mod shown;
mod sight;
mod slow_readers;
mod sse;
mod tokens;
mod translation;
mod wires;
mod world;
