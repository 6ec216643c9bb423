//! Files as the tests put them into bags.

use std::sync::Arc;

use domain::file::{Bag, Digest, File, FileSource};
use domain::scope::Scope;
use futures_util::future::join_all;
use jiff::Timestamp;
use store::files::{NewExecution, NewFile, Promised, Reserved, Stored};
use store::turns::{Begun, Held};
use store::{Result, Store};
use uuid::Uuid;

use crate::play::{LEASE, NODE};
use crate::setup::TestStore;

/// A bag that nothing fills.
pub const ROOMY: u64 = 1 << 40;

/// What lies behind a reservation: so many bytes.
pub fn stored(id: Uuid, size: u64) -> Stored {
    let digest = Digest { size, sha256: [size as u8; 32], crc32: u32::MAX - size as u32 };
    Stored { id, digest, mime_type: "text/plain".into() }
}

pub fn ids(files: &[File]) -> Vec<Uuid> {
    files.iter().map(|file| file.id).collect()
}

pub fn names(files: &[File]) -> Vec<&str> {
    files.iter().map(|file| file.name.as_str()).collect()
}

/// Answers of calls that are all under way at once.
pub async fn at_once<T: Send + 'static, F: Future<Output = T> + Send + 'static>(
    store: &TestStore,
    count: usize,
    call: impl Fn(Arc<dyn Store>, usize) -> F,
) -> Vec<T> {
    #[expect(clippy::disallowed_methods, reason = "each task is awaited")]
    let tasks = (0..count).map(|at| tokio::spawn(call(Arc::clone(&store.store), at)));
    let tasks: Vec<_> = tasks.collect();
    join_all(tasks).await.into_iter().map(|answer| answer.unwrap()).collect()
}

impl TestStore {
    pub fn new_file(&self, name: &str) -> NewFile {
        NewFile { id: self.new_id(), name: name.into(), source: FileSource::User, promised: None }
    }

    pub fn promise(&self, name: &str, size: u64, expires_at: Timestamp) -> NewFile {
        let promised = Promised { size, sha256: [9; 32], expires_at };
        NewFile { promised: Some(promised), ..self.new_file(name) }
    }

    pub async fn reserve(&self, scope: &Scope, bag: Bag, name: &str) -> Result<Reserved> {
        let new = [self.new_file(name)];
        Ok(self.reserve_files(scope, bag, &new, ROOMY, self.now()).await?.remove(0))
    }

    /// Makes one reservation visible.
    pub async fn keep(&self, scope: &Scope, bag: Bag, id: Uuid, size: u64) -> Result<File> {
        Ok(self.keep_files(scope, bag, &[stored(id, size)], ROOMY, self.now()).await?.remove(0))
    }

    pub async fn upload(&self, scope: &Scope, bag: Bag, name: &str) -> File {
        let reserved = self.reserve(scope, bag, name).await.unwrap();
        self.keep(scope, bag, reserved.id, 5).await.unwrap()
    }

    pub async fn listed(&self, scope: &Scope, bag: Bag) -> Vec<String> {
        let files = self.list_files(scope, bag, None, 1000).await.unwrap();
        files.into_iter().map(|file| file.name).collect()
    }

    /// Reservations in a run's bag, as its sandbox sends them, with their bytes stored.
    pub async fn sent_back(&self, scope: &Scope, bag: Bag, names: &[&str]) -> Vec<Stored> {
        let new: Vec<NewFile> =
            names.iter().map(|name| NewFile { source: FileSource::Sandbox, ..self.new_file(name) }).collect();
        let reserved = self.reserve_files(scope, bag, &new, ROOMY, self.now()).await.unwrap();
        reserved.iter().map(|reserved| stored(reserved.id, 3)).collect()
    }

    pub fn new_execution(&self, prompt: &str, files: Vec<Stored>) -> NewExecution {
        self.clock.advance_ms(1000);
        NewExecution {
            id: self.new_id(),
            run: self.new_id(),
            prompt: prompt.into(),
            agent: Some("a".into()),
            workflow: Some("w".into()),
            model: Some("m".into()),
            files,
            idempotency: None,
            node: NODE,
            lease_seconds: LEASE,
            open_runs: domain::open_runs::RunLimits { user: 1000, workspace: 0 },
            tokens: domain::tokens::TokenLimits::default(),
            max_bag_bytes: ROOMY,
            now: self.now(),
        }
    }

    /// An execution under way: its id and its run.
    pub async fn executed(&self, scope: &Scope, prompt: &str) -> (Uuid, Held) {
        let new = self.new_execution(prompt, Vec::new());
        match self.begin_execution(scope, &new).await.unwrap() {
            Begun::Started { lease, .. } => (new.id, Held { workspace: scope.workspace, lease }),
            other => panic!("not started: {other:?}"),
        }
    }
}
