//! A zip that somebody else made: looked at as a whole before anything of it is read, and never unpacked by its names.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufReader, Read};
use std::path::Path;

use anyhow::{Context as _, Result, bail};
use zip::ZipArchive;

use super::input::{Text, is_text};
use super::output::LINES;

const MAX_ENTRIES: usize = 200_000;
/// What an entry may grow to, as a multiple of its packed size, once it is large: text packs to a twentieth or so. The
/// lines of our own export may be of any text, one letter a million times: they are read one at a time, and deflate
/// itself ends at some thousand.
const MAX_RATIO: u64 = 200;
const SMALL: u64 = 64 * 1024 * 1024;
/// All entries together, unpacked.
const MAX_TOTAL: u64 = 256 * 1024 * 1024 * 1024;

pub struct Zip {
    name: String,
    inside: ZipArchive<BufReader<File>>,
    /// Names, sizes and places of its files.
    entries: BTreeMap<String, (u64, usize)>,
}

impl Zip {
    /// Opens a zip and refuses one that no exporter makes.
    pub fn open(path: &Path) -> Result<Self> {
        let name = path.display().to_string();
        let file = File::open(path).with_context(|| format!("{name} cannot be read"))?;
        let inside =
            ZipArchive::new(BufReader::new(file)).with_context(|| format!("{name} is not a whole zip"))?;
        let mut zip = Self { name, inside, entries: BTreeMap::new() };
        zip.check()?;
        Ok(zip)
    }

    fn check(&mut self) -> Result<()> {
        let name = &self.name;
        let damaged = || format!("{name} is damaged");
        if self.inside.len() > MAX_ENTRIES {
            bail!("{name} has {} entries, at most {MAX_ENTRIES} are taken", self.inside.len());
        }
        if self.inside.has_duplicate_names() {
            bail!("{name} holds one name twice: nothing of it is taken");
        }
        let mut total = 0_u64;
        for at in 0..self.inside.len() {
            let entry = self.inside.by_index_raw(at).with_context(damaged)?;
            let inner = entry.name().with_context(damaged)?.into_owned();
            let shown: String = inner.chars().take(80).collect();
            let (size, packed) = (entry.size(), entry.compressed_size());
            if !is_safe(&inner) {
                bail!("{name} holds {shown:?}, a name that leads out of the archive: nothing of it is taken");
            }
            if entry.is_symlink() {
                bail!("{name} holds the link {shown:?}: nothing of it is taken");
            }
            if entry.encrypted() {
                bail!("{name} is encrypted: unpack it first");
            }
            total = total.saturating_add(size);
            let grows = size > SMALL && size / packed.max(1) > MAX_RATIO && !is_own(&inner);
            if grows || total > MAX_TOTAL {
                bail!("{name} would grow with {shown:?} to {total} bytes: nothing of it is taken");
            }
            if entry.is_file() {
                self.entries.insert(inner, (size, at));
            }
        }
        if self.inside.has_overlapping_entries().with_context(damaged)? {
            bail!("{name} holds entries that share their bytes: nothing of it is taken");
        }
        Ok(())
    }

    /// The texts that may hold conversations, by name.
    pub fn texts(&self) -> Result<Vec<Text>> {
        let texts = || self.entries.iter().filter(|(inner, _)| is_text(inner));
        let own: Vec<_> = texts().filter(|(inner, _)| is_own(inner)).take(1).collect();
        let found = if own.is_empty() { texts().collect() } else { own };
        if found.is_empty() {
            bail!("{} holds no JSON, JSON Lines or CSV file", self.name);
        }
        let text = |(inner, (size, _)): (&String, &(u64, usize))| Text {
            name: format!("{}/{inner}", self.name),
            inner: Some(inner.clone()),
            size: *size,
        };
        Ok(found.into_iter().map(text).collect())
    }

    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.entries.keys().map(String::as_str)
    }

    /// The entry with this name, wherever in the archive its folder lies.
    pub fn find(&self, name: &str) -> Option<String> {
        if self.entries.contains_key(name) {
            return Some(name.to_owned());
        }
        let ends = |found: &&String| found.strip_suffix(name).is_some_and(|before| before.ends_with('/'));
        self.entries.keys().find(ends).cloned()
    }

    /// The bytes of an entry, never more than it says it has.
    pub fn read(&mut self, inner: &str) -> Result<impl Read + '_> {
        let named = || format!("{}/{inner} cannot be read", self.name);
        let (size, at) = self.entries.get(inner).copied().with_context(named)?;
        let name = &self.name;
        let entry = self.inside.by_index(at).with_context(|| format!("{name}/{inner} cannot be read"))?;
        Ok(entry.take(size.saturating_add(1)))
    }
}

/// Whether it is the lines of an export of ours.
fn is_own(name: &str) -> bool {
    name.rsplit('/').next() == Some(LINES)
}

fn is_safe(name: &str) -> bool {
    let drive = name.as_bytes().get(1) == Some(&b':');
    !name.starts_with('/')
        && !drive
        && !name.contains(['\\', '\0'])
        && !name.split('/').any(|part| part == "..")
}
