//! `threadkeep chat`: a conversation in the terminal, by the server's HTTP API alone.
//!
//! `api`, `files` and `follow` speak to the server. `plain` is the chat without a screen, `app` the one with. The rest is
//! pure: `clean` makes others' text harmless, `printer` makes events plain output, `markdown`, `table`, `wrap` and
//! `view` make lines, `thread`, `editor`, `picker`, `queue`, `notice` and `screen` are what is shown, `command` is what was typed.

mod api;
mod app;
mod clean;
mod command;
mod draw;
mod editor;
mod failure;
mod files;
mod follow;
mod markdown;
mod notice;
mod picker;
mod plain;
mod printer;
mod queue;
mod screen;
mod session;
mod table;
mod thread;
mod view;
mod wrap;

use std::io::IsTerminal as _;
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
    /// The terminal can only be written to, line after line.
    pub dumb: bool,
}

/// The whole chat. The exit code says whether the last turn succeeded.
pub async fn run(options: Options) -> Result<ExitCode, Failure> {
    let attach = options.attach.iter().map(|path| files::choose(path)).collect::<Result<Vec<_>, _>>()?;
    let session = Session::open(&options).await?;
    // Both ends are a person's: the chat may take the whole screen.
    let person = std::io::stdin().is_terminal() && std::io::stdout().is_terminal();
    if person && !options.json && !options.dumb {
        return app::run(session, attach, &options).await;
    }
    plain::run(session, attach, &options).await
}
