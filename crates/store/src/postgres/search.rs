//! The word index: kept with the rows it describes, in the same transaction.
//!
//! It lies in tables of its own, whose row level security is the match itself: PostgreSQL evaluates a
//! policy before a query's own conditions unless those are leakproof, and `@@` is not, so a match asked
//! for by the query could never use the index.

use std::collections::{HashMap, HashSet};

use domain::conversation::{Conversation, ConversationSearch, Found, Page};
use domain::message::Message;
use domain::scope::Scope;
use domain::search::{highlight_message, highlight_title, index_tsvector};
use jiff::Timestamp;
use tokio_postgres::Row;
use uuid::Uuid;

use super::conversations;
use super::transaction::{Params, Settings, Transaction, params, workspace_word};
use crate::error::Result;
use crate::list::{self, Dialect, Sql};
use crate::search::{self, CANDIDATES, MESSAGES, ROUNDS, Ranked};

/// The words of a text as a tsvector, with the word that all documents of the workspace have.
pub(super) fn words(scope: &Scope, text: &str) -> String {
    format!("{} {}", workspace_word(scope.workspace), index_tsvector(text))
}

pub(super) async fn index_title(tx: &Transaction, scope: &Scope, conversation: &Conversation) -> Result<()> {
    let text =
        format!("DELETE FROM title_search WHERE {} AND conversation_id = $2", tx.inside("workspace_id"));
    tx.execute(&text, &[&scope.workspace, &conversation.id]).await?;
    if let Some(title) = &conversation.title {
        tx.execute(
            "INSERT INTO title_search (workspace_id, conversation_id, words) VALUES ($1, $2, $3::text::tsvector)",
            &[&scope.workspace, &conversation.id, &words(scope, title)],
        )
        .await?;
    }
    Ok(())
}

/// As `index_title`, for many that are new.
pub(super) async fn index_new_titles(tx: &Transaction, scope: &Scope, all: &[&Conversation]) -> Result<()> {
    let titled = || all.iter().filter_map(|of| Some((of.id, of.title.as_deref()?)));
    let (ids, words): (Vec<Uuid>, Vec<String>) =
        titled().map(|(id, title)| (id, words(scope, title))).unzip();
    if !ids.is_empty() {
        tx.execute(
            "INSERT INTO title_search (workspace_id, conversation_id, words) \
             SELECT $1::uuid, n.of, n.words::tsvector FROM unnest($2::uuid[], $3::text[]) AS n (of, words)",
            &[&scope.workspace, &ids, &words],
        )
        .await?;
    }
    Ok(())
}

/// The words of a message that was changed in its place.
pub(super) async fn reindex_message(
    tx: &Transaction,
    scope: &Scope,
    conversation: Uuid,
    message: &Message,
) -> Result<()> {
    let text = format!(
        "UPDATE message_search SET words = $4::text::tsvector \
         WHERE {} AND conversation_id = $2 AND message_id = $3",
        tx.inside("workspace_id")
    );
    let words = words(scope, &message.text);
    tx.execute(&text, &[&scope.workspace, &conversation, &message.id, &words]).await.map(|_| ())
}

/// The words of many messages that are new.
pub(super) async fn index_messages(
    tx: &Transaction,
    scope: &Scope,
    conversations: &[Uuid],
    (ids, seqs, times): (&[Uuid], &[i64], &[Timestamp]),
    texts: &[String],
) -> Result<()> {
    let words: Vec<String> = texts.iter().map(|text| words(scope, text)).collect();
    tx.execute(
        "INSERT INTO message_search (workspace_id, conversation_id, message_id, seq, created_at, words) \
         SELECT $1::uuid, n.of, n.id, n.seq, n.at, n.words::tsvector \
         FROM unnest($2::uuid[], $3::uuid[], $4::bigint[], $5::timestamptz[], $6::text[]) \
         AS n (of, id, seq, at, words)",
        &[&scope.workspace, &conversations, &ids, &seqs, &times, &words],
    )
    .await?;
    Ok(())
}

/// Searches in a transaction whose settings name the words.
pub(super) async fn search(
    tx: &Transaction,
    scope: &Scope,
    search: &ConversationSearch,
) -> Result<Page<Found>> {
    let matching = matching_messages(tx, scope, search).await?;
    let mut found = matching_titles(tx, scope, search).await?;
    let mut known: HashSet<Uuid> = found.iter().map(|conversation| conversation.id).collect();
    if found.len() == CANDIDATES {
        tx.narrow_to(&Settings::of(scope).matching(&search.query.tsquery_whole())).await?;
        let whole = matching_titles(tx, scope, search).await?;
        found.extend(whole.into_iter().filter(|conversation| known.insert(conversation.id)));
    }
    let missing: Vec<Uuid> = matching.keys().filter(|id| !known.contains(id)).copied().collect();
    found.extend(by_ids(tx, scope, search, &missing).await?);
    let (page, has_after) = search::page(found, matching, search);
    let texts = message_texts(tx, scope, &page).await?;
    let items = page
        .into_iter()
        .map(|Ranked { conversation, messages }| {
            let title = conversation.title.as_deref().and_then(|title| highlight_title(title, &search.query));
            let messages = messages.iter().filter_map(|message| {
                let text = texts.get(&(conversation.id, *message))?;
                highlight_message(*message, text, &search.query)
            });
            let highlights = title.into_iter().chain(messages).collect();
            Found { conversation, highlights }
        })
        .collect();
    Ok(Page { items, has_before: search.offset > 0, has_after })
}

/// The conditions every candidate `c` must meet.
fn conditions(dialect: Dialect, scope: &Scope, search: &ConversationSearch) -> (Sql, String) {
    let mut sql = Sql::new(dialect);
    let visible = sql.visible(scope, search.filter.deleted);
    let sources = sql.sources(&search.filter).join(" OR ");
    let filters = sql.filters(&search.filter);
    (sql, format!("{visible} AND ({sources}) AND {filters}"))
}

/// Two ways to the newest candidates, of which PostgreSQL cannot choose, because it may not know under
/// row level security how rare a word is: all that match, by the index of words, when they are few;
/// otherwise back in time until enough have matched. Up to twice as many are fetched and sorted sooner than
/// found by walking.
pub(super) async fn newest(
    tx: &Transaction,
    matching: &str,
    walk: &str,
    params: Params<'_>,
    enough: usize,
) -> Result<Vec<Row>> {
    let few = 2 * enough;
    let rows = tx.rows(&format!("{matching} LIMIT {}", few + 1), &params).await?;
    if rows.len() <= few {
        return Ok(rows);
    }
    let switch = "SELECT set_config(name, $2, true) FROM unnest($1::text[]) AS name";
    tx.rows(switch, &[&OTHER_PLANS, &"off"]).await?;
    let rows = tx.rows(&format!("{walk} LIMIT {enough}"), &params).await?;
    tx.rows(switch, &[&OTHER_PLANS, &"on"]).await?;
    Ok(rows)
}

/// What would keep PostgreSQL from walking.
const OTHER_PLANS: &[&str] = &["enable_bitmapscan", "enable_seqscan", "enable_sort"];

async fn matching_titles(
    tx: &Transaction,
    scope: &Scope,
    search: &ConversationSearch,
) -> Result<Vec<Conversation>> {
    let (sql, conditions) = conditions(tx.dialect, scope, search);
    let columns = list::columns(search.with_context);
    let same = "c.workspace_id = s.workspace_id AND c.id = s.conversation_id";
    // OFFSET keeps PostgreSQL from joining all conversations instead of looking these up.
    let matching = format!(
        "SELECT c.* FROM title_search s CROSS JOIN LATERAL (SELECT {columns} FROM chat_conversations c \
         WHERE {same} AND {conditions} OFFSET 0) c"
    );
    let walk = format!(
        "SELECT {columns} FROM chat_conversations c \
         CROSS JOIN LATERAL (SELECT FROM title_search s WHERE {same} OFFSET 0) s \
         WHERE {conditions} ORDER BY c.updated_at DESC, c.id DESC"
    );
    let rows = newest(tx, &matching, &walk, params(&sql), CANDIDATES).await?;
    let mut found: Vec<Conversation> = rows.iter().map(conversations::read).collect::<Result<_>>()?;
    found.sort_by_key(|found| std::cmp::Reverse((found.updated_at, found.id)));
    found.truncate(CANDIDATES);
    Ok(found)
}

/// Matching messages by their conversation: the newest by time, each thread's last ones first.
async fn matching_messages(
    tx: &Transaction,
    scope: &Scope,
    search: &ConversationSearch,
) -> Result<HashMap<Uuid, Vec<Uuid>>> {
    let (mut sql, conditions) = conditions(tx.dialect, scope, search);
    let inside = sql.inside(scope, "s.workspace_id");
    let others = format!("s.conversation_id <> ALL(${})", sql.values.len() + 1);
    let matching = format!(
        "SELECT s.created_at, s.message_id, s.seq, s.conversation_id FROM message_search s \
         CROSS JOIN LATERAL (SELECT FROM chat_conversations c WHERE c.workspace_id = s.workspace_id \
         AND c.id = s.conversation_id AND {conditions} OFFSET 0) c WHERE {others}"
    );
    let walk = format!("{matching} AND {inside} ORDER BY s.created_at DESC, s.message_id DESC");
    let mut gathered: HashMap<Uuid, Vec<(i64, Uuid)>> = HashMap::new();
    for _ in 0..ROUNDS {
        let before: Vec<Uuid> = gathered.keys().copied().collect();
        let mut params = params(&sql);
        params.push(&before);
        let rows = newest(tx, &matching, &walk, params, MESSAGES).await?;
        let mut found: Vec<(Timestamp, Uuid, i64, Uuid)> = rows
            .iter()
            .map(|row| Ok((row.try_get(0)?, row.try_get(1)?, row.try_get(2)?, row.try_get(3)?)))
            .collect::<Result<_>>()?;
        found.sort_unstable_by(|a, b| b.cmp(a));
        found.truncate(MESSAGES);
        let round = found.into_iter().map(|(_, message, seq, conversation)| (conversation, (seq, message)));
        if !search::gather(&mut gathered, round.collect()) {
            break;
        }
    }
    let last_first = |(conversation, mut messages): (Uuid, Vec<(i64, Uuid)>)| {
        messages.sort_unstable_by(|a, b| b.cmp(a));
        (conversation, messages.into_iter().map(|(_, message)| message).collect())
    };
    Ok(gathered.into_iter().map(last_first).collect())
}

async fn by_ids(
    tx: &Transaction,
    scope: &Scope,
    search: &ConversationSearch,
    ids: &[Uuid],
) -> Result<Vec<Conversation>> {
    if ids.is_empty() {
        return Ok(Vec::new());
    }
    let mut sql = conversations::visible(tx.dialect, scope, search.filter.deleted, search.with_context);
    sql.text += &format!(" AND c.id = ANY(${})", sql.values.len() + 1);
    let mut params = params(&sql);
    params.push(&ids);
    tx.rows(&sql.text, &params).await?.iter().map(conversations::read).collect()
}

/// The texts of the messages that a page shows, by conversation and message.
async fn message_texts(
    tx: &Transaction,
    scope: &Scope,
    page: &[Ranked],
) -> Result<HashMap<(Uuid, Uuid), String>> {
    let shown =
        || page.iter().flat_map(|hit| hit.messages.iter().map(|message| (hit.conversation.id, *message)));
    let (conversations, messages): (Vec<Uuid>, Vec<Uuid>) = shown().unzip();
    if messages.is_empty() {
        return Ok(HashMap::new());
    }
    let text = format!(
        "SELECT conversation_id, id, text FROM messages JOIN unnest($2::uuid[], $3::uuid[]) AS shown (thread, message) \
         ON conversation_id = thread AND id = message WHERE {}",
        tx.inside("workspace_id")
    );
    let rows = tx.rows(&text, &[&scope.workspace, &conversations, &messages]).await?;
    rows.iter().map(|row| Ok(((row.try_get(0)?, row.try_get(1)?), row.try_get(2)?))).collect()
}
