//! The embedded store in a folder of its own, rows and bytes, taken while it is written to; and back again.
//!
//! A backup is written beside its name and gets it when all of it is durable. The rows are copied first, as they are at
//! one moment, then the bytes they name; should bytes have gone in between (a purge), the rows are copied again. A
//! restore puts the database in its place last, so that nothing can be started on half of it.

mod disk;
mod restore;

use std::collections::HashMap;
use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use futures_util::{StreamExt as _, TryStreamExt as _};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use self::disk::{
    blocking, copy_if_there, digest, disk, hex, make_folder, parent, refusal, refused, sync, write_json,
};
pub use self::restore::restore;
use crate::StoreError;
use crate::blobs::{BlobError, Blobs};
use crate::sqlite::SqliteStore;

pub const DATABASE: &str = "threadkeep.db";
pub const MANIFEST: &str = "backup.json";
/// In a data folder while it is being restored to.
pub const RESTORING: &str = "restore.json";
const BLOBS: &str = "blobs";
const LOCK: &str = "backup.lock";
/// Files of the data folder that belong to the database.
const KEYS: [&str; 2] = ["secret.key", "local.key"];

const PAGE: usize = 500;
const CHUNK: usize = 256 * 1024;
/// How often the rows are copied anew because their bytes went meanwhile.
const TRIES: usize = 5;

#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    #[error(transparent)]
    Rows(#[from] StoreError),
    #[error(transparent)]
    Bytes(#[from] BlobError),
    #[error("{}: {error}", path.display())]
    Disk { path: PathBuf, error: io::Error },
    /// What was asked for cannot be done as things are; the text says what to do.
    #[error("{0}")]
    Refused(String),
}

type Result<T, E = BackupError> = std::result::Result<T, E>;

/// A file that a copy's rows name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeptFile {
    /// Workspace and id.
    pub place: (Uuid, Uuid),
    pub key: String,
    pub size: u64,
    pub sha256: [u8; 32],
    /// Soft-deleted: its bytes may be on their way out.
    pub deleted: bool,
}

/// What a backup is, in its own folder. It is there only when the backup is whole.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    pub format: u32,
    pub made_at: String,
    pub schema: i32,
    pub database_bytes: u64,
    pub database_sha256: String,
    pub files: u64,
    pub file_bytes: u64,
}

/// How far it has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    pub stage: &'static str,
    pub done: u64,
    pub total: u64,
}

/// Where an embedded store has its parts.
#[derive(Debug, Clone)]
pub struct Places {
    pub data: PathBuf,
    pub database: PathBuf,
    pub blobs: Blobs,
}

/// Copies the store into the folder `to`, which must be free.
pub async fn back_up(
    places: &Places,
    to: &Path,
    made_at: String,
    mut tell: impl FnMut(Progress) + Send,
) -> Result<Manifest> {
    if !places.database.is_file() {
        return refused(format!("there is no database at {} yet", places.database.display()));
    }
    let partial = Partial::begin(to)?;
    let target = Blobs::folder(partial.path.join(BLOBS)).await?;
    let mut copied = HashMap::new();
    let mut complete = false;
    for _ in 0..TRIES {
        copy_rows(places, &partial.path.join(DATABASE), &mut tell).await?;
        complete = copy_bytes(places, &partial.path, &target, &mut copied, &mut tell).await?;
        if complete {
            break;
        }
    }
    if !complete {
        return refused("files went while they were copied, again and again; try once more".to_owned());
    }
    drop_unnamed(&partial.path, &target).await?;
    for name in KEYS {
        copy_if_there(&places.data.join(name), &partial.path.join(name)).await?;
    }
    let database = partial.path.join(DATABASE);
    let (schema, (files, file_bytes)) = blocking(move || {
        Ok((SqliteStore::copy_version(&database)?.unwrap_or(0), SqliteStore::count_kept(&database)?))
    })
    .await?;
    let (database_bytes, hash) = digest(&partial.path.join(DATABASE)).await?;
    let manifest = Manifest {
        format: 1,
        made_at,
        schema,
        database_bytes,
        database_sha256: hex(&hash),
        files,
        file_bytes,
    };
    partial.finish(&manifest, to)?;
    Ok(manifest)
}

/// The folder that is written to; a dead writer's is begun anew.
struct Partial {
    path: PathBuf,
    _lock: fs::File,
}

impl Drop for Partial {
    /// What did not become a backup leaves nothing; one that did has another name by now.
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.path);
    }
}

impl Partial {
    fn begin(to: &Path) -> Result<Self> {
        if to.symlink_metadata().is_ok() {
            return refused(format!("{} is there already; name a folder that is not", to.display()));
        }
        let mut name = to.file_name().ok_or_else(|| refusal("the backup needs a name"))?.to_owned();
        name.push(".partial");
        let path = to.with_file_name(name);
        let lock = path.join(LOCK);
        if path.exists() && !lock.exists() {
            return refused(format!("{} is in the way; move it", path.display()));
        }
        make_folder(&path)?;
        let file = fs::File::options().create(true).append(true).mode(0o600).open(&lock);
        let file = file.map_err(|error| disk(&lock, error))?;
        if file.try_lock().is_err() {
            return refused(format!("another backup is writing to {}", path.display()));
        }
        for entry in fs::read_dir(&path).map_err(|error| disk(&path, error))? {
            let entry = entry.map_err(|error| disk(&path, error))?.path();
            let removed = match entry.file_name() {
                Some(name) if name == LOCK => Ok(()),
                _ if entry.is_dir() => fs::remove_dir_all(&entry),
                _ => fs::remove_file(&entry),
            };
            removed.map_err(|error| disk(&entry, error))?;
        }
        Ok(Self { path, _lock: file })
    }

    /// All of it is durable before it gets its name.
    fn finish(self, manifest: &Manifest, to: &Path) -> Result<()> {
        write_json(&self.path.join(MANIFEST), manifest)?;
        let lock = self.path.join(LOCK);
        fs::remove_file(&lock).map_err(|error| disk(&lock, error))?;
        sync(&self.path)?;
        fs::rename(&self.path, to).map_err(|error| disk(to, error))?;
        sync(parent(to))
    }
}

async fn copy_rows(places: &Places, to: &Path, tell: &mut (impl FnMut(Progress) + Send)) -> Result<()> {
    match fs::remove_file(to) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(disk(to, error)),
        _ => {}
    }
    let total = fs::metadata(&places.database).map_or(0, |found| found.len()).max(1);
    let (from, copy) = (places.database.clone(), to.to_owned());
    let mut copying = tokio::task::spawn_blocking(move || SqliteStore::copy_to(&from, &copy));
    let mut tick = tokio::time::interval(std::time::Duration::from_millis(200));
    loop {
        tokio::select! {
            copied = &mut copying => {
                copied.map_err(|error| StoreError::Internal(error.to_string()))??;
                break;
            }
            _ = tick.tick() => {
                let done = fs::metadata(to).map_or(0, |found| found.len()).min(total);
                tell(Progress { stage: "database", done, total });
            }
        }
    }
    tell(Progress { stage: "database", done: total, total });
    fs::File::open(to).and_then(|file| file.sync_all()).map_err(|error| disk(to, error))
}

/// False when bytes that the rows name have gone since the rows were copied.
async fn copy_bytes(
    places: &Places,
    partial: &Path,
    target: &Blobs,
    copied: &mut HashMap<String, [u8; 32]>,
    tell: &mut (impl FnMut(Progress) + Send),
) -> Result<bool> {
    let database = partial.join(DATABASE);
    let count = database.clone();
    let (_, total) = blocking(move || Ok(SqliteStore::count_kept(&count)?)).await?;
    let (mut after, mut done) = (None, 0);
    loop {
        let page = page(&database, after).await?;
        let Some(last) = page.last() else { return Ok(true) };
        after = Some(last.place);
        for file in &page {
            if copied.get(&file.key) != Some(&file.sha256) {
                match copy_one(file, &places.blobs, target).await? {
                    true => drop(copied.insert(file.key.clone(), file.sha256)),
                    false if file.deleted => {}
                    false => return Ok(false),
                }
            }
            done += file.size;
            tell(Progress { stage: "files", done, total: total.max(1) });
        }
    }
}

/// False when the bytes are not there, or are another file's by now.
async fn copy_one(file: &KeptFile, from: &Blobs, to: &Blobs) -> Result<bool> {
    let mut bytes = match from.read(&file.key, None).await {
        Err(BlobError::Missing) => return Ok(false),
        bytes => bytes?,
    };
    let mut writer = to.writer(&file.key).await?;
    while let Some(chunk) = bytes.next().await {
        writer.write(chunk?).await?;
    }
    Ok(writer.finish().await?.sha256 == file.sha256)
}

/// What an earlier copy of the rows named and the last one does not.
async fn drop_unnamed(partial: &Path, target: &Blobs) -> Result<()> {
    let mut named = std::collections::HashSet::new();
    let (database, mut after) = (partial.join(DATABASE), None);
    loop {
        let page = page(&database, after).await?;
        let Some(last) = page.last() else { break };
        after = Some(last.place);
        named.extend(page.into_iter().map(|file| file.key));
    }
    let there: Vec<_> = target.list("").try_collect().await?;
    for listed in there.iter().filter(|listed| !named.contains(&listed.key)) {
        target.remove(&listed.key).await?;
    }
    Ok(())
}

async fn page(database: &Path, after: Option<(Uuid, Uuid)>) -> Result<Vec<KeptFile>> {
    let database = database.to_owned();
    blocking(move || Ok(SqliteStore::list_kept(&database, after, PAGE)?)).await
}
