//! Bytes in a folder of this machine. A file is written under `tmp`, synced, and only then gets its name; the
//! names above it are synced too, so that what was acknowledged survives the loss of power.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use domain::file::Digest;
use jiff::Timestamp;

use super::Listed;
use super::error::{BlobError, Result};
use super::hash::Hasher;

/// The one name at the top that no key may start with.
const TEMP: &str = "tmp";
/// How often a name is tried again when its folder was removed, being empty, a moment before.
const RACES: usize = 64;

#[derive(Debug)]
pub(super) struct Folder {
    root: PathBuf,
}

/// A name under `tmp` that goes away with the value.
#[derive(Debug)]
struct TempName(PathBuf);

impl Drop for TempName {
    fn drop(&mut self) {
        // Absent once the file has its own name; what cannot be removed now is swept later.
        let _ = fs::remove_file(&self.0);
    }
}

/// A file that is not under its key yet.
#[derive(Debug)]
pub(super) struct Temp {
    pub(super) file: File,
    name: TempName,
}

impl Folder {
    /// Makes the folder where it is missing, and tries to write.
    pub(super) fn open(root: PathBuf) -> Result<Self> {
        let open = || {
            let root = std::path::absolute(&root)?;
            make(&root.join(TEMP))?;
            sync(&root)?;
            // The folder above may be one that this user cannot open.
            let _ = root.parent().map(sync);
            Ok(Self { root })
        };
        let refused = |error| BlobError::from_io(format!("cannot use the folder {}", root.display()), &error);
        let folder = open().map_err(refused)?;
        match folder.ping() {
            // Full is no reason not to start: what is there can be read, and space may come back.
            Err(BlobError::Full(_)) => {}
            reached => reached?,
        }
        Ok(folder)
    }

    /// Whether a file can be written and read back.
    pub(super) fn ping(&self) -> Result<()> {
        let tried = self.temp().and_then(|mut temp| {
            temp.file.write_all(b"threadkeep")?;
            fs::read(&temp.name.0).map(drop)
        });
        tried.map_err(|error| {
            BlobError::from_io(format!("cannot write to the folder {}", self.root.display()), &error)
        })
    }

    /// The file of a key. The parts were looked at before: none leads out of the folder.
    pub(super) fn path(&self, key: &str) -> Result<PathBuf> {
        if key.split('/').next() == Some(TEMP) {
            return Err(BlobError::Internal(format!("a key must not start with {TEMP}/: {key}")));
        }
        Ok(self.root.join(key))
    }

    /// A new file under `tmp`, for this process alone.
    pub(super) fn temp(&self) -> io::Result<Temp> {
        let name = self.temp_name()?;
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&name.0)?;
        Ok(Temp { file, name })
    }

    fn temp_name(&self) -> io::Result<TempName> {
        let mut random = [0; 16];
        getrandom::fill(&mut random).map_err(io::Error::other)?;
        Ok(TempName(self.root.join(TEMP).join(format!("{:032x}", u128::from_ne_bytes(random)))))
    }

    /// Gives a complete temporary file its name, in place of what had it, and makes both last.
    pub(super) fn place(&self, temp: &Temp, to: &Path) -> io::Result<()> {
        temp.file.sync_data()?;
        self.name(&temp.name.0, to)
    }

    fn name(&self, from: &Path, to: &Path) -> io::Result<()> {
        let parent = to.parent().unwrap_or(&self.root);
        for _ in 0..RACES {
            match make(parent).and_then(|()| fs::rename(from, to)) {
                // A folder went while it was made, or before it was used; or it is `from` that is not there.
                Err(error)
                    if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::AlreadyExists)
                        && from.exists() => {}
                done => {
                    done?;
                    return self.sync_up(parent);
                }
            }
        }
        Err(io::Error::other("its folder is removed again and again"))
    }

    /// Makes the names from here up to the root last. All of them: another writer may have made a folder
    /// that this one found, without having come to sync it. Those that did not change cost next to nothing.
    fn sync_up(&self, from: &Path) -> io::Result<()> {
        for folder in from.ancestors() {
            match sync(folder) {
                // The file was removed meanwhile, and its empty folder with it.
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                synced => synced?,
            }
            if folder == self.root {
                break;
            }
        }
        Ok(())
    }

    pub(super) fn digest(&self, key: &str) -> Result<Digest> {
        let mut file = File::open(self.path(key)?).map_err(|error| absent(key, &error))?;
        let mut hasher = Hasher::default();
        let mut buffer = vec![0; super::CHUNK];
        loop {
            match file.read(&mut buffer).map_err(|error| absent(key, &error))? {
                0 => return Ok(hasher.digest()),
                n => hasher.update(&buffer[..n]),
            }
        }
    }

    /// A second name for the same bytes, which are never written again; a copy where there are no such names.
    pub(super) fn copy(&self, from: &str, to: &str) -> Result<()> {
        let (source, target) = (self.path(from)?, self.path(to)?);
        let copied = || {
            // Under `tmp` first, as a second name cannot replace one that is there.
            let name = self.temp_name()?;
            match fs::hard_link(&source, &name.0) {
                Ok(()) => self.name(&name.0, &target),
                Err(error) if is_absent(&error) => Err(error),
                Err(_) => {
                    let mut temp = self.temp()?;
                    io::copy(&mut File::open(&source)?, &mut temp.file)?;
                    self.place(&temp, &target)
                }
            }
        };
        copied().map_err(|error| absent(from, &error))
    }

    pub(super) fn rename(&self, from: &str, to: &str) -> Result<()> {
        let (source, target) = (self.path(from)?, self.path(to)?);
        self.name(&source, &target).map_err(|error| absent(from, &error))?;
        self.prune(&source);
        Ok(())
    }

    pub(super) fn remove(&self, key: &str) -> Result<()> {
        let path = self.path(key)?;
        match fs::remove_file(&path) {
            Err(error) if !is_absent(&error) => {
                Err(BlobError::from_io(format!("cannot remove {key}"), &error))
            }
            _ => {
                self.prune(&path);
                Ok(())
            }
        }
    }

    /// Removes the folders above a path that are empty now.
    fn prune(&self, path: &Path) {
        for folder in path.ancestors().skip(1).take_while(|folder| *folder != self.root) {
            if fs::remove_dir(folder).is_err() {
                break;
            }
        }
    }

    /// The files right in a folder, and the keys of the folders in it.
    pub(super) fn list(&self, under: &str) -> Result<(Vec<Listed>, Vec<String>)> {
        let list = || {
            let (mut files, mut folders) = (Vec::new(), Vec::new());
            for entry in fs::read_dir(self.root.join(under))? {
                let entry = entry?;
                // Whoever put other names here has to care for them.
                let Ok(name) = entry.file_name().into_string() else { continue };
                let key = if under.is_empty() { name } else { format!("{under}/{name}") };
                match entry.metadata() {
                    Ok(found) if found.is_dir() && key != TEMP => folders.push(key),
                    Ok(found) if found.is_file() => {
                        files.push(Listed { key, size: found.len(), modified: changed(&found) });
                    }
                    Err(error) if !is_absent(&error) => return Err(error),
                    _ => {}
                }
            }
            Ok((files, folders))
        };
        match list() {
            Err(error) if is_absent(&error) => Ok((Vec::new(), Vec::new())),
            listed => {
                listed.map_err(|error| BlobError::from_io(format!("cannot list the folder {under}"), &error))
            }
        }
    }

    /// Removes the temporary files that nobody has written to since `before`, and answers how many.
    pub(super) fn sweep_temp(&self, before: Timestamp) -> Result<u64> {
        let sweep = || {
            let mut removed = 0;
            for entry in fs::read_dir(self.root.join(TEMP))? {
                let entry = entry?;
                let stale = entry.metadata().is_ok_and(|found| found.is_file() && changed(&found) < before);
                removed += u64::from(stale && fs::remove_file(entry.path()).is_ok());
            }
            Ok(removed)
        };
        sweep().map_err(|error| BlobError::from_io("cannot look for temporary files", &error))
    }
}

/// When the file got its bytes or its last name. The latter is not in the time of modification: a second
/// name of old bytes would look old, and the search for lost files would take it from under a fork.
fn changed(found: &fs::Metadata) -> Timestamp {
    let nanoseconds = i32::try_from(found.ctime_nsec()).unwrap_or_default();
    Timestamp::new(found.ctime(), nanoseconds).unwrap_or_default()
}

fn make(folder: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(folder)
}

fn sync(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

fn is_absent(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory)
}

/// For what needs a file that may not be there.
pub(super) fn absent(key: &str, error: &io::Error) -> BlobError {
    if is_absent(error) { BlobError::Missing } else { BlobError::from_io(key, error) }
}
