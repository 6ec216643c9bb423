//! A file: whose it is, what it is called, and how it looks to a client. Its bytes lie under its storage key.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

pub use name::{is_safe_name, name_key, numbered, safe_name};

#[path = "file/name.rs"]
mod name;

/// What a file belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Bag {
    Conversation(Uuid),
    Execution(Uuid),
    /// Kept in the workspace for good.
    Workspace,
}

impl Bag {
    /// The conversation whose bag it is, or the execution.
    pub fn owners(self) -> (Option<Uuid>, Option<Uuid>) {
        match self {
            Self::Conversation(id) => (Some(id), None),
            Self::Execution(id) => (None, Some(id)),
            Self::Workspace => (None, None),
        }
    }

    /// Where the bytes of a file with this name lie. Names are unique in a bag, so no two files share a key.
    pub fn storage_key(self, workspace: Uuid, name: &str) -> String {
        match self {
            Self::Conversation(id) => format!("assistant-chat-bag/{workspace}/{id}/{name}"),
            Self::Execution(id) => format!("execution-bag/{workspace}/{id}/{name}"),
            Self::Workspace => format!("workspace-files/{workspace}/{name}"),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FileSource {
    User,
    Sandbox,
}

impl FileSource {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Sandbox => "sandbox",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        [Self::User, Self::Sandbox].into_iter().find(|source| source.as_str() == text)
    }
}

/// What the bytes were when they were stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Digest {
    pub size: u64,
    pub sha256: [u8; 32],
    /// For the zip, which states it before the bytes.
    pub crc32: u32,
}

/// A stored file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct File {
    pub id: Uuid,
    pub bag: Bag,
    /// The message it is attached to.
    pub message: Option<Uuid>,
    pub name: String,
    pub mime_type: String,
    pub digest: Digest,
    pub storage_key: String,
    pub source: FileSource,
    pub created_at: Timestamp,
    pub deleted_at: Option<Timestamp>,
}

/// A file as clients see it.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct FileView<'a> {
    id: Uuid,
    chat_id: Option<Uuid>,
    execution_id: Option<Uuid>,
    message_id: Option<Uuid>,
    name: &'a str,
    mime_type: &'a str,
    size: u64,
    sha256: String,
    storage_key: &'a str,
    source: FileSource,
    created_at: i64,
    deleted_at: Option<i64>,
}

/// A file as a message keeps it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Attachment {
    pub file_id: Uuid,
    pub name: String,
    pub mime_type: String,
    pub size: u64,
    pub sha256: String,
}

impl File {
    pub fn view(&self) -> FileView<'_> {
        let (chat_id, execution_id) = self.bag.owners();
        FileView {
            id: self.id,
            chat_id,
            execution_id,
            message_id: self.message,
            name: &self.name,
            mime_type: &self.mime_type,
            size: self.digest.size,
            sha256: self.sha256_hex(),
            storage_key: &self.storage_key,
            source: self.source,
            created_at: self.created_at.as_millisecond(),
            deleted_at: self.deleted_at.map(Timestamp::as_millisecond),
        }
    }

    pub fn attachment(&self) -> Attachment {
        Attachment {
            file_id: self.id,
            name: self.name.clone(),
            mime_type: self.mime_type.clone(),
            size: self.digest.size,
            sha256: self.sha256_hex(),
        }
    }

    pub fn sha256_hex(&self) -> String {
        self.digest.sha256.iter().map(|byte| format!("{byte:02x}")).collect()
    }
}
