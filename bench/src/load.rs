//! Filling a store past its verbs, which take one conversation at a time: the same rows, made by the same
//! rules of the domain, written in bulk. That they are the same shows in what the rows of the tables find.

mod postgres;
mod sqlite;

use anyhow::Context as _;
use domain::conversation::{Conversation, Visibility, Write};
use domain::message::{MessageRole, NewMessage};

pub use self::postgres::fill as fill_postgres;
pub use self::sqlite::fill as fill_sqlite;
use crate::corpus::Draft;

/// Conversations written at a time.
const BATCH: usize = 2_000;

/// A conversation as its row will be, and its messages.
struct Stored {
    conversation: Conversation,
    messages: Vec<NewMessage>,
}

fn store(draft: Draft) -> anyhow::Result<Stored> {
    let write = Write { now: draft.created_at, max_tabs: 50 };
    let made = Conversation::create(&draft.scope, &draft.new, draft.id, Visibility::Private, &write);
    let mut conversation = made.ok().context("a conversation was refused")?;
    for message in &draft.messages {
        let from_user = message.role == MessageRole::User;
        conversation.note_message(
            message.id,
            from_user,
            &message.text,
            message.token_count,
            draft.updated_at,
        );
    }
    Ok(Stored { conversation, messages: draft.messages })
}
