//! Whether PostgreSQL is there. One that fell silent looks like one that has much to do: whoever waits for long asks
//! over a new connection, and gives up when that gets no answer either. So long work is not cut, and none waits for ever.

use std::pin::pin;
use std::sync::{Mutex, PoisonError};
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
/// How long a new connection may take.
const ASKING: Duration = Duration::from_secs(4);
/// No step of a verb takes so long: its own connection is dead, though PostgreSQL is not.
const LONGEST: Duration = Duration::from_secs(600);

pub(super) struct Presence {
    config: Config,
    /// The newest answer to anybody.
    heard: Mutex<Instant>,
    /// When it was last asked over a new connection, and whether there was an answer. Locked while it is.
    asked: tokio::sync::Mutex<Option<(Instant, bool)>>,
}

impl Presence {
    pub(super) fn new(config: Config) -> Self {
        Self { config, heard: Mutex::new(Instant::now()), asked: tokio::sync::Mutex::new(None) }
    }

    /// What a step of a verb comes to, unless PostgreSQL is gone. Whoever gets an error here throws the connection
    /// away.
    pub(super) async fn wait_for<T>(&self, step: impl Future<Output = T>) -> Result<T> {
        let (mut step, begun) = (pin!(step), Instant::now());
        let mut patience = QUIET;
        while begun.elapsed() < LONGEST {
            if let Ok(done) = timeout(patience, &mut step).await {
                return Ok(done);
            }
            tokio::select! {
                biased;
                done = &mut step => return Ok(done),
                there = self.is_there() => if !there { break },
            }
            patience = AGAIN;
        }
        Err(silent())
    }

    /// As `wait_for`, of something that only PostgreSQL can have answered.
    pub(super) async fn answer<T, E>(
        &self,
        step: impl Future<Output = std::result::Result<T, E>>,
    ) -> Result<std::result::Result<T, E>> {
        let done = self.wait_for(step).await?;
        if done.is_ok() {
            *self.heard.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
        }
        Ok(done)
    }

    /// Whether somebody got an answer just now.
    pub(super) fn is_heard(&self) -> bool {
        self.heard.lock().unwrap_or_else(PoisonError::into_inner).elapsed() < AGAIN
    }

    async fn is_there(&self) -> bool {
        if self.is_heard() {
            return true;
        }
        let since = Instant::now();
        // Many may wait: one asks for all of them.
        let mut asked = self.asked.lock().await;
        match *asked {
            Some((when, there)) if when >= since => there,
            _ => {
                let there = timeout(ASKING, self.ask()).await.unwrap_or(false);
                *asked = Some((Instant::now(), there));
                there
            }
        }
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
