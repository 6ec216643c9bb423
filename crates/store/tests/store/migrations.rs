//! The schema: made once, by one, whole; refused when it is from the future.

use std::collections::BTreeSet;
use std::path::Path;

use domain::file::Bag;
use domain::scope::{Role, Scope};
use domain::secret::Secret;
use futures_util::future::join_all;
use jiff::Timestamp;
use store::postgres::{PostgresOptions, PostgresStore};
use store::sqlite::{SqliteStore, Use};
use store::{Store as _, StoreError};
use uuid::Uuid;

use crate::setup::{Behind, TestStore, open_postgres, rusqlite, session, superuser};

on_both!(a_newer_schema_is_refused_at_start_and_borne_while_running);

const NEWER: &str = "INSERT INTO refinery_schema_history (version, name, applied_on, checksum) \
                     VALUES (99, 'future', '2030-01-01T00:00:00Z', '1')";

async fn a_newer_schema_is_refused_at_start_and_borne_while_running(store: TestStore) {
    store.ping().await.unwrap();
    let (opened, found) = match &store.behind {
        Behind::Sqlite(folder) => {
            rusqlite(folder).execute_batch(NEWER).unwrap();
            let path = folder.path().join("threadkeep.db");
            (SqliteStore::open(&path, Use::Command).err(), SqliteStore::schema_version(&path))
        }
        Behind::Postgres(database) => {
            session(database.url()).await.batch_execute(NEWER).await.unwrap();
            let url = Secret::new(database.url());
            let opened = PostgresStore::open(&url, &PostgresOptions::default()).await.err();
            (opened, PostgresStore::schema_version(&url).await)
        }
    };
    assert!(matches!(opened, Some(StoreError::NewerSchema { found: 99, known }) if known < 99), "{opened:?}");
    assert_eq!(found.unwrap(), Some(99));
    // A rolling upgrade migrates while older nodes still serve: they stay ready until they are stopped.
    store.ping().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_migration_that_a_serving_node_breaks_off_is_tried_again() {
    let Some(store) = crate::setup::postgres().await else { return };
    let Behind::Postgres(database) = &store.behind else { return };
    let (node, root) = (session(database.url()).await, superuser(database).await);
    // Of two that wait for each other PostgreSQL breaks one off; on a slow machine it may be the node.
    for _ in 0..10 {
        // The twelfth locks tables; it and those after it can be run twice, without the column that one adds.
        let again = "DELETE FROM refinery_schema_history WHERE version >= 12; ALTER TABLE approvals DROP COLUMN result";
        node.batch_execute(again).await.unwrap();
        node.batch_execute("BEGIN; SELECT FROM runs").await.unwrap();
        let migrating = open_postgres(database, true);
        let serving = async {
            // What the migration has by now is what this transaction wants next.
            let waits = "SELECT FROM pg_locks WHERE relation = 'runs'::regclass AND NOT granted";
            while root.query(waits, &[]).await.unwrap().is_empty() {}
            node.batch_execute("SELECT FROM run_events; COMMIT").await
        };
        let (migrated, served) = futures_util::future::join(migrating, serving).await;
        migrated.ping().await.unwrap();
        if served.is_ok() {
            return;
        }
        node.batch_execute("ROLLBACK").await.unwrap();
    }
    panic!("never the migration");
}

fn migrations(dialect: &str) -> BTreeSet<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("migrations").join(dialect);
    let files = std::fs::read_dir(folder).unwrap();
    files.map(|file| file.unwrap().file_name().into_string().unwrap()).collect()
}

/// The number of the newest one: numbers need not follow each other.
fn newest(dialect: &str) -> i32 {
    let number = |name: &String| name[1..].split_once("__").unwrap().0.parse().unwrap();
    migrations(dialect).iter().map(number).max().unwrap()
}

#[test]
fn both_dialects_have_the_same_migrations() {
    assert_eq!(migrations("sqlite"), migrations("postgres"));
    assert!(migrations("sqlite").contains("V1__conversations.sql"));
}

#[test]
fn many_openers_of_one_file_all_find_the_schema_made_once() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("new/folder/threadkeep.db");
    assert_eq!(SqliteStore::schema_version(&path).unwrap(), None);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| SqliteStore::open(&path, Use::Command).unwrap());
        }
    });
    assert_eq!(SqliteStore::schema_version(&path).unwrap(), Some(newest("sqlite")));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_openers_of_one_database_all_find_the_schema_made_once() {
    let Some(one) = testkit::postgres::database().await else { return };
    let Some(other) = testkit::postgres::database().await else { return };
    let urls = [Secret::new(one.url()), Secret::new(other.url())];
    assert_eq!(PostgresStore::schema_version(&urls[0]).await.unwrap(), None);
    // Two databases of one cluster share the role that both want to make.
    let options = PostgresOptions::default();
    let opens = (0..12).map(|n| PostgresStore::open(&urls[n % 2], &options));
    for store in join_all(opens).await {
        store.unwrap().ping().await.unwrap();
    }
    let version = PostgresStore::schema_version(&urls[0]).await.unwrap();
    assert_eq!(version, Some(newest("postgres")));
}

/// What every turn writes at length costs less that way.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn long_values_of_a_database_are_compressed_with_lz4() {
    let Some(database) = testkit::postgres::database().await else { return };
    PostgresStore::open(&Secret::new(database.url()), &PostgresOptions::default()).await.unwrap();
    let db = session(database.url()).await;
    let text = "SELECT 'lz4' = ANY (enumvals) FROM pg_settings WHERE name = 'default_toast_compression'";
    if !db.query_opt(text, &[]).await.unwrap().is_some_and(|row| row.get(0)) {
        return;
    }
    let text = "SELECT relname || '.' || attname FROM pg_attribute JOIN pg_class c ON c.oid = attrelid \
                WHERE relkind = 'r' AND attcompression = 'l' ORDER BY 1";
    let columns: Vec<String> = db.query(text, &[]).await.unwrap().iter().map(|row| row.get(0)).collect();
    let long = [
        "message_search.words",
        "messages.content",
        "messages.text",
        "page_search.words",
        "row_search.words",
        "run_events.entries",
    ];
    assert_eq!(columns, long);
}

mod sqlite_steps {
    refinery::embed_migrations!("migrations/sqlite");
}

mod postgres_steps {
    refinery::embed_migrations!("migrations/postgres");
}

/// The version before files could be reserved.
const BEFORE_FILES: refinery::Target = refinery::Target::Version(2);

/// A workspace, a conversation, a run with its log and its trace, and a file, all with one id, in the words of version 2.
fn rows_of_version_2(id: &str, bytes: &str, time: &str) -> String {
    let ids = |count: usize| vec![id; count].join(", ");
    format!(
        "INSERT INTO workspaces (id, org_id, name, created_at) VALUES ({id}, 'acme', 'Team', {time}); \
         INSERT INTO chat_conversations (workspace_id, id, org_id, user_id, kind, visibility, created_at, updated_at, \
             version) VALUES ({two}, 'acme', 'ann', 'model_chat', 'private', {time}, {time}, 1); \
         INSERT INTO runs (workspace_id, id, conversation_id, status, created_at) \
             VALUES ({three}, 'succeeded', {time}); \
         INSERT INTO run_events (workspace_id, run_id, first_entry, last_entry, last_seq, entries) \
             VALUES ({two}, 2, 3, 2, 'second'), ({two}, 1, 1, 1, 'first'); \
         INSERT INTO run_traces (workspace_id, run_id, entries) VALUES ({two}, 'whole'); \
         INSERT INTO files (workspace_id, id, conversation_id, name, name_key, mime_type, size, sha256, storage_key, \
             source, created_at) VALUES ({three}, 'f', 'f', 'text/plain', 1, {bytes}, 'k', 'user', {time})",
        two = ids(2),
        three = ids(3)
    )
}

fn member_of(workspace: Uuid) -> Scope {
    Scope {
        workspace,
        org: "acme".into(),
        user: "ann".into(),
        role: Role::Member,
        key: None,
        administers: false,
    }
}

/// What was there before is there after.
async fn kept_its_rows(store: &dyn store::Store, id: Uuid) {
    let ann = member_of(id);
    let files = store.list_files(&ann, Bag::Conversation(id), None, 9).await.unwrap();
    assert_eq!(files.iter().map(|file| (file.id, &*file.name)).collect::<Vec<_>>(), [(id, "f")]);
    assert_eq!(store.list_runs(&ann, id, None, 9).await.unwrap().len(), 1);
    assert_eq!(store.read_log(&ann, id, 0, 9_000).await.unwrap().entries, ["first", "second"]);
    assert_eq!(store.read_log(&ann, id, 1, 9_000).await.unwrap().entries, ["second"]);
    store.restore_conversation(&ann, id, Timestamp::UNIX_EPOCH).await.unwrap();
}

#[tokio::test]
async fn a_file_of_the_version_before_is_brought_up_to_date() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("threadkeep.db");
    std::fs::write(&path, []).unwrap();
    let mut db = rusqlite(&folder);
    sqlite_steps::migrations::runner().set_target(BEFORE_FILES).run(&mut db).unwrap();
    let id = Uuid::from_u128(7);
    let bytes = format!("x'{}'", "01".repeat(32));
    db.execute_batch(&rows_of_version_2(&format!("x'{}'", id.simple()), &bytes, "0")).unwrap();
    drop(db);
    kept_its_rows(&SqliteStore::open(&path, Use::Command).unwrap(), id).await;
    let db = rusqlite(&folder);
    let text = |text: &str| db.query_row(text, [], |row| row.get::<_, String>(0)).unwrap();
    assert_eq!(text("SELECT entries FROM run_traces"), "whole");
    // A long row in the tree of the keys would be read by every append that passes it.
    for table in ["run_events", "run_traces"] {
        let made = text(&format!("SELECT sql FROM sqlite_schema WHERE name = '{table}'"));
        assert!(made.contains("REFERENCES runs") && !made.contains("WITHOUT ROWID"), "{made}");
    }
}

#[tokio::test]
async fn a_database_of_the_version_before_is_brought_up_to_date() {
    // The roles are the whole cluster's, and made when a store is opened.
    if crate::setup::postgres().await.is_none() {
        return;
    }
    let Some(database) = testkit::postgres::database().await else { return };
    let mut owner = session(database.url()).await;
    postgres_steps::migrations::runner().set_target(BEFORE_FILES).run_async(&mut owner).await.unwrap();
    let id = Uuid::from_u128(7);
    let bytes = format!("'\\x{}'", "01".repeat(32));
    let rows = rows_of_version_2(&format!("'{id}'"), &bytes, "now()");
    crate::setup::superuser(&database).await.batch_execute(&rows).await.unwrap();
    kept_its_rows(&*open_postgres(&database, true).await, id).await;
}

/// The version before expired logs were kept in parts.
const BEFORE_PARTS: refinery::Target = refinery::Target::Version(15);

/// A long log, a short one, and one that another program has spelled, each as the one row that an expired log was.
fn logs_of_version_15() -> [Vec<String>; 3] {
    let line = |n: usize| match n % 7 {
        0 => format!(r#"{{"n":{n},"seq":null,"ts":1,"kind":"log","data":{{"message":"\\u0000, {n}"}}}}"#),
        _ => {
            let text = "ä, \\n".repeat(if n.is_multiple_of(100) { 9_000 } else { 90 });
            format!(r#"{{"n":{n},"seq":{},"ts":1,"kind":"delta","data":{{ "text": "{text}" }}}}"#, n - n / 7)
        }
    };
    let other =
        |n: usize| format!(r#"{{ "seq":{n}, "n":{n},"ts":1,"kind":"delta","data":{{"text":"{n}"}}}}"#);
    [(1..=1500).map(line).collect(), (1..=7).map(line).collect(), (1..=3).map(other).collect()]
}

/// As an expired log was stored, for the run with this number.
fn trace_of_version_15(at: u128, log: &[String], postgres: bool) -> String {
    let number = Uuid::from_u128(at);
    let (id, yes, time) = match postgres {
        true => (format!("'{number}'"), "true", "now()"),
        false => (format!("x'{}'", number.simple()), "1", "0"),
    };
    let (count, events) = (log.len(), log.len() - if log.len() == 3 { 0 } else { log.len() / 7 });
    let run = format!(
        "INSERT INTO workspaces (id, org_id, name, created_at) VALUES ({id}, 'acme', 'Team', {time}); \
         INSERT INTO chat_conversations (workspace_id, id, org_id, user_id, kind, visibility, created_at, updated_at, \
             version) VALUES ({id}, {id}, 'acme', 'ann', 'model_chat', 'private', {time}, {time}, 1); \
         INSERT INTO runs (workspace_id, id, conversation_id, status, created_at, ended_at, log_expired, last_entry, \
             last_event) VALUES ({id}, {id}, {id}, 'succeeded', {time}, {time}, {yes}, {count}, {events});"
    );
    let entries = log.join("\n").replace('\'', "''");
    format!("{run} INSERT INTO run_traces (workspace_id, run_id, entries) VALUES ({id}, {id}, '{entries}');")
}

/// Every old log, line by line, from the beginning and from the middle, by entries and by events.
async fn kept_its_logs(store: &dyn store::Store) {
    #[derive(serde::Deserialize)]
    struct Number {
        n: i64,
        seq: Option<i64>,
    }
    for (log, at) in logs_of_version_15().iter().zip(1..) {
        let id = Uuid::from_u128(at);
        let ann = member_of(id);
        for (from, trace) in [(0, true), (0, false), (2, true), (2, false), (700, true), (700, false)] {
            let (mut after, mut read, mut largest) = (from, Vec::new(), 0);
            loop {
                let page = match trace {
                    true => store.read_trace(&ann, id, after, 1).await.unwrap(),
                    false => store.read_log(&ann, id, after, 1).await.unwrap(),
                };
                let before = after;
                largest = largest.max(page.entries.iter().map(String::len).sum::<usize>());
                for line in page.entries.iter().flat_map(|entries| entries.lines()) {
                    let Number { n, seq } = serde_json::from_str(line).unwrap();
                    if let Some(number) = if trace { Some(n) } else { seq }.filter(|number| *number > after) {
                        after = number;
                        read.push(line.to_owned());
                    }
                }
                if after == before {
                    break;
                }
            }
            let wanted: Vec<&String> = log
                .iter()
                .filter(|line| {
                    let Number { n, seq } = serde_json::from_str(line).unwrap();
                    if trace { n > from } else { seq.is_some_and(|seq| seq > from) }
                })
                .collect();
            assert!(read.iter().eq(wanted.iter().copied()), "log {at} from {from}, {trace}");
            assert!(largest <= 256 * 1024 + 70_000, "log {at}: {largest} bytes");
        }
    }
}

#[tokio::test]
async fn expired_logs_of_a_file_are_cut_into_parts() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("threadkeep.db");
    std::fs::write(&path, []).unwrap();
    let mut db = rusqlite(&folder);
    sqlite_steps::migrations::runner().set_target(BEFORE_PARTS).run(&mut db).unwrap();
    for (log, at) in logs_of_version_15().iter().zip(1..) {
        db.execute_batch(&trace_of_version_15(at, log, false)).unwrap();
    }
    drop(db);
    kept_its_logs(&SqliteStore::open(&path, Use::Command).unwrap()).await;
    let db = rusqlite(&folder);
    let count = |text: &str| db.query_row(text, [], |row| row.get::<_, i64>(0)).unwrap();
    assert_eq!(count("SELECT count(*) FROM run_traces"), 0);
    assert!(count("SELECT count(*) FROM run_events") > 6);
}

#[tokio::test]
async fn expired_logs_of_a_database_are_cut_into_parts() {
    // The roles are the whole cluster's, and made when a store is opened.
    if crate::setup::postgres().await.is_none() {
        return;
    }
    let Some(database) = testkit::postgres::database().await else { return };
    let mut owner = session(database.url()).await;
    postgres_steps::migrations::runner().set_target(BEFORE_PARTS).run_async(&mut owner).await.unwrap();
    let root = crate::setup::superuser(&database).await;
    for (log, at) in logs_of_version_15().iter().zip(1..) {
        root.batch_execute(&trace_of_version_15(at, log, true)).await.unwrap();
    }
    kept_its_logs(&*open_postgres(&database, true).await).await;
    let count = async |text: &str| root.query_one(text, &[]).await.unwrap().get::<_, i64>(0);
    assert_eq!(count("SELECT count(*) FROM run_traces").await, 0);
    assert!(count("SELECT count(*) FROM run_events").await > 6);
}

/// A table in the way of the last statements of the first migration.
const IN_THE_WAY: &str = "CREATE TABLE files (x INTEGER)";

#[test]
fn a_migration_that_fails_half_way_leaves_the_old_schema_of_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("threadkeep.db");
    std::fs::write(&path, []).unwrap();
    let db = rusqlite(&folder);
    db.execute_batch(IN_THE_WAY).unwrap();
    assert!(SqliteStore::open(&path, Use::Command).is_err());
    let tables = "SELECT count(*) FROM sqlite_schema WHERE name IN ('workspaces', 'messages', 'runs')";
    assert_eq!(db.query_row(tables, [], |row| row.get::<_, i64>(0)).unwrap(), 0);
    assert_eq!(SqliteStore::schema_version(&path).unwrap(), None);
    db.execute_batch("DROP TABLE files").unwrap();
    SqliteStore::open(&path, Use::Command).unwrap();
}

#[tokio::test]
async fn a_migration_that_fails_half_way_leaves_the_old_schema_of_a_database() {
    let Some(database) = testkit::postgres::database().await else { return };
    let owner = session(database.url()).await;
    owner.batch_execute(IN_THE_WAY).await.unwrap();
    let url = Secret::new(database.url());
    let Err(error) = PostgresStore::open(&url, &PostgresOptions::default()).await else {
        panic!("it opened")
    };
    assert!(error.to_string().contains("\"files\" already exists"), "{error}");
    let tables = "SELECT to_regclass('workspaces') IS NULL AND to_regclass('messages') IS NULL";
    assert!(owner.query_one(tables, &[]).await.unwrap().get::<_, bool>(0));
    assert_eq!(PostgresStore::schema_version(&url).await.unwrap(), None);
    owner.batch_execute("DROP TABLE files").await.unwrap();
    PostgresStore::open(&url, &PostgresOptions::default()).await.unwrap().ping().await.unwrap();
}
