//! Whole conversations, out and in.

use std::sync::Arc;

use async_trait::async_trait;
use domain::file::{Bag, name_key};
use domain::message::Message;
use domain::scope::Scope;
use domain::transfer::growth::Growth;
use domain::transfer::{Archive, ArchivedBranch, ArchivedFile, ArchivedRun, Trace};
use jiff::Timestamp;
use uuid::Uuid;

use super::transaction::{Query, Settings, Transaction, inside, transaction};
use super::{PostgresStore, archive_runs, conversations, files, messages, search};
use crate::error::{Result, StoreError};
use crate::files::Stored;
use crate::list::{Sql, Value};
use crate::store::archive::{Archives, TURN_UNDER_WAY};
use crate::transfer::Pieces;

#[async_trait]
impl Archives for PostgresStore {
    async fn list_archivable(&self, scope: &Scope, after: Option<Uuid>, limit: usize) -> Result<Vec<Uuid>> {
        let mut sql = Sql::new(self.database.dialect);
        let own = sql.inside(scope, "c.workspace_id");
        let visible = sql.visible(scope, false);
        let after = sql.bind(Value::Uuid(after.unwrap_or_default()));
        sql.text = format!(
            "SELECT c.id FROM chat_conversations c \
             WHERE {own} AND c.deleted_at IS NULL AND {visible} AND c.id > {after} ORDER BY c.id LIMIT {limit}"
        );
        let [rows] = self.database.read(&Settings::of(scope), [(&sql).into()]).await?;
        rows.iter().map(|row| Ok(row.try_get(0)?)).collect()
    }

    async fn get_archive(&self, scope: &Scope, id: Uuid) -> Result<Archive> {
        let conversation = conversations::by_id(self.database.dialect, scope, id, false);
        let own = |column: &str| inside(self.database.dialect, column);
        let branches = format!(
            "SELECT 0, $2::uuid, 0, 0::bigint, c.created_at, c.current_branch, c.metadata FROM chat_conversations c \
             WHERE {} AND c.id = $2 UNION ALL \
             SELECT b.branch, b.id, b.parent, b.fork_seq, b.created_at, 0, NULL FROM branches b \
             WHERE {} AND b.conversation_id = $2 ORDER BY 1",
            own("c.workspace_id"),
            own("b.workspace_id")
        );
        let messages = messages::all_query(self.database.dialect);
        let runs = archive_runs::query(self.database.dialect, "conversation_id");
        let approvals = archive_runs::approvals_query(self.database.dialect, "conversation_id");
        let of_bag = files::archived_query(self.database.dialect, Bag::Conversation(id));
        let query = |text| Query { text, params: vec![&scope.workspace, &id] };
        let owner = Some(id);
        let of_bag = Query { text: &of_bag, params: vec![&scope.workspace, &owner] };
        let queries = [
            (&conversation).into(),
            query(&branches),
            query(&messages),
            query(&runs),
            query(&approvals),
            of_bag,
        ];
        let [found, branches, messages, runs, approvals, of_bag] =
            self.database.read(&Settings::of(scope), queries).await?;
        let conversation = conversations::read(found.first().ok_or(StoreError::NotFound)?)?;

        let numbers = branches.iter().map(|row| Ok(row.try_get(0)?)).collect::<Result<Vec<i32>>>()?;
        let place = |branch: i32| numbers.binary_search(&branch).unwrap_or(0);
        let first = branches.first().ok_or(StoreError::NotFound)?;
        let (current, metadata): (i32, Option<String>) = (first.try_get(5)?, first.try_get(6)?);
        let read_branch = |row: &tokio_postgres::Row| {
            Ok(ArchivedBranch {
                id: row.try_get(1)?,
                parent: place(row.try_get(2)?),
                fork_seq: row.try_get(3)?,
                created_at: row.try_get(4)?,
                messages: Vec::new(),
            })
        };
        let mut branches = branches.iter().map(read_branch).collect::<Result<Vec<_>>>()?;
        for row in &messages {
            let (branch, message) = messages::read_placed(row)?;
            if let Some(branch) = branches.get_mut(place(branch)) {
                branch.messages.push(message);
            }
        }
        let runs = archive_runs::read(&runs, &approvals)?.into_iter();
        Ok(Archive {
            conversation,
            metadata,
            branches,
            current: place(current),
            runs: runs.map(|(branch, run)| ArchivedRun { branch: place(branch), ..run }).collect(),
            files: of_bag.iter().map(files::read_archived).collect::<Result<_>>()?,
        })
    }

    async fn list_archived_files(&self, scope: &Scope) -> Result<Vec<ArchivedFile>> {
        let (text, none) = (files::archived_query(self.database.dialect, Bag::Workspace), None::<Uuid>);
        let query = Query { text: &text, params: vec![&scope.workspace, &none] };
        let [rows] = self.database.read(&Settings::of(scope), [query]).await?;
        rows.iter().map(files::read_archived).collect()
    }

    async fn known_conversations(&self, scope: &Scope, ids: &[Uuid]) -> Result<Vec<bool>> {
        let text = format!(
            "SELECT id FROM chat_conversations WHERE {} AND id = ANY($2)",
            inside(self.database.dialect, "workspace_id")
        );
        let query = Query { text: &text, params: vec![&scope.workspace, &ids] };
        let [rows] = self.database.read(&Settings::of(scope).seeing_all(), [query]).await?;
        let found = rows.iter().map(|row| Ok(row.try_get(0)?)).collect::<Result<Vec<Uuid>>>()?;
        Ok(ids.iter().map(|id| found.contains(id)).collect())
    }

    async fn import_archive(
        &self,
        scope: &Scope,
        archive: Arc<Archive>,
        traces: Arc<dyn Pieces<Trace>>,
    ) -> Result<bool> {
        self.imports.import(&self.database, scope, archive, traces).await
    }

    async fn list_message_ids(&self, scope: &Scope, conversation: Uuid) -> Result<Vec<Uuid>> {
        let found = conversations::by_id(self.database.dialect, scope, conversation, false);
        let text = format!(
            "SELECT id FROM messages WHERE {} AND conversation_id = $2",
            inside(self.database.dialect, "workspace_id")
        );
        let query = Query { text: &text, params: vec![&scope.workspace, &conversation] };
        let [found, rows] = self.database.read(&Settings::of(scope), [(&found).into(), query]).await?;
        found.first().ok_or(StoreError::NotFound)?;
        rows.iter().map(|row| Ok(row.try_get(0)?)).collect()
    }

    async fn extend_archive(&self, scope: &Scope, growth: Arc<Growth>, stored: &[Stored]) -> Result<bool> {
        transaction!(self.database, begin_write, Settings::of(scope), |tx| extend(tx, scope, &growth, stored))
    }
}

/// Messages that go in with one statement.
const CHUNK: usize = 500;

/// Branches of conversations, each with its number.
pub(super) async fn insert_branches(
    tx: &Transaction,
    scope: &Scope,
    made: &[(Uuid, i32, &ArchivedBranch)],
) -> Result<()> {
    if made.is_empty() {
        return Ok(());
    }
    tx.insert(
        "a branch's id",
        "INSERT INTO branches (workspace_id, conversation_id, branch, id, parent, fork_seq, created_at) \
         SELECT $1::uuid, n.* FROM unnest($2::uuid[], $3::integer[], $4::uuid[], $5::integer[], $6::bigint[], \
         $7::timestamptz[]) AS n",
        &[
            &scope.workspace,
            &made.iter().map(|(conversation, ..)| *conversation).collect::<Vec<_>>(),
            &made.iter().map(|(_, number, _)| *number).collect::<Vec<_>>(),
            &made.iter().map(|(.., branch)| branch.id).collect::<Vec<_>>(),
            &made.iter().map(|(.., branch)| branch.parent as i32).collect::<Vec<_>>(),
            &made.iter().map(|(.., branch)| branch.fork_seq).collect::<Vec<_>>(),
            &made.iter().map(|(.., branch)| branch.created_at).collect::<Vec<_>>(),
        ],
    )
    .await
}

/// Messages of conversations, each on its branch.
pub(super) async fn insert_messages(
    tx: &Transaction,
    scope: &Scope,
    placed: &[(Uuid, i32, &Message)],
) -> Result<()> {
    for chunk in placed.chunks(CHUNK) {
        messages::insert_stored(tx, scope, chunk).await?;
    }
    Ok(())
}

async fn extend(tx: &Transaction, scope: &Scope, of: &Growth, stored: &[Stored]) -> Result<bool> {
    let (id, own) = (of.conversation.id, tx.inside("workspace_id"));
    if conversations::get_locked(tx, scope, id).await?.version != of.version {
        return Ok(false);
    }
    let busy = format!(
        "SELECT 1 FROM runs WHERE {own} AND conversation_id = $2 AND status IN ('queued', 'running') LIMIT 1"
    );
    if tx.row(&busy, &[&scope.workspace, &id]).await?.is_some() {
        return Err(TURN_UNDER_WAY);
    }
    let branches = (of.first_branch as i32..).zip(&of.branches).map(|(number, branch)| (id, number, branch));
    insert_branches(tx, scope, &branches.collect::<Vec<_>>()).await?;
    let messages = of.messages.iter().map(|(branch, message)| (id, *branch as i32, message));
    insert_messages(tx, scope, &messages.collect::<Vec<_>>()).await?;
    conversations::save(tx, &of.conversation).await?;
    search::index_title(tx, scope, &of.conversation).await?;
    let text = format!("UPDATE chat_conversations SET current_branch = $3 WHERE {own} AND id = $2");
    tx.execute(&text, &[&scope.workspace, &id, &(of.current as i32)]).await?;
    for (ArchivedFile { file, .. }, stored) in of.files.iter().zip(stored) {
        let (one, bag) = (std::slice::from_ref(stored), Bag::Conversation(id));
        files::keep_in(tx, scope, bag, None, one, (u64::MAX, file.created_at)).await?;
        let text = format!("UPDATE files SET message_id = $3 WHERE {own} AND id = $2");
        tx.execute(&text, &[&scope.workspace, &file.id, &file.message]).await?;
    }
    Ok(true)
}

/// Files of a conversation or an execution.
pub(super) async fn insert_files(tx: &Transaction, scope: &Scope, all: &[ArchivedFile]) -> Result<()> {
    for ArchivedFile { file, run, user } in all {
        let (conversation, execution) = file.bag.owners();
        let created: Timestamp = file.created_at;
        tx.insert(
            "a file's id",
            "INSERT INTO files (workspace_id, id, conversation_id, message_id, name, name_key, mime_type, size, \
             sha256, crc32, storage_key, source, created_at, kept, reserved_at, user_id, run_id, execution_id) \
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, true, $13, $14, $15, $16)",
            &[
                &scope.workspace,
                &file.id,
                &conversation,
                &file.message,
                &file.name,
                &name_key(&file.name),
                &file.mime_type,
                &files::size(file.digest.size)?,
                &&file.digest.sha256[..],
                &i64::from(file.digest.crc32),
                &file.storage_key,
                &file.source.as_str(),
                &created,
                user,
                run,
                &execution,
            ],
        )
        .await?;
    }
    Ok(())
}
