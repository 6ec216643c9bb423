//! Files into the conversation's bag and out of it, streamed from and to the disk.

use std::fs::File;
use std::io::{ErrorKind, Read as _, Write as _};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use futures_util::stream;
use reqwest::{Body, Method, header};
use serde::Deserialize;
use serde_json::Value;
use uuid::Uuid;

use crate::api::{Server, percent};
use crate::failure::{Failure, reason};

const CHUNK: usize = 64 * 1024;

/// A file of the bag.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Kept {
    pub id: Uuid,
    pub name: String,
    pub size: u64,
}

/// A file on this machine that is to be attached, looked at once already.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chosen {
    pub path: PathBuf,
    pub name: String,
    pub size: u64,
}

/// What is at a path, if it can be attached.
pub fn choose(path: &Path) -> Result<Chosen, Failure> {
    let found = std::fs::metadata(path).map_err(|error| Failure::file(path, &error))?;
    if !found.is_file() {
        return Err(Failure::Here(format!("{} is not a file", path.display())));
    }
    File::open(path).map_err(|error| Failure::file(path, &error))?;
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    Ok(Chosen { path: path.to_owned(), name, size: found.len() })
}

impl Server {
    /// Uploads all of them or none.
    pub async fn upload(&self, conversation: Uuid, files: &[Chosen]) -> Result<Vec<Kept>, Failure> {
        let boundary = format!("threadkeep-{}", domain_boundary());
        let mut parts = Vec::new();
        let mut length = 0;
        for file in files {
            let head = format!(
                "--{boundary}\r\nContent-Disposition: form-data; name=\"files\"; filename*=UTF-8''{}\r\n\
                 Content-Type: application/octet-stream\r\n\r\n",
                percent(&file.name)
            );
            length += head.len() as u64 + file.size + 2;
            parts.push(Part::Text(head));
            parts.push(Part::File(file.path.clone(), file.size));
            parts.push(Part::Text("\r\n".to_owned()));
        }
        let tail = format!("--{boundary}--\r\n");
        length += tail.len() as u64;
        parts.push(Part::Text(tail));
        let request = self
            .request(Method::POST, &format!("/v1/chat-conversations/{conversation}/files"))
            .header(header::CONTENT_TYPE, format!("multipart/form-data; boundary={boundary}"))
            .header(header::CONTENT_LENGTH, length)
            .body(Body::wrap_stream(body(parts)));
        let answer = self.send(request).await?.bytes().await;
        let answer = answer.map_err(|error| Failure::Lost(reason(error)))?;
        let mut made: Value =
            serde_json::from_slice(&answer).map_err(|error| Failure::Unreadable(error.to_string()))?;
        serde_json::from_value(made["files"].take()).map_err(|error| Failure::Unreadable(error.to_string()))
    }

    /// The files of the bag, all of them.
    pub async fn files(&self, conversation: Uuid) -> Result<Vec<Kept>, Failure> {
        let (mut all, mut after) = (Vec::new(), String::new());
        loop {
            let path = format!("/v1/chat-conversations/{conversation}/files?limit=100{after}");
            let mut page = self.json(self.request(Method::GET, &path)).await?;
            let files: Vec<Kept> = serde_json::from_value(page["data"].take())
                .map_err(|error| Failure::Unreadable(error.to_string()))?;
            all.extend(files);
            match page["next"].as_str() {
                Some(next) => after = format!("&after={}", percent(next)),
                None => return Ok(all),
            }
        }
    }

    /// Writes a file of the bag to a path that is free; a folder gets it under its own name.
    pub async fn save(&self, conversation: Uuid, file: &Kept, to: &Path) -> Result<PathBuf, Failure> {
        let to = if to.is_dir() { to.join(safe_name(&file.name)) } else { to.to_owned() };
        let path = format!("/v1/chat-conversations/{conversation}/files/{}/content", file.id);
        let mut response = self.send(self.request(Method::GET, &path)).await?;
        let mut out =
            File::options().write(true).create_new(true).open(&to).map_err(|error| match error.kind() {
                ErrorKind::AlreadyExists => {
                    Failure::Here(format!("{} is there already; give another path", to.display()))
                }
                _ => Failure::file(&to, &error),
            })?;
        let mut written = 0;
        let done = async {
            while let Some(chunk) = response.chunk().await.map_err(|error| Failure::Lost(reason(error)))? {
                written += chunk.len() as u64;
                out.write_all(&chunk).map_err(|error| Failure::file(&to, &error))?;
            }
            if written != file.size {
                return Err(Failure::Lost(format!("{written} of {} bytes came", file.size)));
            }
            out.sync_all().map_err(|error| Failure::file(&to, &error))
        };
        if let Err(failure) = done.await {
            let _ = std::fs::remove_file(&to);
            return Err(failure);
        }
        Ok(to)
    }
}

/// The server's names are safe by its own rules; ours do not depend on that.
fn safe_name(name: &str) -> String {
    let bare: String = name.chars().filter(|c| !c.is_control() && !matches!(c, '/' | '\\')).collect();
    let bare = bare.trim_start_matches('.').trim();
    if bare.is_empty() { "file".to_owned() } else { bare.to_owned() }
}

/// A boundary that no file is likely to hold.
fn domain_boundary() -> String {
    use domain::time::{Clock as _, SystemClock};
    SystemClock.new_id().simple().to_string()
}

enum Part {
    Text(String),
    File(PathBuf, u64),
    Open(File, PathBuf, u64),
}

/// The parts one after the other; a file that became shorter or longer breaks the request off.
fn body(parts: Vec<Part>) -> impl futures_util::Stream<Item = std::io::Result<Bytes>> + Send + 'static {
    stream::try_unfold(parts.into_iter().collect::<std::collections::VecDeque<_>>(), |mut parts| async {
        loop {
            match parts.pop_front() {
                None => return Ok(None),
                Some(Part::Text(text)) => return Ok(Some((Bytes::from(text), parts))),
                Some(Part::File(path, size)) => {
                    let file = File::open(&path)?;
                    parts.push_front(Part::Open(file, path, size));
                }
                Some(Part::Open(file, path, left)) => {
                    let mut buffer = vec![0; CHUNK.min(usize::try_from(left).unwrap_or(CHUNK))];
                    // Reads of the page cache; larger ones would deserve a thread of their own.
                    let read = (&file).read(&mut buffer)?;
                    buffer.truncate(read);
                    match (read, left) {
                        (0, 0) => {}
                        (0, _) => return Err(std::io::Error::other("the file became shorter")),
                        _ => {
                            parts.push_front(Part::Open(file, path, left - read as u64));
                            return Ok(Some((Bytes::from(buffer), parts)));
                        }
                    }
                }
            }
        }
    })
}

/// A size as people say it.
pub fn size(bytes: u64) -> String {
    match bytes {
        0..1024 => format!("{bytes} B"),
        1024..1_048_576 => format!("{} KiB", bytes.div_ceil(1024)),
        _ => format!("{:.1} MiB", bytes as f64 / 1_048_576.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_stays_in_its_folder() {
        for (name, safe) in [
            ("report.pdf", "report.pdf"),
            ("../../etc/passwd", "etcpasswd"),
            ("..", "file"),
            ("a\u{1b}b", "ab"),
        ] {
            assert_eq!(safe_name(name), safe);
        }
    }

    #[test]
    fn sizes_are_told_as_people_say_them() {
        assert_eq!([0, 1023, 1024, 1025, 3 << 20].map(size), ["0 B", "1023 B", "1 KiB", "2 KiB", "3.0 MiB"]);
    }
}
