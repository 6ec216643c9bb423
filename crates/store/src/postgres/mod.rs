//! The shared backend: PostgreSQL, under a role that row level security holds for.

mod agents;
mod approvals;
mod archive;
mod archive_runs;
mod audit;
mod branches;
mod clients;
mod conversations;
mod error;
mod executions;
mod files;
mod fork_files;
mod imports;
mod keys;
mod leases;
mod log;
mod members;
mod messages;
mod news;
mod open;
mod pages;
mod presence;
mod purge;
mod rows;
mod run_files;
mod runs;
mod search;
mod segments;
mod tables;
mod tool_servers;
mod transaction;
mod turns;
mod usage;
mod workspaces;

use std::sync::Arc;

use async_trait::async_trait;
use domain::secret::Secret;

use self::imports::Imports;
use self::presence::Presence;
use self::transaction::Database;
use self::turns::append::Appends;
use crate::error::Result;
use crate::list::Dialect;
use crate::store::Store;

#[derive(Debug, Clone)]
pub struct PostgresOptions {
    /// How many connections may be open at once.
    pub connections: usize,
    /// Whether queries carry the application's own filter. Off only in tests, which then see what row
    /// level security alone lets through.
    pub application_filter: bool,
}

impl Default for PostgresOptions {
    fn default() -> Self {
        Self { connections: 16, application_filter: true }
    }
}

pub struct PostgresStore {
    database: Database,
    appends: Appends,
    imports: Imports,
    /// How a connection beside the pool is made.
    config: tokio_postgres::Config,
}

impl PostgresStore {
    /// Connects, makes its roles where they are missing, and brings the schema up to date.
    pub async fn open(url: &Secret, options: &PostgresOptions) -> Result<Self> {
        let dialect =
            if options.application_filter { Dialect::Postgres } else { Dialect::PostgresUnfiltered };
        let open::Opened { pool, appends, config } = open::open(url, options.connections).await?;
        let presence = Arc::new(Presence::new(config.clone()));
        let (appends, imports) = (Appends::new(appends), Imports::default());
        Ok(Self { database: Database { pool, dialect, presence }, appends, imports, config })
    }

    /// The schema version of the database, without changing it; `None` for one without a schema.
    pub async fn schema_version(url: &Secret) -> Result<Option<i32>> {
        open::schema_version(url).await
    }
}

#[async_trait]
impl Store for PostgresStore {
    async fn ping(&self) -> Result<()> {
        self.database.ping().await
    }

    async fn close(&self) {
        self.database.pool.close();
        self.appends.close();
    }
}
