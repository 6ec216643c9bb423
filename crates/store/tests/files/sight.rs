//! Who sees which file: exactly those who see its bag, on every path.

use domain::conversation::Visibility;
use domain::file::Bag;
use domain::scope::{Role, Scope};

use crate::setup::{TestStore, fails, member};

on_both!(a_file_is_seen_by_who_sees_its_bag, a_file_of_the_workspace_is_everyones);

async fn a_file_is_seen_by_who_sees_its_bag(store: TestStore) {
    let ann = store.workspace("ann").await;
    let (bob, carol) = (member(&ann, "bob"), member(&ann, "carol"));
    let service = Scope { role: Role::Service, user: "key:1".into(), administers: false, ..ann.clone() };
    let eve = store.workspace("eve").await;
    let stranger = Scope { workspace: eve.workspace, ..bob.clone() };
    let private = store.create(&bob, "private").await.id;
    let shared = store.create_shared(&bob, "shared").await.id;
    let deleted = store.create_shared(&bob, "deleted").await.id;
    let (execution, _) = store.executed(&bob, "go").await;
    let bags = [
        // Who sees it of: bob, carol, ann, the service, eve, a bob elsewhere.
        (Bag::Conversation(private), [true, false, true, true, false, false]),
        (Bag::Conversation(shared), [true, true, true, true, false, false]),
        (Bag::Execution(execution), [true, false, true, true, false, false]),
        (Bag::Workspace, [true, true, true, true, false, false]),
        (Bag::Conversation(deleted), [false; 6]),
    ];
    for (bag, sees) in bags {
        let file = store.upload(&bob, bag, "f").await;
        if bag == Bag::Conversation(deleted) {
            store.delete_conversation(&bob, deleted, None, store.write().now).await.unwrap();
        }
        for (scope, sees) in [&bob, &carol, &ann, &service, &eve, &stranger].into_iter().zip(sees) {
            let who = format!("{} of {bag:?}", scope.user);
            let found = store.get_file(scope, file.id).await;
            assert_eq!(found.map(|found| found.id).ok(), sees.then_some(file.id), "{who}");
            let listed = store.list_files(scope, bag, None, 9).await.unwrap_or_default();
            assert_eq!(listed.iter().any(|listed| listed.id == file.id), sees, "{who}");
            if !sees {
                assert_eq!(fails(store.delete_file(scope, file.id, store.now()).await), "not found");
            }
        }
        if sees[1] {
            store.delete_file(&carol, file.id, store.now()).await.unwrap();
            assert_eq!(fails(store.get_file(&bob, file.id).await), "not found");
        }
    }
    // What is no longer shared is no longer seen.
    let file = store.upload(&carol, Bag::Conversation(shared), "g").await;
    store.patch(&bob, shared, |patch| patch.visibility = Some(Visibility::Private)).await.unwrap();
    assert_eq!(fails(store.get_file(&carol, file.id).await), "not found");
    assert_eq!(store.get_file(&bob, file.id).await.unwrap(), file);
}

async fn a_file_of_the_workspace_is_everyones(store: TestStore) {
    let ann = store.workspace("ann").await;
    let (bob, carol) = (member(&ann, "bob"), member(&ann, "carol"));
    let file = store.upload(&bob, Bag::Workspace, "a").await;
    assert_eq!(file.storage_key, format!("workspace-files/{}/a", ann.workspace));
    // A conversation's delete does not reach it.
    let id = store.create(&bob, "t").await.id;
    store.delete_conversation(&bob, id, None, store.write().now).await.unwrap();
    assert_eq!(store.listed(&carol, Bag::Workspace).await, ["a"]);
    store.delete_file(&carol, file.id, store.now()).await.unwrap();
    assert!(store.listed(&bob, Bag::Workspace).await.is_empty());
}
