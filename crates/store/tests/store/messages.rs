//! Appending messages and reading windows of a thread.

use domain::message::{Block, MessageRole, NewMessage, Window};
use futures_util::future::join_all;

use crate::setup::{TestStore, fails, member};

on_both!(
    messages_come_back_in_order_and_as_they_were_written,
    windows_end_at_the_newest_or_before_a_message,
    counters_preview_and_title_follow_the_messages,
    a_title_that_was_given_stays,
    a_message_id_is_taken_once_per_thread_and_nothing_is_half_written,
    parallel_appends_are_all_there_in_one_order,
    shared_threads_are_written_by_members,
);

async fn messages_come_back_in_order_and_as_they_were_written(store: TestStore) {
    let ann = store.workspace("ann").await;
    let thread = store.create(&ann, "t").await;
    let now = store.write().now;
    let raw = serde_json::value::RawValue::from_string(r#"{"z":1.50,"a":[ ]}"#.into()).unwrap();
    let step = Block::Step {
        id: "s".into(),
        name: "run".into(),
        status: domain::event::StepStatus::Succeeded,
        args: Some(raw),
        result: None,
        error: None,
        duration_ms: None,
        started_at: 1,
    };
    let blocks = [
        Block::Reasoning { text: "hm".into() },
        Block::Text { text: "one".into() },
        step,
        Block::Text { text: "two \u{1F9F5}".into() },
    ];
    let rich = NewMessage {
        file_attachments: r#"[{"id": 1}]"#.into(),
        sources: r#"[ "x" ]"#.into(),
        token_count: 42,
        metadata: r#"{"k" : 1e3}"#.into(),
        ..NewMessage::new(store.new_id(), MessageRole::Assistant, &blocks, now)
    };
    let plain = NewMessage::text(store.new_id(), MessageRole::System, "rules", now);
    store.append_messages(&ann, thread.id, None, &[rich.clone(), plain.clone()], now).await.unwrap();
    let read = store.get_thread(&ann, thread.id, Some(Window::All).into()).await.unwrap();
    let [first, second] = &read.messages[..] else { panic!("{:?}", read.messages) };
    assert_eq!((first.id, first.seq, first.role), (rich.id, 1, MessageRole::Assistant));
    assert_eq!(first.text, "one\n\ntwo \u{1F9F5}");
    assert_eq!(first.content, serde_json::to_string(&blocks).unwrap());
    assert_eq!(
        (&first.file_attachments, &first.sources, &first.metadata),
        (&rich.file_attachments, &rich.sources, &rich.metadata)
    );
    assert_eq!((first.token_count, first.created_at), (42, now));
    assert_eq!(
        (second.id, second.seq, second.role, second.text.as_str()),
        (plain.id, 2, MessageRole::System, "rules")
    );
    assert!(!read.has_before);
}

async fn windows_end_at_the_newest_or_before_a_message(store: TestStore) {
    let ann = store.workspace("ann").await;
    let thread = store.create(&ann, "t").await;
    let other = store.create(&ann, "o").await;
    store.say(&ann, other.id, MessageRole::User, "elsewhere").await;
    for n in 1..=5 {
        store.say(&ann, thread.id, MessageRole::User, &n.to_string()).await;
    }
    let all = store.get_thread(&ann, thread.id, Some(Window::All).into()).await.unwrap().messages;
    let id = |n: usize| all[n - 1].id;
    for (window, texts, has_before) in [
        (Window::Newest { limit: 2 }, vec!["4", "5"], true),
        (Window::Newest { limit: 5 }, vec!["1", "2", "3", "4", "5"], false),
        (Window::Newest { limit: 50 }, vec!["1", "2", "3", "4", "5"], false),
        (Window::Before { message: id(4), limit: 2 }, vec!["2", "3"], true),
        (Window::Before { message: id(3), limit: 2 }, vec!["1", "2"], false),
        (Window::Before { message: id(1), limit: 2 }, vec![], false),
    ] {
        let read = store.get_thread(&ann, thread.id, Some(window).into()).await.unwrap();
        let found: Vec<&str> = read.messages.iter().map(|message| message.text.as_str()).collect();
        assert_eq!((found, read.has_before), (texts, has_before), "{window:?}");
    }
    let foreign = store.get_thread(&ann, other.id, Some(Window::All).into()).await.unwrap().messages[0].id;
    for message in [foreign, store.new_id()] {
        let read = store.get_thread(&ann, thread.id, Some(Window::Before { message, limit: 2 }).into()).await;
        assert_eq!(fails(read), "not found");
    }
}

async fn counters_preview_and_title_follow_the_messages(store: TestStore) {
    let ann = store.workspace("ann").await;
    let thread = store.make(&ann, Default::default()).await.unwrap();
    let answer = store.say(&ann, thread.id, MessageRole::Assistant, "hello").await;
    assert_eq!((answer.message_count, &answer.title, answer.first_message), (1, &None, None));
    let now = store.write().now;
    let first = NewMessage {
        token_count: 7,
        ..NewMessage::text(store.new_id(), MessageRole::User, "\n  What is it?  \nmore", now)
    };
    let asked =
        store.append_messages(&ann, thread.id, None, std::slice::from_ref(&first), now).await.unwrap();
    assert_eq!(asked.title.as_deref(), Some("What is it?"));
    assert_eq!(asked.preview.as_deref(), Some("What is it?"));
    assert_eq!(asked.first_message, Some(first.id));
    assert_eq!((asked.message_count, asked.total_tokens, asked.version), (2, 7, 3));
    let more = store.say(&ann, thread.id, MessageRole::User, "and then?").await;
    assert_eq!((more.title, more.first_message), (asked.title, asked.first_message));
    assert_eq!(
        store
            .get_thread(&ann, thread.id, store::ThreadRead::default())
            .await
            .unwrap()
            .conversation
            .message_count,
        3
    );
}

async fn a_title_that_was_given_stays(store: TestStore) {
    let ann = store.workspace("ann").await;
    let thread = store.create(&ann, "mine").await;
    let asked = store.say(&ann, thread.id, MessageRole::User, "hello").await;
    assert_eq!((asked.title.as_deref(), asked.preview.as_deref()), (Some("mine"), Some("hello")));
}

async fn a_message_id_is_taken_once_per_thread_and_nothing_is_half_written(store: TestStore) {
    let ann = store.workspace("ann").await;
    let thread = store.create(&ann, "t").await;
    let other = store.create(&ann, "o").await;
    let now = store.write().now;
    let message = NewMessage::text(store.new_id(), MessageRole::User, "x", now);
    let fresh = NewMessage::text(store.new_id(), MessageRole::User, "y", now);
    store.append_messages(&ann, thread.id, None, std::slice::from_ref(&message), now).await.unwrap();
    let before = store.get_thread(&ann, thread.id, Some(Window::All).into()).await.unwrap();
    let twice = store.append_messages(&ann, thread.id, None, &[fresh, message.clone()], now).await;
    assert_eq!(fails(twice), "message id taken");
    assert_eq!(store.get_thread(&ann, thread.id, Some(Window::All).into()).await.unwrap(), before);
    store.append_messages(&ann, other.id, None, &[message], now).await.unwrap();
}

async fn parallel_appends_are_all_there_in_one_order(store: TestStore) {
    let ann = store.workspace("ann").await;
    let thread = store.create(&ann, "t").await;
    let now = store.write().now;
    let pairs: Vec<[NewMessage; 2]> = (0..20)
        .map(|n| {
            let text = |role, word: &str| NewMessage::text(store.new_id(), role, format!("{word} {n}"), now);
            [text(MessageRole::User, "ask"), text(MessageRole::Assistant, "answer")]
        })
        .collect();
    let appends = pairs.iter().map(|pair| store.append_messages(&ann, thread.id, None, pair, now));
    for done in join_all(appends).await {
        done.unwrap();
    }
    let read = store.get_thread(&ann, thread.id, Some(Window::All).into()).await.unwrap();
    assert_eq!((read.conversation.message_count, read.messages.len()), (40, 40));
    for (n, message) in read.messages.iter().enumerate() {
        assert_eq!(message.seq, n as i64 + 1);
    }
    for pair in read.messages.chunks(2) {
        assert_eq!(pair[0].text.replace("ask", "answer"), pair[1].text, "a pair stays together");
    }
}

async fn shared_threads_are_written_by_members(store: TestStore) {
    let ann = store.workspace("ann").await;
    let bob = member(&ann, "bob");
    let shared = store.create_shared(&ann, "t").await;
    let said = store.say(&bob, shared.id, MessageRole::User, "hello").await;
    assert_eq!((said.owner.as_str(), said.message_count), ("ann", 1));
    assert_eq!(store.get_thread(&ann, shared.id, Some(Window::All).into()).await.unwrap().messages.len(), 1);
}
