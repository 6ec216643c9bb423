//! A file as a line of an export tells of it, without its bytes.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::Refusal;
use super::archive::ArchivedFile;
use crate::file::{Bag, Digest, File, FileSource};
use crate::time::from_ms;

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FileLine {
    id: Uuid,
    message_id: Option<Uuid>,
    name: String,
    mime_type: String,
    size: u64,
    sha256: String,
    source: FileSource,
    run: Option<Uuid>,
    #[serde(rename = "user_id")]
    user: String,
    created_at: i64,
}

impl FileLine {
    pub fn of(of: &ArchivedFile) -> Self {
        let ArchivedFile { file, run, user } = of;
        Self {
            id: file.id,
            message_id: file.message,
            name: file.name.clone(),
            mime_type: file.mime_type.clone(),
            size: file.digest.size,
            sha256: file.sha256_hex(),
            source: file.source,
            run: *run,
            user: user.clone(),
            created_at: file.created_at.as_millisecond(),
        }
    }

    /// The file, in a bag; where its bytes lie is not known yet.
    pub fn read(self, bag: Bag) -> Result<ArchivedFile, Refusal> {
        let sha256 = read_sha256(&self.sha256).ok_or_else(|| {
            Refusal(format!("the sha256 of the file {} is not 64 hexadecimal digits", self.id))
        })?;
        let file = File {
            id: self.id,
            bag,
            message: self.message_id,
            name: self.name,
            mime_type: self.mime_type,
            digest: Digest { size: self.size, sha256, crc32: 0 },
            storage_key: String::new(),
            source: self.source,
            created_at: from_ms(self.created_at),
            deleted_at: None,
        };
        Ok(ArchivedFile { file, run: self.run, user: self.user })
    }
}

/// The 32 bytes that 64 lower-case hexadecimal digits stand for.
pub fn read_sha256(hex: &str) -> Option<[u8; 32]> {
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    let mut bytes = [0; 32];
    if hex.len() != 64 {
        return None;
    }
    for (byte, pair) in bytes.iter_mut().zip(hex.as_bytes().chunks_exact(2)) {
        *byte = digit(*pair.first()?)? * 16 + digit(*pair.get(1)?)?;
    }
    Some(bytes)
}
