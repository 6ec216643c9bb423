//! Workspaces, members, keys and the audit log.

use domain::audit::first_broken;
use domain::conversation::{ConversationFilter, ConversationQuery, Visibility};
use domain::scope::{Role, Scope};
use domain::workspace::{ApiKey, WorkspacePatch};
use futures_util::future::join_all;
use uuid::Uuid;

use crate::setup::{TestStore, fails, member, newest};

on_both!(
    a_workspace_is_made_with_its_admin,
    memberships_are_the_users_own,
    a_workspace_is_changed_and_the_rest_of_it_kept,
    members_are_added_changed_and_removed,
    a_workspace_keeps_an_admin_even_under_parallel_demotions,
    keys_follow_their_maker,
    keys_are_found_by_their_hash_in_their_workspace_alone,
    a_workspace_with_conversations_is_removed_only_by_cascade,
    every_change_is_in_the_audit_log_once_and_in_order,
    parallel_changes_make_one_unbroken_log,
    a_failed_change_is_not_in_the_audit_log,
);

fn key(store: &TestStore, maker: &str, role: Role) -> ApiKey {
    ApiKey { id: store.new_id(), name: "ci".into(), role, created_by: maker.into(), created_at: store.now() }
}

async fn a_workspace_is_made_with_its_admin(store: TestStore) {
    let ann = store.workspace("ann").await;
    let made = store.find_workspace(&ann).await.unwrap().unwrap();
    assert_eq!((made.id, made.org.as_str(), made.name.as_str()), (ann.workspace, "acme", "Team"));
    assert_eq!((made.default_visibility, made.created_at), (Visibility::Private, store.now()));
    let admin = store.find_member(&ann, "ann").await.unwrap().unwrap();
    assert_eq!((admin.role, admin.added_at), (Role::Admin, store.now()));
    let nowhere = Scope { workspace: store.new_id(), ..ann };
    assert_eq!(store.find_workspace(&nowhere).await.unwrap(), None);
    assert_eq!(store.find_member(&nowhere, "ann").await.unwrap(), None);
}

async fn memberships_are_the_users_own(store: TestStore) {
    let first = store.workspace("ann").await;
    let second = store.workspace("bob").await;
    let third = store.workspace("ann").await;
    store.put_member(&second, "ann", Role::Member, store.now()).await.unwrap();
    let listed = async |user: &str, workspace, after, limit| -> Vec<(Uuid, Role)> {
        let found = store.list_memberships(user, workspace, after, limit).await.unwrap();
        found.into_iter().map(|found| (found.workspace.id, found.role)).collect()
    };
    let [one, two, three] =
        [(first.workspace, Role::Admin), (second.workspace, Role::Member), (third.workspace, Role::Admin)];
    assert_eq!(listed("ann", None, None, 10).await, [one, two, three]);
    assert_eq!(listed("ann", None, None, 2).await, [one, two]);
    assert_eq!(listed("ann", None, Some(two.0), 10).await, [three]);
    assert_eq!(listed("ann", Some(two.0), None, 10).await, [two]);
    assert_eq!(listed("bob", None, None, 10).await, [(second.workspace, Role::Admin)]);
    assert!(listed("bob", Some(one.0), None, 10).await.is_empty());
    assert!(listed("", None, None, 10).await.is_empty());
    store.remove_workspace(&third, false, store.now()).await.unwrap();
    assert_eq!(listed("ann", None, None, 10).await, [one, two]);
}

async fn a_workspace_is_changed_and_the_rest_of_it_kept(store: TestStore) {
    let ann = store.workspace("ann").await;
    let name = WorkspacePatch { name: Some("New".into()), default_visibility: None };
    assert_eq!(store.update_workspace(&ann, &name, store.now()).await.unwrap().name, "New");
    let open = WorkspacePatch { name: None, default_visibility: Some(Visibility::Workspace) };
    let changed = store.update_workspace(&ann, &open, store.now()).await.unwrap();
    assert_eq!((changed.name.as_str(), changed.default_visibility), ("New", Visibility::Workspace));
    assert_eq!(store.find_workspace(&ann).await.unwrap(), Some(changed));
    let nowhere = Scope { workspace: store.new_id(), ..ann };
    assert_eq!(fails(store.update_workspace(&nowhere, &name, store.now()).await), "not found");
}

async fn members_are_added_changed_and_removed(store: TestStore) {
    let ann = store.workspace("ann").await;
    let early = store.now();
    let (added, new) = store.put_member(&ann, "bob", Role::Member, early).await.unwrap();
    assert_eq!((added.role, added.added_at, new), (Role::Member, early, true));
    let later = store.write().now;
    let (changed, new) = store.put_member(&ann, "bob", Role::Admin, later).await.unwrap();
    assert_eq!((changed.role, changed.added_at, new), (Role::Admin, early, false));
    assert_eq!(store.find_member(&ann, "bob").await.unwrap(), Some(changed));
    for user in ["Zoe", "äda", "cat"] {
        store.put_member(&ann, user, Role::Member, later).await.unwrap();
    }
    let listed = async |after: Option<&str>, limit| -> Vec<String> {
        store.list_members(&ann, after, limit).await.unwrap().into_iter().map(|found| found.user).collect()
    };
    assert_eq!(listed(None, 10).await, ["Zoe", "ann", "bob", "cat", "äda"], "by code point");
    assert_eq!(listed(Some("ann"), 2).await, ["bob", "cat"]);
    store.remove_member(&ann, "bob", later).await.unwrap();
    assert_eq!(fails(store.remove_member(&ann, "bob", later).await), "not found");
    assert_eq!(store.find_member(&ann, "bob").await.unwrap(), None);
    assert_eq!(fails(store.remove_member(&ann, "ann", later).await), "conflict last_admin");
    assert_eq!(fails(store.put_member(&ann, "ann", Role::Member, later).await), "conflict last_admin");
    assert_eq!(store.find_member(&ann, "ann").await.unwrap().unwrap().role, Role::Admin);
    let nowhere = Scope { workspace: store.new_id(), ..ann };
    assert_eq!(fails(store.put_member(&nowhere, "bob", Role::Member, later).await), "not found");
}

async fn a_workspace_keeps_an_admin_even_under_parallel_demotions(store: TestStore) {
    let first = store.workspace("admin0").await;
    let users: Vec<String> = (0..20).map(|n| format!("admin{n}")).collect();
    for user in &users[1..] {
        store.put_member(&first, user, Role::Admin, store.now()).await.unwrap();
    }
    let now = store.now();
    let demotions = users.iter().enumerate().map(|(n, user)| {
        let (store, first) = (&store, &first);
        async move {
            match n % 2 {
                0 => store.put_member(first, user, Role::Member, now).await.map(|_| ()),
                _ => store.remove_member(first, user, now).await,
            }
        }
    });
    let refused: Vec<_> = join_all(demotions).await.into_iter().filter_map(Result::err).collect();
    assert_eq!(refused.len(), 1, "{refused:?}");
    assert_eq!(crate::setup::kind(&refused[0]), "conflict last_admin");
    let members = store.list_members(&first, None, 100).await.unwrap();
    assert_eq!(members.iter().filter(|member| member.role == Role::Admin).count(), 1);
}

async fn keys_follow_their_maker(store: TestStore) {
    let ann = store.workspace("ann").await;
    store.put_member(&ann, "bob", Role::Admin, store.now()).await.unwrap();
    let keys = [
        key(&store, "bob", Role::Admin),
        key(&store, "bob", Role::Service),
        key(&store, "ann", Role::Member),
    ];
    for (n, key) in keys.iter().enumerate() {
        store.create_key(&ann, key, [n as u8; 32]).await.unwrap();
    }
    let role = async |n: u8| store.find_key(ann.workspace, [n; 32]).await.unwrap().map(|grant| grant.role());
    assert_eq!((role(0).await, role(1).await), (Some(Some(Role::Admin)), Some(Some(Role::Service))));
    store.put_member(&ann, "bob", Role::Member, store.now()).await.unwrap();
    assert_eq!(role(0).await, Some(Some(Role::Member)));
    store.remove_member(&ann, "bob", store.now()).await.unwrap();
    assert_eq!(
        (role(0).await, role(1).await, role(2).await),
        (None, Some(Some(Role::Service)), Some(Some(Role::Member)))
    );
    store.put_member(&ann, "bob", Role::Admin, store.now()).await.unwrap();
    assert_eq!(role(0).await, None, "an old key does not come back to life");
    assert_eq!(store.list_keys(&ann, None, 10).await.unwrap(), [keys[1].clone(), keys[2].clone()]);
    let log = store.list_audit(&ann, 0, 100).await.unwrap();
    let gone: Vec<_> =
        log.iter().filter(|entry| entry.action.ends_with(".remove")).map(|entry| &*entry.target).collect();
    assert_eq!(gone, ["bob", &keys[0].id.to_string()]);
}

async fn keys_are_found_by_their_hash_in_their_workspace_alone(store: TestStore) {
    let ann = store.workspace("ann").await;
    let other = store.workspace("ann").await;
    let made = [key(&store, "ann", Role::Member), key(&store, "ann", Role::Member)];
    store.create_key(&ann, &made[0], [7; 32]).await.unwrap();
    store.create_key(&ann, &made[1], [8; 32]).await.unwrap();
    let grant = store.find_key(ann.workspace, [7; 32]).await.unwrap().unwrap();
    assert_eq!(
        (&grant.key, grant.workspace.id, grant.maker_role),
        (&made[0], ann.workspace, Some(Role::Admin))
    );
    assert_eq!(store.find_key(other.workspace, [7; 32]).await.unwrap(), None);
    assert_eq!(store.find_key(ann.workspace, [9; 32]).await.unwrap(), None);
    assert_eq!(store.list_keys(&ann, Some(made[0].id), 10).await.unwrap(), [made[1].clone()]);
    assert_eq!(store.list_keys(&ann, None, 1).await.unwrap(), [made[0].clone()]);
    assert!(store.list_keys(&other, None, 10).await.unwrap().is_empty());
    assert_eq!(fails(store.remove_key(&other, made[0].id, store.now()).await), "not found");
    store.remove_key(&ann, made[0].id, store.now()).await.unwrap();
    assert_eq!(fails(store.remove_key(&ann, made[0].id, store.now()).await), "not found");
    assert_eq!(store.find_key(ann.workspace, [7; 32]).await.unwrap(), None);
    store.remove_workspace(&ann, false, store.now()).await.unwrap();
    assert_eq!(store.find_key(ann.workspace, [8; 32]).await.unwrap(), None);
}

async fn a_workspace_with_conversations_is_removed_only_by_cascade(store: TestStore) {
    let ann = store.workspace("ann").await;
    let other = store.workspace("ann").await;
    let private = store.create(&member(&ann, "bob"), "private").await;
    store.put_file(&ann, private.id, "f", false).await;
    store.create(&other, "other").await;
    assert_eq!(fails(store.remove_workspace(&ann, false, store.now()).await), "conflict workspace_not_empty");
    assert_eq!(store.titles(&ann, &newest()).await, ["private"], "nothing happened");
    let now = store.write().now;
    store.remove_workspace(&ann, true, now).await.unwrap();
    assert_eq!(fails(store.remove_workspace(&ann, true, now).await), "not found");
    assert_eq!(store.find_workspace(&ann).await.unwrap(), None);
    assert!(store.titles(&ann, &newest()).await.is_empty());
    assert!(store.files(private.id).await.is_empty());
    assert!(store.list_members(&ann, None, 10).await.unwrap().is_empty());
    let filter = ConversationFilter { deleted: true, ..Default::default() };
    let deleted =
        store.list_conversations(&ann, &ConversationQuery { filter, ..newest() }).await.unwrap().items;
    assert_eq!((deleted[0].deleted_at, deleted[0].updated_at, deleted[0].version), (Some(now), now, 2));
    assert_eq!(store.titles(&other, &newest()).await, ["other"]);
    // One whose conversations are all deleted is empty.
    let emptied = store.workspace("ann").await;
    let gone = store.create(&emptied, "gone").await;
    store.delete_conversation(&emptied, gone.id, None, now).await.unwrap();
    store.remove_workspace(&emptied, false, now).await.unwrap();
}

async fn every_change_is_in_the_audit_log_once_and_in_order(store: TestStore) {
    let ann = store.workspace("ann").await;
    let other = store.workspace("ann").await;
    let by_key = Scope { key: Some(store.new_id()), ..ann.clone() };
    let made = key(&store, "ann", Role::Member);
    let now = store.write().now;
    store.update_workspace(&ann, &WorkspacePatch::default(), now).await.unwrap();
    store.put_member(&by_key, "bob", Role::Member, now).await.unwrap();
    // Nothing changes by it.
    store.put_member(&ann, "bob", Role::Member, now).await.unwrap();
    store.remove_member(&ann, "bob", now).await.unwrap();
    store.create_key(&ann, &made, [1; 32]).await.unwrap();
    store.remove_key(&ann, made.id, now).await.unwrap();
    let thread = store.create(&ann, "t").await;
    store.patch(&ann, thread.id, |patch| patch.title = Some(None)).await.unwrap();
    store.patch(&ann, thread.id, |patch| patch.visibility = Some(Visibility::Workspace)).await.unwrap();
    store.remove_workspace(&ann, true, now).await.unwrap();
    let log = store.list_audit(&ann, 0, 100).await.unwrap();
    let said: Vec<(&str, &str, &str)> = log
        .iter()
        .map(|entry| (entry.action.as_str(), entry.target.as_str(), entry.detail.as_str()))
        .collect();
    let (workspace, key, thread) = (ann.workspace.to_string(), made.id.to_string(), thread.id.to_string());
    assert_eq!(
        said,
        [
            ("workspace.create", workspace.as_str(), "Team"),
            ("member.add", "ann", "admin"),
            ("workspace.update", &workspace, "private"),
            ("member.add", "bob", "member"),
            ("member.remove", "bob", ""),
            ("key.create", &key, "member"),
            ("key.remove", &key, ""),
            ("conversation.visibility", &thread, "workspace"),
            ("workspace.remove", &workspace, "cascade"),
        ]
    );
    assert_eq!((log[3].key, log[3].user.as_str(), log[3].at), (by_key.key, "ann", now));
    assert_eq!(first_broken(&log), None);
    assert_eq!(store.list_audit(&ann, 3, 2).await.unwrap(), log[3..5]);
    assert_eq!(store.list_audit(&other, 0, 100).await.unwrap().len(), 2);
}

async fn parallel_changes_make_one_unbroken_log(store: TestStore) {
    let ann = store.workspace("ann").await;
    let threads = [store.create(&ann, "1").await, store.create(&ann, "2").await];
    let now = store.now();
    let changes = (0..40).map(|n| {
        let (store, ann, threads) = (&store, &ann, &threads);
        async move {
            match n % 4 {
                0 => drop(store.put_member(ann, &format!("user{n}"), Role::Member, now).await.unwrap()),
                1 => drop(store.update_workspace(ann, &WorkspacePatch::default(), now).await.unwrap()),
                2 => store.create_key(ann, &key(store, "ann", Role::Member), [n; 32]).await.unwrap(),
                _ => {
                    // Neighbours turn it to and fro, so each of them is a change or is none.
                    let to = [Visibility::Private, Visibility::Workspace][usize::from(n / 8 % 2)];
                    let id = threads[usize::from(n / 4 % 2)].id;
                    drop(store.patch(ann, id, |patch| patch.visibility = Some(to)).await.unwrap());
                }
            }
        }
    });
    join_all(changes).await;
    let log = store.list_audit(&ann, 0, 1000).await.unwrap();
    assert_eq!(first_broken(&log), None);
    assert!(log.len() >= 2 + 30, "{}", log.len());
}

async fn a_failed_change_is_not_in_the_audit_log(store: TestStore) {
    let ann = store.workspace("ann").await;
    let before = store.list_audit(&ann, 0, 100).await.unwrap();
    store.remove_member(&ann, "ann", store.now()).await.unwrap_err();
    store.put_member(&ann, "ann", Role::Member, store.now()).await.unwrap_err();
    store.remove_key(&ann, store.new_id(), store.now()).await.unwrap_err();
    store.create(&ann, "x").await;
    store.remove_workspace(&ann, false, store.now()).await.unwrap_err();
    assert_eq!(store.list_audit(&ann, 0, 100).await.unwrap(), before);
}
