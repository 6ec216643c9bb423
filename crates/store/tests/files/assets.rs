//! What a run is given: the files that were there when it started, as far as they still are.

use domain::file::Bag;
use domain::run::OnBusy;

use crate::bag::{ROOMY, names};
use crate::play::{events, turn};
use crate::setup::{TestStore, fails};

on_both!(
    a_run_keeps_the_files_it_started_with,
    a_queued_run_is_given_what_is_there_when_it_starts,
    results_are_given_to_the_next_run,
    a_deleted_conversation_gives_nothing,
);

async fn a_run_keeps_the_files_it_started_with(store: TestStore) {
    let ann = store.workspace("ann").await;
    let id = store.create(&ann, "t").await.id;
    let bag = Bag::Conversation(id);
    // In the order of their bytes, not of a language.
    for name in ["b", "a\u{308}", "Z", "a-1", "\u{1d306}", "\u{fb01}", "gone"] {
        store.upload(&ann, bag, name).await;
    }
    store.upload(&ann, Bag::Workspace, "workspace's").await;
    store.reserve(&ann, bag, "reserved").await.unwrap();
    let gone = store.list_files(&ann, bag, None, 9).await.unwrap().pop().unwrap();
    let (run, held) = store.started(&ann, turn(Some(id), "go")).await;
    store.upload(&ann, bag, "later").await;
    let all = ["Z", "a-1", "a\u{308}", "b", "gone", "\u{fb01}", "\u{1d306}"];
    let dispatch = store.get_dispatch(&held, 20).await.unwrap();
    assert_eq!(names(&dispatch.files), all);
    assert_eq!(store.list_run_assets(ann.workspace, run.id).await.unwrap(), dispatch.files);
    store.delete_file(&ann, gone.id, store.now()).await.unwrap();
    let left = ["Z", "a-1", "a\u{308}", "b", "\u{fb01}", "\u{1d306}"];
    assert_eq!(names(&store.get_dispatch(&held, 20).await.unwrap().files), left);
    store.settle_turn(&held, &store.settlement("done", events(2, 2))).await.unwrap();
    // Also when it is over, and nobody else's.
    assert_eq!(names(&store.list_run_assets(ann.workspace, run.id).await.unwrap()), left);
    let eve = store.workspace("eve").await;
    assert_eq!(fails(store.list_run_assets(eve.workspace, run.id).await), "not found");
    assert_eq!(fails(store.list_run_assets(ann.workspace, store.new_id()).await), "not found");
    let (run, held) = store.started(&ann, turn(None, "new")).await;
    assert!(store.get_dispatch(&held, 20).await.unwrap().files.is_empty());
    assert!(store.list_run_assets(ann.workspace, run.id).await.unwrap().is_empty());
}

async fn a_queued_run_is_given_what_is_there_when_it_starts(store: TestStore) {
    let ann = store.workspace("ann").await;
    let (run, held) = store.started(&ann, turn(None, "one")).await;
    let id = run.conversation.unwrap();
    let bag = Bag::Conversation(id);
    let gone = store.upload(&ann, bag, "gone").await;
    let queued = store.queued(&ann, id, "two", OnBusy::Enqueue).await;
    assert!(store.list_run_assets(ann.workspace, queued.id).await.unwrap().is_empty());
    store.upload(&ann, bag, "there").await;
    store.delete_file(&ann, gone.id, store.now()).await.unwrap();
    store.settle_turn(&held, &store.settlement("1", events(2, 2))).await.unwrap();
    let (_, held) = store.next(&ann, id).await.unwrap();
    assert_eq!(names(&store.get_dispatch(&held, 20).await.unwrap().files), ["there"]);
}

async fn results_are_given_to_the_next_run(store: TestStore) {
    let ann = store.workspace("ann").await;
    let (run, held) = store.started(&ann, turn(None, "one")).await;
    let id = run.conversation.unwrap();
    let files = store.sent_back(&ann, Bag::Conversation(id), &["made"]).await;
    store.keep_results(&held, &files, ROOMY, store.now()).await.unwrap();
    assert!(store.get_dispatch(&held, 20).await.unwrap().files.is_empty());
    store.settle_turn(&held, &store.settlement("1", events(2, 2))).await.unwrap();
    let (_, held) = store.started(&ann, turn(Some(id), "two")).await;
    assert_eq!(names(&store.get_dispatch(&held, 20).await.unwrap().files), ["made"]);
}

async fn a_deleted_conversation_gives_nothing(store: TestStore) {
    let ann = store.workspace("ann").await;
    let id = store.create(&ann, "t").await.id;
    store.upload(&ann, Bag::Conversation(id), "a").await;
    let (run, _) = store.started(&ann, turn(Some(id), "go")).await;
    store.delete_conversation(&ann, id, None, store.write().now).await.unwrap();
    assert_eq!(fails(store.list_run_assets(ann.workspace, run.id).await), "not found");
    store.restore_conversation(&ann, id, store.write().now).await.unwrap();
    assert_eq!(names(&store.list_run_assets(ann.workspace, run.id).await.unwrap()), ["a"]);
}
