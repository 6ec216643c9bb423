//! Keeping: all of a request's files become visible at once, or none does.

use domain::file::{Bag, FileSource};
use domain::time::from_ms;

use crate::bag::{ROOMY, at_once, ids, stored};
use crate::setup::{TestStore, fails};

on_both!(
    a_kept_file_is_what_was_stored,
    all_are_kept_or_none,
    a_swept_reservation_cannot_be_kept,
    a_bag_is_full_at_its_limit,
    a_bag_never_holds_more_than_its_limit,
    files_are_listed_by_id,
    the_sweep_finds_what_was_left,
);

async fn a_kept_file_is_what_was_stored(store: TestStore) {
    let ann = store.workspace("ann").await;
    let id = store.create(&ann, "t").await.id;
    let bag = Bag::Conversation(id);
    let reserved = store.reserve(&ann, bag, "a.txt").await.unwrap();
    store.clock.advance_ms(5000);
    let kept = store.keep(&ann, bag, reserved.id, 77).await.unwrap();
    assert_eq!((kept.id, kept.bag, kept.message), (reserved.id, bag, None));
    assert_eq!((kept.name.as_str(), kept.mime_type.as_str()), ("a.txt", "text/plain"));
    assert_eq!(kept.digest, stored(kept.id, 77).digest);
    assert_eq!((&kept.storage_key, kept.source), (&reserved.storage_key, FileSource::User));
    assert_eq!((kept.created_at, kept.deleted_at), (store.now(), None));
    assert_eq!(store.get_file(&ann, kept.id).await.unwrap(), kept);
    assert_eq!(store.list_files(&ann, bag, None, 9).await.unwrap(), std::slice::from_ref(&kept));
    // Kept once.
    assert_eq!(fails(store.keep(&ann, bag, kept.id, 78).await), "not found");
    assert_eq!(store.get_file(&ann, kept.id).await.unwrap(), kept);
    store.delete_file(&ann, kept.id, store.now()).await.unwrap();
    assert_eq!(fails(store.delete_file(&ann, kept.id, store.now()).await), "not found");
    assert_eq!(fails(store.get_file(&ann, kept.id).await), "not found");
    assert_eq!(fails(store.keep(&ann, bag, kept.id, 78).await), "not found");
    assert!(store.listed(&ann, bag).await.is_empty());
}

async fn all_are_kept_or_none(store: TestStore) {
    let ann = store.workspace("ann").await;
    let bag = Bag::Conversation(store.create(&ann, "t").await.id);
    let other = Bag::Conversation(store.create(&ann, "t").await.id);
    let (one, two) =
        (store.reserve(&ann, bag, "1").await.unwrap().id, store.reserve(&ann, bag, "2").await.unwrap().id);
    let foreign = store.reserve(&ann, other, "3").await.unwrap().id;
    for bad in [store.new_id(), foreign, one] {
        let files = [stored(one, 1), stored(two, 1), stored(bad, 1)];
        assert_eq!(fails(store.keep_files(&ann, bag, &files, ROOMY, store.now()).await), "not found");
        assert!(store.listed(&ann, bag).await.is_empty());
        assert!(store.listed(&ann, other).await.is_empty());
    }
    let files = [stored(two, 1), stored(one, 1)];
    let full = store.keep_files(&ann, bag, &files, 1, store.now()).await;
    assert_eq!(fails(full), "bag full");
    assert!(store.listed(&ann, bag).await.is_empty());
    let kept = store.keep_files(&ann, bag, &files, 2, store.now()).await.unwrap();
    assert_eq!(ids(&kept), [two, one]);
    assert_eq!(store.listed(&ann, bag).await, ["1", "2"]);
}

async fn a_swept_reservation_cannot_be_kept(store: TestStore) {
    let ann = store.workspace("ann").await;
    let bag = Bag::Conversation(store.create(&ann, "t").await.id);
    let old = store.reserve(&ann, bag, "old").await.unwrap();
    store.clock.advance_ms(10);
    let young = store.reserve(&ann, bag, "young").await.unwrap();
    // Named to the sweep, its bytes may go at any moment.
    let stale = store.system_list_stale(store.now(), 9).await.unwrap();
    assert_eq!(stale.iter().map(|doomed| doomed.id).collect::<Vec<_>>(), [old.id]);
    assert_eq!((stale[0].workspace, &stale[0].storage_key), (ann.workspace, &old.storage_key));
    assert_eq!(fails(store.keep(&ann, bag, old.id, 1).await), "not found");
    assert_eq!(fails(store.get_reserved(&ann, bag, old.id).await), "not found");
    let both = [stored(young.id, 1), stored(old.id, 1)];
    assert_eq!(fails(store.keep_files(&ann, bag, &both, ROOMY, store.now()).await), "not found");
    assert!(store.listed(&ann, bag).await.is_empty());
    // A sweep that died is taken up again.
    assert_eq!(store.system_list_stale(store.now(), 9).await.unwrap(), stale);
    store.system_forget_files(ann.workspace, &[old.id]).await.unwrap();
    assert!(store.system_list_stale(store.now(), 9).await.unwrap().is_empty());
    assert_eq!(fails(store.keep(&ann, bag, old.id, 1).await), "not found");
    assert_eq!(store.keep(&ann, bag, young.id, 1).await.unwrap().name, "young");
    assert_eq!(store.system_known_keys(&[old.storage_key]).await.unwrap(), [false]);
}

async fn a_bag_is_full_at_its_limit(store: TestStore) {
    let ann = store.workspace("ann").await;
    let conversation = Bag::Conversation(store.create(&ann, "t").await.id);
    let expires = from_ms(store.now().as_millisecond() + 60_000);
    for bag in [conversation, Bag::Workspace] {
        let reserve = async |size| {
            let new = [store.promise("a", size, expires)];
            store.reserve_files(&ann, bag, &new, 100, store.now()).await
        };
        let first = reserve(60).await.unwrap().remove(0);
        assert_eq!(fails(reserve(41).await), "bag full");
        let second = reserve(40).await.unwrap().remove(0);
        assert_eq!(second.name, "a-1");
        assert_eq!(fails(reserve(1).await), "bag full");
        let keep = async |id, size| store.keep_files(&ann, bag, &[stored(id, size)], 100, store.now()).await;
        assert_eq!(fails(keep(first.id, 61).await), "bag full");
        keep(first.id, 60).await.unwrap();
        assert_eq!(fails(keep(second.id, 41).await), "bag full");
        keep(second.id, 40).await.unwrap();
        // A deleted file makes room.
        store.delete_file(&ann, first.id, store.now()).await.unwrap();
        assert_eq!(fails(reserve(61).await), "bag full");
        reserve(60).await.unwrap();
    }
}

async fn a_bag_never_holds_more_than_its_limit(store: TestStore) {
    let ann = store.workspace("ann").await;
    let bag = Bag::Conversation(store.create(&ann, "t").await.id);
    let new: Vec<_> = (0..40).map(|n| store.new_file(&format!("f{n}"))).collect();
    store.reserve_files(&ann, bag, &new, 100, store.now()).await.unwrap();
    let (scope, now) = (ann.clone(), store.now());
    let answers = at_once(&store, 40, |store, at| {
        let (scope, file) = (scope.clone(), stored(new[at].id, 10));
        async move { store.keep_files(&scope, bag, &[file], 100, now).await.map(drop) }
    })
    .await;
    let (kept, full): (Vec<_>, Vec<_>) = answers.into_iter().partition(Result::is_ok);
    assert_eq!((kept.len(), full.len()), (10, 30));
    assert!(full.into_iter().all(|answer| fails(answer) == "bag full"));
    assert_eq!(store.listed(&ann, bag).await.len(), 10);

    let bag = Bag::Conversation(store.create(&ann, "t").await.id);
    let expires = from_ms(now.as_millisecond() + 60_000);
    let new: Vec<_> = (0..40).map(|n| store.promise(&format!("f{n}"), 10, expires)).collect();
    let answers = at_once(&store, 40, |store, at| {
        let (scope, file) = (scope.clone(), new[at].clone());
        async move { store.reserve_files(&scope, bag, &[file], 100, now).await.map(drop) }
    })
    .await;
    assert_eq!(answers.iter().filter(|answer| answer.is_ok()).count(), 10);
}

async fn files_are_listed_by_id(store: TestStore) {
    let ann = store.workspace("ann").await;
    let bag = Bag::Conversation(store.create(&ann, "t").await.id);
    for bag in [bag, Bag::Workspace] {
        let mut made = Vec::new();
        for n in 0..5 {
            made.push(store.upload(&ann, bag, &format!("{}", 9 - n)).await);
        }
        store.reserve(&ann, bag, "reserved").await.unwrap();
        store.delete_file(&ann, made.remove(2).id, store.now()).await.unwrap();
        assert_eq!(store.list_files(&ann, bag, None, 2).await.unwrap(), made[..2]);
        assert_eq!(store.list_files(&ann, bag, Some(made[1].id), 9).await.unwrap(), made[2..]);
        assert!(store.list_files(&ann, bag, Some(made[3].id), 9).await.unwrap().is_empty());
    }
}

async fn the_sweep_finds_what_was_left(store: TestStore) {
    let (ann, eve) = (store.workspace("ann").await, store.workspace("eve").await);
    let start = store.now();
    let later = |ms| from_ms(start.as_millisecond() + ms);
    let execution = Bag::Execution(store.new_id());
    let plain = store.reserve(&ann, Bag::Workspace, "plain").await.unwrap();
    let there = store.reserve(&eve, execution, "there").await.unwrap();
    let promised = store.promise("promised", 1, later(5000));
    store.reserve_files(&eve, Bag::Workspace, std::slice::from_ref(&promised), ROOMY, start).await.unwrap();
    store.upload(&ann, Bag::Workspace, "kept").await;
    let stale = async |before, limit| {
        let found = store.system_list_stale(before, limit).await.unwrap();
        let mut found: Vec<_> = found.into_iter().map(|doomed| (doomed.workspace, doomed.id)).collect();
        found.sort();
        found
    };
    assert!(stale(start, 9).await.is_empty());
    let mut both = vec![(ann.workspace, plain.id), (eve.workspace, there.id)];
    both.sort();
    assert_eq!(stale(later(1), 1).await.len(), 1);
    assert_eq!(stale(later(5000), 9).await, both);
    both.push((eve.workspace, promised.id));
    both.sort();
    assert_eq!(stale(later(5001), 9).await, both);
    // Nobody forgets another workspace's.
    store.system_forget_files(ann.workspace, &[there.id, promised.id]).await.unwrap();
    assert_eq!(stale(later(5001), 9).await, both);
    for (workspace, id) in both {
        store.system_forget_files(workspace, &[id]).await.unwrap();
    }
    assert!(stale(later(5001), 9).await.is_empty());
    assert_eq!(store.listed(&ann, Bag::Workspace).await, ["kept"]);
}
