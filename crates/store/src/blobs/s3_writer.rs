//! One object on its way into a bucket. It is gathered in an unnamed file of the temporary folder, however slowly it
//! comes, and sent from there: in one request while it is small, else in parts, few of which are in memory at once.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, Write as _};
use std::mem;
use std::sync::Arc;

use bytes::Bytes;
use domain::file::Digest;
use object_store::path::Path;
use object_store::{MultipartUpload, ObjectStoreExt as _};
use tokio::runtime::Handle;

use super::CHUNK;
use super::error::{BlobError, Result, blocking};
use super::hash::Hasher;
use super::s3::Bucket;
use super::s3_error::Fault;

/// The least that S3 takes for a part; it takes 10,000 of them.
const PART: u64 = 5 * 1024 * 1024;

#[derive(Debug)]
pub(super) struct ObjectWriter {
    bucket: Arc<Bucket>,
    path: Path,
    gathered: Vec<u8>,
    /// None after a failure.
    spool: Option<Spool>,
    /// Aborted when dropped, so that the server does not keep parts of nothing.
    upload: Option<Box<dyn MultipartUpload>>,
    /// Dropping may happen where no runtime is.
    runtime: Handle,
}

/// What came so far; there is no file before the first chunk is full.
#[derive(Debug, Default)]
struct Spool {
    file: Option<File>,
    size: u64,
    hasher: Hasher,
}

impl ObjectWriter {
    pub(super) fn new(bucket: &Arc<Bucket>, key: &str) -> Result<Self> {
        Ok(Self {
            bucket: bucket.clone(),
            path: bucket.path(key)?,
            gathered: Vec::new(),
            spool: Some(Spool::default()),
            upload: None,
            runtime: Handle::current(),
        })
    }

    pub(super) async fn write(&mut self, mut bytes: Bytes) -> Result<()> {
        while !bytes.is_empty() {
            let fits = bytes.len().min(CHUNK - self.gathered.len());
            self.gathered.extend_from_slice(&bytes.split_to(fits));
            if self.gathered.len() == CHUNK {
                let chunk = mem::take(&mut self.gathered);
                self.gathered = self.spooled(move |spool| spool.append(chunk)).await?;
            }
        }
        Ok(())
    }

    pub(super) async fn finish(mut self) -> Result<Digest> {
        let rest = mem::take(&mut self.gathered);
        let bucket = Arc::clone(&self.bucket);
        let (size, digest) = self.spooled(move |spool| spool.finish(rest)).await?;
        if size <= PART {
            let _permit = bucket.permit().await?;
            let whole = self.next_part().await?;
            bucket.store.put(&self.path, whole.into()).await.map_err(|error| Fault::of(&error))?;
            return Ok(digest);
        }
        let begun = bucket.store.put_multipart(&self.path).await.map_err(|error| Fault::of(&error))?;
        self.upload = Some(begun);
        for _ in 0..size.div_ceil(PART) {
            let _permit = bucket.permit().await?;
            let part = self.next_part().await?;
            let Some(upload) = &mut self.upload else { return Err(over()) };
            upload.put_part(part.into()).await.map_err(|error| Fault::of(&error))?;
        }
        if let Some(upload) = &mut self.upload {
            upload.complete().await.map_err(|error| Fault::of(&error))?;
        }
        self.upload = None;
        Ok(digest)
    }

    async fn next_part(&mut self) -> Result<Bytes> {
        let mut buffer = self.bucket.buffer();
        let buffer = self.spooled(move |spool| spool.read(&mut buffer).map(|()| buffer)).await?;
        Ok(Bytes::from_owner(Part { buffer, bucket: Arc::clone(&self.bucket) }))
    }

    /// Works on the spool where waiting for a disk holds nobody up.
    async fn spooled<T: Send + 'static>(
        &mut self,
        work: impl FnOnce(&mut Spool) -> io::Result<T> + Send + 'static,
    ) -> Result<T> {
        let mut spool = self.spool.take().ok_or_else(over)?;
        let (spool, done) = blocking(move || {
            let failed = |error: io::Error| {
                let place = std::env::temp_dir();
                BlobError::from_io(format!("cannot use the temporary folder {}", place.display()), &error)
            };
            let done = work(&mut spool).map_err(failed)?;
            Ok((spool, done))
        })
        .await?;
        self.spool = Some(spool);
        Ok(done)
    }
}

impl Spool {
    /// Gives the buffer back, emptied.
    fn append(&mut self, mut chunk: Vec<u8>) -> io::Result<Vec<u8>> {
        let file = match &mut self.file {
            Some(file) => file,
            none => none.insert(tempfile::tempfile()?),
        };
        file.write_all(&chunk)?;
        self.hasher.update(&chunk);
        self.size += chunk.len() as u64;
        chunk.clear();
        Ok(chunk)
    }

    /// The last bytes; then it can be read from its beginning.
    fn finish(&mut self, rest: Vec<u8>) -> io::Result<(u64, Digest)> {
        self.append(rest)?;
        if let Some(file) = &mut self.file {
            file.rewind()?;
        }
        Ok((self.size, mem::take(&mut self.hasher).digest()))
    }

    fn read(&mut self, part: &mut Vec<u8>) -> io::Result<()> {
        part.clear();
        if let Some(file) = &mut self.file {
            file.take(PART).read_to_end(part)?;
        }
        Ok(())
    }
}

/// Bytes on their way to the server, in a buffer that is used again: large ones that come and go tear the heap.
struct Part {
    buffer: Vec<u8>,
    bucket: Arc<Bucket>,
}

impl AsRef<[u8]> for Part {
    fn as_ref(&self) -> &[u8] {
        &self.buffer
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        self.bucket.take_back(mem::take(&mut self.buffer));
    }
}

impl Drop for ObjectWriter {
    fn drop(&mut self) {
        let Some(mut upload) = self.upload.take() else { return };
        let abort = async move {
            if let Err(error) = upload.abort().await {
                let error = BlobError::from(Fault::of(&error));
                tracing::warn!(%error, "parts of a broken upload stay in the bucket until its lifecycle rule removes them");
            }
        };
        self.bucket.tasks.spawn_on(abort, &self.runtime);
    }
}

fn over() -> BlobError {
    BlobError::Internal("writing went on after it had failed".into())
}
