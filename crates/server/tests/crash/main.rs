//! The real `threadkeep` binary, ended in the middle of turns: at each step of the walk, at random moments, one
//! node of two, by a signal that asks. What its clients were told must hold afterwards (G1 to G9).
//! `house` is where a story happens, `client` sends turns and reads them, `ledger` knows what must hold.

#![expect(
    clippy::expect_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "a story that cannot go on has failed, in its setup too; its tasks end with the test"
)]

mod client;
mod database;
mod house;
mod kills;
mod late;
mod ledger;
mod moves;
mod nodes;
mod outage;
mod panics;
mod points;
mod readers;
mod resume;
mod rounds;
mod stop;
