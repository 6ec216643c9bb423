//! The word index: kept with the rows it describes, in the same transaction.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};

use domain::conversation::{ConversationSearch, Found, Page};
use domain::scope::Scope;
use domain::search::{highlight_message, highlight_title, index_text};
use rusqlite::{Connection, params, params_from_iter};
use uuid::Uuid;

use super::{conversations, messages};
use crate::error::Result;
use crate::list::{self, Dialect, Sql, Value};
use crate::search::{self, CANDIDATES, MESSAGES, ROUNDS};

/// What of a row can be found by its words.
#[derive(Clone, Copy)]
pub(super) enum Indexed {
    Title,
    Message,
}

/// The words of one row, on their way into the index.
struct Words {
    of: Indexed,
    pk: i64,
    words: Option<String>,
    /// Others may be in the index already.
    replaces: bool,
}

thread_local! {
    /// Of the writer's transaction under way: words go into the index together at its end. In between, nearly every
    /// other statement would make FTS5 write out what it has gathered.
    static PENDING: RefCell<Vec<Words>> = const { RefCell::new(Vec::new()) };
}

/// Adds the words of a new row. For the writer's thread alone, which calls `index_pending` before it commits.
pub(super) fn index(of: Indexed, pk: i64, text: &str) {
    push(Words { of, pk, words: Some(index_text(text)), replaces: false });
}

/// As `index`, for a row that may have had other words before.
pub(super) fn reindex(of: Indexed, pk: i64, text: Option<&str>) {
    push(Words { of, pk, words: text.map(index_text), replaces: true });
}

fn push(words: Words) {
    PENDING.with_borrow_mut(|pending| pending.push(words));
}

pub(super) fn index_pending(db: &Connection) -> rusqlite::Result<()> {
    for Words { of, pk, words, replaces } in PENDING.take() {
        let (delete, insert) = match of {
            Indexed::Title => (
                "DELETE FROM title_search WHERE rowid = ?1",
                "INSERT INTO title_search (rowid, words) VALUES (?1, ?2)",
            ),
            Indexed::Message => (
                "DELETE FROM message_search WHERE rowid = ?1",
                "INSERT INTO message_search (rowid, words) VALUES (?1, ?2)",
            ),
        };
        if replaces {
            db.prepare_cached(delete)?.execute([pk])?;
        }
        if let Some(words) = words {
            db.prepare_cached(insert)?.execute(params![pk, words])?;
        }
    }
    Ok(())
}

/// How much is pending, to come back to.
pub(super) fn pending() -> usize {
    PENDING.with_borrow(Vec::len)
}

/// Takes back what became pending since: it was rolled back.
pub(super) fn forget_pending(since: usize) {
    PENDING.with_borrow_mut(|pending| pending.truncate(since));
}

pub(super) fn search(db: &Connection, scope: &Scope, search: &ConversationSearch) -> Result<Page<Found>> {
    let matching = matching_messages(db, scope, search)?;
    let mut found = matching_titles(db, scope, search, search.query.fts5())?;
    let mut known: HashSet<Uuid> = found.iter().map(|conversation| conversation.id).collect();
    if found.len() == CANDIDATES {
        let whole = matching_titles(db, scope, search, search.query.fts5_whole())?;
        found.extend(whole.into_iter().filter(|conversation| known.insert(conversation.id)));
    }
    for id in matching.keys().filter(|id| !known.contains(id)) {
        let row = conversations::find(db, scope, *id, search.filter.deleted, search.with_context)?;
        found.extend(row.map(|(conversation, _)| conversation));
    }
    let (page, has_after) = search::page(found, matching, search);
    let items = page
        .into_iter()
        .map(|ranked| {
            let mut highlights = Vec::new();
            highlights
                .extend(ranked.conversation.title.as_deref().and_then(|t| highlight_title(t, &search.query)));
            for message in &ranked.messages {
                let text = messages::text(db, scope, ranked.conversation.id, *message)?;
                highlights.extend(highlight_message(*message, &text, &search.query));
            }
            Ok(Found { conversation: ranked.conversation, highlights })
        })
        .collect::<Result<_>>()?;
    Ok(Page { items, has_before: search.offset > 0, has_after })
}

/// The conditions every candidate must meet, and the bound words.
fn conditions(scope: &Scope, search: &ConversationSearch) -> (Sql, String) {
    let mut sql = Sql::new(Dialect::Sqlite);
    let visible = sql.visible(scope, search.filter.deleted);
    let sources = sql.sources(&search.filter).join(" OR ");
    let filters = sql.filters(&search.filter);
    (sql, format!("{visible} AND ({sources}) AND {filters}"))
}

fn matching_titles(
    db: &Connection,
    scope: &Scope,
    search: &ConversationSearch,
    words: String,
) -> Result<Vec<domain::conversation::Conversation>> {
    let (mut sql, conditions) = conditions(scope, search);
    let words = sql.bind(Value::Text(words));
    let columns = list::columns(search.with_context);
    let text = format!(
        "SELECT {columns} FROM title_search s JOIN chat_conversations c ON c.pk = s.rowid \
         WHERE title_search MATCH {words} AND {conditions} ORDER BY s.rowid DESC LIMIT {CANDIDATES}"
    );
    let mut statement = db.prepare_cached(&text)?;
    let rows = statement.query_map(params_from_iter(&sql.values), conversations::read)?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

/// Matching messages by their conversation, newest first.
fn matching_messages(
    db: &Connection,
    scope: &Scope,
    search: &ConversationSearch,
) -> Result<HashMap<Uuid, Vec<Uuid>>> {
    let (mut sql, conditions) = conditions(scope, search);
    let words = sql.bind(Value::Text(search.query.fts5()));
    let text = format!(
        "SELECT m.conversation_id, m.id FROM message_search s JOIN messages m ON m.pk = s.rowid \
         JOIN chat_conversations c ON c.workspace_id = m.workspace_id AND c.id = m.conversation_id \
         WHERE message_search MATCH {words} AND {conditions} ORDER BY s.rowid DESC"
    );
    let mut statement = db.prepare_cached(&text)?;
    let mut rows =
        statement.query_map(params_from_iter(&sql.values), |row| Ok((row.get(0)?, row.get(1)?)))?;
    let mut gathered = HashMap::new();
    for _ in 0..ROUNDS {
        let others = |row: &rusqlite::Result<(Uuid, Uuid)>| {
            !row.as_ref().is_ok_and(|(conversation, _)| gathered.contains_key(conversation))
        };
        let round = rows.by_ref().filter(others).take(MESSAGES).collect::<rusqlite::Result<_>>()?;
        if !search::gather(&mut gathered, round) {
            break;
        }
    }
    Ok(gathered)
}
