//! Read connections, apart from the writer: each read is one snapshot, on a blocking thread unless it is short.

use std::sync::{Arc, Mutex};

use rusqlite::Connection;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

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
        // The permit is kept until the connection is back: whoever asked may be gone before the answer.
        tokio::task::spawn_blocking(move || snapshot(&idle, permit, work))
            .await
            .map_err(|_| StoreError::Internal("a read ended without an answer".into()))?
    }

    /// As `read`, for a row or two by their key, which every request asks for: found here sooner than another thread
    /// would be woken. Where all connections are busy, it waits like the others.
    pub(super) async fn look_up<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Connection) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        match Arc::clone(&self.free).try_acquire_owned() {
            Ok(permit) => snapshot(&self.idle, permit, work),
            Err(_) => self.read(work).await,
        }
    }
}

fn snapshot<T>(
    idle: &Mutex<Vec<Connection>>,
    _permit: OwnedSemaphorePermit,
    work: impl FnOnce(&Connection) -> Result<T>,
) -> Result<T> {
    let borrowed = Borrowed::take(idle)?;
    let snapshot = borrowed.connection()?.unchecked_transaction()?;
    let result = work(&snapshot);
    snapshot.finish()?;
    result
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
