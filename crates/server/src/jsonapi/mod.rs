//! The rules of JSON:API 1.1 for `chat_conversation`, apart from HTTP and the store: what a request may say
//! (media types, query parameters, documents) comes in as text, typed values or error objects go out.

mod attributes;
pub mod cursor;
pub mod document;
pub mod error;
pub mod field;
pub mod media;
mod members;
pub(crate) mod params;
pub mod query;
pub mod resource;
pub mod schema;
pub mod write;

#[cfg(test)]
mod document_tests;
#[cfg(test)]
mod query_tests;

/// The `type` of the resource and of the one it relates to.
pub const CONVERSATION: &str = "chat_conversation";
pub const WORKSPACE: &str = "workspace";
