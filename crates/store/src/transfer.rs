//! What comes into a store in pieces, because it may be too much to be held at once.

use std::io;

use crate::error::{Result, StoreError};

/// Pieces in their order. A transaction that is tried again asks for them again.
pub trait Pieces<T>: Send + Sync {
    /// The piece at a place, from 0 on; none after the last.
    fn piece(&self, at: usize) -> io::Result<Option<T>>;
}

impl<T: Clone + Send + Sync> Pieces<T> for Vec<T> {
    fn piece(&self, at: usize) -> io::Result<Option<T>> {
        Ok(self.as_slice().get(at).cloned())
    }
}

pub(crate) fn read_piece<T>(pieces: &dyn Pieces<T>, at: usize) -> Result<Option<T>> {
    pieces
        .piece(at)
        .map_err(|error| StoreError::Unavailable(format!("what is imported cannot be read: {error}")))
}
