//! Where an export goes: a stream of text, a folder, or a zip. A file or folder has its name only when it is whole.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use domain::transfer::own;
use tokio::sync::mpsc;
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipWriter};

use super::export::Part;

/// The lines of an export, in a folder or a zip.
pub const LINES: &str = "threadkeep.jsonl";
/// The bytes of its files, each under its SHA-256.
pub const BLOBS: &str = "blobs";

/// What a part is in a stream of text alone.
pub fn as_text(part: Part) -> io::Result<Vec<u8>> {
    match part {
        Part::Text(text) => Ok(text.into_bytes()),
        Part::Blob { sha256, offset, bytes, .. } => {
            let mut line = own::blob_line(&sha256, offset, &bytes).map_err(io::Error::other)?;
            line.push('\n');
            Ok(line.into_bytes())
        }
        Part::End => Ok(Vec::new()),
    }
}

/// The next part; none after the last. What ends without having said so broke off.
fn next(parts: &mut mpsc::Receiver<Part>) -> io::Result<Option<Part>> {
    match parts.blocking_recv() {
        Some(Part::End) => Ok(None),
        Some(part) => Ok(Some(part)),
        None => Err(io::Error::other("the export broke off")),
    }
}

/// A place of its own beside the path, so that what is there is whole.
fn draft(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.partial", std::process::id()));
    path.with_file_name(name)
}

/// Takes all parts into a file. Blocks.
pub fn write_file(path: &Path, parts: mpsc::Receiver<Part>) -> Result<()> {
    let draft = draft(path);
    let written = (|| {
        let file = File::options().write(true).create(true).truncate(true).open(&draft)?;
        let mut out = BufWriter::with_capacity(1 << 20, file);
        write_text(&mut out, parts)?;
        out.into_inner().map_err(|error| error.into_error())?.sync_all()
    })();
    finish(path, &draft, written)
}

/// Takes all parts into a stream. Blocks.
pub fn write_text(out: &mut impl Write, mut parts: mpsc::Receiver<Part>) -> io::Result<()> {
    while let Some(part) = next(&mut parts)? {
        out.write_all(&as_text(part)?)?;
    }
    out.flush()
}

fn finish(path: &Path, draft: &Path, written: io::Result<()>) -> Result<()> {
    let named = || format!("{} cannot be written", path.display());
    if let Err(error) = written {
        let _ = fs::remove_file(draft);
        return Err(error).with_context(named);
    }
    fs::rename(draft, path).with_context(named)
}

/// Takes all parts into a new folder. Blocks.
pub fn write_folder(path: &Path, mut parts: mpsc::Receiver<Part>) -> Result<()> {
    if path.exists() && fs::read_dir(path).map_or(true, |mut inside| inside.next().is_some()) {
        bail!("{} is there already: name a new folder, or an empty one", path.display());
    }
    let draft = draft(path);
    let written = (|| {
        fs::create_dir_all(draft.join(BLOBS))?;
        let mut lines = BufWriter::with_capacity(1 << 20, File::create_new(draft.join(LINES))?);
        let mut blob: Option<File> = None;
        while let Some(part) = next(&mut parts)? {
            match part {
                Part::Text(text) => lines.write_all(text.as_bytes())?,
                Part::Blob { sha256, offset, bytes, last } => {
                    if offset == 0 {
                        blob = Some(File::create_new(draft.join(BLOBS).join(sha256))?);
                    }
                    if let Some(file) = &mut blob {
                        file.write_all(&bytes)?;
                        if last {
                            file.sync_all()?;
                        }
                    }
                }
                Part::End => {}
            }
        }
        lines.into_inner().map_err(|error| error.into_error())?.sync_all()
    })();
    let named = || format!("{} cannot be written", path.display());
    if let Err(error) = written {
        let _ = fs::remove_dir_all(&draft);
        return Err(error).with_context(named);
    }
    // An empty folder gives way.
    let _ = fs::remove_dir(path);
    fs::rename(&draft, path).with_context(named)
}

/// Takes all parts into a zip file. Blocks.
pub fn write_zip_file(path: &Path, parts: mpsc::Receiver<Part>) -> Result<()> {
    let draft = draft(path);
    let written = (|| {
        let file = File::options().write(true).create(true).truncate(true).open(&draft)?;
        let out = write_zip(BufWriter::with_capacity(1 << 20, file), parts)?;
        out.into_inner().map_err(|error| error.into_error())?.sync_all()
    })();
    finish(path, &draft, written)
}

/// Writes a zip while its parts come: the lines, then the bytes. Blocks.
pub fn write_zip<W: Write>(out: W, mut parts: mpsc::Receiver<Part>) -> io::Result<W> {
    let mut zip = ZipWriter::new_stream(out);
    // Always the same time: the same store gives the same bytes.
    let options = SimpleFileOptions::default()
        .large_file(true)
        .last_modified_time(zip::DateTime::default())
        .unix_permissions(0o644);
    let lines = options.compression_method(CompressionMethod::Deflated);
    zip.start_file(LINES, lines)?;
    while let Some(part) = next(&mut parts)? {
        match part {
            Part::Text(text) => zip.write_all(text.as_bytes())?,
            Part::Blob { sha256, offset, bytes, .. } => {
                if offset == 0 {
                    let stored = options.compression_method(CompressionMethod::Stored);
                    zip.start_file(format!("{BLOBS}/{sha256}"), stored)?;
                }
                zip.write_all(&bytes)?;
            }
            Part::End => {}
        }
    }
    Ok(zip.finish()?.into_inner())
}
