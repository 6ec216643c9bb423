//! The stores that are measured: one per database and size.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use anyhow::Context as _;
use domain::conversation::Visibility;
use domain::scope::{Role, Scope};
use domain::secret::Secret;
use domain::time::from_ms;
use domain::workspace::Workspace;
use store::Store;
use store::postgres::{PostgresOptions, PostgresStore};
use store::sqlite::{SqliteStore, Use};
use tempfile::TempDir;
use testkit::postgres::TestDatabase;
use tokio::task::JoinSet;

use crate::{corpus, load, note};

enum Behind {
    Sqlite(TempDir),
    Postgres(TestDatabase),
}

/// Where rows go in bulk.
enum Target {
    File(PathBuf),
    Superuser(String),
}

/// One store with `size` conversations.
pub struct Place {
    pub size: usize,
    pub store: Arc<dyn Store>,
    behind: Behind,
}

impl Place {
    fn target(&self) -> anyhow::Result<Target> {
        match &self.behind {
            Behind::Sqlite(folder) => Ok(Target::File(file(folder))),
            Behind::Postgres(database) => Ok(Target::Superuser(
                database.superuser_url().context("TEST_POSTGRES_SUPERUSER_URL is not set")?,
            )),
        }
    }

    /// The database as a server's setting names it.
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
        let places: Vec<_> = database
            .places
            .iter()
            .map(|place| (place.size, Arc::clone(&place.store), place.target()))
            .collect();
        let name = database.name;
        loading.spawn(async move {
            for (size, store, target) in places {
                let started = Instant::now();
                make_workspaces(&*store).await?;
                match target? {
                    Target::File(file) => {
                        tokio::task::spawn_blocking(move || load::fill_sqlite(&file, size)).await??;
                    }
                    Target::Superuser(url) => load::fill_postgres(&url, size).await?,
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

pub async fn make_workspaces(store: &dyn Store) -> anyhow::Result<()> {
    for (id, member) in [(corpus::WORKSPACE, corpus::MEMBER), (corpus::HOSTED, corpus::HOST)] {
        let admin = Scope { workspace: id, ..corpus::scope(corpus::ADMIN, Role::Admin) };
        let workspace = Workspace {
            id,
            org: corpus::ORG.into(),
            name: "Bench".into(),
            default_visibility: Visibility::Private,
            created_at: from_ms(0),
        };
        store.create_workspace(&admin, &workspace).await?;
        store.put_member(&admin, member, Role::Member, from_ms(0)).await?;
    }
    Ok(())
}
