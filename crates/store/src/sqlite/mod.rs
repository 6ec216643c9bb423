//! The embedded backend: one SQLite file, one writer thread, readers apart.

mod audit;
mod conversations;
mod keys;
mod members;
mod messages;
mod open;
mod readers;
mod search;
mod workspaces;
mod writer;

use std::path::Path;

use async_trait::async_trait;
use domain::audit::AuditEntry;
use domain::conversation::{
    Conversation, ConversationPatch, ConversationQuery, ConversationSearch, Found, NewConversation, Page,
    Write,
};
use domain::message::{NewMessage, Window};
use domain::scope::{Role, Scope};
use domain::workspace::{ApiKey, KeyGrant, Member, Membership, Workspace, WorkspacePatch};
use jiff::Timestamp;
use uuid::Uuid;

pub use self::open::Use;
use self::readers::Readers;
use self::writer::{Durability, Writer};
use crate::error::{Result, StoreError};
use crate::store::{Store, Thread};

pub struct SqliteStore {
    writer: Writer,
    readers: Readers,
    /// Held for as long as this process serves from the file.
    _lock: Option<std::fs::File>,
}

impl SqliteStore {
    /// Opens the file, making it and its folder where missing, and brings its schema up to date.
    pub fn open(path: &Path, usage: Use) -> Result<Self> {
        let opened = open::open(path, usage)?;
        Ok(Self {
            writer: Writer::start(opened.writer)?,
            readers: Readers::new(opened.readers),
            _lock: opened.lock,
        })
    }

    /// The schema version that this binary knows; PostgreSQL's has the same number.
    pub fn known_version() -> i32 {
        open::known_version()
    }

    /// The schema version of the file, without changing it; `None` for a file without a schema.
    pub fn schema_version(path: &Path) -> Result<Option<i32>> {
        open::schema_version(path)
    }
}

impl From<rusqlite::Error> for StoreError {
    fn from(error: rusqlite::Error) -> Self {
        use rusqlite::ErrorCode::{
            CannotOpen, DatabaseBusy, DatabaseLocked, DiskFull, ReadOnly, SystemIoFailure,
        };
        match error.sqlite_error_code() {
            Some(DiskFull | SystemIoFailure | DatabaseBusy | DatabaseLocked | CannotOpen | ReadOnly) => {
                Self::Unavailable(error.to_string())
            }
            _ => Self::Internal(error.to_string()),
        }
    }
}

/// Whether an insert met a row that is already there.
fn is_taken(error: &rusqlite::Error) -> bool {
    matches!(
        error.sqlite_error().map(|e| e.extended_code),
        Some(rusqlite::ffi::SQLITE_CONSTRAINT_UNIQUE | rusqlite::ffi::SQLITE_CONSTRAINT_PRIMARYKEY)
    )
}

#[async_trait]
impl Store for SqliteStore {
    async fn create_conversation(
        &self,
        scope: &Scope,
        new: &NewConversation,
        id: Uuid,
        write: &Write,
    ) -> Result<Conversation> {
        let (scope, new, write) = (scope.clone(), new.clone(), write.clone());
        self.writer
            .write(Durability::Full, move |db| conversations::create(db, &scope, &new, id, &write))
            .await
    }

    async fn get_thread(&self, scope: &Scope, id: Uuid, window: Option<Window>) -> Result<Thread> {
        let scope = scope.clone();
        self.readers.read(move |db| conversations::get_thread(db, &scope, id, window)).await
    }

    async fn list_conversations(
        &self,
        scope: &Scope,
        query: &ConversationQuery,
    ) -> Result<Page<Conversation>> {
        let (scope, query) = (scope.clone(), query.clone());
        self.readers.read(move |db| conversations::list(db, &scope, &query)).await
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
            .write(Durability::Full, move |db| {
                conversations::update(db, &scope, id, &patch, if_version, &write)
            })
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
        self.writer
            .write(Durability::Full, move |db| conversations::delete(db, &scope, id, if_version, now))
            .await
    }

    async fn restore_conversation(&self, scope: &Scope, id: Uuid, now: Timestamp) -> Result<Conversation> {
        let scope = scope.clone();
        self.writer.write(Durability::Full, move |db| conversations::restore(db, &scope, id, now)).await
    }

    async fn append_messages(
        &self,
        scope: &Scope,
        conversation: Uuid,
        messages: &[NewMessage],
        now: Timestamp,
    ) -> Result<Conversation> {
        let (scope, messages) = (scope.clone(), messages.to_vec());
        self.writer
            .write(Durability::Full, move |db| messages::append(db, &scope, conversation, &messages, now))
            .await
    }

    async fn create_workspace(&self, scope: &Scope, workspace: &Workspace) -> Result<()> {
        let (scope, workspace) = (scope.clone(), workspace.clone());
        self.writer.write(Durability::Full, move |db| workspaces::create(db, &scope, &workspace)).await
    }

    async fn list_memberships(
        &self,
        user: &str,
        workspace: Option<Uuid>,
        after: Option<Uuid>,
        limit: usize,
    ) -> Result<Vec<Membership>> {
        let user = user.to_owned();
        self.readers.read(move |db| workspaces::list_memberships(db, &user, workspace, after, limit)).await
    }

    async fn find_workspace(&self, scope: &Scope) -> Result<Option<Workspace>> {
        let scope = scope.clone();
        self.readers.read(move |db| workspaces::find(db, &scope)).await
    }

    async fn update_workspace(
        &self,
        scope: &Scope,
        patch: &WorkspacePatch,
        now: Timestamp,
    ) -> Result<Workspace> {
        let (scope, patch) = (scope.clone(), patch.clone());
        self.writer.write(Durability::Full, move |db| workspaces::update(db, &scope, &patch, now)).await
    }

    async fn remove_workspace(&self, scope: &Scope, cascade: bool, now: Timestamp) -> Result<()> {
        let scope = scope.clone();
        self.writer.write(Durability::Full, move |db| workspaces::remove(db, &scope, cascade, now)).await
    }

    async fn list_members(&self, scope: &Scope, after: Option<&str>, limit: usize) -> Result<Vec<Member>> {
        let (scope, after) = (scope.clone(), after.map(str::to_owned));
        self.readers.read(move |db| members::list(db, &scope, after.as_deref(), limit)).await
    }

    async fn find_member(&self, scope: &Scope, user: &str) -> Result<Option<Member>> {
        let (scope, user) = (scope.clone(), user.to_owned());
        self.readers.read(move |db| members::find(db, &scope, &user)).await
    }

    async fn put_member(
        &self,
        scope: &Scope,
        user: &str,
        role: Role,
        now: Timestamp,
    ) -> Result<(Member, bool)> {
        let (scope, user) = (scope.clone(), user.to_owned());
        self.writer.write(Durability::Full, move |db| members::put(db, &scope, &user, role, now)).await
    }

    async fn remove_member(&self, scope: &Scope, user: &str, now: Timestamp) -> Result<()> {
        let (scope, user) = (scope.clone(), user.to_owned());
        self.writer.write(Durability::Full, move |db| members::remove(db, &scope, &user, now)).await
    }

    async fn create_key(&self, scope: &Scope, key: &ApiKey, hash: [u8; 32]) -> Result<()> {
        let (scope, key) = (scope.clone(), key.clone());
        self.writer.write(Durability::Full, move |db| keys::create(db, &scope, &key, hash)).await
    }

    async fn list_keys(&self, scope: &Scope, after: Option<Uuid>, limit: usize) -> Result<Vec<ApiKey>> {
        let scope = scope.clone();
        self.readers.read(move |db| keys::list(db, &scope, after, limit)).await
    }

    async fn remove_key(&self, scope: &Scope, id: Uuid, now: Timestamp) -> Result<()> {
        let scope = scope.clone();
        self.writer.write(Durability::Full, move |db| keys::remove(db, &scope, id, now)).await
    }

    async fn find_key(&self, workspace: Uuid, hash: [u8; 32]) -> Result<Option<KeyGrant>> {
        self.readers.read(move |db| keys::find(db, workspace, hash)).await
    }

    async fn list_audit(&self, scope: &Scope, after: i64, limit: usize) -> Result<Vec<AuditEntry>> {
        let scope = scope.clone();
        self.readers.read(move |db| audit::list(db, &scope, after, limit)).await
    }

    async fn ping(&self) -> Result<()> {
        self.readers.read(open::check_schema).await
    }

    async fn close(&self) {
        self.writer.close().await;
    }
}
