//! Conversations and executions, whole: the bytes of their files first, then all their rows in one transaction.

use std::collections::HashSet;
use std::sync::Arc;

use anyhow::{Context as _, Result, bail};
use domain::file::{Bag, Digest};
use domain::scope::Scope;
use domain::transfer::growth::{Growth, grown};
use domain::transfer::{Archive, ArchivedExecution, ArchivedFile, Trace};
use store::StoreError;
use store::files::{NewFile, Reserved, Stored};
use store::transfer::Pieces;
use tokio::io::AsyncReadExt as _;
use uuid::Uuid;

use super::super::input::Bytes;
use super::super::report::Outcome;
use super::Importer;

const CHUNK: usize = 256 * 1024;
/// How often a conversation is looked at again that others write to.
const GROW_TRIES: usize = 5;

impl Importer {
    pub(super) async fn conversation(
        &self,
        mut archive: Archive,
        bytes: &[Bytes],
        traces: Option<Arc<dyn Pieces<Trace>>>,
    ) -> Result<Outcome> {
        archive.put_into(self.scope.workspace, &self.scope.org);
        if let Some(owner) = &self.owner {
            archive.conversation.owner.clone_from(owner);
        }
        if let Err(refusal) = archive.check(self.max_tabs) {
            return Ok(Outcome::Refused(refusal.0));
        }
        // Only ours have logs; somebody else's may have gone on there.
        let ours = traces.is_some();
        // Bytes are put down before the rows that name them; without any, the store sees by itself what is there.
        if self.dry || !archive.files.is_empty() {
            if self.store.known_conversations(&self.scope, &[archive.conversation.id]).await? == [true] {
                return if ours { Ok(Outcome::AlreadyThere) } else { self.grow(&archive, bytes).await };
            }
            if self.dry {
                return Ok(Outcome::Imported);
            }
        }
        let keys = self.store_all(&mut archive.files, bytes).await?;
        let (archive, traces) = (Arc::new(archive), traces.unwrap_or_else(|| Arc::new(Vec::new())));
        let imported = self.store.import_archive(&self.scope, Arc::clone(&archive), traces).await;
        match self.settled(imported, keys).await? {
            Outcome::AlreadyThere if !ours => self.grow(&archive, bytes).await,
            outcome => Ok(outcome),
        }
    }

    /// Somebody else's conversation again, which may have gone on there.
    async fn grow(&self, archive: &Archive, bytes: &[Bytes]) -> Result<Outcome> {
        let id = archive.conversation.id;
        let known: HashSet<Uuid> = match self.store.list_message_ids(&self.scope, id).await {
            Ok(ids) => ids.into_iter().collect(),
            // Deleted here, and not to come back.
            Err(StoreError::NotFound) => return Ok(Outcome::AlreadyThere),
            Err(error) => return Err(error.into()),
        };
        let mut messages = archive.branches.iter().flat_map(|branch| &branch.messages);
        if messages.all(|message| known.contains(&message.id)) {
            return Ok(Outcome::AlreadyThere);
        }
        for _ in 0..GROW_TRIES {
            let old = self.store.get_archive(&self.scope, id).await?;
            let Some(mut growth) = grown(&old, archive) else { return Ok(Outcome::AlreadyThere) };
            let outcome =
                Outcome::Grown { messages: growth.messages.len() as u64, files: growth.files.len() as u64 };
            if self.dry {
                return Ok(outcome);
            }
            let stored = self.store_grown(&mut growth, archive, bytes).await?;
            match self.store.extend_archive(&self.scope, Arc::new(growth), &stored).await {
                Ok(true) => return Ok(outcome),
                Ok(false) => {}
                Err(StoreError::Conflict { detail, .. }) => return Ok(Outcome::Refused(detail.to_owned())),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(Outcome::Refused("it is being written to all the time: import it again later".to_owned()))
    }

    /// Makes the bytes of new files durable, under names that are free in the bag.
    async fn store_grown(
        &self,
        growth: &mut Growth,
        archive: &Archive,
        bytes: &[Bytes],
    ) -> Result<Vec<Stored>> {
        let bag = Bag::Conversation(archive.conversation.id);
        let mut stored = Vec::new();
        for (of, bytes) in archive.files.iter().zip(bytes) {
            if growth.files.iter().all(|new| new.file.id != of.file.id) {
                continue;
            }
            let Some(reserved) = self.reserve(of, bag).await? else {
                growth.files.retain(|new| new.file.id != of.file.id);
                continue;
            };
            if reserved.name != of.file.name {
                growth.rename(of.file.id, &reserved.name)?;
            }
            let digest = self.store_bytes(&reserved.storage_key, bytes).await?;
            stored.push(Stored { id: of.file.id, digest, mime_type: of.file.mime_type.clone() });
        }
        Ok(stored)
    }

    /// A name for a file in a bag, with a number where its own is taken; none for one that was there and is deleted.
    pub(super) async fn reserve(&self, of: &ArchivedFile, bag: Bag) -> Result<Option<Reserved>> {
        let (file, scope) = (&of.file, Scope { user: of.user.clone(), ..self.scope.clone() });
        match self.store.get_reserved(&scope, bag, file.id).await {
            // Left by an import that was killed: it goes on.
            Ok(reserved) => return Ok(Some(reserved)),
            Err(StoreError::NotFound) => {}
            Err(error) => return Err(error.into()),
        }
        let (name, source) = (file.name.clone(), file.source);
        let new = NewFile { id: file.id, name, source, promised: None };
        match self.store.reserve_files(&scope, bag, &[new], u64::MAX, self.clock.now()).await {
            Ok(mut reserved) => Ok(reserved.pop()),
            Err(StoreError::Taken(_)) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    pub(super) async fn execution(
        &self,
        mut execution: ArchivedExecution,
        bytes: &[Bytes],
        traces: Arc<dyn Pieces<Trace>>,
    ) -> Result<Outcome> {
        execution.put_into(self.scope.workspace);
        if let Some(owner) = &self.owner {
            execution.run.user.clone_from(owner);
        }
        if let Err(refusal) = execution.check() {
            return Ok(Outcome::Refused(refusal.0));
        }
        match self.store.get_execution(&self.scope, execution.id).await {
            Ok(_) => return Ok(Outcome::AlreadyThere),
            Err(StoreError::NotFound) if self.dry => return Ok(Outcome::Imported),
            Err(StoreError::NotFound) => {}
            Err(error) => return Err(error.into()),
        }
        let keys = self.store_all(&mut execution.files, bytes).await?;
        let imported = self.store.import_execution(&self.scope, Arc::new(execution), traces).await;
        self.settled(imported, keys).await
    }

    /// Makes the bytes of files durable; the keys that they lie under.
    async fn store_all(&self, files: &mut [ArchivedFile], bytes: &[Bytes]) -> Result<Vec<String>> {
        for (ArchivedFile { file, .. }, bytes) in files.iter_mut().zip(bytes) {
            file.digest = self.store_bytes(&file.storage_key, bytes).await?;
        }
        Ok(files.iter().map(|of| of.file.storage_key.clone()).collect())
    }

    /// What became of it. Bytes of what is refused go again.
    async fn settled(&self, imported: store::Result<bool>, keys: Vec<String>) -> Result<Outcome> {
        match imported {
            Ok(true) => Ok(Outcome::Imported),
            Ok(false) => Ok(Outcome::AlreadyThere),
            Err(StoreError::Taken(what)) => {
                for key in keys {
                    self.blobs.remove(&key).await?;
                }
                Ok(Outcome::Refused(format!("{what} is taken by something else of the workspace")))
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Puts the bytes under their key, durably.
    pub(super) async fn store_bytes(&self, key: &str, bytes: &Bytes) -> Result<Digest> {
        let named = || format!("{} cannot be read", bytes.path.display());
        let mut from = tokio::fs::File::open(&bytes.path).await.with_context(named)?;
        let mut writer = self.blobs.writer(key).await?;
        let mut chunk = vec![0; CHUNK];
        loop {
            match from.read(&mut chunk).await.with_context(named)? {
                0 => break,
                read => writer.write(bytes::Bytes::copy_from_slice(&chunk[..read])).await?,
            }
        }
        let digest = writer.finish().await?;
        if digest.sha256 != bytes.sha256 {
            self.blobs.remove(key).await?;
            bail!("{} was changed while it was read", bytes.path.display());
        }
        Ok(digest)
    }
}
