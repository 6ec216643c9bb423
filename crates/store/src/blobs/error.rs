//! What can go wrong with bytes, named for what the caller can do about it.

use std::fmt::Display;
use std::io;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BlobError {
    /// No space is left, the quota is used up, or a file may not be larger.
    #[error("no space is left for files: {0}")]
    Full(String),
    #[error("there are no such bytes")]
    Missing,
    /// The storage cannot be reached, or does not do its work right now.
    #[error("the file storage is unavailable: {0}")]
    Unavailable(String),
    #[error("file storage: {0}")]
    Internal(String),
}

pub type Result<T, E = BlobError> = std::result::Result<T, E>;

impl BlobError {
    /// A failed system call; `doing` names what was tried, and on what.
    pub(super) fn from_io(doing: impl Display, error: &io::Error) -> Self {
        use io::ErrorKind;
        let text = format!("{doing}: {error}");
        match error.kind() {
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge => Self::Full(text),
            ErrorKind::InvalidFilename | ErrorKind::IsADirectory | ErrorKind::NotADirectory => {
                Self::Internal(text)
            }
            _ => Self::Unavailable(text),
        }
    }
}

/// Runs what blocks where it may.
pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    joined(tokio::task::spawn_blocking(work).await)
}

/// What a task came to; one that panicked or was stopped by the end of the program has failed.
pub(super) fn joined<T>(done: Result<Result<T>, tokio::task::JoinError>) -> Result<T> {
    done.unwrap_or_else(|error| Err(BlobError::Internal(format!("a task did not end: {error}"))))
}
