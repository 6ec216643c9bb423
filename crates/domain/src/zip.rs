//! The zip around files that are stored as they are: every byte that is not a file's own, known before any file is
//! read. The same files give the same zip: fixed times, the order given, no compression. Zip64 where it is needed.

/// A file in the zip; its bytes follow its local header as they are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ZipEntry {
    pub name: String,
    pub size: u64,
    pub crc32: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ZipTooBig {
    #[error("a file name of {0} bytes does not fit into a zip, which takes 65,535")]
    Name(usize),
    #[error("the files are too long for a zip, which takes 2^64 bytes in all")]
    Total,
}

/// A zip: for each entry its local header and then the file, at the end the central directory.
#[derive(Debug, Clone)]
pub struct ZipLayout {
    parts: Vec<Part>,
    /// Where the central directory begins.
    directory_at: u64,
    total: u64,
}

#[derive(Debug, Clone)]
struct Part {
    entry: ZipEntry,
    name_len: u16,
    /// Where the local header begins.
    offset: u64,
}

/// Stands where the true value is in a zip64 field.
const SEE_ZIP64: u32 = u32::MAX;
/// Readers that know this version know UTF-8 names.
const PLAIN: u16 = 20;
const ZIP64: u16 = 45;
const MADE_ON_UNIX: u16 = 3 << 8;
const UTF8_NAME: u16 = 1 << 11;
const STORED: u16 = 0;
/// Midnight of 1980-01-01, the first moment that DOS knows.
const TIME: u16 = 0;
const DATE: u16 = (1 << 5) | 1;
/// A regular file, rw-r--r--.
const MODE: u32 = 0o100_644 << 16;

impl ZipLayout {
    pub fn new(entries: Vec<ZipEntry>) -> Result<Self, ZipTooBig> {
        let mut parts = Vec::with_capacity(entries.len());
        let mut offset: u64 = 0;
        for entry in entries {
            let name_len = u16::try_from(entry.name.len()).map_err(|_| ZipTooBig::Name(entry.name.len()))?;
            let part = Part { entry, name_len, offset };
            let header = part.local_header().len() as u64;
            offset = offset
                .checked_add(header)
                .and_then(|at| at.checked_add(part.entry.size))
                .ok_or(ZipTooBig::Total)?;
            parts.push(part);
        }
        let mut layout = Self { parts, directory_at: offset, total: 0 };
        let end = layout.central_directory().len() as u64;
        layout.total = offset.checked_add(end).ok_or(ZipTooBig::Total)?;
        Ok(layout)
    }

    pub fn entries(&self) -> impl ExactSizeIterator<Item = &ZipEntry> {
        self.parts.iter().map(|part| &part.entry)
    }

    /// What stands before the bytes of the entry at this index, which must be one of `entries`.
    pub fn local_header(&self, index: usize) -> Vec<u8> {
        self.parts[index].local_header()
    }

    /// What stands after the bytes of the last entry: the directory and the records that end the zip.
    pub fn central_directory(&self) -> Vec<u8> {
        let mut out = Vec::new();
        for part in &self.parts {
            part.central_header(&mut out);
        }
        let (count, size, offset) = (self.parts.len() as u64, out.len() as u64, self.directory_at);
        let short_count = u16::try_from(count).ok().filter(|&n| n != u16::MAX);
        if short_count.is_none() || is_long(size) || is_long(offset) {
            zip64_end(&mut out, count, size, offset);
        }
        let mut end = Record::new(&mut out, b"PK\x05\x06");
        end.u16(0).u16(0); // the number of this disk, and of the one with the directory
        end.u16(short_count.unwrap_or(u16::MAX)).u16(short_count.unwrap_or(u16::MAX));
        end.u32(short(size)).u32(short(offset));
        end.u16(0); // length of the comment
        out
    }

    /// The length of the whole zip.
    pub fn total_len(&self) -> u64 {
        self.total
    }
}

impl Part {
    fn local_header(&self) -> Vec<u8> {
        let size = self.entry.size;
        let mut out = Vec::with_capacity(50 + self.entry.name.len());
        let mut header = Record::new(&mut out, b"PK\x03\x04");
        header.u16(if is_long(size) { ZIP64 } else { PLAIN });
        self.shared_fields(&mut header);
        // Here zip64 has both sizes or none.
        let extra: &[u64] = if is_long(size) { &[size, size] } else { &[] };
        header.u16(extra_len(extra));
        header.bytes(self.entry.name.as_bytes());
        header.zip64_extra(extra);
        out
    }

    fn central_header(&self, out: &mut Vec<u8>) {
        let (size, offset) = (self.entry.size, self.offset);
        let extra: Vec<u64> = [size, size, offset].into_iter().filter(|&value| is_long(value)).collect();
        let version = if extra.is_empty() { PLAIN } else { ZIP64 };
        let mut header = Record::new(out, b"PK\x01\x02");
        header.u16(MADE_ON_UNIX | version).u16(version);
        self.shared_fields(&mut header);
        header.u16(extra_len(&extra));
        header.u16(0).u16(0).u16(0); // length of the comment, the disk, internal attributes
        header.u32(MODE).u32(short(offset));
        header.bytes(self.entry.name.as_bytes());
        header.zip64_extra(&extra);
    }

    /// Flags to length of the name, which both headers have.
    fn shared_fields(&self, header: &mut Record<'_>) {
        header.u16(UTF8_NAME).u16(STORED).u16(TIME).u16(DATE).u32(self.entry.crc32);
        header.u32(short(self.entry.size)).u32(short(self.entry.size)).u16(self.name_len);
    }
}

/// The end of the directory in long fields, and where to find it.
fn zip64_end(out: &mut Vec<u8>, count: u64, size: u64, offset: u64) {
    let mut end = Record::new(out, b"PK\x06\x06");
    end.u64(44); // length of what follows
    end.u16(MADE_ON_UNIX | ZIP64).u16(ZIP64).u32(0).u32(0);
    end.u64(count).u64(count).u64(size).u64(offset);
    let mut locator = Record::new(out, b"PK\x06\x07");
    // `new` has seen that the sum fits.
    locator.u32(0).u64(offset.saturating_add(size)).u32(1);
}

/// Whether the value does not fit into a short field beside the mark for zip64.
fn is_long(value: u64) -> bool {
    value >= u64::from(SEE_ZIP64)
}

fn short(value: u64) -> u32 {
    u32::try_from(value).unwrap_or(SEE_ZIP64)
}

/// At most three values: never more than 28 bytes.
fn extra_len(values: &[u64]) -> u16 {
    if values.is_empty() { 0 } else { 4 + zip64_len(values) }
}

fn zip64_len(values: &[u64]) -> u16 {
    values.iter().map(|_| 8).sum()
}

/// Little-endian fields, one after the other.
struct Record<'a>(&'a mut Vec<u8>);

impl<'a> Record<'a> {
    fn new(out: &'a mut Vec<u8>, signature: &[u8; 4]) -> Self {
        out.extend_from_slice(signature);
        Self(out)
    }

    fn bytes(&mut self, bytes: &[u8]) -> &mut Self {
        self.0.extend_from_slice(bytes);
        self
    }

    fn u16(&mut self, value: u16) -> &mut Self {
        self.bytes(&value.to_le_bytes())
    }

    fn u32(&mut self, value: u32) -> &mut Self {
        self.bytes(&value.to_le_bytes())
    }

    fn u64(&mut self, value: u64) -> &mut Self {
        self.bytes(&value.to_le_bytes())
    }

    fn zip64_extra(&mut self, values: &[u64]) {
        if !values.is_empty() {
            self.u16(1).u16(zip64_len(values));
            for &value in values {
                self.u64(value);
            }
        }
    }
}

#[cfg(test)]
#[path = "zip_tests.rs"]
mod tests;
