//! What nodes tell each other: NOTIFY in statements of its own, LISTEN on a connection of its own.

use std::collections::VecDeque;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::{self, BoxStream};
use tokio_postgres::config::SslMode;
use tokio_postgres::tls::MakeTlsConnect;
use tokio_postgres::{AsyncMessage, Client, Config, NoTls, Socket};
use uuid::Uuid;

use super::error::describe;
use super::open;
use super::transaction::{Database, Query, Settings};
use crate::error::{Result, StoreError};
use crate::turns::News;

const CHANNEL: &str = "threadkeep_runs";
/// PostgreSQL takes payloads under 8000 bytes.
const PAYLOAD_BYTES: usize = 7_900;
const CONNECT: Duration = Duration::from_secs(10);
const FIRST_RETRY: Duration = Duration::from_millis(100);
const LAST_RETRY: Duration = Duration::from_secs(5);
/// A server that went away without a word is noticed after about half a minute.
const KEEPALIVE: (Duration, Duration, u32) = (Duration::from_secs(15), Duration::from_secs(5), 3);

/// A NOTIFY holds a lock of the whole server until its commit is done, so this one waits for no disk.
pub(super) async fn announce(db: &Database, news: &[News]) -> Result<()> {
    if news.is_empty() {
        return Ok(());
    }
    let payloads = payloads(news);
    let text = "SELECT pg_notify($1, payload) FROM unnest($2::text[]) AS payload";
    let query = Query { text, params: vec![&CHANNEL, &payloads] };
    db.rows_unsynced(&Settings::nobody(), &query).await.map(|_| ())
}

fn payloads(news: &[News]) -> Vec<String> {
    let mut payloads = vec![String::new()];
    for news in news {
        let (kind, run) = match news {
            News::Moved(run) => ('m', run),
            News::Following(run) => ('f', run),
            News::Left(run) => ('l', run),
            News::Cancelled(run) => ('c', run),
            News::Results(run) => ('r', run),
            News::Rights(workspace) => ('w', workspace),
            News::Missed => continue,
        };
        let word = format!("{kind}{}", run.simple());
        match payloads.last_mut() {
            Some(last) if last.len() + word.len() <= PAYLOAD_BYTES => last.push_str(&word),
            _ => payloads.push(word),
        }
    }
    payloads
}

const WORD_BYTES: usize = 33;

/// A word of another version's is passed over.
fn parse(payload: &str) -> impl Iterator<Item = News> {
    payload.as_bytes().chunks(WORD_BYTES).filter_map(|word| {
        let (kind, run) = word.split_first()?;
        let run = Uuid::try_parse_ascii(run).ok()?;
        match kind {
            b'm' => Some(News::Moved(run)),
            b'f' => Some(News::Following(run)),
            b'l' => Some(News::Left(run)),
            b'c' => Some(News::Cancelled(run)),
            b'r' => Some(News::Results(run)),
            b'w' => Some(News::Rights(run)),
            _ => None,
        }
    })
}

/// Everything announced, from the first poll on, for as long as it is polled.
pub(super) fn listen(config: &Config) -> BoxStream<'static, News> {
    let mut config = config.clone();
    let (idle, interval, retries) = KEEPALIVE;
    config.keepalives_idle(idle).keepalives_interval(interval).keepalives_retries(retries);
    let listener =
        Listener { config, session: None, retry: FIRST_RETRY, missed: false, heard: VecDeque::new() };
    stream::unfold(listener, |mut listener| async move {
        let news = listener.next().await;
        Some((news, listener))
    })
    .boxed()
}

type Messages = BoxStream<'static, Result<AsyncMessage, tokio_postgres::Error>>;

struct Listener {
    config: Config,
    session: Option<(Client, Messages)>,
    retry: Duration,
    /// Whether there was a session before.
    missed: bool,
    heard: VecDeque<News>,
}

impl Listener {
    async fn next(&mut self) -> News {
        loop {
            if let Some(news) = self.heard.pop_front() {
                return news;
            }
            if let Err(error) = self.hear().await {
                tracing::warn!(%error, "other nodes are not heard; their news come with the next look at the table");
                self.missed |= self.session.take().is_some();
                tokio::time::sleep(self.retry).await;
                self.retry = (2 * self.retry).min(LAST_RETRY);
            }
        }
    }

    async fn hear(&mut self) -> Result<()> {
        if let Some((_, messages)) = &mut self.session {
            let message = messages.next().await;
            return self.note(message);
        }
        let connected = tokio::time::timeout(CONNECT, self.connect()).await;
        let session =
            connected.unwrap_or_else(|_| Err(StoreError::Unavailable("PostgreSQL: no answer".into())))?;
        self.retry = FIRST_RETRY;
        self.session = Some(session);
        self.heard.extend(std::mem::take(&mut self.missed).then_some(News::Missed));
        Ok(())
    }

    fn note(&mut self, message: Option<Result<AsyncMessage, tokio_postgres::Error>>) -> Result<()> {
        match message {
            Some(Ok(AsyncMessage::Notification(heard))) => self.heard.extend(parse(heard.payload())),
            Some(Ok(_)) => {}
            Some(Err(error)) => return Err(StoreError::Unavailable(describe(&error))),
            None => return Err(StoreError::Unavailable("PostgreSQL closed the connection".into())),
        }
        Ok(())
    }

    async fn connect(&mut self) -> Result<(Client, Messages)> {
        let (client, mut messages) = match self.config.get_ssl_mode() {
            SslMode::Require => session(&self.config, open::tls()?).await?,
            _ => session(&self.config, NoTls).await?,
        };
        {
            let mut listen = std::pin::pin!(client.batch_execute("LISTEN threadkeep_runs"));
            loop {
                tokio::select! {
                    done = &mut listen => break done?,
                    message = messages.next() => self.note(message)?,
                }
            }
        }
        Ok((client, messages))
    }
}

async fn session<T>(config: &Config, tls: T) -> Result<(Client, Messages)>
where
    T: MakeTlsConnect<Socket>,
    T::Stream: Send + 'static,
{
    let (client, mut connection) = config.connect(tls).await?;
    Ok((client, stream::poll_fn(move |context| connection.poll_message(context)).boxed()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn payloads_stay_under_the_limit_and_say_the_same() {
        for count in [1, 2, 239, 240, 1000] {
            let news: Vec<News> = (0..count)
                .map(|n| match n % 4 {
                    0 => News::Moved(Uuid::from_u128(n)),
                    1 => News::Following(Uuid::from_u128(n << 64)),
                    2 => News::Left(Uuid::from_u128(n << 32)),
                    _ => News::Cancelled(Uuid::from_u128(u128::MAX - n)),
                })
                .collect();
            let payloads = payloads(&news);
            assert!(payloads.iter().all(|payload| payload.len() < 8000));
            let heard: Vec<News> = payloads.iter().flat_map(|payload| parse(payload)).collect();
            assert_eq!(heard, news);
        }
        assert_eq!(parse("x00").count(), 0);
        assert_eq!(parse("zé").count(), 0);
    }
}
