//! Rows and bytes. `Store` is the contract; `sqlite` and `postgres` keep it.

mod error;
mod list;
pub mod postgres;
mod search;
pub mod sqlite;
mod store;
pub mod turns;

pub use error::{Result, StoreError};
pub use store::{Store, Thread, ThreadRead};
