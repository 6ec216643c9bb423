//! What a turn reads, on PostgreSQL, whose plans are made while the tables are still empty.

use testkit::postgres::TestDatabase;

use crate::play::{events, turn};
use crate::setup::{Behind, TestStore, superuser};

/// Rows that indexes and scans came upon, in all tables of this database.
const READ: &str = "SELECT ((SELECT sum(idx_tup_read) FROM pg_stat_user_indexes) \
     + (SELECT sum(seq_tup_read) FROM pg_stat_user_tables))::bigint";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_turn_reads_no_more_rows_in_a_workspace_that_has_grown_since_its_plans_were_made() {
    let Some(store) = crate::setup::postgres().await else { return };
    let Behind::Postgres(database) = &store.behind else { return };
    let scope = store.workspace("ann").await;
    let (threads, open) = (300, 10);
    for n in 0..threads + open {
        let (run, held) = store.started(&scope, turn(None, "first")).await;
        store.append_events(&held, &events(2, 3)).await.unwrap();
        if n < open {
            // These stay under way beside all the others.
            continue;
        }
        store.settle_turn(&held, &store.settlement("an answer", events(4, 5))).await.unwrap();
        let thread = run.conversation.unwrap();
        let (run, held) = store.started(&scope, turn(Some(thread), "second")).await;
        store.get_dispatch(&held, 10).await.unwrap();
        store.append_events(&held, &events(2, 3)).await.unwrap();
        store.settle_turn(&held, &store.settlement("another", events(4, 5))).await.unwrap();
        store.get_run(&scope, run.id).await.unwrap();
        store.list_run_assets(scope.workspace, run.id).await.unwrap();
        assert_eq!(store.texts(&scope, thread, None).await.len(), 4);
    }
    let read = close_and_ask(&store, database, READ).await;
    // The runs that stay open are counted at every begin; beside that a turn reads what is its own: about 100, and
    // some rows that are dead while other transactions of the cluster are old.
    let turns = i64::from(2 * threads + open);
    assert!(read / turns < 250, "{} rows read for each turn", read / turns);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_append_does_not_ask_whose_conversation_it_is() {
    let Some(store) = crate::setup::postgres().await else { return };
    let Behind::Postgres(database) = &store.behind else { return };
    let scope = store.workspace("ann").await;
    let (_, held) = store.started(&scope, turn(None, "first")).await;
    for n in 1..=100 {
        store.append_events(&held, &events(2 * n, 2 * n + 1)).await.unwrap();
    }
    let asked =
        "SELECT (seq_scan + idx_scan)::bigint FROM pg_stat_user_tables WHERE relname = 'chat_conversations'";
    let asked = close_and_ask(&store, database, asked).await;
    // By the begin alone.
    assert!(asked < 50, "{asked} times");
}

/// Each connection tells what it read when it goes.
async fn close_and_ask(store: &TestStore, database: &TestDatabase, number: &str) -> i64 {
    store.close().await;
    let root = superuser(database).await;
    let others = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()";
    while root.query_one(others, &[]).await.unwrap().get::<_, i64>(0) > 0 {
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    root.query_one(number, &[]).await.unwrap().get(0)
}
