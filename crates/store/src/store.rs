//! The contract of storage: domain verbs, each one transaction. Both backends keep every promise
//! here the same way; `tests/store` holds them to it.
//!
//! To add a verb: write it here with its guarantee, in `sqlite/` and `postgres/` under the same file
//! name, and a test in `tests/store`, which runs on both.
//!
//! `find_x` answers `None` for what the scope may not see, `get_x` answers `NotFound`. A verb that
//! takes a `Scope` touches that workspace only. Every change of who may do what writes its audit entry
//! in the same transaction.

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
use domain::message::{Message, NewMessage, Window};
use domain::open_runs::{OpenRuns, RunLimits};
use domain::page;
use domain::run::{Lease, Run, StartTurn, TurnMessage, Usage};
use domain::scope::{Role, Scope};
use domain::table::{Column, Row, Table};
use domain::tokens::{DayUsage, TokensUsed};
use domain::tool_server::{Pin, ToolServer};
use domain::transfer::growth::Growth;
use domain::transfer::{Archive, ArchivedExecution, ArchivedFile, Trace};
use domain::workspace::{ApiKey, KeyGrant, Member, Membership, Workspace, WorkspacePatch};
use futures_util::stream::BoxStream;
use jiff::Timestamp;
use uuid::Uuid;

use crate::error::{Result, StoreError};
use crate::files::{Doomed, Execution, Fork, NewExecution, NewFile, Purgeable, Reserved, Stored};
use crate::knowledge::{FoundRow, Listed, TextSearch};
use crate::transfer::Pieces;
use crate::turns::{
    Asking, Batch, Begun, Branch, Dispatch, Heartbeat, Held, Lock, LogPage, NewTurn, News, QueueStart,
    Settled, Settlement, Waiting,
};

pub(crate) const WORKSPACE_NOT_EMPTY: StoreError = StoreError::Conflict {
    code: "workspace_not_empty",
    detail: "the workspace still holds conversations; remove it with cascade=true to delete them with it",
};

pub(crate) const RUN_STARTED: StoreError = StoreError::Conflict {
    code: "run_started",
    detail: "the run has started; only a queued one can be edited",
};

pub(crate) const NO_OWN_MESSAGE: StoreError = StoreError::Conflict {
    code: "no_own_message",
    detail: "the run answers an earlier message again and has none of its own to edit; cancel it and send a turn",
};

pub(crate) const LAST_ADMIN: StoreError = StoreError::Conflict {
    code: "last_admin",
    detail: "a workspace needs an admin: make another member an admin first",
};

pub(crate) const APPROVAL_DECIDED: StoreError = StoreError::Conflict {
    code: "approval_decided",
    detail: "the call was decided otherwise before; a decision stands",
};

pub(crate) const TURN_UNDER_WAY: StoreError = StoreError::Conflict {
    code: "conversation_busy",
    detail: "a turn of it is under way or queued: import it again when that has ended",
};

pub(crate) const RUN_ENDED: StoreError =
    StoreError::Conflict { code: "run_ended", detail: "the run is over: nothing of it waits any more" };

/// A conversation with the messages that were asked for.
#[derive(Debug, Clone, PartialEq)]
pub struct Thread {
    pub conversation: Conversation,
    pub messages: Vec<Message>,
    /// Whether older messages lie before the window.
    pub has_before: bool,
}

/// What of a thread to read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ThreadRead {
    /// `None` reads no messages.
    pub window: Option<Window>,
    /// `None` is the current branch; the conversation's own id is the first one.
    pub branch: Option<Uuid>,
}

impl From<Option<Window>> for ThreadRead {
    fn from(window: Option<Window>) -> Self {
        Self { window, branch: None }
    }
}

#[async_trait]
pub trait Store: Send + Sync {
    // ---- conversations ----

    /// Creates a conversation owned by the scope's user, with `id` unless the client brought one.
    /// `Taken` if that id exists in the workspace, deleted or not.
    async fn create_conversation(
        &self,
        scope: &Scope,
        new: &NewConversation,
        id: Uuid,
        write: &Write,
    ) -> Result<Conversation>;

    /// A live conversation that the scope may see, and the window of its messages.
    /// `NotFound` also when the window names a message that is not in the thread.
    /// The thread is the current branch, or the one named.
    async fn get_thread(&self, scope: &Scope, id: Uuid, read: ThreadRead) -> Result<Thread>;

    /// Live (or deleted) conversations in the order asked for. The cost does not depend on how many
    /// there are, for newest-first lists with or without a source.
    async fn list_conversations(
        &self,
        scope: &Scope,
        query: &ConversationQuery,
    ) -> Result<Page<Conversation>>;

    /// Conversations whose title or messages match, best first, each with what matched.
    async fn search_conversations(&self, scope: &Scope, search: &ConversationSearch) -> Result<Page<Found>>;

    /// Applies a patch under a row lock, refused whole when a rule is broken or `if_version` is not
    /// the stored version.
    async fn update_conversation(
        &self,
        scope: &Scope,
        id: Uuid,
        patch: &ConversationPatch,
        if_version: Option<i64>,
        write: &Write,
    ) -> Result<Conversation>;

    /// Soft-deletes a conversation and the files of its bag; what is only reserved there can no longer be kept, also
    /// after a restore. A second delete is `NotFound`.
    /// `Stale` (as `Refused`) when `if_version` is not the stored version.
    async fn delete_conversation(
        &self,
        scope: &Scope,
        id: Uuid,
        if_version: Option<i64>,
        now: Timestamp,
    ) -> Result<()>;

    /// Undoes a delete, with the files that went with it. A live one is answered as it is; one that is being purged
    /// is `NotFound`.
    async fn restore_conversation(&self, scope: &Scope, id: Uuid, now: Timestamp) -> Result<Conversation>;

    /// Appends messages to a thread, in order, and keeps its counters, preview, title and the search index.
    /// The cost does not depend on the length of the thread.
    async fn append_messages(
        &self,
        scope: &Scope,
        conversation: Uuid,
        messages: &[NewMessage],
        now: Timestamp,
    ) -> Result<Conversation>;

    // ---- who may do what ----

    /// Makes a workspace with the scope's user as its admin; `workspace.id` is the scope's workspace.
    async fn create_workspace(&self, scope: &Scope, workspace: &Workspace) -> Result<()>;

    /// The workspaces that a user is a member of, oldest first: all of them after `after`, at most
    /// `limit`; only `workspace` when it is named.
    async fn list_memberships(
        &self,
        user: &str,
        workspace: Option<Uuid>,
        after: Option<Uuid>,
        limit: usize,
    ) -> Result<Vec<Membership>>;

    async fn find_workspace(&self, scope: &Scope) -> Result<Option<Workspace>>;

    async fn update_workspace(
        &self,
        scope: &Scope,
        patch: &WorkspacePatch,
        now: Timestamp,
    ) -> Result<Workspace>;

    /// Removes the scope's workspace with its members and keys. `Conflict` while it holds live
    /// conversations, unless `cascade`: then they are soft-deleted with their bags.
    async fn remove_workspace(&self, scope: &Scope, cascade: bool, now: Timestamp) -> Result<()>;

    /// Members by user id, after `after`.
    async fn list_members(&self, scope: &Scope, after: Option<&str>, limit: usize) -> Result<Vec<Member>>;

    async fn find_member(&self, scope: &Scope, user: &str) -> Result<Option<Member>>;

    /// Adds a member, or gives an existing one another role. True when it was added. `Conflict` when
    /// the workspace would be left without an admin.
    async fn put_member(
        &self,
        scope: &Scope,
        user: &str,
        role: Role,
        now: Timestamp,
    ) -> Result<(Member, bool)>;

    /// Removes a member. The keys that member made stop working, service keys aside. `Conflict` when
    /// it is the last admin.
    async fn remove_member(&self, scope: &Scope, user: &str, now: Timestamp) -> Result<()>;

    /// Keeps a key by its hash. `key.created_by` is the maker.
    async fn create_key(&self, scope: &Scope, key: &ApiKey, hash: [u8; 32]) -> Result<()>;

    /// Keys in the order they were made, after `after`.
    async fn list_keys(&self, scope: &Scope, after: Option<Uuid>, limit: usize) -> Result<Vec<ApiKey>>;

    async fn remove_key(&self, scope: &Scope, id: Uuid, now: Timestamp) -> Result<()>;

    /// What the key with this hash stands for in that workspace; `None` for an unknown, removed or
    /// foreign one.
    async fn find_key(&self, workspace: Uuid, hash: [u8; 32]) -> Result<Option<KeyGrant>>;

    /// The audit log, oldest first, after entry number `after`.
    async fn list_audit(&self, scope: &Scope, after: i64, limit: usize) -> Result<Vec<AuditEntry>>;

    // ---- turns: three writes carry them, begin, append and settle ----

    /// Accepts a turn: conversation (for a first one), user message, run and idempotency record in one
    /// transaction, synced. What it refuses, it refuses before anything is written. A file attached twice stands once;
    /// a turn that is made to replace another by `rollback` does not take over its attachments.
    async fn begin_turn(&self, scope: &Scope, new: &NewTurn) -> Result<Begun>;

    /// Starts the conversation's first queued run, if none is under way.
    async fn start_queued(
        &self,
        waiting: &Waiting,
        start: &QueueStart,
    ) -> Result<Option<(Run, Lease, Batch)>>;

    /// What the run's runner is to be given; `replay` messages before the user's.
    async fn get_dispatch(&self, held: &Held, replay: usize) -> Result<Dispatch>;

    /// Appends to the log. `Lost` unless the run is under way with this fence and the numbers go on from
    /// what is stored. The newest batch once more is no loss: its writer may not have heard the answer.
    /// Survives the death of this process.
    async fn append_events(&self, held: &Held, batch: &Batch) -> Result<()>;

    /// Ends a run: status, assistant message, counters, terminal events and the release, in one transaction.
    /// `Lost` unless it is under way with this fence.
    async fn settle_turn(&self, held: &Held, settlement: &Settlement) -> Result<Settled>;

    /// Counts what a run under way has used beside its own calls. `Lost` unless it is under way with this fence.
    async fn count_usage(&self, held: &Held, usage: Usage, now: Timestamp) -> Result<()>;

    /// Counts a call of a model that belongs to no run into the caller's day. `call` is a fresh id.
    async fn count_call(&self, scope: &Scope, call: Uuid, usage: Usage, now: Timestamp) -> Result<()>;

    /// Tokens that the caller and its workspace have used on the day of `now`.
    async fn get_tokens_used(&self, scope: &Scope, now: Timestamp) -> Result<TokensUsed>;

    /// Runs that the caller and its workspace have open, as far as there are limits of them.
    async fn get_open_runs(&self, scope: &Scope, limits: RunLimits) -> Result<OpenRuns>;

    /// What the workspace used on each day from `since` on (as `2026-11-15`), newest first; days without use are
    /// left out.
    async fn list_usage(&self, scope: &Scope, since: &str) -> Result<Vec<DayUsage>>;

    // ---- calls that wait for a person ----

    /// Keeps calls that wait. `Lost` unless the run is under way with this fence.
    async fn add_approvals(&self, held: &Held, approvals: &[Approval]) -> Result<()>;

    /// The calls of a run that were kept, as they stand, whoever asks.
    async fn list_approvals(&self, workspace: Uuid, run: Uuid) -> Result<Vec<Approval>>;

    /// Decides on a call, once: the same again changes nothing, another decision is `Conflict`, and so is one after
    /// the run's end.
    async fn decide_approval(&self, scope: &Scope, run: Uuid, id: Uuid, decision: &Decision) -> Result<()>;

    /// Notes that an approved call is about to be made. True once in its life.
    async fn start_approved(&self, held: &Held, id: Uuid) -> Result<bool>;

    // ---- agents ----

    /// Makes an agent, or changes the one with its id.
    async fn put_agent(&self, scope: &Scope, agent: &Agent) -> Result<()>;

    /// Agents in the order they were made, after `after`.
    async fn list_agents(&self, scope: &Scope, after: Option<Uuid>, limit: usize) -> Result<Vec<Agent>>;

    async fn find_agent(&self, scope: &Scope, id: Uuid) -> Result<Option<Agent>>;

    async fn remove_agent(&self, scope: &Scope, id: Uuid) -> Result<()>;

    /// The model that the workspace's conversations have where neither they nor their agents name one.
    async fn get_workspace_model(&self, scope: &Scope) -> Result<Option<String>>;

    async fn set_workspace_model(&self, scope: &Scope, model: Option<&str>) -> Result<()>;

    // ---- tool servers ----

    /// `Taken` if the workspace has one of that name.
    async fn add_tool_server(&self, scope: &Scope, server: &ToolServer) -> Result<()>;

    /// Those that admins have added, by name, after `after`.
    async fn list_tool_servers(
        &self,
        scope: &Scope,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<ToolServer>>;

    async fn remove_tool_server(&self, scope: &Scope, name: &str, now: Timestamp) -> Result<()>;

    /// How the tools of a server described themselves when they were first seen, or agreed to since. `server` tells
    /// apart those of the same name.
    async fn list_tool_pins(&self, scope: &Scope, server: &str) -> Result<Vec<Pin>>;

    /// Keeps those that were not seen before; the others stay as they are.
    async fn pin_tools(&self, scope: &Scope, server: &str, pins: &[Pin]) -> Result<()>;

    /// From now on the tool is one that describes itself so. `NotFound` when it was never seen.
    async fn approve_tool(
        &self,
        scope: &Scope,
        server: (&str, &str),
        pin: &Pin,
        now: Timestamp,
    ) -> Result<()>;

    // ---- pages ----

    async fn create_page(&self, scope: &Scope, page: &page::Page) -> Result<()>;

    /// Changes the page with that id to this one. `NotFound` when there is none.
    async fn update_page(&self, scope: &Scope, page: &page::Page) -> Result<()>;

    async fn find_page(&self, scope: &Scope, id: Uuid) -> Result<Option<page::Page>>;

    /// Pages in the order they were made, after `after`: at most `limit`, and fewer where they are long.
    async fn list_pages(
        &self,
        scope: &Scope,
        after: Option<Uuid>,
        limit: usize,
    ) -> Result<Listed<page::Page>>;

    /// Removes a page for good, its words in the search index too.
    async fn remove_page(&self, scope: &Scope, id: Uuid) -> Result<()>;

    /// Pages that have the words in their title or body, best first.
    async fn search_pages(&self, scope: &Scope, search: &TextSearch) -> Result<Listed<page::Page>>;

    // ---- tables and their rows ----

    async fn create_table(&self, scope: &Scope, table: &Table) -> Result<()>;

    /// Renames a table and adds columns, as far as either is given. `BadTable` when a column would go or change.
    async fn update_table(
        &self,
        scope: &Scope,
        id: Uuid,
        name: Option<&str>,
        columns: Option<&[Column]>,
        now: Timestamp,
    ) -> Result<Table>;

    async fn find_table(&self, scope: &Scope, id: Uuid) -> Result<Option<Table>>;

    /// Tables in the order they were made, after `after`.
    async fn list_tables(&self, scope: &Scope, after: Option<Uuid>, limit: usize) -> Result<Vec<Table>>;

    /// Removes a table for good, with its rows and their words.
    async fn remove_table(&self, scope: &Scope, id: Uuid) -> Result<()>;

    /// Adds rows, all or none. Their cells fit the table's columns.
    async fn add_rows(&self, scope: &Scope, table: Uuid, rows: &[Row], now: Timestamp) -> Result<()>;

    /// Puts rows of an import down, which nobody sees before it is kept.
    async fn stage_rows(
        &self,
        scope: &Scope,
        table: Uuid,
        import: Uuid,
        rows: &[Row],
        now: Timestamp,
    ) -> Result<()>;

    /// Makes the rows of an import visible, all at once, synced. `NotFound` unless all that were `staged` are there.
    async fn keep_import(
        &self,
        scope: &Scope,
        table: Uuid,
        import: Uuid,
        staged: u64,
        now: Timestamp,
    ) -> Result<()>;

    /// Takes back the rows of an import that was not kept.
    async fn drop_import(&self, scope: &Scope, table: Uuid, import: Uuid) -> Result<()>;

    /// A table's rows in the order they were added, after `after`: at most `limit`, and fewer where they are long.
    async fn list_rows(
        &self,
        scope: &Scope,
        table: Uuid,
        after: Option<Uuid>,
        limit: usize,
    ) -> Result<Listed<Row>>;

    async fn find_row(&self, scope: &Scope, table: Uuid, id: Uuid) -> Result<Option<Row>>;

    /// Changes the cells of the row with that id.
    async fn update_row(&self, scope: &Scope, table: Uuid, row: &Row, now: Timestamp) -> Result<()>;

    async fn remove_row(&self, scope: &Scope, table: Uuid, id: Uuid, now: Timestamp) -> Result<()>;

    /// Rows that have the words, of one table or of all, best first.
    async fn search_rows(
        &self,
        scope: &Scope,
        table: Option<Uuid>,
        search: &TextSearch,
    ) -> Result<Listed<FoundRow>>;

    // ---- runs ----

    async fn get_run(&self, scope: &Scope, run: Uuid) -> Result<Run>;

    /// A conversation's runs, newest first, older than `before`.
    async fn list_runs(
        &self,
        scope: &Scope,
        conversation: Uuid,
        before: Option<Uuid>,
        limit: usize,
    ) -> Result<Vec<Run>>;

    /// The queued runs of a conversation with their messages, in the order they will start.
    async fn list_queue(&self, scope: &Scope, conversation: Uuid) -> Result<Vec<(Run, StartTurn)>>;

    /// Changes the message of a run that is still queued; `Conflict` once it has started.
    async fn edit_queued(&self, scope: &Scope, run: Uuid, message: &TurnMessage) -> Result<Run>;

    /// A queued run is cancelled at once; one under way is marked for its node; a settled one stays as it is.
    async fn request_cancel(&self, scope: &Scope, run: Uuid, now: Timestamp) -> Result<Run>;

    /// The log from event `after` on, in whole batches of about `max_bytes`.
    async fn read_log(&self, scope: &Scope, run: Uuid, after: i64, max_bytes: usize) -> Result<LogPage>;

    /// The log from entry `after` on, trace-only entries too, also once the event log has expired.
    async fn read_trace(&self, scope: &Scope, run: Uuid, after: i64, max_bytes: usize) -> Result<LogPage>;

    /// As `read_trace`, for whoever is to end the run: its conversation may be deleted. `Lost` when it is another's.
    async fn read_held(&self, held: &Held, after: i64, max_bytes: usize) -> Result<LogPage>;

    // ---- other people's clients ----

    async fn get_asking(&self, scope: &Scope, run: Uuid) -> Result<Asking>;

    /// Takes a run out of the API that made it; everything else goes on knowing it.
    async fn forget_response(&self, scope: &Scope, run: Uuid) -> Result<()>;

    /// The clients' own pairs of these conversations, which the scope is known to see; as JSON.
    async fn list_metadata(&self, scope: &Scope, ids: &[Uuid]) -> Result<Vec<(Uuid, Option<String>)>>;

    async fn set_metadata(&self, scope: &Scope, conversation: Uuid, metadata: &str) -> Result<()>;

    /// Puts other content into a message: text, content, attachments, sources and metadata, and its words.
    async fn rewrite_message(
        &self,
        scope: &Scope,
        conversation: Uuid,
        message: &Message,
        now: Timestamp,
    ) -> Result<()>;

    /// One message of a conversation, on whichever branch.
    async fn get_message(&self, scope: &Scope, conversation: Uuid, message: Uuid) -> Result<Message>;

    // ---- leases: liveness by the database's own clock ----

    /// This node's runs; with `renew`, their leases are extended.
    async fn system_heartbeat(&self, node: Uuid, lease_seconds: u64, renew: bool) -> Result<Heartbeat>;

    /// Takes over runs whose lease has run out, with a higher fence.
    async fn system_take_expired(&self, node: Uuid, lease_seconds: u64, limit: usize) -> Result<Vec<Held>>;

    /// Takes over the conversation's run under way, whoever holds it.
    async fn take_over(
        &self,
        scope: &Scope,
        conversation: Uuid,
        node: Uuid,
        lease_seconds: u64,
    ) -> Result<Option<Held>>;

    /// The runs under way that hold a conversation, by workspace and run, after one of them.
    async fn system_list_locks(&self, after: Option<(Uuid, Uuid)>, limit: usize) -> Result<Vec<Lock>>;

    /// Conversations with a queued run and none under way.
    async fn system_list_waiting(&self, limit: usize) -> Result<Vec<Waiting>>;

    /// Folds the logs of runs that ended before `before` into their traces, and forgets idempotency keys
    /// older than a day. Answers how many runs it did.
    async fn system_expire(&self, before: Timestamp, now: Timestamp, limit: usize) -> Result<usize>;

    /// Tells all nodes. Its own statement, never part of another verb's transaction.
    async fn system_announce(&self, news: &[News]) -> Result<()>;

    /// What all nodes announce, this one's own news too, from when it is first polled; it reconnects by itself and
    /// may skip. `None` where there is only one node. Each call makes one connection that listens.
    fn system_news(&self) -> Option<BoxStream<'static, News>>;

    /// Whether other nodes may take what this one does not renew.
    fn is_shared(&self) -> bool;

    // ---- files: a name is reserved, the bytes are made durable under its key, then all become visible at once ----

    /// Takes names in a bag, each made unique with `-<n>` (case and soft-deleted ones count), so that bytes can be
    /// written under their keys. Nobody sees them yet. `BagFull` when what is there, what is promised and what is
    /// under way is over `max_bag_bytes`. The bag of an execution that is not there yet can be reserved in.
    async fn reserve_files(
        &self,
        scope: &Scope,
        bag: Bag,
        new: &[NewFile],
        max_bag_bytes: u64,
        now: Timestamp,
    ) -> Result<Vec<Reserved>>;

    /// A reservation with its promise, in that bag; `NotFound` once it was kept or swept.
    async fn get_reserved(&self, scope: &Scope, bag: Bag, id: Uuid) -> Result<Reserved>;

    /// Takes a promised reservation for its completion, once: from then on it is a plain one. `NotFound` when it was
    /// taken, kept or swept, or has expired.
    async fn claim_promised(&self, scope: &Scope, bag: Bag, id: Uuid, now: Timestamp) -> Result<Reserved>;

    /// Makes reserved files visible, all or none, synced. `NotFound` when one is no longer reserved or the bag has
    /// gone, `BagFull` when they do not fit.
    async fn keep_files(
        &self,
        scope: &Scope,
        bag: Bag,
        stored: &[Stored],
        max_bag_bytes: u64,
        now: Timestamp,
    ) -> Result<Vec<File>>;

    /// Forgets reservations and doomed files whose bytes are gone. What is visible is left alone.
    async fn system_forget_files(&self, workspace: Uuid, ids: &[Uuid]) -> Result<()>;

    /// The visible files of a bag by id, after `after`.
    async fn list_files(
        &self,
        scope: &Scope,
        bag: Bag,
        after: Option<Uuid>,
        limit: usize,
    ) -> Result<Vec<File>>;

    /// A visible file of any bag that the scope may see.
    async fn get_file(&self, scope: &Scope, id: Uuid) -> Result<File>;

    /// Soft-deletes a visible file. A second delete is `NotFound`.
    async fn delete_file(&self, scope: &Scope, id: Uuid, now: Timestamp) -> Result<()>;

    /// Makes what a run's sandbox sent back visible and uses up its upload token, in one transaction, synced.
    /// `Lost` when the run is over, cancelled, another writer's, or has used it.
    async fn keep_results(
        &self,
        held: &Held,
        stored: &[Stored],
        max_bag_bytes: u64,
        now: Timestamp,
    ) -> Result<Vec<File>>;

    /// What the run's sandbox sent back and is still visible, in the order it came. `Lost` unless the run is under
    /// way with this fence.
    async fn list_results(&self, held: &Held) -> Result<Vec<File>>;

    /// The visible files that a run was given when it started, in the order of their names; also of a run that is
    /// over. `NotFound` when its conversation is deleted.
    async fn list_run_assets(&self, workspace: Uuid, run: Uuid) -> Result<Vec<File>>;

    /// Reservations made before `before`, promised ones that have expired by then, and their keys. From then on they
    /// can no longer be kept, so that their bytes can go.
    async fn system_list_stale(&self, before: Timestamp, limit: usize) -> Result<Vec<Doomed>>;

    /// Which of these keys have a row, reserved and soft-deleted ones included.
    async fn system_known_keys(&self, keys: &[String]) -> Result<Vec<bool>>;

    // ---- executions ----

    /// Accepts an execution and makes its files visible in one transaction, synced. It is never queued.
    async fn begin_execution(&self, scope: &Scope, new: &NewExecution) -> Result<Begun>;

    async fn get_execution(&self, scope: &Scope, id: Uuid) -> Result<Execution>;

    // ---- purge ----

    /// Conversations soft-deleted before `before`, oldest first.
    async fn system_list_purgeable(&self, before: Timestamp, limit: usize) -> Result<Vec<Purgeable>>;

    /// Marks a deleted conversation, which can no longer be restored, and answers its files. `NotFound` when it is
    /// live or gone.
    async fn system_begin_purge(&self, conversation: &Purgeable) -> Result<Vec<Doomed>>;

    /// Removes a marked conversation and every row that belongs to it, its words in the search index too. Its files'
    /// bytes are gone already.
    async fn system_purge(&self, conversation: &Purgeable) -> Result<()>;

    /// Files soft-deleted before `before` in conversations that live, and in workspaces.
    async fn system_list_deleted_files(&self, before: Timestamp, limit: usize) -> Result<Vec<Doomed>>;

    /// Gives the space of what was removed back to the disk, overwriting it. Slow; nothing waits for it.
    async fn system_compact(&self) -> Result<()>;

    // ---- branches ----

    /// The visible files that belong to the thread up to and including `through`: those that its messages name, and
    /// those that no message names and that were there when it was written.
    async fn list_fork_files(&self, scope: &Scope, conversation: Uuid, through: Uuid) -> Result<Vec<File>>;

    /// A new conversation with the thread up to and including `through`, and copies of these files, whose bytes
    /// are there: its messages name the copies.
    async fn fork_conversation(
        &self,
        scope: &Scope,
        conversation: Uuid,
        through: Uuid,
        fork: &Fork,
    ) -> Result<Conversation>;

    async fn list_branches(&self, scope: &Scope, conversation: Uuid) -> Result<Vec<Branch>>;

    /// Makes a branch the one that readers see and turns go on from.
    async fn select_branch(
        &self,
        scope: &Scope,
        conversation: Uuid,
        branch: Uuid,
        now: Timestamp,
    ) -> Result<Conversation>;

    // ---- in and out: whole conversations ----

    /// Live conversations that the scope may see, by id, after `after`.
    async fn list_archivable(&self, scope: &Scope, after: Option<Uuid>, limit: usize) -> Result<Vec<Uuid>>;

    /// A live conversation with all that belongs to it, from one snapshot: every branch, settled runs, visible files.
    /// The logs of its runs are `read_trace`.
    async fn get_archive(&self, scope: &Scope, id: Uuid) -> Result<Archive>;

    /// The visible files of the workspace itself, by id.
    async fn list_archived_files(&self, scope: &Scope) -> Result<Vec<ArchivedFile>>;

    /// Which of these ids conversations of the workspace have, deleted ones too.
    async fn known_conversations(&self, scope: &Scope, ids: &[Uuid]) -> Result<Vec<bool>>;

    /// Writes a checked conversation with all that belongs to it, in one transaction, synced; the bytes of its files
    /// lie under their keys, the logs of its runs are `traces`, each in its order. False, and nothing is changed, when
    /// the workspace has one with its id, deleted or not.
    async fn import_archive(
        &self,
        scope: &Scope,
        archive: Arc<Archive>,
        traces: Arc<dyn Pieces<Trace>>,
    ) -> Result<bool>;

    /// The ids of a live conversation's messages, on all branches.
    async fn list_message_ids(&self, scope: &Scope, conversation: Uuid) -> Result<Vec<Uuid>>;

    /// Adds what a conversation has become at its source, in one transaction, synced. Its files are reserved, and
    /// `stored` in their order. False, and nothing is changed, when the conversation is no longer the one that it was
    /// made for; `Conflict` while a turn of it is under way or queued.
    async fn extend_archive(&self, scope: &Scope, growth: Arc<Growth>, stored: &[Stored]) -> Result<bool>;

    /// Executions that have ended and that the scope may see, by id, after `after`.
    async fn list_executions(&self, scope: &Scope, after: Option<Uuid>, limit: usize) -> Result<Vec<Uuid>>;

    /// An execution with its run and the visible files of its bag.
    async fn get_archived_execution(&self, scope: &Scope, id: Uuid) -> Result<ArchivedExecution>;

    /// As `import_archive`.
    async fn import_execution(
        &self,
        scope: &Scope,
        execution: Arc<ArchivedExecution>,
        traces: Arc<dyn Pieces<Trace>>,
    ) -> Result<bool>;

    /// Writes a checked table with its rows in one transaction, synced. False, and nothing is changed, when the
    /// workspace has one with its id.
    async fn import_table(
        &self,
        scope: &Scope,
        table: &Table,
        rows: Arc<dyn Pieces<Vec<Row>>>,
    ) -> Result<bool>;

    /// Whether the workspace holds nothing yet that an import could bring.
    async fn is_empty(&self, scope: &Scope) -> Result<bool>;

    // ---- the store itself ----

    /// Answers when the database does, and the schema is the one this binary knows.
    async fn ping(&self) -> Result<()>;

    /// Finishes what was accepted and lets go of the database.
    async fn close(&self);
}
