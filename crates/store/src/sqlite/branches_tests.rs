//! What threads and lists of branches cost, in steps of SQLite.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use domain::conversation::{NewConversation, Visibility, Write};
use domain::message::{MessageRole, NewMessage, Window};
use domain::scope::Role;
use domain::workspace::Workspace;

use super::super::{Use, messages, open};
use super::*;
use crate::store::Store;
use crate::store::messages::ThreadRead;

/// A thread of so many messages, whose last one was edited and answered, and that edit again, so many times.
struct Edited {
    db: Connection,
    /// Steps of SQLite's machine, about.
    steps: Arc<AtomicU64>,
    scope: Scope,
    thread: Uuid,
    head: Uuid,
    _folder: tempfile::TempDir,
}

async fn edited(length: i64, edits: i64) -> Edited {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("threadkeep.db");
    let store: Arc<dyn Store> = Arc::new(SqliteStore::open(&path, Use::Command).unwrap());
    let (workspace, thread, now) = (Uuid::from_u128(1), Uuid::from_u128(2), Timestamp::UNIX_EPOCH);
    let scope = Scope {
        workspace,
        org: "acme".into(),
        user: "ann".into(),
        role: Role::Admin,
        key: None,
        administers: true,
    };
    let (org, name) = (scope.org.clone(), "Team".into());
    let made =
        Workspace { id: workspace, org, name, default_visibility: Visibility::Private, created_at: now };
    store.create_workspace(&scope, &made).await.unwrap();
    let write = Write { now, max_tabs: 0 };
    store.create_conversation(&scope, &NewConversation::default(), thread, &write).await.unwrap();
    let first = NewMessage::text(Uuid::from_u128(3), MessageRole::User, "said", now);
    store.append_messages(&scope, thread, None, &[first], now).await.unwrap();
    let columns = "role, text, content, file_attachments, sources, token_count, metadata, created_at";
    let series = |from, to| {
        format!(
            "WITH RECURSIVE series(n) AS (SELECT {from} UNION ALL SELECT n + 1 FROM series WHERE n < {to}), \
             first AS (SELECT * FROM messages WHERE seq = 1)"
        )
    };
    let (messages, branches) = (series(2, length), series(1, edits));
    let mut db = open::connect_existing(&path).unwrap();
    db.execute_batch(&format!(
        "INSERT INTO messages (workspace_id, conversation_id, branch, seq, id, {columns}) \
         {messages} SELECT workspace_id, conversation_id, 0, n, randomblob(16), {columns} FROM first, series; \
         INSERT INTO branches (workspace_id, conversation_id, branch, id, parent, fork_seq, created_at) \
         {branches} SELECT workspace_id, id, n, randomblob(16), n - 1, {length} - 2 + n, created_at \
         FROM chat_conversations, series; \
         INSERT INTO messages (workspace_id, conversation_id, branch, seq, id, {columns}) \
         {branches} SELECT workspace_id, conversation_id, n, {length} - 2 + n + k, randomblob(16), {columns} \
         FROM first, series, (SELECT 1 AS k UNION ALL SELECT 2) own; \
         UPDATE chat_conversations SET current_branch = {edits};"
    ))
    .unwrap();
    let head =
        db.query_row("SELECT id FROM messages ORDER BY seq DESC LIMIT 1", [], |row| row.get(0)).unwrap();
    let steps = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&steps);
    let step = move || {
        count.fetch_add(1, Ordering::Relaxed);
        false
    };
    db.progress_handler(1, Some(step)).unwrap();
    Edited { db, steps, scope, thread, head, _folder: folder }
}

impl Edited {
    /// How many steps it takes. What was prepared before stays so.
    fn steps<T>(&self, work: impl Fn(&Connection) -> Result<T>) -> u64 {
        work(&self.db).unwrap();
        let before = self.steps.load(Ordering::Relaxed);
        work(&self.db).unwrap();
        self.steps.load(Ordering::Relaxed) - before
    }

    fn window(&self, window: Window) -> u64 {
        self.steps(|db| {
            let found = messages::get_thread(db, &self.scope, self.thread, ThreadRead::from(Some(window)))?;
            assert_eq!((found.messages.len(), found.has_before), (10, true));
            Ok(())
        })
    }

    fn costs(&self) -> [u64; 3] {
        let branch = list(&self.db, &self.scope, self.thread).unwrap().pop().unwrap().id;
        [
            self.window(Window::Newest { limit: 10 }),
            self.window(Window::Before { message: self.head, limit: 10 }),
            self.steps(|db| select(db, &self.scope, self.thread, branch, Timestamp::UNIX_EPOCH)),
        ]
    }
}

#[tokio::test]
async fn the_newest_messages_cost_the_same_in_a_long_thread_of_many_edits() {
    let costs = edited(100, 20).await.costs();
    assert!(costs.iter().all(|steps| *steps < 2000), "{costs:?}");
    assert_eq!(edited(10_000, 20).await.costs(), costs, "of a long thread");
    assert_eq!(edited(100, 500).await.costs(), costs, "of many edits");
}

#[tokio::test]
async fn branches_are_listed_at_the_cost_of_their_number() {
    let listed = async |length, edits| {
        let of = edited(length, edits).await;
        of.steps(|db| list(db, &of.scope, of.thread))
    };
    let few = listed(100, 50).await;
    assert!(listed(10_000, 50).await < few + 50, "not of the thread's length");
    let many = listed(100, 500).await;
    assert!(many < few * 11, "{few} steps for 50 branches, {many} for 500");
}
