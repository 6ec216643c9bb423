//! What can go wrong between the terminal and its server, in words a person can act on.

use std::error::Error as _;

#[derive(Debug, thiserror::Error)]
pub enum Failure {
    #[error(
        "no server answers at {base} ({reason}); start one with `threadkeep serve`, or name another with --server"
    )]
    Unreachable { base: String, reason: String },
    /// The server said no, and why.
    #[error("{detail} ({code}, {status})")]
    Refused { status: u16, code: String, detail: String },
    #[error("the server's answer cannot be read: {0}")]
    Unreadable(String),
    #[error("the connection to the server was lost: {0}")]
    Lost(String),
    /// Something on this side: a file, the terminal, what was typed.
    #[error("{0}")]
    Here(String),
}

impl Failure {
    pub(crate) fn file(path: &std::path::Path, error: &std::io::Error) -> Self {
        Self::Here(format!("{}: {error}", path.display()))
    }

    /// Nothing was heard from the server.
    pub(crate) fn unanswered(&self) -> bool {
        matches!(self, Self::Unreachable { .. } | Self::Lost(_))
    }

    /// What was asked for may come later: the server is away or busy.
    pub(crate) fn passes(&self) -> bool {
        match self {
            Self::Refused { status, .. } => *status >= 500 || *status == 429,
            _ => self.unanswered(),
        }
    }
}

/// The last cause in the chain, which is the one that says something.
pub(crate) fn reason(error: reqwest::Error) -> String {
    let error = error.without_url();
    let (mut text, mut cause) = (error.to_string(), error.source());
    while let Some(inner) = cause {
        text = inner.to_string();
        cause = inner.source();
    }
    text
}
