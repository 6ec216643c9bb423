//! Bytes in a bucket of an S3 server. Keys are kept as they are, below the prefix of the settings.

use std::ops::Range;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use domain::file::Digest;
use futures_util::stream::{self, BoxStream};
use futures_util::{StreamExt as _, TryStreamExt as _};
use jiff::Timestamp;
use object_store::aws::{AmazonS3, AmazonS3Builder, AmazonS3ConfigKey};
use object_store::path::Path;
use object_store::signer::{Method, Signer as _, Url};
use object_store::{
    BackoffConfig, ClientOptions, GetOptions, GetRange, ObjectStore as _, ObjectStoreExt as _, RetryConfig,
};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio_util::task::TaskTracker;

use super::Listed;
use super::error::{BlobError, Result};
use super::hash::Hasher;
use super::s3_error::{self, Fault};

/// What the AWS tools read and this server makes use of.
const SETTINGS: [&str; 14] = [
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "AWS_DEFAULT_REGION",
    "AWS_REGION",
    "AWS_ENDPOINT_URL",
    "AWS_ENDPOINT_URL_S3",
    "AWS_ENDPOINT_URL_STS",
    "AWS_ROLE_ARN",
    "AWS_ROLE_SESSION_NAME",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
    "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE",
];
/// Parts that are on their way at once, of all uploads together.
const PARTS: usize = 4;
/// How long a server may be silent, and how long a request is tried again.
const SILENCE: Duration = Duration::from_secs(60);
const RETRY: Duration = Duration::from_secs(30);
/// How long the start waits for the first answers.
const START: Duration = Duration::from_secs(30);

#[derive(Debug)]
pub(super) struct Bucket {
    pub(super) store: AmazonS3,
    /// Empty, or without a slash at either end.
    prefix: String,
    /// Where broken uploads are cleaned up.
    pub(super) tasks: TaskTracker,
    /// One for each part that may be in memory.
    parts: Semaphore,
    /// Theirs, while they are not in use.
    buffers: Mutex<Vec<Vec<u8>>>,
}

impl Bucket {
    pub(super) async fn open(
        bucket: &str,
        prefix: &str,
        env: impl Fn(&str) -> Option<String>,
        tasks: &TaskTracker,
    ) -> Result<Self> {
        let env = |name: &str| env(name).filter(|value| !value.is_empty());
        let prefix = prefix.trim_matches('/').to_owned();
        if !prefix.is_empty() {
            super::check_key(&prefix)?;
        }
        let endpoint = env("AWS_ENDPOINT_URL_S3").or_else(|| env("AWS_ENDPOINT_URL"));
        let place = match &endpoint {
            Some(endpoint) => format!("s3://{bucket} at {endpoint}"),
            None => format!("s3://{bucket}"),
        };
        let refused = |why: String| BlobError::Unavailable(format!("cannot use {place}: {why}"));
        if let Some(endpoint) = &endpoint
            && !is_web_address(endpoint)
        {
            return Err(refused("AWS_ENDPOINT_URL must be an http:// or https:// address".into()));
        }
        let store = client(bucket, endpoint.as_deref(), env).map_err(|error| refused(error.to_string()))?;
        let opened = Self {
            store,
            prefix,
            tasks: tasks.clone(),
            parts: Semaphore::new(PARTS),
            buffers: Mutex::default(),
        };
        match tokio::time::timeout(START, opened.probe()).await {
            Ok(probed) => probed.map_err(refused)?,
            Err(_) => return Err(refused(format!("no answer within {} seconds", START.as_secs()))),
        }
        Ok(opened)
    }

    /// Tries everything this server will do, so that a wrong setting shows at the start.
    async fn probe(&self) -> Result<(), String> {
        let mut random = [0; 8];
        getrandom::fill(&mut random).map_err(|error| error.to_string())?;
        let path = self.path(&format!("probe/{:016x}", u64::from_ne_bytes(random)));
        let path = path.map_err(|error| error.to_string())?;
        let tried = |deed: &'static str| move |error| s3_error::advice(deed, &error);
        self.store.put(&path, "threadkeep".into()).await.map_err(tried("write"))?;
        let read = async { self.store.get(&path).await?.bytes().await }.await;
        let listed = self.store.list(path.parent().as_ref()).next().await.transpose();
        self.store.delete(&path).await.map_err(tried("delete"))?;
        listed.map_err(tried("list"))?;
        match read.map_err(tried("read"))?.as_ref() {
            b"threadkeep" => Ok(()),
            _ => Err("what was written is not what is read back".into()),
        }
    }

    /// One request that needs the server, the bucket and the credentials, and finds nothing.
    pub(super) async fn ping(&self) -> Result<()> {
        match self.store.get(&self.path("probe/none")?).await.map_err(|error| Fault::of(&error).into()) {
            Ok(_) | Err(BlobError::Missing) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// The right to have a part in memory.
    pub(super) async fn permit(&self) -> Result<SemaphorePermit<'_>> {
        self.parts.acquire().await.map_err(|error| BlobError::Internal(error.to_string()))
    }

    pub(super) fn buffer(&self) -> Vec<u8> {
        self.buffers.lock().unwrap_or_else(PoisonError::into_inner).pop().unwrap_or_default()
    }

    pub(super) fn take_back(&self, buffer: Vec<u8>) {
        let mut buffers = self.buffers.lock().unwrap_or_else(PoisonError::into_inner);
        if buffers.len() < PARTS {
            buffers.push(buffer);
        }
    }

    /// Removes what starts left that were killed while they tried the bucket.
    pub(super) async fn sweep_probes(&self, before: Timestamp) -> Result<u64> {
        let mut swept = 0;
        let mut probes = self.list("probe");
        while let Some(probe) = probes.try_next().await? {
            if probe.modified < before {
                self.remove(&probe.key).await?;
                swept += 1;
            }
        }
        Ok(swept)
    }

    pub(super) fn path(&self, key: &str) -> Result<Path> {
        let parsed = if self.prefix.is_empty() {
            Path::parse(key)
        } else {
            Path::parse(format!("{}/{key}", self.prefix))
        };
        parsed.map_err(|error| BlobError::Internal(error.to_string()))
    }

    /// The bytes of a range, or all of them. A range that is not there is refused.
    pub(super) async fn read(
        &self,
        key: &str,
        range: Option<Range<u64>>,
    ) -> Result<BoxStream<'static, Result<Bytes>>> {
        let path = self.path(key)?;
        // S3 knows no empty range.
        if let Some(range) = &range
            && range.is_empty()
        {
            let size = self.store.head(&path).await.map_err(|error| Fault::of(&error))?.size;
            return if range.start == range.end && range.end <= size {
                Ok(Box::pin(stream::empty()))
            } else {
                Err(super::outside(key, range, size))
            };
        }
        let options = GetOptions { range: range.clone().map(GetRange::Bounded), ..GetOptions::default() };
        let found = self.store.get_opts(&path, options).await.map_err(|error| Fault::of(&error))?;
        if let Some(range) = range
            && found.range != range
        {
            return Err(super::outside(key, &range, found.meta.size));
        }
        Ok(Box::pin(found.into_stream().map_err(|error| Fault::of(&error).into())))
    }

    pub(super) async fn digest(&self, key: &str) -> Result<Digest> {
        let mut bytes = self.read(key, None).await?;
        let mut hasher = Hasher::default();
        while let Some(chunk) = bytes.try_next().await? {
            hasher.update(&chunk);
        }
        Ok(hasher.digest())
    }

    pub(super) async fn copy(&self, from: &str, to: &str) -> Result<()> {
        let copied = self.store.copy(&self.path(from)?, &self.path(to)?).await;
        copied.map_err(|error| Fault::of(&error).into())
    }

    pub(super) async fn remove(&self, key: &str) -> Result<()> {
        match self.store.delete(&self.path(key)?).await.map_err(|error| Fault::of(&error).into()) {
            Err(BlobError::Missing) => Ok(()),
            removed => removed,
        }
    }

    pub(super) fn list(&self, under: &str) -> BoxStream<'static, Result<Listed>> {
        let whole = [self.prefix.as_str(), under].into_iter().filter(|part| !part.is_empty());
        let prefix = match Path::parse(whole.collect::<Vec<_>>().join("/")) {
            Ok(prefix) => prefix,
            Err(error) => {
                let error = BlobError::Internal(error.to_string());
                return Box::pin(stream::once(async { Err(error) }));
            }
        };
        let skipped = if self.prefix.is_empty() { 0 } else { self.prefix.len() + 1 };
        let listed = self.store.list(Some(&prefix)).map(move |found| {
            let found = found.map_err(|error| Fault::of(&error))?;
            let seconds = found.last_modified.timestamp();
            Ok(Listed {
                key: found.location.as_ref().get(skipped..).unwrap_or_default().to_owned(),
                size: found.size,
                modified: Timestamp::from_second(seconds).unwrap_or_default(),
            })
        });
        Box::pin(listed)
    }

    pub(super) async fn presign_put(&self, key: &str, expires: Duration) -> Result<String> {
        let signed = self.store.signed_url(Method::PUT, &self.path(key)?, expires).await;
        Ok(signed.map_err(|error| Fault::of(&error))?.into())
    }
}

/// The client takes anything for an endpoint, and panics later.
fn is_web_address(endpoint: &str) -> bool {
    Url::parse(endpoint).is_ok_and(|url| matches!(url.scheme(), "http" | "https") && url.has_host())
}

fn client(
    bucket: &str,
    endpoint: Option<&str>,
    env: impl Fn(&str) -> Option<String>,
) -> object_store::Result<AmazonS3> {
    let options = ClientOptions::new()
        .with_allow_http(endpoint.is_some_and(|endpoint| endpoint.starts_with("http://")))
        // A large file may take its time, as long as it moves.
        .with_timeout_disabled()
        .with_read_timeout(SILENCE);
    let backoff = BackoffConfig { max_backoff: Duration::from_secs(5), ..BackoffConfig::default() };
    let mut builder = AmazonS3Builder::new()
        .with_bucket_name(bucket)
        // The bucket in the path: every server takes that, whatever the bucket's name.
        .with_virtual_hosted_style_request(false)
        // One key per request: not every server has the bulk request.
        .with_disable_bulk_delete(true)
        .with_retry(RetryConfig { backoff, max_retries: 4, retry_timeout: RETRY })
        .with_client_options(options);
    for name in SETTINGS {
        if let Some(value) = env(name) {
            builder = builder.with_config(name.to_ascii_lowercase().parse::<AmazonS3ConfigKey>()?, value);
        }
    }
    builder.build()
}
