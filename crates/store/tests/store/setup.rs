//! Stores to test on, and the few words that all tests use. In: nothing. Out: a fresh, empty store.

use std::ops::Deref;
use std::sync::Arc;

use domain::conversation::{
    Conversation, ConversationFilter, ConversationPatch, ConversationQuery, NewConversation, Seek, Sort,
    Visibility, Write,
};
use domain::message::{MessageRole, NewMessage};
use domain::scope::{Role, Scope};
use domain::secret::Secret;
use domain::time::{Clock as _, FixedClock, from_ms};
use domain::workspace::Workspace;
use jiff::Timestamp;
use store::postgres::{PostgresOptions, PostgresStore};
use store::sqlite::{SqliteStore, Use};
use store::{Result, Store, StoreError};
use testkit::postgres::TestDatabase;
use uuid::Uuid;

/// Where the rows really are, for tests that look behind the contract.
pub enum Behind {
    Sqlite(tempfile::TempDir),
    Postgres(TestDatabase),
}

pub struct TestStore {
    pub store: Arc<dyn Store>,
    pub clock: FixedClock,
    pub behind: Behind,
}

impl Deref for TestStore {
    type Target = dyn Store;

    fn deref(&self) -> &Self::Target {
        &*self.store
    }
}

fn clock() -> FixedClock {
    FixedClock::new(from_ms(1_778_749_956_000))
}

pub fn sqlite() -> TestStore {
    let folder = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(&folder.path().join("threadkeep.db"), Use::Serve).unwrap();
    TestStore { store: Arc::new(store), clock: clock(), behind: Behind::Sqlite(folder) }
}

pub async fn postgres() -> Option<TestStore> {
    let database = testkit::postgres::database().await?;
    let store = open_postgres(&database, true).await;
    Some(TestStore { store, clock: clock(), behind: Behind::Postgres(database) })
}

pub async fn open_postgres(database: &TestDatabase, application_filter: bool) -> Arc<dyn Store> {
    let options = PostgresOptions { connections: 8, application_filter };
    Arc::new(PostgresStore::open(&Secret::new(database.url()), &options).await.unwrap())
}

/// A session as the superuser, who sees every row.
pub async fn superuser(database: &TestDatabase) -> tokio_postgres::Client {
    session(&database.superuser_url().unwrap()).await
}

pub async fn session(url: &str) -> tokio_postgres::Client {
    let (client, connection) = tokio_postgres::connect(url, tokio_postgres::NoTls).await.unwrap();
    #[expect(clippy::disallowed_methods, reason = "the task ends with its client")]
    tokio::spawn(connection);
    client
}

impl TestStore {
    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    pub fn new_id(&self) -> Uuid {
        self.clock.new_id()
    }

    /// A second later.
    pub fn write(&self) -> Write {
        self.clock.advance_ms(1000);
        Write { now: self.now(), max_tabs: 50 }
    }

    /// A new workspace, as its admin sees it.
    pub async fn workspace(&self, admin: &str) -> Scope {
        let workspace = Workspace {
            id: self.new_id(),
            org: "acme".into(),
            name: "Team".into(),
            default_visibility: Visibility::Private,
            created_at: self.now(),
        };
        let scope = Scope {
            workspace: workspace.id,
            org: workspace.org.clone(),
            user: admin.into(),
            role: Role::Admin,
            key: None,
            administers: true,
        };
        self.store.create_workspace(&scope, &workspace).await.unwrap();
        scope
    }

    pub async fn create(&self, scope: &Scope, title: &str) -> Conversation {
        let patch = ConversationPatch { title: Some(Some(title.into())), ..Default::default() };
        self.make(scope, NewConversation { patch, ..Default::default() }).await.unwrap()
    }

    pub async fn create_shared(&self, scope: &Scope, title: &str) -> Conversation {
        let patch = ConversationPatch {
            title: Some(Some(title.into())),
            visibility: Some(Visibility::Workspace),
            ..Default::default()
        };
        self.make(scope, NewConversation { patch, ..Default::default() }).await.unwrap()
    }

    pub async fn make(&self, scope: &Scope, new: NewConversation) -> Result<Conversation> {
        self.create_conversation(scope, &new, self.new_id(), &self.write()).await
    }

    pub async fn patch(
        &self,
        scope: &Scope,
        id: Uuid,
        change: impl FnOnce(&mut ConversationPatch),
    ) -> Result<Conversation> {
        let mut patch = ConversationPatch::default();
        change(&mut patch);
        self.update_conversation(scope, id, &patch, None, &self.write()).await
    }

    pub async fn say(
        &self,
        scope: &Scope,
        conversation: Uuid,
        role: MessageRole,
        text: &str,
    ) -> Conversation {
        let now = self.write().now;
        let message = NewMessage::text(self.new_id(), role, text, now);
        self.append_messages(scope, conversation, None, &[message], now).await.unwrap()
    }

    pub async fn titles(&self, scope: &Scope, query: &ConversationQuery) -> Vec<String> {
        let page = self.list_conversations(scope, query).await.unwrap();
        page.items.into_iter().map(|found| found.title.unwrap_or_default()).collect()
    }

    /// Puts a file into a conversation's bag, behind the store's back.
    pub async fn put_file(&self, scope: &Scope, conversation: Uuid, name: &str, deleted: bool) {
        let columns = "workspace_id, id, conversation_id, name, name_key, mime_type, size, sha256, storage_key, \
                       source, created_at, deleted_at";
        let rest = format!("'{name}', '{name}', 'text/plain', 1");
        match &self.behind {
            Behind::Sqlite(folder) => {
                rusqlite(folder)
                    .execute(
                        &format!(
                            "INSERT INTO files ({columns}) \
                             VALUES (?1, ?2, ?3, {rest}, x'00', 'k', 'user', 0, iif(?4, 1, NULL))"
                        ),
                        (scope.workspace, self.new_id(), conversation, deleted),
                    )
                    .unwrap();
            }
            Behind::Postgres(database) => {
                let text = format!(
                    "INSERT INTO files ({columns}) VALUES ($1, $2, $3, {rest}, '', 'k', 'user', now(), \
                     CASE WHEN $4 THEN now() END)"
                );
                let client = superuser(database).await;
                client
                    .execute(&text, &[&scope.workspace, &self.new_id(), &conversation, &deleted])
                    .await
                    .unwrap();
            }
        }
    }

    /// The names of the live files of a bag.
    pub async fn files(&self, conversation: Uuid) -> Vec<String> {
        let text = "SELECT name FROM files WHERE deleted_at IS NULL AND conversation_id = ";
        match &self.behind {
            Behind::Sqlite(folder) => {
                let db = rusqlite(folder);
                let mut statement = db.prepare(&format!("{text} ?1 ORDER BY name")).unwrap();
                let rows = statement.query_map([conversation], |row| row.get(0)).unwrap();
                rows.map(|name| name.unwrap()).collect()
            }
            Behind::Postgres(database) => {
                let client = superuser(database).await;
                let rows = client.query(&format!("{text} $1 ORDER BY name"), &[&conversation]).await.unwrap();
                rows.iter().map(|row| row.get(0)).collect()
            }
        }
    }
}

/// The file of a SQLite store, beside the store itself.
pub fn rusqlite(folder: &tempfile::TempDir) -> rusqlite::Connection {
    let flags = rusqlite::OpenFlags::SQLITE_OPEN_READ_WRITE;
    rusqlite::Connection::open_with_flags(folder.path().join("threadkeep.db"), flags).unwrap()
}

/// Another user of the same workspace.
pub fn member(scope: &Scope, user: &str) -> Scope {
    Scope { user: user.into(), role: Role::Member, administers: false, ..scope.clone() }
}

/// Live conversations, newest first, a page large enough for a test.
pub fn newest() -> ConversationQuery {
    ConversationQuery {
        filter: ConversationFilter::default(),
        sort: Sort::default(),
        seek: Seek::Start,
        limit: 50,
        with_context: false,
    }
}

/// An error as its kind, to compare; the texts of two databases differ.
pub fn kind(error: &StoreError) -> String {
    match error {
        StoreError::NotFound => "not found".into(),
        StoreError::Taken(what) => format!("{what} taken"),
        StoreError::Conflict { code, .. } => format!("conflict {code}"),
        StoreError::Denied(_) => "denied".into(),
        StoreError::Lost => "lost".into(),
        StoreError::Behind { last_entry } => format!("behind {last_entry}"),
        StoreError::BagFull { .. } => "bag full".into(),
        StoreError::FilesWaiting => "files waiting".into(),
        StoreError::MoreUsed(usage) => {
            format!("more used: {} and {}", usage.input_tokens, usage.output_tokens)
        }
        StoreError::NoAttachment(index) => format!("no attachment {index}"),
        StoreError::Invalid { input, .. } => format!("invalid {input}"),
        StoreError::BadTable(fault) => format!("bad table {}", fault.pointer),
        StoreError::Refused(fault) => format!("refused {fault:?}"),
        StoreError::Unavailable(_) => "unavailable".into(),
        StoreError::NewerSchema { .. } => "newer schema".into(),
        StoreError::Internal(_) => "internal".into(),
    }
}

pub fn fails<T: std::fmt::Debug>(result: Result<T>) -> String {
    kind(&result.unwrap_err())
}
