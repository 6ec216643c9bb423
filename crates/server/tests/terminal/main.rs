//! `threadkeep chat` as a person or a script has it: the real binary against a real server, in pipes and in a real
//! terminal (tmux). `world` is the server with its scripted sandbox; `tmux` is the terminal.

#![expect(
    clippy::expect_used,
    clippy::panic,
    reason = "a story that cannot go on has failed, in its setup too"
)]

mod plain;
mod screen;
mod tmux;
mod world;
