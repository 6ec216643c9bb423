//! Every call Threadkeep makes to somebody else's server leaves through here: one client, one kind
//! of error, and the parts that speak to one particular service.

pub mod composio;
pub mod error;
pub mod guard;
pub mod http;
pub mod jwks;
pub mod llm;
pub mod mcp;
mod ndjson;
mod room;
pub mod sandbox;
mod silence;
pub mod sse;
pub mod trace;

pub use error::UpstreamError;
