//! Forks: a thread is copied part by part, so that nobody else's write waits for long. Until it is whole nobody sees the
//! copy, and what is left of one that never becomes whole is swept away.

use std::collections::HashMap;
use std::sync::Arc;

use domain::conversation::{Conversation, Visibility};
use domain::message::Message;
use domain::scope::Scope;
use rusqlite::{Connection, params};
use uuid::Uuid;

use super::branches::thread_through;
use super::segments::Segment;
use super::writer::Durability;
use super::{SqliteStore, conversations, fork_files, messages};
use crate::error::{Result, StoreError};
use crate::files::Fork;

/// The value of `purging` that a fork has until it is whole.
const UNMADE: i64 = 2;

/// How much one part has: so many messages, and as long as they have fewer bytes than that.
const PART_MESSAGES: usize = 100;
const PART_BYTES: usize = 1 << 20;

/// What is to be copied: a thread, its oldest segment first, through its message number `last`.
struct Copied {
    scope: Scope,
    from: Uuid,
    thread: Vec<Segment>,
    last: i64,
    fork: Fork,
}

impl SqliteStore {
    pub(super) async fn fork(
        &self,
        scope: &Scope,
        from: Uuid,
        through: Uuid,
        fork: &Fork,
    ) -> Result<Conversation> {
        let (scope, fork) = (scope.clone(), fork.clone());
        let of = self.readers.read(move |db| {
            conversations::get(db, &scope, from)?;
            let thread = thread_through(db, &scope, from, through)?;
            let last = thread.last().map_or(0, |newest| newest.through);
            Ok(Arc::new(Copied { scope, from, thread, last, fork }))
        });
        let of = of.await?;
        let work = Arc::clone(&of);
        let (made, copies) = self.writer.write(Durability::Normal, move |db| begin(db, &work)).await?;
        let (copies, mut after) = (Arc::new(copies), 0);
        while after < of.last {
            let (read, copies) = (Arc::clone(&of), Arc::clone(&copies));
            let part = self.readers.read(move |db| read_part(db, &read, &copies, after)).await?;
            // None are left only where they were purged.
            after = part.last().ok_or(StoreError::NotFound)?.seq;
            let work = Arc::clone(&of);
            self.writer.write(Durability::Normal, move |db| write_part(db, &work, &part)).await?;
        }
        // Synced, this one syncs what the others wrote.
        self.writer.write(Durability::Full, move |db| show(db, &of)).await?;
        Ok(made)
    }
}

/// Makes the conversation that nobody sees yet, with its files. Answers it as it is to be, and the copies by what they are
/// copies of.
fn begin(db: &Connection, of: &Copied) -> Result<(Conversation, HashMap<Uuid, Uuid>)> {
    let Copied { scope, from, thread, last, fork } = of;
    let (mut made, _) = conversations::get(db, scope, *from)?;
    made.id = fork.id;
    if made.owner != scope.user {
        made.owner.clone_from(&scope.user);
        made.visibility = Visibility::Private;
    }
    (made.first_message, made.preview) = (None, None);
    if let Some((first, text)) = messages::first_of_user(db, scope, *from, thread)? {
        made.note_message(first, true, &text, 0, fork.now);
    }
    made.message_count = *last;
    made.total_tokens = 0;
    made.created_at = fork.now;
    made.updated_at = fork.now;
    made.version = 1;
    let unmade = Conversation { deleted_at: Some(fork.now), ..made.clone() };
    let pk = conversations::insert(db, &unmade)?;
    db.prepare_cached("UPDATE chat_conversations SET purging = ?2 WHERE pk = ?1")?.execute([pk, UNMADE])?;
    let copies = fork_files::copy(db, scope, *from, fork)?;
    Ok((made, copies))
}

/// The messages after number `after`, as far as they go into one part. They name the copies.
fn read_part(db: &Connection, of: &Copied, copies: &HashMap<Uuid, Uuid>, after: i64) -> Result<Vec<Message>> {
    let text = format!(
        "SELECT {} FROM messages WHERE workspace_id = ?1 AND conversation_id = ?2 AND branch = ?3 \
         AND seq > ?4 AND seq <= ?5 ORDER BY seq",
        messages::COLUMNS
    );
    let (mut part, mut bytes) = (Vec::new(), 0);
    for Segment { branch, through, .. } in &of.thread {
        let mut statement = db.prepare_cached(&text)?;
        let mut rows = statement.query(params![of.scope.workspace, of.from, branch, after, through])?;
        while part.len() < PART_MESSAGES
            && bytes < PART_BYTES
            && let Some(row) = rows.next()?
        {
            let mut message = messages::read(row)?;
            bytes += message.text.len() + message.content.len();
            fork_files::rename(&mut message, copies)?;
            part.push(message);
        }
    }
    Ok(part)
}

fn write_part(db: &Connection, of: &Copied, part: &[Message]) -> Result<()> {
    let Copied { scope, fork, .. } = of;
    let unmade = "SELECT 1 FROM chat_conversations WHERE workspace_id = ?1 AND id = ?2 AND purging = ?3";
    if !db.prepare_cached(unmade)?.exists(params![scope.workspace, fork.id, UNMADE])? {
        return Err(given_up());
    }
    for message in part {
        messages::insert_stored(db, scope, fork.id, 0, message)?;
        fork_files::attach(db, scope, fork.id, message)?;
    }
    Ok(())
}

/// From here on it is there. What is deleted by now is not forked any more.
fn show(db: &Connection, of: &Copied) -> Result<()> {
    let Copied { scope, from, fork, .. } = of;
    conversations::get(db, scope, *from)?;
    let shown = db
        .prepare_cached(
            "UPDATE chat_conversations SET deleted_at = NULL, purging = 0 \
             WHERE workspace_id = ?1 AND id = ?2 AND purging = ?3",
        )?
        .execute(params![scope.workspace, fork.id, UNMADE])?;
    if shown == 0 { Err(given_up()) } else { Ok(()) }
}

fn given_up() -> StoreError {
    StoreError::Unavailable("the fork took so long that it was swept away".into())
}
