//! `threadkeep import` and `threadkeep export` as processes, on both databases: what goes out comes in again, other
//! people's exports become conversations, and nothing that is wrong with a file does harm.

#![expect(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    reason = "a story that cannot go on has failed, in its setup too"
)]

mod formats;
mod grown;
mod hostile;
mod house;
mod interrupted;
mod odd;
mod reading;
mod round_trip;
