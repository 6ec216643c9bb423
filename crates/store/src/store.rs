//! The contract of storage: domain verbs, each one transaction, in rooms. Both backends keep every promise
//! here the same way; `tests/store` holds them to it.
//!
//! A room is one name in three places: its verbs and their guarantees in `store/<room>.rs`, what keeps them in
//! `sqlite/<room>.rs` and in `postgres/<room>.rs`, beside the SQL. To add a verb: write it in the three, and a test in
//! `tests/store`, which runs on both. Callers know `Store` alone: what a room promises, a `dyn Store` has.
//!
//! `find_x` answers `None` for what the scope may not see, `get_x` answers `NotFound`. A verb that
//! takes a `Scope` touches that workspace only. Every change of who may do what writes its audit entry
//! in the same transaction.

pub(crate) mod agents;
pub(crate) mod approvals;
pub(crate) mod archive;
pub(crate) mod archive_runs;
pub(crate) mod branches;
pub(crate) mod clients;
pub(crate) mod conversations;
pub(crate) mod executions;
pub(crate) mod files;
pub(crate) mod keys;
pub(crate) mod leases;
pub(crate) mod log;
pub(crate) mod members;
pub(crate) mod messages;
pub(crate) mod pages;
pub(crate) mod purge;
pub(crate) mod rows;
pub(crate) mod run_files;
pub(crate) mod runs;
pub(crate) mod tables;
pub(crate) mod tool_servers;
pub(crate) mod turns;
pub(crate) mod usage;
pub(crate) mod workspaces;

use async_trait::async_trait;

pub use self::messages::{Thread, ThreadRead};
use crate::error::Result;

#[async_trait]
pub trait Store:
    conversations::Conversations
    + messages::Messages
    + branches::Branches
    + clients::Clients
    + turns::Turns
    + runs::Runs
    + log::Log
    + leases::Leases
    + approvals::Approvals
    + usage::UsageCounts
    + executions::Executions
    + files::Files
    + run_files::RunFiles
    + purge::Purge
    + pages::Pages
    + tables::Tables
    + rows::Rows
    + agents::Agents
    + tool_servers::ToolServers
    + workspaces::Workspaces
    + members::Members
    + keys::Keys
    + archive::Archives
    + archive_runs::ArchivedRuns
{
    /// Answers when the database does, and the schema is the one this binary knows.
    async fn ping(&self) -> Result<()>;

    /// Finishes what was accepted and lets go of the database.
    async fn close(&self);
}
