//! The files of a fork: which ones go with a thread, and their copies, which the new messages name.

use std::collections::{HashMap, HashSet};

use domain::file::{Bag, File};
use domain::scope::Scope;
use uuid::Uuid;

use super::branches::{self, NOT_THROUGH};
use super::segments::{self, Start};
use super::transaction::Transaction;
use super::{conversations, files, run_files};
use crate::error::Result;
use crate::files::{Fork, named_files, rename_files};

/// The condition that a message `m` may name files.
const NAMING: &str = "(m.file_attachments <> '[]' OR strpos(m.content, '\"fileId\"') > 0)";

/// Those that the thread's messages name, and those that lay in the bag by then and that no message names.
pub(super) async fn list(
    tx: &Transaction,
    scope: &Scope,
    conversation: Uuid,
    through: Uuid,
) -> Result<Vec<File>> {
    conversations::get(tx, scope, conversation).await?;
    let spot = branches::place(tx, scope, conversation, through).await?.ok_or(NOT_THROUGH)?;
    let text = format!(
        "SELECT {} FROM files f WHERE {} AND f.conversation_id = $2 AND {} ORDER BY f.id",
        files::COLUMNS,
        tx.inside("f.workspace_id"),
        files::VISIBLE
    );
    let bag = files::read_all(&tx.rows(&text, &[&scope.workspace, &conversation]).await?)?;
    if bag.is_empty() {
        return Ok(bag);
    }
    let text = format!(
        "{} SELECT m.content, m.file_attachments, m.seq <= $4 AND EXISTS ( \
             SELECT 1 FROM line l WHERE l.branch = m.branch AND m.seq <= l.through) \
         FROM messages m WHERE {} AND m.conversation_id = $2 AND {NAMING}",
        segments::line(tx.dialect, Start::Number, "TRUE"),
        tx.inside("m.workspace_id")
    );
    let rows = tx.rows(&text, &[&scope.workspace, &conversation, &Some(spot.branch), &spot.seq]).await?;
    let (mut inside, mut elsewhere) = (HashSet::new(), HashSet::new());
    for row in &rows {
        let named = if row.try_get(2)? { &mut inside } else { &mut elsewhere };
        named.extend(named_files(row.try_get(0)?)?);
        named.extend(named_files(row.try_get(1)?)?);
    }
    let unnamed = |file: &File| {
        file.message.is_none() && !elsewhere.contains(&file.id) && file.created_at <= spot.created_at
    };
    Ok(bag.into_iter().filter(|file| inside.contains(&file.id) || unnamed(file)).collect())
}

/// Puts the copies into the fork's bag and their ids into its messages. What was deleted meanwhile is left out.
pub(super) async fn copy(tx: &Transaction, scope: &Scope, from: Uuid, fork: &Fork) -> Result<()> {
    let ids: Vec<Uuid> = fork.files.iter().map(|(source, _)| *source).collect();
    let found = run_files::pick(tx, scope, from, &ids).await?;
    let copied: Vec<(File, Uuid)> = found
        .into_iter()
        .zip(&fork.files)
        .filter_map(|(file, (_, copy))| file.map(|file| (file, *copy)))
        .collect();
    if copied.is_empty() {
        return Ok(());
    }
    insert(tx, scope, &copied, fork.id).await?;
    let copies = copied.into_iter().map(|(file, copy)| (file.id, copy)).collect();
    let attached = rename(tx, scope, fork.id, &copies).await?;
    attach(tx, scope, fork.id, attached).await
}

async fn insert(tx: &Transaction, scope: &Scope, copied: &[(File, Uuid)], to: Uuid) -> Result<()> {
    let key = |(file, _): &(File, Uuid)| Bag::Conversation(to).storage_key(scope.workspace, &file.name);
    let text = format!(
        "INSERT INTO files (workspace_id, id, conversation_id, name, name_key, mime_type, size, sha256, crc32, \
         storage_key, source, created_at, reserved_at, user_id) \
         SELECT f.workspace_id, n.copy, $2::uuid, f.name, f.name_key, f.mime_type, f.size, f.sha256, f.crc32, \
         n.storage_key, f.source, f.created_at, f.reserved_at, $3::text \
         FROM unnest($4::uuid[], $5::uuid[], $6::text[]) AS n (source, copy, storage_key) \
         JOIN files f ON f.id = n.source WHERE {}",
        tx.inside("f.workspace_id")
    );
    tx.insert(
        "file",
        &text,
        &[
            &scope.workspace,
            &to,
            &scope.user,
            &copied.iter().map(|(file, _)| file.id).collect::<Vec<_>>(),
            &copied.iter().map(|(_, copy)| *copy).collect::<Vec<_>>(),
            &copied.iter().map(key).collect::<Vec<_>>(),
        ],
    )
    .await
}

/// Names the copies in the messages of the fork, and answers which one each is attached to.
async fn rename(
    tx: &Transaction,
    scope: &Scope,
    fork: Uuid,
    copies: &HashMap<Uuid, Uuid>,
) -> Result<HashMap<Uuid, Uuid>> {
    let own = tx.inside("m.workspace_id");
    let text = format!(
        "SELECT m.id, m.content, m.file_attachments FROM messages m \
         WHERE {own} AND m.conversation_id = $2 AND {NAMING} ORDER BY m.seq"
    );
    let (mut ids, mut contents, mut attachments) = (Vec::<Uuid>::new(), Vec::new(), Vec::new());
    let mut attached = HashMap::new();
    for row in tx.rows(&text, &[&scope.workspace, &fork]).await? {
        let message = row.try_get(0)?;
        let named = rename_files(row.try_get(2)?, copies)?;
        attached.extend(named_files(&named)?.into_iter().map(|file| (file, message)));
        ids.push(message);
        contents.push(rename_files(row.try_get(1)?, copies)?);
        attachments.push(named);
    }
    let text = format!(
        "UPDATE messages m SET content = n.content, file_attachments = n.file_attachments \
         FROM unnest($3::uuid[], $4::text[], $5::text[]) AS n (id, content, file_attachments) \
         WHERE {own} AND m.conversation_id = $2 AND m.id = n.id"
    );
    tx.execute(&text, &[&scope.workspace, &fork, &ids, &contents, &attachments]).await?;
    Ok(attached)
}

/// Ties the copies to their messages.
async fn attach(tx: &Transaction, scope: &Scope, fork: Uuid, attached: HashMap<Uuid, Uuid>) -> Result<()> {
    let (files, messages): (Vec<Uuid>, Vec<Uuid>) = attached.into_iter().unzip();
    let text = format!(
        "UPDATE files f SET message_id = n.message FROM unnest($3::uuid[], $4::uuid[]) AS n (file, message) \
         WHERE {} AND f.conversation_id = $2 AND f.id = n.file",
        tx.inside("f.workspace_id")
    );
    tx.execute(&text, &[&scope.workspace, &fork, &files, &messages]).await.map(|_| ())
}
