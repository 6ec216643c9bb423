//! Attachments: tied to the message in the transaction that makes it, and copied into it.

use domain::file::{Bag, File};
use domain::run::{OnBusy, StartTurn};
use domain::scope::Scope;
use store::turns::Begun;
use uuid::Uuid;

use crate::play::{events, turn};
use crate::setup::{TestStore, fails, member};

on_both!(
    attachments_stand_in_the_message_in_the_order_asked,
    what_is_not_a_file_of_the_conversation_is_refused,
    a_file_is_attached_again,
    a_queued_turn_leaves_out_what_was_deleted,
    a_queued_turn_that_never_came_has_no_files,
    an_edit_keeps_what_was_attached,
    an_edit_that_waits_takes_nothing_off_its_message,
    a_new_answer_leaves_the_message_as_it_is,
    a_rollback_takes_nothing_over,
);

fn attaching(conversation: Uuid, text: &str, files: &[&File]) -> StartTurn {
    StartTurn {
        attachments: Some(files.iter().map(|file| file.id).collect()),
        ..turn(Some(conversation), text)
    }
}

fn json(files: &[&File]) -> String {
    serde_json::to_string(&files.iter().map(|file| file.attachment()).collect::<Vec<_>>()).unwrap()
}

/// The attachments of the messages of the current thread.
async fn attached(store: &TestStore, scope: &Scope, conversation: Uuid) -> Vec<String> {
    let thread = store.thread(scope, conversation, None).await;
    thread.messages.into_iter().map(|message| message.file_attachments).collect()
}

async fn tied(store: &TestStore, scope: &Scope, file: &File) -> Option<Uuid> {
    store.get_file(scope, file.id).await.unwrap().message
}

async fn attachments_stand_in_the_message_in_the_order_asked(store: TestStore) {
    let ann = store.workspace("ann").await;
    let id = store.create(&ann, "t").await.id;
    let bag = Bag::Conversation(id);
    let (a, b, c) = (
        store.upload(&ann, bag, "a").await,
        store.upload(&ann, bag, "b \"q\"").await,
        store.upload(&ann, bag, "c").await,
    );
    // Twice is once, at its first place.
    let (run, held) = store.started(&ann, attaching(id, "go", &[&c, &a, &c])).await;
    assert_eq!(attached(&store, &ann, id).await, [json(&[&c, &a])]);
    let message = store.get_dispatch(&held, 9).await.unwrap().message;
    assert_eq!(message.file_attachments, json(&[&c, &a]));
    assert_eq!(tied(&store, &ann, &a).await, run.message);
    assert_eq!(tied(&store, &ann, &c).await, run.message);
    assert_eq!(tied(&store, &ann, &b).await, None);
    // History needs no second read: it says what was attached.
    store.delete_file(&ann, a.id, store.now()).await.unwrap();
    assert_eq!(attached(&store, &ann, id).await, [json(&[&c, &a])]);
    store.settle_turn(&held, &store.settlement("1", events(2, 2))).await.unwrap();
    store.started(&ann, attaching(id, "two", &[])).await;
    assert_eq!(attached(&store, &ann, id).await[2], "[]");
}

async fn what_is_not_a_file_of_the_conversation_is_refused(store: TestStore) {
    let ann = store.workspace("ann").await;
    let bob = member(&ann, "bob");
    let id = store.create(&bob, "t").await.id;
    let bag = Bag::Conversation(id);
    let good = store.upload(&bob, bag, "good").await.id;
    let deleted = store.upload(&bob, bag, "deleted").await.id;
    store.delete_file(&bob, deleted, store.now()).await.unwrap();
    let reserved = store.reserve(&bob, bag, "reserved").await.unwrap().id;
    let other = Bag::Conversation(store.create(&bob, "o").await.id);
    let other = store.upload(&bob, other, "other").await.id;
    let kept = store.upload(&bob, Bag::Workspace, "kept").await.id;
    let eve = store.workspace("eve").await;
    let foreign = Bag::Conversation(store.create(&eve, "e").await.id);
    let foreign = store.upload(&eve, foreign, "foreign").await.id;
    for bad in [deleted, reserved, other, kept, foreign, store.new_id()] {
        for on_busy in [OnBusy::Reject, OnBusy::Enqueue, OnBusy::Interrupt] {
            let attachments = Some(vec![good, bad, store.new_id()]);
            let turn = StartTurn { attachments, on_busy, ..turn(Some(id), "go") };
            assert_eq!(fails(store.begin_turn(&bob, &store.new_turn(turn)).await), "no attachment 1");
        }
    }
    assert!(store.texts(&bob, id, None).await.is_empty());
    assert!(store.list_runs(&bob, id, None, 9).await.unwrap().is_empty());
    assert_eq!(store.get_file(&bob, good).await.unwrap().message, None);
    // A first turn has nothing to attach yet, and leaves no conversation behind.
    let first = store.new_turn(StartTurn { attachments: Some(vec![good]), ..turn(None, "first") });
    assert_eq!(fails(store.begin_turn(&bob, &first).await), "no attachment 0");
    assert_eq!(fails(store.get_thread(&bob, first.conversation, None.into()).await), "not found");
    let first = StartTurn { attachments: Some(Vec::new()), ..turn(None, "first") };
    store.started(&bob, first).await;
}

async fn a_file_is_attached_again(store: TestStore) {
    let ann = store.workspace("ann").await;
    let id = store.create(&ann, "t").await.id;
    let file = store.upload(&ann, Bag::Conversation(id), "a").await;
    store.answered(&ann, attaching(id, "one", &[&file]), "1").await;
    let second = store.answered(&ann, attaching(id, "two", &[&file]), "2").await;
    assert_eq!(tied(&store, &ann, &file).await, second.message);
    assert_eq!(attached(&store, &ann, id).await, [&json(&[&file]), "[]", &json(&[&file]), "[]"]);
}

async fn a_queued_turn_leaves_out_what_was_deleted(store: TestStore) {
    let ann = store.workspace("ann").await;
    let (run, held) = store.started(&ann, turn(None, "one")).await;
    let id = run.conversation.unwrap();
    let bag = Bag::Conversation(id);
    let (a, b) = (store.upload(&ann, bag, "a").await, store.upload(&ann, bag, "b").await);
    let new = store.new_turn(StartTurn { on_busy: OnBusy::Enqueue, ..attaching(id, "two", &[&b, &a]) });
    let Begun::Queued(queued, _) = store.begin_turn(&ann, &new).await.unwrap() else { panic!("not queued") };
    assert_eq!(queued.message, Some(new.message));
    assert_eq!(tied(&store, &ann, &a).await, Some(new.message));
    assert_eq!(store.list_queue(&ann, id).await.unwrap()[0].1.attachments, Some(vec![b.id, a.id]));
    store.delete_file(&ann, b.id, store.now()).await.unwrap();
    // The text can be edited, and takes its files with it.
    store.edit_queued(&ann, queued.id, &crate::play::said("zwei")).await.unwrap();
    store.settle_turn(&held, &store.settlement("1", events(2, 2))).await.unwrap();
    store.next(&ann, id).await.unwrap();
    assert_eq!(store.texts(&ann, id, None).await, ["one", "1", "zwei"]);
    assert_eq!(attached(&store, &ann, id).await, ["[]", "[]", &json(&[&a])]);
}

/// Whether it was cancelled, or its conversation was deleted and came back without it.
async fn a_queued_turn_that_never_came_has_no_files(store: TestStore) {
    let ann = store.workspace("ann").await;
    let id = store.create(&ann, "t").await.id;
    let bag = Bag::Conversation(id);
    let (a, b, c) = (
        store.upload(&ann, bag, "a").await,
        store.upload(&ann, bag, "b").await,
        store.upload(&ann, bag, "c").await,
    );
    let (run, _) = store.started(&ann, attaching(id, "one", &[&a])).await;
    let queue = async |text, file| {
        let turn = StartTurn { on_busy: OnBusy::Enqueue, ..attaching(id, text, &[file]) };
        match store.begin_turn(&ann, &store.new_turn(turn)).await.unwrap() {
            Begun::Queued(queued, _) => queued,
            other => panic!("{other:?}"),
        }
    };
    let (two, three) = (queue("two", &b).await, queue("three", &c).await);
    assert_eq!((tied(&store, &ann, &b).await, tied(&store, &ann, &c).await), (two.message, three.message));
    store.request_cancel(&ann, two.id, store.now()).await.unwrap();
    store.delete_conversation(&ann, id, None, store.write().now).await.unwrap();
    store.restore_conversation(&ann, id, store.write().now).await.unwrap();
    for (file, message) in [(&a, run.message), (&b, None), (&c, None)] {
        assert_eq!(tied(&store, &ann, file).await, message, "{}", file.name);
    }
}

async fn an_edit_keeps_what_was_attached(store: TestStore) {
    let ann = store.workspace("ann").await;
    let id = store.create(&ann, "t").await.id;
    let bag = Bag::Conversation(id);
    let (a, b, c) = (
        store.upload(&ann, bag, "a").await,
        store.upload(&ann, bag, "b").await,
        store.upload(&ann, bag, "c").await,
    );
    let first = store.answered(&ann, attaching(id, "one", &[&b, &a, &c]), "1").await;
    store.delete_file(&ann, a.id, store.now()).await.unwrap();
    let edit = StartTurn { replace: first.message, ..turn(Some(id), "eins") };
    let edited = store.answered(&ann, edit, "i").await;
    assert_eq!(attached(&store, &ann, id).await[0], json(&[&b, &c]));
    assert_eq!(tied(&store, &ann, &b).await, edited.message);
    // The message that was edited is as it was.
    let thread = store.thread(&ann, id, Some(id)).await;
    assert_eq!(thread.messages[0].file_attachments, json(&[&b, &a, &c]));
    let edit = StartTurn { replace: edited.message, ..attaching(id, "uno", &[&c]) };
    let edited = store.answered(&ann, edit, "u").await;
    assert_eq!(attached(&store, &ann, id).await[0], json(&[&c]));
    let edit = StartTurn { replace: edited.message, ..attaching(id, "un", &[]) };
    store.answered(&ann, edit, "u").await;
    assert_eq!(attached(&store, &ann, id).await[0], "[]");
}

async fn an_edit_that_waits_takes_nothing_off_its_message(store: TestStore) {
    let ann = store.workspace("ann").await;
    let id = store.create(&ann, "t").await.id;
    let file = store.upload(&ann, Bag::Conversation(id), "a").await;
    let (run, held) = store.started(&ann, attaching(id, "one", &[&file])).await;
    let edit = || StartTurn { replace: run.message, on_busy: OnBusy::Enqueue, ..turn(Some(id), "edited") };
    let Begun::Queued(queued, _) = store.begin_turn(&ann, &store.new_turn(edit())).await.unwrap() else {
        panic!("not queued")
    };
    assert_eq!(tied(&store, &ann, &file).await, run.message);
    store.request_cancel(&ann, queued.id, store.now()).await.unwrap();
    assert_eq!(tied(&store, &ann, &file).await, run.message);
    // One that starts takes them with it.
    store.begin_turn(&ann, &store.new_turn(edit())).await.unwrap();
    store.settle_turn(&held, &store.settlement("1", events(2, 2))).await.unwrap();
    let (started, _) = store.next(&ann, id).await.unwrap();
    assert_eq!(tied(&store, &ann, &file).await, started.message);
    assert_eq!(attached(&store, &ann, id).await, [json(&[&file])]);
}

async fn a_new_answer_leaves_the_message_as_it_is(store: TestStore) {
    let ann = store.workspace("ann").await;
    let id = store.create(&ann, "t").await.id;
    let file = store.upload(&ann, Bag::Conversation(id), "a").await;
    let first = store.answered(&ann, attaching(id, "one", &[&file]), "1").await;
    let again = StartTurn { replace: first.message, message: None, ..turn(Some(id), "") };
    let (again, held) = store.started(&ann, again).await;
    assert_eq!(again.message, first.message);
    assert_eq!(store.get_dispatch(&held, 9).await.unwrap().message.file_attachments, json(&[&file]));
    assert_eq!(attached(&store, &ann, id).await, [json(&[&file])]);
    assert_eq!(tied(&store, &ann, &file).await, first.message);
}

async fn a_rollback_takes_nothing_over(store: TestStore) {
    let ann = store.workspace("ann").await;
    let id = store.create(&ann, "t").await.id;
    let file = store.upload(&ann, Bag::Conversation(id), "a").await;
    let (first, held) = store.started(&ann, attaching(id, "one", &[&file])).await;
    store.queued(&ann, id, "instead", OnBusy::Rollback).await;
    store.settle_turn(&held, &store.settlement("1", events(2, 2))).await.unwrap();
    store.next(&ann, id).await.unwrap();
    assert_eq!(store.texts(&ann, id, None).await, ["instead"]);
    assert_eq!(attached(&store, &ann, id).await, ["[]"]);
    assert_eq!(tied(&store, &ann, &file).await, first.message);
}
