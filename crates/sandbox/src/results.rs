//! What the agent made: `assets/` collected from the room and posted back, once.

use std::fs::File;
use std::io::{Seek as _, Write as _};
use std::time::Duration;

use domain::file::safe_name;
use reqwest::multipart::{Form, Part};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tokio_util::io::ReaderStream;

use crate::agent_loop::Agent;
use crate::envelope::{AssetFile, words};
use crate::frame::{Answer, Ask, NO_FILES};
use crate::run::Failure;

const MAX_FILES: usize = 1000;
const TRIES: u32 = 3;
/// For one try. A gigabyte over a slow line takes its time.
const PATIENCE: Duration = Duration::from_secs(600);

/// A collected file. Its bytes are in a file without a name, so nothing is left of it.
struct Collected {
    name: String,
    size: u64,
    bytes: File,
}

/// Why files could not be posted, and whether that is because the bag has no room for them.
#[derive(Default)]
struct Unsaved {
    why: String,
    too_large: bool,
}

impl Agent<'_> {
    /// Whether there is something to hand in.
    pub async fn has_results(&mut self) -> Result<bool, Failure> {
        match self.room.ask(&Ask::List { path: "assets".into() }, &[]).await {
            Ok((Answer::Done, text)) => Ok(text != NO_FILES.as_bytes()),
            Ok(_) => Ok(false),
            Err(error) => Err(Failure::new("sandbox_room", error.to_string())),
        }
    }

    /// Collects and posts; whether there was something. Files that came in `assets/` and did not change are not posted
    /// again.
    pub async fn hand_in(&mut self) -> Result<bool, Failure> {
        let (files, left) = self.collect().await?;
        if files.is_empty() && left.is_empty() {
            return Ok(false);
        }
        let names: Vec<&str> = files.iter().map(|file| file.name.as_str()).collect();
        let step = self.emit.begin("save files", json!({ "files": names })).await?;
        let posted = if files.is_empty() { Ok(()) } else { self.post(&files).await };
        match (&posted, left.is_empty()) {
            (Ok(()), true) => self.emit.succeed(step, json!({ "count": files.len() })).await?,
            (Ok(()), false) => {
                let saved = json!({ "count": files.len() });
                self.emit.fail(step, &format!("not saved: {}", left.join("; ")), saved).await?;
            }
            (Err(unsaved), _) => self.emit.fail(step, &unsaved.why, Value::Null).await?,
        }
        match posted {
            Ok(()) => Ok(true),
            // As with a single file that is too large: the answer is worth having without.
            Err(unsaved) if unsaved.too_large => Ok(false),
            Err(Unsaved { why, .. }) => {
                Err(Failure::new("sandbox_results", format!("the run's files could not be saved: {why}")))
            }
        }
    }

    async fn collect(&mut self) -> Result<(Vec<Collected>, Vec<String>), Failure> {
        let gone = |error: String| Failure::new("sandbox_room", error);
        let mut files: Vec<Collected> = Vec::new();
        let mut left = Vec::new();
        let mut open: Option<(String, Collected, Sha256)> = None;
        let limits = &self.service.limits;
        let (max_file_bytes, max_bytes) = (limits.max_file_bytes, limits.max_bag_bytes);
        let ask = Ask::Collect { max_files: MAX_FILES, max_file_bytes, max_bytes };
        self.room.say(&ask, &[]).await.map_err(|error| gone(error.to_string()))?;
        loop {
            let (answer, bytes) = self.room.hear().await.map_err(|error| gone(error.to_string()))?;
            match answer {
                Answer::Part { path, whole } => {
                    let (_, file, hash) = match &mut open {
                        Some(open) if open.0 == path => open,
                        _ => open.insert(begin(path).map_err(gone)?),
                    };
                    hash.update(&bytes);
                    file.bytes.write_all(&bytes).map_err(|error| gone(error.to_string()))?;
                    file.size += bytes.len() as u64;
                    if file.size < whole {
                        continue;
                    }
                    if let Some((path, file, hash)) = open.take() {
                        self.keep(&path, file, hash, &mut files);
                    }
                }
                Answer::Left { path, why } => left.push(format!("{path}: {why}")),
                _ => return Ok((files, left)),
            }
        }
    }

    fn keep(&self, path: &str, file: Collected, hash: Sha256, files: &mut Vec<Collected>) {
        let sha256: String = hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
        let place = format!("assets/{path}");
        let same = |given: &AssetFile| given.sha256 == sha256 && given.name == place;
        if !self.given.iter().any(same) {
            files.push(file);
        }
    }

    async fn post(&self, files: &[Collected]) -> Result<(), Unsaved> {
        let mut wait = Duration::from_millis(300);
        let mut unsaved = Unsaved::default();
        for attempt in 0..TRIES {
            if attempt > 0 {
                tokio::time::sleep(wait).await;
                wait *= 3;
            }
            let request = self
                .service
                .client
                .post(format!("{}/results", self.envelope.agent_url))
                .header(reqwest::header::AUTHORIZATION, self.envelope.upload_otp.expose())
                .timeout(PATIENCE)
                .multipart(
                    form(files).map_err(|error| Unsaved { why: error.to_string(), too_large: false })?,
                );
            match request.send().await {
                Ok(response) if response.status().is_success() => return Ok(()),
                Ok(response) => {
                    let status = response.status();
                    let said: Value = response.json().await.unwrap_or_default();
                    let said =
                        said["detail"].as_str().map(|detail| format!(": {detail}")).unwrap_or_default();
                    unsaved.why = format!("the answer has status {}{said}", status.as_u16());
                    unsaved.too_large = status == reqwest::StatusCode::PAYLOAD_TOO_LARGE;
                    // What was refused stays refused; what broke off has stored nothing and may be sent again.
                    if !status.is_server_error() {
                        break;
                    }
                }
                Err(error) => unsaved.why = words(&error),
            }
        }
        Err(unsaved)
    }
}

fn begin(path: String) -> Result<(String, Collected, Sha256), String> {
    let bytes = tempfile::tempfile().map_err(|error| format!("a temporary file: {error}"))?;
    // A bag has no folders, and the head of a part takes no control characters: as the server would name it.
    let name = safe_name(&path.replace('/', "-"));
    Ok((path, Collected { name, size: 0, bytes }, Sha256::new()))
}

fn form(files: &[Collected]) -> std::io::Result<Form> {
    let mut form = Form::new();
    for file in files {
        let mut bytes = file.bytes.try_clone()?;
        bytes.rewind()?;
        let stream = ReaderStream::new(tokio::fs::File::from_std(bytes));
        let part = Part::stream_with_length(reqwest::Body::wrap_stream(stream), file.size);
        form = form.part("file", part.file_name(file.name.clone()));
    }
    Ok(form)
}
