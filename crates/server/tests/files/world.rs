//! The real binary on a database and a storage, the scripted sandbox behind it, and Ann with a workspace. Both
//! databases and both storages are four homes; a story is told in each that matters to it.

use std::path::Path;
use std::time::Duration;

use futures_util::TryStreamExt as _;
use serde_json::json;
use store::blobs::Blobs;
use tempfile::TempDir;
use testkit::agent::Agent;
use testkit::postgres::{TestDatabase, database};
use testkit::process::{ServerProcess, command};
use testkit::s3::{BUCKET, Kind, S3Server, fresh_prefix, server};
use testkit::sandbox::ScriptedSandbox;
use testkit::server::{JWT_SECRET, token};
use tokio_util::task::TaskTracker;

use crate::caller::Caller;
use crate::scripts;

pub const BINARY: &str = env!("CARGO_BIN_EXE_threadkeep");
/// A story that takes longer is stuck.
const STORY: Duration = Duration::from_secs(150);

/// Where files and rows are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Home {
    Sqlite,
    Postgres,
    SqliteMoto,
    PostgresS3rver,
}

/// Makes each story a test in each of these homes.
macro_rules! told_in {
    ($($module:ident = $home:ident),+; $names:tt) => {
        $(crate::world::told_in!(@home $module $home $names);)+
    };
    (@home $module:ident $home:ident ($($name:ident),+)) => {
        mod $module {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                crate::world::tell(crate::world::Home::$home, super::$name).await;
            })+
        }
    };
}
pub(crate) use told_in;

/// Stories on each database, with files in a folder.
macro_rules! stories {
    ($($name:ident),+ $(,)?) => {
        crate::world::told_in!(sqlite = Sqlite, postgres = Postgres; ($($name),+));
    };
}
pub(crate) use stories;

/// Stories on each database with files in a folder, and on each with an S3 server.
macro_rules! stories_everywhere {
    ($($name:ident),+ $(,)?) => {
        crate::world::told_in!(
            sqlite_folder = Sqlite, postgres_folder = Postgres,
            sqlite_moto = SqliteMoto, postgres_s3rver = PostgresS3rver; ($($name),+)
        );
    };
}
pub(crate) use stories_everywhere;

/// Runs a story; one that needs a home that is not there ends at its first line.
pub async fn tell(home: Home, story: impl AsyncFnOnce(Home) -> Option<()>) {
    tokio::time::timeout(STORY, story(home)).await.expect("the story is stuck");
}

pub struct World {
    data: TempDir,
    database: Option<TestDatabase>,
    s3: Option<(&'static S3Server, String)>,
    env: Vec<(String, String)>,
    pub sandbox: ScriptedSandbox,
    pub process: ServerProcess,
    /// Made the workspace, so she administers it.
    pub ann: Caller,
    pub workspace: String,
}

impl World {
    /// A server whose sandbox answers "Hello." until it is told otherwise. `None` where there is no such home.
    pub async fn start(home: Home) -> Option<Self> {
        Self::start_with(home, &[]).await
    }

    /// Changes one row behind the server's back.
    pub async fn alter(&self, id: &str, sqlite: &str, postgres: &str) {
        let id: uuid::Uuid = id.parse().expect("an id");
        let Some(database) = &self.database else {
            let connection =
                rusqlite::Connection::open(self.data.path().join("threadkeep.db")).expect("the database");
            assert_eq!(connection.execute(sqlite, [id]).expect("a change"), 1);
            return;
        };
        let url = database.superuser_url().expect("a superuser");
        let (client, connection) =
            tokio_postgres::connect(&url, tokio_postgres::NoTls).await.expect("a connection");
        let connection = tokio::spawn(connection);
        assert_eq!(client.execute(postgres, &[&id]).await.expect("a change"), 1);
        connection.abort();
    }

    pub async fn start_with(home: Home, env: &[(&str, &str)]) -> Option<Self> {
        Self::start_in(home, env, tempfile::tempdir().expect("a temporary folder")).await
    }

    pub async fn start_in(home: Home, env: &[(&str, &str)], data: TempDir) -> Option<Self> {
        let database = match home {
            Home::Sqlite | Home::SqliteMoto => None,
            Home::Postgres | Home::PostgresS3rver => Some(database().await?),
        };
        let s3 = match home {
            Home::Sqlite | Home::Postgres => None,
            Home::SqliteMoto => Some((server(Kind::Moto)?, fresh_prefix())),
            Home::PostgresS3rver => Some((server(Kind::S3rver)?, fresh_prefix())),
        };
        let sandbox = ScriptedSandbox::start(scripts::answer("Hello.")).await.expect("a sandbox");
        let env = settings(&sandbox, database.as_ref(), s3.as_ref(), env);
        let process = serve(&env, data.path()).await;
        let ann = Caller::new(process.url(), &token("ann", "acme"));
        let made = ann.post("/v1/workspaces", &json!({ "name": "Ann's" })).await;
        let workspace = made.body["id"].as_str().expect("a workspace").to_owned();
        Some(Self { data, database, s3, env, sandbox, process, ann, workspace })
    }

    pub fn data(&self) -> &Path {
        self.data.path()
    }

    pub fn database(&self) -> Option<&TestDatabase> {
        self.database.as_ref()
    }

    /// What it was started with.
    pub fn env(&self) -> Vec<(&str, &str)> {
        self.env.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect()
    }

    pub fn on_s3(&self) -> bool {
        self.s3.is_some()
    }

    /// The keys under which anything is stored, in a folder or on S3.
    pub async fn stored(&self) -> Vec<String> {
        let blobs = match &self.s3 {
            Some((server, prefix)) => {
                let setting = |wanted: &str| {
                    let found = server.settings().into_iter().find(|(name, _)| *name == wanted);
                    found.map(|(_, value)| value.to_owned())
                };
                Blobs::s3(BUCKET, prefix, setting, &TaskTracker::new()).await
            }
            None => Blobs::folder(self.data().join("blobs")).await,
        };
        let listed: Vec<_> = blobs.expect("a storage").list("").try_collect().await.expect("a list");
        listed.into_iter().map(|found| found.key).collect()
    }

    /// Starts the server again, which has ended, with settings changed.
    pub async fn restart(&mut self, env: &[(&str, &str)]) {
        for (name, value) in env {
            self.env.retain(|(known, _)| known != name);
            self.env.push(((*name).to_owned(), (*value).to_owned()));
        }
        self.process = serve(&self.env, self.data.path()).await;
        self.ann = self.ann.at(self.process.url());
    }

    /// Runs one command of the binary to its end; what it said on stdout.
    pub async fn command(&self, args: &[&str]) -> String {
        let output =
            command(Path::new(BINARY), &self.env(), self.data()).args(args).output().await.expect("it runs");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        assert!(output.status.success(), "{args:?}: {}{}", text(&output.stdout), text(&output.stderr));
        text(&output.stdout)
    }

    /// Somebody else in the same workspace, as a member.
    pub async fn member(&self, user: &str) -> Caller {
        let path = format!("/v1/workspaces/{}/members", self.workspace);
        let added = self.ann.post(&path, &json!({ "user": user, "role": "member" })).await;
        assert_eq!(added.status, 201, "{}", added.text);
        Caller::new(self.process.url(), &token(user, "acme"))
    }

    /// Somebody in a workspace of their own.
    pub async fn stranger(&self, user: &str) -> Caller {
        let caller = Caller::new(self.process.url(), &token(user, "elsewhere"));
        assert_eq!(caller.post("/v1/workspaces", &json!({ "name": "Theirs" })).await.status, 201);
        caller
    }

    /// The other end of the run with this number.
    pub async fn agent(&self, number: usize) -> Agent {
        Agent::new(self.sandbox.request(number).await.expect("a request").body)
    }

    /// A turn that waits for nothing but its cancellation, its ids and its other end.
    pub async fn hanging(&self, conversation: &str) -> (serde_json::Value, Agent) {
        let number = self.sandbox.requests().len();
        self.sandbox.play(scripts::hang_after(vec![]));
        let ids = self.ann.begin(&json!({ "conversation": conversation, "message": "go" })).await;
        (ids, self.agent(number).await)
    }
}

async fn serve(env: &[(String, String)], data: &Path) -> ServerProcess {
    let env: Vec<(&str, &str)> = env.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    let started = ServerProcess::start(Path::new(BINARY), &env, data).await;
    started.unwrap_or_else(|error| panic!("the server did not start: {error:#}"))
}

fn settings(
    sandbox: &ScriptedSandbox,
    database: Option<&TestDatabase>,
    s3: Option<&(&'static S3Server, String)>,
    more: &[(&str, &str)],
) -> Vec<(String, String)> {
    let mut env = vec![
        ("SANDBOX_URL".into(), sandbox.url()),
        ("THREADKEEP_JWT_SECRET".into(), JWT_SECRET.into()),
        ("THREADKEEP_SECRET".into(), "the secret of the server itself, longer than 32 bytes".into()),
        ("THREADKEEP_REQUESTS_PER_SECOND".into(), "0".into()),
        ("THREADKEEP_MAX_OPEN_RUNS_PER_USER".into(), "10000".into()),
        ("THREADKEEP_LEASE_SECONDS".into(), "3".into()),
    ];
    env.extend(database.map(|database| ("DATABASE_URL".into(), database.url().to_owned())));
    if let Some((server, prefix)) = s3 {
        env.push(("THREADKEEP_BLOB_URL".into(), format!("s3://{BUCKET}/{prefix}")));
        env.extend(server.settings().map(|(name, value)| (name.to_owned(), value.to_owned())));
    }
    env.extend(more.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
    env
}
