//! The event log: read from anywhere, folded away in the end.

use domain::scope::Scope;
use store::StoreError;
use store::turns::{Batch, Held, LogPage};
use uuid::Uuid;

use crate::play::{events, turn};
use crate::setup::{Behind, TestStore, open_postgres, superuser};

on_both!(
    appends_of_many_workspaces_at_once_go_each_to_its_own,
    the_log_is_read_from_any_number_in_pages_of_any_size,
    an_expired_log_is_read_like_any_other,
    a_long_log_that_has_expired_is_read_in_pages,
    only_what_ended_long_ago_expires,
    a_damaged_log_holds_up_no_other,
    a_log_that_cannot_be_put_together_holds_up_no_other,
);

/// Entries with every third one for the trace alone: `n`, and the event's number if it has one.
fn mixed(entries: std::ops::RangeInclusive<i64>, last_seq: i64) -> (Batch, i64) {
    let (first_entry, last_entry) = (*entries.start(), *entries.end());
    let mut seq = last_seq;
    let lines: Vec<String> = entries
        .map(|n| match n % 3 {
            0 => format!(r#"{{"n":{n}}}"#),
            _ => {
                seq += 1;
                format!(r#"{{"n":{n},"seq":{seq}}}"#)
            }
        })
        .collect();
    let batch = Batch {
        first_entry,
        last_entry,
        first_seq: last_seq + 1,
        last_seq: seq,
        entries: lines.join("\n").into(),
    };
    (batch, seq)
}

fn numbers(page: &LogPage, name: &str) -> Vec<i64> {
    let lines = page.entries.iter().flat_map(|entries| entries.lines());
    let values = lines.map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    values.filter_map(|value| value.get(name).and_then(serde_json::Value::as_i64)).collect()
}

impl TestStore {
    /// All that comes after a number, page by page, as a reader asks for it.
    async fn rest(&self, scope: &Scope, run: Uuid, after: i64, max_bytes: usize, trace: bool) -> Vec<i64> {
        let (mut at, mut all) = (after, Vec::new());
        loop {
            let (page, name) = match trace {
                true => (self.read_trace(scope, run, at, max_bytes).await.unwrap(), "n"),
                false => (self.read_log(scope, run, at, max_bytes).await.unwrap(), "seq"),
            };
            assert!(page.entries.len() <= 1 || max_bytes > 1 || trace);
            let new: Vec<i64> = numbers(&page, name).into_iter().filter(|number| *number > at).collect();
            let Some(last) = new.last() else { return all };
            at = *last;
            all.extend(new);
        }
    }
}

async fn the_log_is_read_from_any_number_in_pages_of_any_size(store: TestStore) {
    let ann = store.workspace("ann").await;
    let (run, held) = store.started(&ann, turn(None, "one")).await;
    let page = store.read_log(&ann, run.id, 0, 1000).await.unwrap();
    assert_eq!((page.run, page.entries.len(), page.expired), (run.clone(), 1, false));
    let (mut entry, mut seq) = (2, 1);
    for size in [1, 1, 1, 5, 1, 2, 1, 1, 1, 9, 3, 1] {
        let (batch, last) = mixed(entry..=entry + size - 1, seq);
        store.append_events(&held, &batch).await.unwrap();
        (entry, seq) = (entry + size, last);
    }
    assert_eq!(store.get_run(&ann, run.id).await.unwrap().last_event, seq);
    for max_bytes in [1, 40, 150, 100_000] {
        for after in 0..=seq + 1 {
            let rest = store.rest(&ann, run.id, after, max_bytes, false).await;
            assert_eq!(rest, (after + 1..=seq).collect::<Vec<_>>(), "after {after}, {max_bytes} bytes");
        }
        for after in 0..entry {
            let rest = store.rest(&ann, run.id, after, max_bytes, true).await;
            assert_eq!(rest, (after + 1..entry).collect::<Vec<_>>(), "after {after}, {max_bytes} bytes");
        }
    }
    // One page is about as large as was asked for, and goes on for more batches than fit into one.
    for n in 0..300 {
        let (batch, last) = mixed(entry + n..=entry + n, seq);
        store.append_events(&held, &batch).await.unwrap();
        seq = last;
    }
    assert_eq!(store.rest(&ann, run.id, 0, 1_000_000, false).await, (1..=seq).collect::<Vec<_>>());
    assert_eq!(store.rest(&ann, run.id, 0, 1_000_000, true).await, (1..entry + 300).collect::<Vec<_>>());
}

async fn an_expired_log_is_read_like_any_other(store: TestStore) {
    let ann = store.workspace("ann").await;
    let (run, held) = store.started(&ann, turn(None, "one")).await;
    let (batch, seq) = mixed(2..=7, 1);
    store.append_events(&held, &batch).await.unwrap();
    let (batch, seq) = mixed(8..=12, seq);
    let settlement = store.settlement("1", batch);
    let settled = store.settle_turn(&held, &settlement).await.unwrap();
    let whole = store.read_trace(&ann, run.id, 0, 10_000).await.unwrap();
    assert_eq!(numbers(&whole, "n"), (1..=12).collect::<Vec<_>>());
    let later = store.write().now;
    assert_eq!(store.system_expire(later, later, 10).await.unwrap(), 1);
    assert_eq!(store.system_expire(later, later, 10).await.unwrap(), 0);
    assert_eq!(store.count("SELECT count(*) FROM run_events").await, 1);
    let page = store.read_log(&ann, run.id, 0, 10_000).await.unwrap();
    assert_eq!((page.run, page.expired), (settled.run, true));
    assert_eq!(page.entries, [whole.entries.join("\n")]);
    for after in 0..=seq {
        let rest = store.rest(&ann, run.id, after, 1, false).await;
        assert_eq!(rest, (after + 1..=seq).collect::<Vec<_>>(), "after {after}");
    }
    for after in 0..=12 {
        let rest = store.rest(&ann, run.id, after, 1, true).await;
        assert_eq!(rest, (after + 1..=12).collect::<Vec<_>>(), "after {after}");
    }
    assert_eq!(store.texts(&ann, run.conversation.unwrap(), None).await, ["one", "1"]);
}

/// Bytes of a page that a reader asks for, and of the rows that an expired log is kept in.
const CHUNK: usize = 256 * 1024;

async fn a_long_log_that_has_expired_is_read_in_pages(store: TestStore) {
    let ann = store.workspace("ann").await;
    let (run, held) = store.started(&ann, turn(None, "one")).await;
    let mut whole = store.read_trace(&ann, run.id, 0, CHUNK).await.unwrap().entries;
    // Small ones, ones of which two do not fit into a row, and one that is larger than any.
    let mut n = 1;
    for (size, count) in [(700, 300), (150_000, 20), (9_000, 200), (400_000, 1), (80, 1000)] {
        for _ in 0..count {
            n += 1;
            let entry = format!(r#"{{"n":{n},"seq":{n},"text":"{}"}}"#, "x".repeat(size));
            let batch = Batch {
                first_entry: n,
                last_entry: n,
                first_seq: n,
                last_seq: n,
                entries: entry.as_str().into(),
            };
            store.append_events(&held, &batch).await.unwrap();
            whole.push(entry);
        }
    }
    let end = events(n + 1, n + 1);
    whole.push(end.entries.to_string());
    store.settle_turn(&held, &store.settlement("1", end)).await.unwrap();
    let bytes: usize = whole.iter().map(String::len).sum();
    assert!(bytes > 5_000_000, "{bytes}");
    let later = store.write().now;
    assert_eq!(store.system_expire(later, later, 10).await.unwrap(), 1);
    let rows = store.count("SELECT count(*) FROM run_events").await;
    assert!((20..60).contains(&rows), "{rows}");
    for (from, trace) in [(0, false), (0, true), (n / 2, false), (n / 2, true), (n, false)] {
        let (mut at, mut read) = (from, Vec::new());
        loop {
            let page = match trace {
                true => store.read_trace(&ann, run.id, at, CHUNK).await.unwrap(),
                false => store.read_log(&ann, run.id, at, CHUNK).await.unwrap(),
            };
            let (size, largest) = (
                page.entries.iter().map(String::len).sum::<usize>(),
                page.entries.iter().map(String::len).max(),
            );
            assert!(largest.is_none_or(|largest| largest <= CHUNK || largest < 401_000), "{largest:?}");
            assert!(size < CHUNK + largest.unwrap_or(0), "a page of {size} bytes");
            let new = numbers(&page, "n").into_iter().rfind(|number| *number > at);
            let Some(last) = new else { break };
            let lines = page.entries.iter().flat_map(|entries| entries.lines()).map(str::to_owned);
            read.extend(lines.zip(numbers(&page, "n")).filter(|(_, n)| *n > at).map(|(line, _)| line));
            at = last;
        }
        assert!(read == whole[from as usize..], "from {from}, {trace}: {} of {}", read.len(), whole.len());
    }
}

async fn only_what_ended_long_ago_expires(store: TestStore) {
    let (ann, bob) = (store.workspace("ann").await, store.workspace("bob").await);
    let old = store.answered(&ann, turn(None, "old"), "o").await;
    let foreign = store.answered(&bob, turn(None, "old"), "o").await;
    let (open, held) = store.started(&ann, turn(None, "open")).await;
    store.append_events(&held, &events(2, 2)).await.unwrap();
    let queued = store.queued(&ann, open.conversation.unwrap(), "q", domain::run::OnBusy::Enqueue).await;
    store.request_cancel(&ann, queued.id, store.now()).await.unwrap();
    let before = store.write().now;
    let new = store.answered(&ann, turn(None, "new"), "n").await;
    assert_eq!(store.system_expire(before, before, 1).await.unwrap(), 1);
    assert_eq!(store.system_expire(before, before, 5).await.unwrap(), 2);
    for (scope, run, expired) in
        [(&ann, &old, true), (&bob, &foreign, true), (&ann, &open, false), (&ann, &new, false)]
    {
        assert_eq!(store.read_log(scope, run.id, 0, 100).await.unwrap().expired, expired);
        assert!(!store.read_trace(scope, run.id, 0, 100).await.unwrap().entries.is_empty());
    }
    // One that never started has no trace.
    let page = store.read_trace(&ann, queued.id, 0, 100).await.unwrap();
    assert_eq!((page.expired, page.entries.len()), (true, 0));
}

async fn appends_of_many_workspaces_at_once_go_each_to_its_own(store: TestStore) {
    let mut runs = Vec::new();
    for user in ["ann", "bob", "cid"] {
        let scope = store.workspace(user).await;
        for _ in 0..4 {
            let (run, held) = store.started(&scope, turn(None, "one")).await;
            runs.push((scope.clone(), run.id, held));
        }
    }
    for n in 2..=20 {
        let batch = events(n, n);
        let appends = runs.iter().map(|(_, _, held)| store.append_events(held, &batch));
        for done in futures_util::future::join_all(appends).await {
            done.unwrap();
        }
    }
    for (scope, run, _) in &runs {
        assert_eq!(store.rest(scope, *run, 0, 100_000, false).await, (1..=20).collect::<Vec<_>>());
    }
}

/// Appends have a connection of their own, which is told whose they are once and not with each of them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_connection_of_appends_knows_one_workspace_at_a_time_and_is_replaced() {
    let Some(store) = crate::setup::postgres().await else { return };
    let Behind::Postgres(database) = &store.behind else { return };
    let (ann, bob) = (store.workspace("ann").await, store.workspace("bob").await);
    let (anns, anns_held) = store.started(&ann, turn(None, "one")).await;
    let (bobs, bobs_held) = store.started(&bob, turn(None, "one")).await;
    // Only row level security keeps them apart here.
    let unfiltered = open_postgres(database, false).await;
    let foreign = Held { workspace: bob.workspace, lease: anns_held.lease };
    for n in (2..8).step_by(2) {
        unfiltered.append_events(&anns_held, &events(n, n)).await.unwrap();
        let refused = unfiltered.append_events(&foreign, &events(n + 1, n + 1)).await;
        assert!(matches!(refused, Err(StoreError::Lost)), "{refused:?}");
        unfiltered.append_events(&anns_held, &events(n + 1, n + 1)).await.unwrap();
        unfiltered.append_events(&bobs_held, &events(n, n)).await.unwrap();
        // The one that comes instead has been told nothing.
        let end = "SELECT count(pg_terminate_backend(pid, 5000)) FROM pg_stat_activity \
                   WHERE datname = current_database() AND query LIKE 'WITH moved AS (UPDATE runs%'";
        assert_eq!(superuser(database).await.query_one(end, &[]).await.unwrap().get::<_, i64>(0), 1);
        let mut tries = 0;
        while let Err(error) = unfiltered.append_events(&bobs_held, &events(n + 1, n + 1)).await {
            assert!(matches!(error, StoreError::Unavailable(_)) && tries < 3, "{error}");
            tries += 1;
        }
    }
    for (scope, run) in [(&ann, anns.id), (&bob, bobs.id)] {
        assert_eq!(store.rest(scope, run, 0, 100_000, false).await, (1..=7).collect::<Vec<_>>());
    }
    unfiltered.close().await;
    let closed = unfiltered.append_events(&anns_held, &events(8, 8)).await;
    assert!(matches!(closed, Err(StoreError::Unavailable(_))), "{closed:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_nodes_expire_at_once_and_fold_each_log_once() {
    let Some(store) = crate::setup::postgres().await else { return };
    let Behind::Postgres(database) = &store.behind else { return };
    let other = open_postgres(database, true).await;
    let ann = store.workspace("ann").await;
    let mut runs = Vec::new();
    for _ in 0..20 {
        runs.push(store.answered(&ann, turn(None, "one"), "1").await.id);
    }
    let now = store.write().now;
    let (one, two) = tokio::join!(store.system_expire(now, now, 50), other.system_expire(now, now, 50));
    assert!(one.unwrap().max(two.unwrap()) == 20);
    for run in runs {
        let page = store.read_trace(&ann, run, 0, 10_000).await.unwrap();
        assert_eq!(numbers(&page, "n"), [1, 2, 3]);
    }
}

async fn a_damaged_log_holds_up_no_other(store: TestStore) {
    let ann = store.workspace("ann").await;
    let mut runs = Vec::new();
    for _ in 0..3 {
        let (run, held) = store.started(&ann, turn(None, "one")).await;
        store.append_events(&held, &events(2, 3)).await.unwrap();
        store.settle_turn(&held, &store.settlement("1", events(4, 5))).await.unwrap();
        runs.push(run.id);
    }
    let (first, text) = (runs[0], "UPDATE run_events SET entries =");
    store
        .behind(
            &format!("{text} CAST(x'7bff' AS TEXT) WHERE run_id = x'{}'", first.simple()),
            &format!("{text} '{{?' WHERE run_id = '{first}'"),
        )
        .await;
    let later = store.write().now;
    assert_eq!(store.system_expire(later, later, 10).await.unwrap(), 3);
    assert_eq!(store.system_expire(later, later, 10).await.unwrap(), 0);
    for run in &runs[1..] {
        let page = store.read_log(&ann, *run, 0, 10_000).await.unwrap();
        assert_eq!((page.entries.len(), page.expired, page.last), (1, true, Some((5, 5))));
    }
}

async fn a_log_that_cannot_be_put_together_holds_up_no_other(store: TestStore) {
    let ann = store.workspace("ann").await;
    let mut runs = Vec::new();
    for _ in 0..3 {
        runs.push(store.answered(&ann, turn(None, "one"), "1").await.id);
    }
    let first = runs[0];
    store
        .behind(
            &format!(
                "CREATE TRIGGER broken BEFORE DELETE ON run_events WHEN OLD.run_id = x'{}' \
                 BEGIN SELECT RAISE(ABORT, 'broken'); END",
                first.simple()
            ),
            &format!(
                "CREATE FUNCTION broken() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'broken'; END $$; \
                 CREATE TRIGGER broken BEFORE DELETE ON run_events FOR EACH ROW WHEN (OLD.run_id = '{first}') \
                 EXECUTE FUNCTION broken()"
            ),
        )
        .await;
    let later = store.write().now;
    assert_eq!(store.system_expire(later, later, 10).await.unwrap(), 3);
    assert_eq!(store.system_expire(later, later, 10).await.unwrap(), 0);
    for (run, rows) in runs.iter().zip([2, 1, 1]) {
        let page = store.read_log(&ann, *run, 0, 10_000).await.unwrap();
        assert_eq!((page.entries.len(), page.expired), (rows, true));
    }
}
