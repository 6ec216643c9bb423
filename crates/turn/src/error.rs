//! What can go wrong with a turn, named for what the caller can do about it.

use domain::open_runs::TooManyRuns;
use domain::tokens::OutOfTokens;
use store::StoreError;
use uuid::Uuid;

#[derive(Debug, thiserror::Error)]
pub enum TurnError {
    /// The conversation has a run under way.
    #[error("the conversation is busy with run {0}")]
    Busy(Uuid),
    /// The idempotency key came before with another body, or for another workspace.
    #[error("the idempotency key was used with another body or workspace")]
    KeyReused,
    #[error("there are too many open runs")]
    TooManyRuns(TooManyRuns),
    /// Nothing is left of a day's tokens.
    #[error("the day's tokens are used up")]
    OutOfTokens { spent: OutOfTokens, retry_after: u64 },
    /// Too many streams of one user at once.
    #[error("there are too many open streams")]
    TooManyStreams { limit: u64 },
    /// What a model is sent has room for this many characters.
    #[error("the message is longer than a model can be sent")]
    TooLong { input: &'static str, limit: u64 },
    /// The client brought tools, and no model is to run.
    #[error("a sandbox takes no tools of a client")]
    ToolsNotTaken,
    #[error("the server is draining")]
    Draining,
    #[error(transparent)]
    Store(#[from] StoreError),
}
