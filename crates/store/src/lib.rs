//! Rows and bytes. `Store` is the contract; `sqlite` and `postgres` keep it.

pub mod backup;
pub mod bag;
pub mod blobs;
mod branches;
mod error;
pub mod files;
pub mod knowledge;
mod list;
mod parts;
pub mod postgres;
mod search;
pub mod sqlite;
mod store;
pub mod transfer;
pub mod turns;

pub use error::{Result, StoreError, is_full};
pub use store::{Store, Thread, ThreadRead};
