//! The stores that are measured: one per database and size, filled through the store's own verbs.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use anyhow::Context as _;
use domain::conversation::{Visibility, Write};
use domain::scope::Role;
use domain::secret::Secret;
use domain::time::from_ms;
use domain::workspace::Workspace;
use futures_util::stream::{self, StreamExt as _, TryStreamExt as _};
use store::Store;
use store::postgres::{PostgresOptions, PostgresStore};
use store::sqlite::{SqliteStore, Use};
use tempfile::TempDir;
use testkit::postgres::TestDatabase;
use tokio::task::JoinSet;
use tokio_postgres::NoTls;

use crate::corpus::{self, Draft};
use crate::note;

/// How many conversations are stored at once while loading.
const AT_ONCE: usize = 48;

enum Behind {
    Sqlite(TempDir),
    Postgres(TestDatabase),
}

/// One store with `size` conversations.
pub struct Place {
    pub size: usize,
    pub store: Arc<dyn Store>,
    behind: Behind,
}

impl Place {
    /// A folder of this place's own, with the database's address as a server's setting.
    pub fn address(&self) -> String {
        match &self.behind {
            Behind::Sqlite(folder) => format!("sqlite:{}", file(folder).display()),
            Behind::Postgres(database) => database.url().to_owned(),
        }
    }
}

/// One kind of database, at every size.
pub struct Database {
    pub name: &'static str,
    pub places: Vec<Place>,
}

fn file(folder: &TempDir) -> PathBuf {
    folder.path().join("threadkeep.db")
}

impl Database {
    pub fn sqlite(sizes: &[usize]) -> anyhow::Result<Self> {
        let place = |size: &usize| {
            let folder = tempfile::tempdir()?;
            // As a command, so that a server can be started beside it.
            let store = Arc::new(SqliteStore::open(&file(&folder), Use::Command)?);
            anyhow::Ok(Place { size: *size, store, behind: Behind::Sqlite(folder) })
        };
        let places = sizes.iter().map(place).collect::<anyhow::Result<_>>()?;
        Ok(Self { name: "SQLite", places })
    }

    /// `None` where there is no PostgreSQL.
    pub async fn postgres(sizes: &[usize]) -> anyhow::Result<Option<Self>> {
        let mut places = Vec::new();
        for size in sizes {
            let Some(database) = testkit::postgres::database().await else { return Ok(None) };
            let store = Arc::new(open(database.url()).await?);
            places.push(Place { size: *size, store, behind: Behind::Postgres(database) });
        }
        Ok(Some(Self { name: "PostgreSQL", places }))
    }
}

async fn open(url: &str) -> anyhow::Result<PostgresStore> {
    Ok(PostgresStore::open(&Secret::new(url), &PostgresOptions::default()).await?)
}

/// Fills every store; the databases at the same time, their sizes one after the other.
pub async fn load(databases: &[Database]) -> anyhow::Result<()> {
    let mut loading = JoinSet::new();
    for database in databases {
        let mut work = Vec::new();
        for place in &database.places {
            let (store, maintenance) = match &place.behind {
                Behind::Sqlite(_) => (Arc::clone(&place.store), None),
                // Nothing of the loading has to survive a power cut.
                Behind::Postgres(behind) => {
                    let url = format!("{}?options=-c%20synchronous_commit%3Doff", behind.url());
                    (Arc::new(open(&url).await?) as Arc<dyn Store>, Some(behind.url().to_owned()))
                }
            };
            work.push((place.size, store, maintenance));
        }
        let name = database.name;
        loading.spawn(async move {
            for (size, store, maintenance) in work {
                let started = Instant::now();
                fill(&*store, size).await?;
                if let Some(url) = maintenance {
                    vacuum(&url).await?;
                }
                note(&format!("{name}: {size} conversations in {:.1} s", started.elapsed().as_secs_f64()));
            }
            anyhow::Ok(())
        });
    }
    while let Some(loaded) = loading.join_next().await {
        loaded??;
    }
    Ok(())
}

async fn fill(store: &dyn Store, size: usize) -> anyhow::Result<()> {
    let admin = corpus::scope(corpus::ADMIN, Role::Admin);
    let workspace = Workspace {
        id: corpus::WORKSPACE,
        org: corpus::ORG.into(),
        name: "Bench".into(),
        default_visibility: Visibility::Private,
        created_at: from_ms(0),
    };
    store.create_workspace(&admin, &workspace).await?;
    store.put_member(&admin, corpus::MEMBER, Role::Member, from_ms(0)).await?;
    let drafts = stream::iter(corpus::drafts(size)).map(|draft| keep(store, draft));
    drafts.buffer_unordered(AT_ONCE).try_collect::<()>().await
}

async fn keep(store: &dyn Store, draft: Draft) -> anyhow::Result<()> {
    let write = Write { now: draft.created_at, max_tabs: 50 };
    store.create_conversation(&draft.scope, &draft.new, draft.id, &write).await?;
    store.append_messages(&draft.scope, draft.id, &draft.messages, draft.updated_at).await?;
    Ok(())
}

/// What autovacuum does a minute later, so that two runs start from the same.
async fn vacuum(url: &str) -> anyhow::Result<()> {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
    tokio::select! {
        done = client.batch_execute("VACUUM (ANALYZE)") => done.context("VACUUM"),
        ended = connection => Ok(ended?),
    }
}
