//! What a handler is given: who calls, for which workspace, and a checked body.

pub mod body;
pub mod caller;
mod disposition;
pub mod paging;
mod part_headers;
mod path;
pub mod shape;
pub mod table_file;
pub mod taken_back;
pub mod upload;

pub use body::{Body, JsonBody};
pub use caller::{Caller, Named};
pub use paging::{Find, Paging};
pub use path::Path;
