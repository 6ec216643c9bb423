//! Who drives what, by the database's clock, and who takes over.

use domain::run::RunStatus;

use crate::play::{LEASE, NODE, OTHER, events, turn};
use crate::setup::{Behind, TestStore, fails};

on_both!(
    a_lease_that_ran_out_is_taken_with_a_higher_fence,
    a_heartbeat_keeps_a_lease_and_names_what_is_held,
    only_so_many_are_taken_at_once,
    locks_are_listed_over_all_workspaces,
);

impl TestStore {
    async fn let_leases_run_out(&self) {
        self.behind(
            "UPDATE runs SET lease_until = lease_until - 3600000",
            "UPDATE runs SET lease_until = lease_until - interval '1 hour'",
        )
        .await;
    }
}

async fn a_lease_that_ran_out_is_taken_with_a_higher_fence(store: TestStore) {
    let (ann, bob) = (store.workspace("ann").await, store.workspace("bob").await);
    let (one, held) = store.started(&ann, turn(None, "one")).await;
    let (two, _) = store.started(&bob, turn(None, "two")).await;
    assert_eq!(store.system_take_expired(NODE, LEASE, 10).await.unwrap(), []);
    if let Behind::Postgres(_) = store.behind {
        // A node is alive for as long as its lease; the file's one process is the only one there is.
        assert_eq!(store.system_take_expired(OTHER, LEASE, 10).await.unwrap(), []);
    }
    store.let_leases_run_out().await;
    let mut taken = store.system_take_expired(OTHER, LEASE, 10).await.unwrap();
    taken.sort_by_key(|held| held.lease.run);
    let found: Vec<_> = taken.iter().map(|held| (held.workspace, held.lease.run, held.lease.fence)).collect();
    assert_eq!(found, [(ann.workspace, one.id, 2), (bob.workspace, two.id, 2)]);
    assert_eq!(store.system_take_expired(OTHER, LEASE, 10).await.unwrap(), []);
    assert_eq!(fails(store.append_events(&held, &events(2, 2)).await), "lost");
    assert_eq!(store.system_heartbeat(NODE, LEASE, true).await.unwrap().held, []);
    for (scope, held) in [(&ann, taken[0]), (&bob, taken[1])] {
        let mut settlement = store.settlement("part", events(2, 2));
        settlement.status = RunStatus::Interrupted;
        store.settle_turn(&held, &settlement).await.unwrap();
        assert_eq!(store.get_run(scope, held.lease.run).await.unwrap().status, RunStatus::Interrupted);
    }
}

async fn a_heartbeat_keeps_a_lease_and_names_what_is_held(store: TestStore) {
    let ann = store.workspace("ann").await;
    let (_, held) = store.started(&ann, turn(None, "one")).await;
    let (_, gone) = store.started(&ann, turn(None, "two")).await;
    store.settle_turn(&gone, &store.settlement("2", events(2, 2))).await.unwrap();
    store.let_leases_run_out().await;
    assert_eq!(store.system_heartbeat(NODE, LEASE, true).await.unwrap().held, [held]);
    assert_eq!(store.system_heartbeat(OTHER, LEASE, true).await.unwrap().held, []);
    assert_eq!(store.system_take_expired(NODE, LEASE, 10).await.unwrap(), []);
    store.append_events(&held, &events(2, 2)).await.unwrap();
    store.let_leases_run_out().await;
    // Looking renews nothing.
    assert_eq!(store.system_heartbeat(NODE, LEASE, false).await.unwrap().held, [held]);
    // The file's one process is alive, however late it is.
    let shared = usize::from(store.is_shared());
    assert_eq!(store.system_take_expired(NODE, LEASE, 10).await.unwrap().len(), shared);
}

async fn only_so_many_are_taken_at_once(store: TestStore) {
    let ann = store.workspace("ann").await;
    for _ in 0..5 {
        store.started(&ann, turn(None, "one")).await;
    }
    store.let_leases_run_out().await;
    let mut taken = Vec::new();
    for expected in [2, 2, 1, 0] {
        let some = store.system_take_expired(OTHER, LEASE, 2).await.unwrap();
        assert_eq!(some.len(), expected);
        taken.extend(some.into_iter().map(|held| held.lease.run));
    }
    taken.sort_unstable();
    taken.dedup();
    assert_eq!(taken.len(), 5);
}

async fn locks_are_listed_over_all_workspaces(store: TestStore) {
    assert_eq!(store.system_list_locks(None, 10).await.unwrap(), []);
    let (ann, bob) = (store.workspace("ann").await, store.workspace("bob").await);
    let (one, _) = store.started(&ann, turn(None, "one")).await;
    let (two, _) = store.started(&bob, turn(None, "two")).await;
    let (gone, held) = store.started(&ann, turn(None, "three")).await;
    store.settle_turn(&held, &store.settlement("3", events(2, 2))).await.unwrap();
    let (mut found, mut after) = (Vec::new(), None);
    while let [lock] = &store.system_list_locks(after, 1).await.unwrap()[..] {
        after = Some((lock.workspace, lock.run));
        assert_eq!(lock.node.as_deref(), Some(NODE.to_string().as_str()));
        assert!((1..=LEASE as i64 * 1000).contains(&lock.lease_left_ms), "{lock:?}");
        found.push((lock.workspace, lock.run, Some(lock.conversation)));
    }
    let mut wanted = [(ann.workspace, one.id, one.conversation), (bob.workspace, two.id, two.conversation)];
    wanted.sort_unstable();
    assert_eq!(found, wanted, "without {}", gone.id);
    store.let_leases_run_out().await;
    assert!(store.system_list_locks(None, 10).await.unwrap().iter().all(|lock| lock.lease_left_ms < 0));
}

/// Each locks many runs at once: in the same order, or they would wait for each other until PostgreSQL breaks one off.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn heartbeats_and_appends_do_not_wait_for_each_other_for_ever() {
    let Some(store) = crate::setup::postgres().await else { return };
    let ann = store.workspace("ann").await;
    let mut all = Vec::new();
    for _ in 0..80 {
        all.push(store.started(&ann, turn(None, "one")).await.1);
    }
    // Those with the newest ids have the oldest leases, as after a wait in the queue.
    let turned = "UPDATE runs SET lease_until = now() + interval '1 hour' - make_interval(secs => place) \
                  FROM (SELECT id AS run, row_number() OVER (ORDER BY id) AS place FROM runs) AS p WHERE id = run";
    store.behind("", turned).await;
    let done = std::sync::atomic::AtomicBool::new(false);
    let beats = async {
        while !done.load(std::sync::atomic::Ordering::Relaxed) {
            assert_eq!(store.system_heartbeat(NODE, LEASE, true).await.unwrap().held.len(), all.len());
        }
    };
    let appends = async {
        for n in 2..=60 {
            let batch = events(n, n);
            let appends = all.iter().map(|held| store.append_events(held, &batch));
            for appended in futures_util::future::join_all(appends).await {
                appended.unwrap();
            }
        }
        done.store(true, std::sync::atomic::Ordering::Relaxed);
    };
    tokio::join!(beats, appends);
    store.close().await;
    assert_eq!(
        store.count("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()").await,
        0
    );
}
