//! Names: unique in their bag, whatever comes at once.

use domain::file::Bag;
use domain::scope::Scope;
use domain::time::from_ms;
use store::files::NewFile;

use crate::bag::{ROOMY, at_once};
use crate::setup::{TestStore, fails};

on_both!(
    a_reservation_takes_a_name_and_nobody_sees_it,
    two_hundred_uploads_of_one_name_have_two_hundred_names,
    twins_in_case_are_one_name,
    a_deleted_name_stays_taken_until_it_is_forgotten,
    bags_have_names_of_their_own,
    a_promise_comes_back_as_it_was_made,
    a_promise_is_claimed_once_and_in_time,
    a_bag_that_is_not_there_takes_nothing,
    a_file_is_found_by_its_name_among_many,
);

async fn a_reservation_takes_a_name_and_nobody_sees_it(store: TestStore) {
    let ann = store.workspace("ann").await;
    let id = store.create(&ann, "t").await.id;
    let bag = Bag::Conversation(id);
    let new = [store.new_file("a.txt"), store.new_file("a.txt"), store.new_file("b.tar.gz")];
    let reserved = store.reserve_files(&ann, bag, &new, 0, store.now()).await.unwrap();
    let names: Vec<&str> = reserved.iter().map(|file| file.name.as_str()).collect();
    assert_eq!(names, ["a.txt", "a-1.txt", "b.tar.gz"]);
    for (asked, got) in new.iter().zip(&reserved) {
        assert_eq!((asked.id, asked.source, &asked.promised), (got.id, got.source, &got.promised));
        let key = format!("assistant-chat-bag/{}/{id}/{}", ann.workspace, got.name);
        assert_eq!(got.storage_key, key);
        assert_eq!(store.system_known_keys(&[key, "other".into()]).await.unwrap(), [true, false]);
        assert_eq!(&store.get_reserved(&ann, bag, got.id).await.unwrap(), got);
        assert_eq!(fails(store.get_file(&ann, got.id).await), "not found");
        assert_eq!(fails(store.delete_file(&ann, got.id, store.now()).await), "not found");
    }
    assert!(store.listed(&ann, bag).await.is_empty());
    assert_eq!(fails(store.get_reserved(&ann, Bag::Workspace, new[0].id).await), "not found");
    assert_eq!(store.system_known_keys(&[]).await.unwrap(), Vec::<bool>::new());
}

async fn two_hundred_uploads_of_one_name_have_two_hundred_names(store: TestStore) {
    let ann = store.workspace("ann").await;
    let bags = [Bag::Conversation(store.create(&ann, "t").await.id), Bag::Workspace];
    for bag in bags {
        let new: Vec<NewFile> = (0..200).map(|_| store.new_file("report.pdf")).collect();
        let (now, scope) = (store.now(), ann.clone());
        let mut given: Vec<String> = at_once(&store, 200, |store, at| {
            let (scope, new) = (scope.clone(), new[at].clone());
            async move { store.reserve_files(&scope, bag, &[new], ROOMY, now).await.unwrap().remove(0).name }
        })
        .await;
        let mut wanted: Vec<String> = (1..200).map(|n| format!("report-{n}.pdf")).collect();
        wanted.push("report.pdf".into());
        given.sort();
        wanted.sort();
        assert_eq!(given, wanted);
    }
}

async fn twins_in_case_are_one_name(store: TestStore) {
    let ann = store.workspace("ann").await;
    let bag = Bag::Conversation(store.create(&ann, "t").await.id);
    let mut given = Vec::new();
    for name in ["Straße.TXT", "STRASSE.txt", "straße-1.txt", "caf\u{e9}", "CAFE\u{301}"] {
        given.push(store.upload(&ann, bag, name).await.name);
    }
    assert_eq!(given, ["Straße.TXT", "STRASSE-1.txt", "straße-1-1.txt", "caf\u{e9}", "CAFE\u{301}-1"]);
}

async fn a_deleted_name_stays_taken_until_it_is_forgotten(store: TestStore) {
    let ann = store.workspace("ann").await;
    let bag = Bag::Conversation(store.create(&ann, "t").await.id);
    let first = store.upload(&ann, bag, "a").await;
    store.delete_file(&ann, first.id, store.now()).await.unwrap();
    let second = store.upload(&ann, bag, "a").await;
    assert_eq!(second.name, "a-1");
    // What is visible is not forgotten.
    store.system_forget_files(ann.workspace, &[first.id, second.id]).await.unwrap();
    assert_eq!(store.listed(&ann, bag).await, ["a-1"]);
    assert_eq!(store.upload(&ann, bag, "a").await.name, "a");
    assert_eq!(store.upload(&ann, bag, "a").await.name, "a-2");
}

async fn bags_have_names_of_their_own(store: TestStore) {
    let (ann, eve) = (store.workspace("ann").await, store.workspace("eve").await);
    let bag = Bag::Conversation(store.create(&ann, "t").await.id);
    let other = Bag::Conversation(store.create(&ann, "t").await.id);
    let execution = Bag::Execution(store.new_id());
    for (scope, bag) in
        [(&ann, bag), (&ann, other), (&ann, execution), (&ann, Bag::Workspace), (&eve, Bag::Workspace)]
    {
        assert_eq!(store.reserve(scope, bag, "a").await.unwrap().name, "a");
        assert_eq!(store.reserve(scope, bag, "a").await.unwrap().name, "a-1");
    }
}

async fn a_promise_comes_back_as_it_was_made(store: TestStore) {
    let ann = store.workspace("ann").await;
    let bag = Bag::Conversation(store.create(&ann, "t").await.id);
    let new = store.promise("big", 1 << 33, from_ms(1_790_000_000_123));
    let reserved =
        store.reserve_files(&ann, bag, std::slice::from_ref(&new), ROOMY, store.now()).await.unwrap();
    assert_eq!(reserved[0].promised, new.promised);
    assert_eq!(store.get_reserved(&ann, bag, new.id).await.unwrap(), reserved[0]);
    store.keep(&ann, bag, new.id, 7).await.unwrap();
    assert_eq!(fails(store.get_reserved(&ann, bag, new.id).await), "not found");
}

async fn a_promise_is_claimed_once_and_in_time(store: TestStore) {
    let ann = store.workspace("ann").await;
    let bag = Bag::Conversation(store.create(&ann, "t").await.id);
    let expires = from_ms(store.now().as_millisecond() + 1000);
    let (new, late, plain) =
        (store.promise("a", 6, expires), store.promise("b", 6, expires), store.new_file("c"));
    let all = [new.clone(), late.clone(), plain.clone()];
    let reserved = store.reserve_files(&ann, bag, &all, ROOMY, store.now()).await.unwrap();
    let promised = async |id| store.is_promised(ann.workspace, id).await.unwrap();
    assert_eq!((promised(new.id).await, promised(plain.id).await), (true, false));
    let (scope, now, id) = (ann.clone(), store.now(), new.id);
    let claims = at_once(&store, 20, |store, _| {
        let scope = scope.clone();
        async move { store.claim_promised(&scope, bag, id, now).await }
    })
    .await;
    let won: Vec<_> = claims.into_iter().filter_map(Result::ok).collect();
    assert_eq!(won, reserved[..1]);
    assert_eq!((promised(new.id).await, promised(late.id).await), (false, true));
    assert_eq!(fails(store.claim_promised(&ann, bag, plain.id, store.now()).await), "not found");
    assert_eq!(fails(store.claim_promised(&ann, bag, late.id, expires).await), "not found");
    assert_eq!(fails(store.claim_promised(&ann, Bag::Workspace, late.id, now).await), "not found");
    // Its room is taken as before, and it is kept like any other.
    let more = store.promise("d", 5, expires);
    let full = store.reserve_files(&ann, bag, &[more], 16, store.now()).await;
    assert_eq!(fails(full), "bag full");
    assert_eq!(store.keep(&ann, bag, new.id, 6).await.unwrap().name, "a");
    assert_eq!(fails(store.claim_promised(&ann, bag, new.id, now).await), "not found");
}

async fn a_bag_that_is_not_there_takes_nothing(store: TestStore) {
    let (ann, eve) = (store.workspace("ann").await, store.workspace("eve").await);
    let id = store.create(&ann, "t").await.id;
    let mallory = crate::setup::member(&ann, "mallory");
    let bag = Bag::Conversation(id);
    for (scope, bag) in [(&ann, Bag::Conversation(store.new_id())), (&mallory, bag), (&eve, bag)] {
        assert_eq!(fails(store.reserve(scope, bag, "a").await), "not found");
    }
    let reserved = store.reserve(&ann, bag, "a").await.unwrap();
    for scope in [&mallory, &eve] {
        assert_eq!(fails(store.get_reserved(scope, bag, reserved.id).await), "not found");
        assert_eq!(fails(store.keep(scope, bag, reserved.id, 1).await), "not found");
        assert_eq!(fails(store.list_files(scope, bag, None, 9).await), "not found");
    }
    // An execution that is not there has nothing to keep or list.
    let bag = Bag::Execution(store.new_id());
    let reserved = store.reserve(&ann, bag, "a").await.unwrap();
    assert_eq!(fails(store.keep(&ann, bag, reserved.id, 1).await), "not found");
    assert_eq!(fails(store.list_files(&ann, bag, None, 9).await), "not found");
    store.remove_workspace(&ann, true, store.now()).await.unwrap();
    for bag in [Bag::Workspace, bag, Bag::Conversation(id)] {
        assert_eq!(fails(store.reserve(&ann, bag, "b").await), "not found");
    }
}

async fn a_file_is_found_by_its_name_among_many(store: TestStore) {
    let ann = store.workspace("ann").await;
    let bag = Bag::Conversation(store.create(&ann, "t").await.id);
    for n in 0..250 {
        store.upload(&ann, bag, &format!("File-{n}.txt")).await;
    }
    let found = async |scope: &Scope, name: &str| {
        store.find_file(scope, bag, name).await.unwrap().map(|file| file.name)
    };
    assert_eq!(found(&ann, "File-249.txt").await.as_deref(), Some("File-249.txt"));
    assert_eq!(found(&ann, "FILE-249.TXT").await.as_deref(), Some("File-249.txt"));
    for none in ["File-250.txt", "", "\0"] {
        assert_eq!(found(&ann, none).await, None);
    }
    store.reserve(&ann, bag, "reserved").await.unwrap();
    assert_eq!(found(&ann, "reserved").await, None);
    let file = store.find_file(&ann, bag, "File-0.txt").await.unwrap().unwrap();
    store.delete_file(&ann, file.id, store.now()).await.unwrap();
    assert_eq!(found(&ann, "File-0.txt").await, None);
    // Another's chat is not there, nor is the same name in another bag.
    assert_eq!(found(&crate::setup::member(&ann, "bob"), "File-1.txt").await, None);
    assert_eq!(store.find_file(&ann, Bag::Workspace, "File-1.txt").await.unwrap(), None);
    let other = store.upload(&ann, Bag::Workspace, "File-1.txt").await;
    assert_eq!(store.find_file(&ann, Bag::Workspace, "file-1.txt").await.unwrap().unwrap().id, other.id);
}
