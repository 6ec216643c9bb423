//! Rows and bytes together: the zip of a bag, and what keeps the two from disagreeing for long.

use std::sync::Arc;

use bytes::Bytes;
use domain::file::File;
use domain::zip::{ZipEntry, ZipLayout, ZipTooBig};
use futures_util::stream::{self, BoxStream};
use futures_util::{StreamExt as _, TryStreamExt as _};
use jiff::Timestamp;
use uuid::Uuid;

use crate::blobs::{BlobError, Blobs};
use crate::files::{Doomed, Purgeable};
use crate::{Store, StoreError};

/// How many rows one question to the store is about.
const CHUNK: usize = 200;

#[derive(Debug, thiserror::Error)]
pub enum BagError {
    #[error(transparent)]
    Rows(#[from] StoreError),
    #[error(transparent)]
    Bytes(#[from] BlobError),
}

/// Where the bytes of a direct upload wait until they are checked.
pub fn staging_key(workspace: Uuid, file: Uuid) -> String {
    format!("uploads/{workspace}/{file}")
}

/// A zip that is written while it is read, and its length.
pub struct Zip {
    pub len: u64,
    pub bytes: BoxStream<'static, Result<Bytes, BlobError>>,
}

/// The files as one zip, in their order. Missing or shorter bytes break the stream off: no short zip looks whole.
pub fn zip(blobs: &Blobs, files: Vec<File>) -> Result<Zip, ZipTooBig> {
    let entries = files.iter().map(|file| ZipEntry {
        name: file.name.clone(),
        size: file.digest.size,
        crc32: file.digest.crc32,
    });
    let layout = Arc::new(ZipLayout::new(entries.collect())?);
    let (len, end) = (layout.total_len(), Arc::clone(&layout));
    let blobs = blobs.clone();
    let parts = stream::iter(files.into_iter().enumerate()).then(move |(at, file)| {
        let (blobs, header) = (blobs.clone(), layout.local_header(at));
        async move {
            let size = file.digest.size;
            let bytes = blobs.read(&file.storage_key, Some(0..size)).await?;
            let whole = counted(bytes, size);
            Ok::<_, BlobError>(stream::iter([Ok(Bytes::from(header))]).chain(whole))
        }
    });
    let end = stream::once(async move { Ok(Bytes::from(end.central_directory())) });
    Ok(Zip { len, bytes: parts.try_flatten().chain(end).boxed() })
}

/// The same bytes, and an error if they are not as many as they should be.
fn counted(
    bytes: BoxStream<'static, Result<Bytes, BlobError>>,
    size: u64,
) -> BoxStream<'static, Result<Bytes, BlobError>> {
    let start = (bytes, 0_u64, false);
    stream::try_unfold(start, move |(mut bytes, seen, done)| async move {
        if done {
            return Ok(None);
        }
        match bytes.next().await {
            Some(chunk) => {
                let chunk = chunk?;
                let seen = seen + chunk.len() as u64;
                Ok(Some((chunk, (bytes, seen, false))))
            }
            None if seen == size => Ok(None),
            None => Err(BlobError::Internal(format!("{seen} of {size} bytes are there"))),
        }
    })
    .boxed()
}

/// Removes what uploads left that never ended: reservations from before `before`, with their bytes.
pub async fn sweep_reservations(
    store: &dyn Store,
    blobs: &Blobs,
    before: Timestamp,
) -> Result<usize, BagError> {
    let mut swept = 0;
    loop {
        let stale = store.system_list_stale(before, CHUNK).await?;
        if stale.is_empty() {
            return Ok(swept);
        }
        swept += stale.len();
        remove(store, blobs, &stale).await?;
    }
}

/// Removes bytes that no row names and that came before `before`: copies for a fork that never was, half-written
/// files. Answers how many.
pub async fn sweep_orphans(store: &dyn Store, blobs: &Blobs, before: Timestamp) -> Result<u64, BagError> {
    let mut swept = blobs.sweep_temp(before).await?;
    for prefix in ["assistant-chat-bag", "execution-bag", "workspace-files", "uploads"] {
        let mut chunks = blobs.list(prefix).try_chunks(CHUNK);
        while let Some(chunk) = chunks.next().await {
            let listed = chunk.map_err(|error| error.1)?;
            let keys: Vec<String> =
                listed.into_iter().filter(|found| found.modified < before).map(|found| found.key).collect();
            let known = store.system_known_keys(&keys).await?;
            for (key, _) in keys.iter().zip(known).filter(|(_, known)| !known) {
                blobs.remove(key).await?;
                swept += 1;
            }
        }
    }
    Ok(swept)
}

/// The bytes first: while a row is there, its name is taken and nobody else writes under its key.
async fn remove(store: &dyn Store, blobs: &Blobs, doomed: &[Doomed]) -> Result<(), BagError> {
    for file in doomed {
        blobs.remove(&file.storage_key).await?;
        blobs.remove(&staging_key(file.workspace, file.id)).await?;
    }
    let mut workspaces: Vec<Uuid> = doomed.iter().map(|file| file.workspace).collect();
    workspaces.dedup();
    for workspace in workspaces {
        let ids: Vec<Uuid> =
            doomed.iter().filter(|file| file.workspace == workspace).map(|file| file.id).collect();
        store.system_forget_files(workspace, &ids).await?;
    }
    Ok(())
}

/// What a purge has removed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Purged {
    pub workspaces: u64,
    pub conversations: u64,
    pub files: u64,
}

/// Removes one deleted conversation for good, rows and bytes, and answers how many files it had; none if it is not there
/// to be removed.
pub async fn purge_one(
    store: &dyn Store,
    blobs: &Blobs,
    conversation: &Purgeable,
) -> Result<Option<u64>, BagError> {
    let files = match store.system_begin_purge(conversation).await {
        Err(StoreError::NotFound) => return Ok(None),
        files => files?,
    };
    for file in &files {
        blobs.remove(&file.storage_key).await?;
        blobs.remove(&staging_key(file.workspace, file.id)).await?;
    }
    store.system_purge(conversation).await?;
    Ok(Some(files.len() as u64))
}

/// Removes what is left of a removed workspace, its executions and their files first, and answers how many files there were;
/// none if it is not there to be removed, or its last conversations are not due.
async fn purge_workspace(store: &dyn Store, blobs: &Blobs, workspace: Uuid) -> Result<Option<u64>, BagError> {
    let mut count = 0;
    loop {
        match store.system_purge_removed(workspace, CHUNK).await {
            Err(StoreError::NotFound) => return Ok(None),
            step => match step? {
                None => return Ok(Some(count)),
                Some(files) => {
                    remove(store, blobs, &files).await?;
                    count += files.len() as u64;
                }
            },
        }
    }
}

/// Removes for good what was soft-deleted before `before`, rows and bytes. Interrupted, it goes on the next time.
pub async fn purge(
    store: &dyn Store,
    blobs: &Blobs,
    before: Timestamp,
    mut tell: impl FnMut(Purged) + Send,
) -> Result<Purged, BagError> {
    let mut purged = Purged::default();
    loop {
        let files = store.system_list_deleted_files(before, CHUNK).await?;
        if files.is_empty() {
            break;
        }
        remove(store, blobs, &files).await?;
        purged.files += files.len() as u64;
        tell(purged);
    }
    loop {
        let conversations = store.system_list_purgeable(before, CHUNK).await?;
        if conversations.is_empty() {
            break;
        }
        for conversation in &conversations {
            // None: restored, or purged by another node, in the meantime.
            if let Some(files) = purge_one(store, blobs, conversation).await? {
                purged.conversations += 1;
                purged.files += files;
                tell(purged);
            }
        }
    }
    for workspace in store.system_list_removed(before).await? {
        purged.files += match purge_workspace(store, blobs, workspace).await? {
            Some(files) => files,
            None => continue,
        };
        purged.workspaces += 1;
        tell(purged);
    }
    if purged != Purged::default() {
        store.system_compact().await?;
    }
    Ok(purged)
}
