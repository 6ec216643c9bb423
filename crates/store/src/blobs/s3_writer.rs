//! One object on its way into a bucket: a single request while it is small, parts from then on. Two parts are
//! in memory at most: one under way, one being gathered.

use std::mem;
use std::sync::Arc;

use bytes::Bytes;
use domain::file::Digest;
use object_store::path::Path;
use object_store::{MultipartUpload, ObjectStoreExt as _};
use tokio::runtime::Handle;
use tokio::task::JoinHandle;

use super::error::{BlobError, Result, blocking, joined};
use super::hash::Hasher;
use super::s3::Bucket;
use super::s3_error::Fault;

/// S3 takes 10,000 parts of 5 MiB or more.
const PART: usize = 8 * 1024 * 1024;

#[derive(Debug)]
pub(super) struct ObjectWriter {
    bucket: Arc<Bucket>,
    path: Path,
    gathered: Vec<u8>,
    hasher: Option<Hasher>,
    /// Aborted when dropped, so that the server does not keep parts of nothing.
    upload: Option<Box<dyn MultipartUpload>>,
    sending: Option<JoinHandle<Result<Hasher>>>,
    /// Dropping may happen where no runtime is.
    runtime: Handle,
}

impl ObjectWriter {
    pub(super) fn new(bucket: &Arc<Bucket>, key: &str) -> Result<Self> {
        Ok(Self {
            bucket: bucket.clone(),
            path: bucket.path(key)?,
            gathered: Vec::new(),
            hasher: Some(Hasher::default()),
            upload: None,
            sending: None,
            runtime: Handle::current(),
        })
    }

    pub(super) async fn write(&mut self, mut bytes: Bytes) -> Result<()> {
        while !bytes.is_empty() {
            // Not before there is more: what fills one part exactly is still one request.
            if self.gathered.len() == PART {
                self.send_part().await?;
            }
            let fits = bytes.len().min(PART - self.gathered.len());
            self.gathered.extend_from_slice(&bytes.split_to(fits));
        }
        Ok(())
    }

    pub(super) async fn finish(mut self) -> Result<Digest> {
        if self.upload.is_none() {
            let part = Bytes::from(mem::take(&mut self.gathered));
            let hasher = hash(self.hasher()?, part.clone()).await?;
            self.bucket.store.put(&self.path, part.into()).await.map_err(|error| Fault::of(&error))?;
            return Ok(hasher.digest());
        }
        if !self.gathered.is_empty() {
            self.send_part().await?;
        }
        self.wait().await?;
        let digest = self.hasher()?.digest();
        if let Some(upload) = &mut self.upload {
            upload.complete().await.map_err(|error| Fault::of(&error))?;
        }
        self.upload = None;
        Ok(digest)
    }

    async fn send_part(&mut self) -> Result<()> {
        self.wait().await?;
        let upload = match &mut self.upload {
            Some(upload) => upload,
            none => {
                let begun = self.bucket.store.put_multipart(&self.path).await;
                none.insert(begun.map_err(|error| Fault::of(&error))?)
            }
        };
        let hasher = self.hasher.take().ok_or_else(over)?;
        let part = Bytes::from(mem::take(&mut self.gathered));
        let sent = upload.put_part(part.clone().into());
        self.sending = Some(self.bucket.tasks.spawn(async move {
            let hasher = hash(hasher, part).await?;
            sent.await.map_err(|error| Fault::of(&error))?;
            Ok(hasher)
        }));
        Ok(())
    }

    /// Waits until the part before has arrived.
    async fn wait(&mut self) -> Result<()> {
        if let Some(sending) = &mut self.sending {
            let sent = joined(sending.await);
            self.sending = None;
            self.hasher = Some(sent?);
        }
        Ok(())
    }

    fn hasher(&mut self) -> Result<Hasher> {
        self.hasher.take().ok_or_else(over)
    }
}

impl Drop for ObjectWriter {
    fn drop(&mut self) {
        let Some(mut upload) = self.upload.take() else { return };
        let sending = self.sending.take();
        let abort = async move {
            // A part that arrives after the end would stay.
            if let Some(sending) = sending {
                sending.abort();
                let _ = sending.await;
            }
            if let Err(error) = upload.abort().await {
                let error = BlobError::from(Fault::of(&error));
                tracing::warn!(%error, "parts of a broken upload stay in the bucket until its lifecycle rule removes them");
            }
        };
        self.bucket.tasks.spawn_on(abort, &self.runtime);
    }
}

async fn hash(mut hasher: Hasher, bytes: Bytes) -> Result<Hasher> {
    blocking(move || {
        hasher.update(&bytes);
        Ok(hasher)
    })
    .await
}

fn over() -> BlobError {
    BlobError::Internal("writing went on after it had failed".into())
}
