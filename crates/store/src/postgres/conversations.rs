//! Conversations: five operations and restore.

use async_trait::async_trait;
use bytes::BytesMut;
use domain::audit::Action;
use domain::conversation::{
    Conversation, ConversationPatch, ConversationQuery, ConversationSearch, Found, Kind, Mode,
    NewConversation, Page, Source, Visibility, Write,
};
use domain::scope::Scope;
use futures_util::future::join;
use jiff::Timestamp;
use tokio_postgres::Row;
use tokio_postgres::types::{IsNull, ToSql, Type, to_sql_checked};
use uuid::Uuid;

use super::transaction::{Settings, Transaction, params, transaction};
use super::{PostgresStore, agents, audit, runs, search, workspaces};
use crate::error::{Result, StoreError};
use crate::list::{self, Dialect, Sql, Value};
use crate::store::conversations::Conversations;
use crate::turns::Held;

#[async_trait]
impl Conversations for PostgresStore {
    async fn create_conversation(
        &self,
        scope: &Scope,
        new: &NewConversation,
        id: Uuid,
        write: &Write,
    ) -> Result<Conversation> {
        transaction!(self.database, begin_write, Settings::of(scope), |tx| create(tx, scope, new, id, write))
    }

    async fn list_conversations(
        &self,
        scope: &Scope,
        query: &ConversationQuery,
    ) -> Result<Page<Conversation>> {
        let sql = list::list(self.database.dialect, scope, query);
        let [rows] = self.database.read(&Settings::of(scope), [(&sql).into()]).await?;
        let rows = rows.iter().map(read).collect::<Result<_>>()?;
        Ok(list::page(rows, query))
    }

    async fn search_conversations(&self, scope: &Scope, search: &ConversationSearch) -> Result<Page<Found>> {
        let settings = Settings::of(scope).matching(&search.query.tsquery());
        transaction!(self.database, begin_read, settings, |tx| search::search(tx, scope, search))
    }

    async fn update_conversation(
        &self,
        scope: &Scope,
        id: Uuid,
        patch: &ConversationPatch,
        if_version: Option<i64>,
        write: &Write,
    ) -> Result<Conversation> {
        transaction!(self.database, begin_write, Settings::of(scope), |tx| update(
            tx, scope, id, patch, if_version, write
        ))
    }

    async fn delete_conversation(
        &self,
        scope: &Scope,
        id: Uuid,
        if_version: Option<i64>,
        now: Timestamp,
    ) -> Result<()> {
        transaction!(self.database, begin_write, Settings::of(scope), |tx| delete(
            tx, scope, id, if_version, now
        ))
    }

    async fn restore_conversation(&self, scope: &Scope, id: Uuid, now: Timestamp) -> Result<Conversation> {
        transaction!(self.database, begin_write, Settings::of(scope), |tx| restore(tx, scope, id, now))
    }
}

impl ToSql for Value {
    fn to_sql(
        &self,
        kind: &Type,
        out: &mut BytesMut,
    ) -> Result<IsNull, Box<dyn std::error::Error + Sync + Send>> {
        match self {
            Self::Uuid(id) => id.to_sql_checked(kind, out),
            Self::Text(text) => text.to_sql_checked(kind, out),
            Self::Time(at) => at.to_sql_checked(kind, out),
        }
    }

    fn accepts(kind: &Type) -> bool {
        <Uuid as ToSql>::accepts(kind)
            || <String as ToSql>::accepts(kind)
            || <Timestamp as ToSql>::accepts(kind)
    }

    to_sql_checked!();
}

/// A word of a closed set, as its column holds it.
fn word<T>(row: &Row, index: usize, parse: fn(&str) -> Option<T>) -> Result<Option<T>> {
    let text: Option<&str> = row.try_get(index)?;
    text.map(|text| parse(text).ok_or_else(|| bad_column(index))).transpose()
}

pub(super) fn bad_column(index: usize) -> StoreError {
    StoreError::Internal(format!("column {index} of a row holds a value that does not belong there"))
}

/// Reads a row of `list::columns`.
pub(super) fn read(row: &Row) -> Result<Conversation> {
    let tabs: &str = row.try_get(9)?;
    Ok(Conversation {
        workspace: row.try_get(0)?,
        id: row.try_get(1)?,
        org: row.try_get(2)?,
        owner: row.try_get(3)?,
        title: row.try_get(4)?,
        mode: word(row, 5, Mode::parse)?,
        source: word(row, 6, Source::parse)?,
        page_path: row.try_get(7)?,
        total_tokens: row.try_get(8)?,
        tabs: serde_json::from_str(tabs).map_err(|_| bad_column(9))?,
        active_tab_key: row.try_get(10)?,
        kind: word(row, 11, Kind::parse)?.ok_or_else(|| bad_column(11))?,
        workflow_id: row.try_get(12)?,
        agent_id: row.try_get(13)?,
        model: row.try_get(14)?,
        preview: row.try_get(15)?,
        message_count: row.try_get(16)?,
        first_message: row.try_get(17)?,
        visibility: word(row, 18, Visibility::parse)?.ok_or_else(|| bad_column(18))?,
        deleted_at: row.try_get(19)?,
        created_at: row.try_get(20)?,
        updated_at: row.try_get(21)?,
        version: row.try_get(22)?,
        context: row.try_get(23)?,
    })
}

pub(super) fn tabs_text(conversation: &Conversation) -> Result<String> {
    serde_json::to_string(&conversation.tabs).map_err(|error| StoreError::Internal(error.to_string()))
}

pub(super) async fn create(
    tx: &Transaction,
    scope: &Scope,
    new: &NewConversation,
    id: Uuid,
    write: &Write,
) -> Result<Conversation> {
    let mut made = make(tx, scope, new, id, write).await?;
    agents::decide_kind(tx, scope, &mut made).await?;
    tx.prepare(INSERT).await?;
    let (inserted, indexed) = join(insert(tx, &made), search::index_new_titles(tx, scope, &[&made])).await;
    inserted.and(indexed)?;
    Ok(made)
}

/// A new conversation, which is still to be written.
pub(super) async fn make(
    tx: &Transaction,
    scope: &Scope,
    new: &NewConversation,
    id: Uuid,
    write: &Write,
) -> Result<Conversation> {
    // Locked against removal alone: a workspace that goes away takes this conversation with it or refuses it.
    let workspace = workspaces::get(tx, scope, "FOR KEY SHARE").await?;
    Conversation::create(scope, new, new.id.unwrap_or(id), workspace.default_visibility, write)
        .map_err(StoreError::Refused)
}

pub(super) const INSERT: &str = "INSERT INTO chat_conversations (workspace_id, id, org_id, user_id, title, mode, source, \
     page_path, total_tokens, tabs, active_tab_key, kind, workflow_id, agent_id, model, preview, message_count, \
     first_message, visibility, deleted_at, created_at, updated_at, version, context) \
     VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22, \
     $23, $24)";

/// Writes a whole new row.
pub(super) async fn insert(tx: &Transaction, made: &Conversation) -> Result<()> {
    tx.insert(
        "id",
        INSERT,
        &[
            &made.workspace,
            &made.id,
            &made.org,
            &made.owner,
            &made.title,
            &made.mode.map(Mode::as_str),
            &made.source.map(Source::as_str),
            &made.page_path,
            &made.total_tokens,
            &tabs_text(made)?,
            &made.active_tab_key,
            &made.kind.as_str(),
            &made.workflow_id,
            &made.agent_id,
            &made.model,
            &made.preview,
            &made.message_count,
            &made.first_message,
            &made.visibility.as_str(),
            &made.deleted_at,
            &made.created_at,
            &made.updated_at,
            &made.version,
            &made.context,
        ],
    )
    .await
}

/// The conversations `c` that the scope may see, live or deleted.
pub(super) fn visible(dialect: Dialect, scope: &Scope, deleted: bool, with_context: bool) -> Sql {
    let mut sql = Sql::new(dialect);
    // By the key alone: said plainly, the rest would let a plan take an index of a list, and walk over all of it.
    let inside = sql.inside(scope, "c.workspace_id");
    let visible = sql.visible(scope, deleted);
    let live = if deleted { "c.deleted_at IS NOT NULL" } else { "c.deleted_at IS NULL" };
    let columns = list::columns(with_context);
    sql.text = format!(
        "SELECT {columns} FROM chat_conversations c WHERE {inside} AND CASE WHEN {live} THEN {visible} ELSE false END"
    );
    sql
}

pub(super) fn by_id(dialect: Dialect, scope: &Scope, id: Uuid, deleted: bool) -> Sql {
    let mut sql = visible(dialect, scope, deleted, true);
    let id = sql.bind(Value::Uuid(id));
    sql.text += &format!(" AND c.id = {id}");
    sql
}

/// As `by_id`, of a live one, without its context, which may be large.
pub(super) fn by_id_alone(dialect: Dialect, scope: &Scope, id: Uuid) -> Sql {
    let mut sql = visible(dialect, scope, false, false);
    let id = sql.bind(Value::Uuid(id));
    sql.text += &format!(" AND c.id = {id}");
    sql
}

/// Locks a live conversation the scope may see against other changes.
pub(super) async fn lock(tx: &Transaction, scope: &Scope, id: Uuid) -> Result<()> {
    let mut sql = by_id_alone(tx.dialect, scope, id);
    sql.text += " FOR NO KEY UPDATE OF c";
    tx.row(&sql.text, &params(&sql)).await?.map(|_| ()).ok_or(StoreError::NotFound)
}

/// A conversation the scope may see, locked against other changes; a deleted one only while it can be restored.
async fn find_locked(
    tx: &Transaction,
    scope: &Scope,
    id: Uuid,
    deleted: bool,
) -> Result<Option<Conversation>> {
    let mut sql = by_id(tx.dialect, scope, id, deleted);
    sql.text += if deleted { " AND NOT c.purging FOR NO KEY UPDATE OF c" } else { " FOR NO KEY UPDATE OF c" };
    tx.row(&sql.text, &params(&sql)).await?.map(|row| read(&row)).transpose()
}

pub(super) async fn get_locked(tx: &Transaction, scope: &Scope, id: Uuid) -> Result<Conversation> {
    find_locked(tx, scope, id, false).await?.ok_or(StoreError::NotFound)
}

/// A live conversation the scope may see, kept from being purged alone.
pub(super) async fn get_kept(tx: &Transaction, scope: &Scope, id: Uuid) -> Result<Conversation> {
    let mut sql = by_id(tx.dialect, scope, id, false);
    sql.text += " FOR KEY SHARE OF c";
    read(&tx.row(&sql.text, &params(&sql)).await?.ok_or(StoreError::NotFound)?)
}

/// A live conversation the scope may see.
pub(super) async fn get(tx: &Transaction, scope: &Scope, id: Uuid) -> Result<Conversation> {
    let sql = by_id(tx.dialect, scope, id, false);
    read(&tx.row(&sql.text, &params(&sql)).await?.ok_or(StoreError::NotFound)?)
}

/// A conversation of the server's own scope, live or deleted, locked against other changes.
pub(super) async fn find_locked_any(
    tx: &Transaction,
    scope: &Scope,
    id: Uuid,
) -> Result<Option<Conversation>> {
    let text = format!(
        "SELECT {} FROM chat_conversations c WHERE {} AND c.id = $2 FOR NO KEY UPDATE OF c",
        list::columns(true),
        tx.inside("c.workspace_id")
    );
    tx.row(&text, &[&scope.workspace, &id]).await?.map(|row| read(&row)).transpose()
}

/// What is asked about the conversation `c` that a row `of` belongs to. Not a join: a plan made while the tables are empty
/// would walk over all of the workspace's conversations.
pub(super) fn asked(of: &str, question: &str) -> String {
    format!(
        "(SELECT {question} FROM chat_conversations c \
         WHERE c.workspace_id = {of}.workspace_id AND c.id = {of}.conversation_id)"
    )
}

/// As `find_locked_any`, the conversation of a run, if it has one.
pub(super) async fn find_locked_of_run(tx: &Transaction, held: &Held) -> Result<Option<Conversation>> {
    let text = format!(
        "SELECT {} FROM chat_conversations c WHERE {} \
         AND c.id = (SELECT r.conversation_id FROM runs r WHERE {} AND r.id = $2) FOR NO KEY UPDATE OF c",
        list::columns(true),
        tx.inside("c.workspace_id"),
        tx.inside("r.workspace_id")
    );
    tx.row(&text, &[&held.workspace, &held.lease.run]).await?.map(|row| read(&row)).transpose()
}

/// What `save` writes: every column that a write can change.
pub(super) fn save_text(tx: &Transaction) -> String {
    format!(
        "UPDATE chat_conversations SET title = $3, mode = $4, page_path = $5, total_tokens = $6, tabs = $7, \
         active_tab_key = $8, kind = $9, agent_id = $10, model = $11, preview = $12, message_count = $13, \
         first_message = $14, visibility = $15, deleted_at = $16, updated_at = $17, version = $18, context = $19, \
         workflow_id = $20 \
         WHERE {} AND id = $2",
        tx.inside("workspace_id")
    )
}

pub(super) async fn save(tx: &Transaction, changed: &Conversation) -> Result<()> {
    tx.execute(
        &save_text(tx),
        &[
            &changed.workspace,
            &changed.id,
            &changed.title,
            &changed.mode.map(Mode::as_str),
            &changed.page_path,
            &changed.total_tokens,
            &tabs_text(changed)?,
            &changed.active_tab_key,
            &changed.kind.as_str(),
            &changed.agent_id,
            &changed.model,
            &changed.preview,
            &changed.message_count,
            &changed.first_message,
            &changed.visibility.as_str(),
            &changed.deleted_at,
            &changed.updated_at,
            &changed.version,
            &changed.context,
            &changed.workflow_id,
        ],
    )
    .await?;
    Ok(())
}

async fn update(
    tx: &Transaction,
    scope: &Scope,
    id: Uuid,
    patch: &ConversationPatch,
    if_version: Option<i64>,
    write: &Write,
) -> Result<Conversation> {
    let before = get_locked(tx, scope, id).await?;
    let mut changed = before.clone();
    changed.apply(scope, patch, if_version, write).map_err(StoreError::Refused)?;
    if patch.mode.is_some() || patch.agent_id.is_some() {
        agents::decide_kind(tx, scope, &mut changed).await?;
    }
    save(tx, &changed).await?;
    if changed.title != before.title {
        search::index_title(tx, scope, &changed).await?;
    }
    if changed.visibility != before.visibility {
        let (target, detail) = (id.to_string(), changed.visibility.as_str());
        audit::note(tx, scope, write.now, Action::ConversationVisibility, &target, detail).await?;
    }
    Ok(changed)
}

async fn delete(
    tx: &Transaction,
    scope: &Scope,
    id: Uuid,
    if_version: Option<i64>,
    now: Timestamp,
) -> Result<()> {
    let mut conversation = get_locked(tx, scope, id).await?;
    if !scope.owns(&conversation.owner) {
        return Err(StoreError::Denied("only the owner or an admin may delete a conversation"));
    }
    conversation.check_version(if_version).map_err(StoreError::Refused)?;
    conversation.touch(now);
    conversation.deleted_at = Some(conversation.updated_at);
    save(tx, &conversation).await?;
    // Files of the bag go with it, under the same time, so that a restore finds just those: one that was deleted by
    // itself at this very time is told apart. One that is only reserved stays away: its upload is refused from now on.
    let text = format!(
        "UPDATE files SET deleted_at = CASE WHEN deleted_at IS NULL THEN $3::timestamptz \
         ELSE deleted_at - interval '1 millisecond' END \
         WHERE {} AND conversation_id = $2 AND (deleted_at IS NULL OR deleted_at = $3)",
        tx.inside("workspace_id")
    );
    tx.execute(&text, &[&scope.workspace, &id, &conversation.updated_at]).await?;
    runs::cancel_all(tx, scope, Some(id), now).await
}

async fn restore(tx: &Transaction, scope: &Scope, id: Uuid, now: Timestamp) -> Result<Conversation> {
    let Some(mut conversation) = find_locked(tx, scope, id, true).await? else {
        return get_locked(tx, scope, id).await;
    };
    let deleted_at = conversation.deleted_at.take();
    conversation.touch(now);
    save(tx, &conversation).await?;
    let text = format!(
        "UPDATE files SET deleted_at = NULL WHERE {} AND conversation_id = $2 AND kept AND deleted_at = $3",
        tx.inside("workspace_id")
    );
    tx.execute(&text, &[&scope.workspace, &id, &deleted_at]).await?;
    Ok(conversation)
}
