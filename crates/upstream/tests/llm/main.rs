//! The providers over real HTTP, against servers that follow a script: what is sent to each vendor, what is read of
//! its streams, and what becomes of everything that can go wrong on the way.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on has failed")]

mod answers;
mod golden;
mod hostile;
mod models;
mod retries;
mod vendor;
