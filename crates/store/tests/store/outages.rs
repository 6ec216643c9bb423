//! PostgreSQL when it is away, in the way or comes back: what callers are told, and that nothing of one
//! caller's transaction is left for the next.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Waker};
use std::time::Duration;

use domain::conversation::NewConversation;
use domain::secret::Secret;
use store::StoreError;
use store::postgres::{PostgresOptions, PostgresStore};
use testkit::postgres::TestDatabase;
use tokio_postgres::Client;

use crate::setup::{Behind, TestStore, kind, newest, open_postgres, postgres, session, superuser};

fn database(store: &TestStore) -> &TestDatabase {
    match &store.behind {
        Behind::Postgres(database) => database,
        Behind::Sqlite(_) => panic!("a test of PostgreSQL"),
    }
}

#[tokio::test]
async fn an_address_that_leads_nowhere_is_said_without_its_password() {
    for (url, said) in [
        ("postgres://me:hunter2@127.0.0.1:1/db", "127.0.0.1:1"),
        ("postgres://me:hunter2@127.0.0.1:1/db?sslmode=require", "127.0.0.1:1"),
        ("postgres://me:hunter2@127.0.0.1:1/db?sslmode=hunter2", "postgres://user:password@host"),
        ("postgres://me:hunter2@[/db", "postgres://user:password@host"),
        ("host=127.0.0.1 password=pass hunter2=word", "postgres://user:password@host"),
    ] {
        let opened = PostgresStore::open(&Secret::new(url), &PostgresOptions::default()).await;
        let Err(error) = opened else { panic!("{url} opened") };
        assert!(matches!(error, StoreError::Unavailable(_)), "{error}");
        assert!(error.to_string().contains(said), "{error}");
        assert!(!format!("{error} {error:?}").contains("hunter2"), "{error}");
    }
}

#[tokio::test]
async fn a_database_that_is_not_there_is_named() {
    let Some(database) = testkit::postgres::database().await else { return };
    let url = database.url().replace("/tk_test_", "/tk_none_");
    let Err(error) = PostgresStore::open(&Secret::new(url), &PostgresOptions::default()).await else {
        panic!("it opened")
    };
    assert!(matches!(error, StoreError::Unavailable(_)) && error.to_string().contains("tk_none_"), "{error}");
}

#[tokio::test]
async fn an_administrator_is_told_what_to_run_where_the_role_cannot_be_had() {
    let Some(database) = testkit::postgres::database().await else { return };
    drop(open_postgres(&database, true).await);
    let root = superuser(&database).await;
    let name = format!("plain_{}", database.url().rsplit('_').next().unwrap());
    root.batch_execute(&format!("CREATE ROLE {name} LOGIN")).await.unwrap();
    let url = database.url().replacen("threadkeep_owner", &name, 1);
    let opened = PostgresStore::open(&Secret::new(url), &PostgresOptions::default()).await;
    root.batch_execute(&format!("DROP ROLE {name}")).await.unwrap();
    let Err(error) = opened else { panic!("it opened") };
    assert!(matches!(error, StoreError::Unavailable(_)), "{error}");
    assert!(error.to_string().contains("GRANT threadkeep_app TO"), "{error}");
}

#[tokio::test]
async fn the_store_recovers_by_itself_when_connections_die() {
    let Some(store) = postgres().await else { return };
    let ann = store.workspace("ann").await;
    let thread = store.create(&ann, "t").await;
    let root = superuser(database(&store)).await;
    for _ in 0..3 {
        let end = "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity \
                   WHERE datname = current_database() AND application_name = 'threadkeep'";
        assert!(!root.query(end, &[]).await.unwrap().is_empty());
        // Each dead connection may cost one answer, and is replaced.
        let mut tries = 0;
        while let Err(error) = store.get_thread(&ann, thread.id, store::ThreadRead::default()).await {
            assert_eq!(kind(&error), "unavailable", "{error}");
            tries += 1;
            assert!(tries < 10, "{error}");
        }
        store.patch(&ann, thread.id, |_| ()).await.unwrap();
    }
}

#[tokio::test]
async fn a_closed_store_says_so() {
    let Some(store) = postgres().await else { return };
    let ann = store.workspace("ann").await;
    store.close().await;
    let error = store.list_conversations(&ann, &newest()).await.unwrap_err();
    assert_eq!(kind(&error), "unavailable");
}

/// The store behind a gate, with so many connections.
async fn behind(connections: usize) -> Option<(TestStore, testkit::gate::Gate)> {
    let database = testkit::postgres::database().await?;
    let url = reqwest::Url::parse(database.url()).unwrap();
    let server = format!("{}:{}", url.host_str().unwrap(), url.port().unwrap());
    let gate = testkit::gate::Gate::to(server).await.unwrap();
    let mut url = url;
    url.set_port(Some(gate.port())).unwrap();
    let options = PostgresOptions { connections, application_filter: true };
    let store = PostgresStore::open(&Secret::new(url.as_str()), &options).await.unwrap();
    let store = TestStore {
        store: std::sync::Arc::new(store),
        clock: domain::time::FixedClock::new(domain::time::from_ms(1_778_749_956_000)),
        behind: Behind::Postgres(database),
    };
    Some((store, gate))
}

#[tokio::test]
async fn a_database_that_falls_silent_is_unavailable_and_comes_back() {
    let Some((store, gate)) = behind(2).await else { return };
    let ann = store.workspace("ann").await;
    let thread = store.create(&ann, "t").await;
    let root = superuser(database(&store)).await;
    gate.fall_silent();
    let read = store.get_thread(&ann, thread.id, store::ThreadRead::default());
    let write = store.patch(&ann, thread.id, |patch| patch.model = Some(Some("m".into())));
    // One connection is left for each, and none for these.
    let list = async {
        tokio::task::yield_now().await;
        store.list_conversations(&ann, &newest()).await
    };
    let all = futures_util::future::join4(read, write, list, store.ping());
    let (read, written, list, ready) =
        tokio::time::timeout(Duration::from_secs(60), all).await.expect("none waits for ever");
    assert_eq!(kind(&read.unwrap_err()), "unavailable");
    assert_eq!(kind(&written.unwrap_err()), "unavailable");
    assert_eq!(kind(&list.unwrap_err()), "unavailable");
    assert_eq!(kind(&ready.unwrap_err()), "unavailable");

    gate.open();
    store.ping().await.unwrap();
    let found = store.get_thread(&ann, thread.id, store::ThreadRead::default()).await.unwrap().conversation;
    assert_eq!(found, thread, "what was given up before its end was not done");
    store.patch(&ann, thread.id, |patch| patch.model = Some(Some("m".into()))).await.unwrap();
    until_none_is_in_a_transaction(&root).await;
}

/// It is there, and only slow: nobody gives up.
#[tokio::test]
async fn what_takes_long_is_waited_for() {
    let Some((store, _gate)) = behind(1).await else { return };
    let ann = store.workspace("ann").await;
    let thread = store.create(&ann, "t").await;
    let root = session(&database(&store).superuser_url().unwrap()).await;
    root.batch_execute("BEGIN; UPDATE chat_conversations SET title = 'theirs'").await.unwrap();
    let waiting = store.patch(&ann, thread.id, |patch| patch.model = Some(Some("m".into())));
    let commit = root.batch_execute("SELECT pg_sleep(5); COMMIT");
    // It has the only connection: this one waits behind it.
    let read = async {
        until_one_waits(&superuser(database(&store)).await).await;
        store.get_thread(&ann, thread.id, store::ThreadRead::default()).await
    };
    let (changed, committed, read) = futures_util::future::join3(waiting, commit, read).await;
    committed.unwrap();
    assert_eq!(changed.unwrap().title.as_deref(), Some("theirs"));
    assert_eq!(read.unwrap().conversation.model.as_deref(), Some("m"));
}

/// Comes back once no session of the store is in a transaction. One that was thrown away takes its time to go.
async fn until_none_is_in_a_transaction(other: &Client) {
    let open = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() \
                AND application_name = 'threadkeep' AND state LIKE 'idle in transaction%'";
    let ending = async {
        while other.query_one(open, &[]).await.unwrap().get::<_, i64>(0) > 0 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), ending).await.expect("a transaction was left open");
}

/// Polls a future `times` times and drops it, as a server does when its client goes away. Between polls
/// lies a round trip of another session, in which the future's own messages get on.
async fn abandon<F: Future>(future: F, times: usize, other: &Client) -> bool {
    let mut future = pin!(future);
    for _ in 0..times {
        if future.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready() {
            return true;
        }
        other.batch_execute("SELECT 1").await.unwrap();
    }
    false
}

/// Comes back once a session of this database waits for another one's lock.
async fn until_one_waits(other: &Client) {
    let waits = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() \
                 AND wait_event_type = 'Lock'";
    let waiting = async {
        while other.query_one(waits, &[]).await.unwrap().get::<_, i64>(0) == 0 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), waiting).await.expect("nobody waits: no lock is taken");
}

#[tokio::test]
async fn abandoned_verbs_leave_no_transaction_and_no_scope_behind() {
    let Some(database) = testkit::postgres::database().await else { return };
    let options = PostgresOptions { connections: 1, application_filter: true };
    let store = PostgresStore::open(&Secret::new(database.url()), &options).await.unwrap();
    let store = TestStore {
        store: std::sync::Arc::new(store),
        clock: domain::time::FixedClock::new(domain::time::from_ms(1_778_749_956_000)),
        behind: Behind::Postgres(database),
    };
    let ann = store.workspace("ann").await;
    let thread = store.create(&ann, "t").await;
    let root = superuser(self::database(&store)).await;
    // The newest session is the pool's; those before it were thrown away, and are gone when their end was heard.
    let pooled = "SELECT state FROM pg_stat_activity WHERE datname = current_database() \
                  AND application_name = 'threadkeep' ORDER BY backend_start DESC LIMIT 1";
    let (mut cut, mut whole) = (0, 0);
    for times in 1..60 {
        let write = store.write();
        let new = NewConversation::default();
        let written =
            abandon(store.create_conversation(&ann, &new, store.new_id(), &write), times, &root).await;
        let read =
            abandon(store.get_thread(&ann, thread.id, store::ThreadRead::default()), times, &root).await;
        for finished in [written, read] {
            if finished { whole += 1 } else { cut += 1 }
        }
        // One connection for all: what the abandoned left on it would show here.
        let made = store.create(&ann, "after").await;
        assert_eq!(
            store.get_thread(&ann, made.id, store::ThreadRead::default()).await.unwrap().conversation,
            made
        );
        assert_eq!(root.query_one(pooled, &[]).await.unwrap().get::<_, &str>(0), "idle");
        until_none_is_in_a_transaction(&root).await;
    }
    // On a busy machine each poll finds its answer there, and a verb is only cut at each of its round trips.
    assert!(cut > 3 && whole > 10, "both happened: {cut} abandoned, {whole} finished");
}

#[tokio::test]
async fn a_locked_row_makes_a_change_wait_and_not_fail() {
    let Some(store) = postgres().await else { return };
    let ann = store.workspace("ann").await;
    let thread = store.create(&ann, "t").await;
    let root = session(&database(&store).superuser_url().unwrap()).await;
    root.batch_execute("BEGIN; UPDATE chat_conversations SET title = 'theirs', version = version + 1")
        .await
        .unwrap();
    let waiting = store.patch(&ann, thread.id, |patch| patch.model = Some(Some("m".into())));
    let commit = async {
        until_one_waits(&root).await;
        root.batch_execute("COMMIT").await.unwrap();
    };
    let (changed, ()) = futures_util::future::join(waiting, commit).await;
    let changed = changed.unwrap();
    assert_eq!((changed.title.as_deref(), changed.version), (Some("theirs"), 3), "it saw the other's change");
}

#[tokio::test]
async fn a_deadlock_is_tried_again() {
    let Some(store) = postgres().await else { return };
    let ann = store.workspace("ann").await;
    let thread = store.create(&ann, "t").await;
    let root = superuser(database(&store)).await;
    // The other holds the workspace and wants the conversation; the verb holds the conversation and
    // wants the workspace, to write the audit log.
    root.batch_execute("SET deadlock_timeout = '60s'; BEGIN; SELECT 1 FROM workspaces FOR UPDATE")
        .await
        .unwrap();
    let other = async {
        until_one_waits(&root).await;
        root.batch_execute("UPDATE chat_conversations SET model = 'theirs'; COMMIT").await.unwrap();
    };
    let share = store.patch(&ann, thread.id, |patch| {
        patch.visibility = Some(domain::conversation::Visibility::Workspace);
    });
    let (shared, ()) = futures_util::future::join(share, other).await;
    assert_eq!(shared.unwrap().model.as_deref(), Some("theirs"));
    assert_eq!(domain::audit::first_broken(&store.list_audit(&ann, 0, 10).await.unwrap()), None);
}
