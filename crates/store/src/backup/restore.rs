//! A backup into an empty data folder. The database is put in its place last, so that nothing can be started on half.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use bytes::Bytes;
use futures_util::StreamExt as _;
use tokio::io::AsyncReadExt as _;

use super::disk::{
    copy_if_there, copy_whole, digest, disk, hex, make_folder, refusal, refused, sync, temporary, write_json,
};
use super::{
    BLOBS, CHUNK, DATABASE, KEYS, KeptFile, MANIFEST, Manifest, Places, Progress, RESTORING, Result, page,
};
use crate::StoreError;
use crate::blobs::{BlobError, Blobs};
use crate::sqlite::SqliteStore;

/// Puts a backup into an empty data folder. Repeated after a death at any moment, it comes to the same end.
pub async fn restore(
    from: &Path,
    places: &Places,
    mut tell: impl FnMut(Progress) + Send,
) -> Result<Manifest> {
    let manifest = read_manifest(from)?;
    if manifest.schema > SqliteStore::known_version() {
        let (found, known) = (manifest.schema, SqliteStore::known_version());
        return Err(StoreError::NewerSchema { found, known }.into());
    }
    // Before its rows are believed.
    if hex(&digest(&from.join(DATABASE)).await?.1) != manifest.database_sha256 {
        return refused(format!("the backup is damaged: its {DATABASE} is not what was backed up"));
    }
    make_folder(&places.data)?;
    claim(places, &manifest).await?;
    let _alone = SqliteStore::keep_servers_out(&places.database)?;
    let (source, total) = (from.join(DATABASE), manifest.file_bytes.max(1));
    let (mut after, mut done) = (None, 0);
    loop {
        let page = page(&source, after).await?;
        let Some(last) = page.last() else { break };
        after = Some(last.place);
        for file in &page {
            bring(&from.join(BLOBS).join(&file.key), file, &places.blobs).await?;
            done += file.size;
            tell(Progress { stage: "files", done, total });
        }
    }
    for name in KEYS {
        copy_if_there(&from.join(name), &places.data.join(name)).await?;
    }
    tell(Progress { stage: "database", done: 0, total: manifest.database_bytes });
    copy_whole(&source, &places.database, &manifest.database_sha256).await?;
    tell(Progress { stage: "database", done: manifest.database_bytes, total: manifest.database_bytes });
    let marker = places.data.join(RESTORING);
    fs::remove_file(&marker).map_err(|error| disk(&marker, error))?;
    sync(&places.data)?;
    Ok(manifest)
}

/// One file of a backup into its place, if it is not there.
async fn bring(from: &Path, file: &KeptFile, to: &Blobs) -> Result<()> {
    match to.digest(&file.key).await {
        Ok(found) if found.sha256 == file.sha256 => return Ok(()),
        Ok(_) | Err(BlobError::Missing) => {}
        Err(error) => return Err(error.into()),
    }
    let mut writer = to.writer(&file.key).await?;
    let mut source = match tokio::fs::File::open(from).await {
        // Its bytes were on their way out when the backup was made.
        Err(error) if error.kind() == ErrorKind::NotFound && file.deleted => return Ok(()),
        source => source.map_err(|error| disk(from, error))?,
    };
    loop {
        let mut chunk = vec![0; CHUNK];
        let read = source.read(&mut chunk).await.map_err(|error| disk(from, error))?;
        if read == 0 {
            break;
        }
        chunk.truncate(read);
        writer.write(Bytes::from(chunk)).await?;
    }
    if writer.finish().await?.sha256 != file.sha256 {
        to.remove(&file.key).await?;
        return refused(format!("the backup is damaged: {} is not what was backed up", from.display()));
    }
    Ok(())
}

/// Makes sure that nothing is there but what an earlier try of the same restore left, and marks it as ours.
async fn claim(places: &Places, manifest: &Manifest) -> Result<()> {
    let marker = places.data.join(RESTORING);
    match fs::read(&marker) {
        Ok(found) => {
            let found: Option<Manifest> = serde_json::from_slice(&found).ok();
            if found.as_ref() != Some(manifest) {
                let data = places.data.display();
                return refused(format!(
                    "{data} is half of another backup's restore; empty it, or finish that one"
                ));
            }
            return Ok(());
        }
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => return Err(disk(&marker, error)),
    }
    // A server's lock tells more than what it has put there.
    let mut lock = places.database.as_os_str().to_owned();
    lock.push(".lock");
    if Path::new(&lock).exists() {
        SqliteStore::keep_servers_out(&places.database)?;
    }
    for entry in fs::read_dir(&places.data).map_err(|error| disk(&places.data, error))? {
        let name = entry.map_err(|error| disk(&places.data, error))?.file_name();
        // An empty folder of bytes is made by looking at it.
        let ours = *name == *temporary(RESTORING) || (places.data.join(&name).is_dir() && name == BLOBS);
        if !ours {
            let (data, name) = (places.data.display(), name.to_string_lossy());
            return refused(format!(
                "{data} is not empty ({name} is there); restore into an empty THREADKEEP_DATA"
            ));
        }
    }
    if places.database.exists() {
        return refused(format!(
            "{} is there already; a restore replaces nothing",
            places.database.display()
        ));
    }
    if places.blobs.list("").next().await.transpose()?.is_some() {
        return refused("the blob store is not empty; restore into an empty one".to_owned());
    }
    write_json(&marker, manifest)
}

fn read_manifest(from: &Path) -> Result<Manifest> {
    let path = from.join(MANIFEST);
    let bytes = fs::read(&path).map_err(|error| match error.kind() {
        ErrorKind::NotFound | ErrorKind::NotADirectory => {
            refusal(&format!("{} is not a backup: it has no {MANIFEST}", from.display()))
        }
        _ => disk(&path, error),
    })?;
    let manifest: Manifest = serde_json::from_slice(&bytes)
        .map_err(|error| refusal(&format!("{} cannot be read: {error}", path.display())))?;
    match manifest.format {
        1 => Ok(manifest),
        other => {
            refused(format!("the backup has format {other}, this Threadkeep knows 1: use a newer binary"))
        }
    }
}
