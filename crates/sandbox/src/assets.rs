//! The zip with a run's files: fetched, checked as a whole before anything is written, then put into the room.

mod check;

use std::collections::HashMap;
use std::fs::File;
use std::io::{Read as _, Seek as _};

use sha2::{Digest as _, Sha256};
use tokio::io::AsyncWriteExt as _;
use tokio::sync::mpsc;

use crate::envelope::{AssetFile, Assets, words};
use crate::frame::{Answer, Ask};
use crate::room::{Room, RoomError};
use crate::serve::Service;

/// What is put into the room at once.
const CHUNK: usize = 1024 * 1024;

#[derive(Debug, thiserror::Error)]
pub enum Refused {
    #[error("the download failed: {0}")]
    Download(String),
    #[error("the zip is refused: {0}")]
    Zip(String),
    #[error("{0}")]
    Room(String),
}

impl From<RoomError> for Refused {
    fn from(error: RoomError) -> Self {
        Self::Room(error.to_string())
    }
}

/// Part of a file on its way into the room.
struct Part {
    path: String,
    bytes: Vec<u8>,
    append: bool,
}

/// How many files there were. None is put where one of the room's own `folders` is, or will be.
pub async fn unpack(
    service: &Service,
    room: &mut Room,
    assets: &Assets,
    folders: &'static [&'static str],
) -> Result<usize, Refused> {
    let most = service.limits.max_bag_bytes.min(service.limits.sandbox_disk_bytes);
    let zip = download(service, &assets.url, most).await?;
    let (sender, mut parts) = mpsc::channel(4);
    let manifest = assets.files.clone();
    let reading = service.tasks.spawn_blocking(move || read(zip, most, &manifest, folders, &sender));
    while let Some(part) = parts.recv().await {
        let ask = Ask::Put { path: part.path, append: part.append, executable: false };
        if let (Answer::Failed { message }, _) = room.ask(&ask, &part.bytes).await? {
            return Err(Refused::Room(message));
        }
    }
    reading.await.map_err(|error| Refused::Room(error.to_string()))?.map_err(Refused::Zip)
}

/// Into a file without a name: nothing is left of it, however we end.
async fn download(service: &Service, url: &str, most: u64) -> Result<File, Refused> {
    let failed = |error: reqwest::Error| Refused::Download(words(&error));
    let mut response = service.client.get(url).send().await.map_err(failed)?;
    if !response.status().is_success() {
        return Err(Refused::Download(format!("the answer has status {}", response.status().as_u16())));
    }
    // The files' bytes as they are, and something for each file's name.
    let most = most.saturating_add(most / 10).saturating_add(16 * 1024 * 1024);
    let broken = |error: std::io::Error| Refused::Room(format!("a temporary file: {error}"));
    let mut file = tokio::fs::File::from_std(tempfile::tempfile().map_err(broken)?);
    let mut size = 0u64;
    while let Some(chunk) = response.chunk().await.map_err(failed)? {
        size = size.saturating_add(chunk.len() as u64);
        if size > most {
            return Err(Refused::Zip(format!("it has more than {most} bytes")));
        }
        file.write_all(&chunk).await.map_err(broken)?;
    }
    file.flush().await.map_err(broken)?;
    Ok(file.into_std().await)
}

/// Checks the archive, then sends its files. In: the zip and what should be in it; an empty manifest checks nothing.
fn read(
    mut zip: File,
    most: u64,
    manifest: &[AssetFile],
    folders: &[&str],
    parts: &mpsc::Sender<Part>,
) -> Result<usize, String> {
    zip.rewind().map_err(|error| error.to_string())?;
    let (mut archive, entries) = check::check(zip, most, manifest.len())?;
    let listed: HashMap<&str, &AssetFile> = manifest.iter().map(|file| (file.name.as_str(), file)).collect();
    let files: Vec<_> = entries.iter().filter(|entry| !entry.folder).collect();
    if !manifest.is_empty() && manifest.len() != files.len() {
        return Err(format!("it has {} files where {} were announced", files.len(), manifest.len()));
    }
    for entry in &files {
        let path = place(&entry.name, folders, &entries);
        let mut file = archive.by_index(entry.index).map_err(|error| format!("{:?}: {error}", entry.name))?;
        let mut hash = Sha256::new();
        let mut left = entry.size;
        loop {
            let mut bytes = vec![0; usize::try_from(left).unwrap_or(CHUNK).min(CHUNK)];
            file.read_exact(&mut bytes).map_err(|error| format!("{:?}: {error}", entry.name))?;
            hash.update(&bytes);
            let append = left != entry.size;
            left -= bytes.len() as u64;
            let part = Part { path: path.clone(), bytes, append };
            if parts.blocking_send(part).is_err() {
                return Err("the run has ended".into());
            }
            if left == 0 {
                break;
            }
        }
        // One byte more is one too many; reading to the end also checks the sum.
        if file.read(&mut [0]).map_err(|error| format!("{:?}: {error}", entry.name))? != 0 {
            return Err(format!("{:?} is longer than it says", entry.name));
        }
        if manifest.is_empty() {
            continue;
        }
        let hex: String = hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
        match listed.get(entry.name.as_str()) {
            Some(file) if file.size == entry.size && file.sha256.eq_ignore_ascii_case(&hex) => {}
            Some(_) => return Err(format!("{:?} is not the file that was announced", entry.name)),
            None => return Err(format!("{:?} was not announced", entry.name)),
        }
    }
    Ok(files.len())
}

/// Where a file is put: under its name, or under the next that is free where the room has a folder of that name.
fn place(name: &str, folders: &[&str], entries: &[check::Entry]) -> String {
    let mut place = name.to_owned();
    let taken = |place: &str| entries.iter().any(|entry| entry.name.split('/').next() == Some(place));
    while folders.contains(&place.as_str()) || (place != name && taken(&place)) {
        place.insert(0, '_');
    }
    place
}
