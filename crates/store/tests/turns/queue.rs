//! Turns that wait for another: their order, their edits, their end.

use domain::run::{Brought, Lease, OnBusy, OnDisconnect, Run, RunStatus, StartTurn};
use store::StoreError;
use store::turns::{Begun, Held, Settlement, Waiting};
use uuid::Uuid;

use crate::play::{LEASE, NODE, events, key, said, turn};
use crate::setup::{TestStore, fails};

on_both!(
    queued_turns_start_in_order,
    a_turn_begins_no_sooner_than_the_one_before_it_ended,
    an_interrupting_turn_goes_first_and_asks_the_other_to_stop,
    a_rolled_back_turn_moves_to_a_side_branch,
    the_last_rollback_takes_the_place,
    a_queued_turn_can_be_edited_until_it_starts,
    a_cancel_ends_a_queued_run_and_marks_one_under_way,
    want_of_readers_ends_only_what_needs_them,
    a_queue_without_a_run_still_keeps_others_out,
    ids_that_a_client_brings_are_kept_and_taken_once,
    a_runs_id_is_kept_for_its_answer,
    a_queued_turn_that_cannot_start_fails_and_the_next_goes_on,
    conversations_that_do_not_start_keep_no_other_out,
    what_other_clients_keep_is_found_again,
);

async fn queued_turns_start_in_order(store: TestStore) {
    let ann = store.workspace("ann").await;
    let (run, held) = store.started(&ann, turn(None, "one")).await;
    let id = run.conversation.unwrap();
    let mut queued = Vec::new();
    for text in ["two", "three", "four"] {
        queued.push(store.queued(&ann, id, text, OnBusy::Enqueue).await);
    }
    assert!(queued.iter().all(|run| run.status == RunStatus::Queued && run.started_at.is_none()));
    let list = store.list_queue(&ann, id).await.unwrap();
    assert_eq!(list.iter().map(|(run, _)| run.clone()).collect::<Vec<_>>(), queued);
    assert_eq!(list[1].1.message, Some(said("three")));
    // A message takes its place when its run starts, and none starts while another is under way.
    assert_eq!(store.texts(&ann, id, None).await, ["one"]);
    assert!(store.next(&ann, id).await.is_none());
    assert_eq!(store.system_list_waiting(10).await.unwrap(), []);
    assert!(store.settle_turn(&held, &store.settlement("1", events(2, 2))).await.unwrap().queue);
    let waiting = Waiting { workspace: ann.workspace, conversation: id };
    assert_eq!(store.system_list_waiting(10).await.unwrap(), [waiting]);
    for (queued, answer) in queued.iter().zip(["2", "3", "4"]) {
        let (run, held) = store.next(&ann, id).await.unwrap();
        assert_eq!((run.id, run.status, held.lease.fence), (queued.id, RunStatus::Running, 1));
        assert_eq!(store.get_run(&ann, run.id).await.unwrap(), run);
        assert_eq!(store.get_dispatch(&held, 1).await.unwrap().run, run);
        assert!(store.next(&ann, id).await.is_none());
        let settled = store.settle_turn(&held, &store.settlement(answer, events(2, 2))).await.unwrap();
        assert_eq!(settled.queue, answer != "4");
    }
    assert!(store.next(&ann, id).await.is_none());
    assert_eq!(store.texts(&ann, id, None).await, ["one", "1", "two", "2", "three", "3", "four", "4"]);
    assert_eq!(store.thread(&ann, id, None).await.conversation.message_count, 8);
}

/// Whenever the clock was asked, and whichever: another node's may be ahead.
async fn a_turn_begins_no_sooner_than_the_one_before_it_ended(store: TestStore) {
    let ann = store.workspace("ann").await;
    let (run, held) = store.started(&ann, turn(None, "one")).await;
    let id = run.conversation.unwrap();
    store.queued(&ann, id, "two", OnBusy::Enqueue).await;
    let ahead = store.now() + jiff::SignedDuration::from_secs(5);
    let settlement = Settlement { now: ahead, ..store.settlement("1", events(2, 2)) };
    assert_eq!(store.settle_turn(&held, &settlement).await.unwrap().run.ended_at, Some(ahead));
    let (second, held) = store.next(&ann, id).await.unwrap();
    assert!(second.started_at >= Some(ahead), "{second:?}");
    let settled = store.settle_turn(&held, &store.settlement("2", events(2, 2))).await.unwrap();
    assert_eq!(settled.run.ended_at, second.started_at);
    let (third, _) = store.started(&ann, turn(Some(id), "three")).await;
    assert!(third.started_at >= settled.run.ended_at, "{third:?}");
}

async fn an_interrupting_turn_goes_first_and_asks_the_other_to_stop(store: TestStore) {
    let ann = store.workspace("ann").await;
    let (run, held) = store.started(&ann, turn(None, "one")).await;
    let id = run.conversation.unwrap();
    let later = store.queued(&ann, id, "later", OnBusy::Enqueue).await;
    assert!(!store.get_run(&ann, run.id).await.unwrap().cancel_requested);
    assert!(store.system_heartbeat(NODE, LEASE, true).await.unwrap().cancelled.is_empty());
    let first = store.queued(&ann, id, "now", OnBusy::Interrupt).await;
    let sooner = store.queued(&ann, id, "right now", OnBusy::Interrupt).await;
    let given_way = store.get_run(&ann, first.id).await.unwrap();
    assert_eq!((given_way.status, given_way.ended_at.is_some()), (RunStatus::Cancelled, true));
    assert!(store.get_run(&ann, run.id).await.unwrap().cancel_requested);
    let beat = store.system_heartbeat(NODE, LEASE, false).await.unwrap();
    assert_eq!((beat.held, beat.cancelled), (vec![held], vec![run.id]));
    let order: Vec<_> = store.list_queue(&ann, id).await.unwrap().iter().map(|(run, _)| run.id).collect();
    assert_eq!(order, [sooner.id, later.id]);
    store.settle_turn(&held, &store.settlement("part", events(2, 2))).await.unwrap();
    let (run, _) = store.next(&ann, id).await.unwrap();
    assert_eq!((run.id, run.cancel_requested), (sooner.id, false));
    assert_eq!(store.texts(&ann, id, None).await, ["one", "part", "right now"]);
}

async fn a_rolled_back_turn_moves_to_a_side_branch(store: TestStore) {
    let ann = store.workspace("ann").await;
    let id = store.answered(&ann, turn(None, "one"), "1").await.conversation.unwrap();
    let (run, held) = store.started(&ann, turn(Some(id), "wrong")).await;
    store.queued(&ann, id, "right", OnBusy::Rollback).await;
    assert!(store.get_run(&ann, run.id).await.unwrap().cancel_requested);
    store.settle_turn(&held, &store.settlement("part", events(2, 2))).await.unwrap();
    assert_eq!(store.texts(&ann, id, None).await, ["one", "1", "wrong", "part"]);
    let (_, held) = store.next(&ann, id).await.unwrap();
    assert_eq!(store.texts(&ann, id, None).await, ["one", "1", "right"]);
    let before = store.get_dispatch(&held, 9).await.unwrap().before;
    assert_eq!(before.iter().map(|message| message.text.as_str()).collect::<Vec<_>>(), ["one", "1"]);
    store.settle_turn(&held, &store.settlement("2", events(2, 2))).await.unwrap();
    assert_eq!(store.texts(&ann, id, None).await, ["one", "1", "right", "2"]);
    assert_eq!(store.thread(&ann, id, None).await.conversation.message_count, 4);
    // Nothing is destroyed.
    assert_eq!(store.texts(&ann, id, Some(id)).await, ["one", "1", "wrong", "part"]);
}

/// The newest of those that take a turn's place has it, whether the turn has ended by then or not.
async fn the_last_rollback_takes_the_place(store: TestStore) {
    let ann = store.workspace("ann").await;
    for ended_between in [false, true] {
        let id = store.answered(&ann, turn(None, "one"), "1").await.conversation.unwrap();
        let (_, held) = store.started(&ann, turn(Some(id), "wrong")).await;
        let settlement = store.settlement("part", events(2, 2));
        let first = store.queued(&ann, id, "better", OnBusy::Rollback).await;
        if ended_between {
            store.settle_turn(&held, &settlement).await.unwrap();
        }
        let last = store.queued(&ann, id, "right", OnBusy::Rollback).await;
        if !ended_between {
            store.settle_turn(&held, &settlement).await.unwrap();
        }
        assert_eq!(store.get_run(&ann, first.id).await.unwrap().status, RunStatus::Cancelled);
        let (run, held) = store.next(&ann, id).await.unwrap();
        assert_eq!(run.id, last.id);
        store.settle_turn(&held, &store.settlement("2", events(2, 2))).await.unwrap();
        assert!(store.next(&ann, id).await.is_none());
        assert_eq!(store.texts(&ann, id, None).await, ["one", "1", "right", "2"]);
        assert_eq!(store.texts(&ann, id, Some(id)).await, ["one", "1", "wrong", "part"]);
    }
}

async fn a_queued_turn_can_be_edited_until_it_starts(store: TestStore) {
    let ann = store.workspace("ann").await;
    let (run, held) = store.started(&ann, turn(None, "one")).await;
    let id = run.conversation.unwrap();
    let queued = store.queued(&ann, id, "two", OnBusy::Enqueue).await;
    assert_eq!(fails(store.edit_queued(&ann, run.id, &said("x")).await), "conflict run_started");
    assert_eq!(store.edit_queued(&ann, queued.id, &said("second")).await.unwrap(), queued);
    assert_eq!(store.list_queue(&ann, id).await.unwrap()[0].1.message, Some(said("second")));
    store.settle_turn(&held, &store.settlement("1", events(2, 2))).await.unwrap();
    store.next(&ann, id).await.unwrap();
    assert_eq!(fails(store.edit_queued(&ann, queued.id, &said("x")).await), "conflict run_started");
    assert_eq!(store.texts(&ann, id, None).await, ["one", "1", "second"]);
}

async fn a_cancel_ends_a_queued_run_and_marks_one_under_way(store: TestStore) {
    let ann = store.workspace("ann").await;
    let (run, held) = store.started(&ann, turn(None, "one")).await;
    let id = run.conversation.unwrap();
    let queued = store.queued(&ann, id, "two", OnBusy::Enqueue).await;
    let cancelled = store.request_cancel(&ann, queued.id, store.now()).await.unwrap();
    assert_eq!((cancelled.status, cancelled.ended_at), (RunStatus::Cancelled, Some(store.now())));
    assert_eq!(cancelled.error.as_ref().unwrap().code, "cancelled");
    assert_eq!(store.request_cancel(&ann, queued.id, store.write().now).await.unwrap(), cancelled);
    assert_eq!(store.list_queue(&ann, id).await.unwrap(), []);
    let marked = store.request_cancel(&ann, run.id, store.now()).await.unwrap();
    assert_eq!((marked.status, marked.cancel_requested, marked.ended_at), (RunStatus::Running, true, None));
    // Its node is still the one to end it.
    store.append_events(&held, &events(2, 2)).await.unwrap();
    store.settle_turn(&held, &store.settlement("1", events(3, 3))).await.unwrap();
    assert!(store.next(&ann, id).await.is_none());
    assert_eq!(store.texts(&ann, id, None).await, ["one", "1"]);
}

/// Of a request that is repeated by one who waits for nothing, and its readers' going: the first one counts.
async fn want_of_readers_ends_only_what_needs_them(store: TestStore) {
    let ann = store.workspace("ann").await;
    let send = async |text: &str, conversation, on_disconnect| {
        let turn = StartTurn { on_busy: OnBusy::Enqueue, on_disconnect, ..turn(conversation, text) };
        let mut new = store.new_turn(turn);
        new.idempotency = Some(key(text, 1));
        match store.begin_turn(&ann, &new).await.unwrap() {
            Begun::Started { run, .. } | Begun::Queued(run, _) | Begun::Repeated(run) => run,
            other => panic!("{other:?}"),
        }
    };
    let held = |run: &Run| {
        let fence = i64::from(run.status == RunStatus::Running);
        Held { workspace: ann.workspace, lease: Lease { run: run.id, fence } }
    };
    let first = send("one", None, OnDisconnect::Cancel).await;
    let thread = first.conversation;
    for (text, state) in [("one", RunStatus::Running), ("two", RunStatus::Queued)] {
        let run = send(text, thread, OnDisconnect::Cancel).await;
        let kept = send(text, thread, OnDisconnect::Continue).await;
        assert_eq!((kept.id, kept.status, kept.on_disconnect), (run.id, state, OnDisconnect::Continue));
        assert!(!store.cancel_unread(&held(&run), store.now()).await.unwrap());
        assert_eq!(store.get_run(&ann, run.id).await.unwrap(), kept);
        // Asking for less changes nothing.
        assert_eq!(send(text, thread, OnDisconnect::Cancel).await, kept);
    }
    let other = send("three", None, OnDisconnect::Cancel).await;
    send("four", other.conversation, OnDisconnect::Cancel).await;
    for text in ["three", "four"] {
        let run = send(text, other.conversation, OnDisconnect::Cancel).await;
        // Who holds it no longer changes nothing.
        let mut old = held(&run);
        old.lease.fence += 1;
        assert!(!store.cancel_unread(&old, store.now()).await.unwrap());
        assert_eq!(store.get_run(&ann, run.id).await.unwrap(), run);
        assert!(store.cancel_unread(&held(&run), store.now()).await.unwrap());
        let late = send(text, other.conversation, OnDisconnect::Continue).await;
        assert_eq!(late.on_disconnect, OnDisconnect::Cancel);
        assert!(late.cancel_requested || late.status == RunStatus::Cancelled);
    }
}

async fn a_queue_without_a_run_still_keeps_others_out(store: TestStore) {
    let ann = store.workspace("ann").await;
    let (run, held) = store.started(&ann, turn(None, "one")).await;
    let id = run.conversation.unwrap();
    let queued = store.queued(&ann, id, "two", OnBusy::Enqueue).await;
    store.settle_turn(&held, &store.settlement("1", events(2, 2))).await.unwrap();
    // Between the end of one and the start of the next, nobody slips in.
    let begun = store.begin_turn(&ann, &store.new_turn(turn(Some(id), "x"))).await.unwrap();
    assert_eq!(begun, store::turns::Begun::Busy(queued.id));
    let third = store.queued(&ann, id, "three", OnBusy::Enqueue).await;
    let order: Vec<_> = store.list_queue(&ann, id).await.unwrap().iter().map(|(run, _)| run.id).collect();
    assert_eq!(order, [queued.id, third.id]);
}

async fn ids_that_a_client_brings_are_kept_and_taken_once(store: TestStore) {
    let ann = store.workspace("ann").await;
    let (conversation, message) = (Uuid::from_u128(0xc0), Uuid::from_u128(0xe0));
    let brought = |conversation, message, name: &str| Brought {
        conversation,
        message: Some(message),
        message_name: Some(name.into()),
        ..Brought::default()
    };
    let first = StartTurn { brought: brought(Some(conversation), message, "m"), ..turn(None, "one") };
    let mut new = store.new_turn(first);
    (new.conversation, new.message) = (conversation, message);
    store.begin_turn(&ann, &new).await.unwrap();
    let thread = store.thread(&ann, conversation, None).await;
    assert_eq!(
        (thread.messages[0].id, thread.messages[0].metadata.as_str()),
        (message, r#"{"client_id":"m"}"#)
    );
    // A message's id is taken in its conversation, in the queue, too; a conversation's in its workspace.
    let queued = Uuid::from_u128(0xe1);
    for (message, taken) in [(message, true), (queued, false), (queued, true)] {
        let turn = StartTurn {
            on_busy: OnBusy::Enqueue,
            brought: brought(None, message, "n"),
            ..turn(Some(conversation), "two")
        };
        let mut new = store.new_turn(turn);
        new.message = message;
        let begun = store.begin_turn(&ann, &new).await;
        assert_eq!(matches!(begun, Err(StoreError::Taken("message id"))), taken, "{begun:?}");
    }
    let mut again = store.new_turn(turn(None, "one"));
    again.conversation = conversation;
    assert!(matches!(store.begin_turn(&ann, &again).await, Err(StoreError::Taken("id"))));
}

async fn a_runs_id_is_kept_for_its_answer(store: TestStore) {
    let ann = store.workspace("ann").await;
    let (run, _) = store.started(&ann, turn(None, "one")).await;
    let id = run.conversation.unwrap();
    let queued = store.queued(&ann, id, "two", OnBusy::Enqueue).await;
    let (elsewhere, _) = store.started(&ann, turn(None, "one")).await;
    for (message, taken) in [(run.id, true), (queued.id, true), (elsewhere.id, false)] {
        let brought = Brought { message: Some(message), ..Brought::default() };
        let mut new =
            store.new_turn(StartTurn { on_busy: OnBusy::Enqueue, brought, ..turn(Some(id), "three") });
        new.message = message;
        let begun = store.begin_turn(&ann, &new).await;
        assert_eq!(matches!(begun, Err(StoreError::Taken("message id"))), taken, "{begun:?}");
    }
}

/// Whatever is wrong with it: its message's id is taken by now, or what was asked cannot be read.
async fn a_queued_turn_that_cannot_start_fails_and_the_next_goes_on(store: TestStore) {
    let ann = store.workspace("ann").await;
    let (run, held) = store.started(&ann, turn(None, "one")).await;
    let id = run.conversation.unwrap();
    let taken = store.queued(&ann, id, "two", OnBusy::Enqueue).await;
    let unread = store.queued(&ann, id, "three", OnBusy::Enqueue).await;
    let good = store.queued(&ann, id, "four", OnBusy::Enqueue).await;
    let (first, message) = (taken.id, run.message.unwrap());
    store
        .behind(
            &format!(
                "UPDATE runs SET message_id = x'{}' WHERE id = x'{}'; UPDATE runs SET request = '?' WHERE id = x'{}'",
                message.simple(),
                first.simple(),
                unread.id.simple()
            ),
            &format!(
                "UPDATE runs SET message_id = '{message}' WHERE id = '{first}'; \
                 UPDATE runs SET request = '?' WHERE id = '{}'",
                unread.id
            ),
        )
        .await;
    store.settle_turn(&held, &store.settlement("1", events(2, 2))).await.unwrap();
    let (started, held) = store.next(&ann, id).await.unwrap();
    assert_eq!((started.id, started.status), (good.id, RunStatus::Running));
    for run in [first, unread.id] {
        let failed = store.get_run(&ann, run).await.unwrap();
        assert_eq!((failed.status, failed.error.unwrap().code.as_str()), (RunStatus::Failed, "internal"));
        assert!(failed.ended_at.is_some());
    }
    assert_eq!(store.texts(&ann, id, None).await, ["one", "1", "four"]);
    store.settle_turn(&held, &store.settlement("4", events(2, 2))).await.unwrap();
    assert_eq!(store.system_list_waiting(10).await.unwrap(), []);
    assert_eq!(store.texts(&ann, id, None).await, ["one", "1", "four", "4"]);
}

async fn conversations_that_do_not_start_keep_no_other_out(store: TestStore) {
    let ann = store.workspace("ann").await;
    let mut all = std::collections::HashSet::new();
    for _ in 0..8 {
        let (run, held) = store.started(&ann, turn(None, "one")).await;
        let id = run.conversation.unwrap();
        store.queued(&ann, id, "two", OnBusy::Enqueue).await;
        store.settle_turn(&held, &store.settlement("1", events(2, 2))).await.unwrap();
        all.insert(id);
    }
    let mut seen = std::collections::HashSet::new();
    for _ in 0..200 {
        let waiting = store.system_list_waiting(2).await.unwrap();
        assert_eq!(waiting.len(), 2);
        seen.extend(waiting.into_iter().map(|waiting| waiting.conversation));
    }
    assert_eq!(seen, all);
}

async fn what_other_clients_keep_is_found_again(store: TestStore) {
    let ann = store.workspace("ann").await;
    let bob = store.workspace("bob").await;
    let asked = turn(None, "one");
    let (run, _) = store.started(&ann, asked.clone()).await;
    let id = run.conversation.unwrap();
    let asking = store.get_asking(&ann, run.id).await.unwrap();
    assert_eq!((asking.run.id, &asking.turn, asking.forgotten), (run.id, &asked, false));
    store.forget_response(&ann, run.id).await.unwrap();
    assert!(store.get_asking(&ann, run.id).await.unwrap().forgotten);
    assert_eq!(store.list_metadata(&ann, &[id]).await.unwrap(), [(id, None)]);
    store.set_metadata(&ann, id, r#"{"a":"b"}"#).await.unwrap();
    assert_eq!(store.list_metadata(&ann, &[id]).await.unwrap(), [(id, Some(r#"{"a":"b"}"#.to_owned()))]);
    let message = run.message.unwrap();
    assert_eq!(store.get_message(&ann, id, message).await.unwrap().text, "one");
    assert!(matches!(store.get_asking(&bob, run.id).await, Err(StoreError::NotFound)));
    assert!(matches!(store.forget_response(&bob, run.id).await, Err(StoreError::NotFound)));
    assert!(matches!(store.set_metadata(&bob, id, "{}").await, Err(StoreError::NotFound)));
    assert!(matches!(store.get_message(&bob, id, message).await, Err(StoreError::NotFound)));
    assert_eq!(store.list_metadata(&bob, &[id]).await.unwrap(), []);
}
