//! One file per resource, one function per endpoint: extract, one call, shape the reply.

pub mod agent;
pub mod agents;
pub mod api_keys;
pub mod approvals;
pub mod audit;
pub mod branches;
pub mod conversations;
pub mod executions;
pub mod files;
pub mod gateway;
pub mod health;
pub mod home;
pub mod members;
pub mod openapi;
mod planning;
pub mod runs;
pub mod session;
pub mod tool_servers;
pub mod turns;
pub mod uploads;
pub mod usage;
pub mod workspace_files;
pub mod workspaces;
