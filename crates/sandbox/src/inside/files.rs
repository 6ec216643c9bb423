//! The room's files, by the room's first process: it has the rights of the programs there, so a path leads nowhere
//! that they could not go.

use std::fs::{self, File, OpenOptions};
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use nix::libc::{O_NOFOLLOW, O_NONBLOCK};

use super::doing;
use super::init::Init;
use crate::frame::{Answer, Kind, NO_FILES};

/// What is sent at once.
const CHUNK: usize = 1024 * 1024;
/// How much of a list is told.
const LISTED: usize = 1000;
const DEPTH: usize = 32;

/// A file found below a folder.
struct Found {
    path: PathBuf,
    size: u64,
}

impl Init {
    fn place(&self, path: &str) -> PathBuf {
        // An absolute path is taken as it is.
        self.workspace.join(path)
    }

    pub fn put(&self, path: &str, bytes: &[u8], append: bool, executable: bool) -> Result<(), String> {
        let to = self.place(path);
        let parent = to.parent().ok_or("it names no file")?;
        fs::create_dir_all(parent).map_err(doing(path))?;
        let mut options = OpenOptions::new();
        options.write(true).create(true).custom_flags(O_NONBLOCK);
        if append {
            options.append(true);
        } else {
            options.truncate(true);
        }
        let mut file = options.open(&to).map_err(doing(path))?;
        regular(&file, path)?;
        file.write_all(bytes).map_err(doing(path))?;
        if executable {
            file.set_permissions(fs::Permissions::from_mode(0o755)).map_err(doing(path))?;
        }
        Ok(())
    }

    /// The first bytes; a name that is not there is looked for in `assets/`.
    pub fn read(&self, path: &str, limit: u64) -> Result<Vec<u8>, String> {
        let own = self.place(path);
        let made = self.workspace.join("assets").join(path.trim_start_matches('/'));
        let from = if !own.exists() && made.exists() { made } else { own };
        let file = OpenOptions::new().read(true).custom_flags(O_NONBLOCK).open(from).map_err(doing(path))?;
        regular(&file, path)?;
        let mut bytes = Vec::new();
        file.take(limit).read_to_end(&mut bytes).map_err(doing(path))?;
        Ok(bytes)
    }

    /// The files below a folder, one a line, with their sizes. There are none below a link, as none are collected there.
    pub fn list(&self, path: &str) -> Result<String, String> {
        let folder = self.place(path);
        let mut found = Vec::new();
        let whole = folder.is_symlink() || walk(&folder, LISTED, &mut found).map_err(doing(path))?;
        let mut lines: Vec<String> = found
            .iter()
            .map(|file| {
                let name = file.path.strip_prefix(&folder).unwrap_or(&file.path);
                format!("{} ({} bytes)", name.display(), file.size)
            })
            .collect();
        if !whole {
            lines.push(format!("[… only the first {LISTED} are listed]"));
        }
        Ok(if lines.is_empty() { NO_FILES.into() } else { lines.join("\n") })
    }

    /// Sends the files of `assets/`, part by part.
    pub fn collect(&mut self, max_files: usize, max_file_bytes: u64, max_bytes: u64) -> Result<(), String> {
        let folder = self.workspace.join("assets");
        let mut found = Vec::new();
        // A link in its place leads to what nobody meant to hand in.
        if folder.is_dir() && !folder.is_symlink() {
            let whole = walk(&folder, max_files, &mut found).unwrap_or(false);
            if !whole {
                let why = format!("there are more than {max_files} files, or folders that cannot be read");
                self.answer(&Answer::Left { path: "assets".into(), why }, &[])?;
            }
        }
        let mut room = max_bytes;
        for file in found {
            let shown = file.path.strip_prefix(&folder).unwrap_or(&file.path).to_string_lossy().into_owned();
            // By their sizes alone: files may have holes, and more bytes than could ever be read.
            let sent = if file.size > max_file_bytes {
                Err(format!("it has more than {max_file_bytes} bytes"))
            } else if file.size > room {
                Err(format!("all together have more than {max_bytes} bytes"))
            } else {
                room -= file.size;
                self.send(&file, &shown)?
            };
            if let Err(why) = sent {
                self.answer(&Answer::Left { path: shown, why }, &[])?;
            }
        }
        self.answer(&Answer::Done, &[])
    }

    fn send(&mut self, found: &Found, shown: &str) -> Result<Result<(), String>, String> {
        let opened = OpenOptions::new().read(true).custom_flags(O_NONBLOCK | O_NOFOLLOW).open(&found.path);
        let mut file = match opened.map_err(|error| error.to_string()).and_then(|file| {
            regular(&file, shown)?;
            Ok(file)
        }) {
            Ok(file) => file,
            Err(why) => return Ok(Err(why)),
        };
        // Nothing runs any more, so the size stays.
        let whole = file.seek(SeekFrom::End(0)).and_then(|end| file.rewind().map(|()| end));
        let whole = match whole {
            Ok(whole) => whole,
            Err(error) => return Ok(Err(error.to_string())),
        };
        let mut left = whole;
        loop {
            let mut chunk = vec![0; usize::try_from(left).unwrap_or(CHUNK).min(CHUNK)];
            file.read_exact(&mut chunk).map_err(doing(shown))?;
            if self.is_abandoned() {
                return Err("the service has ended".into());
            }
            left -= chunk.len() as u64;
            self.answer(&Answer::Part { path: shown.to_owned(), whole }, &chunk)?;
            if left == 0 {
                return Ok(Ok(()));
            }
        }
    }

    /// Where the room has no disk of its own size: whether its folder holds more than it may.
    pub fn is_full(&self) -> bool {
        let Kind::Bare(folder) = &self.setup.kind else { return false };
        let mut found = Vec::new();
        let whole = walk(Path::new(folder), 100_000, &mut found).unwrap_or(true);
        !whole || found.iter().map(|file| file.size).sum::<u64>() > self.setup.limits.disk_bytes
    }
}

fn regular(file: &File, path: &str) -> Result<(), String> {
    let kind = file.metadata().map_err(doing(path))?.file_type();
    if kind.is_file() { Ok(()) } else { Err(format!("{path} is not a file")) }
}

/// The regular files below a folder, sorted by name within each; links are not followed. False: there were more.
fn walk(folder: &Path, most: usize, found: &mut Vec<Found>) -> std::io::Result<bool> {
    let mut whole = true;
    let mut ahead = vec![(folder.to_owned(), 0)];
    while let Some((folder, depth)) = ahead.pop() {
        let entries = match fs::read_dir(&folder) {
            Err(error) if depth == 0 => return Err(error),
            Err(_) => {
                whole = false;
                continue;
            }
            Ok(entries) => entries,
        };
        let mut entries: Vec<_> = entries.filter_map(Result::ok).take(most + 1).collect();
        entries.sort_by_key(fs::DirEntry::file_name);
        let mut folders = Vec::new();
        for entry in entries {
            let Ok(about) = entry.metadata() else { continue };
            if about.is_dir() && depth < DEPTH {
                folders.push((entry.path(), depth + 1));
            } else if about.is_dir() {
                whole = false;
            } else if about.is_file() {
                if found.len() == most {
                    return Ok(false);
                }
                found.push(Found { path: entry.path(), size: about.len() });
            }
        }
        ahead.extend(folders.into_iter().rev());
    }
    Ok(whole)
}
