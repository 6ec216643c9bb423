//! Read connections, apart from the writer: each read is one snapshot, on a blocking thread.

use std::sync::{Arc, Mutex};

use rusqlite::Connection;
use tokio::sync::Semaphore;

use crate::error::{Result, StoreError};

pub(super) struct Readers {
    idle: Arc<Mutex<Vec<Connection>>>,
    free: Arc<Semaphore>,
}

impl Readers {
    pub(super) fn new(connections: Vec<Connection>) -> Self {
        let free = Arc::new(Semaphore::new(connections.len()));
        Self { idle: Arc::new(Mutex::new(connections)), free }
    }

    pub(super) async fn read<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Connection) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let free = Arc::clone(&self.free).acquire_owned();
        let permit = free.await.map_err(|error| StoreError::Unavailable(error.to_string()))?;
        let idle = Arc::clone(&self.idle);
        let read = move || {
            // Kept until the connection is back: whoever asked may be gone before the answer.
            let _permit = permit;
            let borrowed = Borrowed::take(&idle)?;
            let db = borrowed.connection()?;
            let snapshot = db.unchecked_transaction()?;
            let result = work(&snapshot);
            snapshot.finish()?;
            result
        };
        tokio::task::spawn_blocking(read)
            .await
            .map_err(|_| StoreError::Internal("a read ended without an answer".into()))?
    }
}

/// A connection on loan; it goes back even if the reader panics.
struct Borrowed<'a> {
    idle: &'a Mutex<Vec<Connection>>,
    connection: Option<Connection>,
}

impl<'a> Borrowed<'a> {
    fn take(idle: &'a Mutex<Vec<Connection>>) -> Result<Self> {
        let connection = idle.lock().ok().and_then(|mut idle| idle.pop());
        Ok(Self { idle, connection })
    }

    fn connection(&self) -> Result<&Connection> {
        self.connection.as_ref().ok_or_else(|| StoreError::Unavailable("no read connection is free".into()))
    }
}

impl Drop for Borrowed<'_> {
    fn drop(&mut self) {
        if let (Some(connection), Ok(mut idle)) = (self.connection.take(), self.idle.lock()) {
            idle.push(connection);
        }
    }
}
