//! Branches: edits, new answers, forks. Nothing is ever destroyed.

use domain::message::Window;
use domain::run::StartTurn;
use domain::scope::Scope;
use store::ThreadRead;
use store::turns::WayOn;
use uuid::Uuid;

use crate::play::{bare_fork, events, turn};
use crate::setup::{TestStore, fails, member, newest};

on_both!(
    an_edit_makes_a_branch_in_the_place_of_the_message,
    a_new_answer_stands_beside_the_old_one,
    branches_of_branches_keep_what_they_share,
    edits_in_one_place_stand_side_by_side,
    a_message_says_how_its_thread_goes_on,
    a_selected_branch_is_what_readers_see_and_turns_go_on_from,
    windows_reach_across_branches,
    a_fork_is_a_conversation_of_its_own,
    a_fork_of_an_edit_starts_with_the_edit,
    an_answer_to_a_branch_that_is_not_current_leaves_the_count,
    a_thread_goes_on_after_many_edits_in_one_place,
    a_thread_goes_on_after_many_edits_one_behind_the_other,
);

async fn an_edit_makes_a_branch_in_the_place_of_the_message(store: TestStore) {
    let ann = store.workspace("ann").await;
    let first = store.answered(&ann, turn(None, "one"), "1").await;
    let id = first.conversation.unwrap();
    let second = store.answered(&ann, turn(Some(id), "two"), "2").await;
    let edit = StartTurn { replace: second.message, ..turn(Some(id), "zwei") };
    let new = store.new_turn(edit);
    let branch = new.branch;
    let store::turns::Begun::Started { run: edited, lease, .. } = store.begin_turn(&ann, &new).await.unwrap()
    else {
        panic!("not started")
    };
    let held = store::turns::Held { workspace: ann.workspace, lease };
    let dispatch = store.get_dispatch(&held, 9).await.unwrap();
    assert_eq!(dispatch.before.iter().map(|m| m.text.as_str()).collect::<Vec<_>>(), ["one", "1"]);
    let settled = store.settle_turn(&held, &store.settlement("ii", events(2, 2))).await.unwrap();
    assert_eq!(store.texts(&ann, id, None).await, ["one", "1", "zwei", "ii"]);
    assert_eq!(store.texts(&ann, id, Some(branch)).await, ["one", "1", "zwei", "ii"]);
    assert_eq!(store.texts(&ann, id, Some(id)).await, ["one", "1", "two", "2"]);
    let list = store.list_branches(&ann, id).await.unwrap();
    let thread = store.thread(&ann, id, None).await.conversation;
    assert_eq!((list.len(), list[0].id, list[1].id), (2, id, branch));
    assert_eq!(
        (list[0].from_message, list[0].head, list[0].current),
        (None, second.assistant_message, false)
    );
    assert_eq!(list[0].created_at, thread.created_at);
    assert_eq!(
        (list[1].from_message, list[1].head),
        (first.assistant_message, settled.run.assistant_message)
    );
    assert_eq!((list[1].current, list[1].created_at), (true, edited.created_at));
    assert_eq!((thread.message_count, thread.first_message), (4, first.message));
}

async fn a_new_answer_stands_beside_the_old_one(store: TestStore) {
    let ann = store.workspace("ann").await;
    let first = store.answered(&ann, turn(None, "one"), "1").await;
    let id = first.conversation.unwrap();
    let again = StartTurn { message: None, replace: first.message, ..turn(Some(id), "") };
    let (run, held) = store.started(&ann, again).await;
    assert_eq!(run.message, first.message);
    assert_eq!(store.texts(&ann, id, None).await, ["one"]);
    let dispatch = store.get_dispatch(&held, 9).await.unwrap();
    assert_eq!((dispatch.message.text.as_str(), dispatch.before.len()), ("one", 0));
    store.settle_turn(&held, &store.settlement("uno", events(2, 2))).await.unwrap();
    assert_eq!(store.texts(&ann, id, None).await, ["one", "uno"]);
    assert_eq!(store.texts(&ann, id, Some(id)).await, ["one", "1"]);
    let list = store.list_branches(&ann, id).await.unwrap();
    assert_eq!(list[1].from_message, first.message);
    store.answered(&ann, turn(Some(id), "two"), "2").await;
    assert_eq!(store.texts(&ann, id, None).await, ["one", "uno", "two", "2"]);
}

async fn branches_of_branches_keep_what_they_share(store: TestStore) {
    let ann = store.workspace("ann").await;
    let id = store.answered(&ann, turn(None, "a"), "A").await.conversation.unwrap();
    let b = store.answered(&ann, turn(Some(id), "b"), "B").await;
    let c = store.answered(&ann, turn(Some(id), "c"), "C").await;
    // c edited, then the new c answered again, then b edited from there: the deeper branch is cut short.
    let c2 = store.answered(&ann, StartTurn { replace: c.message, ..turn(Some(id), "c2") }, "C2").await;
    store.answered(&ann, turn(Some(id), "d"), "D").await;
    let again = StartTurn { message: None, replace: c2.message, ..turn(Some(id), "") };
    store.answered(&ann, again, "C3").await;
    assert_eq!(store.texts(&ann, id, None).await, ["a", "A", "b", "B", "c2", "C3"]);
    store.answered(&ann, StartTurn { replace: b.message, ..turn(Some(id), "b2") }, "B2").await;
    assert_eq!(store.texts(&ann, id, None).await, ["a", "A", "b2", "B2"]);
    let list = store.list_branches(&ann, id).await.unwrap();
    let mut all = Vec::new();
    for branch in &list {
        all.push(store.texts(&ann, id, Some(branch.id)).await.join(" "));
    }
    assert_eq!(all, ["a A b B c C", "a A b B c2 C2 d D", "a A b B c2 C3", "a A b2 B2"]);
    assert_eq!(list.iter().map(|branch| branch.current).collect::<Vec<_>>(), [false, false, false, true]);
    assert_eq!(leaves(&store, &ann, id).await, ["", "B", "c2", "A"]);
}

/// What each branch shares last; that each ends with its thread is looked at on the way.
async fn leaves(store: &TestStore, scope: &Scope, conversation: Uuid) -> Vec<String> {
    let mut found = Vec::new();
    for branch in store.list_branches(scope, conversation).await.unwrap() {
        let thread = store.thread(scope, conversation, Some(branch.id)).await.messages;
        assert_eq!(branch.head, thread.last().map(|message| message.id));
        let shared = thread.into_iter().find(|message| Some(message.id) == branch.from_message);
        assert_eq!(shared.is_some(), branch.from_message.is_some());
        found.push(shared.map_or(String::new(), |message| message.text));
    }
    found
}

async fn edits_in_one_place_stand_side_by_side(store: TestStore) {
    let ann = store.workspace("ann").await;
    let a = store.answered(&ann, turn(None, "a"), "A").await;
    let id = a.conversation.unwrap();
    let mut b = store.answered(&ann, turn(Some(id), "b"), "B").await;
    for text in ["b1", "b2", "b3"] {
        b = store.answered(&ann, StartTurn { replace: b.message, ..turn(Some(id), text) }, "B").await;
    }
    // The answer is another one's own, and so is what is said after it.
    let again = StartTurn { message: None, replace: b.message, ..turn(Some(id), "") };
    let again = store.answered(&ann, again, "B4").await;
    store
        .answered(&ann, StartTurn { message: None, replace: again.message, ..turn(Some(id), "") }, "B5")
        .await;
    store.answered(&ann, StartTurn { replace: a.message, ..turn(Some(id), "a1") }, "A1").await;
    assert_eq!(leaves(&store, &ann, id).await, ["", "A", "A", "A", "b3", "b3", ""]);
    let of_the_first = "SELECT count(*) FROM branches WHERE parent = 0";
    assert_eq!(store.count(of_the_first).await, 4, "but for the two answers of b3");
    assert_eq!(store.count("SELECT count(*) FROM branches WHERE parent = 3").await, 2);
    assert_eq!(store.texts(&ann, id, None).await, ["a1", "A1"]);
}

async fn a_message_says_how_its_thread_goes_on(store: TestStore) {
    let ann = store.workspace("ann").await;
    let a = store.answered(&ann, turn(None, "a"), "A").await;
    let id = a.conversation.unwrap();
    let b = store.answered(&ann, turn(Some(id), "b"), "B").await;
    let c = store.answered(&ann, turn(Some(id), "c"), "C").await;
    let way =
        async |message: Option<Uuid>| store.find_way_on(&ann, id, message.unwrap()).await.unwrap().unwrap();
    let on = |branch, current, next| WayOn { branch, current, next };
    for (message, next) in [(a.message, b.message), (a.assistant_message, b.message), (b.message, c.message)]
    {
        assert_eq!(way(message).await, on(id, true, next));
    }
    assert_eq!(way(c.message).await, on(id, true, None));
    // On the current branch b is followed by d now; what was said there before is on the branch it was written on.
    let d = store.answered(&ann, StartTurn { replace: c.message, ..turn(Some(id), "d") }, "D").await;
    let side = store.list_branches(&ann, id).await.unwrap()[1].id;
    let e = store.answered(&ann, turn(Some(id), "e"), "E").await;
    assert_eq!(way(b.assistant_message).await, on(id, true, d.message));
    assert_eq!(way(a.assistant_message).await, on(id, true, b.message));
    assert_eq!(way(d.assistant_message).await, on(side, true, e.message));
    assert_eq!(way(c.message).await, on(id, false, None));
    store.select_branch(&ann, id, id, store.write().now).await.unwrap();
    assert_eq!(way(b.assistant_message).await, on(id, true, c.message));
    assert_eq!(way(d.assistant_message).await, on(side, false, e.message));
    assert_eq!(store.find_way_on(&ann, id, store.new_id()).await.unwrap(), None);
    let bob = member(&ann, "bob");
    assert_eq!(fails(store.find_way_on(&bob, id, a.message.unwrap()).await), "not found");
}

async fn a_selected_branch_is_what_readers_see_and_turns_go_on_from(store: TestStore) {
    let ann = store.workspace("ann").await;
    let first = store.answered(&ann, turn(None, "one"), "1").await;
    let id = first.conversation.unwrap();
    store.answered(&ann, turn(Some(id), "two"), "2").await;
    store.answered(&ann, StartTurn { replace: first.message, ..turn(Some(id), "eins") }, "i").await;
    let side = store.list_branches(&ann, id).await.unwrap()[1].id;
    let before = store.thread(&ann, id, None).await.conversation;
    assert_eq!(before.message_count, 2);
    let selected = store.select_branch(&ann, id, id, store.write().now).await.unwrap();
    assert_eq!((selected.message_count, selected.version), (4, before.version + 1));
    assert_eq!(store.thread(&ann, id, None).await.conversation, selected);
    assert_eq!(store.texts(&ann, id, None).await, ["one", "1", "two", "2"]);
    store.answered(&ann, turn(Some(id), "three"), "3").await;
    store.say(&ann, id, domain::message::MessageRole::User, "said").await;
    assert_eq!(store.texts(&ann, id, None).await, ["one", "1", "two", "2", "three", "3", "said"]);
    assert_eq!(store.texts(&ann, id, Some(side)).await, ["eins", "i"]);
    let selected = store.select_branch(&ann, id, side, store.write().now).await.unwrap();
    assert_eq!(selected.message_count, 2);
    assert_eq!(store.texts(&ann, id, None).await, ["eins", "i"]);
    assert_eq!(fails(store.select_branch(&ann, id, store.new_id(), store.now()).await), "not found");
    for window in [None, Some(Window::All)] {
        let read = ThreadRead { window, branch: Some(store.new_id()) };
        assert_eq!(fails(store.get_thread(&ann, id, read).await), "not found");
        let read = ThreadRead { window, branch: Some(side) };
        assert_eq!(store.get_thread(&ann, id, read).await.unwrap().conversation, selected);
    }
}

async fn windows_reach_across_branches(store: TestStore) {
    let ann = store.workspace("ann").await;
    let id = store.answered(&ann, turn(None, "a"), "A").await.conversation.unwrap();
    let b = store.answered(&ann, turn(Some(id), "b"), "B").await;
    store.answered(&ann, StartTurn { replace: b.message, ..turn(Some(id), "c") }, "C").await;
    let thread = store.thread(&ann, id, None).await.messages;
    for limit in 0..=5_usize {
        for end in 0..=thread.len() {
            let window = match thread.get(end) {
                Some(message) => Window::Before { message: message.id, limit },
                None => Window::Newest { limit },
            };
            let read = store.get_thread(&ann, id, Some(window).into()).await.unwrap();
            let start = end.saturating_sub(limit);
            assert_eq!(read.messages, thread[start..end], "{limit} before {end}");
            assert_eq!(read.has_before, start > 0);
        }
    }
    let other = Window::Before { message: b.message.unwrap(), limit: 5 };
    assert_eq!(fails(store.get_thread(&ann, id, Some(other).into()).await), "not found");
    let first = ThreadRead { window: Some(other), branch: Some(id) };
    assert_eq!(store.get_thread(&ann, id, first).await.unwrap().messages.len(), 2);
}

async fn a_fork_is_a_conversation_of_its_own(store: TestStore) {
    let ann = store.workspace("ann").await;
    let bob = member(&ann, "bob");
    let first = store.answered(&bob, turn(None, "one"), "1").await;
    let id = first.conversation.unwrap();
    let second = store.answered(&bob, turn(Some(id), "two"), "2").await;
    let (at, now) = (store.new_id(), store.write().now);
    let fork = store.fork_conversation(&ann, id, second.message.unwrap(), &bare_fork(at, now)).await.unwrap();
    assert_eq!((fork.id, fork.owner.as_str(), fork.message_count), (at, "ann", 3));
    assert_eq!((fork.created_at, fork.version, fork.total_tokens), (now, 1, 0));
    assert_eq!((fork.title.as_deref(), fork.preview.as_deref()), (Some("one"), Some("one")));
    assert_eq!(fork.first_message, first.message);
    assert_eq!(store.thread(&ann, at, None).await.conversation, fork);
    assert_eq!(store.texts(&ann, at, None).await, ["one", "1", "two"]);
    assert_eq!(store.list_runs(&ann, at, None, 9).await.unwrap(), []);
    // The two go on apart; the fork is ann's own, which bob does not see, and is found by its words.
    store.answered(&ann, turn(Some(at), "mine"), "m").await;
    assert_eq!(store.texts(&bob, id, None).await, ["one", "1", "two", "2"]);
    assert_eq!(fails(store.get_thread(&bob, at, ThreadRead::default()).await), "not found");
    let search = domain::conversation::ConversationSearch {
        filter: newest().filter,
        query: domain::search::Query::parse("two").unwrap(),
        sort: None,
        offset: 0,
        limit: 9,
        with_context: false,
    };
    assert_eq!(store.search_conversations(&ann, &search).await.unwrap().items.len(), 2);
    let missing = store.fork_conversation(&ann, id, at, &bare_fork(store.new_id(), now)).await;
    assert_eq!(fails(missing), "invalid /through");
    let taken = store.fork_conversation(&ann, id, second.message.unwrap(), &bare_fork(at, now)).await;
    assert_eq!(fails(taken), "id taken");
}

async fn a_fork_of_an_edit_starts_with_the_edit(store: TestStore) {
    let ann = store.workspace("ann").await;
    let first = store.answered(&ann, turn(None, "one"), "1").await;
    let id = first.conversation.unwrap();
    let edit = StartTurn { replace: first.message, ..turn(Some(id), "eins") };
    let edit = store.answered(&ann, edit, "i").await;
    let (at, now) = (store.new_id(), store.write().now);
    let fork = store
        .fork_conversation(&ann, id, edit.assistant_message.unwrap(), &bare_fork(at, now))
        .await
        .unwrap();
    assert_eq!((fork.first_message, fork.preview.as_deref()), (edit.message, Some("eins")));
    assert_eq!(store.texts(&ann, at, None).await, ["eins", "i"]);
    let at = store.new_id();
    let fork = store.fork_conversation(&ann, id, first.message.unwrap(), &bare_fork(at, now)).await.unwrap();
    assert_eq!((fork.first_message, fork.message_count), (first.message, 1));
    assert_eq!(store.texts(&ann, at, None).await, ["one"]);
}

async fn an_answer_to_a_branch_that_is_not_current_leaves_the_count(store: TestStore) {
    let ann = store.workspace("ann").await;
    let first = store.answered(&ann, turn(None, "one"), "1").await;
    let id = first.conversation.unwrap();
    store.answered(&ann, turn(Some(id), "two"), "2").await;
    let edit = StartTurn { replace: first.message, ..turn(Some(id), "eins") };
    let (_, held) = store.started(&ann, edit).await;
    let side = store.list_branches(&ann, id).await.unwrap()[1].id;
    store.select_branch(&ann, id, id, store.write().now).await.unwrap();
    store.settle_turn(&held, &store.settlement("i", events(2, 2))).await.unwrap();
    assert_eq!(store.thread(&ann, id, None).await.conversation.message_count, 4);
    assert_eq!(store.texts(&ann, id, None).await, ["one", "1", "two", "2"]);
    assert_eq!(store.texts(&ann, id, Some(side)).await, ["eins", "i"]);
}

const EDITS: i64 = 1500;

/// A thread of many branches, each made by an edit of the one before: branch `n` stands after message `after`, and has
/// a message of its own if `own`, both as SQL. It takes turns, and is read and copied.
async fn goes_on(store: TestStore, after: &str, own: &str) {
    let ann = store.workspace("ann").await;
    let id = store.answered(&ann, turn(None, "q"), "a").await.conversation.unwrap();
    let columns = "role, text, content, file_attachments, sources, token_count, metadata, created_at";
    let series = format!(
        "WITH RECURSIVE series(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM series WHERE n < {EDITS})"
    );
    let statements = |new_id: &str| {
        format!(
            "INSERT INTO branches (workspace_id, conversation_id, branch, id, parent, fork_seq, created_at) \
             {series} SELECT workspace_id, id, n, {new_id}, n - 1, {after}, created_at \
             FROM chat_conversations, series; \
             INSERT INTO messages (workspace_id, conversation_id, branch, seq, id, {columns}) \
             {series} SELECT workspace_id, conversation_id, n, {after} + 1, {new_id}, {columns} \
             FROM messages, series WHERE seq = 2 AND {own}; \
             UPDATE chat_conversations SET current_branch = {EDITS};"
        )
    };
    store.behind(&statements("randomblob(16)"), &statements("gen_random_uuid()")).await;
    let before = store.texts(&ann, id, None).await;
    let next = store.answered(&ann, turn(Some(id), "next"), "n").await;
    let edit = StartTurn { replace: next.message, ..turn(Some(id), "again") };
    store.answered(&ann, edit, "g").await;
    let now = store.texts(&ann, id, None).await;
    assert_eq!(now, [before, vec!["again".to_owned(), "g".to_owned()]].concat());
    let window = Some(Window::Newest { limit: 3 });
    let read = store.get_thread(&ann, id, window.into()).await.unwrap();
    assert_eq!((read.messages.len(), read.has_before), (3, true));
    let fork = bare_fork(store.new_id(), store.write().now);
    store.fork_conversation(&ann, id, read.messages[2].id, &fork).await.unwrap();
    assert_eq!(store.texts(&ann, fork.id, None).await, now);
}

async fn a_thread_goes_on_after_many_edits_in_one_place(store: TestStore) {
    goes_on(store, "1", "n = 1500").await;
}

async fn a_thread_goes_on_after_many_edits_one_behind_the_other(store: TestStore) {
    goes_on(store, "n + 1", "n > 0").await;
}
