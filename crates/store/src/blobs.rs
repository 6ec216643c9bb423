//! Where the bytes of files lie: a folder of this machine, or a bucket of an S3 server. A key has all of its
//! bytes or none, durably, and they are never written again under the same key.

use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use domain::file::Digest;
use futures_util::stream::{self, BoxStream};
use futures_util::{StreamExt as _, TryStreamExt as _};
use jiff::Timestamp;
use tokio_util::task::TaskTracker;

pub use error::{BlobError, Result};

use error::blocking;
use file::FileWriter;
use folder::Folder;
use s3::Bucket;
use s3_writer::ObjectWriter;

mod error;
mod file;
mod folder;
mod hash;
mod s3;
mod s3_error;
mod s3_writer;

/// What is read or written at once: large enough that crossing to a blocking thread does not show.
const CHUNK: usize = 256 * 1024;

/// The bytes of one key in a listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    pub key: String,
    pub size: u64,
    /// When the bytes came under this key, or later; never earlier.
    pub modified: Timestamp,
}

/// The storage of the settings. Cloning shares it.
#[derive(Debug, Clone)]
pub struct Blobs(Place);

#[derive(Debug, Clone)]
enum Place {
    Folder(Arc<Folder>),
    S3(Arc<Bucket>),
}

impl Blobs {
    /// A folder, made where it is missing, for this user alone. Fails where it cannot be written.
    pub async fn folder(root: impl Into<PathBuf>) -> Result<Self> {
        let root = root.into();
        let folder = blocking(|| Folder::open(root)).await?;
        Ok(Self(Place::Folder(Arc::new(folder))))
    }

    /// A bucket, with the usual `AWS_…` settings from `env`; keys lie below `prefix`. Fails, saying what to do,
    /// where an object cannot be written, read, listed and deleted. On `tasks` broken uploads are cleaned up.
    ///
    /// The parts of an upload that died with its process stay in the bucket, where nobody sees them: a lifecycle
    /// rule (`AbortIncompleteMultipartUpload`) removes them.
    pub async fn s3(
        bucket: &str,
        prefix: &str,
        env: impl Fn(&str) -> Option<String>,
        tasks: &TaskTracker,
    ) -> Result<Self> {
        Ok(Self(Place::S3(Arc::new(Bucket::open(bucket, prefix, env, tasks).await?))))
    }

    /// Begins to write; the key has its bytes, in place of any before, when the writer is finished.
    pub async fn writer(&self, key: &str) -> Result<BlobWriter> {
        check_key(key)?;
        Ok(BlobWriter(match &self.0 {
            Place::Folder(folder) => Writer::File(FileWriter::new(folder, key)?),
            Place::S3(bucket) => Writer::Object(ObjectWriter::new(bucket, key)?),
        }))
    }

    /// All bytes, or those of a range. A range that is not within them is an error, and so are bytes that end
    /// before they should.
    pub async fn read(
        &self,
        key: &str,
        range: Option<Range<u64>>,
    ) -> Result<BoxStream<'static, Result<Bytes>>> {
        check_key(key)?;
        match &self.0 {
            Place::Folder(folder) => file::read(folder, key, range).await,
            Place::S3(bucket) => bucket.read(key, range).await,
        }
    }

    /// Reads the bytes and says what they are.
    pub async fn digest(&self, key: &str) -> Result<Digest> {
        check_key(key)?;
        match &self.0 {
            Place::Folder(folder) => {
                let (folder, key) = (folder.clone(), key.to_owned());
                blocking(move || folder.digest(&key)).await
            }
            Place::S3(bucket) => bucket.digest(key).await,
        }
    }

    /// Puts the same bytes under a second key. They do not pass through this server.
    pub async fn copy(&self, from: &str, to: &str) -> Result<()> {
        check_key(from)?;
        check_key(to)?;
        match &self.0 {
            Place::Folder(folder) => {
                let (folder, from, to) = (folder.clone(), from.to_owned(), to.to_owned());
                blocking(move || folder.copy(&from, &to)).await
            }
            Place::S3(bucket) => bucket.copy(from, to).await,
        }
    }

    /// Puts the bytes under another key. On S3 a crash in between leaves them under both.
    pub async fn rename(&self, from: &str, to: &str) -> Result<()> {
        check_key(from)?;
        check_key(to)?;
        match &self.0 {
            Place::Folder(folder) => {
                let (folder, from, to) = (folder.clone(), from.to_owned(), to.to_owned());
                blocking(move || folder.rename(&from, &to)).await
            }
            Place::S3(_) if from == to => self.read(from, Some(0..0)).await.map(drop),
            Place::S3(bucket) => {
                bucket.copy(from, to).await?;
                bucket.remove(from).await
            }
        }
    }

    /// Removes the bytes; that there are none is fine.
    pub async fn remove(&self, key: &str) -> Result<()> {
        check_key(key)?;
        match &self.0 {
            Place::Folder(folder) => {
                let (folder, key) = (folder.clone(), key.to_owned());
                blocking(move || folder.remove(&key)).await
            }
            Place::S3(bucket) => bucket.remove(key).await,
        }
    }

    /// Every key whose first parts are those of `prefix` (all for an empty one), in no particular order.
    pub fn list(&self, prefix: &str) -> BoxStream<'static, Result<Listed>> {
        if !prefix.is_empty()
            && let Err(error) = check_key(prefix)
        {
            return Box::pin(stream::once(async { Err(error) }));
        }
        match &self.0 {
            Place::Folder(folder) => list_folder(folder.clone(), prefix),
            Place::S3(bucket) => bucket.list(prefix),
        }
    }

    /// Removes what writers left that died with their process, last touched before `before`; answers how many.
    pub async fn sweep_temp(&self, before: Timestamp) -> Result<u64> {
        match &self.0 {
            Place::Folder(folder) => {
                let folder = folder.clone();
                blocking(move || folder.sweep_temp(before)).await
            }
            Place::S3(bucket) => bucket.sweep_probes(before).await,
        }
    }

    /// An address that takes the bytes of this key by PUT, without credentials, until it expires (a week at
    /// most). A folder has none.
    pub async fn presign_put(&self, key: &str, expires: Duration) -> Result<Option<String>> {
        check_key(key)?;
        match &self.0 {
            Place::Folder(_) => Ok(None),
            Place::S3(bucket) => bucket.presign_put(key, expires).await.map(Some),
        }
    }

    /// Whether the storage does its work.
    pub async fn ping(&self) -> Result<()> {
        match &self.0 {
            Place::Folder(folder) => {
                let folder = folder.clone();
                blocking(move || folder.ping()).await
            }
            Place::S3(bucket) => bucket.ping().await,
        }
    }
}

/// Bytes on their way in. Dropped before it is finished, it leaves nothing under the key.
#[derive(Debug)]
pub struct BlobWriter(Writer);

#[derive(Debug)]
enum Writer {
    File(FileWriter),
    Object(ObjectWriter),
}

impl BlobWriter {
    pub async fn write(&mut self, bytes: Bytes) -> Result<()> {
        match &mut self.0 {
            Writer::File(writer) => writer.write(bytes).await,
            Writer::Object(writer) => writer.write(bytes).await,
        }
    }

    /// Makes the bytes durable under the key, and says what they were.
    pub async fn finish(self) -> Result<Digest> {
        match self.0 {
            Writer::File(writer) => writer.finish().await,
            Writer::Object(writer) => writer.finish().await,
        }
    }
}

fn list_folder(folder: Arc<Folder>, prefix: &str) -> BoxStream<'static, Result<Listed>> {
    let folders = stream::try_unfold(vec![prefix.to_owned()], move |mut waiting| {
        let folder = folder.clone();
        async move {
            let Some(under) = waiting.pop() else { return Ok::<_, BlobError>(None) };
            let (files, folders) = blocking(move || folder.list(&under)).await?;
            waiting.extend(folders);
            Ok(Some((stream::iter(files).map(Ok::<_, BlobError>), waiting)))
        }
    });
    Box::pin(folders.try_flatten())
}

/// Keys are made by this server, of parts that were made safe; one that is not must not reach a path or a URL.
fn check_key(key: &str) -> Result<()> {
    let unsafe_part =
        |part: &str| matches!(part, "" | "." | "..") || part.contains(|c: char| c.is_ascii_control());
    match key.split('/').find(|part| unsafe_part(part)) {
        Some(part) => Err(BlobError::Internal(format!("the key {key:?} has the part {part:?}"))),
        None => Ok(()),
    }
}

fn outside(key: &str, range: &Range<u64>, size: u64) -> BlobError {
    BlobError::Internal(format!("{key} has {size} bytes, not those from {} to {}", range.start, range.end))
}
