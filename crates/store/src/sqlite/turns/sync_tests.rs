//! What survives power loss before it is answered: that a turn was accepted, and how it ended.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use domain::conversation::Visibility;
use domain::message::{MessageRole, NewMessage};
use domain::open_runs::RunLimits;
use domain::run::{RunStatus, StartTurn, Usage};
use domain::scope::{Role, Scope};
use domain::tokens::TokenLimits;
use domain::workspace::Workspace;
use jiff::Timestamp;
use uuid::Uuid;

use crate::sqlite::desk::Desk;
use crate::sqlite::readers::Readers;
use crate::sqlite::writer::Writer;
use crate::sqlite::{SqliteStore, Use, open};
use crate::store::turns::Turns as _;
use crate::store::workspaces::Workspaces as _;
use crate::turns::{Batch, Begun, Held, NewTurn, Settlement};

/// A store in a folder, and how often it has synced.
fn counting(folder: &tempfile::TempDir) -> (SqliteStore, Arc<AtomicUsize>) {
    let path = folder.path().join("threadkeep.db");
    let opened = open::open(&path, Use::Command).unwrap();
    let syncs = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&syncs);
    let desk = Desk::new(opened.writer, &path).unwrap().with_sync(move |synced| {
        counted.fetch_add(1, Ordering::Relaxed);
        synced()
    });
    let writer = Writer::at(desk).unwrap();
    (SqliteStore { writer, readers: Readers::new(opened.readers), _lock: opened.lock }, syncs)
}

fn entry(n: i64) -> Batch {
    let entries = format!(r#"{{"n":{n},"seq":{n}}}"#).into();
    Batch { first_entry: n, last_entry: n, first_seq: n, last_seq: n, entries }
}

#[tokio::test]
async fn a_turn_is_synced_when_it_begins_and_when_it_ends_and_not_between() {
    let folder = tempfile::tempdir().unwrap();
    let (store, syncs) = counting(&folder);
    let now = Timestamp::UNIX_EPOCH;
    let ann = Scope {
        workspace: Uuid::from_u128(1),
        org: "acme".into(),
        user: "ann".into(),
        role: Role::Admin,
        key: None,
        administers: true,
    };
    let workspace = Workspace {
        id: ann.workspace,
        org: "acme".into(),
        name: "Team".into(),
        default_visibility: Visibility::Private,
        created_at: now,
    };
    store.create_workspace(&ann, &workspace).await.unwrap();
    let said = r#"{"message":{"content":"[{\"type\":\"text\",\"text\":\"hi\"}]","text":"hi"},
        "on_busy":"reject","on_disconnect":"cancel"}"#;
    let turn: StartTurn = serde_json::from_str(said).unwrap();
    let new = NewTurn {
        run: Uuid::from_u128(2),
        message: Uuid::from_u128(3),
        conversation: Uuid::from_u128(4),
        branch: Uuid::from_u128(5),
        turn,
        idempotency: None,
        node: Uuid::from_u128(6),
        lease_seconds: 30,
        open_runs: RunLimits { user: 10, workspace: 0 },
        tokens: TokenLimits::default(),
        now,
    };
    let before = syncs.swap(0, Ordering::Relaxed);
    assert!(before > 0);
    let Begun::Started { lease, .. } = store.begin_turn(&ann, &new).await.unwrap() else { panic!("started") };
    assert_eq!(syncs.swap(0, Ordering::Relaxed), 1, "accepted");
    let held = Held { workspace: ann.workspace, lease };
    store.append_events(&held, &entry(2)).await.unwrap();
    assert_eq!(syncs.swap(0, Ordering::Relaxed), 0, "an event");
    let settlement = Settlement {
        status: RunStatus::Succeeded,
        error: None,
        assistant: Some(NewMessage::text(new.run, MessageRole::Assistant, "ho", now).into()),
        response: None,
        files_logged: true,
        counted: None,
        usage: Usage::default(),
        batch: entry(3),
        now,
    };
    store.settle_turn(&held, &settlement).await.unwrap();
    assert_eq!(syncs.swap(0, Ordering::Relaxed), 1, "settled");
}
