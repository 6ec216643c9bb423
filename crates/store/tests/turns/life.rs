//! One turn from its beginning to its end, and what keeps others from writing to it.

use std::sync::Arc;

use domain::conversation::Mode;
use domain::run::{Lease, OnDisconnect, RunStatus, StartTurn, Usage};
use store::StoreError;
use store::turns::{Begun, Held, NewTurn, Settlement};
use uuid::Uuid;

use crate::play::{LEASE, NODE, OTHER, bare_fork, events, failed, key, said, text, turn};
use crate::setup::{Behind, TestStore, fails, member, session};

/// What one write may take.
const ROOM: usize = 16 << 10;

on_both!(
    a_first_turn_makes_its_conversation_and_settles_in_one_piece,
    a_later_turn_goes_on_in_its_thread,
    a_turn_notes_what_it_overrides,
    a_wrong_fence_writes_nothing,
    a_gap_in_the_numbers_is_told_from_an_overlap,
    the_newest_batch_may_come_twice_and_is_stored_once,
    a_settled_run_stays_as_it_is,
    a_failed_run_keeps_its_error,
    a_key_gives_the_same_run_again,
    a_day_later_the_key_is_new,
    a_refused_turn_leaves_nothing_behind,
    a_write_that_fails_in_part_leaves_nothing_behind,
    too_many_open_runs_are_refused,
    a_stranger_cannot_begin_nor_read,
    a_delete_ends_runs_and_keeps_what_they_said,
    a_removed_workspace_ends_its_runs,
    any_text_can_be_said,
    a_write_under_way_takes_little_room,
);

async fn a_first_turn_makes_its_conversation_and_settles_in_one_piece(store: TestStore) {
    let ann = store.workspace("ann").await;
    let new = store.new_turn(turn(None, "hello there"));
    let Begun::Started { run, lease, opening, dispatch: given, .. } =
        store.begin_turn(&ann, &new).await.unwrap()
    else {
        panic!("not started")
    };
    let held = Held { workspace: ann.workspace, lease };
    // Its first event is stored with it.
    let event = format!(
        r#"{{"n":1,"seq":1,"ts":{},"kind":"turn","data":{{"conversation":"{}","run":"{}","message":"{}","conversation_id":"{}"}}}}"#,
        new.now.as_millisecond(),
        new.conversation,
        new.run,
        new.message,
        new.message
    );
    assert_eq!((&*opening.entries, run.last_event), (&*event, 1));
    assert_eq!(store.read_log(&ann, run.id, 0, 1000).await.unwrap().entries, [event]);
    assert_eq!((run.id, run.status, lease.fence), (new.run, RunStatus::Running, 1));
    assert_eq!((run.conversation, run.message), (Some(new.conversation), Some(new.message)));
    assert_eq!((run.created_at, run.started_at, run.ended_at), (new.now, Some(new.now), None));
    let thread = store.thread(&ann, new.conversation, None).await;
    assert_eq!(thread.conversation.first_message, Some(new.message));
    assert_eq!(thread.conversation.title.as_deref(), Some("hello there"));
    assert_eq!(thread.conversation.preview.as_deref(), Some("hello there"));
    assert_eq!((thread.conversation.message_count, thread.conversation.owner.as_str()), (1, "ann"));
    assert_eq!(store.titles(&ann, &crate::setup::newest()).await, ["hello there"]);

    let dispatch = store.get_dispatch(&held, 20).await.unwrap();
    // What its runner needs was given with it: nothing lies before it.
    assert_eq!(given.as_deref(), Some(&dispatch));
    assert_eq!((dispatch.run, dispatch.turn), (run, new.turn));
    assert_eq!((dispatch.message.text.as_str(), dispatch.before.len()), ("hello there", 0));

    store.append_events(&held, &events(2, 2)).await.unwrap();
    store.append_events(&held, &events(3, 6)).await.unwrap();
    assert_eq!(store.get_run(&ann, lease.run).await.unwrap().last_event, 6);
    let settlement = store.settlement("hi", events(7, 8));
    let run = store.settle_turn(&held, &settlement).await.unwrap().run;
    assert_eq!(run, store.get_run(&ann, lease.run).await.unwrap());
    assert_eq!((run.status, run.last_event, run.error.clone()), (RunStatus::Succeeded, 8, None));
    assert_eq!(run.usage, Usage { input_tokens: 3, output_tokens: 4 });
    assert_eq!(run.ended_at, Some(settlement.now));
    let thread = store.thread(&ann, new.conversation, None).await;
    assert_eq!(thread.messages.last().map(|message| message.id), run.assistant_message);
    assert_eq!((thread.conversation.message_count, thread.conversation.total_tokens), (2, 7));
    assert_eq!(thread.conversation.updated_at, settlement.now);
    assert_eq!(store.texts(&ann, new.conversation, None).await, ["hello there", "hi"]);
    assert_eq!(store.system_heartbeat(NODE, LEASE, true).await.unwrap().held, []);
}

async fn a_later_turn_goes_on_in_its_thread(store: TestStore) {
    let ann = store.workspace("ann").await;
    let first = store.answered(&ann, turn(None, "one"), "1").await;
    let id = first.conversation.unwrap();
    store.answered(&ann, turn(Some(id), "two"), "2").await;
    let (run, held) = store.started(&ann, turn(Some(id), "three")).await;
    let dispatch = store.get_dispatch(&held, 3).await.unwrap();
    let before: Vec<&str> = dispatch.before.iter().map(|message| message.text.as_str()).collect();
    assert_eq!((before, dispatch.message.text.as_str()), (vec!["1", "two", "2"], "three"));
    assert_eq!(dispatch.conversation.unwrap().message_count, 5);
    store.settle_turn(&held, &store.settlement("3", events(2, 3))).await.unwrap();
    assert_eq!(store.texts(&ann, id, None).await, ["one", "1", "two", "2", "three", "3"]);
    let thread = store.thread(&ann, id, None).await.conversation;
    assert_eq!((thread.title.as_deref(), thread.first_message), (Some("one"), first.message));
    let all = store.list_runs(&ann, id, None, 10).await.unwrap();
    assert_eq!(all.iter().map(|run| run.id).collect::<Vec<_>>()[0], run.id);
    assert_eq!(
        (all.len(), store.list_runs(&ann, id, Some(run.id), 1).await.unwrap()),
        (3, vec![all[1].clone()])
    );
}

async fn a_turn_notes_what_it_overrides(store: TestStore) {
    let ann = store.workspace("ann").await;
    let some = |text: &str| Some(text.to_owned());
    let first = StartTurn { agent: some("a"), workflow: some("w"), ..turn(None, "one") };
    let id = store.answered(&ann, first, "1").await.conversation.unwrap();
    let thread = store.thread(&ann, id, None).await.conversation;
    assert_eq!((thread.agent_id, thread.workflow_id, thread.model), (some("a"), some("w"), None));
    let second = StartTurn {
        model: some("m"),
        page_path: some("/p"),
        mode: Some(Mode::Ask),
        on_disconnect: OnDisconnect::Continue,
        ..turn(Some(id), "two")
    };
    let run = store.answered(&ann, second, "2").await;
    assert_eq!(run.on_disconnect, OnDisconnect::Continue);
    let thread = store.thread(&ann, id, None).await.conversation;
    assert_eq!((thread.agent_id, thread.workflow_id, thread.model), (some("a"), some("w"), some("m")));
    assert_eq!((thread.page_path, thread.mode), (some("/p"), Some(Mode::Ask)));
}

async fn a_wrong_fence_writes_nothing(store: TestStore) {
    let ann = store.workspace("ann").await;
    let (run, held) = store.started(&ann, turn(None, "one")).await;
    let id = run.conversation.unwrap();
    for fence in [0, 2] {
        let mut stale = held;
        stale.lease.fence = fence;
        assert_eq!(fails(store.append_events(&stale, &events(2, 2)).await), "lost");
        assert_eq!(fails(store.settle_turn(&stale, &store.settlement("no", events(2, 2))).await), "lost");
        assert_eq!(fails(store.get_dispatch(&stale, 1).await), "lost");
    }
    let elsewhere = Held { workspace: Uuid::nil(), ..held };
    assert_eq!(fails(store.append_events(&elsewhere, &events(2, 2)).await), "lost");
    assert_eq!(fails(store.settle_turn(&elsewhere, &store.settlement("no", events(2, 2))).await), "lost");
    assert_eq!(store.get_run(&ann, run.id).await.unwrap(), run);
    assert_eq!(store.texts(&ann, id, None).await, ["one"]);
    assert_eq!(store.count("SELECT count(*) FROM run_events").await, 1);

    // The one who took it over writes, the one before does not, nor after it.
    let taken = store.take_over(&ann, id, OTHER, LEASE).await.unwrap().unwrap();
    assert_eq!((taken.lease.run, taken.lease.fence), (run.id, 2));
    assert_eq!(fails(store.append_events(&held, &events(2, 2)).await), "lost");
    store.append_events(&taken, &events(2, 2)).await.unwrap();
    assert_eq!(fails(store.append_events(&held, &events(3, 3)).await), "lost");
    assert_eq!(fails(store.settle_turn(&held, &store.settlement("no", events(3, 3))).await), "lost");
    store.settle_turn(&taken, &store.settlement("yes", events(3, 3))).await.unwrap();
    assert_eq!(store.texts(&ann, id, None).await, ["one", "yes"]);
    assert_eq!(store.take_over(&ann, id, OTHER, LEASE).await.unwrap(), None);
}

async fn a_gap_in_the_numbers_is_told_from_an_overlap(store: TestStore) {
    let ann = store.workspace("ann").await;
    let (run, held) = store.started(&ann, turn(None, "one")).await;
    store.append_events(&held, &events(2, 4)).await.unwrap();
    let mut other_seq = events(5, 5);
    (other_seq.first_seq, other_seq.last_seq) = (6, 6);
    let bad =
        [(events(4, 5), "lost"), (events(6, 6), "behind 4"), (events(2, 5), "lost"), (events(3, 3), "lost")];
    for (bad, what) in bad.into_iter().chain([(other_seq, "lost")]) {
        assert_eq!(fails(store.append_events(&held, &bad).await), what, "{bad:?}");
        assert_eq!(fails(store.settle_turn(&held, &store.settlement("no", bad)).await), what);
    }
    // Who does not hold it is not told how far it is.
    let stale = Held { lease: Lease { fence: 2, ..held.lease }, ..held };
    assert_eq!(fails(store.append_events(&stale, &events(6, 6)).await), "lost");
    assert_eq!(fails(store.settle_turn(&stale, &store.settlement("no", events(6, 6))).await), "lost");
    let found = store.get_run(&ann, run.id).await.unwrap();
    assert_eq!((found.status, found.last_event), (RunStatus::Running, 4));
    store.append_events(&held, &events(5, 5)).await.unwrap();
    assert_eq!(store.texts(&ann, run.conversation.unwrap(), None).await, ["one"]);
}

async fn the_newest_batch_may_come_twice_and_is_stored_once(store: TestStore) {
    let ann = store.workspace("ann").await;
    let (run, held) = store.started(&ann, turn(None, "one")).await;
    for _ in 0..3 {
        store.append_events(&held, &events(2, 4)).await.unwrap();
    }
    let mut other = events(2, 4);
    other.entries = format!("{} ", other.entries).into();
    assert_eq!(fails(store.append_events(&held, &other).await), "lost");
    store.append_events(&held, &events(5, 5)).await.unwrap();
    assert_eq!(fails(store.append_events(&held, &events(2, 4)).await), "lost");
    assert_eq!(store.read_log(&ann, run.id, 0, 1000).await.unwrap().entries.len(), 3);
    store.take_over(&ann, run.conversation.unwrap(), OTHER, LEASE).await.unwrap();
    assert_eq!(fails(store.append_events(&held, &events(5, 5)).await), "lost");
}

async fn a_settled_run_stays_as_it_is(store: TestStore) {
    let ann = store.workspace("ann").await;
    let (run, held) = store.started(&ann, turn(None, "one")).await;
    let settled = store.settle_turn(&held, &store.settlement("1", events(2, 2))).await.unwrap().run;
    assert_eq!(fails(store.settle_turn(&held, &store.settlement("2", events(3, 3))).await), "lost");
    assert_eq!(fails(store.append_events(&held, &events(3, 3)).await), "lost");
    assert_eq!(store.request_cancel(&ann, run.id, store.now()).await.unwrap(), settled);
    assert_eq!(fails(store.edit_queued(&ann, run.id, &said("x")).await), "conflict run_started");
    assert_eq!(store.get_run(&ann, run.id).await.unwrap(), settled);
}

async fn a_failed_run_keeps_its_error(store: TestStore) {
    let ann = store.workspace("ann").await;
    for status in [RunStatus::Failed, RunStatus::Cancelled, RunStatus::Interrupted] {
        let (run, held) = store.started(&ann, turn(None, "one")).await;
        let settlement = Settlement {
            status,
            error: failed("sandbox_timeout"),
            assistant: None,
            ..store.settlement("", events(2, 3))
        };
        let settled = store.settle_turn(&held, &settlement).await.unwrap().run;
        assert_eq!((settled.status, settled.assistant_message), (status, None));
        assert_eq!(settled.error.unwrap().code, "sandbox_timeout");
        assert_eq!(store.texts(&ann, run.conversation.unwrap(), None).await, ["one"]);
    }
}

async fn a_key_gives_the_same_run_again(store: TestStore) {
    let ann = store.workspace("ann").await;
    let mut new = store.new_turn(turn(None, "one"));
    new.idempotency = Some(key("k", 1));
    let Begun::Started { run, .. } = store.begin_turn(&ann, &new).await.unwrap() else {
        panic!("not started")
    };
    let mut again = store.new_turn(turn(None, "one"));
    again.idempotency = Some(key("k", 1));
    assert_eq!(store.begin_turn(&ann, &again).await.unwrap(), Begun::Repeated(run.clone()));
    again.idempotency = Some(key("k", 2));
    assert_eq!(store.begin_turn(&ann, &again).await.unwrap(), Begun::KeyReused);
    // Another caller's keys are other keys: another user's, and the same user's with an API key.
    again.idempotency = Some(key("k", 2));
    assert_eq!(text(&store.begin_turn(&member(&ann, "bob"), &again).await.unwrap()), "started");
    let mut third = store.new_turn(turn(None, "one"));
    third.idempotency = Some(key("k", 3));
    let with_key = domain::scope::Scope { key: Some(Uuid::from_u128(7)), ..ann.clone() };
    assert_eq!(text(&store.begin_turn(&with_key, &third).await.unwrap()), "started");
    assert_eq!(store.count("SELECT count(*) FROM runs").await, 3);
}

async fn a_day_later_the_key_is_new(store: TestStore) {
    let ann = store.workspace("ann").await;
    let begin = async |body| {
        let mut new = store.new_turn(turn(None, "one"));
        new.idempotency = Some(key("k", body));
        text(&store.begin_turn(&ann, &new).await.unwrap())
    };
    assert_eq!(begin(1).await, "started");
    store.clock.advance_ms(24 * 3600 * 1000 - 2000);
    assert_eq!(begin(2).await, "key reused");
    store.clock.advance_ms(2000);
    assert_eq!(begin(2).await, "started");
    assert_eq!(begin(1).await, "key reused");
    assert_eq!(store.count("SELECT count(*) FROM idempotency_keys").await, 1);
    store.clock.advance_ms(25 * 3600 * 1000);
    store.system_expire(store.now(), store.now(), 10).await.unwrap();
    assert_eq!(store.count("SELECT count(*) FROM idempotency_keys").await, 0);
}

async fn a_refused_turn_leaves_nothing_behind(store: TestStore) {
    let ann = store.workspace("ann").await;
    let (run, held) = store.started(&ann, turn(None, "one")).await;
    let id = run.conversation.unwrap();
    let mut busy = store.new_turn(turn(Some(id), "two"));
    busy.idempotency = Some(key("k", 1));
    assert_eq!(store.begin_turn(&ann, &busy).await.unwrap(), Begun::Busy(run.id));
    let mut bad = store.new_turn(StartTurn { replace: Some(Uuid::nil()), ..turn(Some(id), "x") });
    bad.idempotency = Some(key("k", 2));
    assert_eq!(fails(store.begin_turn(&ann, &bad).await), "invalid /replace");
    bad.turn.conversation = None;
    assert_eq!(fails(store.begin_turn(&ann, &bad).await), "invalid /replace");
    bad.turn.conversation = Some(Uuid::nil());
    assert_eq!(fails(store.begin_turn(&ann, &bad).await), "not found");
    assert_eq!(store.count("SELECT count(*) FROM runs").await, 1);
    assert_eq!(store.count("SELECT count(*) FROM idempotency_keys").await, 0);
    assert_eq!(store.count("SELECT count(*) FROM chat_conversations").await, 1);
    // An answer is nothing to replace.
    let settled = store.settle_turn(&held, &store.settlement("1", events(2, 2))).await.unwrap().run;
    let mut bad = store.new_turn(turn(Some(id), "x"));
    bad.turn.replace = settled.assistant_message;
    assert_eq!(fails(store.begin_turn(&ann, &bad).await), "invalid /replace");
    // What was refused can be asked again, by the same key.
    assert_eq!(text(&store.begin_turn(&ann, &busy).await.unwrap()), "started");
}

async fn a_write_that_fails_in_part_leaves_nothing_behind(store: TestStore) {
    let ann = store.workspace("ann").await;
    let first = store.answered(&ann, turn(None, "one"), "1").await;
    let id = first.conversation.unwrap();
    let rows = async || {
        let mut rows = Vec::new();
        for table in ["chat_conversations", "messages", "runs", "run_events", "idempotency_keys"] {
            rows.push(store.count(&format!("SELECT count(*) FROM {table}")).await);
        }
        (rows, store.thread(&ann, id, None).await.conversation)
    };
    let before = rows().await;
    let begin = async |conversation, change: &dyn Fn(&mut NewTurn)| {
        let mut new = store.new_turn(turn(conversation, "two"));
        new.idempotency = Some(key("k", 1));
        change(&mut new);
        store.begin_turn(&ann, &new).await
    };
    // One row after the other is there already.
    assert!(begin(None, &|new| new.conversation = id).await.is_err());
    assert!(begin(None, &|new| new.run = first.id).await.is_err());
    assert!(begin(Some(id), &|new| new.run = first.id).await.is_err());
    assert!(begin(Some(id), &|new| new.message = first.message.unwrap()).await.is_err());
    assert_eq!(rows().await, before);
    assert_eq!(text(&begin(Some(id), &|_| ()).await.unwrap()), "started");
    let held = store.take_over(&ann, id, NODE, LEASE).await.unwrap().unwrap();
    let before = (rows().await, store.get_run(&ann, held.lease.run).await.unwrap());
    let mut settlement = store.settlement("2", events(2, 3));
    Arc::make_mut(settlement.assistant.as_mut().unwrap()).id = first.assistant_message.unwrap();
    assert!(store.settle_turn(&held, &settlement).await.is_err());
    assert_eq!((rows().await, store.get_run(&ann, held.lease.run).await.unwrap()), before);
    store.settle_turn(&held, &store.settlement("2", events(2, 3))).await.unwrap();
}

async fn too_many_open_runs_are_refused(store: TestStore) {
    let ann = store.workspace("ann").await;
    let bob = member(&ann, "bob");
    let begin = async |scope, limit| {
        let mut new = store.new_turn(turn(None, "one"));
        new.open_runs.user = limit;
        text(&store.begin_turn(scope, &new).await.unwrap())
    };
    assert_eq!(begin(&ann, 1).await, "started");
    assert_eq!(begin(&ann, 1).await, "too many");
    assert_eq!(begin(&bob, 1).await, "started");
    let (run, held) = store.started(&ann, turn(None, "two")).await;
    store.queued(&ann, run.conversation.unwrap(), "three", domain::run::OnBusy::Enqueue).await;
    assert_eq!(begin(&ann, 3).await, "too many");
    store.settle_turn(&held, &store.settlement("2", events(2, 2))).await.unwrap();
    assert_eq!(begin(&ann, 3).await, "started");
    assert_eq!(store.count("SELECT count(*) FROM chat_conversations").await, 4);
}

async fn a_stranger_cannot_begin_nor_read(store: TestStore) {
    let ann = store.workspace("ann").await;
    let (eve, mallory) = (member(&ann, "eve"), store.workspace("mallory").await);
    let (run, _) = store.started(&member(&ann, "bob"), turn(None, "one")).await;
    let id = run.conversation.unwrap();
    for scope in [&eve, &mallory] {
        let new = store.new_turn(turn(Some(id), "x"));
        assert_eq!(fails(store.begin_turn(scope, &new).await), "not found");
        assert_eq!(fails(store.get_run(scope, run.id).await), "not found");
        assert_eq!(fails(store.list_runs(scope, id, None, 9).await), "not found");
        assert_eq!(fails(store.list_queue(scope, id).await), "not found");
        assert_eq!(fails(store.edit_queued(scope, run.id, &said("x")).await), "not found");
        assert_eq!(fails(store.request_cancel(scope, run.id, store.now()).await), "not found");
        assert_eq!(fails(store.read_log(scope, run.id, 0, 100).await), "not found");
        assert_eq!(fails(store.read_trace(scope, run.id, 0, 100).await), "not found");
        assert_eq!(fails(store.take_over(scope, id, OTHER, LEASE).await), "not found");
        assert_eq!(fails(store.list_branches(scope, id).await), "not found");
        assert_eq!(fails(store.select_branch(scope, id, id, store.now()).await), "not found");
        let through = run.message.unwrap();
        let fork = store.fork_conversation(scope, id, through, &bare_fork(store.new_id(), store.now())).await;
        assert_eq!(fails(fork), "not found");
    }
    assert_eq!(store.get_run(&ann, run.id).await.unwrap(), run);
}

async fn a_delete_ends_runs_and_keeps_what_they_said(store: TestStore) {
    let ann = store.workspace("ann").await;
    let (run, held) = store.started(&ann, turn(None, "one")).await;
    let id = run.conversation.unwrap();
    let waiting = store.queued(&ann, id, "two", domain::run::OnBusy::Enqueue).await;
    store.delete_conversation(&ann, id, None, store.now()).await.unwrap();
    assert_eq!(fails(store.get_run(&ann, run.id).await), "not found");
    assert_eq!(fails(store.read_log(&ann, run.id, 0, 100).await), "not found");
    assert_eq!(store.system_heartbeat(NODE, LEASE, false).await.unwrap().cancelled, [run.id]);
    assert_eq!(store.system_list_waiting(10).await.unwrap(), []);
    store.append_events(&held, &events(2, 2)).await.unwrap();
    let settlement = Settlement { status: RunStatus::Cancelled, ..store.settlement("1", events(3, 3)) };
    store.settle_turn(&held, &settlement).await.unwrap();
    assert!(store.next(&ann, id).await.is_none());
    let restored = store.restore_conversation(&ann, id, store.now()).await.unwrap();
    assert_eq!(restored.message_count, 2);
    assert_eq!(store.texts(&ann, id, None).await, ["one", "1"]);
    let waiting = store.get_run(&ann, waiting.id).await.unwrap();
    assert_eq!((waiting.status, waiting.error.unwrap().code.as_str()), (RunStatus::Cancelled, "cancelled"));
    assert_eq!(store.list_queue(&ann, id).await.unwrap(), []);
}

async fn a_removed_workspace_ends_its_runs(store: TestStore) {
    let (ann, other) = (store.workspace("ann").await, store.workspace("ann").await);
    let (run, held) = store.started(&ann, turn(None, "one")).await;
    store.queued(&ann, run.conversation.unwrap(), "two", domain::run::OnBusy::Enqueue).await;
    let (kept, _) = store.started(&other, turn(None, "one")).await;
    store.remove_workspace(&ann, true, store.now()).await.unwrap();
    let beat = store.system_heartbeat(NODE, LEASE, true).await.unwrap();
    assert_eq!((beat.held.len(), beat.cancelled), (2, vec![run.id]));
    store.settle_turn(&held, &store.settlement("1", events(2, 2))).await.unwrap();
    assert_eq!(store.system_list_waiting(10).await.unwrap(), []);
    assert_eq!(store.get_run(&other, kept.id).await.unwrap(), kept);
}

async fn any_text_can_be_said(store: TestStore) {
    let ann = store.workspace("ann").await;
    for answer in ["", "\u{0}", "a\u{0}b 'quoted' \"double\" \\ \u{1f600} \u{feff}\u{2028}", "% _ $1 ?1"] {
        let run = store.answered(&ann, turn(None, "one"), answer).await;
        let thread = store.thread(&ann, run.conversation.unwrap(), None).await;
        let content = serde_json::to_string(answer).unwrap();
        assert_eq!(thread.messages[1].content, format!(r#"[{{"type":"text","text":{content}}}]"#));
    }
}

/// HAZARDS: a check that takes no lock let a stale append commit after a takeover.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stale_append_that_meets_a_takeover_half_done_writes_nothing() {
    let Some(store) = crate::setup::postgres().await else { return };
    let Behind::Postgres(database) = &store.behind else { return };
    let ann = store.workspace("ann").await;
    for settles in [false, true] {
        let (run, held) = store.started(&ann, turn(None, "one")).await;
        let taker = session(&database.superuser_url().unwrap()).await;
        taker.batch_execute("BEGIN").await.unwrap();
        taker.execute("UPDATE runs SET fence = fence + 1 WHERE id = $1", &[&run.id]).await.unwrap();
        let (appends, batch, settlement) =
            (store.store.clone(), events(2, 2), store.settlement("no", events(2, 2)));
        #[expect(clippy::disallowed_methods, reason = "awaited below")]
        let stale = tokio::spawn(async move {
            match settles {
                false => appends.append_events(&held, &batch).await,
                true => appends.settle_turn(&held, &settlement).await.map(|_| ()),
            }
        });
        let watch = session(&database.superuser_url().unwrap()).await;
        let blocked = "SELECT count(*) FROM pg_locks WHERE NOT granted";
        while watch.query_one(blocked, &[]).await.unwrap().get::<_, i64>(0) == 0 {
            assert!(!stale.is_finished(), "it did not wait for the takeover");
            tokio::task::yield_now().await;
        }
        taker.batch_execute("COMMIT").await.unwrap();
        assert!(matches!(stale.await.unwrap(), Err(StoreError::Lost)));
        let found = store.get_run(&ann, run.id).await.unwrap();
        assert_eq!((found.status, found.last_event), (RunStatus::Running, 1));
        assert_eq!(store.texts(&ann, run.conversation.unwrap(), None).await, ["one"]);
    }
    assert_eq!(store.count("SELECT count(*) FROM run_events WHERE last_entry > 1").await, 0);
}

/// Thousands of turns begin and end side by side: what a write takes while it is under way counts as often.
async fn a_write_under_way_takes_little_room(store: TestStore) {
    let (ann, new) = (store.workspace("ann").await, store.new_turn(turn(None, "hello there")));
    let begin = store.begin_turn(&ann, &new);
    assert!(size_of_val(&*begin) < ROOM, "a begin takes {} bytes", size_of_val(&*begin));
    let Begun::Started { lease, .. } = begin.await.unwrap() else { panic!("not started") };
    let held = Held { workspace: ann.workspace, lease };
    let batch = events(2, 2);
    let append = store.append_events(&held, &batch);
    assert!(size_of_val(&*append) < ROOM, "an append takes {} bytes", size_of_val(&*append));
    append.await.unwrap();
    let end = store.settlement("ok", events(3, 3));
    let settle = store.settle_turn(&held, &end);
    assert!(size_of_val(&*settle) < ROOM, "an end takes {} bytes", size_of_val(&*settle));
    settle.await.unwrap();
}
