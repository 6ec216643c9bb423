//! Many at once: one run of a conversation, one run of a key, whoever is first.

use std::collections::HashMap;
use std::sync::Arc;

use domain::open_runs::{OpenRuns, RunLimits, TooManyRuns};
use domain::run::{OnBusy, StartTurn};
use domain::scope::Scope;
use domain::tokens::Whose;
use store::turns::{Begun, NewTurn};
use tokio::task::JoinSet;

use crate::play::{LEASE, OTHER, events, key, text, turn};
use crate::setup::{Behind, TestStore, open_postgres};

on_both!(
    one_of_many_begins_and_the_others_are_told_of_it,
    one_key_sent_by_many_is_one_run,
    one_key_sent_in_two_workspaces_is_one_run,
    a_queue_filled_by_many_starts_one_after_the_other,
    many_at_once_do_not_pass_the_limit_of_open_runs,
    members_at_once_do_not_pass_the_limit_of_their_workspace,
    begins_deletes_and_settles_never_wait_for_each_other,
    a_second_run_under_way_is_refused_whoever_writes_it,
);

/// The store, and on PostgreSQL a second node's.
async fn nodes(store: &TestStore) -> Vec<Arc<dyn store::Store>> {
    match &store.behind {
        Behind::Sqlite(_) => vec![store.store.clone()],
        Behind::Postgres(database) => {
            vec![store.store.clone(), open_postgres(database, true).await]
        }
    }
}

async fn all_at_once(nodes: &[Arc<dyn store::Store>], scope: &Scope, turns: Vec<NewTurn>) -> Vec<Begun> {
    let mut set = JoinSet::new();
    for (n, new) in turns.into_iter().enumerate() {
        let (store, scope) = (nodes[n % nodes.len()].clone(), scope.clone());
        set.spawn(async move { store.begin_turn(&scope, &new).await.unwrap() });
    }
    set.join_all().await
}

async fn one_of_many_begins_and_the_others_are_told_of_it(store: TestStore) {
    let ann = store.workspace("ann").await;
    let nodes = nodes(&store).await;
    let id = store.answered(&ann, turn(None, "one"), "1").await.conversation.unwrap();
    for round in 0..20 {
        let turns = (0..64).map(|_| store.new_turn(turn(Some(id), "x"))).collect();
        let begun = all_at_once(&nodes, &ann, turns).await;
        let mut started = None;
        let mut told = HashMap::new();
        for begun in &begun {
            match begun {
                Begun::Started { run, lease, .. } => {
                    assert!(started.replace((run.id, *lease)).is_none(), "two started")
                }
                Begun::Busy(run) => *told.entry(*run).or_insert(0) += 1,
                other => panic!("{other:?}"),
            }
        }
        let (run, lease) = started.unwrap();
        assert_eq!(told, HashMap::from([(run, 63)]), "round {round}");
        let held = store::turns::Held { workspace: ann.workspace, lease };
        store.settle_turn(&held, &store.settlement("y", events(2, 2))).await.unwrap();
    }
    assert_eq!(store.texts(&ann, id, None).await.len(), 42);
}

async fn one_key_sent_by_many_is_one_run(store: TestStore) {
    let ann = store.workspace("ann").await;
    let nodes = nodes(&store).await;
    for round in 0..5 {
        let turns = (0..50).map(|_| {
            let mut new = store.new_turn(turn(None, "one"));
            new.idempotency = Some(key(&format!("key {round}"), 1));
            new
        });
        let mut counts: HashMap<String, usize> = HashMap::new();
        let mut run = None;
        for begun in all_at_once(&nodes, &ann, turns.collect()).await {
            if let Begun::Started { run: started, .. } = &begun {
                run = Some(started.id);
            }
            *counts.entry(text(&begun)).or_default() += 1;
        }
        let repeated = format!("repeated {}", run.unwrap());
        assert_eq!(counts, HashMap::from([("started".into(), 1), (repeated, 49)]));
    }
    assert_eq!(store.count("SELECT count(*) FROM runs").await, 5);
    assert_eq!(store.count("SELECT count(*) FROM messages").await, 5);
}

async fn one_key_sent_in_two_workspaces_is_one_run(store: TestStore) {
    let scopes = [store.workspace("ann").await, store.workspace("ann").await];
    let nodes = nodes(&store).await;
    for round in 0..5 {
        let mut set = JoinSet::new();
        for n in 0..52 {
            let (store_of, scope) = (nodes[n % nodes.len()].clone(), scopes[n / 2 % 2].clone());
            let mut new = store.new_turn(turn(None, "one"));
            new.idempotency = Some(key(&format!("key {round}"), 1));
            set.spawn(async move { store_of.begin_turn(&scope, &new).await.unwrap() });
        }
        let mut counts: HashMap<String, usize> = HashMap::new();
        for begun in set.join_all().await {
            let word = text(&begun);
            *counts.entry(word.split(' ').next().unwrap().to_owned()).or_default() += 1;
        }
        let one = [("started".into(), 1), ("repeated".into(), 25), ("key".into(), 26)];
        assert_eq!(counts, HashMap::from(one));
    }
    assert_eq!(store.count("SELECT count(*) FROM runs").await, 5);
}

async fn a_queue_filled_by_many_starts_one_after_the_other(store: TestStore) {
    let ann = store.workspace("ann").await;
    let nodes = nodes(&store).await;
    let (first, mut held) = store.started(&ann, turn(None, "one")).await;
    let id = first.conversation.unwrap();
    let enqueue = StartTurn { on_busy: OnBusy::Enqueue, ..turn(Some(id), "x") };
    let turns = (0..24).map(|_| store.new_turn(enqueue.clone())).collect();
    assert!(all_at_once(&nodes, &ann, turns).await.iter().all(|begun| text(begun) == "queued"));
    for left in (0..24).rev() {
        store.settle_turn(&held, &store.settlement("y", events(2, 2))).await.unwrap();
        // Both nodes hear of it at the same time, several times.
        let waiting = store::turns::Waiting { workspace: ann.workspace, conversation: id };
        let mut set = JoinSet::new();
        for n in 0..8 {
            let node = nodes[n % nodes.len()].clone();
            let start = store::turns::QueueStart {
                node: OTHER,
                lease_seconds: LEASE,
                branch: store.new_id(),
                now: store.now(),
            };
            set.spawn(async move { node.start_queued(&waiting, &start).await.unwrap() });
        }
        let mut started: Vec<_> = set.join_all().await.into_iter().flatten().collect();
        assert_eq!(started.len(), 1);
        held.lease = started.remove(0).1;
        assert_eq!(store.list_queue(&ann, id).await.unwrap().len(), left);
    }
    assert_eq!(store.texts(&ann, id, None).await.len(), 49);
}

async fn members_at_once_do_not_pass_the_limit_of_their_workspace(store: TestStore) {
    let ann = store.workspace("ann").await;
    let nodes = nodes(&store).await;
    let open_runs = RunLimits { user: 1000, workspace: 10 };
    let mut set = JoinSet::new();
    for n in 0..50 {
        let (node, scope) =
            (nodes[n % nodes.len()].clone(), crate::setup::member(&ann, &format!("user {n}")));
        let new = NewTurn { open_runs, ..store.new_turn(turn(None, "x")) };
        set.spawn(async move { node.begin_turn(&scope, &new).await.unwrap() });
    }
    let begun = set.join_all().await;
    let count = |word: &str| begun.iter().filter(|begun| text(begun) == word).count();
    assert_eq!((count("started"), count("too many")), (10, 40));
    let full = TooManyRuns { whose: Whose::Workspace, limit: 10 };
    assert!(begun.contains(&Begun::TooManyRuns(full)));
    // Nobody sees another's private run, and all are counted.
    let bob = crate::setup::member(&ann, "bob");
    let open = store.get_open_runs(&bob, open_runs).await.unwrap();
    assert_eq!(open, OpenRuns { user: 0, workspace: 10 });
    let new = NewTurn { open_runs: RunLimits { user: 1, workspace: 12 }, ..store.new_turn(turn(None, "x")) };
    let Begun::Started { open, .. } = store.begin_turn(&bob, &new).await.unwrap() else {
        panic!("not started")
    };
    assert_eq!(open, OpenRuns { user: 1, workspace: 11 });
    let new = NewTurn { open_runs: RunLimits { user: 9, workspace: 11 }, ..new };
    let new = NewTurn { run: store.new_id(), conversation: store.new_id(), ..new };
    assert_eq!(
        store.begin_turn(&ann, &new).await.unwrap(),
        Begun::TooManyRuns(TooManyRuns { limit: 11, ..full })
    );
}

async fn many_at_once_do_not_pass_the_limit_of_open_runs(store: TestStore) {
    let ann = store.workspace("ann").await;
    let nodes = nodes(&store).await;
    for round in 1..=3 {
        let open_runs = RunLimits { user: 10 * round, workspace: 0 };
        let turns = (0..50).map(|_| NewTurn { open_runs, ..store.new_turn(turn(None, "x")) });
        let begun = all_at_once(&nodes, &ann, turns.collect()).await;
        let count = |word: &str| begun.iter().filter(|begun| text(begun) == word).count();
        assert_eq!((count("started"), count("too many")), (10, 40), "round {round}");
    }
    // Another user's limit is another's.
    let bob = crate::setup::member(&ann, "bob");
    store.started(&bob, turn(None, "x")).await;
    assert_eq!(store.count("SELECT count(*) FROM runs").await, 31);
}

/// Locks are taken in one order, so nothing is broken off for a deadlock, which would cost a second each time.
async fn begins_deletes_and_settles_never_wait_for_each_other(store: TestStore) {
    let ann = store.workspace("ann").await;
    let nodes = nodes(&store).await;
    for _ in 0..10 {
        let (run, held) = store.started(&ann, turn(None, "one")).await;
        let id = run.conversation.unwrap();
        let mut set = JoinSet::new();
        let settlement = store.settlement("1", events(2, 2));
        let (node, now) = (nodes[0].clone(), store.now());
        set.spawn(async move { node.settle_turn(&held, &settlement).await.map(|_| ()) });
        for n in 0..4 {
            let (node, scope) = (nodes[n % nodes.len()].clone(), ann.clone());
            let new = store.new_turn(StartTurn { on_busy: OnBusy::Interrupt, ..turn(Some(id), "x") });
            set.spawn(async move { node.begin_turn(&scope, &new).await.map(|_| ()) });
            let (node, scope) = (nodes[n % nodes.len()].clone(), ann.clone());
            set.spawn(async move { node.request_cancel(&scope, run.id, now).await.map(|_| ()) });
        }
        let (node, scope) = (nodes[0].clone(), ann.clone());
        set.spawn(async move { node.delete_conversation(&scope, id, None, now).await });
        for done in set.join_all().await {
            assert!(matches!(done, Ok(()) | Err(store::StoreError::NotFound)), "{done:?}");
        }
    }
    if let Behind::Postgres(_) = &store.behind {
        let deadlocks = "SELECT coalesce(sum(deadlocks), 0)::bigint FROM pg_stat_database WHERE datname = current_database()";
        assert_eq!(store.count(deadlocks).await, 0);
    }
}

/// The database itself keeps a conversation to one run, past all that the store asks.
async fn a_second_run_under_way_is_refused_whoever_writes_it(store: TestStore) {
    let ann = store.workspace("ann").await;
    let (run, _) = store.started(&ann, turn(None, "one")).await;
    let (conversation, new) = (run.conversation.unwrap(), store.new_id());
    let insert = |status: &str, id: &dyn Fn(uuid::Uuid) -> String, now: &str| {
        format!(
            "INSERT INTO runs (workspace_id, id, conversation_id, status, created_at) \
             VALUES ({}, {}, {}, '{status}', {now})",
            id(ann.workspace),
            id(new),
            id(conversation)
        )
    };
    match &store.behind {
        Behind::Sqlite(folder) => {
            let (db, id) = (crate::setup::rusqlite(folder), |id: uuid::Uuid| format!("x'{}'", id.simple()));
            let refused = db.execute_batch(&insert("running", &id, "0")).unwrap_err().to_string();
            assert!(
                refused.contains("UNIQUE constraint failed: runs.workspace_id, runs.conversation_id"),
                "{refused}"
            );
            db.execute_batch(&insert("succeeded", &id, "0")).unwrap();
        }
        Behind::Postgres(database) => {
            let (root, id) = (crate::setup::superuser(database).await, |id: uuid::Uuid| format!("'{id}'"));
            let refused = root.batch_execute(&insert("running", &id, "now()")).await.unwrap_err();
            let refused = refused.as_db_error().and_then(|error| error.constraint()).map(str::to_owned);
            assert_eq!(refused.as_deref(), Some("idx_runs_one_running"));
            root.batch_execute(&insert("succeeded", &id, "now()")).await.unwrap();
        }
    }
}

/// What was accepted and what has ended is on disk before that is said; an event on its way is not waited for.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_turn_is_synced_when_it_begins_and_when_it_ends_and_not_between() {
    let Some(store) = crate::setup::postgres().await else { return };
    let Behind::Postgres(database) = &store.behind else { return };
    let root = crate::setup::superuser(database).await;
    root.batch_execute(
        "CREATE TABLE noted (at bigserial, status text, sync text); GRANT ALL ON noted, noted_at_seq TO PUBLIC; \
         CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
             INSERT INTO noted (status, sync) VALUES (NEW.status, current_setting('synchronous_commit')); RETURN NEW; \
         END $$; \
         CREATE TRIGGER note AFTER INSERT OR UPDATE ON runs FOR EACH ROW EXECUTE FUNCTION note()",
    )
    .await
    .unwrap();
    let ann = store.workspace("ann").await;
    let (_, held) = store.started(&ann, turn(None, "one")).await;
    store.append_events(&held, &events(2, 2)).await.unwrap();
    store.settle_turn(&held, &store.settlement("1", events(3, 3))).await.unwrap();
    let rows = root.query("SELECT status, sync FROM noted ORDER BY at", &[]).await.unwrap();
    let noted: Vec<(String, String)> = rows.iter().map(|row| (row.get(0), row.get(1))).collect();
    let wanted = [("running", "on"), ("running", "off"), ("succeeded", "on")];
    assert_eq!(noted, wanted.map(|(status, sync)| (status.to_owned(), sync.to_owned())));
}
