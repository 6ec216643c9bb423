//! Purge: every row of a conversation goes, and nothing of it is left in the file.

use domain::file::Bag;
use domain::message::{MessageRole, NewMessage, Window};
use domain::run::{OnBusy, StartTurn};
use domain::scope::Scope;
use domain::time::from_ms;
use store::bag::{BagError, Purged, purge, sweep_reservations};
use store::blobs::Blobs;
use store::files::Purgeable;
use store::turns::NewTurn;
use uuid::Uuid;

use crate::bag::ROOMY;
use crate::play::{events, key, turn};
use crate::setup::{Behind, TestStore, fails};

on_both!(
    a_purge_removes_every_row_of_a_conversation_and_no_other,
    what_is_being_purged_is_not_restored,
    only_what_was_deleted_long_ago_is_purgeable,
    a_run_of_a_purged_conversation_writes_nothing,
    the_store_goes_on_after_it_was_compacted,
    one_of_many_leaves_no_word_and_no_space,
    a_long_one_that_is_broken_off_is_gone_on_with,
    bytes_that_cannot_be_removed_hold_up_no_others,
    a_removed_workspace_goes_step_by_step,
);

/// Where rows of conversations lie, and which of them are the conversation's, whose id stands for `ID`.
const TABLES: [(&str, &str); 6] = [
    ("chat_conversations", "id = ID"),
    ("messages", "conversation_id = ID"),
    ("runs", "conversation_id = ID"),
    ("run_events", "run_id IN (SELECT id FROM runs WHERE conversation_id = ID)"),
    ("branches", "conversation_id = ID"),
    ("files", "conversation_id = ID"),
];

/// The word index, which PostgreSQL keeps in the rows themselves.
const WORDS: [(&str, &str); 2] = [
    ("title_search_docsize", "id IN (SELECT pk FROM chat_conversations WHERE id = ID)"),
    ("message_search_docsize", "id IN (SELECT pk FROM messages WHERE conversation_id = ID)"),
];

/// How many rows each table has, of one conversation or of all.
async fn counts(store: &TestStore, of: Option<Uuid>) -> Vec<i64> {
    let (tables, id) = match &store.behind {
        Behind::Sqlite(_) => ([&TABLES[..], &WORDS].concat(), of.map(|id| format!("x'{}'", id.simple()))),
        Behind::Postgres(_) => (TABLES.to_vec(), of.map(|id| format!("'{id}'"))),
    };
    let mut counts = Vec::new();
    for (table, whose) in tables {
        let whose = id.as_ref().map_or("TRUE".into(), |id| whose.replace("ID", id));
        counts.push(store.count(&format!("SELECT count(*) FROM {table} WHERE {whose}")).await);
    }
    counts
}

/// A conversation with one of everything, each with the word in it.
async fn full(store: &TestStore, scope: &Scope, word: &str) -> Uuid {
    let id = store.create(scope, &format!("{word} title")).await.id;
    let bag = Bag::Conversation(id);
    let file = store.upload(scope, bag, &format!("{word}.txt")).await;
    let ask = StartTurn { attachments: Some(vec![file.id]), ..turn(Some(id), &format!("{word} question")) };
    let mut new = store.new_turn(ask);
    new.idempotency = Some(key(&word.to_uppercase(), 1));
    store.begin_turn(scope, &new).await.unwrap();
    let held = store.take_over(scope, id, crate::play::NODE, 30).await.unwrap().unwrap();
    let sent = store.sent_back(scope, bag, &[&format!("{word}-made")]).await;
    store.keep_results(&held, &sent, ROOMY, store.now()).await.unwrap();
    let mut batch = events(2, 3);
    batch.entries = format!("{{\"text\":\"{word} event\"}}\n{{}}").into();
    let settlement = store.settlement(&format!("{word} answer {}", format!("{word} ").repeat(900)), batch);
    store.settle_turn(&held, &settlement).await.unwrap();
    // The first log is expired, the others are not; one of them is on a branch, and one is queued.
    store.system_expire(from_ms(store.now().as_millisecond() + 1), store.now(), 99).await.unwrap();
    let edit = StartTurn { replace: Some(new.message), ..turn(Some(id), &format!("{word} edit")) };
    store.answered(scope, edit, &format!("{word} again")).await;
    store.started(scope, turn(Some(id), &format!("{word} open"))).await;
    store.queued(scope, id, &format!("{word} queued"), OnBusy::Enqueue).await;
    store.reserve(scope, bag, &format!("{word}-reserved")).await.unwrap();
    id
}

async fn delete(store: &TestStore, scope: &Scope, conversation: Uuid) -> Purgeable {
    store.delete_conversation(scope, conversation, None, store.write().now).await.unwrap();
    Purgeable { workspace: scope.workspace, conversation }
}

async fn a_purge_removes_every_row_of_a_conversation_and_no_other(store: TestStore) {
    let (ann, eve) = (store.workspace("ann").await, store.workspace("eve").await);
    full(&store, &ann, "stays").await;
    full(&store, &eve, "stays").await;
    let id = full(&store, &ann, "canary").await;
    let (all, own) = (counts(&store, None).await, counts(&store, Some(id)).await);
    assert!(own.iter().all(|count| *count > 0), "{own:?}");
    let others: Vec<i64> = all.iter().zip(&own).map(|(all, own)| all - own).collect();
    let of = delete(&store, &ann, id).await;
    assert_eq!(fails(store.system_purge(&of).await), "not found");
    let mut doomed = store.system_begin_purge(&of).await.unwrap();
    doomed.sort_by(|a, b| a.storage_key.cmp(&b.storage_key));
    let keys: Vec<_> = doomed.iter().map(|file| file.storage_key.clone()).collect();
    let of_bag = |name| Bag::Conversation(id).storage_key(ann.workspace, name);
    assert_eq!(keys, [of_bag("canary-made"), of_bag("canary-reserved"), of_bag("canary.txt")]);
    // Begun again after a crash, it says the same.
    assert_eq!(store.system_begin_purge(&of).await.unwrap().len(), 3);
    store.system_purge(&of).await.unwrap();
    assert_eq!(counts(&store, None).await, others);
    assert_eq!(store.system_known_keys(&keys).await.unwrap(), [false; 3]);
    for again in [store.system_purge(&of).await, store.system_begin_purge(&of).await.map(drop)] {
        assert_eq!(fails(again), "not found");
    }
    assert!(store.system_list_purgeable(from_ms(i64::MAX / 2), 9).await.unwrap().is_empty());
    store.system_compact().await.unwrap();
    assert_eq!(counts(&store, None).await, others);
    if let Behind::Sqlite(folder) = &store.behind {
        assert!(traces(folder, b"stays") > 0, "the search for traces finds what is there");
        assert_eq!(traces(folder, b"canary"), 0);
        assert_eq!(traces(folder, id.to_string().as_bytes()), 0);
        assert_eq!(traces(folder, id.as_bytes()), 0);
    }
    // The request that began its first turn is known for its day, and makes no other.
    let mut new = store.new_turn(turn(None, "new"));
    let known = Some(key("CANARY", 1));
    new.idempotency = known.clone();
    assert_eq!(fails(store.begin_turn(&ann, &new).await), "not found");
    assert_eq!(fails(store.find_repeated(&ann, known.as_ref().unwrap(), store.now()).await), "not found");
    new.idempotency = Some(key("CANARY", 2));
    assert_eq!(crate::play::text(&store.begin_turn(&ann, &new).await.unwrap()), "key reused");
    store.clock.advance_ms(24 * 3600 * 1000);
    let new = NewTurn { idempotency: known, ..store.new_turn(turn(None, "new")) };
    assert_eq!(crate::play::text(&store.begin_turn(&ann, &new).await.unwrap()), "started");
}

/// How often a word stands in the store's files.
fn traces(folder: &tempfile::TempDir, word: &[u8]) -> usize {
    let mut found = 0;
    for entry in std::fs::read_dir(folder.path()).unwrap() {
        let bytes = std::fs::read(entry.unwrap().path()).unwrap();
        found += bytes.windows(word.len()).filter(|window| *window == word).count();
    }
    found
}

async fn what_is_being_purged_is_not_restored(store: TestStore) {
    let ann = store.workspace("ann").await;
    let id = store.create(&ann, "t").await.id;
    let of = Purgeable { workspace: ann.workspace, conversation: id };
    assert_eq!(fails(store.system_begin_purge(&of).await), "not found");
    store.upload(&ann, Bag::Conversation(id), "a").await;
    delete(&store, &ann, id).await;
    store.restore_conversation(&ann, id, store.write().now).await.unwrap();
    assert_eq!(fails(store.system_begin_purge(&of).await), "not found");
    delete(&store, &ann, id).await;
    store.system_begin_purge(&of).await.unwrap();
    assert_eq!(fails(store.restore_conversation(&ann, id, store.write().now).await), "not found");
    assert_eq!(fails(store.get_thread(&ann, id, Some(Window::All).into()).await), "not found");
    let elsewhere = Purgeable { workspace: store.workspace("eve").await.workspace, ..of };
    assert_eq!(fails(store.system_purge(&elsewhere).await), "not found");
    store.system_purge(&of).await.unwrap();
    assert_eq!(fails(store.restore_conversation(&ann, id, store.write().now).await), "not found");
}

async fn only_what_was_deleted_long_ago_is_purgeable(store: TestStore) {
    let (ann, eve) = (store.workspace("ann").await, store.workspace("eve").await);
    store.create(&ann, "live").await;
    let mut deleted = Vec::new();
    for scope in [&ann, &eve, &ann] {
        let id = store.create(scope, "t").await.id;
        deleted.push((delete(&store, scope, id).await, store.now()));
    }
    let list = async |before, limit| store.system_list_purgeable(before, limit).await.unwrap();
    assert!(list(deleted[0].1, 9).await.is_empty());
    assert_eq!(list(deleted[2].1, 9).await, [deleted[0].0, deleted[1].0]);
    let later = from_ms(store.now().as_millisecond() + 1);
    assert_eq!(list(later, 2).await, [deleted[0].0, deleted[1].0]);
    assert_eq!(list(later, 9).await.len(), 3);
    // One that was begun and not finished comes again.
    store.system_begin_purge(&deleted[0].0).await.unwrap();
    assert_eq!(list(later, 1).await, [deleted[0].0]);
}

async fn a_run_of_a_purged_conversation_writes_nothing(store: TestStore) {
    let ann = store.workspace("ann").await;
    let (run, held) = store.started(&ann, turn(None, "go")).await;
    let of = delete(&store, &ann, run.conversation.unwrap()).await;
    store.system_begin_purge(&of).await.unwrap();
    store.system_purge(&of).await.unwrap();
    assert_eq!(fails(store.append_events(&held, &events(2, 2)).await), "lost");
    assert_eq!(fails(store.settle_turn(&held, &store.settlement("x", events(2, 2))).await), "lost");
    assert_eq!(fails(store.keep_results(&held, &[], ROOMY, store.now()).await), "lost");
    assert_eq!(fails(store.get_dispatch(&held, 9).await), "lost");
}

async fn the_store_goes_on_after_it_was_compacted(store: TestStore) {
    let ann = store.workspace("ann").await;
    let id = full(&store, &ann, "before").await;
    let (compacted, _) = tokio::join!(store.system_compact(), full(&store, &ann, "meanwhile"));
    compacted.unwrap();
    store.system_compact().await.unwrap();
    full(&store, &ann, "after").await;
    assert_eq!(store.texts(&ann, id, None).await[0], "before edit");
    for word in ["before", "meanwhile", "after"] {
        let search = domain::conversation::ConversationSearch {
            filter: crate::setup::newest().filter,
            query: domain::search::Query::parse(word).unwrap(),
            sort: None,
            offset: 0,
            limit: 9,
            with_context: false,
        };
        assert_eq!(store.search_conversations(&ann, &search).await.unwrap().items.len(), 1, "{word}");
    }
}

async fn one_of_many_leaves_no_word_and_no_space(store: TestStore) {
    let ann = store.workspace("ann").await;
    let other = store.create(&ann, "other").await.id;
    let id = store.create(&ann, "zzcanary").await.id;
    for n in 0..200 {
        store.say(&ann, other, MessageRole::User, &format!("other word{n}")).await;
    }
    store.say(&ann, id, MessageRole::User, &"zzcanary ".repeat(200_000)).await;
    // In one piece with all others, the index only marks what is deleted.
    store.system_compact().await.unwrap();
    let before = size(&store);
    let of = delete(&store, &ann, id).await;
    store.system_begin_purge(&of).await.unwrap();
    store.system_purge(&of).await.unwrap();
    store.system_compact().await.unwrap();
    if let Behind::Sqlite(folder) = &store.behind {
        assert_eq!(traces(folder, b"zzcanary"), 0);
        assert!(size(&store) < before - 1_500_000, "{before} bytes and then {}", size(&store));
    }
    assert_eq!(store.texts(&ann, other, None).await.len(), 200);
}

async fn a_long_one_that_is_broken_off_is_gone_on_with(store: TestStore) {
    let ann = store.workspace("ann").await;
    full(&store, &ann, "stays").await;
    let id = full(&store, &ann, "canary").await;
    let now = store.write().now;
    let message = |n| NewMessage::text(store.new_id(), MessageRole::User, format!("canary {n}"), now);
    let all: Vec<NewMessage> = (0..3000).map(message).collect();
    store.append_messages(&ann, id, None, &all, now).await.unwrap();
    let of = delete(&store, &ann, id).await;
    store.system_begin_purge(&of).await.unwrap();
    let (all, whole) = (counts(&store, None).await, counts(&store, Some(id)).await);
    let others: Vec<i64> = all.iter().zip(&whole).map(|(all, own)| all - own).collect();
    {
        let mut purge = store.system_purge(&of);
        while futures_util::poll!(&mut purge).is_pending() && counts(&store, Some(id)).await == whole {}
    }
    // One file is purged part by part, so that others write in between; on a server nobody waits for it.
    let left = counts(&store, Some(id)).await;
    match &store.behind {
        Behind::Sqlite(_) => {
            assert!(left[0] == 1 && left[1] > 1000 && left != whole, "{left:?} of {whole:?}")
        }
        Behind::Postgres(_) => assert!(left == whole || left.iter().all(|count| *count == 0), "{left:?}"),
    }
    if left[0] == 1 {
        assert_eq!(fails(store.restore_conversation(&ann, id, store.write().now).await), "not found");
        let later = from_ms(i64::MAX / 2);
        assert_eq!(store.system_list_purgeable(later, 9).await.unwrap(), [of]);
        store.system_begin_purge(&of).await.unwrap();
        store.system_purge(&of).await.unwrap();
    }
    assert_eq!(counts(&store, None).await, others);
}

/// Puts a folder where the bytes of a key would be: nothing removes that.
fn stick(folder: &tempfile::TempDir, key: &str) {
    std::fs::create_dir_all(folder.path().join(key).join("in the way")).unwrap();
}

async fn bytes_that_cannot_be_removed_hold_up_no_others(store: TestStore) {
    let folder = tempfile::tempdir().unwrap();
    let blobs = Blobs::folder(folder.path().to_owned()).await.unwrap();
    let ann = store.workspace("ann").await;
    let live = store.create(&ann, "live").await.id;
    let mut keys = Vec::new();
    for n in 0..3 {
        let bag = Bag::Conversation(live);
        let reserved = store.reserve(&ann, bag, &format!("reserved-{n}")).await.unwrap();
        let file = store.upload(&ann, bag, &format!("deleted-{n}")).await;
        store.delete_file(&ann, file.id, store.write().now).await.unwrap();
        let chat = store.create(&ann, "t").await.id;
        let in_chat = store.upload(&ann, Bag::Conversation(chat), "f").await;
        delete(&store, &ann, chat).await;
        keys.push([reserved.storage_key, file.storage_key, in_chat.storage_key]);
    }
    // The oldest of each kind.
    keys[0].iter().for_each(|key| stick(&folder, key));
    let later = from_ms(store.write().now.as_millisecond() + 1);
    for _ in 0..2 {
        let swept = sweep_reservations(&*store.store, &blobs, later).await;
        assert!(matches!(swept, Err(BagError::Bytes(_))), "{swept:?}");
        let purged = purge(&*store.store, &blobs, later, |_| {}).await;
        assert!(matches!(purged, Err(BagError::Bytes(_))), "{purged:?}");
        for (at, keys) in keys.iter().enumerate() {
            assert_eq!(store.system_known_keys(keys).await.unwrap(), [at == 0; 3], "{at}");
        }
    }
    std::fs::remove_dir_all(folder.path()).unwrap();
    assert_eq!(sweep_reservations(&*store.store, &blobs, later).await.unwrap(), 1);
    let purged = purge(&*store.store, &blobs, later, |_| {}).await.unwrap();
    assert_eq!(purged, Purged { workspaces: 0, conversations: 1, files: 2 });
}

/// The bytes of the store's files; of a server's none.
fn size(store: &TestStore) -> u64 {
    let Behind::Sqlite(folder) = &store.behind else { return 0 };
    let files = std::fs::read_dir(folder.path()).unwrap();
    files.map(|entry| entry.unwrap().metadata().unwrap().len()).sum()
}

async fn a_removed_workspace_goes_step_by_step(store: TestStore) {
    let (ann, eve) = (store.workspace("ann").await, store.workspace("eve").await);
    store.executed(&eve, "stays").await;
    let id = store.create(&ann, "t").await.id;
    let (_, held) = store.executed(&ann, "one").await;
    store.executed(&ann, "two").await;
    let file = store.upload(&ann, Bag::Workspace, "a.txt").await;
    let new = NewTurn { idempotency: Some(key("k", 1)), ..store.new_turn(turn(Some(id), "go")) };
    store.begin_turn(&ann, &new).await.unwrap();
    let keys = async || store.count("SELECT count(*) FROM idempotency_keys").await;
    let step = async |limit| store.system_purge_removed(ann.workspace, limit).await;
    assert_eq!(fails(step(9).await), "not found", "it is live");
    let removed_at = store.write().now;
    store.remove_workspace(&ann, true, removed_at).await.unwrap();
    assert!(store.system_list_removed(removed_at).await.unwrap().is_empty());
    let later = from_ms(removed_at.as_millisecond() + 1);
    assert_eq!(store.system_list_removed(later).await.unwrap(), [ann.workspace]);
    assert_eq!(fails(step(9).await), "not found", "its conversation goes before it");
    let of = Purgeable { workspace: ann.workspace, conversation: id };
    store.system_begin_purge(&of).await.unwrap();
    store.system_purge(&of).await.unwrap();

    let runs = async || store.count("SELECT count(*) FROM runs").await;
    assert_eq!(keys().await, 1);
    assert_eq!((step(1).await.unwrap().unwrap().len(), runs().await), (0, 2));
    assert_eq!((step(1).await.unwrap().unwrap().len(), runs().await), (0, 1));
    // What was still under way writes nothing any more.
    assert_eq!(fails(store.append_events(&held, &events(2, 2)).await), "lost");
    let files = step(1).await.unwrap().unwrap();
    assert_eq!(files.iter().map(|doomed| doomed.id).collect::<Vec<_>>(), [file.id]);
    store.system_forget_files(ann.workspace, &[file.id]).await.unwrap();
    assert_eq!((step(1).await.unwrap(), keys().await), (None, 0));
    assert_eq!(fails(step(1).await), "not found", "it is gone");
    assert!(store.system_list_removed(later).await.unwrap().is_empty());
    assert_eq!(store.count("SELECT count(*) FROM workspaces").await, 1);
    store.system_compact().await.unwrap();
}
