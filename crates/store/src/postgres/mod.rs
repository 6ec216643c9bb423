//! The shared backend: PostgreSQL, under a role that row level security holds for.

mod agents;
mod appends;
mod approvals;
mod archive;
mod archive_runs;
mod audit;
mod branches;
mod clients;
mod conversations;
mod error;
mod executions;
mod files;
mod fork_files;
mod keys;
mod leases;
mod log;
mod members;
mod messages;
mod news;
mod open;
mod pages;
mod presence;
mod purge;
mod rows;
mod runs;
mod search;
mod tables;
mod tool_servers;
mod transaction;
mod turn;
mod usage;
mod workspaces;

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
use domain::page;
use domain::run::{Lease, Run, StartTurn, TurnMessage, Usage};
use domain::scope::{Role, Scope};
use domain::search::index_tsvector;
use domain::secret::Secret;
use domain::table::{Column, Row, Table};
use domain::tokens::{DayUsage, TokensUsed};
use domain::tool_server::{Pin, ToolServer};
use domain::transfer::growth::Growth;
use domain::transfer::{Archive, ArchivedExecution, ArchivedFile, Trace};
use domain::workspace::{ApiKey, KeyGrant, Member, Membership, Workspace, WorkspacePatch};
use futures_util::stream::BoxStream;
use jiff::Timestamp;
use uuid::Uuid;

use self::appends::Appends;
use self::presence::Presence;
use self::transaction::{Database, Settings};
use crate::error::{Result, StoreError};
use crate::files::{Doomed, Execution, Fork, NewExecution, NewFile, Purgeable, Reserved, Stored};
use crate::knowledge::{FoundRow, Listed, TextSearch, written};
use crate::list::Dialect;
use crate::store::{Store, Thread, ThreadRead};
use crate::transfer::Pieces;
use crate::turns::{
    Asking, Batch, Begun, Branch, Dispatch, Heartbeat, Held, Lock, LogPage, NewTurn, News, QueueStart,
    Settled, Settlement, Waiting,
};

/// How often a verb is tried when other transactions keep getting in its way.
const TRIES: u32 = 5;

#[derive(Debug, Clone)]
pub struct PostgresOptions {
    /// How many connections may be open at once.
    pub connections: usize,
    /// Whether queries carry the application's own filter. Off only in tests, which then see what row
    /// level security alone lets through.
    pub application_filter: bool,
}

impl Default for PostgresOptions {
    fn default() -> Self {
        Self { connections: 16, application_filter: true }
    }
}

pub struct PostgresStore {
    database: Database,
    appends: Appends,
    /// How a connection beside the pool is made.
    config: tokio_postgres::Config,
}

impl PostgresStore {
    /// Connects, makes its roles where they are missing, and brings the schema up to date.
    pub async fn open(url: &Secret, options: &PostgresOptions) -> Result<Self> {
        let dialect =
            if options.application_filter { Dialect::Postgres } else { Dialect::PostgresUnfiltered };
        let (pool, config) = open::open(url, options.connections).await?;
        let presence = Arc::new(Presence::new(config.clone()));
        Ok(Self { database: Database { pool, dialect, presence }, appends: Appends::default(), config })
    }

    /// The schema version of the database, without changing it; `None` for one without a schema.
    pub async fn schema_version(url: &Secret) -> Result<Option<i32>> {
        open::schema_version(url).await
    }
}

/// Runs a verb's steps in a transaction, and again from the start when the database broke it off for
/// another's sake. A macro, because no closure can borrow the verb's arguments and be `Send` here.
macro_rules! transaction {
    ($database:expr, $begin:ident, $settings:expr, |$tx:ident| $work:expr) => {{
        let settings = $settings;
        let mut tries = 0;
        loop {
            tries += 1;
            let transaction = $database.$begin(&settings).await?;
            let $tx = &transaction;
            let result = $work.await;
            if let Some(result) = transaction.finish(result, tries < TRIES).await {
                break result;
            }
        }
    }};
}

#[async_trait]
impl Store for PostgresStore {
    async fn create_conversation(
        &self,
        scope: &Scope,
        new: &NewConversation,
        id: Uuid,
        write: &Write,
    ) -> Result<Conversation> {
        transaction!(self.database, begin_write, Settings::of(scope), |tx| conversations::create(
            tx, scope, new, id, write
        ))
    }

    async fn get_thread(&self, scope: &Scope, id: Uuid, read: ThreadRead) -> Result<Thread> {
        conversations::get_thread(&self.database, scope, id, read).await
    }

    async fn list_conversations(
        &self,
        scope: &Scope,
        query: &ConversationQuery,
    ) -> Result<Page<Conversation>> {
        conversations::list(&self.database, scope, query).await
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
        transaction!(self.database, begin_write, Settings::of(scope), |tx| conversations::update(
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
        transaction!(self.database, begin_write, Settings::of(scope), |tx| conversations::delete(
            tx, scope, id, if_version, now
        ))
    }

    async fn restore_conversation(&self, scope: &Scope, id: Uuid, now: Timestamp) -> Result<Conversation> {
        transaction!(self.database, begin_write, Settings::of(scope), |tx| conversations::restore(
            tx, scope, id, now
        ))
    }

    async fn append_messages(
        &self,
        scope: &Scope,
        conversation: Uuid,
        messages: &[NewMessage],
        now: Timestamp,
    ) -> Result<Conversation> {
        transaction!(self.database, begin_write, Settings::of(scope), |tx| messages::append(
            tx,
            scope,
            conversation,
            messages,
            now
        ))
    }

    async fn create_workspace(&self, scope: &Scope, workspace: &Workspace) -> Result<()> {
        transaction!(self.database, begin_write, Settings::of(scope), |tx| workspaces::create(
            tx, scope, workspace
        ))
    }

    async fn list_memberships(
        &self,
        user: &str,
        workspace: Option<Uuid>,
        after: Option<Uuid>,
        limit: usize,
    ) -> Result<Vec<Membership>> {
        workspaces::list_memberships(&self.database, user, workspace, after, limit).await
    }

    async fn find_workspace(&self, scope: &Scope) -> Result<Option<Workspace>> {
        workspaces::find(&self.database, scope).await
    }

    async fn update_workspace(
        &self,
        scope: &Scope,
        patch: &WorkspacePatch,
        now: Timestamp,
    ) -> Result<Workspace> {
        transaction!(self.database, begin_write, Settings::of(scope), |tx| workspaces::update(
            tx, scope, patch, now
        ))
    }

    async fn remove_workspace(&self, scope: &Scope, cascade: bool, now: Timestamp) -> Result<()> {
        let settings = Settings::of(scope).seeing_all();
        transaction!(self.database, begin_write, settings, |tx| workspaces::remove(tx, scope, cascade, now))
    }

    async fn list_members(&self, scope: &Scope, after: Option<&str>, limit: usize) -> Result<Vec<Member>> {
        members::list(&self.database, scope, after, limit).await
    }

    async fn find_member(&self, scope: &Scope, user: &str) -> Result<Option<Member>> {
        members::find(&self.database, scope, user).await
    }

    async fn put_member(
        &self,
        scope: &Scope,
        user: &str,
        role: Role,
        now: Timestamp,
    ) -> Result<(Member, bool)> {
        transaction!(self.database, begin_write, Settings::of(scope), |tx| members::put(
            tx, scope, user, role, now
        ))
    }

    async fn remove_member(&self, scope: &Scope, user: &str, now: Timestamp) -> Result<()> {
        transaction!(self.database, begin_write, Settings::of(scope), |tx| members::remove(
            tx, scope, user, now
        ))
    }

    async fn create_key(&self, scope: &Scope, key: &ApiKey, hash: [u8; 32]) -> Result<()> {
        transaction!(self.database, begin_write, Settings::of(scope), |tx| keys::create(tx, scope, key, hash))
    }

    async fn list_keys(&self, scope: &Scope, after: Option<Uuid>, limit: usize) -> Result<Vec<ApiKey>> {
        keys::list(&self.database, scope, after, limit).await
    }

    async fn remove_key(&self, scope: &Scope, id: Uuid, now: Timestamp) -> Result<()> {
        transaction!(self.database, begin_write, Settings::of(scope), |tx| keys::remove(tx, scope, id, now))
    }

    async fn find_key(&self, workspace: Uuid, hash: [u8; 32]) -> Result<Option<KeyGrant>> {
        keys::find(&self.database, workspace, hash).await
    }

    async fn list_audit(&self, scope: &Scope, after: i64, limit: usize) -> Result<Vec<AuditEntry>> {
        audit::list(&self.database, scope, after, limit).await
    }

    async fn begin_turn(&self, scope: &Scope, new: &NewTurn) -> Result<Begun> {
        transaction!(self.database, begin_write, Settings::of(scope), |tx| turn::begin(tx, scope, new))
    }

    async fn start_queued(
        &self,
        waiting: &Waiting,
        start: &QueueStart,
    ) -> Result<Option<(Run, Lease, Batch)>> {
        let settings = Settings::workspace(waiting.workspace).seeing_all();
        transaction!(self.database, begin_write, settings, |tx| turn::start_queued(tx, waiting, start))
    }

    async fn get_dispatch(&self, held: &Held, replay: usize) -> Result<Dispatch> {
        let settings = Settings::workspace(held.workspace).seeing_all();
        transaction!(self.database, begin_read, settings, |tx| turn::get_dispatch(tx, held, replay))
    }

    async fn append_events(&self, held: &Held, batch: &Batch) -> Result<()> {
        log::append(&self.database, &self.appends, held, batch).await
    }

    async fn settle_turn(&self, held: &Held, settlement: &Settlement) -> Result<Settled> {
        let settings = Settings::workspace(held.workspace).seeing_all();
        transaction!(self.database, begin_write, settings, |tx| turn::settle(tx, held, settlement))
    }

    async fn count_usage(&self, held: &Held, usage: Usage, now: Timestamp) -> Result<()> {
        let settings = Settings::workspace(held.workspace).seeing_all();
        transaction!(self.database, begin_write, settings, |tx| usage::count(tx, held, usage, now))
    }

    async fn count_call(&self, scope: &Scope, call: Uuid, usage: Usage, now: Timestamp) -> Result<()> {
        let settings = Settings::of(scope);
        transaction!(self.database, begin_write, settings, |tx| usage::add(tx, scope, call, usage, now))
    }

    async fn get_tokens_used(&self, scope: &Scope, now: Timestamp) -> Result<TokensUsed> {
        usage::used(&self.database, scope, now).await
    }

    async fn list_usage(&self, scope: &Scope, since: &str) -> Result<Vec<DayUsage>> {
        usage::list(&self.database, scope, since).await
    }

    async fn add_approvals(&self, held: &Held, approvals: &[Approval]) -> Result<()> {
        let settings = Settings::workspace(held.workspace).seeing_all();
        transaction!(self.database, begin_write, settings, |tx| approvals::add(tx, held, approvals))
    }

    async fn list_approvals(&self, workspace: Uuid, run: Uuid) -> Result<Vec<Approval>> {
        approvals::list(&self.database, workspace, run).await
    }

    async fn decide_approval(&self, scope: &Scope, run: Uuid, id: Uuid, decision: &Decision) -> Result<()> {
        transaction!(self.database, begin_write, Settings::of(scope), |tx| approvals::decide(
            tx, scope, run, id, decision
        ))
    }

    async fn start_approved(&self, held: &Held, id: Uuid) -> Result<bool> {
        let settings = Settings::workspace(held.workspace).seeing_all();
        transaction!(self.database, begin_write, settings, |tx| approvals::start(tx, held, id))
    }

    async fn put_agent(&self, scope: &Scope, agent: &Agent) -> Result<()> {
        transaction!(self.database, begin_write, Settings::of(scope), |tx| agents::put(tx, scope, agent))
    }

    async fn list_agents(&self, scope: &Scope, after: Option<Uuid>, limit: usize) -> Result<Vec<Agent>> {
        agents::list(&self.database, scope, after, limit).await
    }

    async fn find_agent(&self, scope: &Scope, id: Uuid) -> Result<Option<Agent>> {
        agents::find(&self.database, scope, id).await
    }

    async fn remove_agent(&self, scope: &Scope, id: Uuid) -> Result<()> {
        transaction!(self.database, begin_write, Settings::of(scope), |tx| agents::remove(tx, scope, id))
    }

    async fn get_workspace_model(&self, scope: &Scope) -> Result<Option<String>> {
        agents::model(&self.database, scope).await
    }

    async fn set_workspace_model(&self, scope: &Scope, model: Option<&str>) -> Result<()> {
        transaction!(self.database, begin_write, Settings::of(scope), |tx| agents::set_model(
            tx, scope, model
        ))
    }

    async fn add_tool_server(&self, scope: &Scope, server: &ToolServer) -> Result<()> {
        transaction!(self.database, begin_write, Settings::of(scope), |tx| tool_servers::add(
            tx, scope, server
        ))
    }

    async fn list_tool_servers(
        &self,
        scope: &Scope,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<ToolServer>> {
        tool_servers::list(&self.database, scope, after, limit).await
    }

    async fn remove_tool_server(&self, scope: &Scope, name: &str, now: Timestamp) -> Result<()> {
        transaction!(self.database, begin_write, Settings::of(scope), |tx| tool_servers::remove(
            tx, scope, name, now
        ))
    }

    async fn list_tool_pins(&self, scope: &Scope, server: &str) -> Result<Vec<Pin>> {
        tool_servers::pins(&self.database, scope, server).await
    }

    async fn pin_tools(&self, scope: &Scope, server: &str, pins: &[Pin]) -> Result<()> {
        transaction!(self.database, begin_write, Settings::of(scope), |tx| tool_servers::pin(
            tx, scope, server, pins
        ))
    }

    async fn approve_tool(
        &self,
        scope: &Scope,
        server: (&str, &str),
        pin: &Pin,
        now: Timestamp,
    ) -> Result<()> {
        transaction!(self.database, begin_write, Settings::of(scope), |tx| tool_servers::approve(
            tx, scope, server, pin, now
        ))
    }

    async fn create_page(&self, scope: &Scope, page: &page::Page) -> Result<()> {
        transaction!(self.database, begin_write, Settings::of(scope), |tx| pages::create(tx, scope, page))
    }

    async fn update_page(&self, scope: &Scope, page: &page::Page) -> Result<()> {
        transaction!(self.database, begin_write, Settings::of(scope), |tx| pages::update(tx, scope, page))
    }

    async fn find_page(&self, scope: &Scope, id: Uuid) -> Result<Option<page::Page>> {
        pages::find(&self.database, scope, id).await
    }

    async fn list_pages(
        &self,
        scope: &Scope,
        after: Option<Uuid>,
        limit: usize,
    ) -> Result<Listed<page::Page>> {
        pages::list(&self.database, scope, after, limit).await
    }

    async fn remove_page(&self, scope: &Scope, id: Uuid) -> Result<()> {
        transaction!(self.database, begin_write, Settings::of(scope), |tx| pages::remove(tx, scope, id))
    }

    async fn search_pages(&self, scope: &Scope, search: &TextSearch) -> Result<Listed<page::Page>> {
        let settings = Settings::of(scope).matching(&search.query.tsquery());
        transaction!(self.database, begin_read, settings, |tx| pages::search(tx, scope, search))
    }

    async fn create_table(&self, scope: &Scope, table: &Table) -> Result<()> {
        transaction!(self.database, begin_write, Settings::of(scope), |tx| tables::create(tx, scope, table))
    }

    async fn update_table(
        &self,
        scope: &Scope,
        id: Uuid,
        name: Option<&str>,
        columns: Option<&[Column]>,
        now: Timestamp,
    ) -> Result<Table> {
        transaction!(self.database, begin_write, Settings::of(scope), |tx| tables::update(
            tx, scope, id, name, columns, now
        ))
    }

    async fn find_table(&self, scope: &Scope, id: Uuid) -> Result<Option<Table>> {
        tables::find(&self.database, scope, id).await
    }

    async fn list_tables(&self, scope: &Scope, after: Option<Uuid>, limit: usize) -> Result<Vec<Table>> {
        tables::list(&self.database, scope, after, limit).await
    }

    async fn remove_table(&self, scope: &Scope, id: Uuid) -> Result<()> {
        transaction!(self.database, begin_write, Settings::of(scope), |tx| tables::remove(tx, scope, id))
    }

    async fn add_rows(&self, scope: &Scope, table: Uuid, rows: &[Row], now: Timestamp) -> Result<()> {
        let rows = written(rows, index_tsvector)?;
        transaction!(self.database, begin_write, Settings::of(scope), |tx| rows::add(
            tx, scope, table, &rows, now
        ))
    }

    async fn stage_rows(
        &self,
        scope: &Scope,
        table: Uuid,
        import: Uuid,
        rows: &[Row],
        now: Timestamp,
    ) -> Result<()> {
        let rows = written(rows, index_tsvector)?;
        transaction!(self.database, begin_unsynced, Settings::of(scope), |tx| rows::stage(
            tx, scope, table, import, &rows, now
        ))
    }

    async fn keep_import(
        &self,
        scope: &Scope,
        table: Uuid,
        import: Uuid,
        staged: u64,
        now: Timestamp,
    ) -> Result<()> {
        transaction!(self.database, begin_write, Settings::of(scope), |tx| rows::keep(
            tx, scope, table, import, staged, now
        ))
    }

    async fn drop_import(&self, scope: &Scope, table: Uuid, import: Uuid) -> Result<()> {
        transaction!(self.database, begin_unsynced, Settings::of(scope), |tx| rows::drop_staged(
            tx, scope, table, import
        ))
    }

    async fn list_rows(
        &self,
        scope: &Scope,
        table: Uuid,
        after: Option<Uuid>,
        limit: usize,
    ) -> Result<Listed<Row>> {
        rows::list(&self.database, scope, table, after, limit).await
    }

    async fn find_row(&self, scope: &Scope, table: Uuid, id: Uuid) -> Result<Option<Row>> {
        rows::find(&self.database, scope, table, id).await
    }

    async fn update_row(&self, scope: &Scope, table: Uuid, row: &Row, now: Timestamp) -> Result<()> {
        let rows = written(std::slice::from_ref(row), index_tsvector)?;
        transaction!(self.database, begin_write, Settings::of(scope), |tx| rows::update(
            tx, scope, table, &rows[0], now
        ))
    }

    async fn remove_row(&self, scope: &Scope, table: Uuid, id: Uuid, now: Timestamp) -> Result<()> {
        transaction!(self.database, begin_write, Settings::of(scope), |tx| rows::remove(
            tx, scope, table, id, now
        ))
    }

    async fn search_rows(
        &self,
        scope: &Scope,
        table: Option<Uuid>,
        search: &TextSearch,
    ) -> Result<Listed<FoundRow>> {
        let settings = rows::searching(scope, table, search);
        transaction!(self.database, begin_read, settings, |tx| rows::search(tx, scope, table, search))
    }

    async fn get_run(&self, scope: &Scope, run: Uuid) -> Result<Run> {
        runs::get(&self.database, scope, run).await
    }

    async fn list_runs(
        &self,
        scope: &Scope,
        conversation: Uuid,
        before: Option<Uuid>,
        limit: usize,
    ) -> Result<Vec<Run>> {
        runs::list(&self.database, scope, conversation, before, limit).await
    }

    async fn list_queue(&self, scope: &Scope, conversation: Uuid) -> Result<Vec<(Run, StartTurn)>> {
        runs::list_queue(&self.database, scope, conversation).await
    }

    async fn edit_queued(&self, scope: &Scope, run: Uuid, message: &TurnMessage) -> Result<Run> {
        transaction!(self.database, begin_write, Settings::of(scope), |tx| runs::edit_queued(
            tx, scope, run, message
        ))
    }

    async fn request_cancel(&self, scope: &Scope, run: Uuid, now: Timestamp) -> Result<Run> {
        transaction!(self.database, begin_write, Settings::of(scope), |tx| runs::request_cancel(
            tx, scope, run, now
        ))
    }

    async fn get_asking(&self, scope: &Scope, run: Uuid) -> Result<Asking> {
        clients::asking(&self.database, scope, run).await
    }

    async fn forget_response(&self, scope: &Scope, run: Uuid) -> Result<()> {
        transaction!(self.database, begin_write, Settings::of(scope), |tx| clients::forget(tx, scope, run))
    }

    async fn list_metadata(&self, scope: &Scope, ids: &[Uuid]) -> Result<Vec<(Uuid, Option<String>)>> {
        clients::metadata(&self.database, scope, ids).await
    }

    async fn set_metadata(&self, scope: &Scope, conversation: Uuid, metadata: &str) -> Result<()> {
        transaction!(self.database, begin_write, Settings::of(scope), |tx| clients::set_metadata(
            tx,
            scope,
            conversation,
            metadata
        ))
    }

    async fn get_message(&self, scope: &Scope, conversation: Uuid, message: Uuid) -> Result<Message> {
        transaction!(self.database, begin_read, Settings::of(scope), |tx| clients::message(
            tx,
            scope,
            conversation,
            message
        ))
    }

    async fn read_log(&self, scope: &Scope, run: Uuid, after: i64, max_bytes: usize) -> Result<LogPage> {
        log::read(&self.database, scope, run, after, max_bytes).await
    }

    async fn read_trace(&self, scope: &Scope, run: Uuid, after: i64, max_bytes: usize) -> Result<LogPage> {
        log::read_trace(&self.database, scope, run, after, max_bytes).await
    }

    async fn read_held(&self, held: &Held, after: i64, max_bytes: usize) -> Result<LogPage> {
        log::read_held(&self.database, held, after, max_bytes).await
    }

    async fn system_heartbeat(&self, node: Uuid, lease_seconds: u64, renew: bool) -> Result<Heartbeat> {
        transaction!(self.database, begin_system, Settings::nobody(), |tx| leases::heartbeat(
            tx,
            node,
            lease_seconds,
            renew
        ))
    }

    async fn system_take_expired(&self, node: Uuid, lease_seconds: u64, limit: usize) -> Result<Vec<Held>> {
        transaction!(self.database, begin_system, Settings::nobody(), |tx| leases::take_expired(
            tx,
            node,
            lease_seconds,
            limit
        ))
    }

    async fn take_over(
        &self,
        scope: &Scope,
        conversation: Uuid,
        node: Uuid,
        lease_seconds: u64,
    ) -> Result<Option<Held>> {
        transaction!(self.database, begin_write, Settings::of(scope), |tx| leases::take_over(
            tx,
            scope,
            conversation,
            node,
            lease_seconds
        ))
    }

    async fn system_list_locks(&self, after: Option<(Uuid, Uuid)>, limit: usize) -> Result<Vec<Lock>> {
        transaction!(self.database, begin_system, Settings::nobody(), |tx| leases::list_locks(
            tx, after, limit
        ))
    }

    async fn system_list_waiting(&self, limit: usize) -> Result<Vec<Waiting>> {
        transaction!(self.database, begin_system, Settings::nobody(), |tx| leases::list_waiting(tx, limit))
    }

    async fn system_expire(&self, before: Timestamp, now: Timestamp, limit: usize) -> Result<usize> {
        let due =
            transaction!(self.database, begin_system, Settings::nobody(), |tx| log::due(tx, before, limit))?;
        for (workspace, run) in &due {
            // A transaction each, so that none is long.
            let settings = Settings::workspace(*workspace).seeing_all();
            transaction!(self.database, begin_unsynced, settings, |tx| log::fold(tx, *workspace, *run))?;
        }
        transaction!(self.database, begin_system, Settings::nobody(), |tx| log::forget_keys(tx, now))?;
        Ok(due.len())
    }

    async fn system_announce(&self, news: &[News]) -> Result<()> {
        news::announce(&self.database, news).await
    }

    fn is_shared(&self) -> bool {
        true
    }

    fn system_news(&self) -> Option<BoxStream<'static, News>> {
        Some(news::listen(&self.config))
    }

    async fn reserve_files(
        &self,
        scope: &Scope,
        bag: Bag,
        new: &[NewFile],
        max_bag_bytes: u64,
        now: Timestamp,
    ) -> Result<Vec<Reserved>> {
        transaction!(self.database, begin_write, Settings::of(scope), |tx| files::reserve(
            tx,
            scope,
            bag,
            new,
            max_bag_bytes,
            now
        ))
    }

    async fn get_reserved(&self, scope: &Scope, bag: Bag, id: Uuid) -> Result<Reserved> {
        files::get_reserved(&self.database, scope, bag, id).await
    }

    async fn claim_promised(&self, scope: &Scope, bag: Bag, id: Uuid, now: Timestamp) -> Result<Reserved> {
        transaction!(self.database, begin_write, Settings::of(scope), |tx| files::claim_promised(
            tx, scope, bag, id, now
        ))
    }

    async fn keep_files(
        &self,
        scope: &Scope,
        bag: Bag,
        stored: &[Stored],
        max_bag_bytes: u64,
        now: Timestamp,
    ) -> Result<Vec<File>> {
        transaction!(self.database, begin_write, Settings::of(scope), |tx| files::keep(
            tx,
            scope,
            bag,
            stored,
            max_bag_bytes,
            now
        ))
    }

    async fn system_forget_files(&self, workspace: Uuid, ids: &[Uuid]) -> Result<()> {
        let settings = Settings::workspace(workspace).seeing_all();
        transaction!(self.database, begin_write, settings, |tx| files::forget(tx, workspace, ids))
    }

    async fn list_files(
        &self,
        scope: &Scope,
        bag: Bag,
        after: Option<Uuid>,
        limit: usize,
    ) -> Result<Vec<File>> {
        files::list(&self.database, scope, bag, after, limit).await
    }

    async fn get_file(&self, scope: &Scope, id: Uuid) -> Result<File> {
        files::get(&self.database, scope, id).await
    }

    async fn delete_file(&self, scope: &Scope, id: Uuid, now: Timestamp) -> Result<()> {
        transaction!(self.database, begin_write, Settings::of(scope), |tx| files::delete(tx, scope, id, now))
    }

    async fn keep_results(
        &self,
        held: &Held,
        stored: &[Stored],
        max_bag_bytes: u64,
        now: Timestamp,
    ) -> Result<Vec<File>> {
        let settings = Settings::workspace(held.workspace).seeing_all();
        transaction!(self.database, begin_write, settings, |tx| files::keep_results(
            tx,
            held,
            stored,
            max_bag_bytes,
            now
        ))
    }

    async fn list_results(&self, held: &Held) -> Result<Vec<File>> {
        files::list_results(&self.database, held).await
    }

    async fn list_run_assets(&self, workspace: Uuid, run: Uuid) -> Result<Vec<File>> {
        files::list_run_assets(&self.database, workspace, run).await
    }

    async fn system_list_stale(&self, before: Timestamp, limit: usize) -> Result<Vec<Doomed>> {
        transaction!(self.database, begin_system, Settings::nobody(), |tx| purge::list_stale(
            tx, before, limit
        ))
    }

    async fn system_known_keys(&self, keys: &[String]) -> Result<Vec<bool>> {
        transaction!(self.database, begin_system, Settings::nobody(), |tx| purge::known_keys(tx, keys))
    }

    async fn begin_execution(&self, scope: &Scope, new: &NewExecution) -> Result<Begun> {
        transaction!(self.database, begin_write, Settings::of(scope), |tx| executions::begin(tx, scope, new))
    }

    async fn get_execution(&self, scope: &Scope, id: Uuid) -> Result<Execution> {
        executions::get(&self.database, scope, id).await
    }

    async fn system_list_purgeable(&self, before: Timestamp, limit: usize) -> Result<Vec<Purgeable>> {
        transaction!(self.database, begin_system, Settings::nobody(), |tx| purge::list(tx, before, limit))
    }

    async fn system_begin_purge(&self, conversation: &Purgeable) -> Result<Vec<Doomed>> {
        let settings = Settings::workspace(conversation.workspace).seeing_all();
        transaction!(self.database, begin_write, settings, |tx| purge::begin(tx, conversation))
    }

    async fn system_purge(&self, conversation: &Purgeable) -> Result<()> {
        let settings = Settings::workspace(conversation.workspace).seeing_all();
        transaction!(self.database, begin_write, settings, |tx| purge::purge(tx, conversation))
    }

    async fn system_list_deleted_files(&self, before: Timestamp, limit: usize) -> Result<Vec<Doomed>> {
        transaction!(self.database, begin_system, Settings::nobody(), |tx| purge::list_deleted(
            tx, before, limit
        ))
    }

    async fn system_compact(&self) -> Result<()> {
        purge::compact(&self.config).await
    }

    async fn list_fork_files(&self, scope: &Scope, conversation: Uuid, through: Uuid) -> Result<Vec<File>> {
        transaction!(self.database, begin_read, Settings::of(scope), |tx| fork_files::list(
            tx,
            scope,
            conversation,
            through
        ))
    }

    async fn fork_conversation(
        &self,
        scope: &Scope,
        conversation: Uuid,
        through: Uuid,
        fork: &Fork,
    ) -> Result<Conversation> {
        transaction!(self.database, begin_write, Settings::of(scope), |tx| branches::fork(
            tx,
            scope,
            conversation,
            through,
            fork
        ))
    }

    async fn list_branches(&self, scope: &Scope, conversation: Uuid) -> Result<Vec<Branch>> {
        branches::list(&self.database, scope, conversation).await
    }

    async fn select_branch(
        &self,
        scope: &Scope,
        conversation: Uuid,
        branch: Uuid,
        now: Timestamp,
    ) -> Result<Conversation> {
        transaction!(self.database, begin_write, Settings::of(scope), |tx| branches::select(
            tx,
            scope,
            conversation,
            branch,
            now
        ))
    }

    async fn list_archivable(&self, scope: &Scope, after: Option<Uuid>, limit: usize) -> Result<Vec<Uuid>> {
        archive::list(&self.database, scope, after, limit).await
    }

    async fn get_archive(&self, scope: &Scope, id: Uuid) -> Result<Archive> {
        archive::get(&self.database, scope, id).await
    }

    async fn list_archived_files(&self, scope: &Scope) -> Result<Vec<ArchivedFile>> {
        archive::list_files(&self.database, scope).await
    }

    async fn known_conversations(&self, scope: &Scope, ids: &[Uuid]) -> Result<Vec<bool>> {
        archive::known(&self.database, scope, ids).await
    }

    async fn import_archive(
        &self,
        scope: &Scope,
        archive: Arc<Archive>,
        traces: Arc<dyn Pieces<Trace>>,
    ) -> Result<bool> {
        let imported = transaction!(self.database, begin_write, Settings::of(scope), |tx| archive::import(
            tx, scope, &archive, &*traces
        ));
        match imported {
            // Another import was faster.
            Err(StoreError::Taken("id")) => Ok(false),
            done => done,
        }
    }

    async fn list_message_ids(&self, scope: &Scope, conversation: Uuid) -> Result<Vec<Uuid>> {
        archive::message_ids(&self.database, scope, conversation).await
    }

    async fn extend_archive(&self, scope: &Scope, growth: Arc<Growth>, stored: &[Stored]) -> Result<bool> {
        transaction!(self.database, begin_write, Settings::of(scope), |tx| archive::extend(
            tx, scope, &growth, stored
        ))
    }

    async fn list_executions(&self, scope: &Scope, after: Option<Uuid>, limit: usize) -> Result<Vec<Uuid>> {
        archive_runs::list_executions(&self.database, scope, after, limit).await
    }

    async fn get_archived_execution(&self, scope: &Scope, id: Uuid) -> Result<ArchivedExecution> {
        archive_runs::get_execution(&self.database, scope, id).await
    }

    async fn import_execution(
        &self,
        scope: &Scope,
        execution: Arc<ArchivedExecution>,
        traces: Arc<dyn Pieces<Trace>>,
    ) -> Result<bool> {
        transaction!(self.database, begin_write, Settings::of(scope), |tx| archive_runs::import_execution(
            tx, scope, &execution, &*traces
        ))
    }

    async fn import_table(
        &self,
        scope: &Scope,
        table: &Table,
        rows: Arc<dyn Pieces<Vec<Row>>>,
    ) -> Result<bool> {
        transaction!(self.database, begin_write, Settings::of(scope), |tx| tables::import(
            tx, scope, table, &*rows
        ))
    }

    async fn is_empty(&self, scope: &Scope) -> Result<bool> {
        archive_runs::is_empty(&self.database, scope).await
    }

    async fn ping(&self) -> Result<()> {
        self.database.ping().await
    }

    async fn close(&self) {
        self.database.pool.close();
    }
}
