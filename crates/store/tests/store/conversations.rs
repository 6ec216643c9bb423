//! Creating, reading, changing, deleting and restoring a conversation, and who may.

use domain::conversation::{
    ConversationFilter, ConversationPatch, ConversationQuery, Kind, Mode, NewConversation, Source,
    Visibility, Write,
};
use domain::message::Window;
use domain::scope::{Role, Scope};
use domain::tab::Tab;
use uuid::Uuid;

use crate::setup::{TestStore, fails, member, newest};

on_both!(
    a_conversation_comes_back_as_it_was_made,
    an_id_is_taken_once_per_workspace,
    nothing_is_made_in_a_workspace_that_is_not_there,
    the_workspace_says_who_sees_new_ones,
    others_see_what_is_shared_and_nothing_else,
    every_verb_answers_not_found_for_what_is_not_visible,
    members_change_what_is_shared_but_not_who_sees_it,
    a_change_is_applied_whole_or_not_at_all,
    a_change_on_an_old_version_is_stale,
    every_write_moves_time_and_version,
    parallel_changes_are_all_counted,
    deleting_hides_and_restoring_brings_back,
    a_restore_brings_back_the_files_that_went_with_the_delete,
    only_owner_and_admin_delete_and_restore,
);

fn everything() -> NewConversation {
    NewConversation {
        id: Some(Uuid::from_u128(77)),
        source: Some(Source::Extension),
        patch: ConversationPatch {
            title: Some(Some("Ünïcode \u{1F9F5} \u{10FFFF}".into())),
            mode: Some(Some(Mode::Ask)),
            page_path: Some(Some("/a?b=c".into())),
            // To the byte: key order, spacing, number spelling, escapes.
            context: Some(Some(r#"{ "b":1.0, "a" : [1e2,"\u00e9"] }"#.into())),
            tabs: Some(vec![Tab {
                key: "home".into(),
                destination_id: "home".into(),
                sub_path: Some("x/y".into()),
            }]),
            active_tab_key: Some(Some("home".into())),
            model: Some(Some("m-1".into())),
            agent_id: Some(Some("agent".into())),
            visibility: Some(Visibility::Workspace),
        },
    }
}

async fn a_conversation_comes_back_as_it_was_made(store: TestStore) {
    let ann = store.workspace("ann").await;
    let made = store.make(&ann, everything()).await.unwrap();
    assert_eq!(made.id, Uuid::from_u128(77));
    assert_eq!((made.workspace, made.org.as_str(), made.owner.as_str()), (ann.workspace, "acme", "ann"));
    assert_eq!((made.kind, made.version), (Kind::ModelChat, 1));
    assert_eq!((made.created_at, made.updated_at), (store.now(), store.now()));
    let read = store.get_thread(&ann, made.id, store::ThreadRead::default()).await.unwrap();
    assert_eq!(read.conversation, made);
    assert!(read.messages.is_empty() && !read.has_before);

    // A list leaves the context out unless asked.
    let with = ConversationQuery { with_context: true, ..newest() };
    assert_eq!(store.list_conversations(&ann, &with).await.unwrap().items, std::slice::from_ref(&made));
    let mut without = made.clone();
    without.context = None;
    assert_eq!(store.list_conversations(&ann, &newest()).await.unwrap().items, [without]);

    let plain = store.make(&ann, NewConversation::default()).await.unwrap();
    assert_eq!(
        (plain.kind, plain.mode, plain.visibility),
        (Kind::AssistantSandbox, None, Visibility::Private)
    );
    assert_eq!(
        store.get_thread(&ann, plain.id, store::ThreadRead::default()).await.unwrap().conversation,
        plain
    );
}

async fn an_id_is_taken_once_per_workspace(store: TestStore) {
    let ann = store.workspace("ann").await;
    let elsewhere = store.workspace("ann").await;
    let made = store.make(&ann, everything()).await.unwrap();
    assert_eq!(fails(store.make(&ann, everything()).await), "id taken");
    assert_eq!(fails(store.make(&member(&ann, "bob"), everything()).await), "id taken");
    assert_eq!(store.make(&elsewhere, everything()).await.unwrap().id, made.id);
    store.delete_conversation(&ann, made.id, None, store.now()).await.unwrap();
    assert_eq!(fails(store.make(&ann, everything()).await), "id taken");
    // A refused one leaves the store usable.
    store.create(&ann, "after").await;
}

async fn nothing_is_made_in_a_workspace_that_is_not_there(store: TestStore) {
    let ann = store.workspace("ann").await;
    let nowhere = Scope { workspace: store.new_id(), ..ann.clone() };
    assert_eq!(fails(store.make(&nowhere, everything()).await), "not found");
    store.remove_workspace(&ann, false, store.now()).await.unwrap();
    assert_eq!(fails(store.make(&ann, everything()).await), "not found");
}

async fn the_workspace_says_who_sees_new_ones(store: TestStore) {
    let ann = store.workspace("ann").await;
    assert_eq!(store.create(&ann, "a").await.visibility, Visibility::Private);
    let patch = domain::workspace::WorkspacePatch {
        default_visibility: Some(Visibility::Workspace),
        ..Default::default()
    };
    store.update_workspace(&ann, &patch, store.now()).await.unwrap();
    assert_eq!(store.create(&ann, "b").await.visibility, Visibility::Workspace);
    let private = |patch: &mut ConversationPatch| patch.visibility = Some(Visibility::Private);
    let mut new = NewConversation::default();
    private(&mut new.patch);
    assert_eq!(store.make(&member(&ann, "bob"), new).await.unwrap().visibility, Visibility::Private);
}

async fn others_see_what_is_shared_and_nothing_else(store: TestStore) {
    let admin = store.workspace("root").await;
    let (ann, bob) = (member(&admin, "ann"), member(&admin, "bob"));
    let service = Scope { role: Role::Service, ..member(&admin, "key:1") };
    let elsewhere = store.workspace("ann").await;
    let private = store.create(&ann, "private").await;
    let shared = store.create_shared(&ann, "shared").await;
    store.create(&bob, "bob's").await;

    for (scope, titles) in [
        (&ann, vec!["shared", "private"]),
        (&bob, vec!["bob's", "shared"]),
        (&admin, vec!["bob's", "shared", "private"]),
        (&service, vec!["bob's", "shared", "private"]),
        (&elsewhere, vec![]),
    ] {
        assert_eq!(store.titles(scope, &newest()).await, titles, "{}", scope.user);
    }
    for (scope, sees_private, sees_shared) in
        [(&ann, true, true), (&bob, false, true), (&admin, true, true), (&elsewhere, false, false)]
    {
        assert_eq!(
            store.get_thread(scope, private.id, store::ThreadRead::default()).await.is_ok(),
            sees_private,
            "{}",
            scope.user
        );
        assert_eq!(
            store.get_thread(scope, shared.id, store::ThreadRead::default()).await.is_ok(),
            sees_shared,
            "{}",
            scope.user
        );
    }
    store.patch(&ann, shared.id, |patch| patch.visibility = Some(Visibility::Private)).await.unwrap();
    assert_eq!(fails(store.get_thread(&bob, shared.id, store::ThreadRead::default()).await), "not found");
}

async fn every_verb_answers_not_found_for_what_is_not_visible(store: TestStore) {
    let admin = store.workspace("root").await;
    let (ann, bob) = (member(&admin, "ann"), member(&admin, "bob"));
    let elsewhere = store.workspace("root").await;
    let before = store.create(&ann, "private").await;
    for (scope, id) in [(&bob, before.id), (&elsewhere, before.id), (&ann, store.new_id())] {
        let now = store.now();
        let none = store.get_thread(scope, id, Some(Window::All).into()).await;
        assert_eq!(fails(none), "not found");
        assert_eq!(fails(store.patch(scope, id, |_| ()).await), "not found");
        assert_eq!(fails(store.delete_conversation(scope, id, None, now).await), "not found");
        assert_eq!(fails(store.delete_conversation(scope, id, Some(99), now).await), "not found");
        assert_eq!(fails(store.restore_conversation(scope, id, now).await), "not found");
        assert_eq!(fails(store.append_messages(scope, id, None, &[], now).await), "not found");
    }
    assert_eq!(
        store.get_thread(&ann, before.id, store::ThreadRead::default()).await.unwrap().conversation,
        before
    );
}

async fn members_change_what_is_shared_but_not_who_sees_it(store: TestStore) {
    let ann = store.workspace("ann").await;
    let bob = member(&ann, "bob");
    let shared = store.create_shared(&ann, "shared").await;
    let titled =
        store.patch(&bob, shared.id, |patch| patch.title = Some(Some("renamed".into()))).await.unwrap();
    assert_eq!((titled.title.as_deref(), titled.owner.as_str()), (Some("renamed"), "ann"));
    let hidden = store.patch(&bob, shared.id, |patch| patch.visibility = Some(Visibility::Private)).await;
    assert!(fails(hidden).starts_with("refused Denied"));
    // The same word again is no change.
    store.patch(&bob, shared.id, |patch| patch.visibility = Some(Visibility::Workspace)).await.unwrap();
}

async fn a_change_is_applied_whole_or_not_at_all(store: TestStore) {
    let ann = store.workspace("ann").await;
    let made = store.make(&ann, everything()).await.unwrap();
    let refused = store
        .patch(&ann, made.id, |patch| {
            patch.title = Some(Some("new".into()));
            patch.tabs = Some(vec![]);
        })
        .await;
    assert!(fails(refused).contains("/active_tab_key"));
    assert_eq!(
        store.get_thread(&ann, made.id, store::ThreadRead::default()).await.unwrap().conversation,
        made
    );
    // What was open before fewer tabs were allowed is in no other change's way.
    let (fewer, mut kept) = (Write { now: store.now(), max_tabs: 0 }, made.clone());
    let mut patch = ConversationPatch { title: Some(Some("new".into())), ..Default::default() };
    assert_eq!(kept.apply(&ann, &patch, None, &fewer), Ok(()));
    patch.tabs = Some(made.tabs.clone());
    assert!(kept.apply(&ann, &patch, None, &fewer).is_err());
    let cleared = store
        .patch(&ann, made.id, |patch| {
            patch.title = Some(None);
            patch.mode = Some(None);
            patch.context = Some(None);
            patch.tabs = Some(vec![]);
            patch.active_tab_key = Some(None);
        })
        .await
        .unwrap();
    assert_eq!((&cleared.title, cleared.mode, cleared.kind), (&None, None, Kind::AssistantSandbox));
    assert_eq!((cleared.source, &cleared.model), (made.source, &made.model));
    assert_eq!(
        store.get_thread(&ann, made.id, store::ThreadRead::default()).await.unwrap().conversation,
        cleared
    );
}

async fn a_change_on_an_old_version_is_stale(store: TestStore) {
    let ann = store.workspace("ann").await;
    let made = store.create(&ann, "a").await;
    let patch = ConversationPatch { title: Some(Some("b".into())), ..Default::default() };
    let changed =
        store.update_conversation(&ann, made.id, &patch, Some(made.version), &store.write()).await.unwrap();
    let stale = store.update_conversation(&ann, made.id, &patch, Some(made.version), &store.write()).await;
    assert_eq!(fails(stale), "refused Stale");
    let stale = store.delete_conversation(&ann, made.id, Some(made.version), store.now()).await;
    assert_eq!(fails(stale), "refused Stale");
    store.delete_conversation(&ann, made.id, Some(changed.version), store.now()).await.unwrap();
}

async fn every_write_moves_time_and_version(store: TestStore) {
    let ann = store.workspace("ann").await;
    let mut last = store.create(&ann, "a").await;
    // The clock stands still, and then goes back.
    for back in [0, 0, 5000] {
        store.clock.advance_ms(-back - 1000);
        let next = store.patch(&ann, last.id, |_| ()).await.unwrap();
        assert!(next.updated_at > last.updated_at);
        assert_eq!((next.version, next.created_at), (last.version + 1, last.created_at));
        last = next;
    }
}

async fn parallel_changes_are_all_counted(store: TestStore) {
    let ann = store.workspace("ann").await;
    let made = store.create_shared(&ann, "a").await;
    let write = store.write();
    let patches: Vec<_> = (0..20)
        .map(|n| ConversationPatch { model: Some(Some(format!("m{n}"))), ..Default::default() })
        .collect();
    let changes = patches.iter().map(|patch| store.update_conversation(&ann, made.id, patch, None, &write));
    let mut versions: Vec<i64> =
        futures_util::future::join_all(changes).await.into_iter().map(|done| done.unwrap().version).collect();
    versions.sort_unstable();
    assert_eq!(versions, (2..=21).collect::<Vec<_>>());
    // Of parallel changes that name one version, one wins.
    let changes =
        patches.iter().map(|patch| store.update_conversation(&ann, made.id, patch, Some(21), &write));
    let done = futures_util::future::join_all(changes).await;
    assert_eq!(done.iter().filter(|done| done.is_ok()).count(), 1);
}

async fn deleting_hides_and_restoring_brings_back(store: TestStore) {
    let ann = store.workspace("ann").await;
    let made = store.create(&ann, "gone").await;
    store.create(&ann, "stays").await;
    let now = store.write().now;
    store.delete_conversation(&ann, made.id, None, now).await.unwrap();
    assert_eq!(fails(store.delete_conversation(&ann, made.id, None, now).await), "not found");
    assert_eq!(fails(store.get_thread(&ann, made.id, store::ThreadRead::default()).await), "not found");
    assert_eq!(fails(store.patch(&ann, made.id, |_| ()).await), "not found");
    assert_eq!(fails(store.append_messages(&ann, made.id, None, &[], now).await), "not found");
    assert_eq!(store.titles(&ann, &newest()).await, ["stays"]);
    let deleted = ConversationFilter { deleted: true, ..Default::default() };
    let deleted = ConversationQuery { filter: deleted, ..newest() };
    assert_eq!(store.titles(&ann, &deleted).await, ["gone"]);

    let back = store.restore_conversation(&ann, made.id, store.write().now).await.unwrap();
    assert_eq!((back.title.as_deref(), back.deleted_at, back.version), (Some("gone"), None, 3));
    assert!(back.updated_at > made.updated_at);
    let again = store.restore_conversation(&ann, made.id, store.write().now).await.unwrap();
    assert_eq!(again, back, "a live one is answered as it is");
    assert_eq!(store.titles(&ann, &newest()).await, ["gone", "stays"]);
    assert!(store.titles(&ann, &deleted).await.is_empty());
}

async fn a_restore_brings_back_the_files_that_went_with_the_delete(store: TestStore) {
    let ann = store.workspace("ann").await;
    let made = store.create(&ann, "a").await;
    let other = store.create(&ann, "b").await;
    store.put_file(&ann, made.id, "kept", false).await;
    store.put_file(&ann, made.id, "removed before", true).await;
    store.put_file(&ann, other.id, "other", false).await;
    store.delete_conversation(&ann, made.id, None, store.write().now).await.unwrap();
    assert!(store.files(made.id).await.is_empty());
    assert_eq!(store.files(other.id).await, ["other"]);
    store.restore_conversation(&ann, made.id, store.write().now).await.unwrap();
    assert_eq!(store.files(made.id).await, ["kept"]);
}

async fn only_owner_and_admin_delete_and_restore(store: TestStore) {
    let admin = store.workspace("root").await;
    let (ann, bob) = (member(&admin, "ann"), member(&admin, "bob"));
    let shared = store.create_shared(&ann, "shared").await;
    assert_eq!(fails(store.delete_conversation(&bob, shared.id, None, store.now()).await), "denied");
    store.delete_conversation(&admin, shared.id, None, store.now()).await.unwrap();
    // Deleted, it is its owner's and the admin's business alone.
    assert_eq!(fails(store.restore_conversation(&bob, shared.id, store.now()).await), "not found");
    let deleted = ConversationFilter { deleted: true, ..Default::default() };
    let deleted = ConversationQuery { filter: deleted, ..newest() };
    for (scope, titles) in [(&ann, vec!["shared"]), (&bob, vec![]), (&admin, vec!["shared"])] {
        assert_eq!(store.titles(scope, &deleted).await, titles, "{}", scope.user);
    }
    store.restore_conversation(&ann, shared.id, store.now()).await.unwrap();
    assert_eq!(store.restore_conversation(&bob, shared.id, store.now()).await.unwrap().owner, "ann");
}
