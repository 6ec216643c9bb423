//! A storage for one test, and bytes to put into it.

use bytes::Bytes;
use domain::file::Digest;
use futures_util::TryStreamExt as _;
use sha2::Digest as _;
use store::blobs::{BlobError, Blobs};
use tempfile::TempDir;
use testkit::s3::{self, BUCKET, Kind, S3Server};
use tokio_util::task::TaskTracker;

/// A storage that belongs to the test alone.
pub struct TestBlobs {
    pub blobs: Blobs,
    /// What it is called in the messages of a test.
    pub kind: &'static str,
    pub tasks: TaskTracker,
    pub folder: Option<TempDir>,
}

impl std::ops::Deref for TestBlobs {
    type Target = Blobs;

    fn deref(&self) -> &Blobs {
        &self.blobs
    }
}

pub async fn folder() -> TestBlobs {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let blobs = Blobs::folder(folder.path().join("made/files")).await.expect("a folder");
    TestBlobs { blobs, kind: "folder", tasks: TaskTracker::new(), folder: Some(folder) }
}

pub async fn bucket(kind: Kind) -> Option<TestBlobs> {
    let server = s3::server(kind)?;
    let tasks = TaskTracker::new();
    let blobs = open(server, &format!("/{}/deep/", s3::fresh_prefix()), &tasks).await;
    let kind = if kind == Kind::Moto { "moto" } else { "s3rver" };
    Some(TestBlobs { blobs: blobs.expect("a bucket"), kind, tasks, folder: None })
}

pub async fn open(server: &S3Server, prefix: &str, tasks: &TaskTracker) -> Result<Blobs, BlobError> {
    Blobs::s3(BUCKET, prefix, |name| server.env(name), tasks).await
}

/// Bytes that do not repeat within a file, and differ between seeds.
pub fn noise(seed: u64, size: usize) -> Bytes {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut bytes = Vec::with_capacity(size + 8);
    while bytes.len() < size {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(size);
    bytes.into()
}

pub fn digest_of(bytes: &[u8]) -> Digest {
    Digest {
        size: bytes.len() as u64,
        sha256: sha2::Sha256::digest(bytes).into(),
        crc32: crc32fast::hash(bytes),
    }
}

/// Writes in uneven pieces, as a network gives them.
pub async fn put(blobs: &Blobs, key: &str, bytes: &Bytes) -> Digest {
    try_put(blobs, key, bytes).await.unwrap_or_else(|error| panic!("{key}: {error}"))
}

pub async fn try_put(blobs: &Blobs, key: &str, bytes: &Bytes) -> Result<Digest, BlobError> {
    let mut writer = blobs.writer(key).await?;
    let mut rest = bytes.clone();
    for size in [1, 0, 4096, 70_001, 1_000_000].into_iter().cycle() {
        if rest.is_empty() {
            break;
        }
        writer.write(rest.split_to(size.min(rest.len()))).await?;
    }
    writer.finish().await
}

pub async fn get(blobs: &Blobs, key: &str) -> Result<Vec<u8>, BlobError> {
    collect(blobs, key, None).await
}

pub async fn collect(
    blobs: &Blobs,
    key: &str,
    range: Option<std::ops::Range<u64>>,
) -> Result<Vec<u8>, BlobError> {
    let chunks: Vec<Bytes> = blobs.read(key, range).await?.try_collect().await?;
    assert!(chunks.iter().all(|chunk| !chunk.is_empty()), "{key}: an empty chunk");
    Ok(chunks.concat())
}

/// All keys below a prefix, in order.
pub async fn keys(blobs: &Blobs, prefix: &str) -> Vec<String> {
    let listed: Vec<_> = blobs.list(prefix).try_collect().await.expect("a list");
    let mut keys: Vec<String> = listed.into_iter().map(|found| found.key).collect();
    keys.sort();
    keys
}
