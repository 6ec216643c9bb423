//! Files and folders of a backup: whole or not at all under their names, synced, for this user alone.

use std::fs;
use std::io::{self, Read as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::Path;

use sha2::{Digest as _, Sha256};

use super::{BackupError, CHUNK, Manifest, Result};
use crate::StoreError;

pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    tokio::task::spawn_blocking(work).await.map_err(|error| StoreError::Internal(error.to_string()))?
}

pub(super) async fn copy_if_there(from: &Path, to: &Path) -> Result<()> {
    if from.is_file() {
        let (_, hash) = digest(from).await?;
        copy_whole(from, to, &hex(&hash)).await?;
    }
    Ok(())
}

/// Under another name first, checked and synced, then in its place.
pub(super) async fn copy_whole(from: &Path, to: &Path, sha256: &str) -> Result<()> {
    let draft = to.with_file_name(temporary(&to.file_name().unwrap_or_default().to_string_lossy()));
    let (source, copy) = (from.to_owned(), draft.clone());
    blocking(move || {
        let mut out = fs::File::options()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&copy)
            .map_err(|error| disk(&copy, error))?;
        let mut input = fs::File::open(&source).map_err(|error| disk(&source, error))?;
        io::copy(&mut input, &mut out).and_then(|_| out.sync_all()).map_err(|error| disk(&copy, error))
    })
    .await?;
    if hex(&digest(&draft).await?.1) != sha256 {
        let _ = fs::remove_file(&draft);
        return refused(format!("the backup is damaged: {} is not what was backed up", from.display()));
    }
    fs::rename(&draft, to).map_err(|error| disk(to, error))?;
    sync(parent(to))
}

pub(super) async fn digest(path: &Path) -> Result<(u64, [u8; 32])> {
    let path = path.to_owned();
    blocking(move || {
        let mut hasher = Sha256::new();
        let mut file = fs::File::open(&path).map_err(|error| disk(&path, error))?;
        let (mut size, mut buffer) = (0, vec![0; CHUNK]);
        loop {
            match file.read(&mut buffer).map_err(|error| disk(&path, error))? {
                0 => return Ok((size, hasher.finalize().into())),
                read => {
                    size += read as u64;
                    hasher.update(&buffer[..read]);
                }
            }
        }
    })
    .await
}

pub(super) fn write_json(path: &Path, manifest: &Manifest) -> Result<()> {
    let draft = path.with_file_name(temporary(&path.file_name().unwrap_or_default().to_string_lossy()));
    let text =
        serde_json::to_vec_pretty(manifest).map_err(|error| StoreError::Internal(error.to_string()))?;
    let written = fs::File::options().write(true).create(true).truncate(true).mode(0o600).open(&draft);
    written
        .and_then(|mut file| io::Write::write_all(&mut file, &text).and_then(|()| file.sync_all()))
        .and_then(|()| fs::rename(&draft, path))
        .map_err(|error| disk(path, error))?;
    sync(parent(path))
}

pub(super) fn temporary(name: &str) -> String {
    format!("{name}.new")
}

pub(super) fn parent(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

pub(super) fn make_folder(path: &Path) -> Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(|error| disk(path, error))
}

pub(super) fn sync(folder: &Path) -> Result<()> {
    fs::File::open(folder).and_then(|folder| folder.sync_all()).map_err(|error| disk(folder, error))
}

pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

pub(super) fn disk(path: &Path, error: io::Error) -> BackupError {
    BackupError::Disk { path: path.to_owned(), error }
}

pub(super) fn refusal(text: &str) -> BackupError {
    BackupError::Refused(text.to_owned())
}

pub(super) fn refused<T>(text: String) -> Result<T> {
    Err(BackupError::Refused(text))
}
