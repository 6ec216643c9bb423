//! `threadkeep chat`: a conversation in the terminal, by the server's HTTP API alone.
//!
//! `api`, `files` and `follow` speak to the server. `plain` is the chat without a screen. The pure parts: `clean`
//! (others' text made harmless), `printer` (events to plain output).

pub mod api;
pub mod clean;
mod failure;
pub mod files;
pub mod follow;
mod plain;
mod printer;
mod session;

use std::path::PathBuf;
use std::process::ExitCode;

use domain::secret::Secret;
use uuid::Uuid;

pub use failure::Failure;
use session::Session;

/// Which conversation to open.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Open {
    New,
    Conversation(Uuid),
    /// The newest one.
    Continue,
    Pick,
}

#[derive(Debug, Clone)]
pub struct Options {
    /// The server's address, without a slash at its end.
    pub server: String,
    pub key: Option<Secret>,
    pub workspace: Option<Uuid>,
    pub open: Open,
    pub mode: Option<String>,
    pub model: Option<String>,
    pub agent: Option<String>,
    pub attach: Vec<PathBuf>,
    pub json: bool,
}

/// The whole chat. The exit code says whether the last turn succeeded.
pub async fn run(options: Options) -> Result<ExitCode, Failure> {
    let attach = options.attach.iter().map(|path| files::choose(path)).collect::<Result<Vec<_>, _>>()?;
    let session = Session::open(&options).await?;
    plain::run(session, attach, &options).await
}
