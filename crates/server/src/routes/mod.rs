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
pub mod pages;
mod planning;
pub mod rows;
pub mod runs;
pub mod session;
pub mod table_files;
pub mod tables;
pub mod turns;
pub mod uploads;
pub mod workspace_files;
pub mod workspaces;
