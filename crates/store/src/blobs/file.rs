//! One file of the folder as a stream, in and out. Bytes cross to the blocking threads by large chunks, and
//! while one is hashed and written (or read), the next is gathered (or sent). The disk begins with what is written
//! before all has come, so that little is left to wait for at the end.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::mem;
use std::num::NonZeroU64;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use domain::file::Digest;
use futures_util::stream::{self, BoxStream};
use rustix::fs::{Advice, fadvise};
use tokio::task::{JoinHandle, spawn_blocking};

use super::CHUNK;
use super::error::{BlobError, Result, blocking, joined};
use super::folder::{Folder, Temp, absent};
use super::hash::Hasher;

/// After how many bytes the disk begins with them.
const STRETCH: u64 = 4 * 1024 * 1024;

#[derive(Debug)]
pub(super) struct FileWriter {
    gathered: Vec<u8>,
    work: Work,
}

/// Who has the file: this writer, or the thread that writes the last chunk.
#[derive(Debug)]
enum Work {
    Idle(Box<Sink>),
    Busy(JoinHandle<Result<Box<Sink>>>),
    Failed,
}

/// The file as far as it is written; there is none before the first chunk.
#[derive(Debug)]
struct Sink {
    folder: Arc<Folder>,
    target: PathBuf,
    key: String,
    temp: Option<Temp>,
    hasher: Hasher,
    written: u64,
    /// Of what is written, how much the disk was told to begin with.
    begun: u64,
    /// The buffer of the chunk before, to be filled again.
    spare: Vec<u8>,
}

impl FileWriter {
    pub(super) fn new(folder: &Arc<Folder>, key: &str) -> Result<Self> {
        let sink = Sink {
            folder: folder.clone(),
            target: folder.path(key)?,
            key: key.to_owned(),
            temp: None,
            hasher: Hasher::default(),
            written: 0,
            begun: 0,
            spare: Vec::new(),
        };
        Ok(Self { gathered: Vec::new(), work: Work::Idle(Box::new(sink)) })
    }

    pub(super) async fn write(&mut self, mut bytes: Bytes) -> Result<()> {
        while !bytes.is_empty() {
            let fits = bytes.len().min(CHUNK - self.gathered.len());
            self.gathered.extend_from_slice(&bytes.split_to(fits));
            if self.gathered.len() == CHUNK {
                self.wait().await?;
                self.hand_over()?;
            }
        }
        Ok(())
    }

    pub(super) async fn finish(mut self) -> Result<Digest> {
        self.wait().await?;
        let mut sink = self.take()?;
        blocking(move || {
            sink.append(&self.gathered)?;
            sink.finish()
        })
        .await
    }

    /// Waits until the chunk before is written.
    async fn wait(&mut self) -> Result<()> {
        if let Work::Busy(writing) = &mut self.work {
            let written = joined(writing.await);
            self.work = Work::Failed;
            self.work = Work::Idle(written?);
        }
        Ok(())
    }

    fn take(&mut self) -> Result<Box<Sink>> {
        match mem::replace(&mut self.work, Work::Failed) {
            Work::Idle(sink) => Ok(sink),
            _ => Err(BlobError::Internal("writing went on after it had failed".into())),
        }
    }

    fn hand_over(&mut self) -> Result<()> {
        let mut sink = self.take()?;
        let chunk = mem::replace(&mut self.gathered, mem::take(&mut sink.spare));
        self.work = Work::Busy(spawn_blocking(move || {
            sink.append(&chunk)?;
            sink.spare = chunk;
            sink.spare.clear();
            Ok(sink)
        }));
        Ok(())
    }
}

impl Sink {
    fn append(&mut self, chunk: &[u8]) -> Result<()> {
        self.hasher.update(chunk);
        let written = self.file().and_then(|file| file.write_all(chunk));
        written.map_err(|error| BlobError::from_io(format!("cannot write {}", self.key), &error))?;
        self.written += chunk.len() as u64;
        self.begin();
        Ok(())
    }

    /// Has the disk begin with what it was not told of yet. It goes on by itself and nobody waits: what is to last is
    /// synced at the end in any case.
    fn begin(&mut self) {
        let (Some(temp), Some(waiting)) = (&self.temp, NonZeroU64::new(self.written - self.begun)) else {
            return;
        };
        if waiting.get() >= STRETCH {
            // Pages that nobody needs soon are written at once; as they are on their way out, none is dropped.
            let _ = fadvise(&temp.file, self.begun, Some(waiting), Advice::DontNeed);
            self.begun = self.written;
        }
    }

    fn file(&mut self) -> io::Result<&mut File> {
        let temp = match self.temp.take() {
            Some(temp) => temp,
            None => self.folder.temp()?,
        };
        Ok(&mut self.temp.insert(temp).file)
    }

    fn finish(self) -> Result<Digest> {
        if let Some(temp) = self.temp {
            let placed = self.folder.place(&temp, &self.target);
            placed.map_err(|error| BlobError::from_io(format!("cannot write {}", self.key), &error))?;
        }
        Ok(self.hasher.digest())
    }
}

/// The bytes of a range, or all of them. A range that is not there is refused.
pub(super) async fn read(
    folder: &Folder,
    key: &str,
    range: Option<Range<u64>>,
) -> Result<BoxStream<'static, Result<Bytes>>> {
    let (path, key) = (folder.path(key)?, key.to_owned());
    // The first chunk comes with the opening: a small file takes one crossing.
    let first = blocking(move || Source::open(path, key, range)?.next()).await?;
    let chunks = stream::unfold(Next::Read(first), |next| async {
        let (source, chunk) = match next {
            Next::Read(read) => read,
            Next::Reading(reading) => match joined(reading.await) {
                Ok(read) => read,
                Err(error) => return Some((Err(error), Next::End)),
            },
            Next::End => return None,
        };
        let next = match source.left {
            _ if chunk.is_empty() => return None,
            0 => Next::End,
            _ => Next::Reading(spawn_blocking(|| source.next())),
        };
        Some((Ok(chunk), next))
    });
    Ok(Box::pin(chunks))
}

enum Next {
    Read((Source, Bytes)),
    Reading(JoinHandle<Result<(Source, Bytes)>>),
    End,
}

struct Source {
    file: File,
    key: String,
    left: u64,
}

impl Source {
    fn open(path: PathBuf, key: String, range: Option<Range<u64>>) -> Result<Self> {
        let opened = || {
            let mut file = File::open(path)?;
            let size = file.metadata()?.len();
            let range = range.clone().unwrap_or(0..size);
            if range.start > 0 {
                file.seek(SeekFrom::Start(range.start))?;
            }
            Ok((file, size, range))
        };
        let (file, size, range) = opened().map_err(|error| absent(&key, &error))?;
        if range.end > size || range.start > range.end {
            return Err(super::outside(&key, &range, size));
        }
        Ok(Self { file, key, left: range.end - range.start })
    }

    fn next(mut self) -> Result<(Self, Bytes)> {
        let asked = self.left.min(CHUNK as u64);
        let mut chunk = Vec::with_capacity(usize::try_from(asked).unwrap_or(CHUNK));
        let read = (&self.file).take(asked).read_to_end(&mut chunk);
        let read = read.map_err(|error| BlobError::from_io(&self.key, &error))? as u64;
        if read < asked {
            return Err(BlobError::Internal(format!("{} ends {} bytes early", self.key, self.left - read)));
        }
        self.left -= read;
        Ok((self, chunk.into()))
    }
}
