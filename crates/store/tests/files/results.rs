//! What a sandbox sends back: once, while its run is under way, and never missing in a settled message.

use domain::file::{Bag, FileSource};
use domain::run::RunStatus;
use store::turns::{Held, Settlement};

use crate::bag::{ROOMY, at_once, ids, stored};
use crate::play::{LEASE, OTHER, events, turn};
use crate::setup::{TestStore, fails};

on_both!(
    results_come_into_the_bag_of_the_run,
    one_of_a_hundred_uses_of_a_token_wins,
    a_refused_upload_leaves_the_token,
    after_the_end_nothing_comes_back,
    a_run_is_not_settled_before_its_files_are_in_its_log,
);

async fn results_come_into_the_bag_of_the_run(store: TestStore) {
    let ann = store.workspace("ann").await;
    let (run, held) = store.started(&ann, turn(None, "go")).await;
    let bag = Bag::Conversation(run.conversation.unwrap());
    assert!(store.list_results(&held).await.unwrap().is_empty());
    let files = store.sent_back(&ann, bag, &["b", "a"]).await;
    assert!(store.list_results(&held).await.unwrap().is_empty());
    let kept = store.keep_results(&held, &files, ROOMY, store.now()).await.unwrap();
    assert_eq!(ids(&kept), [files[0].id, files[1].id]);
    assert!(kept.iter().all(|file| file.source == FileSource::Sandbox && file.bag == bag));
    assert_eq!(store.list_results(&held).await.unwrap(), kept);
    assert_eq!(store.list_files(&ann, bag, None, 9).await.unwrap(), kept);
    // A file of the user's is none of the run's.
    store.upload(&ann, bag, "mine").await;
    store.delete_file(&ann, kept[0].id, store.now()).await.unwrap();
    assert_eq!(store.list_results(&held).await.unwrap(), kept[1..]);
    store.settle_turn(&held, &store.settlement("done", events(2, 2))).await.unwrap();
    assert_eq!(fails(store.list_results(&held).await), "lost");
}

async fn one_of_a_hundred_uses_of_a_token_wins(store: TestStore) {
    let ann = store.workspace("ann").await;
    let (run, held) = store.started(&ann, turn(None, "go")).await;
    let bag = Bag::Conversation(run.conversation.unwrap());
    let mut sent = Vec::new();
    for _ in 0..100 {
        sent.push(store.sent_back(&ann, bag, &["a", "b"]).await);
    }
    let now = store.now();
    let answers = at_once(&store, 100, |store, at| {
        let files = sent[at].clone();
        async move { store.keep_results(&held, &files, ROOMY, now).await }
    })
    .await;
    let (won, lost): (Vec<_>, Vec<_>) = answers.into_iter().partition(Result::is_ok);
    assert_eq!((won.len(), lost.len()), (1, 99));
    assert!(lost.into_iter().all(|answer| fails(answer) == "lost"));
    let won: Vec<_> = won.into_iter().flat_map(Result::unwrap).collect();
    assert_eq!(store.list_results(&held).await.unwrap(), won);
    assert_eq!(store.listed(&ann, bag).await.len(), 2);
}

async fn a_refused_upload_leaves_the_token(store: TestStore) {
    let ann = store.workspace("ann").await;
    let (run, held) = store.started(&ann, turn(None, "go")).await;
    let bag = Bag::Conversation(run.conversation.unwrap());
    let files = store.sent_back(&ann, bag, &["a", "b"]).await;
    let missing = [files[0].clone(), stored(store.new_id(), 1)];
    assert_eq!(fails(store.keep_results(&held, &missing, ROOMY, store.now()).await), "not found");
    assert_eq!(fails(store.keep_results(&held, &files, 5, store.now()).await), "bag full");
    assert!(store.listed(&ann, bag).await.is_empty());
    // Another conversation's reservation is not this run's to keep.
    let other = Bag::Conversation(store.create(&ann, "t").await.id);
    let foreign = store.sent_back(&ann, other, &["c"]).await;
    assert_eq!(fails(store.keep_results(&held, &foreign, ROOMY, store.now()).await), "not found");
    store.keep_results(&held, &files, 6, store.now()).await.unwrap();
    assert_eq!(fails(store.keep_results(&held, &[], ROOMY, store.now()).await), "lost");
}

async fn after_the_end_nothing_comes_back(store: TestStore) {
    let ann = store.workspace("ann").await;
    for end in ["cancelled", "settled", "taken over", "deleted", "another workspace's"] {
        let (run, held) = store.started(&ann, turn(None, "go")).await;
        let id = run.conversation.unwrap();
        let bag = Bag::Conversation(id);
        let files = store.sent_back(&ann, bag, &["a"]).await;
        let mut writer = held;
        match end {
            "cancelled" => drop(store.request_cancel(&ann, run.id, store.now()).await.unwrap()),
            "settled" => {
                drop(store.settle_turn(&held, &store.settlement("x", events(2, 2))).await.unwrap());
            }
            "taken over" => drop(store.take_over(&ann, id, OTHER, LEASE).await.unwrap()),
            "deleted" => store.delete_conversation(&ann, id, None, store.write().now).await.unwrap(),
            _ => writer = Held { workspace: store.workspace("eve").await.workspace, ..held },
        }
        let kept = store.keep_results(&writer, &files, ROOMY, store.now()).await;
        assert_eq!(fails(kept), "lost", "{end}");
        if end != "deleted" {
            assert!(store.listed(&ann, bag).await.is_empty(), "{end}");
        }
    }
    // The taker may.
    let (run, _) = store.started(&ann, turn(None, "go")).await;
    let id = run.conversation.unwrap();
    let taken = store.take_over(&ann, id, OTHER, LEASE).await.unwrap().unwrap();
    let files = store.sent_back(&ann, Bag::Conversation(id), &["a"]).await;
    store.keep_results(&taken, &files, ROOMY, store.now()).await.unwrap();
}

async fn a_run_is_not_settled_before_its_files_are_in_its_log(store: TestStore) {
    let ann = store.workspace("ann").await;
    for status in [RunStatus::Succeeded, RunStatus::Cancelled, RunStatus::Interrupted] {
        let (run, held) = store.started(&ann, turn(None, "go")).await;
        let id = run.conversation.unwrap();
        let files = store.sent_back(&ann, Bag::Conversation(id), &["a"]).await;
        store.keep_results(&held, &files, ROOMY, store.now()).await.unwrap();
        let blind = Settlement { status, files_logged: false, ..store.settlement("done", events(2, 2)) };
        assert_eq!(fails(store.settle_turn(&held, &blind).await), "files waiting");
        let waiting = store.get_run(&ann, run.id).await.unwrap();
        assert_eq!((waiting.status, waiting.last_event), (RunStatus::Running, 1));
        assert_eq!(store.texts(&ann, id, None).await, ["go"]);
        let other = Held { lease: domain::run::Lease { fence: 99, ..held.lease }, ..held };
        assert_eq!(fails(store.settle_turn(&other, &blind).await), "lost");
        store.append_events(&held, &events(2, 2)).await.unwrap();
        let settlement = Settlement { status, ..store.settlement("done", events(3, 3)) };
        assert_eq!(store.settle_turn(&held, &settlement).await.unwrap().run.status, status);
        assert_eq!(fails(store.settle_turn(&held, &blind).await), "lost");
    }
    // Without files there is nothing to wait for.
    let (_, held) = store.started(&ann, turn(None, "go")).await;
    let blind = Settlement { files_logged: false, ..store.settlement("done", events(2, 2)) };
    store.settle_turn(&held, &blind).await.unwrap();
}
