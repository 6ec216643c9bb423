//! Rows and bytes together: the zip of a bag, and what keeps the two from disagreeing for long.

use std::collections::HashSet;
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

/// After so many failures in a row it is the storage itself that does not work, and the rest is left for another time.
const GIVE_UP: usize = 20;

/// What could not be removed: it stops nothing that comes after it, and is told at the end.
#[derive(Default)]
struct Stuck {
    ids: HashSet<Uuid>,
    first: Option<BlobError>,
    in_a_row: usize,
}

impl Stuck {
    /// Whether it went well.
    fn note(&mut self, done: Result<(), BlobError>) -> Result<bool, BlobError> {
        let Err(error) = done else {
            self.in_a_row = 0;
            return Ok(true);
        };
        self.in_a_row += 1;
        if self.in_a_row >= GIVE_UP {
            return Err(error);
        }
        tracing::warn!(%error, "bytes could not be removed; going on with others");
        self.first.get_or_insert(error);
        Ok(false)
    }

    fn told<T>(self, done: T) -> Result<T, BagError> {
        self.first.map_or(Ok(done), |error| Err(error.into()))
    }
}

/// Removes what uploads left that never ended: reservations from before `before`, with their bytes.
pub async fn sweep_reservations(
    store: &dyn Store,
    blobs: &Blobs,
    before: Timestamp,
) -> Result<usize, BagError> {
    let (mut swept, mut stuck) = (0, Stuck::default());
    loop {
        // Those that are stuck are the oldest, and come again each time.
        let mut stale = store.system_list_stale(before, CHUNK + stuck.ids.len()).await?;
        stale.retain(|file| !stuck.ids.contains(&file.id));
        if stale.is_empty() {
            return stuck.told(swept);
        }
        swept += remove(store, blobs, &stale, &mut stuck).await?;
    }
}

/// Removes what is left of forks from before `before` that never became whole. Answers how many.
pub async fn sweep_forks(store: &dyn Store, blobs: &Blobs, before: Timestamp) -> Result<usize, BagError> {
    let (mut swept, mut stuck) = (0, Stuck::default());
    loop {
        let mut unmade = store.system_list_unmade_forks(before, CHUNK + stuck.ids.len()).await?;
        unmade.retain(|fork| !stuck.ids.contains(&fork.conversation));
        if unmade.is_empty() {
            return stuck.told(swept);
        }
        for fork in &unmade {
            purge_or_note(store, blobs, fork, &mut stuck).await?;
            swept += 1;
        }
    }
}

/// Removes bytes that no row names and that came before `before`: copies for a fork that never was, half-written
/// files. Answers how many.
pub async fn sweep_orphans(store: &dyn Store, blobs: &Blobs, before: Timestamp) -> Result<u64, BagError> {
    let (mut swept, mut stuck) = (blobs.sweep_temp(before).await?, Stuck::default());
    for prefix in ["assistant-chat-bag", "execution-bag", "workspace-files", "uploads"] {
        let mut chunks = blobs.list(prefix).try_chunks(CHUNK);
        while let Some(chunk) = chunks.next().await {
            let listed = chunk.map_err(|error| error.1)?;
            let keys: Vec<String> =
                listed.into_iter().filter(|found| found.modified < before).map(|found| found.key).collect();
            let known = store.system_known_keys(&keys).await?;
            for (key, _) in keys.iter().zip(known).filter(|(_, known)| !known) {
                swept += u64::from(stuck.note(blobs.remove(key).await)?);
            }
        }
    }
    stuck.told(swept)
}

async fn remove_bytes(blobs: &Blobs, file: &Doomed) -> Result<(), BlobError> {
    blobs.remove(&file.storage_key).await?;
    blobs.remove(&staging_key(file.workspace, file.id)).await
}

/// The bytes first: while a row is there, its name is taken and nobody else writes under its key. Answers how many went.
async fn remove(
    store: &dyn Store,
    blobs: &Blobs,
    doomed: &[Doomed],
    stuck: &mut Stuck,
) -> Result<usize, BagError> {
    let mut gone = Vec::new();
    for file in doomed {
        if stuck.note(remove_bytes(blobs, file).await)? {
            gone.push(file);
        } else {
            stuck.ids.insert(file.id);
        }
    }
    let mut workspaces: Vec<Uuid> = gone.iter().map(|file| file.workspace).collect();
    workspaces.dedup();
    for workspace in workspaces {
        let ids: Vec<Uuid> =
            gone.iter().filter(|file| file.workspace == workspace).map(|file| file.id).collect();
        store.system_forget_files(workspace, &ids).await?;
    }
    Ok(gone.len())
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
        remove_bytes(blobs, file).await?;
    }
    match store.system_purge(conversation).await {
        // Another has done the rest.
        Err(StoreError::NotFound) => Ok(None),
        purged => purged.map(|()| Some(files.len() as u64)).map_err(BagError::from),
    }
}

/// As `purge_one`; where its bytes cannot be removed, none, and it is stuck.
async fn purge_or_note(
    store: &dyn Store,
    blobs: &Blobs,
    conversation: &Purgeable,
    stuck: &mut Stuck,
) -> Result<Option<u64>, BagError> {
    match purge_one(store, blobs, conversation).await {
        Err(BagError::Bytes(error)) => {
            stuck.ids.insert(conversation.conversation);
            stuck.note(Err(error))?;
            Ok(None)
        }
        purged => {
            stuck.note(Ok(()))?;
            purged
        }
    }
}

/// Removes what is left of a removed workspace, its executions and their files first, and answers how many files there were;
/// none if it is not there to be removed, its last conversations are not due, or bytes of it are stuck.
async fn purge_workspace(
    store: &dyn Store,
    blobs: &Blobs,
    workspace: Uuid,
    stuck: &mut Stuck,
) -> Result<Option<u64>, BagError> {
    let mut count = 0;
    loop {
        match store.system_purge_removed(workspace, CHUNK).await {
            Err(StoreError::NotFound) => return Ok(None),
            step => match step? {
                None => return Ok(Some(count)),
                Some(files) => {
                    let gone = remove(store, blobs, &files, stuck).await?;
                    count += gone as u64;
                    // It stays with those that cannot be removed.
                    if gone < files.len() {
                        return Ok(None);
                    }
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
    let (mut purged, mut stuck) = (Purged::default(), Stuck::default());
    loop {
        let mut files = store.system_list_deleted_files(before, CHUNK + stuck.ids.len()).await?;
        files.retain(|file| !stuck.ids.contains(&file.id));
        if files.is_empty() {
            break;
        }
        purged.files += remove(store, blobs, &files, &mut stuck).await? as u64;
        tell(purged);
    }
    loop {
        let mut conversations = store.system_list_purgeable(before, CHUNK + stuck.ids.len()).await?;
        conversations.retain(|of| !stuck.ids.contains(&of.conversation));
        if conversations.is_empty() {
            break;
        }
        for conversation in &conversations {
            // None: restored, or purged by another node, in the meantime.
            if let Some(files) = purge_or_note(store, blobs, conversation, &mut stuck).await? {
                purged.conversations += 1;
                purged.files += files;
                tell(purged);
            }
        }
    }
    for workspace in store.system_list_removed(before).await? {
        purged.files += match purge_workspace(store, blobs, workspace, &mut stuck).await? {
            Some(files) => files,
            None => continue,
        };
        purged.workspaces += 1;
        tell(purged);
    }
    if purged != Purged::default() {
        store.system_compact().await?;
    }
    stuck.told(purged)
}
