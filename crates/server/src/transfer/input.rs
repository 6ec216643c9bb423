//! What an import is given: files, folders and zips, each as texts to scan and as bytes that the texts name. Nothing
//! is unpacked under a name that somebody else chose.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context as _, Result, bail};
use sha2::{Digest as _, Sha256};
use tempfile::TempDir;

use super::output::{BLOBS, LINES};
use super::unzip::Zip;

/// How much of a text is read at once.
const BUFFER: usize = 256 * 1024;

/// One file, folder or zip of the command line.
pub enum Input {
    File(PathBuf),
    Folder(PathBuf),
    Zip(Zip),
}

/// A text to scan: its name for people, and how to get at it.
#[derive(Debug, Clone)]
pub struct Text {
    pub name: String,
    /// Of the archive or folder that it lies in, its name there.
    pub inner: Option<String>,
    pub size: u64,
}

/// Bytes of a file, on this machine.
#[derive(Debug, Clone)]
pub struct Bytes {
    pub path: PathBuf,
    pub size: u64,
    pub sha256: [u8; 32],
    /// What keeps a copy for as long as it is needed.
    _kept: Option<Arc<TempDir>>,
}

impl Input {
    pub fn open(path: &Path) -> Result<Self> {
        let named = || format!("{} cannot be read", path.display());
        let found = std::fs::metadata(path).with_context(named)?;
        if found.is_dir() {
            return Ok(Self::Folder(path.to_owned()));
        }
        let mut head = [0; 4];
        let read =
            File::open(path).and_then(|mut file| read_some(&mut file, &mut head)).with_context(named)?;
        if head[..read] == *b"PK\x03\x04" || head[..read] == *b"PK\x05\x06" {
            return Ok(Self::Zip(Zip::open(path)?));
        }
        Ok(Self::File(path.to_owned()))
    }

    /// The texts that may hold conversations.
    pub fn texts(&self) -> Result<Vec<Text>> {
        match self {
            Self::File(path) => {
                let size = std::fs::metadata(path)?.len();
                Ok(vec![Text { name: path.display().to_string(), inner: None, size }])
            }
            Self::Folder(path) => folder_texts(path),
            Self::Zip(zip) => zip.texts(),
        }
    }

    /// Opens a text; `read` is told how many bytes were.
    pub fn read(&mut self, text: &Text, read: &Arc<AtomicU64>) -> Result<Box<dyn BufRead + '_>> {
        let named = || format!("{} cannot be read", text.name);
        let inside: Box<dyn Read + '_> = match (self, &text.inner) {
            (Self::File(path), _) => Box::new(File::open(path).with_context(named)?),
            (Self::Folder(path), Some(inner)) => Box::new(File::open(path.join(inner)).with_context(named)?),
            (Self::Zip(zip), Some(inner)) => Box::new(zip.read(inner)?),
            _ => bail!("{} is not a text", text.name),
        };
        Ok(Box::new(BufReader::with_capacity(BUFFER, Counted { inside, read: Arc::clone(read) })))
    }

    /// The bytes with this SHA-256, from `blobs/` beside the lines; at most `size` of them.
    pub fn blob(&mut self, sha256: &str, size: u64, spool: &Spool) -> Result<Option<Bytes>> {
        let name = format!("{BLOBS}/{sha256}");
        match self {
            Self::File(path) if path.file_name().is_some_and(|name| name == LINES) => {
                measure(&path.with_file_name(BLOBS).join(sha256), size)
            }
            Self::File(_) => Ok(None),
            Self::Folder(path) => measure(&path.join(name), size),
            Self::Zip(zip) => match zip.find(&name) {
                Some(inner) => Ok(Some(spool.copy(zip.read(&inner)?, size)?)),
                None => Ok(None),
            },
        }
    }
}

impl Input {
    /// What lies beside the texts, to be found by the names that they use.
    pub fn assets(&self) -> Result<Assets> {
        let mut assets = Assets::default();
        match self {
            Self::File(_) => {}
            Self::Folder(path) => assets.add_folder(path, "", 3)?,
            Self::Zip(zip) => zip.names().for_each(|name| assets.add(name)),
        }
        Ok(assets)
    }

    /// The bytes of an asset; none above `most`.
    pub fn asset(&mut self, inner: &str, most: u64, spool: &Spool) -> Result<Option<Bytes>> {
        let found = match self {
            Self::File(_) => None,
            Self::Folder(path) => measure(&path.join(inner), most)?,
            Self::Zip(zip) => Some(spool.copy(zip.read(inner)?, most)?),
        };
        Ok(found.filter(|bytes| bytes.size <= most))
    }
}

/// The files of an archive or a folder, by the last part of their names.
#[derive(Debug, Default)]
pub struct Assets(BTreeMap<String, String>);

impl Assets {
    fn add(&mut self, name: &str) {
        if let Some(base) = name.rsplit('/').next().filter(|base| !base.is_empty()) {
            self.0.entry(base.to_owned()).or_insert_with(|| name.to_owned());
        }
    }

    fn add_folder(&mut self, root: &Path, under: &str, depth: usize) -> Result<()> {
        let folder = root.join(under);
        let named = || format!("{} cannot be read", folder.display());
        for entry in std::fs::read_dir(&folder).with_context(named)? {
            let entry = entry.with_context(named)?;
            let Some(name) = entry.file_name().to_str().map(|name| format!("{under}{name}")) else {
                continue;
            };
            // A link is neither.
            let kind = entry.file_type().with_context(named)?;
            if kind.is_file() {
                self.add(&name);
            } else if kind.is_dir() && depth > 0 {
                self.add_folder(root, &format!("{name}/"), depth - 1)?;
            }
        }
        Ok(())
    }

    /// The file that is called so, or whose name goes on after it with a mark. Only the last part of a name counts:
    /// no name leads elsewhere.
    pub fn find(&self, name: &str) -> Option<&str> {
        let base = name.rsplit(['/', '\\']).next().filter(|base| !base.is_empty())?;
        if let Some(found) = self.0.get(base) {
            return Some(found);
        }
        let after = |found: &str| found[base.len()..].starts_with(['-', '.', '_']);
        let mut candidates = self.0.range(base.to_owned()..).take_while(|(found, _)| found.starts_with(base));
        candidates.find(|(found, _)| after(found)).map(|(_, inner)| inner.as_str())
    }
}

fn read_some(from: &mut impl Read, into: &mut [u8]) -> io::Result<usize> {
    let mut read = 0;
    while read < into.len() {
        match from.read(&mut into[read..])? {
            0 => break,
            more => read += more,
        }
    }
    Ok(read)
}

/// An export of ours, or whatever JSON and CSV lies in the folder, by name.
fn folder_texts(folder: &Path) -> Result<Vec<Text>> {
    let named = || format!("{} cannot be read", folder.display());
    let mut names = Vec::new();
    for entry in std::fs::read_dir(folder).with_context(named)? {
        let entry = entry.with_context(named)?;
        if let Some(name) = entry.file_name().to_str()
            && is_text(name)
            && entry.file_type()?.is_file()
        {
            names.push((name.to_owned(), entry.metadata()?.len()));
        }
    }
    names.sort();
    if let Some(at) = names.iter().position(|(name, _)| name == LINES) {
        names = vec![names.swap_remove(at)];
    }
    if names.is_empty() {
        bail!("{} holds no JSON, JSON Lines or CSV file", folder.display());
    }
    let text = |(inner, size): (String, u64)| Text {
        name: folder.join(&inner).display().to_string(),
        inner: Some(inner),
        size,
    };
    Ok(names.into_iter().map(text).collect())
}

/// Whether a file of an archive may hold conversations.
pub(super) fn is_text(name: &str) -> bool {
    let ending = name.rsplit_once('.').map(|(_, ending)| ending.to_ascii_lowercase());
    matches!(ending.as_deref(), Some("json" | "jsonl" | "ndjson" | "csv"))
}

struct Counted<R> {
    inside: R,
    read: Arc<AtomicU64>,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let read = self.inside.read(into)?;
        self.read.fetch_add(read as u64, Ordering::Relaxed);
        Ok(read)
    }
}

/// A file's size and hash; none when there is no such file.
fn measure(path: &Path, most: u64) -> Result<Option<Bytes>> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error).with_context(|| format!("{} cannot be read", path.display())),
    };
    let (size, sha256) = copy_hashed(file, &mut io::sink(), most)?;
    Ok(Some(Bytes { path: path.to_owned(), size, sha256, _kept: None }))
}

/// Copies at most one byte more than `most`, so that too much is noticed.
fn copy_hashed(from: impl Read, to: &mut impl io::Write, most: u64) -> Result<(u64, [u8; 32])> {
    let (mut from, mut hash, mut size) = (from.take(most.saturating_add(1)), Sha256::new(), 0);
    let mut chunk = vec![0; BUFFER];
    loop {
        match from.read(&mut chunk)? {
            0 => return Ok((size, hash.finalize().into())),
            read => {
                hash.update(&chunk[..read]);
                to.write_all(&chunk[..read])?;
                size += read as u64;
            }
        }
    }
}

/// A place for bytes that come in the middle of something else.
pub struct Spool(Arc<TempDir>);

impl Spool {
    pub fn new() -> Result<Self> {
        Ok(Self(Arc::new(tempfile::tempdir().context("no temporary folder can be made")?)))
    }

    pub fn copy(&self, from: impl Read, most: u64) -> Result<Bytes> {
        let mut file = tempfile::NamedTempFile::new_in(self.0.path())?;
        let (size, sha256) = copy_hashed(from, &mut file, most)?;
        file.flush()?;
        let (_, path) = file.keep()?;
        Ok(Bytes { path, size, sha256, _kept: Some(Arc::clone(&self.0)) })
    }

    /// A file that grows.
    pub fn file(&self) -> Result<(File, PathBuf)> {
        Ok(tempfile::NamedTempFile::new_in(self.0.path())?.keep()?)
    }

    /// What a file of the spool has become.
    pub fn take(&self, path: &Path) -> Result<Bytes> {
        let found = measure(path, u64::MAX - 1)?.context("a spooled file is gone")?;
        Ok(Bytes { _kept: Some(Arc::clone(&self.0)), ..found })
    }
}
