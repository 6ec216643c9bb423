//! Other people's clients against a real server, on both databases: what the AI SDK, AG-UI and OpenAI's Responses and
//! Conversations send, and what they are told. `clients` runs the vendors' own libraries against the binary.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test that cannot go on has failed"
)]

mod ag_ui;
mod ai_chat;
mod clients;
mod items;
mod responses;
#[path = "../turns/scripts.rs"]
#[expect(dead_code, reason = "these stories need a part of it")]
mod scripts;
#[path = "../turns/sse.rs"]
#[expect(dead_code, reason = "these stories need a part of it")]
mod sse;
mod told;
mod tools;
mod twice;
#[path = "../turns/world.rs"]
#[expect(dead_code, reason = "these stories need a part of it")]
mod world;
