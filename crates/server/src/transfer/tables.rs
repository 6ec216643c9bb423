//! Rows of two tables that belong together and come in any order, from any of the files: set aside by their
//! conversation in a few hundred files, and put together one file at a time, so that memory holds a small part of them.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufReader, BufWriter, Read, Write as _};
use std::path::PathBuf;

use anyhow::{Context as _, Result};
use domain::transfer::format::Format;
use sha2::{Digest as _, Sha256};
use tempfile::TempDir;

use super::report::Entry;
use super::scan::{MAX_ELEMENT, Place};

const BUCKETS: usize = 256;

/// One conversation's rows.
#[derive(Default)]
pub struct Group {
    /// Where its row, or the first of its messages, stands.
    pub entry: Entry,
    pub format: Option<Format>,
    pub id: String,
    pub conversation: Option<String>,
    pub messages: Vec<String>,
    pub bytes: usize,
}

#[derive(Default)]
pub struct Tables {
    folder: Option<TempDir>,
    buckets: HashMap<usize, (BufWriter<File>, PathBuf)>,
    /// Names of the texts that rows are from.
    texts: Vec<String>,
}

impl Tables {
    /// Sets a row aside: of a conversation, or of a message in it.
    pub fn add(
        &mut self,
        format: Format,
        id: &str,
        is_message: bool,
        row: &str,
        entry: &Entry,
    ) -> Result<()> {
        let hash = Sha256::digest(id.as_bytes());
        let bucket = usize::from(hash.first().copied().unwrap_or(0)) % BUCKETS;
        if self.texts.last() != Some(&entry.file) {
            self.texts.push(entry.file.clone());
        }
        let folder = match &self.folder {
            Some(folder) => folder,
            None => self.folder.insert(tempfile::tempdir().context("no temporary folder can be made")?),
        };
        let path = folder.path().join(bucket.to_string());
        let (file, _) = match self.buckets.entry(bucket) {
            std::collections::hash_map::Entry::Occupied(known) => known.into_mut(),
            std::collections::hash_map::Entry::Vacant(new) => {
                new.insert((BufWriter::new(File::create_new(&path)?), path))
            }
        };
        let Place { line, byte, number } = entry.place;
        let head = [self.texts.len() as u64 - 1, line, byte, number, format as u64, u64::from(is_message)];
        for number in head {
            file.write_all(&number.to_le_bytes())?;
        }
        for text in [id, row] {
            file.write_all(&(text.len() as u64).to_le_bytes())?;
            file.write_all(text.as_bytes())?;
        }
        Ok(())
    }

    /// The conversations of each file in turn, in the order their rows came.
    pub fn groups(mut self) -> impl Iterator<Item = Result<Vec<Group>>> {
        let mut buckets: Vec<usize> = self.buckets.keys().copied().collect();
        buckets.sort_unstable();
        buckets.into_iter().map(move |bucket| self.read(bucket))
    }

    fn read(&mut self, bucket: usize) -> Result<Vec<Group>> {
        let Some((mut file, path)) = self.buckets.remove(&bucket) else { return Ok(Vec::new()) };
        file.flush()?;
        let mut from = BufReader::new(File::open(&path)?);
        let (mut groups, mut places) = (Vec::<Group>::new(), HashMap::new());
        while let Some(text) = read_number(&mut from)? {
            let mut number = || read_number(&mut from)?.context("a spooled row is cut");
            let (line, byte, count) = (number()?, number()?, number()?);
            let (format, is_message) = (number()? as usize, number()? == 1);
            let (id, row) = (read_text(&mut from)?, read_text(&mut from)?);
            let at = *places.entry((format, id.clone())).or_insert_with(|| {
                let format = Format::ALL.get(format).copied();
                groups.push(Group { format, id, ..Group::default() });
                groups.len() - 1
            });
            let Some(group) = groups.get_mut(at) else { continue };
            if !is_message || group.entry.file.is_empty() {
                let file = self.texts.get(text as usize).cloned().unwrap_or_default();
                let place = Place { line, byte, number: count };
                let source_id = Some(group.id.clone());
                group.entry = Entry { file, place, kind: "conversation", source_id, ..Entry::default() };
            }
            group.bytes += row.len();
            if group.bytes > MAX_ELEMENT {
                group.messages.clear();
            } else if is_message {
                group.messages.push(row);
            } else {
                group.conversation = Some(row);
            }
        }
        let _ = std::fs::remove_file(path);
        Ok(groups)
    }
}

fn read_number(from: &mut impl Read) -> Result<Option<u64>> {
    let mut bytes = [0; 8];
    match from.read_exact(&mut bytes) {
        Ok(()) => Ok(Some(u64::from_le_bytes(bytes))),
        Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn read_text(from: &mut impl Read) -> Result<String> {
    let length = read_number(from)?.context("a spooled row is cut")?;
    let mut text = String::new();
    from.take(length).read_to_string(&mut text)?;
    Ok(text)
}
