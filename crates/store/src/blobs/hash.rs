//! The digest of bytes as they pass by.

use domain::file::Digest;
use sha2::Digest as _;

#[derive(Debug, Clone, Default)]
pub(super) struct Hasher {
    size: u64,
    sha256: sha2::Sha256,
    crc32: crc32fast::Hasher,
}

impl Hasher {
    pub(super) fn update(&mut self, bytes: &[u8]) {
        self.size += bytes.len() as u64;
        self.sha256.update(bytes);
        self.crc32.update(bytes);
    }

    pub(super) fn digest(self) -> Digest {
        Digest { size: self.size, sha256: self.sha256.finalize().into(), crc32: self.crc32.finalize() }
    }
}
