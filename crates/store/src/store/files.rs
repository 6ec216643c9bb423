//! Files: a name is reserved, the bytes are made durable under its key, then all become visible at once.

use async_trait::async_trait;
use domain::file::{Bag, File};
use domain::scope::Scope;
use jiff::Timestamp;
use uuid::Uuid;

use crate::error::Result;
use crate::files::{NewFile, Reserved, Stored};

#[async_trait]
pub trait Files: Send + Sync {
    /// Takes names in a bag, each made unique with `-<n>` (case and soft-deleted ones count), so that bytes can be
    /// written under their keys. Nobody sees them yet. `BagFull` when what is there, what is promised and what is
    /// under way is over `max_bag_bytes`. The bag of an execution that is not there yet can be reserved in.
    async fn reserve_files(
        &self,
        scope: &Scope,
        bag: Bag,
        new: &[NewFile],
        max_bag_bytes: u64,
        now: Timestamp,
    ) -> Result<Vec<Reserved>>;

    /// A reservation with its promise, in that bag; `NotFound` once it was kept or swept.
    async fn get_reserved(&self, scope: &Scope, bag: Bag, id: Uuid) -> Result<Reserved>;

    /// Whether bytes may come for a promised file: it waits for them, and its conversation is not deleted.
    async fn is_promised(&self, workspace: Uuid, id: Uuid) -> Result<bool>;

    /// Takes a promised reservation for its completion, once: from then on it is a plain one. `NotFound` when it was
    /// taken, kept or swept, or has expired.
    async fn claim_promised(&self, scope: &Scope, bag: Bag, id: Uuid, now: Timestamp) -> Result<Reserved>;

    /// Makes reserved files visible, all or none, synced. `NotFound` when one is no longer reserved or the bag has
    /// gone, `BagFull` when they do not fit.
    async fn keep_files(
        &self,
        scope: &Scope,
        bag: Bag,
        stored: &[Stored],
        max_bag_bytes: u64,
        now: Timestamp,
    ) -> Result<Vec<File>>;

    /// Forgets reservations and doomed files whose bytes are gone. What is visible is left alone.
    async fn system_forget_files(&self, workspace: Uuid, ids: &[Uuid]) -> Result<()>;

    /// The visible files of a bag by id, after `after`.
    async fn list_files(
        &self,
        scope: &Scope,
        bag: Bag,
        after: Option<Uuid>,
        limit: usize,
    ) -> Result<Vec<File>>;

    /// The visible file of a bag with that name; case does not count.
    async fn find_file(&self, scope: &Scope, bag: Bag, name: &str) -> Result<Option<File>>;

    /// A visible file of any bag that the scope may see.
    async fn get_file(&self, scope: &Scope, id: Uuid) -> Result<File>;

    /// Soft-deletes a visible file. A second delete is `NotFound`.
    async fn delete_file(&self, scope: &Scope, id: Uuid, now: Timestamp) -> Result<()>;
}
