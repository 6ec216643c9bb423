//! Links that are signed and die by the clock: to the zip of a run's assets, and for the bytes of one promised file.
//! Fields of fixed length in one base64url token, so that a link has one spelling.

use sha2::{Digest as _, Sha256};
use uuid::Uuid;

use super::{opened, sealed};
use crate::secret::Secret;

/// Why a link is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum LinkError {
    #[error("this link is not one of ours")]
    Forged,
    #[error("this link has expired")]
    Expired,
}

/// To the zip of exactly these files of one run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AssetsLink {
    pub workspace: Uuid,
    pub run: Uuid,
    /// The first moment at which it no longer works.
    pub expires_at_ms: i64,
    /// `manifest_of` the files.
    pub manifest: [u8; 32],
}

/// To put the bytes of one promised file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UploadLink {
    pub workspace: Uuid,
    pub file: Uuid,
    pub size: u64,
    pub sha256: [u8; 32],
    /// The first moment at which it no longer works.
    pub expires_at_ms: i64,
}

/// Stands for these files in this order, by id and SHA-256.
pub fn manifest_of(files: impl IntoIterator<Item = (Uuid, [u8; 32])>) -> [u8; 32] {
    let mut hash = Sha256::new_with_prefix("threadkeep assets manifest");
    for (id, sha256) in files {
        hash.update(id.as_bytes());
        hash.update(sha256);
    }
    hash.finalize().into()
}

impl AssetsLink {
    const PREFIX: &str = "tka_";
    const LABEL: &str = "threadkeep assets link";
    const BODY: usize = 16 + 16 + 8 + 32;

    pub fn seal(&self, secret: &Secret) -> String {
        let body = [
            self.workspace.as_bytes().as_slice(),
            self.run.as_bytes(),
            &self.expires_at_ms.to_be_bytes(),
            &self.manifest,
        ];
        sealed(Self::PREFIX, Self::LABEL, &body.concat(), secret)
    }

    /// The link as it was sealed. That the run lives and its files are still these is for the caller to see.
    pub fn open(text: &str, secret: &Secret, now_ms: i64) -> Result<Self, LinkError> {
        let body: Option<[u8; Self::BODY]> = opened(text, Self::PREFIX, Self::LABEL, secret);
        let link = body.and_then(|body| Self::read(Fields(&body))).ok_or(LinkError::Forged)?;
        if now_ms < link.expires_at_ms { Ok(link) } else { Err(LinkError::Expired) }
    }

    fn read(mut fields: Fields<'_>) -> Option<Self> {
        Some(Self {
            workspace: Uuid::from_bytes(fields.take()?),
            run: Uuid::from_bytes(fields.take()?),
            expires_at_ms: i64::from_be_bytes(fields.take()?),
            manifest: fields.take()?,
        })
    }
}

impl UploadLink {
    const PREFIX: &str = "tku_";
    const LABEL: &str = "threadkeep upload link";
    const BODY: usize = 16 + 16 + 8 + 32 + 8;

    pub fn seal(&self, secret: &Secret) -> String {
        let body = [
            self.workspace.as_bytes().as_slice(),
            self.file.as_bytes(),
            &self.size.to_be_bytes(),
            &self.sha256,
            &self.expires_at_ms.to_be_bytes(),
        ];
        sealed(Self::PREFIX, Self::LABEL, &body.concat(), secret)
    }

    /// The link as it was sealed. That the file is still waiting for its bytes is for the caller to see.
    pub fn open(text: &str, secret: &Secret, now_ms: i64) -> Result<Self, LinkError> {
        let body: Option<[u8; Self::BODY]> = opened(text, Self::PREFIX, Self::LABEL, secret);
        let link = body.and_then(|body| Self::read(Fields(&body))).ok_or(LinkError::Forged)?;
        if now_ms < link.expires_at_ms { Ok(link) } else { Err(LinkError::Expired) }
    }

    fn read(mut fields: Fields<'_>) -> Option<Self> {
        Some(Self {
            workspace: Uuid::from_bytes(fields.take()?),
            file: Uuid::from_bytes(fields.take()?),
            size: u64::from_be_bytes(fields.take()?),
            sha256: fields.take()?,
            expires_at_ms: i64::from_be_bytes(fields.take()?),
        })
    }
}

/// What is left of a body.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (field, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*field)
    }
}

#[cfg(test)]
#[path = "link_tests.rs"]
mod tests;
