//! Forks: the thread goes with copies of its files, and names the copies.

use std::sync::Arc;

use domain::file::{Bag, File};
use domain::message::{Block, MessageRole, NewMessage};
use domain::run::StartTurn;
use domain::scope::Scope;
use domain::time::from_ms;
use store::bag::sweep_forks;
use store::blobs::Blobs;
use store::files::{Fork, Purgeable};
use store::turns::Settlement;
use uuid::Uuid;

use crate::bag::{ROOMY, names};
use crate::play::{events, turn};
use crate::setup::{Behind, TestStore, fails, member, superuser};

on_both!(
    a_fork_names_copies_of_its_files,
    a_fork_takes_the_files_of_its_thread,
    what_is_deleted_meanwhile_is_left_out,
    only_who_sees_a_thread_forks_its_files,
    a_long_thread_is_forked_whole,
    what_is_deleted_while_it_is_forked_is_not_forked,
);

fn block(file: &File) -> Block {
    Block::File {
        file_id: file.id,
        name: file.name.clone(),
        mime_type: file.mime_type.clone(),
        size: file.digest.size,
        sha256: file.sha256_hex(),
    }
}

/// A turn with a file of the user's and one that its sandbox sent back; the answer's last message id.
async fn turn_with_files(store: &TestStore, scope: &Scope, id: Uuid, n: u32) -> (File, File, Uuid) {
    let bag = Bag::Conversation(id);
    let mine = store.upload(scope, bag, &format!("mine-{n}")).await;
    let asked = StartTurn { attachments: Some(vec![mine.id]), ..turn(Some(id), "go") };
    let (_, held) = store.started(scope, asked).await;
    let sent = store.sent_back(scope, bag, &[&format!("made-{n}")]).await;
    let made = store.keep_results(&held, &sent, ROOMY, store.now()).await.unwrap().remove(0);
    let settlement = store.settlement("", events(2, 2));
    // A step that names a file in its own way is not ours to change.
    let args = format!(r#"{{"fileId": "{}"}}"#, mine.id);
    let step = Block::Step {
        id: "s".into(),
        name: "read".into(),
        status: domain::event::StepStatus::Succeeded,
        args: Some(serde_json::value::RawValue::from_string(args).unwrap()),
        result: None,
        error: None,
        duration_ms: None,
        started_at: 1,
    };
    let text = Block::Text { text: format!("\"fileId\":\"{}\"", made.id) };
    let content = vec![step, block(&made), text];
    let said = |said: Arc<NewMessage>| NewMessage::new(said.id, said.role, &content, said.created_at).into();
    let assistant = settlement.assistant.map(said);
    let run = store.settle_turn(&held, &Settlement { assistant, ..settlement }).await.unwrap();
    (mine, made, run.run.assistant_message.unwrap())
}

async fn fork(store: &TestStore, scope: &Scope, id: Uuid, through: Uuid) -> (Uuid, Vec<(Uuid, Uuid)>) {
    let files = store.list_fork_files(scope, id, through).await.unwrap();
    let files: Vec<_> = files.iter().map(|file| (file.id, store.new_id())).collect();
    let fork = Fork { id: store.new_id(), files: files.clone(), now: store.write().now };
    store.fork_conversation(scope, id, through, &fork).await.unwrap();
    (fork.id, files)
}

async fn a_fork_names_copies_of_its_files(store: TestStore) {
    let ann = store.workspace("ann").await;
    let id = store.create(&ann, "t").await.id;
    let (mine, made, through) = turn_with_files(&store, &ann, id, 1).await;
    let source = store.thread(&ann, id, None).await.messages;
    let (at, copies) = fork(&store, &ann, id, through).await;
    assert_eq!(copies.iter().map(|(source, _)| *source).collect::<Vec<_>>(), [mine.id, made.id]);
    let (new_mine, new_made) = (copies[0].1, copies[1].1);
    let copied = store.thread(&ann, at, None).await.messages;
    let renamed = |text: &str, from: Uuid, to: Uuid| text.replace(&from.to_string(), &to.to_string());
    assert_eq!(copied[0].file_attachments, renamed(&source[0].file_attachments, mine.id, new_mine));
    let file_block = serde_json::to_string(&block(&made)).unwrap();
    assert!(source[1].content.contains(&file_block));
    let wanted = source[1].content.replace(&file_block, &renamed(&file_block, made.id, new_made));
    assert_eq!(copied[1].content, wanted);
    let bag = Bag::Conversation(at);
    let files = store.list_files(&ann, bag, None, 9).await.unwrap();
    for ((file, source), message) in files.iter().zip([&mine, &made]).zip([Some(copied[0].id), None]) {
        let wanted = File {
            id: file.id,
            bag,
            message,
            storage_key: bag.storage_key(ann.workspace, &source.name),
            ..source.clone()
        };
        assert_eq!(*file, wanted);
    }
    assert_eq!(crate::bag::ids(&files), [new_mine, new_made]);
    // The two bags go on apart, and the copies are the fork's in every way.
    store.delete_file(&ann, mine.id, store.now()).await.unwrap();
    assert_eq!(store.listed(&ann, bag).await, ["mine-1", "made-1"]);
    assert_eq!(store.thread(&ann, id, None).await.messages, source);
    let (_, held) = store.started(&ann, turn(Some(at), "next")).await;
    assert_eq!(names(&store.get_dispatch(&held, 9).await.unwrap().files), ["made-1", "mine-1"]);
    // A fork of the fork takes them along.
    let (again, copies) = fork(&store, &ann, at, through).await;
    assert_eq!(copies.len(), 2);
    assert_eq!(store.listed(&ann, Bag::Conversation(again)).await, ["mine-1", "made-1"]);
}

async fn a_fork_takes_the_files_of_its_thread(store: TestStore) {
    let ann = store.workspace("ann").await;
    let id = store.create(&ann, "t").await.id;
    let bag = Bag::Conversation(id);
    store.upload(&ann, bag, "early").await;
    let (mine, _, first) = turn_with_files(&store, &ann, id, 1).await;
    store.clock.advance_ms(1000);
    store.upload(&ann, bag, "late").await;
    let (_, _, second) = turn_with_files(&store, &ann, id, 2).await;
    store.reserve(&ann, bag, "reserved").await.unwrap();
    // Attached again later, it still belongs to its first message too.
    let again = StartTurn { attachments: Some(vec![mine.id]), ..turn(Some(id), "again") };
    let third = store.answered(&ann, again, "ok").await;
    let question = store.thread(&ann, id, None).await.messages[0].id;
    let through = async |message| {
        let files = store.list_fork_files(&ann, id, message).await.unwrap();
        files.into_iter().map(|file| file.name).collect::<Vec<_>>()
    };
    assert_eq!(through(question).await, ["early", "mine-1"]);
    assert_eq!(through(first).await, ["early", "mine-1", "made-1"]);
    let all = ["early", "mine-1", "made-1", "late", "mine-2", "made-2"];
    assert_eq!(through(second).await, all);
    assert_eq!(through(third.assistant_message.unwrap()).await, all);
    // On another branch other files stand.
    let edit =
        StartTurn { replace: Some(question), attachments: Some(Vec::new()), ..turn(Some(id), "edited") };
    let edited = store.answered(&ann, edit, "e").await;
    assert_eq!(through(edited.assistant_message.unwrap()).await, ["early", "late"]);
}

async fn what_is_deleted_meanwhile_is_left_out(store: TestStore) {
    let ann = store.workspace("ann").await;
    let id = store.create(&ann, "t").await.id;
    let (mine, made, through) = turn_with_files(&store, &ann, id, 1).await;
    store.delete_file(&ann, mine.id, store.now()).await.unwrap();
    let files = vec![(mine.id, store.new_id()), (made.id, store.new_id())];
    let fork = Fork { id: store.new_id(), files, now: store.write().now };
    store.fork_conversation(&ann, id, through, &fork).await.unwrap();
    assert_eq!(store.listed(&ann, Bag::Conversation(fork.id)).await, ["made-1"]);
    assert_eq!(names(&store.list_fork_files(&ann, id, through).await.unwrap()), ["made-1"]);
    // A file of another conversation is none of this one's, whoever names it.
    let other = store.create(&ann, "o").await.id;
    let said = store.answered(&ann, turn(Some(other), "x"), "y").await;
    let fork = Fork { id: store.new_id(), files: vec![(made.id, store.new_id())], now: store.write().now };
    store.fork_conversation(&ann, other, said.message.unwrap(), &fork).await.unwrap();
    assert!(store.listed(&ann, Bag::Conversation(fork.id)).await.is_empty());
}

async fn only_who_sees_a_thread_forks_its_files(store: TestStore) {
    let ann = store.workspace("ann").await;
    let (bob, carol) = (member(&ann, "bob"), member(&ann, "carol"));
    let id = store.create(&bob, "t").await.id;
    let (_, _, through) = turn_with_files(&store, &bob, id, 1).await;
    let eve = store.workspace("eve").await;
    for scope in [&carol, &eve] {
        assert_eq!(fails(store.list_fork_files(scope, id, through).await), "not found");
    }
    let missing = store.list_fork_files(&bob, id, store.new_id()).await;
    assert_eq!(fails(missing), "invalid /through");
    store.delete_conversation(&bob, id, None, store.write().now).await.unwrap();
    assert_eq!(fails(store.list_fork_files(&bob, id, through).await), "not found");
}

/// A thread over two branches, longer than what is copied at once, with files at both of its ends.
async fn long(store: &TestStore, scope: &Scope) -> (Uuid, Uuid) {
    let id = store.create(scope, "t").await.id;
    turn_with_files(store, scope, id, 1).await;
    let more = async |count: usize| {
        let now = store.write().now;
        let message = |n| NewMessage::text(store.new_id(), MessageRole::User, format!("word{n} said"), now);
        let all: Vec<NewMessage> = (0..count).map(message).collect();
        store.append_messages(scope, id, None, &all, now).await.unwrap();
        all[count / 2].id
    };
    let middle = more(250).await;
    let edit = StartTurn { replace: Some(middle), ..turn(Some(id), "edited") };
    store.answered(scope, edit, "again").await;
    more(1500).await;
    let (_, _, through) = turn_with_files(store, scope, id, 2).await;
    more(50).await;
    (id, through)
}

async fn a_long_thread_is_forked_whole(store: TestStore) {
    let ann = store.workspace("ann").await;
    let (id, through) = long(&store, &ann).await;
    let mut texts = store.texts(&ann, id, None).await;
    texts.truncate(texts.len() - 50);
    let (copy, files) = fork(&store, &ann, id, through).await;
    assert_eq!((store.texts(&ann, copy, None).await, files.len()), (texts, 4));
    let messages = store.thread(&ann, copy, None).await.messages;
    let named: Vec<_> = messages.iter().map(|message| message.file_attachments.as_str()).collect();
    for (_, copied) in &files[..] {
        let named = named.iter().filter(|named| named.contains(&copied.to_string())).count();
        let bag = store.list_files(&ann, Bag::Conversation(copy), None, 9).await.unwrap();
        let file = bag.iter().find(|file| file.id == *copied).unwrap();
        assert_eq!(named, usize::from(file.message.is_some()));
    }
    let search = domain::conversation::ConversationSearch {
        filter: crate::setup::newest().filter,
        query: domain::search::Query::parse("word299").unwrap(),
        sort: None,
        offset: 0,
        limit: 9,
        with_context: false,
    };
    assert_eq!(store.search_conversations(&ann, &search).await.unwrap().items.len(), 2);
    assert!(store.system_list_unmade_forks(from_ms(i64::MAX / 2), 9).await.unwrap().is_empty());
}

async fn what_is_deleted_while_it_is_forked_is_not_forked(store: TestStore) {
    let ann = store.workspace("ann").await;
    let (id, through) = long(&store, &ann).await;
    let forks = async || {
        let text = "SELECT count(*) FROM chat_conversations WHERE deleted_at IS NULL";
        store.count(text).await
    };
    let made = Fork { id: store.new_id(), files: Vec::new(), now: store.write().now };
    let mut fork = store.fork_conversation(&ann, id, through, &made);
    assert!(futures_util::poll!(&mut fork).is_pending());
    let (deleted, forked) =
        futures_util::join!(store.delete_conversation(&ann, id, None, store.write().now), fork);
    deleted.unwrap();
    // Whichever came first: no fork of what is deleted is only a part of it.
    match forked {
        Ok(_) => {
            assert_eq!(store.texts(&ann, made.id, None).await.len() as i64, made_of(&store, made.id).await);
        }
        Err(error) => assert_eq!((crate::setup::kind(&error), forks().await), ("not found".into(), 0)),
    }
}

async fn made_of(store: &TestStore, id: Uuid) -> i64 {
    let id = match &store.behind {
        Behind::Sqlite(_) => format!("x'{}'", id.simple()),
        Behind::Postgres(_) => format!("'{id}'"),
    };
    store.count(&format!("SELECT message_count FROM chat_conversations WHERE id = {id}")).await
}

/// The rows of all tables that a fork writes to.
async fn rows(store: &TestStore) -> Vec<i64> {
    let mut counts = Vec::new();
    for table in ["chat_conversations", "messages", "files", "title_search_docsize", "message_search_docsize"]
    {
        counts.push(store.count(&format!("SELECT count(*) FROM {table}")).await);
    }
    counts
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fork_that_is_broken_off_is_seen_by_nobody_and_swept() {
    let store = crate::setup::sqlite();
    let ann = store.workspace("ann").await;
    let (id, through) = long(&store, &ann).await;
    let files = store.list_fork_files(&ann, id, through).await.unwrap();
    let files: Vec<_> = files.iter().map(|file| (file.id, store.new_id())).collect();
    let before = rows(&store).await;
    let made = Fork { id: store.new_id(), files, now: store.write().now };
    {
        let mut fork = store.fork_conversation(&ann, id, through, &made);
        // So far, and no further, as when the process dies.
        while rows(&store).await[1] == before[1] {
            assert!(futures_util::poll!(&mut fork).is_pending(), "in one piece");
        }
    }
    let there = rows(&store).await;
    assert!(there[1] - before[1] < 1000 && there[0] == before[0] + 1, "{there:?}");
    let gone = store.get_thread(&ann, made.id, None.into()).await;
    assert_eq!(fails(gone), "not found");
    let later = store.write().now;
    assert_eq!(fails(store.restore_conversation(&ann, made.id, later).await), "not found");
    let mut trash = crate::setup::newest();
    trash.filter.deleted = true;
    assert!(store.list_conversations(&ann, &trash).await.unwrap().items.is_empty());
    assert_eq!(store.titles(&ann, &crate::setup::newest()).await, ["t"]);
    assert!(store.system_list_purgeable(later, 9).await.unwrap().is_empty(), "it may be under way");
    assert!(store.system_list_unmade_forks(made.now, 9).await.unwrap().is_empty());
    let folder = tempfile::tempdir().unwrap();
    let blobs = Blobs::folder(folder.path().to_owned()).await.unwrap();
    assert_eq!(sweep_forks(&*store.store, &blobs, made.now).await.unwrap(), 0);
    assert_eq!(sweep_forks(&*store.store, &blobs, later).await.unwrap(), 1);
    assert_eq!(rows(&store).await, before);
    let again = Fork { files: Vec::new(), ..made };
    store.fork_conversation(&ann, id, through, &again).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fork_that_was_swept_does_not_come_to_light() {
    let store = crate::setup::sqlite();
    let ann = store.workspace("ann").await;
    let (id, through) = long(&store, &ann).await;
    let before = rows(&store).await;
    let made = Fork { id: store.new_id(), files: Vec::new(), now: store.write().now };
    let mut fork = store.fork_conversation(&ann, id, through, &made);
    while rows(&store).await[1] == before[1] {
        assert!(futures_util::poll!(&mut fork).is_pending(), "in one piece");
    }
    let of = Purgeable { workspace: ann.workspace, conversation: made.id };
    store.system_begin_purge(&of).await.unwrap();
    assert_eq!(fails(fork.await), "unavailable");
    store.system_purge(&of).await.unwrap();
    assert_eq!(rows(&store).await, before);
}

/// A turn's begin and end lock the conversation so.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_postgres_a_fork_and_the_turns_of_its_thread_do_not_wait_for_each_other() {
    let Some(store) = crate::setup::postgres().await else { return };
    let Behind::Postgres(database) = &store.behind else { return };
    let ann = store.workspace("ann").await;
    let id = store.create(&ann, "t").await.id;
    let (_, _, through) = turn_with_files(&store, &ann, id, 1).await;
    let turn = superuser(database).await;
    turn.batch_execute("BEGIN; SELECT FROM chat_conversations FOR NO KEY UPDATE").await.unwrap();
    let made = Fork { id: store.new_id(), files: Vec::new(), now: store.write().now };
    let forked = store.fork_conversation(&ann, id, through, &made);
    let forked = tokio::time::timeout(std::time::Duration::from_secs(60), forked).await;
    forked.expect("the fork waits for the turn").unwrap();
}
