//! One verb, one transaction, on one pooled connection. In: who is asking. Out: rows.
//!
//! Row level security reads who is asking from settings that end with the transaction, so a connection
//! goes back to the pool only after its transaction has ended.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::Poll;
use std::time::Duration;

use deadpool_postgres::{Object, Pool};
use domain::scope::Scope;
use futures_util::future::{join, join_all, join4, try_join3};
use tokio::time::{Instant, timeout_at};
use tokio_postgres::error::SqlState;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Row, Statement};
use uuid::Uuid;

use super::error::{describe, is_contention, is_unique_violation, pool_error};
use super::open;
use super::presence::{Presence, silent};
use crate::error::{Result, StoreError};
use crate::list::{Dialect, Sql};

pub(super) type Params<'a> = Vec<&'a (dyn ToSql + Sync)>;

const SETTINGS: &str = "SELECT set_config('threadkeep.workspace', $1, true), set_config('threadkeep.user', $2, true), \
     set_config('threadkeep.sees_all', $3, true), set_config('threadkeep.words', $4, true)";
/// One snapshot for all queries of a read.
const READ: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY";
/// Later statements see what others committed while a row lock was waited for.
const WRITE: &str = "BEGIN ISOLATION LEVEL READ COMMITTED, READ WRITE";

/// All workspaces, for the nodes' own work, under a role that sees no more than that needs.
const SYSTEM: &str = "BEGIN ISOLATION LEVEL READ COMMITTED, READ WRITE; SET LOCAL ROLE threadkeep_system";
/// For what may be lost with the last fraction of a second before a crash of PostgreSQL itself: hints, what is only
/// rearranged, and rows that are counted before they are shown.
const UNSYNCED: &str = "BEGIN ISOLATION LEVEL READ COMMITTED, READ WRITE; SET LOCAL synchronous_commit = off";

/// How long readiness waits.
const PING: Duration = Duration::from_secs(2);

/// Prepared statements kept per connection. Lists have many shapes; beyond this all are let go.
const STATEMENTS: usize = 256;

/// After so many uses of a connection its statements are prepared anew: plans that were made while the tables were small
/// would stay until PostgreSQL takes its first statistics.
const REPLANNED: [usize; 3] = [50, 500, 5000];

/// How often a verb is tried when other transactions keep getting in its way.
pub(super) const TRIES: u32 = 5;

/// What row level security is told about the caller. Empty is nobody.
#[derive(Clone)]
pub(super) struct Settings {
    workspace: String,
    user: String,
    sees_all: bool,
    words: String,
}

impl Settings {
    pub(super) fn of(scope: &Scope) -> Self {
        Self { user: scope.user.clone(), sees_all: scope.sees_all(), ..Self::workspace(scope.workspace) }
    }

    /// A user outside of any workspace: sees where that user is a member.
    pub(super) fn user(user: &str) -> Self {
        Self { workspace: String::new(), user: user.to_owned(), sees_all: false, words: String::new() }
    }

    pub(super) fn nobody() -> Self {
        Self::user("")
    }

    /// A workspace before it is known who asks.
    pub(super) fn workspace(workspace: Uuid) -> Self {
        Self {
            workspace: workspace.to_string(),
            user: String::new(),
            sees_all: false,
            words: workspace_word(workspace),
        }
    }

    /// For what must reach every conversation of the workspace, whoever asks.
    pub(super) fn seeing_all(self) -> Self {
        Self { sees_all: true, ..self }
    }

    /// Narrows the word index to the documents that match a tsquery.
    pub(super) fn matching(self, tsquery: &str) -> Self {
        Self { words: format!("{} & ({tsquery})", self.words), ..self }
    }

    fn values(&self) -> [&str; 4] {
        [&self.workspace, &self.user, on_off(self.sees_all), &self.words]
    }
}

fn on_off(on: bool) -> &'static str {
    if on { "on" } else { "off" }
}

/// The lexeme that every document of a workspace has, and so the part of the word index that is the
/// workspace's own.
pub(super) fn workspace_word(workspace: Uuid) -> String {
    format!("'@{}'", workspace.simple())
}

/// The condition that a row is the scope's, where `$1` is the workspace. Tests switch it off; the
/// parameter keeps its place.
pub(super) fn inside(dialect: Dialect, column: &str) -> String {
    match dialect {
        Dialect::PostgresUnfiltered => "$1::uuid IS NOT NULL".to_owned(),
        Dialect::Postgres | Dialect::Sqlite => format!("{column} = $1"),
    }
}

pub(super) struct Query<'a> {
    pub(super) text: &'a str,
    pub(super) params: Params<'a>,
}

impl<'a> From<&'a Sql> for Query<'a> {
    fn from(sql: &'a Sql) -> Self {
        Self { text: &sql.text, params: params(sql) }
    }
}

pub(super) fn params(sql: &Sql) -> Params<'_> {
    sql.values.iter().map(|value| value as &(dyn ToSql + Sync)).collect()
}

pub(super) struct Database {
    pub(super) pool: Pool,
    pub(super) dialect: Dialect,
    pub(super) presence: Arc<Presence>,
}

impl Database {
    pub(super) async fn client(&self) -> Result<Object> {
        self.client_of(&self.pool).await
    }

    pub(super) async fn client_of(&self, pool: &Pool) -> Result<Object> {
        let client = self.presence.wait_for(pin!(pool.get())).await?.map_err(pool_error)?;
        let uses = Object::metrics(&client).recycle_count;
        if REPLANNED.contains(&uses) || client.statement_cache.size() > STATEMENTS {
            client.statement_cache.clear();
        }
        Ok(client)
    }

    /// Whether PostgreSQL answers, soon, with a schema to work with. One whose connections are all at work does.
    pub(super) async fn ping(&self) -> Result<()> {
        let deadline = Instant::now() + PING;
        let Ok(client) = timeout_at(deadline, self.client()).await else {
            return if self.presence.is_heard() { Ok(()) } else { Err(silent()) };
        };
        let client = client?;
        match timeout_at(deadline, open::check_schema(&client)).await {
            Ok(checked) => checked,
            Err(_) => Err(discard(client, silent())),
        }
    }

    /// Answers queries that do not depend on each other from one snapshot, in one round trip.
    pub(super) async fn read<const N: usize>(
        &self,
        settings: &Settings,
        queries: [Query<'_>; N],
    ) -> Result<[Vec<Row>; N]> {
        let client = self.client().await?;
        let work = async {
            let set = client.prepare_cached(SETTINGS).await?;
            let mut statements = Vec::with_capacity(N);
            for query in &queries {
                statements.push(client.prepare_cached(query.text).await?);
            }
            let [workspace, user, sees_all, words] = settings.values();
            let who: [&(dyn ToSql + Sync); 4] = [&workspace, &user, &sees_all, &words];
            let work = queries
                .iter()
                .zip(&statements)
                .map(|(query, statement)| client.query(statement, &query.params));
            // The first poll sends all of it, COMMIT included, so a caller that goes away leaves no transaction.
            let (begun, set, rows, ended) = join4(
                client.batch_execute(READ),
                client.execute(&set, &who),
                join_all(work),
                client.batch_execute("COMMIT"),
            )
            .await;
            begun?;
            set?;
            let mut answers = [const { Vec::new() }; N];
            for (answer, rows) in answers.iter_mut().zip(rows) {
                *answer = rows?;
            }
            ended?;
            Ok::<_, tokio_postgres::Error>(answers)
        };
        let answered = self.presence.answer(pin!(work)).await;
        match answered {
            Ok(answers) => Ok(answers?),
            Err(silent) => Err(discard(client, silent)),
        }
    }

    /// A transaction of several steps that changes nothing.
    pub(super) async fn begin_read(&self, settings: &Settings) -> Result<Transaction> {
        self.begin(settings, READ).await
    }

    pub(super) async fn begin_write(&self, settings: &Settings) -> Result<Transaction> {
        self.begin(settings, WRITE).await
    }

    /// As `begin_write`, where the disk is not waited for.
    pub(super) async fn begin_unsynced(&self, settings: &Settings) -> Result<Transaction> {
        self.begin(settings, UNSYNCED).await
    }

    /// The nodes' own work over all workspaces.
    pub(super) async fn begin_system(&self, settings: &Settings) -> Result<Transaction> {
        self.begin(settings, SYSTEM).await
    }

    /// One statement in one round trip, without waiting for the disk.
    pub(super) async fn rows_unsynced(&self, settings: &Settings, query: &Query<'_>) -> Result<Vec<Row>> {
        let mut tries = 0;
        loop {
            tries += 1;
            match self.try_unsynced(settings, query).await? {
                Err(error) if is_contention(&error) && tries < TRIES => {}
                done => return Ok(done?),
            }
        }
    }

    async fn try_unsynced(
        &self,
        settings: &Settings,
        query: &Query<'_>,
    ) -> Result<Result<Vec<Row>, tokio_postgres::Error>> {
        let client = self.client().await?;
        let work = async {
            let set = client.prepare_cached(SETTINGS).await?;
            let statement = client.prepare_cached(query.text).await?;
            let [workspace, user, sees_all, words] = settings.values();
            let who: [&(dyn ToSql + Sync); 4] = [&workspace, &user, &sees_all, &words];
            // As in `read`, all is sent at once. A COMMIT after a failure rolls back.
            let (begun, set, done, ended) = join4(
                client.batch_execute(UNSYNCED),
                client.execute(&set, &who),
                client.query(&statement, &query.params),
                client.batch_execute("COMMIT"),
            )
            .await;
            begun?;
            set?;
            Ok::<_, tokio_postgres::Error>(done.and_then(|rows| ended.map(|()| rows)))
        };
        let answered = self.presence.answer(pin!(work)).await;
        match answered {
            Ok(done) => Ok(done?),
            Err(silent) => Err(discard(client, silent)),
        }
    }

    async fn begin(&self, settings: &Settings, begin: &'static str) -> Result<Transaction> {
        let transaction = Transaction {
            client: Some(self.client().await?),
            dialect: self.dialect,
            presence: Arc::clone(&self.presence),
            opening: Mutex::new(None),
            unsent: AtomicUsize::new(0),
            over: AtomicBool::new(false),
            silent: AtomicBool::new(false),
            contended: AtomicBool::new(false),
            cause: OnceLock::new(),
        };
        let client = transaction.client()?;
        let set = transaction.answer(pin!(client.prepare_cached(SETTINGS))).await??;
        *transaction.opening() = Some(Opening { begin, settings: settings.clone(), set });
        Ok(transaction)
    }
}

/// A connection that fell silent is nobody's any more.
pub(super) fn discard(client: Object, silent: StoreError) -> StoreError {
    drop(Object::take(client));
    silent
}

/// A transaction under way. Dropped before `finish`, it takes its connection out of the pool: the server
/// rolls back, and nobody inherits what was left.
pub(super) struct Transaction {
    client: Option<Object>,
    pub(super) dialect: Dialect,
    presence: Arc<Presence>,
    /// What begins it goes out with its first statement: no answer is waited for that says nothing.
    opening: Mutex<Option<Opening>>,
    /// Statements that wait to be prepared before they go out.
    unsent: AtomicUsize,
    /// Whether its end went out with its last statements.
    over: AtomicBool,
    /// Whether the database fell silent in it.
    silent: AtomicBool,
    /// Whether the database broke it off for another transaction's sake.
    contended: AtomicBool,
    /// What failed first: of statements sent together, those after it only say that it did.
    cause: OnceLock<String>,
}

struct Opening {
    begin: &'static str,
    settings: Settings,
    set: Statement,
}

fn ended() -> StoreError {
    StoreError::Internal("the transaction has ended".into())
}

/// Counts a statement until it goes out.
struct Unsent<'a>(&'a AtomicUsize);

impl<'a> Unsent<'a> {
    fn new(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(count)
    }
}

impl Drop for Unsent<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Drop for Transaction {
    fn drop(&mut self) {
        if let Some(client) = self.client.take() {
            drop(Object::take(client));
        }
    }
}

impl Transaction {
    fn connection(&self) -> Result<&Object> {
        self.client.as_ref().ok_or_else(ended)
    }

    /// For one more statement.
    fn client(&self) -> Result<&Object> {
        if self.over.load(Ordering::Relaxed) { Err(ended()) } else { self.connection() }
    }

    fn failed(&self, error: tokio_postgres::Error) -> StoreError {
        if is_contention(&error) {
            self.contended.store(true, Ordering::Relaxed);
        }
        if error.code() != Some(&SqlState::IN_FAILED_SQL_TRANSACTION) {
            self.cause.get_or_init(|| describe(&error));
        }
        error.into()
    }

    fn opening(&self) -> MutexGuard<'_, Option<Opening>> {
        self.opening.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends a statement, and before the first one what begins the transaction. The first poll sends all of it.
    async fn send<T>(
        &self,
        client: &Object,
        statement: impl Future<Output = Result<T, tokio_postgres::Error>>,
    ) -> Result<T, tokio_postgres::Error> {
        let Some(Opening { begin, settings, set }) = self.opening().take() else { return statement.await };
        let [workspace, user, sees_all, words] = settings.values();
        let who: [&(dyn ToSql + Sync); 4] = [&workspace, &user, &sees_all, &words];
        let (.., done) =
            try_join3(client.batch_execute(begin), client.execute(&set, &who), statement).await?;
        Ok(done)
    }

    async fn answer<T>(
        &self,
        step: Pin<&mut impl Future<Output = Result<T, tokio_postgres::Error>>>,
    ) -> Result<Result<T, tokio_postgres::Error>> {
        self.presence.answer(step).await.inspect_err(|_| self.silent.store(true, Ordering::Relaxed))
    }

    /// Boxed, as in `affected`: unboxed, a write under way has room in itself for each of the statements that it may ask.
    pub(super) async fn rows(&self, text: &str, params: &[&(dyn ToSql + Sync)]) -> Result<Vec<Row>> {
        let (client, unsent) = (self.client()?, Unsent::new(&self.unsent));
        let asked = Box::pin(async {
            let work = async {
                let statement = client.prepare_cached(text).await?;
                drop(unsent);
                self.send(client, client.query(&statement, params)).await
            };
            self.answer(pin!(work)).await
        });
        asked.await?.map_err(|error| self.failed(error))
    }

    /// Makes the statement's next use go out at once, before what is asked for after it.
    pub(super) async fn prepare(&self, text: &str) -> Result<()> {
        let client = self.client()?;
        let prepared = self.answer(pin!(client.prepare_cached(text))).await?;
        prepared.map(|_| ()).map_err(|error| self.failed(error))
    }

    pub(super) async fn row(&self, text: &str, params: &[&(dyn ToSql + Sync)]) -> Result<Option<Row>> {
        Ok(self.rows(text, params).await?.into_iter().next())
    }

    pub(super) async fn execute(&self, text: &str, params: &[&(dyn ToSql + Sync)]) -> Result<u64> {
        self.affected(text, params).await?.map_err(|error| self.failed(error))
    }

    async fn affected(
        &self,
        text: &str,
        params: &[&(dyn ToSql + Sync)],
    ) -> Result<Result<u64, tokio_postgres::Error>> {
        let (client, unsent) = (self.client()?, Unsent::new(&self.unsent));
        let asked = Box::pin(async {
            let work = async {
                let statement = client.prepare_cached(text).await?;
                drop(unsent);
                self.send(client, client.execute(&statement, params)).await
            };
            self.answer(pin!(work)).await
        });
        asked.await
    }

    /// Like `execute`, where a row that is already there is `Taken`.
    pub(super) async fn insert(
        &self,
        what: &'static str,
        text: &str,
        params: &[&(dyn ToSql + Sync)],
    ) -> Result<()> {
        match self.affected(text, params).await? {
            Ok(_) => Ok(()),
            Err(error) if is_unique_violation(&error) => Err(StoreError::Taken(what)),
            Err(error) => Err(self.failed(error)),
        }
    }

    /// Makes transactions that say the same name go one after the other: what is asked after this sees what those
    /// before it committed.
    pub(super) async fn wait_in_line(&self, name: &str) -> Result<()> {
        self.rows("SELECT pg_advisory_xact_lock(hashtextextended($1, 0))", &[&name]).await.map(|_| ())
    }

    /// Whether all of the workspace is seen from here on, as in `Settings`.
    pub(super) async fn see_all(&self, all: bool) -> Result<()> {
        let text = "SELECT set_config('threadkeep.sees_all', $1, true)";
        self.rows(text, &[&on_off(all)]).await.map(|_| ())
    }

    /// The word index shows what matches these settings from here on.
    pub(super) async fn narrow_to(&self, settings: &Settings) -> Result<()> {
        let text = "SELECT set_config('threadkeep.words', $1, true)";
        self.rows(text, &[&settings.words]).await.map(|_| ())
    }

    pub(super) fn inside(&self, column: &str) -> String {
        inside(self.dialect, column)
    }

    /// Its last statements, tried and joined, and its end sent with them: nothing is asked after that. Where one cannot even
    /// be sent, nothing is committed, and where one fails, the end is a rollback.
    pub(super) async fn ending<T>(&self, last: impl Future<Output = Result<T>>) -> Result<T> {
        let mut last = pin!(last);
        let early = poll_fn(|context| match last.as_mut().poll(context) {
            Poll::Ready(done) => Poll::Ready(Some(done)),
            Poll::Pending if self.unsent.load(Ordering::Relaxed) == 0 => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        });
        if let Some(done) = early.await {
            return done;
        }
        self.over.store(true, Ordering::Relaxed);
        let commit = async {
            let committed = self.answer(pin!(self.connection()?.batch_execute("COMMIT"))).await?;
            committed.map_err(|error| self.failed(error))
        };
        let (done, committed) = join(last, commit).await;
        done.and_then(|done| committed.map(|()| done))
    }

    /// Commits a success and rolls a failure back, where its end was not sent yet. `None` when the verb, tried so often by
    /// now, is to be tried again.
    pub(super) async fn finish<T>(mut self, result: Result<T>, tries: u32) -> Option<Result<T>> {
        if self.silent.load(Ordering::Relaxed) {
            return Some(result.and(Err(silent())));
        }
        let ended = match self.connection() {
            // Nothing was asked, or its end is known.
            Ok(_) if self.opening().is_some() || self.over.load(Ordering::Relaxed) => Ok(()),
            Ok(client) => {
                let end = if result.is_ok() { "COMMIT" } else { "ROLLBACK" };
                match self.answer(pin!(client.batch_execute(end))).await {
                    Ok(ended) => ended,
                    Err(silent) => return Some(result.and(Err(silent))),
                }
            }
            Err(error) => return Some(Err(error)),
        };
        let result = match (result, ended) {
            (result, Ok(())) => {
                // Back to the pool.
                drop(self.client.take());
                result
            }
            (Ok(_), Err(error)) => Err(self.failed(error)),
            (Err(first), Err(_)) => Err(first),
        };
        let result = match (result, self.cause.take()) {
            (Err(StoreError::Internal(_)), Some(cause)) => Err(StoreError::Internal(cause)),
            (result, _) => result,
        };
        let again = tries < TRIES && result.is_err() && self.contended.load(Ordering::Relaxed);
        (!again).then_some(result)
    }
}

/// Runs a verb's steps in a transaction, and again from the start when the database broke it off for
/// another's sake. A macro, because no closure can borrow the verb's arguments and be `Send` here.
macro_rules! transaction {
    ($database:expr, $begin:ident, $settings:expr, |$tx:ident| $work:expr) => {{
        let settings = $settings;
        let mut tries = 0;
        loop {
            tries += 1;
            let transaction = $database.$begin(&settings).await?;
            let $tx = &transaction;
            let result = $work.await;
            if let Some(result) = transaction.finish(result, tries).await {
                break result;
            }
        }
    }};
}
pub(super) use transaction;
