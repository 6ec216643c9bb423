//! Words and pure rules of Threadkeep. No I/O, no async, no SQL, no HTTP: what is here can be
//! tested with a table, and every other crate may rely on it.

pub mod agent;
pub mod answer;
pub mod approval;
pub mod audit;
pub mod budget;
pub mod context;
pub mod conversation;
pub mod entry;
pub mod event;
pub mod file;
pub mod fold;
pub mod grant;
pub mod history;
pub mod json;
pub mod limits;
pub mod line;
pub mod media;
pub mod message;
pub mod model;
pub mod page;
pub mod prompt;
pub mod run;
pub mod scope;
pub mod search;
pub mod secret;
pub mod tab;
pub mod table;
pub mod time;
pub mod tool;
pub mod window;
pub mod wire;
pub mod workspace;
pub mod zip;
