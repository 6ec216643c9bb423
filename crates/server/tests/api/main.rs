//! The HTTP API as its clients see it: a real server, real HTTP, both databases, one file per story.
//! Every answer passes `world::World::send`, which holds it to the rules that all answers share.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test that cannot go on has failed"
)]

mod bad_input;
mod conditional;
mod deletes;
mod document;
mod draining;
mod fuzz;
mod history;
mod lists;
mod logs;
mod messages;
mod negotiation;
mod openapi;
mod operating;
mod pages;
mod plain_lists;
mod problems;
mod rules;
mod search;
mod tabs;
mod unread;
mod world;
mod writes;
