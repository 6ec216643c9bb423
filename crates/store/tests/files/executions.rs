//! Executions: runs outside any conversation, with bags of their own.

use domain::file::Bag;
use domain::message::MessageRole;
use domain::run::{OnDisconnect, RunStatus};
use domain::scope::{Role, Scope};
use store::turns::{Begun, Settlement};

use crate::bag::{ROOMY, at_once, names, stored};
use crate::play::{NODE, OTHER, events, key, said, text, turn};
use crate::setup::{TestStore, fails, member};

on_both!(
    an_execution_runs_once_outside_any_conversation,
    its_files_come_with_it_or_it_does_not_start,
    an_execution_is_seen_by_who_started_it_and_by_those_who_see_all,
    a_retry_is_the_same_execution,
    executions_count_as_open_runs,
    an_execution_is_taken_over_and_cancelled_like_any_run,
    an_id_is_taken_once,
);

async fn an_execution_runs_once_outside_any_conversation(store: TestStore) {
    let ann = store.workspace("ann").await;
    let bob = member(&ann, "bob");
    let mut new = store.new_execution("do \"it\"", Vec::new());
    let bag = Bag::Execution(new.id);
    let b = store.reserve_files(&bob, bag, &[store.new_file("b")], ROOMY, new.now).await.unwrap().remove(0);
    let a = store.reserve_files(&bob, bag, &[store.new_file("a")], ROOMY, new.now).await.unwrap().remove(0);
    assert_eq!(a.storage_key, format!("execution-bag/{}/{}/a", ann.workspace, new.id));
    new.files = vec![stored(b.id, 2), stored(a.id, 1)];
    let Begun::Started { run, lease, .. } = store.begin_execution(&bob, &new).await.unwrap() else {
        panic!("not started")
    };
    assert_eq!((run.id, run.execution, run.conversation), (new.run, Some(new.id), None));
    assert_eq!((run.status, run.on_disconnect), (RunStatus::Running, OnDisconnect::Cancel));
    assert_eq!((run.message, run.created_at, run.started_at), (None, new.now, Some(new.now)));
    let held = store::turns::Held { workspace: bob.workspace, lease };
    let given = store.get_dispatch(&held, 20).await.unwrap();
    assert_eq!((given.conversation, given.before), (None, Vec::new()));
    assert_eq!((given.message.id, given.message.role), (new.id, MessageRole::User));
    assert_eq!(given.message.text, "do \"it\"");
    assert_eq!(given.message.content, r#"[{"type":"text","text":"do \"it\""}]"#);
    assert_eq!(
        (&given.turn.agent, &given.turn.workflow, &given.turn.model),
        (&new.agent, &new.workflow, &new.model)
    );
    assert_eq!(names(&given.files), ["a", "b"]);
    assert_eq!(store.list_run_assets(bob.workspace, run.id).await.unwrap(), given.files);
    // What the run writes back is its answer; what it was given is not.
    store.append_events(&held, &events(2, 3)).await.unwrap();
    let sandbox = Scope { role: Role::Service, user: String::new(), ..ann.clone() };
    let made = store.sent_back(&sandbox, bag, &["a"]).await;
    let kept = store.keep_results(&held, &made, ROOMY, store.now()).await.unwrap();
    assert_eq!(names(&kept), ["a-1"]);
    let early = store.get_execution(&bob, new.id).await.unwrap();
    assert_eq!((early.response, early.files), (None, kept.clone()));
    let settlement = Settlement {
        assistant: None,
        response: Some("done \u{1d306}".into()),
        ..store.settlement("", events(4, 4))
    };
    let settled = store.settle_turn(&held, &settlement).await.unwrap();
    assert_eq!((settled.run.status, settled.run.assistant_message), (RunStatus::Succeeded, None));
    let execution = store.get_execution(&bob, new.id).await.unwrap();
    assert_eq!((execution.id, execution.run), (new.id, settled.run));
    assert_eq!((execution.response.as_deref(), execution.files), (Some("done \u{1d306}"), kept));
    assert_eq!(store.read_log(&bob, run.id, 0, 1000).await.unwrap().entries.len(), 3);
    assert_eq!(store.listed(&bob, bag).await.len(), 3);
}

async fn its_files_come_with_it_or_it_does_not_start(store: TestStore) {
    let ann = store.workspace("ann").await;
    let mut new = store.new_execution("go", Vec::new());
    let bag = Bag::Execution(new.id);
    let there = store.reserve(&ann, bag, "a").await.unwrap().id;
    let elsewhere = store.reserve(&ann, Bag::Workspace, "a").await.unwrap().id;
    for (missing, limit, fault) in [(elsewhere, ROOMY, "not found"), (there, 4, "bag full")] {
        new.max_bag_bytes = limit;
        new.files = vec![stored(missing, 5)];
        assert_eq!(fails(store.begin_execution(&ann, &new).await), fault);
        assert_eq!(fails(store.get_execution(&ann, new.id).await), "not found");
        assert_eq!(fails(store.get_run(&ann, new.run).await), "not found");
        assert_eq!(fails(store.get_file(&ann, missing).await), "not found");
    }
    new.max_bag_bytes = 5;
    assert_eq!(text(&store.begin_execution(&ann, &new).await.unwrap()), "started");
    assert_eq!(store.listed(&ann, bag).await, ["a"]);
}

async fn an_execution_is_seen_by_who_started_it_and_by_those_who_see_all(store: TestStore) {
    let ann = store.workspace("ann").await;
    let (bob, carol) = (member(&ann, "bob"), member(&ann, "carol"));
    let service = Scope { role: Role::Service, user: "key:1".into(), ..ann.clone() };
    let eve = store.workspace("eve").await;
    let (id, held) = store.executed(&bob, "go").await;
    let (bag, run) = (Bag::Execution(id), held.lease.run);
    let made = store.sent_back(&service, bag, &["made"]).await;
    let file = store.keep_results(&held, &made, ROOMY, store.now()).await.unwrap().remove(0).id;
    for scope in [&bob, &ann, &service] {
        assert_eq!(store.get_execution(scope, id).await.unwrap().files.len(), 1, "{}", scope.user);
        assert_eq!(store.get_run(scope, run).await.unwrap().execution, Some(id));
        store.read_log(scope, run, 0, 100).await.unwrap();
        store.read_trace(scope, run, 0, 100).await.unwrap();
        assert_eq!(store.listed(scope, bag).await, ["made"]);
        assert_eq!(store.get_file(scope, file).await.unwrap().bag, bag);
        store.reserve(scope, bag, "x").await.unwrap();
    }
    for scope in [&carol, &eve] {
        assert_eq!(fails(store.get_execution(scope, id).await), "not found");
        assert_eq!(fails(store.get_run(scope, run).await), "not found");
        assert_eq!(fails(store.read_log(scope, run, 0, 100).await), "not found");
        assert_eq!(fails(store.read_trace(scope, run, 0, 100).await), "not found");
        assert_eq!(fails(store.request_cancel(scope, run, store.now()).await), "not found");
        assert_eq!(fails(store.edit_queued(scope, run, &said("x")).await), "not found");
        assert_eq!(fails(store.list_files(scope, bag, None, 9).await), "not found");
        assert_eq!(fails(store.get_file(scope, file).await), "not found");
        assert_eq!(fails(store.delete_file(scope, file, store.now()).await), "not found");
    }
    assert_eq!(fails(store.get_execution(&bob, store.new_id()).await), "not found");
    assert!(!store.get_run(&bob, run).await.unwrap().cancel_requested);
    assert!(store.request_cancel(&ann, run, store.now()).await.unwrap().cancel_requested);
    store.delete_file(&bob, file, store.now()).await.unwrap();
    assert!(store.get_execution(&ann, id).await.unwrap().files.is_empty());
}

async fn a_retry_is_the_same_execution(store: TestStore) {
    let ann = store.workspace("ann").await;
    let begin = async |scope: &Scope, body| {
        let mut new = store.new_execution("go", Vec::new());
        new.idempotency = Some(key("k", body));
        (new.run, text(&store.begin_execution(scope, &new).await.unwrap()))
    };
    let (run, first) = begin(&ann, 1).await;
    assert_eq!(first, "started");
    assert_eq!(begin(&ann, 1).await.1, format!("repeated {run}"));
    assert_eq!(begin(&ann, 2).await.1, "key reused");
    assert_eq!(begin(&member(&ann, "bob"), 1).await.1, "started");
    // A repeated one leaves what it reserved to the sweep.
    let mut new = store.new_execution("go", Vec::new());
    let reserved = store.reserve(&ann, Bag::Execution(new.id), "a").await.unwrap();
    (new.files, new.idempotency) = (vec![stored(reserved.id, 1)], Some(key("k", 1)));
    store.begin_execution(&ann, &new).await.unwrap();
    assert_eq!(fails(store.get_file(&ann, reserved.id).await), "not found");
    let (scope, many) =
        (ann.clone(), (0..20).map(|_| store.new_execution("go", Vec::new())).collect::<Vec<_>>());
    let answers = at_once(&store, 20, |store, at| {
        let (scope, mut new) = (scope.clone(), many[at].clone());
        new.idempotency = Some(key("many", 1));
        async move { text(&store.begin_execution(&scope, &new).await.unwrap()) }
    })
    .await;
    assert_eq!(answers.iter().filter(|answer| *answer == "started").count(), 1);
    assert_eq!(answers.iter().filter(|answer| answer.starts_with("repeated")).count(), 19);
}

async fn executions_count_as_open_runs(store: TestStore) {
    let ann = store.workspace("ann").await;
    store.started(&ann, turn(None, "one")).await;
    let (_, held) = store.executed(&ann, "two").await;
    let begin = async |limit| {
        let mut new = store.new_execution("three", Vec::new());
        new.open_runs.user = limit;
        let answer = text(&store.begin_execution(&ann, &new).await.unwrap());
        if answer != "started" {
            assert_eq!(fails(store.get_execution(&ann, new.id).await), "not found");
        }
        answer
    };
    assert_eq!(begin(2).await, "too many");
    let mut new = store.new_turn(turn(None, "x"));
    new.open_runs.user = 2;
    assert_eq!(text(&store.begin_turn(&ann, &new).await.unwrap()), "too many");
    let settlement = Settlement { assistant: None, ..store.settlement("", events(2, 2)) };
    store.settle_turn(&held, &settlement).await.unwrap();
    assert_eq!(begin(2).await, "started");
}

async fn an_execution_is_taken_over_and_cancelled_like_any_run(store: TestStore) {
    let ann = store.workspace("ann").await;
    let (id, held) = store.executed(&ann, "go").await;
    let beat = store.system_heartbeat(NODE, 30, true).await.unwrap();
    assert_eq!(beat.held, [held]);
    store.behind("UPDATE runs SET lease_until = 1", "UPDATE runs SET lease_until = 'epoch'").await;
    let taken = store.system_take_expired(OTHER, 30, 9).await.unwrap();
    assert_eq!((taken.len(), taken[0].lease.run), (1, held.lease.run));
    let settlement =
        Settlement { status: RunStatus::Interrupted, assistant: None, ..store.settlement("", events(2, 2)) };
    assert_eq!(fails(store.settle_turn(&held, &settlement).await), "lost");
    store.settle_turn(&taken[0], &settlement).await.unwrap();
    assert_eq!(store.get_execution(&ann, id).await.unwrap().run.status, RunStatus::Interrupted);
    assert!(store.system_list_waiting(9).await.unwrap().is_empty());
    // With its workspace it ends.
    let (_, held) = store.executed(&ann, "go").await;
    store.remove_workspace(&ann, true, store.now()).await.unwrap();
    let beat = store.system_heartbeat(NODE, 30, false).await.unwrap();
    assert_eq!(beat.cancelled, [held.lease.run]);
}

async fn an_id_is_taken_once(store: TestStore) {
    let ann = store.workspace("ann").await;
    let new = store.new_execution("go", Vec::new());
    store.begin_execution(&ann, &new).await.unwrap();
    let again = store::files::NewExecution { run: store.new_id(), ..new.clone() };
    assert_eq!(fails(store.begin_execution(&ann, &again).await), "id taken");
    let eve = store.workspace("eve").await;
    assert_eq!(text(&store.begin_execution(&eve, &again).await.unwrap()), "started");
    assert_eq!(store.get_execution(&ann, new.id).await.unwrap().run.id, new.run);
}
