//! Rows of `conversations`, and of `messages` that name one.

use serde_json::value::RawValue;

use super::Refusal;
use super::fields::Fields;
use super::row::{add_messages, read_attributes};
use super::thread::Thread;
use crate::conversation::Kind;

/// A conversation and its messages, in any order: their times say which comes first.
pub fn read(of: &Fields<'_>, messages: &[&RawValue]) -> Result<Thread, Refusal> {
    let mut thread = read_attributes(of)?;
    thread.kind = thread.kind.or(Some(Kind::ModelChat));
    let mut placed = Vec::with_capacity(messages.len());
    for message in messages {
        let fields = Fields::read(message.get())?;
        let at = fields.integer(&["seq", "position", "index"]);
        placed.push((at, fields.time(&["created_at", "createdAt"]), *message));
    }
    // Those without a time stay where they stand.
    if placed.iter().all(|(at, time, _)| at.is_some() || time.is_some()) {
        placed.sort_by_key(|(at, time, _)| (*at, *time));
    }
    let messages: Vec<&RawValue> = placed.into_iter().map(|(_, _, message)| message).collect();
    add_messages(&mut thread, &messages)?;
    Ok(thread)
}
