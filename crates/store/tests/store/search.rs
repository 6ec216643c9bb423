//! Search: what is found, in which order, with which highlights, by whom.

use domain::conversation::{
    ConversationFilter, ConversationSearch, Found, NewConversation, Page, Sort, SortKey, Source, Visibility,
};
use domain::message::{Message, MessageRole, NewMessage, Window};
use domain::scope::Scope;
use domain::search::Query;

use crate::setup::{Behind, TestStore, member, rusqlite, superuser};

on_both!(
    titles_come_before_messages_and_whole_words_before_beginnings,
    words_are_found_in_any_spelling_and_script,
    every_word_must_be_there,
    highlights_show_what_matched,
    searchers_find_only_what_they_may_see,
    the_index_follows_titles_and_deletes,
    the_index_follows_what_is_taken_out_of_a_message,
    filters_sorts_and_pages_hold_in_a_search,
    hostile_queries_are_only_words,
    words_in_an_older_index_are_found_as_they_were,
    a_long_thread_hides_no_other_conversation,
    whole_words_in_titles_are_found_behind_any_number_of_beginnings,
);

fn ask(text: &str) -> ConversationSearch {
    ConversationSearch {
        filter: ConversationFilter::default(),
        query: Query::parse(text).unwrap(),
        sort: None,
        offset: 0,
        limit: 50,
        with_context: false,
    }
}

async fn found(store: &TestStore, scope: &Scope, search: &ConversationSearch) -> Page<Found> {
    store.search_conversations(scope, search).await.unwrap()
}

async fn titles(store: &TestStore, scope: &Scope, text: &str) -> Vec<String> {
    let page = found(store, scope, &ask(text)).await;
    page.items.into_iter().map(|hit| hit.conversation.title.unwrap_or_default()).collect()
}

async fn the_index_follows_what_is_taken_out_of_a_message(store: TestStore) {
    let ann = store.workspace("ann").await;
    let thread = store.create(&ann, "plans").await;
    store.say(&ann, thread.id, MessageRole::User, "marmalade for breakfast").await;
    store.say(&ann, thread.id, MessageRole::Assistant, "noted").await;
    let read = async || store.get_thread(&ann, thread.id, Some(Window::All).into()).await.unwrap();
    let before = read().await;
    let changed = Message {
        text: "toast".into(),
        content: r#"[{"type":"text","text":"toast"}]"#.into(),
        metadata: r#"{"a":1}"#.into(),
        ..before.messages[0].clone()
    };
    let now = store.now();
    let was = &before.messages[0];
    assert!(store.rewrite_message(&ann, thread.id, was, &changed, now).await.unwrap());
    let after = read().await;
    assert_eq!(after.messages, [changed.clone(), before.messages[1].clone()]);
    assert_eq!(after.conversation.preview.as_deref(), Some("toast"));
    assert_eq!(after.conversation.message_count, 2);
    assert!(after.conversation.version > before.conversation.version);
    assert!(titles(&store, &ann, "marmalade").await.is_empty());
    assert_eq!(titles(&store, &ann, "toast").await, ["plans"]);
    // Not by others.
    let bob = member(&ann, "bob");
    assert!(store.rewrite_message(&bob, thread.id, &changed, &changed, now).await.is_err());
    // Not what has changed since it was read, and not what is not there.
    assert!(!store.rewrite_message(&ann, thread.id, was, &changed, now).await.unwrap());
    let missing = Message { id: store.new_id(), ..changed };
    assert!(store.rewrite_message(&ann, thread.id, &missing, &missing, now).await.is_err());
}

async fn titles_come_before_messages_and_whole_words_before_beginnings(store: TestStore) {
    let ann = store.workspace("ann").await;
    let whole = store.create(&ann, "Kubernetes notes").await;
    store.create(&ann, "Kubernetesque").await;
    let once = store.create(&ann, "once").await;
    let twice = store.create(&ann, "twice").await;
    store.create(&ann, "newer Kubernetes notes").await;
    store.create(&ann, "unrelated").await;
    store.say(&ann, twice.id, MessageRole::User, "about kubernetes").await;
    store.say(&ann, twice.id, MessageRole::Assistant, "kubernetes it is").await;
    store.say(&ann, once.id, MessageRole::User, "kubernetes").await;
    assert_eq!(
        titles(&store, &ann, "kubernetes").await,
        ["newer Kubernetes notes", "Kubernetes notes", "Kubernetesque", "twice", "once"]
    );
    store.patch(&ann, whole.id, |_| ()).await.unwrap();
    assert_eq!(titles(&store, &ann, "kubernetes").await[0], "Kubernetes notes", "the newest of equals");
    assert_eq!(titles(&store, &ann, "kube").await.len(), 5);
    assert!(titles(&store, &ann, "ubernetes").await.is_empty());
}

async fn words_are_found_in_any_spelling_and_script(store: TestStore) {
    let ann = store.workspace("ann").await;
    let long = "x".repeat(100);
    for title in ["Crème BRÛLÉE", "Straße", "東京タワー", "Ελλάδα", "foo.bar@example.com", "it's", &long]
    {
        store.create(&ann, title).await;
    }
    for title in ["Hóa đơn", "Smørrebrød", "كِتَابٌ", "أحمد", "שָׁלוֹם"] {
        store.create(&ann, title).await;
    }
    for (text, title) in [
        ("creme brulee", "Crème BRÛLÉE"),
        ("CRÈME", "Crème BRÛLÉE"),
        ("bru cre", "Crème BRÛLÉE"),
        ("strasse", "Straße"),
        ("東京", "東京タワー"),
        ("タワ", "東京タワー"),
        ("ελλαδα", "Ελλάδα"),
        ("hoa don", "Hóa đơn"),
        ("HÓA ĐƠN", "Hóa đơn"),
        ("smorrebrod", "Smørrebrød"),
        ("كتاب", "كِتَابٌ"),
        ("كِتَابٌ", "كِتَابٌ"),
        ("احمد", "أحمد"),
        ("שלום", "שָׁלוֹם"),
        ("foo.bar@exam", "foo.bar@example.com"),
        ("bar@example", "foo.bar@example.com"),
        ("it's", "it's"),
        (&long, &long),
    ] {
        assert_eq!(titles(&store, &ann, text).await, [title], "{text}");
    }
    assert!(titles(&store, &ann, "京東").await.is_empty(), "characters of a phrase in their order");
}

/// Indexes are not made anew when texts are folded further.
async fn words_in_an_older_index_are_found_as_they_were(store: TestStore) {
    let ann = store.workspace("ann").await;
    store.create(&ann, "Łódź").await;
    match &store.behind {
        Behind::Sqlite(folder) => {
            let db = rusqlite(folder);
            db.execute("DELETE FROM title_search", []).unwrap();
            let text = "INSERT INTO title_search (rowid, words) SELECT pk, 'łodz' FROM chat_conversations";
            db.execute(text, []).unwrap();
        }
        Behind::Postgres(database) => {
            let text = "UPDATE title_search SET words = ($1 || ' łodz:1')::tsvector";
            let word = format!("'@{}'", ann.workspace.simple());
            superuser(database).await.execute(text, &[&word]).await.unwrap();
        }
    }
    let page = found(&store, &ann, &ask("łód")).await;
    assert_eq!(page.items[0].highlights[0].ranges, [[0, 3]]);
    assert_eq!(titles(&store, &ann, "x ŁÓDŹ").await.len(), 0);
}

async fn every_word_must_be_there(store: TestStore) {
    let ann = store.workspace("ann").await;
    store.create(&ann, "red green blue").await;
    store.create(&ann, "red").await;
    let split = store.create(&ann, "green").await;
    store.say(&ann, split.id, MessageRole::User, "red").await;
    assert_eq!(titles(&store, &ann, "blue red").await, ["red green blue"]);
    assert_eq!(titles(&store, &ann, "green red").await, ["red green blue"], "in one text");
    assert_eq!(titles(&store, &ann, "green-blue").await, ["red green blue"], "a phrase");
    assert!(titles(&store, &ann, "blue-green").await.is_empty());
    assert!(titles(&store, &ann, "red-blue").await.is_empty());
}

async fn highlights_show_what_matched(store: TestStore) {
    let ann = store.workspace("ann").await;
    let thread = store.create(&ann, "Alpha beta").await;
    for n in 0..5 {
        store.say(&ann, thread.id, MessageRole::User, &format!("{n} <b>alphabet</b>")).await;
    }
    let page = found(&store, &ann, &ask("alpha")).await;
    let highlights = &page.items[0].highlights;
    assert_eq!(highlights[0].field, "title");
    assert_eq!((highlights[0].text.as_str(), &highlights[0].ranges), ("Alpha beta", &vec![[0, 5]]));
    let messages: Vec<&str> = highlights[1..].iter().map(|shown| shown.text.as_str()).collect();
    assert_eq!(messages, ["4 <b>alphabet</b>", "3 <b>alphabet</b>", "2 <b>alphabet</b>"], "the newest");
    assert_eq!(highlights[1].ranges, [[5, 10]]);
    let thread = store.get_thread(&ann, thread.id, Some(domain::message::Window::All).into()).await.unwrap();
    assert_eq!(highlights[1].message_id, Some(thread.messages[4].id));
}

async fn searchers_find_only_what_they_may_see(store: TestStore) {
    let admin = store.workspace("root").await;
    let (ann, bob) = (member(&admin, "ann"), member(&admin, "bob"));
    let elsewhere = store.workspace("ann").await;
    let private = store.create(&ann, "secret plan").await;
    let shared = store.create_shared(&ann, "shared plan").await;
    let untitled = store.make(&ann, NewConversation::default()).await.unwrap();
    for id in [private.id, shared.id, untitled.id] {
        store.say(&ann, id, MessageRole::Assistant, "plan in a message").await;
    }
    assert_eq!(titles(&store, &ann, "plan").await, ["shared plan", "secret plan", ""]);
    assert_eq!(titles(&store, &admin, "plan").await.len(), 3);
    assert_eq!(titles(&store, &bob, "plan").await, ["shared plan"]);
    assert_eq!(titles(&store, &bob, "message").await, ["shared plan"]);
    assert!(titles(&store, &elsewhere, "plan").await.is_empty());
    store.patch(&ann, shared.id, |patch| patch.visibility = Some(Visibility::Private)).await.unwrap();
    assert!(titles(&store, &bob, "plan").await.is_empty());
}

async fn the_index_follows_titles_and_deletes(store: TestStore) {
    let ann = store.workspace("ann").await;
    let thread = store.create(&ann, "before").await;
    store.say(&ann, thread.id, MessageRole::User, "word").await;
    store.patch(&ann, thread.id, |patch| patch.title = Some(Some("after".into()))).await.unwrap();
    assert!(titles(&store, &ann, "before").await.is_empty());
    assert_eq!(titles(&store, &ann, "after").await, ["after"]);
    store.patch(&ann, thread.id, |patch| patch.title = Some(None)).await.unwrap();
    assert!(titles(&store, &ann, "after").await.is_empty());
    // A title made from the first message is found, too.
    let made = store.make(&ann, NewConversation::default()).await.unwrap();
    store.say(&ann, made.id, MessageRole::User, "automatic").await;
    let hit = &found(&store, &ann, &ask("automatic")).await.items[0];
    assert_eq!(hit.highlights[0].field, "title");

    store.delete_conversation(&ann, thread.id, None, store.now()).await.unwrap();
    assert!(titles(&store, &ann, "word").await.is_empty());
    let filter = ConversationFilter { deleted: true, ..Default::default() };
    let page = found(&store, &ann, &ConversationSearch { filter, ..ask("word") }).await;
    assert_eq!(page.items.len(), 1);
    store.restore_conversation(&ann, thread.id, store.now()).await.unwrap();
    assert_eq!(titles(&store, &ann, "word").await.len(), 1);
}

async fn filters_sorts_and_pages_hold_in_a_search(store: TestStore) {
    let ann = store.workspace("ann").await;
    for (title, source) in
        [("c word", None), ("a word", Some(Source::Web)), ("b word", Some(Source::Extension))]
    {
        let mut new = NewConversation { source, ..Default::default() };
        new.patch.title = Some(Some(title.into()));
        new.patch.context = Some(Some("{}".into()));
        store.make(&ann, new).await.unwrap();
    }
    let named = |page: &Page<Found>| -> Vec<String> {
        page.items.iter().map(|hit| hit.conversation.title.clone().unwrap()).collect()
    };
    let filter = ConversationFilter { source: Some(Source::Web), ..Default::default() };
    let page = found(&store, &ann, &ConversationSearch { filter, ..ask("word") }).await;
    assert_eq!(named(&page), ["a word", "c word"]);
    let sort = Some(Sort { key: SortKey::Title, descending: false });
    let sorted = ConversationSearch { sort, limit: 2, ..ask("word") };
    let page = found(&store, &ann, &sorted).await;
    assert_eq!(
        (named(&page), page.has_before, page.has_after),
        (vec!["a word".into(), "b word".into()], false, true)
    );
    assert_eq!(page.items[0].conversation.context, None);
    let rest = ConversationSearch { offset: 2, with_context: true, ..sorted };
    let page = found(&store, &ann, &rest).await;
    assert_eq!((named(&page), page.has_before, page.has_after), (vec!["c word".into()], true, false));
    assert_eq!(page.items[0].conversation.context.as_deref(), Some("{}"));
}

async fn hostile_queries_are_only_words(store: TestStore) {
    let ann = store.workspace("ann").await;
    store.create(&ann, "AND OR NOT NEAR").await;
    for text in [
        "\" OR title:*",
        "a' & 'b",
        "x:* | y",
        "!important",
        "NEAR(a b)",
        "q\\",
        "^q",
        "{a} : b",
        "%",
        "; DROP TABLE messages --",
        "@0123",
    ] {
        if let Some(query) = Query::parse(text) {
            let search = ConversationSearch { query, ..ask("x") };
            assert!(found(&store, &ann, &search).await.items.is_empty(), "{text}");
        }
    }
    assert_eq!(titles(&store, &ann, "not and").await.len(), 1);
}

async fn a_long_thread_hides_no_other_conversation(store: TestStore) {
    let ann = store.workspace("ann").await;
    let old = store.create(&ann, "old").await;
    store.say(&ann, old.id, MessageRole::User, "omega here").await;
    let long = store.create(&ann, "long").await;
    let now = store.write().now;
    let said = |n| NewMessage::text(store.new_id(), MessageRole::User, format!("omega {n}"), now);
    let messages: Vec<NewMessage> = (0..2600).map(said).collect();
    store.append_messages(&ann, long.id, None, &messages, now).await.unwrap();
    let page = found(&store, &ann, &ask("omega")).await;
    let shown = |hit: &Found| hit.highlights.iter().map(|shown| shown.text.clone()).collect::<Vec<_>>();
    assert_eq!(page.items.iter().map(|hit| hit.conversation.id).collect::<Vec<_>>(), [long.id, old.id]);
    assert_eq!(shown(&page.items[0]), ["omega 2599", "omega 2598", "omega 2597"]);
    assert_eq!(shown(&page.items[1]), ["omega here"]);
}

async fn whole_words_in_titles_are_found_behind_any_number_of_beginnings(store: TestStore) {
    let ann = store.workspace("ann").await;
    store.create(&ann, "alpha").await;
    for n in 0..1100 {
        store.create(&ann, &format!("alphabet {n}")).await;
    }
    let page = found(&store, &ann, &ConversationSearch { limit: 2, ..ask("alpha") }).await;
    let named: Vec<_> = page.items.iter().map(|hit| hit.conversation.title.clone().unwrap()).collect();
    assert_eq!((named, page.has_after), (vec!["alpha".into(), "alphabet 1099".into()], true));
    let last = found(&store, &ann, &ConversationSearch { offset: 1000, ..ask("alpha") }).await;
    assert_eq!((last.items.len(), last.has_after), (1, false), "the beginnings that take part, and one more");
}

/// PostgreSQL answers words that are everywhere by another way than rare ones.
#[tokio::test]
async fn words_that_are_everywhere_are_found_newest_first() {
    let Some(store) = crate::setup::postgres().await else { return };
    let Behind::Postgres(database) = &store.behind else { panic!("a test of PostgreSQL") };
    let ann = store.workspace("ann").await;
    let elsewhere = store.workspace("ann").await;
    let root = superuser(database).await;
    for scope in [&ann, &elsewhere] {
        let word = format!("'@{}'", scope.workspace.simple());
        let text = "INSERT INTO chat_conversations (workspace_id, id, org_id, user_id, title, kind, visibility, \
                    created_at, updated_at, version) \
                    SELECT $1, gen_random_uuid(), 'acme', CASE WHEN n % 2 = 0 THEN 'bob' ELSE 'cat' END, \
                    'word ' || n, 'model_chat', 'private', now(), now() + n * interval '1 second', 1 \
                    FROM generate_series(1, 11000) n";
        root.execute(text, &[&scope.workspace]).await.unwrap();
        let text = "INSERT INTO title_search SELECT workspace_id, id, ($2 || ' word:1')::tsvector \
                    FROM chat_conversations WHERE workspace_id = $1";
        root.execute(text, &[&scope.workspace, &word]).await.unwrap();
        let text = "INSERT INTO message_search SELECT workspace_id, id, id, 1, updated_at, \
                    ($2 || ' everywhere:1')::tsvector FROM chat_conversations WHERE workspace_id = $1";
        root.execute(text, &[&scope.workspace, &word]).await.unwrap();
        // The newest is a long thread.
        let text = "INSERT INTO message_search SELECT workspace_id, id, gen_random_uuid(), n, updated_at, \
                    ($2 || ' everywhere:1')::tsvector FROM chat_conversations, generate_series(2, 6000) n \
                    WHERE workspace_id = $1 AND title = 'word 11000'";
        root.execute(text, &[&scope.workspace, &word]).await.unwrap();
    }
    for (scope, numbers) in [(member(&ann, "bob"), [11000, 10998]), (ann.clone(), [11000, 10999])] {
        for text in ["word", "everywhere"] {
            let named = titles(&store, &scope, text).await;
            assert_eq!((named.len(), &named[..2]), (50, &numbers.map(|n| format!("word {n}"))[..]), "{text}");
            let last = found(&store, &scope, &ConversationSearch { offset: 990, ..ask(text) }).await;
            assert_eq!((last.items.len(), last.has_after), (10, false), "as many as take part");
            assert!(last.items.iter().all(|hit| hit.conversation.workspace == ann.workspace));
        }
    }
    assert!(titles(&store, &member(&ann, "eve"), "word").await.is_empty());
}
