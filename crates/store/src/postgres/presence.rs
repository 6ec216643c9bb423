//! Whether PostgreSQL is there. One that fell silent looks like one that has much to do: whoever waits for long asks
//! over a new connection, and gives up when that gets no answer either. So long work is not cut, and none waits for ever.

use std::pin::Pin;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::time::timeout;
use tokio_postgres::config::SslMode;
use tokio_postgres::{Config, NoTls};

use super::open;
use crate::error::{Result, StoreError};

/// After so long without an answer it is asked whether PostgreSQL is there.
const QUIET: Duration = Duration::from_secs(2);
/// And again after so long; an answer to anybody that is younger says it too.
const AGAIN: Duration = Duration::from_secs(1);
/// Once it was found to be gone, and until something is heard of it, this is long enough; it is not asked again for
/// each caller.
const GONE: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(5));
/// How long a new connection may take.
const ASKING: Duration = Duration::from_secs(4);
/// No step of a verb takes so long: its own connection is dead, though PostgreSQL is not.
const LONGEST: Duration = Duration::from_secs(600);

pub(super) struct Presence {
    config: Config,
    signs: Mutex<Signs>,
    /// Held while it is asked over a new connection.
    asking: tokio::sync::Mutex<()>,
}

struct Signs {
    /// The newest answer to anybody.
    heard: Instant,
    /// When it was asked and did not answer, if nothing was heard since.
    gone: Option<Instant>,
}

impl Presence {
    pub(super) fn new(config: Config) -> Self {
        let signs = Signs { heard: Instant::now(), gone: None };
        Self { config, signs: Mutex::new(signs), asking: tokio::sync::Mutex::default() }
    }

    /// What a step of a verb comes to, unless PostgreSQL is gone. Whoever gets an error here throws the connection
    /// away.
    ///
    /// A step comes pinned, and what is seldom done is boxed: this is within every statement, and an `async fn` keeps
    /// what it is given twice over.
    pub(super) async fn wait_for<T>(&self, mut step: Pin<&mut impl Future<Output = T>>) -> Result<T> {
        let begun = Instant::now();
        let mut patience = if self.signs().gone.is_some() { GONE.0 } else { QUIET };
        while begun.elapsed() < LONGEST {
            if let Ok(done) = timeout(patience, step.as_mut()).await {
                return Ok(done);
            }
            tokio::select! {
                biased;
                done = step.as_mut() => return Ok(done),
                there = Box::pin(self.is_there()) => if !there { break },
            }
            patience = AGAIN;
        }
        Err(silent())
    }

    /// As `wait_for`, of something that only PostgreSQL can have answered.
    pub(super) async fn answer<T, E>(
        &self,
        step: Pin<&mut impl Future<Output = std::result::Result<T, E>>>,
    ) -> Result<std::result::Result<T, E>> {
        let done = self.wait_for(step).await?;
        if done.is_ok() {
            self.note(true);
        }
        Ok(done)
    }

    /// Whether somebody got an answer just now.
    pub(super) fn is_heard(&self) -> bool {
        self.signs().heard.elapsed() < AGAIN
    }

    fn signs(&self) -> MutexGuard<'_, Signs> {
        // Nothing panics while it holds it.
        self.signs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note(&self, there: bool) {
        let now = Instant::now();
        let mut signs = self.signs();
        if there {
            *signs = Signs { heard: now, gone: None };
        } else {
            signs.gone = Some(now);
        }
    }

    async fn is_there(&self) -> bool {
        let since = Instant::now();
        // Many may wait: one asks for all of them.
        let _asking = self.asking.lock().await;
        let Signs { heard, gone } = *self.signs();
        if heard + AGAIN > since {
            return true;
        }
        if gone.is_some_and(|gone| gone + GONE.1 > since) {
            return false;
        }
        let there = timeout(ASKING, self.ask()).await.unwrap_or(false);
        self.note(there);
        there
    }

    /// Any word of the server is an answer, a refusal too.
    async fn ask(&self) -> bool {
        let connected = match self.config.get_ssl_mode() {
            SslMode::Require => match open::tls() {
                Ok(tls) => self.config.connect(tls).await.map(drop),
                Err(_) => return false,
            },
            _ => self.config.connect(NoTls).await.map(drop),
        };
        connected.err().is_none_or(|error| error.as_db_error().is_some())
    }
}

pub(super) fn silent() -> StoreError {
    StoreError::Unavailable("PostgreSQL does not answer".into())
}
