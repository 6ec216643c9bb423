//! The files that a prompt shows, read when they are first sent and kept for the run's further calls. One that cannot be
//! read any more is told of in words.

use std::collections::HashMap;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use domain::media::decoded;
use domain::model::{Part, PartKind, Prompt, Said, keepable};
use futures_util::StreamExt as _;
use store::StoreError;
use uuid::Uuid;

use super::{Halt, ModelRun, until};
use crate::log::retry;
use crate::settle::own_scope;

/// What was read; none is a file that is no more, or not what its type says.
pub(super) type Read = HashMap<Uuid, Option<Arc<str>>>;

impl ModelRun<'_> {
    /// Puts what the files hold into the prompt, and answers their names.
    pub(super) async fn fill(&mut self, prompt: &mut Prompt) -> Result<Vec<String>, Halt> {
        let mut names = Vec::new();
        for said in &mut prompt.messages {
            let Said::User(words) = said else { continue };
            for mut part in std::mem::take(&mut words.parts) {
                match self.read(&part).await? {
                    Some(data) => {
                        names.push(part.name.clone());
                        part.data = data;
                        words.parts.push(part);
                    }
                    None => words.text.push_str(&format!("\n\n[{} cannot be read any more]", part.name)),
                }
            }
        }
        Ok(names)
    }

    async fn read(&mut self, part: &Part) -> Result<Option<Arc<str>>, Halt> {
        if let Some(read) = self.read.get(&part.file) {
            return Ok(read.clone());
        }
        let (store, scope) = (&self.turns.inner.store, own_scope(&self.log.held));
        let found = retry(self.log.live(), || async {
            match store.get_file(&scope, part.file).await {
                Err(StoreError::NotFound) => Ok(None),
                found => found.map(Some),
            }
        });
        // Files of other conversations are not this one's to show.
        let found = found.await?.filter(|file| file.bag == self.bag());
        let data = match found {
            Some(file) => {
                let reading = self.bytes(&file.storage_key);
                until(&mut self.stop, reading).await?.and_then(|bytes| content(part.kind, bytes))
            }
            None => None,
        };
        self.read.insert(part.file, data.clone());
        Ok(data)
    }

    fn bytes(&self, key: &str) -> impl Future<Output = Option<Vec<u8>>> + Send + 'static {
        let (blobs, key) = (self.turns.inner.blobs.clone(), key.to_owned());
        async move {
            let mut read = blobs.read(&key, None).await.ok()?;
            let mut bytes = Vec::new();
            while let Some(chunk) = read.next().await {
                bytes.extend_from_slice(&chunk.ok()?);
            }
            Some(bytes)
        }
    }
}

fn content(kind: PartKind, bytes: Vec<u8>) -> Option<Arc<str>> {
    match kind {
        PartKind::Text => decoded(&bytes, true).map(|text| keepable(&text).into()),
        PartKind::Image | PartKind::Pdf => Some(STANDARD.encode(bytes).into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_in_utf16_is_told_as_text() {
        let bytes = std::iter::once(0xfeff).chain("a;ü".encode_utf16()).flat_map(u16::to_le_bytes);
        assert_eq!(content(PartKind::Text, bytes.collect()).as_deref(), Some("a;ü"));
        assert_eq!(content(PartKind::Text, b"\xff\xfea".to_vec()), None);
    }
}
