//! Opening the database: address, TLS, the role that owns nothing, migrations, the pool.

use std::error::Error as _;
use std::sync::Arc;
use std::time::Duration;

use deadpool_postgres::{Hook, HookError, Manager, ManagerConfig, Object, Pool, RecyclingMethod, Runtime};
use domain::secret::Secret;
use tokio_postgres::config::{Host, SslMode};
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, Config, NoTls};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::error::{describe, is_contention, pool_error};
use super::transaction::TRIES;
use crate::error::{Result, StoreError};

mod embedded {
    refinery::embed_migrations!("migrations/postgres");
}

/// The role that every query runs as. It owns nothing, so row level security holds for it.
const ROLE: &str = "threadkeep_app";
/// The role of the nodes' own work over all workspaces, which is let near nothing that a person wrote.
const SYSTEM_ROLE: &str = "threadkeep_system";
/// Held while the schema is looked at and changed; any number that nobody else uses.
const MIGRATION_LOCK: i64 = 0x7468_7265_6164;
const CONNECT: Duration = Duration::from_secs(10);
const WAIT: Duration = Duration::from_secs(30);
/// By when a connection is given up whose other end acknowledges nothing.
const UNHEARD: Duration = Duration::from_secs(10);
/// Before the kernel asks the other end of an idle connection, where the address does not say.
const IDLE: Duration = Duration::from_secs(10);
const NOT_SAID: Duration = Duration::from_secs(2 * 60 * 60);
/// Less than the 5 s after its lease by which a node's runs are another's.
const ASLEEP: &str = "4s";

pub(super) struct Opened {
    pub(super) pool: Pool,
    /// Of the one connection for appends, whose statements are transactions by themselves.
    pub(super) appends: Pool,
    /// How a connection beside them is made.
    pub(super) config: Config,
}

/// Brings the schema up to date.
pub(super) async fn open(url: &Secret, connections: usize) -> Result<Opened> {
    let config = parse(url)?;
    let setup = pool(&config, 1, None)?;
    let schema = {
        let mut client = connect(&setup, &config).await?;
        client.execute("SELECT pg_advisory_lock($1)", &[&MIGRATION_LOCK]).await?;
        prepare_role(&client, ROLE).await?;
        prepare_role(&client, SYSTEM_ROLE).await?;
        migrate(&mut client).await?;
        let schema = grant(&client).await?;
        // The session ends here, and its lock with it.
        drop(Object::take(client));
        schema
    };
    setup.close();
    // Planning a list takes several times as long as running it, and no value of a parameter makes another
    // plan better: every query is written for its index. What is accepted is on disk, whatever the server's
    // own setting; a stronger one stays. A node that falls asleep inside a transaction must not keep its locks.
    let on_connect = format!(
        "SET ROLE {ROLE}; SET search_path = {schema}; SET jit = off; SET plan_cache_mode = force_generic_plan; \
         SET idle_in_transaction_session_timeout = '{ASLEEP}'; \
         SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off'"
    );
    // Safe against the death of this process; PostgreSQL's own crash may cost a fraction of a second, which the writers of the
    // logs append again.
    let for_appends = format!(
        "{on_connect}; SET synchronous_commit = off; SET default_transaction_isolation = 'read committed'; \
         SET default_transaction_read_only = off; SELECT set_config('threadkeep.sees_all', 'on', false)"
    );
    let appends = pool(&config, 1, Some(for_appends))?;
    Ok(Opened { pool: pool(&config, connections, Some(on_connect))?, appends, config })
}

fn parse(url: &Secret) -> Result<Config> {
    // The parser knows `require` alone; the certificate is checked in every case.
    let text = url
        .expose()
        .replace("sslmode=verify-full", "sslmode=require")
        .replace("sslmode=verify-ca", "sslmode=require");
    // The parser's own words may repeat parts of the address, and so of the password.
    let mut config: Config = text.parse().map_err(|_| {
        StoreError::Unavailable(
            "the database address is not understood: write postgres://user:password@host:5432/database, \
             with ?sslmode=require for TLS"
                .into(),
        )
    })?;
    config.application_name("threadkeep");
    if config.get_connect_timeout().is_none() {
        config.connect_timeout(CONNECT);
    }
    if config.get_tcp_user_timeout().is_none() {
        config.tcp_user_timeout(UNHEARD);
    }
    if config.get_keepalives_idle() == NOT_SAID {
        config.keepalives_idle(IDLE).keepalives_interval(UNHEARD / 2).keepalives_retries(3);
    }
    Ok(config)
}

/// Where the server is, without the password.
fn place(config: &Config) -> String {
    let ports = config.get_ports();
    let hosts = config.get_hosts().iter().enumerate().map(|(index, host)| {
        let port = ports.get(index).or(ports.first()).copied().unwrap_or(5432);
        match host {
            Host::Tcp(name) => format!("{name}:{port}"),
            #[cfg(unix)]
            Host::Unix(folder) => format!("{}:{port}", folder.display()),
        }
    });
    let hosts: Vec<String> = hosts.collect();
    let (user, database) = (config.get_user().unwrap_or(""), config.get_dbname().unwrap_or(""));
    format!("{}, database {database:?} as {user:?}", hosts.join(","))
}

fn pool(config: &Config, connections: usize, on_connect: Option<String>) -> Result<Pool> {
    let settings = ManagerConfig { recycling_method: RecyclingMethod::Fast };
    let manager = match config.get_ssl_mode() {
        SslMode::Require => Manager::from_config(config.clone(), tls()?, settings),
        _ => Manager::from_config(config.clone(), NoTls, settings),
    };
    let mut pool = Pool::builder(manager)
        .max_size(connections)
        .runtime(Runtime::Tokio1)
        .wait_timeout(Some(WAIT))
        .create_timeout(Some(2 * CONNECT));
    if let Some(sql) = on_connect {
        let sql: Arc<str> = sql.into();
        pool = pool.post_create(Hook::async_fn(move |client, _| {
            let sql = Arc::clone(&sql);
            Box::pin(async move { client.batch_execute(&sql).await.map_err(HookError::Backend) })
        }));
    }
    pool.build().map_err(|error| StoreError::Internal(error.to_string()))
}

pub(super) fn tls() -> Result<MakeRustlsConnect> {
    let mut roots = rustls::RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if roots.is_empty() {
        let advice = "no root certificates on this machine: install ca-certificates, or set SSL_CERT_FILE";
        return Err(StoreError::Unavailable(advice.into()));
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| StoreError::Internal(error.to_string()))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(MakeRustlsConnect::new(config))
}

async fn connect(pool: &Pool, config: &Config) -> Result<Object> {
    pool.get().await.map_err(|error| {
        let reason = match pool_error(error) {
            StoreError::Unavailable(reason) => reason,
            other => other.to_string(),
        };
        StoreError::Unavailable(format!("cannot connect to {}: {reason}", place(config)))
    })
}

/// Makes sure that the role is there, is bound by row level security, and is ours to act as.
async fn prepare_role(client: &Client, role: &str) -> Result<()> {
    let unsafe_role = "SELECT rolsuper OR rolbypassrls FROM pg_roles WHERE rolname = $1";
    match client.query_opt(unsafe_role, &[&role]).await? {
        Some(row) if row.try_get(0)? => {
            return Err(StoreError::Unavailable(format!(
                "the role {role} is not bound by row level security: an administrator has to run \
                 ALTER ROLE {role} NOSUPERUSER NOBYPASSRLS"
            )));
        }
        Some(_) => {}
        None => run_as_administrator(client, &format!("CREATE ROLE {role} NOLOGIN")).await?,
    }
    if !can_act_as_role(client, role).await? {
        run_as_administrator(client, &format!("GRANT {role} TO CURRENT_USER")).await?;
        if !can_act_as_role(client, role).await? {
            return Err(needs_administrator(&format!("GRANT {role} TO CURRENT_USER"), "it had no effect"));
        }
    }
    Ok(())
}

async fn can_act_as_role(client: &Client, role: &str) -> Result<bool> {
    match client.batch_execute(&format!("SET ROLE {role}; RESET ROLE")).await {
        Ok(()) => Ok(true),
        Err(error) if error.code() == Some(&SqlState::INSUFFICIENT_PRIVILEGE) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Roles belong to the whole cluster, where another database's lock does not help: somebody else may be
/// doing the same at this moment.
async fn run_as_administrator(client: &Client, statement: &str) -> Result<()> {
    let Err(error) = client.batch_execute(statement).await else { return Ok(()) };
    let raced = match error.as_db_error() {
        Some(db) => {
            [SqlState::DUPLICATE_OBJECT, SqlState::UNIQUE_VIOLATION].contains(db.code())
                || db.message().contains("tuple concurrently updated")
        }
        None => false,
    };
    match error.code() {
        _ if raced => Ok(()),
        Some(&SqlState::INSUFFICIENT_PRIVILEGE) => Err(needs_administrator(statement, &describe(&error))),
        _ => Err(error.into()),
    }
}

fn needs_administrator(statement: &str, reason: &str) -> StoreError {
    StoreError::Unavailable(format!(
        "an administrator of the database has to run: {statement} (CURRENT_USER being the role that \
         Threadkeep connects as); {reason}"
    ))
}

/// All pending migrations are one transaction: killed at any moment, the database has the old schema or
/// the new one.
async fn migrate(client: &mut Object) -> Result<()> {
    if let Some(found) = applied_version(client).await?
        && found > known_version()
    {
        return Err(StoreError::NewerSchema { found, known: known_version() });
    }
    let connection: &mut Client = client;
    let mut tries = 0;
    loop {
        tries += 1;
        let runner = embedded::migrations::runner().set_grouped(true);
        let Err(error) = runner.run_async(&mut *connection).await else { return Ok(()) };
        let database = error.source().and_then(|source| source.downcast_ref());
        // A node that serves meanwhile may have broken it off.
        if !database.is_some_and(is_contention) || tries == TRIES {
            let reason = database.map_or_else(|| error.to_string(), describe);
            return Err(StoreError::Internal(format!("migrating the database: {reason}")));
        }
    }
}

/// Lets the roles into the schema, and answers the schema's quoted name. Not part of a migration, which
/// does not know the schema's name nor the history's table.
async fn grant(client: &Client) -> Result<String> {
    let row = client
        .query_one(
            "SELECT quote_ident(current_schema()), \
             has_schema_privilege($1::text, current_schema(), 'USAGE') \
             AND has_schema_privilege($2::text, current_schema(), 'USAGE') \
             AND has_table_privilege($1::text, 'refinery_schema_history', 'SELECT')",
            &[&ROLE, &SYSTEM_ROLE],
        )
        .await?;
    let schema: String = row.try_get(0)?;
    if !row.try_get::<_, bool>(1)? {
        let grants = format!(
            "GRANT USAGE ON SCHEMA {schema} TO {ROLE}, {SYSTEM_ROLE}; \
             GRANT SELECT ON refinery_schema_history TO {ROLE}"
        );
        client.batch_execute(&grants).await?;
    }
    Ok(schema)
}

fn known_version() -> i32 {
    embedded::migrations::runner().get_migrations().iter().map(|m| m.version()).max().unwrap_or(0)
}

async fn applied_version(client: &Client) -> Result<Option<i32>> {
    let row = client.query_one("SELECT to_regclass('refinery_schema_history') IS NOT NULL", &[]).await?;
    if !row.try_get::<_, bool>(0)? {
        return Ok(None);
    }
    Ok(client.query_one("SELECT max(version) FROM refinery_schema_history", &[]).await?.try_get(0)?)
}

pub(super) async fn check_schema(client: &Client) -> Result<()> {
    match applied_version(client).await? {
        Some(found) if found >= known_version() => Ok(()),
        found => Err(StoreError::Unavailable(format!("the schema is at version {found:?}"))),
    }
}

pub(super) async fn schema_version(url: &Secret) -> Result<Option<i32>> {
    let client = beside(&parse(url)?).await?;
    applied_version(&client).await
}

/// A connection beside the pool, as the role that the address names.
pub(super) async fn beside(config: &Config) -> Result<Object> {
    connect(&pool(config, 1, None)?, config).await
}
