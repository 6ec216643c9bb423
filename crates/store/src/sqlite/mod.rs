//! The embedded backend: one SQLite file, one writer thread, readers apart.

mod agents;
mod approvals;
mod archive;
mod archive_runs;
mod audit;
mod backup;
mod branches;
mod clients;
mod conversations;
mod executions;
mod files;
mod fork_files;
mod keys;
mod leases;
mod log;
mod members;
mod messages;
mod open;
mod pages;
mod purge;
mod readers;
mod rows;
mod run_files;
mod runs;
mod search;
mod tables;
mod tool_servers;
mod turn;
mod usage;
mod workspaces;
mod writer;

use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use domain::agent::Agent;
use domain::approval::{Approval, Decision};
use domain::audit::AuditEntry;
use domain::conversation::{
    Conversation, ConversationPatch, ConversationQuery, ConversationSearch, Found, NewConversation, Page,
    Write,
};
use domain::file::{Bag, File};
use domain::message::{Message, NewMessage};
use domain::open_runs::{OpenRuns, RunLimits};
use domain::page;
use domain::run::{Lease, Run, StartTurn, TurnMessage, Usage};
use domain::scope::{Role, Scope};
use domain::search::index_text;
use domain::table::{Column, Row, Table};
use domain::tokens::{DayUsage, TokensUsed};
use domain::tool_server::{Pin, ToolServer};
use domain::transfer::growth::Growth;
use domain::transfer::{Archive, ArchivedExecution, ArchivedFile, Trace};
use domain::workspace::{ApiKey, KeyGrant, Member, Membership, Workspace, WorkspacePatch};
use futures_util::stream::BoxStream;
use jiff::Timestamp;
use uuid::Uuid;

pub use self::open::Use;
use self::readers::Readers;
use self::writer::{Durability, Writer};
use crate::backup::KeptFile;
use crate::error::{Result, StoreError};
use crate::files::{Doomed, Execution, Fork, NewExecution, NewFile, Purgeable, Reserved, Stored};
use crate::knowledge::{FoundRow, Listed, TextSearch, written};
use crate::store::{Store, Thread, ThreadRead};
use crate::transfer::Pieces;
use crate::turns::{
    Asking, Batch, Begun, Branch, Dispatch, Heartbeat, Held, Lock, LogPage, NewTurn, News, QueueStart,
    Settled, Settlement, Waiting,
};

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

    /// Writes the file as it is at one moment to a path that is free, while others write to it. Not synced.
    pub fn copy_to(path: &Path, to: &Path) -> Result<()> {
        backup::copy_to(path, to)
    }

    /// What a copy says about the bytes that belong to it, by place, after one of them.
    pub fn list_kept(copy: &Path, after: Option<(Uuid, Uuid)>, limit: usize) -> Result<Vec<KeptFile>> {
        backup::list_kept(copy, after, limit)
    }

    /// How many files a copy knows, and their bytes.
    pub fn count_kept(copy: &Path) -> Result<(u64, u64)> {
        backup::count_kept(copy)
    }

    /// The schema version of a copy, which is not touched.
    pub fn copy_version(copy: &Path) -> Result<Option<i32>> {
        open::copy_version(copy)
    }

    /// Keeps servers from the file, which need not be there, for as long as the value lives.
    pub fn keep_servers_out(path: &Path) -> Result<std::fs::File> {
        open::lock_for_serving(path)
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

    async fn get_thread(&self, scope: &Scope, id: Uuid, read: ThreadRead) -> Result<Thread> {
        let scope = scope.clone();
        self.readers.read(move |db| conversations::get_thread(db, &scope, id, read)).await
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

    async fn begin_turn(&self, scope: &Scope, new: &NewTurn) -> Result<Begun> {
        let (scope, new) = (scope.clone(), new.clone());
        self.writer.write(Durability::Full, move |db| turn::begin(db, &scope, &new)).await
    }

    async fn start_queued(
        &self,
        waiting: &Waiting,
        start: &QueueStart,
    ) -> Result<Option<(Run, Lease, Batch)>> {
        let (waiting, start) = (*waiting, *start);
        self.writer.write(Durability::Full, move |db| turn::start_queued(db, &waiting, &start)).await
    }

    async fn get_dispatch(&self, held: &Held, replay: usize) -> Result<Dispatch> {
        let held = *held;
        self.readers.read(move |db| turn::get_dispatch(db, &held, replay)).await
    }

    async fn append_events(&self, held: &Held, batch: &Batch) -> Result<()> {
        let (held, batch) = (*held, batch.clone());
        self.writer.write(Durability::Normal, move |db| log::append(db, &held, &batch)).await
    }

    async fn settle_turn(&self, held: &Held, settlement: &Settlement) -> Result<Settled> {
        let (held, settlement) = (*held, settlement.clone());
        self.writer.write(Durability::Full, move |db| turn::settle(db, &held, &settlement)).await
    }

    async fn count_usage(&self, held: &Held, usage: Usage, now: Timestamp) -> Result<()> {
        let held = *held;
        self.writer.write(Durability::Full, move |db| usage::count(db, &held, usage, now)).await
    }

    async fn count_call(&self, scope: &Scope, _: Uuid, usage: Usage, now: Timestamp) -> Result<()> {
        let scope = scope.clone();
        self.writer
            .write(Durability::Full, move |db| {
                usage::add(db, (scope.workspace, &scope.user), (usage, 0), now)
            })
            .await
    }

    async fn get_tokens_used(&self, scope: &Scope, now: Timestamp) -> Result<TokensUsed> {
        let scope = scope.clone();
        self.readers.read(move |db| usage::used(db, &scope, now)).await
    }

    async fn get_open_runs(&self, scope: &Scope, limits: RunLimits) -> Result<OpenRuns> {
        let scope = scope.clone();
        self.readers.read(move |db| turn::open_runs(db, &scope, limits)).await
    }

    async fn list_usage(&self, scope: &Scope, since: &str) -> Result<Vec<DayUsage>> {
        let (scope, since) = (scope.clone(), since.to_owned());
        self.readers.read(move |db| usage::list(db, &scope, &since)).await
    }

    async fn add_approvals(&self, held: &Held, approvals: &[Approval]) -> Result<()> {
        let (held, approvals) = (*held, approvals.to_vec());
        self.writer.write(Durability::Full, move |db| approvals::add(db, &held, &approvals)).await
    }

    async fn list_approvals(&self, workspace: Uuid, run: Uuid) -> Result<Vec<Approval>> {
        self.readers.read(move |db| approvals::list(db, workspace, run)).await
    }

    async fn decide_approval(&self, scope: &Scope, run: Uuid, id: Uuid, decision: &Decision) -> Result<()> {
        let (scope, decision) = (scope.clone(), decision.clone());
        self.writer.write(Durability::Full, move |db| approvals::decide(db, &scope, run, id, &decision)).await
    }

    async fn start_approved(&self, held: &Held, id: Uuid) -> Result<bool> {
        let held = *held;
        self.writer.write(Durability::Full, move |db| approvals::start(db, &held, id)).await
    }

    async fn put_agent(&self, scope: &Scope, agent: &Agent) -> Result<()> {
        let (scope, agent) = (scope.clone(), agent.clone());
        self.writer.write(Durability::Full, move |db| agents::put(db, &scope, &agent)).await
    }

    async fn list_agents(&self, scope: &Scope, after: Option<Uuid>, limit: usize) -> Result<Vec<Agent>> {
        let scope = scope.clone();
        self.readers.read(move |db| agents::list(db, &scope, after, limit)).await
    }

    async fn find_agent(&self, scope: &Scope, id: Uuid) -> Result<Option<Agent>> {
        let scope = scope.clone();
        self.readers.read(move |db| agents::find(db, &scope, id)).await
    }

    async fn remove_agent(&self, scope: &Scope, id: Uuid) -> Result<()> {
        let scope = scope.clone();
        self.writer.write(Durability::Full, move |db| agents::remove(db, &scope, id)).await
    }

    async fn get_workspace_model(&self, scope: &Scope) -> Result<Option<String>> {
        let scope = scope.clone();
        self.readers.read(move |db| agents::model(db, &scope)).await
    }

    async fn set_workspace_model(&self, scope: &Scope, model: Option<&str>) -> Result<()> {
        let (scope, model) = (scope.clone(), model.map(str::to_owned));
        self.writer.write(Durability::Full, move |db| agents::set_model(db, &scope, model.as_deref())).await
    }

    async fn add_tool_server(&self, scope: &Scope, server: &ToolServer) -> Result<()> {
        let (scope, server) = (scope.clone(), server.clone());
        self.writer.write(Durability::Full, move |db| tool_servers::add(db, &scope, &server)).await
    }

    async fn list_tool_servers(
        &self,
        scope: &Scope,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<ToolServer>> {
        let (scope, after) = (scope.clone(), after.map(str::to_owned));
        self.readers.read(move |db| tool_servers::list(db, &scope, after.as_deref(), limit)).await
    }

    async fn remove_tool_server(&self, scope: &Scope, name: &str, now: Timestamp) -> Result<()> {
        let (scope, name) = (scope.clone(), name.to_owned());
        self.writer.write(Durability::Full, move |db| tool_servers::remove(db, &scope, &name, now)).await
    }

    async fn list_tool_pins(&self, scope: &Scope, server: &str) -> Result<Vec<Pin>> {
        let (scope, server) = (scope.clone(), server.to_owned());
        self.readers.read(move |db| tool_servers::pins(db, &scope, &server)).await
    }

    async fn pin_tools(&self, scope: &Scope, server: &str, pins: &[Pin]) -> Result<()> {
        let (scope, server, pins) = (scope.clone(), server.to_owned(), pins.to_vec());
        self.writer.write(Durability::Full, move |db| tool_servers::pin(db, &scope, &server, &pins)).await
    }

    async fn approve_tool(
        &self,
        scope: &Scope,
        (server, name): (&str, &str),
        pin: &Pin,
        now: Timestamp,
    ) -> Result<()> {
        let (scope, server, name, pin) = (scope.clone(), server.to_owned(), name.to_owned(), pin.clone());
        let approve = move |db: &_| tool_servers::approve(db, &scope, (&server, &name), &pin, now);
        self.writer.write(Durability::Full, approve).await
    }

    async fn create_page(&self, scope: &Scope, page: &page::Page) -> Result<()> {
        let (scope, page) = (scope.clone(), page.clone());
        self.writer.write(Durability::Full, move |db| pages::create(db, &scope, &page)).await
    }

    async fn update_page(&self, scope: &Scope, page: &page::Page) -> Result<()> {
        let (scope, page) = (scope.clone(), page.clone());
        self.writer.write(Durability::Full, move |db| pages::update(db, &scope, &page)).await
    }

    async fn find_page(&self, scope: &Scope, id: Uuid) -> Result<Option<page::Page>> {
        let scope = scope.clone();
        self.readers.read(move |db| pages::find(db, &scope, id)).await
    }

    async fn list_pages(
        &self,
        scope: &Scope,
        after: Option<Uuid>,
        limit: usize,
    ) -> Result<Listed<page::Page>> {
        let scope = scope.clone();
        self.readers.read(move |db| pages::list(db, &scope, after, limit)).await
    }

    async fn remove_page(&self, scope: &Scope, id: Uuid) -> Result<()> {
        let scope = scope.clone();
        self.writer.write(Durability::Full, move |db| pages::remove(db, &scope, id)).await
    }

    async fn search_pages(&self, scope: &Scope, search: &TextSearch) -> Result<Listed<page::Page>> {
        let (scope, search) = (scope.clone(), search.clone());
        self.readers.read(move |db| pages::search(db, &scope, &search)).await
    }

    async fn create_table(&self, scope: &Scope, table: &Table) -> Result<()> {
        let (scope, table) = (scope.clone(), table.clone());
        self.writer.write(Durability::Full, move |db| tables::create(db, &scope, &table)).await
    }

    async fn update_table(
        &self,
        scope: &Scope,
        id: Uuid,
        name: Option<&str>,
        columns: Option<&[Column]>,
        now: Timestamp,
    ) -> Result<Table> {
        let (scope, name) = (scope.clone(), name.map(str::to_owned));
        let columns = columns.map(<[Column]>::to_vec);
        let work = move |db: &_| tables::update(db, &scope, id, name.as_deref(), columns.as_deref(), now);
        self.writer.write(Durability::Full, work).await
    }

    async fn find_table(&self, scope: &Scope, id: Uuid) -> Result<Option<Table>> {
        let scope = scope.clone();
        self.readers.read(move |db| tables::find(db, &scope, id)).await
    }

    async fn list_tables(&self, scope: &Scope, after: Option<Uuid>, limit: usize) -> Result<Vec<Table>> {
        let scope = scope.clone();
        self.readers.read(move |db| tables::list(db, &scope, after, limit)).await
    }

    async fn remove_table(&self, scope: &Scope, id: Uuid) -> Result<()> {
        let scope = scope.clone();
        self.writer.write(Durability::Full, move |db| tables::remove(db, &scope, id)).await
    }

    async fn add_rows(&self, scope: &Scope, table: Uuid, rows: &[Row], now: Timestamp) -> Result<()> {
        let (scope, rows) = (scope.clone(), written(rows, index_text)?);
        self.writer.write(Durability::Full, move |db| rows::add(db, &scope, table, &rows, now)).await
    }

    async fn stage_rows(
        &self,
        scope: &Scope,
        table: Uuid,
        import: Uuid,
        rows: &[Row],
        now: Timestamp,
    ) -> Result<()> {
        let (scope, rows) = (scope.clone(), written(rows, index_text)?);
        let work = move |db: &_| rows::stage(db, &scope, table, import, &rows, now);
        self.writer.write(Durability::Normal, work).await
    }

    async fn keep_import(
        &self,
        scope: &Scope,
        table: Uuid,
        import: Uuid,
        staged: u64,
        now: Timestamp,
    ) -> Result<()> {
        let scope = scope.clone();
        let work = move |db: &_| rows::keep(db, &scope, table, import, staged, now);
        self.writer.write(Durability::Full, work).await
    }

    async fn drop_import(&self, scope: &Scope, table: Uuid, import: Uuid) -> Result<()> {
        let scope = scope.clone();
        self.writer.write(Durability::Normal, move |db| rows::drop_staged(db, &scope, table, import)).await
    }

    async fn list_rows(
        &self,
        scope: &Scope,
        table: Uuid,
        after: Option<Uuid>,
        limit: usize,
    ) -> Result<Listed<Row>> {
        let scope = scope.clone();
        self.readers.read(move |db| rows::list(db, &scope, table, after, limit)).await
    }

    async fn find_row(&self, scope: &Scope, table: Uuid, id: Uuid) -> Result<Option<Row>> {
        let scope = scope.clone();
        self.readers.read(move |db| rows::find(db, &scope, table, id)).await
    }

    async fn update_row(&self, scope: &Scope, table: Uuid, row: &Row, now: Timestamp) -> Result<()> {
        let (scope, rows) = (scope.clone(), written(std::slice::from_ref(row), index_text)?);
        let work = move |db: &_| rows.iter().try_for_each(|row| rows::update(db, &scope, table, row, now));
        self.writer.write(Durability::Full, work).await
    }

    async fn remove_row(&self, scope: &Scope, table: Uuid, id: Uuid, now: Timestamp) -> Result<()> {
        let scope = scope.clone();
        self.writer.write(Durability::Full, move |db| rows::remove(db, &scope, table, id, now)).await
    }

    async fn search_rows(
        &self,
        scope: &Scope,
        table: Option<Uuid>,
        search: &TextSearch,
    ) -> Result<Listed<FoundRow>> {
        let (scope, search) = (scope.clone(), search.clone());
        self.readers.read(move |db| rows::search(db, &scope, table, &search)).await
    }

    async fn get_run(&self, scope: &Scope, run: Uuid) -> Result<Run> {
        let scope = scope.clone();
        self.readers.read(move |db| runs::get(db, &scope, run)).await
    }

    async fn list_runs(
        &self,
        scope: &Scope,
        conversation: Uuid,
        before: Option<Uuid>,
        limit: usize,
    ) -> Result<Vec<Run>> {
        let scope = scope.clone();
        self.readers.read(move |db| runs::list(db, &scope, conversation, before, limit)).await
    }

    async fn list_queue(&self, scope: &Scope, conversation: Uuid) -> Result<Vec<(Run, StartTurn)>> {
        let scope = scope.clone();
        self.readers.read(move |db| runs::list_queue(db, &scope, conversation)).await
    }

    async fn edit_queued(&self, scope: &Scope, run: Uuid, message: &TurnMessage) -> Result<Run> {
        let (scope, message) = (scope.clone(), message.clone());
        self.writer.write(Durability::Full, move |db| runs::edit_queued(db, &scope, run, &message)).await
    }

    async fn request_cancel(&self, scope: &Scope, run: Uuid, now: Timestamp) -> Result<Run> {
        let scope = scope.clone();
        self.writer.write(Durability::Full, move |db| runs::request_cancel(db, &scope, run, now)).await
    }

    async fn get_asking(&self, scope: &Scope, run: Uuid) -> Result<Asking> {
        let scope = scope.clone();
        self.readers.read(move |db| clients::asking(db, &scope, run)).await
    }

    async fn forget_response(&self, scope: &Scope, run: Uuid) -> Result<()> {
        let scope = scope.clone();
        self.writer.write(Durability::Full, move |db| clients::forget(db, &scope, run)).await
    }

    async fn list_metadata(&self, scope: &Scope, ids: &[Uuid]) -> Result<Vec<(Uuid, Option<String>)>> {
        let (scope, ids) = (scope.clone(), ids.to_vec());
        self.readers.read(move |db| clients::metadata(db, &scope, &ids)).await
    }

    async fn set_metadata(&self, scope: &Scope, conversation: Uuid, metadata: &str) -> Result<()> {
        let (scope, metadata) = (scope.clone(), metadata.to_owned());
        let set = move |db: &rusqlite::Connection| clients::set_metadata(db, &scope, conversation, &metadata);
        self.writer.write(Durability::Full, set).await
    }

    async fn rewrite_message(
        &self,
        scope: &Scope,
        conversation: Uuid,
        message: &Message,
        now: Timestamp,
    ) -> Result<()> {
        let (scope, message) = (scope.clone(), message.clone());
        let rewrite =
            move |db: &rusqlite::Connection| clients::rewrite(db, &scope, conversation, &message, now);
        self.writer.write(Durability::Full, rewrite).await
    }

    async fn get_message(&self, scope: &Scope, conversation: Uuid, message: Uuid) -> Result<Message> {
        let scope = scope.clone();
        self.readers.read(move |db| clients::message(db, &scope, conversation, message)).await
    }

    async fn read_log(&self, scope: &Scope, run: Uuid, after: i64, max_bytes: usize) -> Result<LogPage> {
        let scope = scope.clone();
        self.readers.read(move |db| log::read(db, &scope, run, after, max_bytes)).await
    }

    async fn read_trace(&self, scope: &Scope, run: Uuid, after: i64, max_bytes: usize) -> Result<LogPage> {
        let scope = scope.clone();
        self.readers.read(move |db| log::read_trace(db, &scope, run, after, max_bytes)).await
    }

    async fn read_held(&self, held: &Held, after: i64, max_bytes: usize) -> Result<LogPage> {
        let held = *held;
        self.readers.read(move |db| log::read_held(db, &held, after, max_bytes)).await
    }

    async fn system_heartbeat(&self, node: Uuid, lease_seconds: u64, renew: bool) -> Result<Heartbeat> {
        self.writer
            .write(Durability::Normal, move |db| leases::heartbeat(db, node, lease_seconds, renew))
            .await
    }

    async fn system_take_expired(&self, node: Uuid, lease_seconds: u64, limit: usize) -> Result<Vec<Held>> {
        self.writer
            .write(Durability::Full, move |db| leases::take_expired(db, node, lease_seconds, limit))
            .await
    }

    async fn take_over(
        &self,
        scope: &Scope,
        conversation: Uuid,
        node: Uuid,
        lease_seconds: u64,
    ) -> Result<Option<Held>> {
        let scope = scope.clone();
        let work = move |db: &_| leases::take_over(db, &scope, conversation, node, lease_seconds);
        self.writer.write(Durability::Full, work).await
    }

    async fn system_list_locks(&self, after: Option<(Uuid, Uuid)>, limit: usize) -> Result<Vec<Lock>> {
        self.readers.read(move |db| leases::list_locks(db, after, limit)).await
    }

    async fn system_list_waiting(&self, limit: usize) -> Result<Vec<Waiting>> {
        self.readers.read(move |db| leases::list_waiting(db, limit)).await
    }

    async fn system_expire(&self, before: Timestamp, now: Timestamp, limit: usize) -> Result<usize> {
        self.writer.write(Durability::Normal, move |db| log::expire(db, before, now, limit)).await
    }

    async fn system_announce(&self, _news: &[News]) -> Result<()> {
        // The file has one process: nobody else is there to hear.
        Ok(())
    }

    fn is_shared(&self) -> bool {
        false
    }

    fn system_news(&self) -> Option<BoxStream<'static, News>> {
        None
    }

    async fn reserve_files(
        &self,
        scope: &Scope,
        bag: Bag,
        new: &[NewFile],
        max_bag_bytes: u64,
        now: Timestamp,
    ) -> Result<Vec<Reserved>> {
        let (scope, new) = (scope.clone(), new.to_vec());
        let work = move |db: &_| files::reserve(db, &scope, bag, &new, max_bag_bytes, now);
        self.writer.write(Durability::Normal, work).await
    }

    async fn get_reserved(&self, scope: &Scope, bag: Bag, id: Uuid) -> Result<Reserved> {
        let scope = scope.clone();
        self.readers.read(move |db| files::get_reserved(db, &scope, bag, id)).await
    }

    async fn claim_promised(&self, scope: &Scope, bag: Bag, id: Uuid, now: Timestamp) -> Result<Reserved> {
        let scope = scope.clone();
        self.writer.write(Durability::Full, move |db| files::claim_promised(db, &scope, bag, id, now)).await
    }

    async fn keep_files(
        &self,
        scope: &Scope,
        bag: Bag,
        stored: &[Stored],
        max_bag_bytes: u64,
        now: Timestamp,
    ) -> Result<Vec<File>> {
        let (scope, stored) = (scope.clone(), stored.to_vec());
        let work = move |db: &_| files::keep(db, &scope, bag, &stored, max_bag_bytes, now);
        self.writer.write(Durability::Full, work).await
    }

    async fn system_forget_files(&self, workspace: Uuid, ids: &[Uuid]) -> Result<()> {
        let ids = ids.to_vec();
        self.writer.write(Durability::Normal, move |db| files::forget(db, workspace, &ids)).await
    }

    async fn list_files(
        &self,
        scope: &Scope,
        bag: Bag,
        after: Option<Uuid>,
        limit: usize,
    ) -> Result<Vec<File>> {
        let scope = scope.clone();
        self.readers.read(move |db| files::list(db, &scope, bag, after, limit)).await
    }

    async fn get_file(&self, scope: &Scope, id: Uuid) -> Result<File> {
        let scope = scope.clone();
        self.readers.read(move |db| files::get(db, &scope, id)).await
    }

    async fn delete_file(&self, scope: &Scope, id: Uuid, now: Timestamp) -> Result<()> {
        let scope = scope.clone();
        self.writer.write(Durability::Full, move |db| files::delete(db, &scope, id, now)).await
    }

    async fn keep_results(
        &self,
        held: &Held,
        stored: &[Stored],
        max_bag_bytes: u64,
        now: Timestamp,
    ) -> Result<Vec<File>> {
        let (held, stored) = (*held, stored.to_vec());
        let work = move |db: &_| run_files::keep_results(db, &held, &stored, max_bag_bytes, now);
        self.writer.write(Durability::Full, work).await
    }

    async fn list_results(&self, held: &Held) -> Result<Vec<File>> {
        let held = *held;
        self.readers.read(move |db| run_files::list_results(db, &held)).await
    }

    async fn list_run_assets(&self, workspace: Uuid, run: Uuid) -> Result<Vec<File>> {
        self.readers.read(move |db| run_files::list_run_assets(db, workspace, run)).await
    }

    async fn system_list_stale(&self, before: Timestamp, limit: usize) -> Result<Vec<Doomed>> {
        self.writer.write(Durability::Full, move |db| purge::list_stale(db, before, limit)).await
    }

    async fn system_known_keys(&self, keys: &[String]) -> Result<Vec<bool>> {
        let keys = keys.to_vec();
        self.readers.read(move |db| purge::known_keys(db, &keys)).await
    }

    async fn begin_execution(&self, scope: &Scope, new: &NewExecution) -> Result<Begun> {
        let (scope, new) = (scope.clone(), new.clone());
        self.writer.write(Durability::Full, move |db| executions::begin(db, &scope, &new)).await
    }

    async fn get_execution(&self, scope: &Scope, id: Uuid) -> Result<Execution> {
        let scope = scope.clone();
        self.readers.read(move |db| executions::get(db, &scope, id)).await
    }

    async fn system_list_purgeable(&self, before: Timestamp, limit: usize) -> Result<Vec<Purgeable>> {
        self.readers.read(move |db| purge::list(db, before, limit)).await
    }

    async fn system_begin_purge(&self, conversation: &Purgeable) -> Result<Vec<Doomed>> {
        let of = *conversation;
        self.writer.write(Durability::Full, move |db| purge::begin(db, &of)).await
    }

    async fn system_purge(&self, conversation: &Purgeable) -> Result<()> {
        let of = *conversation;
        self.writer.write(Durability::Full, move |db| purge::purge(db, &of)).await
    }

    async fn system_list_deleted_files(&self, before: Timestamp, limit: usize) -> Result<Vec<Doomed>> {
        self.readers.read(move |db| purge::list_deleted(db, before, limit)).await
    }

    async fn system_compact(&self) -> Result<()> {
        for table in ["title_search", "message_search", "page_search", "row_search"] {
            let merge = |first| move |db: &_| purge::merge(db, table, first);
            let mut more = self.writer.write(Durability::Normal, merge(true)).await?;
            while more {
                more = self.writer.write(Durability::Normal, merge(false)).await?;
            }
        }
        self.writer.alone(purge::rewrite).await
    }

    async fn list_fork_files(&self, scope: &Scope, conversation: Uuid, through: Uuid) -> Result<Vec<File>> {
        let scope = scope.clone();
        self.readers.read(move |db| fork_files::list(db, &scope, conversation, through)).await
    }

    async fn fork_conversation(
        &self,
        scope: &Scope,
        conversation: Uuid,
        through: Uuid,
        fork: &Fork,
    ) -> Result<Conversation> {
        let (scope, fork) = (scope.clone(), fork.clone());
        let work = move |db: &_| branches::fork(db, &scope, conversation, through, &fork);
        self.writer.write(Durability::Full, work).await
    }

    async fn list_branches(&self, scope: &Scope, conversation: Uuid) -> Result<Vec<Branch>> {
        let scope = scope.clone();
        self.readers.read(move |db| branches::list(db, &scope, conversation)).await
    }

    async fn select_branch(
        &self,
        scope: &Scope,
        conversation: Uuid,
        branch: Uuid,
        now: Timestamp,
    ) -> Result<Conversation> {
        let scope = scope.clone();
        let work = move |db: &_| branches::select(db, &scope, conversation, branch, now);
        self.writer.write(Durability::Full, work).await
    }

    async fn list_archivable(&self, scope: &Scope, after: Option<Uuid>, limit: usize) -> Result<Vec<Uuid>> {
        let scope = scope.clone();
        self.readers.read(move |db| archive::list(db, &scope, after, limit)).await
    }

    async fn get_archive(&self, scope: &Scope, id: Uuid) -> Result<Archive> {
        let scope = scope.clone();
        self.readers.read(move |db| archive::get(db, &scope, id)).await
    }

    async fn list_archived_files(&self, scope: &Scope) -> Result<Vec<ArchivedFile>> {
        let scope = scope.clone();
        self.readers.read(move |db| files::archived(db, &scope, Bag::Workspace)).await
    }

    async fn known_conversations(&self, scope: &Scope, ids: &[Uuid]) -> Result<Vec<bool>> {
        let (scope, ids) = (scope.clone(), ids.to_vec());
        self.readers.read(move |db| archive::known(db, &scope, &ids)).await
    }

    async fn import_archive(
        &self,
        scope: &Scope,
        archive: Arc<Archive>,
        traces: Arc<dyn Pieces<Trace>>,
    ) -> Result<bool> {
        let scope = scope.clone();
        let work = move |db: &_| archive::import(db, &scope, &archive, &*traces);
        self.writer.write(Durability::Full, work).await
    }

    async fn list_message_ids(&self, scope: &Scope, conversation: Uuid) -> Result<Vec<Uuid>> {
        let scope = scope.clone();
        self.readers.read(move |db| archive::message_ids(db, &scope, conversation)).await
    }

    async fn extend_archive(&self, scope: &Scope, growth: Arc<Growth>, stored: &[Stored]) -> Result<bool> {
        let (scope, stored) = (scope.clone(), stored.to_vec());
        let work = move |db: &_| archive::extend(db, &scope, &growth, &stored);
        self.writer.write(Durability::Full, work).await
    }

    async fn list_executions(&self, scope: &Scope, after: Option<Uuid>, limit: usize) -> Result<Vec<Uuid>> {
        let scope = scope.clone();
        self.readers.read(move |db| archive_runs::list_executions(db, &scope, after, limit)).await
    }

    async fn get_archived_execution(&self, scope: &Scope, id: Uuid) -> Result<ArchivedExecution> {
        let scope = scope.clone();
        self.readers.read(move |db| archive_runs::get_execution(db, &scope, id)).await
    }

    async fn import_execution(
        &self,
        scope: &Scope,
        execution: Arc<ArchivedExecution>,
        traces: Arc<dyn Pieces<Trace>>,
    ) -> Result<bool> {
        let scope = scope.clone();
        let work = move |db: &_| archive_runs::import_execution(db, &scope, &execution, &*traces);
        self.writer.write(Durability::Full, work).await
    }

    async fn import_table(
        &self,
        scope: &Scope,
        table: &Table,
        rows: Arc<dyn Pieces<Vec<Row>>>,
    ) -> Result<bool> {
        let (scope, table) = (scope.clone(), table.clone());
        let work = move |db: &_| tables::import(db, &scope, &table, &*rows);
        self.writer.write(Durability::Full, work).await
    }

    async fn is_empty(&self, scope: &Scope) -> Result<bool> {
        let scope = scope.clone();
        self.readers.read(move |db| archive_runs::is_empty(db, &scope)).await
    }

    async fn ping(&self) -> Result<()> {
        self.readers.read(open::check_schema).await
    }

    async fn close(&self) {
        self.writer.close().await;
    }
}
