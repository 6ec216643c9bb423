//! Soft deletes: a conversation goes with its files, and comes back with just those.

use domain::file::Bag;
use domain::time::from_ms;

use crate::setup::{TestStore, fails};

on_both!(
    a_restore_brings_back_what_went_with_the_delete,
    an_upload_under_way_ends_with_its_conversation,
    a_removed_workspace_takes_every_file_along,
    the_sweep_of_deleted_files_leaves_conversations_whole,
);

async fn a_restore_brings_back_what_went_with_the_delete(store: TestStore) {
    let ann = store.workspace("ann").await;
    let id = store.create(&ann, "t").await.id;
    let bag = Bag::Conversation(id);
    let before = store.upload(&ann, bag, "before").await;
    let kept = store.upload(&ann, bag, "kept").await;
    store.delete_file(&ann, before.id, store.now()).await.unwrap();
    store.delete_conversation(&ann, id, None, store.write().now).await.unwrap();
    assert_eq!(fails(store.list_files(&ann, bag, None, 9).await), "not found");
    assert_eq!(fails(store.get_file(&ann, kept.id).await), "not found");
    assert_eq!(fails(store.delete_file(&ann, kept.id, store.now()).await), "not found");
    store.restore_conversation(&ann, id, store.write().now).await.unwrap();
    assert_eq!(store.list_files(&ann, bag, None, 9).await.unwrap(), [kept]);
}

async fn an_upload_under_way_ends_with_its_conversation(store: TestStore) {
    let ann = store.workspace("ann").await;
    let id = store.create(&ann, "t").await.id;
    let bag = Bag::Conversation(id);
    let reserved = store.reserve(&ann, bag, "a").await.unwrap();
    store.delete_conversation(&ann, id, None, store.write().now).await.unwrap();
    assert_eq!(fails(store.keep(&ann, bag, reserved.id, 1).await), "not found");
    assert_eq!(fails(store.reserve(&ann, bag, "b").await), "not found");
    // Also once it is back: whoever sent it was told that it failed.
    store.restore_conversation(&ann, id, store.write().now).await.unwrap();
    assert_eq!(fails(store.keep(&ann, bag, reserved.id, 1).await), "not found");
    assert_eq!(fails(store.get_reserved(&ann, bag, reserved.id).await), "not found");
    assert!(store.listed(&ann, bag).await.is_empty());
    let stale = store.system_list_stale(store.now(), 9).await.unwrap();
    assert_eq!(stale.iter().map(|doomed| doomed.id).collect::<Vec<_>>(), [reserved.id]);
}

async fn a_removed_workspace_takes_every_file_along(store: TestStore) {
    let (ann, eve) = (store.workspace("ann").await, store.workspace("eve").await);
    let bag = Bag::Conversation(store.create(&ann, "t").await.id);
    let (execution, _) = store.executed(&ann, "go").await;
    let mut files = Vec::new();
    for bag in [bag, Bag::Workspace, Bag::Execution(execution)] {
        files.push(store.upload(&ann, bag, "a").await);
    }
    let reserved = store.reserve(&ann, Bag::Workspace, "r").await.unwrap();
    let other = store.upload(&eve, Bag::Workspace, "a").await;
    store.remove_workspace(&ann, true, store.write().now).await.unwrap();
    for file in &files {
        assert_eq!(fails(store.get_file(&ann, file.id).await), "not found");
    }
    assert_eq!(fails(store.keep(&ann, Bag::Workspace, reserved.id, 1).await), "not found");
    assert_eq!(store.list_files(&eve, Bag::Workspace, None, 9).await.unwrap(), [other]);
    // Those outside conversations go by themselves, the others with theirs.
    let later = from_ms(store.now().as_millisecond() + 1);
    let doomed = store.system_list_deleted_files(later, 9).await.unwrap();
    let mut doomed: Vec<_> = doomed.into_iter().map(|doomed| doomed.id).collect();
    doomed.sort();
    assert_eq!(doomed, [files[1].id, files[2].id]);
    let purgeable = store.system_list_purgeable(later, 9).await.unwrap();
    assert_eq!(
        purgeable.iter().map(|found| Bag::Conversation(found.conversation)).collect::<Vec<_>>(),
        [bag]
    );
}

async fn the_sweep_of_deleted_files_leaves_conversations_whole(store: TestStore) {
    let ann = store.workspace("ann").await;
    let (live, gone) = (store.create(&ann, "t").await.id, store.create(&ann, "t").await.id);
    let mut deleted = Vec::new();
    for bag in [Bag::Conversation(live), Bag::Workspace, Bag::Conversation(gone)] {
        let file = store.upload(&ann, bag, "a").await;
        store.upload(&ann, bag, "stays").await;
        store.delete_file(&ann, file.id, store.write().now).await.unwrap();
        deleted.push(file);
    }
    store.delete_conversation(&ann, gone, None, store.write().now).await.unwrap();
    let found = async |before, limit| store.system_list_deleted_files(before, limit).await.unwrap();
    let now = from_ms(store.now().as_millisecond() + 1);
    let ids: Vec<_> = found(now, 9).await.into_iter().map(|doomed| doomed.id).collect();
    assert_eq!(ids, [deleted[0].id, deleted[1].id]);
    let first = found(now, 1).await;
    assert_eq!((first.len(), &first[0].storage_key), (1, &deleted[0].storage_key));
    assert_eq!(first[0].workspace, ann.workspace);
    store.system_forget_files(ann.workspace, &ids).await.unwrap();
    assert!(found(now, 9).await.is_empty());
    assert_eq!(store.upload(&ann, Bag::Conversation(live), "a").await.name, "a");
}
