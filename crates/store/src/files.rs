//! What the verbs of files and executions take and give, and what both backends make of it.

use std::collections::HashMap;

use domain::event::Turn;
use domain::file::{Digest, File, FileSource};
use domain::message::{Block, Message, MessageRole};
use domain::open_runs::RunLimits;
use domain::run::{Brought, OnBusy, OnDisconnect, Run, StartTurn, TurnMessage};
use domain::tokens::TokenLimits;
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::value::RawValue;
use uuid::Uuid;

use crate::error::{Result, StoreError};
use crate::turns::{Batch, Idempotency, opening, parse_json, to_json};

/// A file that is about to be uploaded. Its name is safe already; the store makes it unique.
#[derive(Debug, Clone)]
pub struct NewFile {
    pub id: Uuid,
    pub name: String,
    pub source: FileSource,
    /// Set for a direct upload, whose bytes go past the server.
    pub promised: Option<Promised>,
}

/// What a direct upload is to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Promised {
    pub size: u64,
    pub sha256: [u8; 32],
    pub expires_at: Timestamp,
}

/// A file whose name is taken and whose bytes may be under way: nobody can see it yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reserved {
    pub id: Uuid,
    pub name: String,
    pub storage_key: String,
    pub source: FileSource,
    pub promised: Option<Promised>,
}

/// A reserved file whose bytes are durable under its key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stored {
    pub id: Uuid,
    pub digest: Digest,
    pub mime_type: String,
}

/// A fork to make.
#[derive(Debug, Clone)]
pub struct Fork {
    pub id: Uuid,
    /// The files of the source, each with the id of its copy. The bytes already lie under the copy's key:
    /// `Bag::Conversation(id)` with the same name.
    pub files: Vec<(Uuid, Uuid)>,
    pub now: Timestamp,
}

/// A run outside any conversation, with its files already reserved in its bag and stored.
#[derive(Debug, Clone)]
pub struct NewExecution {
    pub id: Uuid,
    pub run: Uuid,
    pub prompt: String,
    pub agent: Option<String>,
    pub workflow: Option<String>,
    pub model: Option<String>,
    pub files: Vec<Stored>,
    pub idempotency: Option<Idempotency>,
    pub node: Uuid,
    pub lease_seconds: u64,
    pub open_runs: RunLimits,
    pub tokens: TokenLimits,
    pub max_bag_bytes: u64,
    pub now: Timestamp,
}

/// An execution as it stands.
#[derive(Debug, Clone, PartialEq)]
pub struct Execution {
    pub id: Uuid,
    pub run: Run,
    pub response: Option<String>,
    /// What the run wrote back.
    pub files: Vec<File>,
}

/// Bytes that may go: a reservation that was never kept, or a file deleted long enough ago.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Doomed {
    pub workspace: Uuid,
    pub id: Uuid,
    pub storage_key: String,
}

/// A deleted conversation whose time is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Purgeable {
    pub workspace: Uuid,
    pub conversation: Uuid,
}

/// A message's `file_attachments`.
pub(crate) fn attachments_json(files: &[File]) -> Result<String> {
    to_json(&files.iter().map(File::attachment).collect::<Vec<_>>())
}

/// What of a block or an attachment says that it names a file.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Naming {
    r#type: Option<String>,
    file_id: Option<Uuid>,
}

impl Naming {
    /// The file that an item names. A step that happens to have such a field names none.
    fn read(item: &RawValue) -> Option<Uuid> {
        let naming: Self = serde_json::from_str(item.get()).ok()?;
        naming.file_id.filter(|_| naming.r#type.is_none_or(|kind| kind == "file"))
    }
}

/// The files that a message's blocks or attachments name, in order.
pub(crate) fn named_files(items: &str) -> Result<Vec<Uuid>> {
    let items: Vec<&RawValue> =
        serde_json::from_str(items).map_err(|error| StoreError::Internal(error.to_string()))?;
    Ok(items.into_iter().filter_map(Naming::read).collect())
}

/// A message's blocks or attachments with other files in the place of these; all else stays as it was spelled.
pub(crate) fn rename_files(items: &str, copies: &HashMap<Uuid, Uuid>) -> Result<String> {
    let items: Vec<Box<RawValue>> = parse_json(items)?;
    let renamed = items.into_iter().map(|item| {
        let Some((from, to)) = Naming::read(&item).and_then(|id| copies.get_key_value(&id)) else {
            return Ok(item);
        };
        let text = item.get().replacen(&format!("\"{from}\""), &format!("\"{to}\""), 1);
        RawValue::from_string(text).map_err(|error| StoreError::Internal(error.to_string()))
    });
    to_json(&renamed.collect::<Result<Vec<_>>>()?)
}

/// What the log of an execution begins with.
pub(crate) fn execution_opening(new: &NewExecution) -> Result<Batch> {
    opening(Turn { conversation: None, run: new.run, message: None, conversation_id: None }, new.now)
}

/// What an execution asks of its runner, kept with its run as a turn's request is.
pub(crate) fn execution_turn(new: &NewExecution) -> Result<StartTurn> {
    let content = to_json(&[Block::Text { text: new.prompt.clone() }])?;
    Ok(StartTurn {
        conversation: None,
        replace: None,
        message: Some(TurnMessage { content, text: new.prompt.clone(), wordless: false }),
        attachments: None,
        agent: new.agent.clone(),
        model: new.model.clone(),
        workflow: new.workflow.clone(),
        mode: None,
        source: None,
        page_path: None,
        on_busy: OnBusy::Reject,
        on_disconnect: OnDisconnect::Cancel,
        brought: Brought::default(),
    })
}

/// The prompt of an execution as the message that its runner answers.
pub(crate) fn execution_message(id: Uuid, run: &Run, turn: &StartTurn) -> Message {
    let said = turn
        .message
        .clone()
        .unwrap_or_else(|| TurnMessage { content: "[]".into(), ..TurnMessage::default() });
    Message {
        id,
        seq: 1,
        role: MessageRole::User,
        text: said.text,
        content: said.content,
        file_attachments: "[]".into(),
        sources: "[]".into(),
        token_count: 0,
        metadata: "{}".into(),
        created_at: run.created_at,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_are_named_and_nothing_else_changes() {
        let (old, new, other) = (Uuid::from_u128(1), Uuid::from_u128(2), Uuid::from_u128(3));
        let copies = HashMap::from([(old, new)]);
        let blocks = |id: Uuid| {
            format!(
                r#"[{{"type":"text","text":"{old}"}},{{"type":"step","fileId":"{old}","args":1.50}},{{"type":"file","fileId":"{id}","name":"{old}"}}]"#
            )
        };
        assert_eq!(rename_files(&blocks(old), &copies).unwrap(), blocks(new));
        assert_eq!(named_files(&blocks(old)).unwrap(), [old]);
        let attachments = |id: Uuid| format!(r#"[{{"fileId":"{other}"}},{{"fileId":"{id}","name":"a"}}]"#);
        assert_eq!(rename_files(&attachments(old), &copies).unwrap(), attachments(new));
        assert_eq!(named_files(&attachments(old)).unwrap(), [other, old]);
        for same in ["[]", r#"[{"fileId":"f"}]"#, r#"["x",1,null]"#, &attachments(other)] {
            assert_eq!(rename_files(same, &copies).unwrap(), same);
        }
    }
}
