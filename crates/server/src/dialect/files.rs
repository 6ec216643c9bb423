//! Files that come within a message: as `data:` URLs, or as links to files that are here already.

use base64::Engine as _;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use bytes::Bytes;
use domain::file::{Bag, File, FileSource};
use domain::scope::Scope;
use store::StoreError;
use uuid::Uuid;

use super::FilePart;
use crate::extract::upload::{Target, Upload};
use crate::jsonapi::error::shown;
use crate::problem::Problem;
use crate::state::AppState;

/// Padding or none: both are around.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// Where the bytes of a part are.
pub enum Found {
    Here(Bytes),
    File(Uuid),
}

/// Reads a part without touching anything.
pub fn find(app: &AppState, part: &FilePart) -> Result<Found, Problem> {
    let refused = |detail: String| Problem::invalid_value(&part.pointer, detail);
    if let Some(data) = part.url.strip_prefix("data:") {
        return decode(data)
            .map(Found::Here)
            .ok_or_else(|| refused("The data: URL of a file cannot be read.".into()));
    }
    let path = part.url.strip_prefix(&app.public_url).unwrap_or(&part.url);
    let id = path.strip_suffix("/content").and_then(|path| {
        let (kind, id) = path.rsplit_once('/')?;
        let own =
            kind == "/v1/files" || (kind.starts_with("/v1/chat-conversations/") && kind.ends_with("/files"));
        own.then(|| Uuid::try_parse(id).ok())?
    });
    id.map(Found::File).ok_or_else(|| {
        let link = shown(&part.url);
        refused(format!("The file {link} is not on this server: upload it here, or send it as a data: URL."))
    })
}

fn decode(data: &str) -> Option<Bytes> {
    let (head, body) = data.split_once(',')?;
    if head.ends_with(";base64") {
        return BASE64.decode(body).ok().map(Bytes::from);
    }
    let (mut bytes, mut rest) = (Vec::new(), body.bytes());
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'%' => {
                let digit = |byte: Option<u8>| char::from(byte?).to_digit(16);
                (digit(rest.next())? * 16 + digit(rest.next())?) as u8
            }
            byte => byte,
        });
    }
    Some(bytes.into())
}

/// What can be refused before anything is written.
pub fn check(app: &AppState, parts: &[FilePart]) -> Result<(), Problem> {
    let most = app.limits.max_files_per_message;
    if let Some(over) = usize::try_from(most).ok().and_then(|most| parts.get(most)) {
        let detail = format!("The message has more than the {most} files that it may have.");
        return Err(Problem::invalid_value(&over.pointer, detail).with("limit", most));
    }
    for part in parts {
        find(app, part)?;
    }
    Ok(())
}

/// The files of a message.
pub struct Put {
    /// In the order of its parts.
    pub files: Vec<File>,
    /// Of those, the ones that were not there before.
    pub new: Vec<Uuid>,
}

/// Puts the parts into a conversation's bag, all or none.
pub async fn put(
    app: &AppState,
    scope: &Scope,
    conversation: Uuid,
    parts: &[FilePart],
) -> Result<Put, Problem> {
    let bag = Bag::Conversation(conversation);
    let mut upload = Upload::new(app, scope, Target { bag, source: FileSource::User });
    let (mut ids, mut files) = (Vec::with_capacity(parts.len()), Vec::new());
    for part in parts {
        match find(app, part)? {
            Found::Here(bytes) => upload.take_bytes(&file_name(part), bytes).await?,
            Found::File(id) => {
                let file = match app.store.get_file(scope, id).await {
                    Err(StoreError::NotFound) => {
                        let detail = format!("There is no file {id} here, or not for you.");
                        return Err(Problem::invalid_value(&part.pointer, detail));
                    }
                    file => file?,
                };
                if file.bag == bag {
                    ids.push(id);
                    files.push(file);
                    continue;
                }
                upload.copy(&file).await?;
            }
        }
        ids.extend(upload.stored.last().map(|stored| stored.id));
    }
    let new: Vec<Uuid> = upload.stored.iter().map(|stored| stored.id).collect();
    if !new.is_empty() {
        files.extend(upload.keep().await?);
    }
    let named = |id: Uuid| files.iter().find(|file| file.id == id).cloned();
    Ok(Put { files: ids.into_iter().filter_map(named).collect(), new })
}

/// What a file is called that came without a name, too.
pub fn file_name(part: &FilePart) -> String {
    let subtype = part.media_type.split(['/', ';', '+']).nth(1).unwrap_or("").trim();
    match (&part.name, subtype) {
        (Some(name), _) => name.clone(),
        (None, "" | "octet-stream") => "file".into(),
        (None, "plain") => "file.txt".into(),
        (None, subtype) => format!("file.{subtype}"),
    }
}
