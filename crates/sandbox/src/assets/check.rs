//! Which archives are taken: those that mean the same to every reader and stay where they are unpacked. Read before
//! anything is written; the reasons are for the person who sent it.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};

use unicode_normalization::UnicodeNormalization as _;
use zip::ZipArchive;

/// Of an archive of which nothing was announced, or less than that.
const MAX_ENTRIES: usize = 10_000;
const MAX_RATIO: u64 = 100;
/// Smaller files may be as dense as they like.
const RATIO_FROM: u64 = 1024 * 1024;
const MAX_NAME: usize = 1024;
const MAX_DEPTH: usize = 32;

pub struct Entry {
    pub index: usize,
    pub name: String,
    pub size: u64,
    pub folder: bool,
}

/// The archive and its entries, or why it is refused. `most` bounds the sum of all files; there may be as many as the
/// manifest `listed`.
pub fn check(mut file: File, most: u64, listed: usize) -> Result<(ZipArchive<File>, Vec<Entry>), String> {
    let announced = announced(&mut file)?;
    let most_entries = MAX_ENTRIES.max(listed);
    if announced > most_entries as u64 {
        return Err(format!("it has {announced} entries, more than {most_entries}"));
    }
    let mut raw = file.try_clone().map_err(|error| error.to_string())?;
    let mut archive = ZipArchive::new(file).map_err(|error| error.to_string())?;
    // The reader keeps one of several entries with the same name.
    if archive.len() as u64 != announced {
        return Err("two of its entries have the same name, or its directory does not add up".into());
    }
    let mut entries = Vec::new();
    let (mut names, mut spans, mut total) = (Names::default(), Vec::new(), 0u64);
    for index in 0..archive.len() {
        let entry = archive.by_index_raw(index).map_err(|error| error.to_string())?;
        let name = std::str::from_utf8(entry.name_raw()).map_err(|_| "a name is not UTF-8")?.to_owned();
        let folder = name.ends_with('/');
        if entry.encrypted() {
            return Err(format!("{name:?} is encrypted"));
        }
        let kind = entry.unix_mode().unwrap_or(0) & 0o170_000;
        if !matches!((kind, folder), (0, _) | (0o100_000, false) | (0o040_000, true)) {
            return Err(format!("{name:?} is a link, a device or something else that is no file"));
        }
        let (size, packed) = (entry.size(), entry.compressed_size());
        total = total.saturating_add(size);
        if total > most {
            return Err(format!("its files have more than {most} bytes"));
        }
        if size > RATIO_FROM && size / packed.max(1) > MAX_RATIO {
            return Err(format!("{name:?} is packed more than {MAX_RATIO} to 1"));
        }
        let data = entry.data_start().ok_or_else(|| format!("{name:?} has no data"))?;
        spans.push((entry.header_start(), data.saturating_add(packed), name.clone()));
        names.add(&name)?;
        entries.push(Entry { index, name, size, folder });
    }
    apart(&mut spans)?;
    for (start, _, name) in &spans {
        agrees(&mut raw, *start, name)?;
    }
    Ok((archive, entries))
}

/// The names so far, as every file system would tell them apart.
#[derive(Default)]
struct Names {
    files: HashSet<String>,
    folders: HashMap<String, String>,
}

impl Names {
    fn add(&mut self, name: &str) -> Result<(), String> {
        let path = name.strip_suffix('/').unwrap_or(name);
        let parts: Vec<&str> = path.split('/').collect();
        let bad = |part: &&str| matches!(*part, "" | "." | "..") || part.len() > 255;
        // A colon is a character like any other here: what a bag may hold is taken.
        if parts.iter().any(bad) || name.contains(['\\', '\0']) || name.chars().any(char::is_control) {
            return Err(format!(
                "the name {name:?} does not stay within a folder, or no system could keep it"
            ));
        }
        if name.len() > MAX_NAME || parts.len() > MAX_DEPTH {
            return Err(format!(
                "the name {:?}… is too long or too deep",
                name.chars().take(60).collect::<String>()
            ));
        }
        let twin = || format!("two entries would be one file: {name:?} has a twin");
        let mut above = String::new();
        for (at, part) in parts.iter().enumerate() {
            if at > 0 {
                above.push('/');
            }
            above.push_str(&part.nfkc().collect::<String>().to_lowercase());
            let written: String = parts[..=at].join("/");
            if at + 1 < parts.len() || name.ends_with('/') {
                // A folder: written one way only, and no file.
                let known = self.folders.entry(above.clone()).or_insert_with(|| written.clone());
                if *known != written || self.files.contains(&above) {
                    return Err(twin());
                }
            } else if self.folders.contains_key(&above) || !self.files.insert(above.clone()) {
                return Err(twin());
            }
        }
        Ok(())
    }
}

/// No two entries share bytes.
fn apart(spans: &mut [(u64, u64, String)]) -> Result<(), String> {
    spans.sort();
    match spans.windows(2).find(|pair| pair[0].1 > pair[1].0) {
        Some(pair) => Err(format!("{:?} and {:?} overlap", pair[0].2, pair[1].2)),
        None => Ok(()),
    }
}

/// The header before an entry's bytes has the name that the directory has for it.
fn agrees(raw: &mut File, start: u64, name: &str) -> Result<(), String> {
    let mut header = [0; 30];
    let mut local = vec![0; name.len()];
    let read = raw
        .seek(SeekFrom::Start(start))
        .and_then(|_| raw.read_exact(&mut header))
        .and_then(|()| raw.read_exact(&mut local));
    let length = usize::from(u16::from_le_bytes([header[26], header[27]]));
    let encrypted = header[6] & 1 != 0;
    if read.is_err() || length != name.len() || local != name.as_bytes() || encrypted {
        return Err(format!("{name:?} is something else in its own header than in the directory"));
    }
    Ok(())
}

/// How many entries the end of the archive says there are.
fn announced(file: &mut File) -> Result<u64, String> {
    const END: usize = 22;
    let broken = || "it is not a zip".to_owned();
    let length = file.seek(SeekFrom::End(0)).map_err(|error| error.to_string())?;
    let window = length.min(65_535 + END as u64 + 20);
    file.seek(SeekFrom::Start(length - window)).map_err(|error| error.to_string())?;
    let mut tail = Vec::new();
    file.take(window).read_to_end(&mut tail).map_err(|error| error.to_string())?;
    let number = |at: usize, len: usize| -> u64 {
        let bytes = tail.get(at..at + len).unwrap_or_default();
        bytes.iter().rev().fold(0, |sum, byte| (sum << 8) | u64::from(*byte))
    };
    // The record ends the file: anything after it, or a second one, could be read another way.
    let ends = |at: &usize| {
        tail[*at..].starts_with(b"PK\x05\x06") && *at + END + number(at + 20, 2) as usize == tail.len()
    };
    let at = (0..=tail.len().saturating_sub(END)).rev().find(ends).ok_or_else(broken)?;
    let entries = number(at + 10, 2);
    if entries != 0xffff {
        return Ok(entries);
    }
    // The larger format has its own record, which a pointer before this one names.
    let pointer =
        at.checked_sub(20).filter(|at| tail[*at..].starts_with(b"PK\x06\x07")).ok_or_else(broken)?;
    let mut record = [0; 56];
    file.seek(SeekFrom::Start(number(pointer + 8, 8)))
        .and_then(|_| file.read_exact(&mut record))
        .map_err(|_| broken())?;
    if !record.starts_with(b"PK\x06\x06") {
        return Err(broken());
    }
    Ok(u64::from_le_bytes(record[32..40].try_into().map_err(|_| broken())?))
}
