//! A fresh PostgreSQL database for one test, made in the cluster that `scripts/postgres run` started.
//! In: `TEST_POSTGRES_URL`. Out: the address of an empty database, dropped with the value.

use std::io::Write as _;

use anyhow::Context as _;
use reqwest::Url;
use tokio_postgres::NoTls;

const OWNER: &str = "TEST_POSTGRES_URL";
const SUPERUSER: &str = "TEST_POSTGRES_SUPERUSER_URL";

/// An empty database that belongs to the caller alone, and to a role that is no superuser.
#[derive(Debug)]
pub struct TestDatabase {
    name: String,
    url: String,
    dropped: bool,
}

/// Makes a database; `None`, with a line on stderr, where there is no PostgreSQL.
///
/// # Panics
/// Where the database cannot be made, and in CI where there is no PostgreSQL.
pub async fn database() -> Option<TestDatabase> {
    if !is_there() {
        return None;
    }
    let cluster = std::env::var(OWNER).ok()?;
    match TestDatabase::create(&cluster).await {
        Ok(database) => Some(database),
        Err(error) => stop(&format!("cannot make a test database in {OWNER}={cluster}: {error:#}")),
    }
}

/// Whether the tests run with a PostgreSQL; says it where they do not.
pub(crate) fn is_there() -> bool {
    let there = std::env::var_os(OWNER).is_some();
    if !there {
        skip(std::env::var_os("CI").is_some());
    }
    there
}

impl TestDatabase {
    async fn create(cluster: &str) -> anyhow::Result<Self> {
        #[expect(
            clippy::disallowed_methods,
            reason = "names must differ between test processes; no id is made"
        )]
        let name = format!("tk_test_{}", uuid::Uuid::new_v4().simple());
        let url = address_of(cluster, &name)?;
        // template0 takes no connections, so no other session can be in the way of the copy.
        execute(cluster, &format!("CREATE DATABASE {name} TEMPLATE template0")).await?;
        Ok(Self { name, url, dropped: false })
    }

    /// The address as the owner of the database, ready for `DATABASE_URL`.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The address of the same database as superuser, to look behind row level security.
    #[must_use]
    pub fn superuser_url(&self) -> Option<String> {
        address_of(&std::env::var(SUPERUSER).ok()?, &self.name).ok()
    }

    /// Drops the database now, ending the sessions in it; dropping the value does the same.
    ///
    /// # Errors
    /// Where PostgreSQL refuses.
    pub async fn close(mut self) -> anyhow::Result<()> {
        self.dropped = true;
        drop_database(&self.name).await
    }
}

impl Drop for TestDatabase {
    fn drop(&mut self) {
        if self.dropped {
            return;
        }
        let name = std::mem::take(&mut self.name);
        // A thread of its own, because the test's runtime may be the one this runs on. What fails here
        // goes with the cluster.
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(drop_database(&name))
        });
        if let Ok(Err(error)) = thread.join() {
            note(&format!("test database left behind: {error:#}"));
        }
    }
}

async fn drop_database(name: &str) -> anyhow::Result<()> {
    // The superuser may end sessions of every role, the owner only its own.
    let cluster = std::env::var(SUPERUSER).or_else(|_| std::env::var(OWNER))?;
    execute(&cluster, &format!("DROP DATABASE IF EXISTS {name} WITH (FORCE)")).await
}

pub(crate) async fn execute(url: &str, sql: &str) -> anyhow::Result<()> {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
    tokio::select! {
        done = client.batch_execute(sql) => done.with_context(|| sql.to_owned()),
        ended = connection => {
            ended?;
            anyhow::bail!("the connection closed during: {sql}")
        }
    }
}

pub(crate) fn address_of(cluster: &str, database: &str) -> anyhow::Result<String> {
    let mut url = Url::parse(cluster).with_context(|| format!("not a postgres:// address: {cluster}"))?;
    url.set_path(database);
    Ok(url.into())
}

fn skip(in_ci: bool) {
    let advice = "run the tests by `make test`, or by `scripts/postgres run -- cargo test`";
    if in_ci {
        stop(&format!("{OWNER} is not set: {advice}"));
    }
    let test = std::thread::current().name().unwrap_or("a test").to_owned();
    note(&format!("SKIPPED on PostgreSQL: {test} ({OWNER} is not set; {advice})"));
}

/// Straight to stderr: what `eprintln!` writes is hidden for tests that pass.
fn note(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

#[expect(clippy::panic, reason = "a test that cannot have its database has failed")]
pub(crate) fn stop(message: &str) -> ! {
    panic!("{message}")
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn exists(name: &str) -> bool {
        let url = std::env::var(OWNER).expect("the test has a database");
        execute(
            &url,
            &format!("DO $$ BEGIN ASSERT EXISTS (SELECT FROM pg_database WHERE datname = '{name}'); END $$"),
        )
        .await
        .is_ok()
    }

    #[test]
    fn the_address_keeps_all_but_the_database() {
        let made = address_of("postgres://me@127.0.0.1:5433/postgres?sslmode=disable", "tk_test_1");
        assert_eq!(made.unwrap(), "postgres://me@127.0.0.1:5433/tk_test_1?sslmode=disable");
        assert!(address_of("127.0.0.1:5433", "x").is_err());
    }

    #[test]
    #[should_panic(expected = "TEST_POSTGRES_URL is not set")]
    fn a_missing_postgres_fails_in_ci() {
        skip(true);
    }

    #[tokio::test]
    async fn a_database_is_empty_usable_and_gone_after_close() {
        let Some(database) = database().await else { return };
        execute(database.url(), "CREATE TABLE t (n int); CREATE EXTENSION pg_trgm").await.unwrap();
        let name = database.name.clone();
        assert!(exists(&name).await);
        database.close().await.unwrap();
        assert!(!exists(&name).await);
    }

    #[tokio::test]
    async fn dropping_the_value_ends_the_sessions_of_every_role() {
        let Some(database) = database().await else { return };
        let name = database.name.clone();
        let open = tokio_postgres::connect(&database.superuser_url().unwrap(), NoTls).await.unwrap();
        drop(database);
        assert!(!exists(&name).await);
        drop(open);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 8)]
    async fn many_at_once_all_get_their_own() {
        let Some(_first) = database().await else { return };
        let mut making = tokio::task::JoinSet::new();
        for _ in 0..32 {
            making.spawn(database());
        }
        let made: Vec<_> = making.join_all().await.into_iter().flatten().collect();
        let mut names: Vec<_> = made.iter().map(|database| database.name.clone()).collect();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), 32);
        for database in made {
            database.close().await.unwrap();
        }
    }
}
