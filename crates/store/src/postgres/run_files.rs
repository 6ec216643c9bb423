//! The files of a run: what its message brings, what it is given when it starts, what its sandbox sends back.

use async_trait::async_trait;
use domain::file::{Bag, File};
use domain::scope::Scope;
use jiff::Timestamp;
use uuid::Uuid;

use super::files::{COLUMNS, VISIBLE, keep_in, lock_bag, read_all};
use super::runs::RUNNING;
use super::transaction::{Query, Settings, Transaction, inside, transaction};
use super::{PostgresStore, conversations};
use crate::error::{Result, StoreError};
use crate::files::Stored;
use crate::list::Dialect;
use crate::store::run_files::RunFiles;
use crate::turns::{Held, own_scope};

#[async_trait]
impl RunFiles for PostgresStore {
    async fn keep_results(
        &self,
        held: &Held,
        stored: &[Stored],
        max_bag_bytes: u64,
        now: Timestamp,
    ) -> Result<Vec<File>> {
        let settings = Settings::workspace(held.workspace).seeing_all();
        transaction!(self.database, begin_write, settings, |tx| keep_results(
            tx,
            held,
            stored,
            max_bag_bytes,
            now
        ))
    }

    async fn list_results(&self, held: &Held) -> Result<Vec<File>> {
        let ours = format!(
            "SELECT id FROM runs WHERE {} AND id = $2 AND fence = $3 AND {RUNNING}",
            inside(self.database.dialect, "workspace_id")
        );
        let ours = Query { text: &ours, params: vec![&held.workspace, &held.lease.run, &held.lease.fence] };
        let text = of_run(self.database.dialect);
        let results = Query { text: &text, params: vec![&held.workspace, &held.lease.run] };
        let settings = Settings::workspace(held.workspace).seeing_all();
        let [ours, rows] = self.database.read(&settings, [ours, results]).await?;
        if ours.is_empty() {
            return Err(StoreError::Lost);
        }
        read_all(&rows)
    }

    async fn list_run_assets(&self, workspace: Uuid, run: Uuid) -> Result<Vec<File>> {
        let live = format!(
            "SELECT r.id FROM runs r WHERE {} AND r.id = $2 AND (r.conversation_id IS NULL OR {})",
            inside(self.database.dialect, "r.workspace_id"),
            conversations::asked("r", "c.deleted_at IS NULL")
        );
        let live = Query { text: &live, params: vec![&workspace, &run] };
        let text = frozen(self.database.dialect);
        let given = Query { text: &text, params: vec![&workspace, &run] };
        let [live, rows] =
            self.database.read(&Settings::workspace(workspace).seeing_all(), [live, given]).await?;
        if live.is_empty() {
            return Err(StoreError::NotFound);
        }
        read_all(&rows)
    }
}

/// The visible ones of a conversation's files with these ids, each in its place. Asks nothing for none.
pub(super) async fn pick(
    tx: &Transaction,
    scope: &Scope,
    conversation: Uuid,
    ids: &[Uuid],
) -> Result<Vec<Option<File>>> {
    if ids.is_empty() {
        return Ok(Vec::new());
    }
    let text = format!(
        "SELECT {COLUMNS} FROM files f WHERE {} AND f.conversation_id = $2 AND f.id = ANY($3) AND {VISIBLE}",
        tx.inside("f.workspace_id")
    );
    let files = read_all(&tx.rows(&text, &[&scope.workspace, &conversation, &ids]).await?)?;
    Ok(ids.iter().map(|id| files.iter().find(|file| file.id == *id).cloned()).collect())
}

/// Ties files to a message. Asks nothing for none.
pub(super) async fn attach(tx: &Transaction, scope: &Scope, files: &[File], message: Uuid) -> Result<()> {
    if files.is_empty() {
        return Ok(());
    }
    let ids: Vec<Uuid> = files.iter().map(|file| file.id).collect();
    let text =
        format!("UPDATE files SET message_id = $3 WHERE {} AND id = ANY($2)", tx.inside("workspace_id"));
    tx.execute(&text, &[&scope.workspace, &ids, &message]).await.map(|_| ())
}

/// The ids of the bag's visible files as a run keeps them, NULL for none, as SQL; `owner` is the bag's column of `f`
/// and its value.
pub(super) fn assets(dialect: Dialect, owner: (&str, &str)) -> String {
    format!(
        "(SELECT json_agg(f.id ORDER BY f.id)::text FROM files f WHERE {} AND f.{} = {} AND {VISIBLE})",
        inside(dialect, "f.workspace_id"),
        owner.0,
        owner.1
    )
}

/// The visible ones of the files that the run `$2` was given.
fn frozen(dialect: Dialect) -> String {
    format!(
        "SELECT {COLUMNS} FROM runs r CROSS JOIN LATERAL json_array_elements_text(r.assets::json) AS given (id) \
         JOIN files f ON f.workspace_id = r.workspace_id AND f.id = given.id::uuid \
         WHERE {} AND r.id = $2 AND {VISIBLE} ORDER BY f.name COLLATE \"C\"",
        inside(dialect, "r.workspace_id")
    )
}

pub(super) async fn given_to(tx: &Transaction, workspace: Uuid, run: Uuid) -> Result<Vec<File>> {
    read_all(&tx.rows(&frozen(tx.dialect), &[&workspace, &run]).await?)
}

/// The bag is locked before the run, as everywhere.
async fn keep_results(
    tx: &Transaction,
    held: &Held,
    stored: &[Stored],
    max_bag_bytes: u64,
    now: Timestamp,
) -> Result<Vec<File>> {
    let (scope, run) = (own_scope(held.workspace), held.lease.run);
    let own = tx.inside("workspace_id");
    let text = format!("SELECT conversation_id, execution_id FROM runs WHERE {own} AND id = $2");
    let row = tx.row(&text, &[&held.workspace, &run]).await?.ok_or(StoreError::Lost)?;
    let bag = match (row.try_get(0)?, row.try_get(1)?) {
        (Some(conversation), _) => Bag::Conversation(conversation),
        (None, Some(execution)) => Bag::Execution(execution),
        (None, None) => return Err(StoreError::Lost),
    };
    // What was deleted takes nothing any more.
    lock_bag(tx, &scope, bag).await.map_err(|error| match error {
        StoreError::NotFound => StoreError::Lost,
        other => other,
    })?;
    let text = format!(
        "UPDATE runs SET upload_used_at = $4 WHERE {own} AND id = $2 AND fence = $3 AND {RUNNING} \
         AND NOT cancel_requested AND upload_used_at IS NULL"
    );
    if tx.execute(&text, &[&held.workspace, &run, &held.lease.fence, &now]).await? == 0 {
        return Err(StoreError::Lost);
    }
    keep_in(tx, &scope, bag, Some(run), stored, (max_bag_bytes, now)).await
}

/// What the sandbox of the run `$2` sent back.
fn of_run(dialect: Dialect) -> String {
    format!(
        "SELECT {COLUMNS} FROM files f WHERE {} AND f.run_id = $2 AND {VISIBLE} ORDER BY f.id",
        inside(dialect, "f.workspace_id")
    )
}
