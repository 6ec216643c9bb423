//! Pages and tables over real HTTP, on both databases: kept, searched, imported, exported, and cited in turns.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test that cannot go on has failed"
)]

mod exchange;
mod pages;
mod tables;
mod turns;
mod world;
