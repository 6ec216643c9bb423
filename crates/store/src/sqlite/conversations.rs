//! Conversations: five operations and restore.

use async_trait::async_trait;
use domain::audit::Action;
use domain::conversation::{
    Conversation, ConversationPatch, ConversationQuery, ConversationSearch, Found, Kind, Mode,
    NewConversation, Page, Source, Visibility, Write,
};
use domain::scope::Scope;
use domain::time::from_ms;
use jiff::Timestamp;
use rusqlite::types::{ToSql, ToSqlOutput, Type};
use rusqlite::{Connection, OptionalExtension, Row, params, params_from_iter};
use uuid::Uuid;

use super::search::{self, Indexed};
use super::writer::Durability;
use super::{SqliteStore, agents, audit, is_taken, runs, workspaces};
use crate::error::{Result, StoreError};
use crate::list::{self, Dialect, Sql, Value};
use crate::store::conversations::Conversations;

#[async_trait]
impl Conversations for SqliteStore {
    async fn create_conversation(
        &self,
        scope: &Scope,
        new: &NewConversation,
        id: Uuid,
        write: &Write,
    ) -> Result<Conversation> {
        let (scope, new, write) = (scope.clone(), new.clone(), write.clone());
        self.writer.write(Durability::Full, move |db| create(db, &scope, &new, id, &write)).await
    }

    async fn list_conversations(
        &self,
        scope: &Scope,
        query: &ConversationQuery,
    ) -> Result<Page<Conversation>> {
        let (scope, query) = (scope.clone(), query.clone());
        self.readers.read(move |db| list(db, &scope, &query)).await
    }

    async fn search_conversations(&self, scope: &Scope, search: &ConversationSearch) -> Result<Page<Found>> {
        let (scope, search) = (scope.clone(), search.clone());
        self.readers.read(move |db| search::search(db, &scope, &search)).await
    }

    async fn update_conversation(
        &self,
        scope: &Scope,
        id: Uuid,
        patch: &ConversationPatch,
        if_version: Option<i64>,
        write: &Write,
    ) -> Result<Conversation> {
        let (scope, patch, write) = (scope.clone(), patch.clone(), write.clone());
        self.writer
            .write(Durability::Full, move |db| update(db, &scope, id, &patch, if_version, &write))
            .await
    }

    async fn delete_conversation(
        &self,
        scope: &Scope,
        id: Uuid,
        if_version: Option<i64>,
        now: Timestamp,
    ) -> Result<()> {
        let scope = scope.clone();
        self.writer.write(Durability::Full, move |db| delete(db, &scope, id, if_version, now)).await
    }

    async fn restore_conversation(&self, scope: &Scope, id: Uuid, now: Timestamp) -> Result<Conversation> {
        let scope = scope.clone();
        self.writer.write(Durability::Full, move |db| restore(db, &scope, id, now)).await
    }
}

impl ToSql for Value {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        match self {
            Self::Uuid(id) => Ok(ToSqlOutput::from(id.as_bytes().to_vec())),
            Self::Text(text) => text.to_sql(),
            Self::Time(at) => Ok(ToSqlOutput::from(at.as_millisecond())),
        }
    }
}

/// A word of a closed set, as its column holds it.
fn word<T>(row: &Row<'_>, index: usize, parse: fn(&str) -> Option<T>) -> rusqlite::Result<Option<T>> {
    let text: Option<String> = row.get(index)?;
    text.map(|text| parse(&text).ok_or_else(|| bad_column(index, &text))).transpose()
}

fn bad_column(index: usize, text: &str) -> rusqlite::Error {
    rusqlite::Error::FromSqlConversionFailure(index, Type::Text, format!("unexpected value {text:?}").into())
}

/// Reads a row of `list::columns`.
pub(super) fn read(row: &Row<'_>) -> rusqlite::Result<Conversation> {
    let tabs: String = row.get(9)?;
    let needed = |index| move || bad_column(index, "NULL");
    Ok(Conversation {
        workspace: row.get(0)?,
        id: row.get(1)?,
        org: row.get(2)?,
        owner: row.get(3)?,
        title: row.get(4)?,
        mode: word(row, 5, Mode::parse)?,
        source: word(row, 6, Source::parse)?,
        page_path: row.get(7)?,
        total_tokens: row.get(8)?,
        tabs: serde_json::from_str(&tabs).map_err(|_| bad_column(9, &tabs))?,
        active_tab_key: row.get(10)?,
        kind: word(row, 11, Kind::parse)?.ok_or_else(needed(11))?,
        workflow_id: row.get(12)?,
        agent_id: row.get(13)?,
        model: row.get(14)?,
        preview: row.get(15)?,
        message_count: row.get(16)?,
        first_message: row.get(17)?,
        visibility: word(row, 18, Visibility::parse)?.ok_or_else(needed(18))?,
        deleted_at: row.get::<_, Option<i64>>(19)?.map(from_ms),
        created_at: from_ms(row.get(20)?),
        updated_at: from_ms(row.get(21)?),
        version: row.get(22)?,
        context: row.get(23)?,
    })
}

fn tabs_text(conversation: &Conversation) -> Result<String> {
    serde_json::to_string(&conversation.tabs).map_err(|error| StoreError::Internal(error.to_string()))
}

pub(super) fn create(
    db: &Connection,
    scope: &Scope,
    new: &NewConversation,
    id: Uuid,
    write: &Write,
) -> Result<Conversation> {
    let mut made = make(db, scope, new, id, write)?;
    agents::decide_kind(db, scope, &mut made)?;
    insert(db, &made)?;
    Ok(made)
}

/// A new conversation of the workspace, not written yet.
pub(super) fn make(
    db: &Connection,
    scope: &Scope,
    new: &NewConversation,
    id: Uuid,
    write: &Write,
) -> Result<Conversation> {
    let workspace = workspaces::find(db, scope)?.ok_or(StoreError::NotFound)?;
    Conversation::create(scope, new, new.id.unwrap_or(id), workspace.default_visibility, write)
        .map_err(StoreError::Refused)
}

/// Writes a whole new row, with the words of its title, and answers its number.
pub(super) fn insert(db: &Connection, made: &Conversation) -> Result<i64> {
    let inserted = db
        .prepare_cached(
            "INSERT INTO chat_conversations (workspace_id, id, org_id, user_id, title, mode, source, page_path, \
             total_tokens, tabs, active_tab_key, kind, workflow_id, agent_id, model, preview, message_count, \
             first_message, visibility, deleted_at, created_at, updated_at, version, context) \
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20, \
             ?21, ?22, ?23, ?24)",
        )?
        .insert(params![
            made.workspace,
            made.id,
            made.org,
            made.owner,
            made.title,
            made.mode.map(Mode::as_str),
            made.source.map(Source::as_str),
            made.page_path,
            made.total_tokens,
            tabs_text(made)?,
            made.active_tab_key,
            made.kind.as_str(),
            made.workflow_id,
            made.agent_id,
            made.model,
            made.preview,
            made.message_count,
            made.first_message,
            made.visibility.as_str(),
            made.deleted_at.map(Timestamp::as_millisecond),
            made.created_at.as_millisecond(),
            made.updated_at.as_millisecond(),
            made.version,
            made.context,
        ]);
    let pk = inserted.map_err(|error| match is_taken(&error) {
        true => StoreError::Taken("id"),
        false => error.into(),
    })?;
    if let Some(title) = &made.title {
        search::index(Indexed::Title, pk, title);
    }
    Ok(pk)
}

/// A conversation the scope may see, with its row number.
pub(super) fn find(
    db: &Connection,
    scope: &Scope,
    id: Uuid,
    deleted: bool,
    with_context: bool,
) -> Result<Option<(Conversation, i64)>> {
    let mut sql = Sql::new(Dialect::Sqlite);
    let visible = sql.visible(scope, deleted);
    let id = sql.bind(Value::Uuid(id));
    let live = if deleted { "c.deleted_at IS NOT NULL" } else { "c.deleted_at IS NULL" };
    let columns = list::columns(with_context);
    // The workspace stands before the alternatives, so that the unique index finds the row.
    let text = format!(
        "SELECT {columns}, c.pk FROM chat_conversations c \
         WHERE c.workspace_id = ?1 AND c.id = {id} AND {live} AND {visible}"
    );
    let row = db
        .prepare_cached(&text)?
        .query_row(params_from_iter(&sql.values), |row| Ok((read(row)?, row.get(24)?)))
        .optional()?;
    Ok(row)
}

pub(super) fn get(db: &Connection, scope: &Scope, id: Uuid) -> Result<(Conversation, i64)> {
    find(db, scope, id, false, true)?.ok_or(StoreError::NotFound)
}

fn list(db: &Connection, scope: &Scope, query: &ConversationQuery) -> Result<Page<Conversation>> {
    let sql = list::list(Dialect::Sqlite, scope, query);
    let mut statement = db.prepare_cached(&sql.text)?;
    let rows = statement.query_map(params_from_iter(&sql.values), read)?.collect::<rusqlite::Result<_>>()?;
    Ok(list::page(rows, query))
}

/// Writes every column that a write can change.
pub(super) fn save(db: &Connection, pk: i64, changed: &Conversation) -> Result<()> {
    db.prepare_cached(
        "UPDATE chat_conversations SET title = ?2, mode = ?3, page_path = ?4, total_tokens = ?5, tabs = ?6, \
         active_tab_key = ?7, kind = ?8, agent_id = ?9, model = ?10, preview = ?11, message_count = ?12, \
         first_message = ?13, visibility = ?14, deleted_at = ?15, updated_at = ?16, version = ?17, context = ?18, workflow_id = ?19 \
         WHERE pk = ?1",
    )?
    .execute(params![
        pk,
        changed.title,
        changed.mode.map(Mode::as_str),
        changed.page_path,
        changed.total_tokens,
        tabs_text(changed)?,
        changed.active_tab_key,
        changed.kind.as_str(),
        changed.agent_id,
        changed.model,
        changed.preview,
        changed.message_count,
        changed.first_message,
        changed.visibility.as_str(),
        changed.deleted_at.map(Timestamp::as_millisecond),
        changed.updated_at.as_millisecond(),
        changed.version,
        changed.context,
        changed.workflow_id,
    ])?;
    Ok(())
}

/// Writes what a turn changes. The columns that only a person changes stay out of it, with the indexes over them.
pub(super) fn save_turn(db: &Connection, pk: i64, changed: &Conversation) -> Result<()> {
    db.prepare_cached(
        "UPDATE chat_conversations SET title = ?2, mode = ?3, page_path = ?4, total_tokens = ?5, kind = ?6, \
         agent_id = ?7, model = ?8, preview = ?9, message_count = ?10, first_message = ?11, updated_at = ?12, \
         version = ?13, workflow_id = ?14 WHERE pk = ?1",
    )?
    .execute(params![
        pk,
        changed.title,
        changed.mode.map(Mode::as_str),
        changed.page_path,
        changed.total_tokens,
        changed.kind.as_str(),
        changed.agent_id,
        changed.model,
        changed.preview,
        changed.message_count,
        changed.first_message,
        changed.updated_at.as_millisecond(),
        changed.version,
        changed.workflow_id,
    ])?;
    Ok(())
}

fn update(
    db: &Connection,
    scope: &Scope,
    id: Uuid,
    patch: &ConversationPatch,
    if_version: Option<i64>,
    write: &Write,
) -> Result<Conversation> {
    let (before, pk) = get(db, scope, id)?;
    let mut changed = before.clone();
    changed.apply(scope, patch, if_version, write).map_err(StoreError::Refused)?;
    if patch.mode.is_some() || patch.agent_id.is_some() {
        agents::decide_kind(db, scope, &mut changed)?;
    }
    save(db, pk, &changed)?;
    if changed.title != before.title {
        search::reindex(Indexed::Title, pk, changed.title.as_deref());
    }
    if changed.visibility != before.visibility {
        let (target, detail) = (id.to_string(), changed.visibility.as_str());
        audit::note(db, scope, write.now, Action::ConversationVisibility, &target, detail)?;
    }
    Ok(changed)
}

fn delete(db: &Connection, scope: &Scope, id: Uuid, if_version: Option<i64>, now: Timestamp) -> Result<()> {
    let (mut conversation, pk) = get(db, scope, id)?;
    if !scope.owns(&conversation.owner) {
        return Err(StoreError::Denied("only the owner or an admin may delete a conversation"));
    }
    conversation.check_version(if_version).map_err(StoreError::Refused)?;
    conversation.touch(now);
    conversation.deleted_at = Some(conversation.updated_at);
    save(db, pk, &conversation)?;
    // Files of the bag go with it, under the same time, so that a restore finds just those. One that is only
    // reserved stays away: its upload has been refused since.
    db.prepare_cached(
        "UPDATE files INDEXED BY idx_files_bag SET deleted_at = ?3 \
         WHERE workspace_id = ?1 AND conversation_id = ?2 AND deleted_at IS NULL",
    )?
    .execute(params![scope.workspace, id, conversation.updated_at.as_millisecond()])?;
    runs::cancel_all(db, scope, Some(id), now)
}

fn restore(db: &Connection, scope: &Scope, id: Uuid, now: Timestamp) -> Result<Conversation> {
    let Some((mut conversation, pk)) = find(db, scope, id, true, true)? else {
        return get(db, scope, id).map(|(live, _)| live);
    };
    if db.prepare_cached("SELECT 1 FROM chat_conversations WHERE pk = ?1 AND purging <> 0")?.exists([pk])? {
        return Err(StoreError::NotFound);
    }
    let deleted_at = conversation.deleted_at.take();
    conversation.touch(now);
    save(db, pk, &conversation)?;
    db.prepare_cached(
        "UPDATE files INDEXED BY idx_files_bag SET deleted_at = NULL \
         WHERE workspace_id = ?1 AND conversation_id = ?2 AND deleted_at = ?3 AND kept = 1",
    )?
    .execute(params![scope.workspace, id, deleted_at.map(Timestamp::as_millisecond)])?;
    Ok(conversation)
}
