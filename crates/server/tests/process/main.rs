//! The real `threadkeep` binary as a process: how it starts, stops, dies and comes back, what it says, and what
//! its listener bears. One file for each story; `house` is the folder and the database that a story happens in.

#![expect(
    clippy::expect_used,
    clippy::panic,
    reason = "a story that cannot go on has failed, in its setup too"
)]

mod agents;
mod backup;
mod canaries;
mod commands;
mod config;
mod disk;
mod house;
mod kill;
mod listener;
mod locks;
mod logs;
mod migrate;
mod sandbox;
mod start;
mod stop;
mod traces;
mod walk;
