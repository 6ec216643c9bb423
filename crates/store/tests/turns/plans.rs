//! What a turn reads, on PostgreSQL, whose plans are made while the tables are still empty.

use domain::message::Window;
use domain::scope::Scope;
use store::ThreadRead;
use testkit::postgres::TestDatabase;
use uuid::Uuid;

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

const LENGTH: i64 = 5000;
const EDITS: i64 = 300;
/// Rows of threads alone that were come upon.
const OF_THREADS: &str = "SELECT ((SELECT sum(idx_tup_read) FROM pg_stat_user_indexes \
     WHERE relname IN ('messages', 'branches')) + (SELECT sum(seq_tup_read) FROM pg_stat_user_tables \
     WHERE relname IN ('messages', 'branches')))::bigint";

/// A thread of so many messages, whose last one was edited and answered, and that edit again, so many times.
async fn edited(store: &TestStore) -> (Scope, Uuid) {
    let scope = store.workspace("ann").await;
    let (run, _) = store.started(&scope, turn(None, "first")).await;
    let columns = "role, text, content, file_attachments, sources, token_count, metadata, created_at";
    let first = "(SELECT * FROM messages LIMIT 1) m";
    let fill = format!(
        "INSERT INTO messages (workspace_id, conversation_id, branch, seq, id, {columns}) \
         SELECT workspace_id, conversation_id, 0, n, gen_random_uuid(), {columns} \
         FROM {first}, generate_series(2, {LENGTH}) n; \
         INSERT INTO branches (workspace_id, conversation_id, branch, id, parent, fork_seq, created_at) \
         SELECT workspace_id, id, n, gen_random_uuid(), n - 1, {LENGTH} - 2 + n, created_at \
         FROM chat_conversations, generate_series(1, {EDITS}) n; \
         INSERT INTO messages (workspace_id, conversation_id, branch, seq, id, {columns}) \
         SELECT workspace_id, conversation_id, n, {LENGTH} - 2 + n + own, gen_random_uuid(), {columns} \
         FROM {first}, generate_series(1, {EDITS}) n, generate_series(1, 2) own; \
         UPDATE chat_conversations SET current_branch = {EDITS}"
    );
    store.behind("", &fill).await;
    (scope, run.conversation.unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_newest_messages_cost_the_same_in_a_long_thread_of_many_edits() {
    for statistics in ["", "ANALYZE"] {
        let Some(store) = crate::setup::postgres().await else { return };
        let Behind::Postgres(database) = &store.behind else { return };
        let (scope, thread) = edited(&store).await;
        store.behind("", statistics).await;
        let (times, limit) = (20, 10);
        for _ in 0..times {
            let read = ThreadRead::from(Some(Window::Newest { limit }));
            let newest = store.get_thread(&scope, thread, read).await.unwrap().messages;
            assert_eq!((newest.len(), newest[9].seq), (limit, LENGTH + EDITS));
            let before = Window::Before { message: newest[9].id, limit };
            let older = store.get_thread(&scope, thread, Some(before).into()).await.unwrap().messages;
            assert_eq!(older[1..], newest[..9]);
            let next = store.new_turn(turn(Some(thread), "next"));
            assert!(matches!(store.begin_turn(&scope, &next).await.unwrap(), store::turns::Begun::Busy(_)));
        }
        let read = close_and_ask(&store, database, OF_THREADS).await;
        // Of two windows a row of each segment and as many of the branches, and the one under way looks for the head.
        assert!(read / times < 150, "{} rows read each time", read / times);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn branches_are_listed_at_the_cost_of_their_number() {
    let Some(store) = crate::setup::postgres().await else { return };
    let Behind::Postgres(database) = &store.behind else { return };
    let (scope, thread) = edited(&store).await;
    let listed = store.list_branches(&scope, thread).await.unwrap();
    assert!(listed.iter().all(|branch| branch.head.is_some()));
    let read = close_and_ask(&store, database, OF_THREADS).await;
    assert!(read / EDITS < 10, "{} rows read for each branch", read / EDITS);
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
