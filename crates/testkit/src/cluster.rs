//! A PostgreSQL of one test's own, to crash: `scripts/postgres` makes the cluster and removes it.
//! Out: the address of an empty database in it.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::Context as _;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio_postgres::NoTls;

use crate::postgres::{address_of, execute, is_there, stop};

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/postgres");
/// Says where it is, and stays until nobody holds the other end of its input.
const STAY: &str = "echo \"$TEST_POSTGRES_URL\"; echo \"$TEST_POSTGRES_SUPERUSER_URL\"; exec cat";
const DATABASE: &str = "threadkeep";

/// Removed when dropped.
#[derive(Debug)]
pub struct Cluster {
    script: Child,
    url: String,
    superuser: String,
}

/// Makes a cluster whose newest commits wait for half a second for the disk, if they do not ask for it; `None`, with a
/// line on stderr, where there is no PostgreSQL.
///
/// # Panics
/// Where it cannot be made, and in CI where there is no PostgreSQL.
pub async fn cluster() -> Option<Cluster> {
    if !is_there() {
        return None;
    }
    match Cluster::start().await {
        Ok(cluster) => Some(cluster),
        Err(error) => stop(&format!("cannot make a cluster: {error:#}")),
    }
}

impl Cluster {
    async fn start() -> anyhow::Result<Self> {
        let mut command = Command::new(Path::new(SCRIPT));
        command.args(["run", "--", "sh", "-c", STAY]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut script = command.spawn().context(SCRIPT)?;
        let said = BufReader::new(script.stdout.take().context("no output")?);
        let lines = said.lines().take(2).collect::<Result<Vec<String>, _>>()?;
        let [owner, superuser] = &lines[..] else { anyhow::bail!("it did not start") };
        let cluster = Self { script, url: address_of(owner, DATABASE)?, superuser: superuser.clone() };
        execute(owner, &format!("CREATE DATABASE {DATABASE}")).await?;
        execute(superuser, "ALTER SYSTEM SET wal_writer_delay = '500ms'").await?;
        execute(superuser, "SELECT pg_reload_conf()").await?;
        Ok(cluster)
    }

    /// The address as the owner of the database, ready for `DATABASE_URL`.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Kills the process behind one connection of a server: PostgreSQL ends all of them, and recovers from what it had
    /// written. Returns when it takes connections again.
    ///
    /// # Errors
    /// Where no server is connected.
    pub async fn crash(&self) -> anyhow::Result<()> {
        let (client, connection) = tokio_postgres::connect(&self.superuser, NoTls).await?;
        let asking = async move {
            let text = "SELECT pid FROM pg_stat_activity WHERE application_name = 'threadkeep' LIMIT 1";
            let pid = client.query_one(text, &[]).await.context("nobody is connected")?.try_get(0)?;
            kill(Pid::from_raw(pid), Signal::SIGKILL)?;
            // Held until it is closed from the other side.
            while !client.is_closed() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            anyhow::Ok(())
        };
        tokio::join!(asking, connection).0?;
        while execute(&self.superuser, "SELECT 1").await.is_err() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(())
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        drop(self.script.stdin.take());
        let _ = self.script.wait();
    }
}
