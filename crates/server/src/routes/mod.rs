//! One file per resource, one function per endpoint: extract, one call, shape the reply.

pub mod api_keys;
pub mod audit;
pub mod conversations;
pub mod health;
pub mod home;
pub mod members;
pub mod openapi;
pub mod session;
pub mod workspaces;
