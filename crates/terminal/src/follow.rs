//! A run's events as they come, whatever the connection does: one that breaks is made again, and goes on after the
//! last event that was seen. A turn is sent with an idempotency key, so sending it twice starts it once.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use domain::entry::decode_event;
use domain::event::RunEvent;
use domain::time::{Clock as _, SystemClock};
use reqwest::{Method, Response};
use serde_json::Value;
use tokio::sync::mpsc;
use tokio_util::task::TaskTracker;
use upstream::sse::{SseEvent, SseReader};
use uuid::Uuid;

use crate::api::Server;
use crate::failure::{Failure, reason};

/// The server says something every 15 seconds, if only that it is there.
const SILENCE: Duration = Duration::from_secs(45);
/// How long a server may be away before the chat gives up on a run.
const AWAY: Duration = Duration::from_secs(300);
const LONGEST_PAUSE: Duration = Duration::from_secs(3);

#[derive(Debug)]
pub struct Seen {
    pub seq: i64,
    pub event: RunEvent,
    /// The event's data as it came.
    pub data: String,
}

#[derive(Debug)]
pub enum Item {
    /// The run has this id.
    Run(Uuid),
    Event(Box<Seen>),
    /// The connection is gone; it is being tried again.
    Away(String),
    /// It is there again.
    Back,
    /// What came so far is told again from the start.
    Again,
}

/// The last item is `Ok(None)` or a failure.
pub type Items = mpsc::Receiver<Result<Item, Failure>>;

/// A turn that is being asked for, or a run that is known.
pub enum What {
    Turn(Value),
    Run(Uuid),
}

/// Follows in the background until the run has ended or the receiver is gone.
pub fn follow(tasks: &TaskTracker, server: &Server, what: What) -> Items {
    let (items, receiver) = mpsc::channel(256);
    let mut follow = Follow::new(server.clone(), what);
    tasks.spawn(async move {
        loop {
            let item = tokio::select! {
                item = follow.next() => item,
                () = items.closed() => break,
            };
            let Some(item) = item.transpose() else { break };
            let failed = item.is_err();
            if items.send(item).await.is_err() || failed {
                break;
            }
        }
    });
    receiver
}

/// Sends a turn that is to wait for those before it. Its run is followed when its time has come.
pub async fn enqueue(server: &Server, turn: Value) -> Result<Uuid, Failure> {
    let mut follow = Follow::new(server.clone(), What::Turn(turn));
    loop {
        match follow.next().await? {
            Some(Item::Run(run)) => return Ok(run),
            Some(_) => {}
            None => return Err(Failure::Unreadable("a turn without a run".to_owned())),
        }
    }
}

struct Follow {
    server: Server,
    turn: Value,
    key: String,
    run: Option<Uuid>,
    last: i64,
    response: Option<Response>,
    reader: SseReader,
    ready: VecDeque<Item>,
    away: Option<Instant>,
    pause: Duration,
    done: bool,
}

impl Follow {
    fn new(server: Server, what: What) -> Self {
        let (turn, run) = match what {
            What::Turn(turn) => (turn, None),
            What::Run(run) => (Value::Null, Some(run)),
        };
        Self {
            server,
            turn,
            key: SystemClock.new_id().to_string(),
            run,
            last: 0,
            response: None,
            reader: SseReader::default(),
            ready: VecDeque::new(),
            away: None,
            pause: Duration::ZERO,
            done: false,
        }
    }

    /// `None` after the run's last event.
    async fn next(&mut self) -> Result<Option<Item>, Failure> {
        loop {
            if let Some(item) = self.ready.pop_front() {
                return Ok(Some(item));
            }
            if self.done {
                return Ok(None);
            }
            let outcome = match self.response.take() {
                None => self.open().await,
                Some(response) => self.read(response).await,
            };
            if let Err(failure) = outcome {
                self.lost(failure).await?;
            }
        }
    }

    async fn open(&mut self) -> Result<(), Failure> {
        self.reader = SseReader::default();
        let request = match self.run {
            Some(run) => self
                .server
                .request(Method::GET, &format!("/v1/runs/{run}/events?wire=envelope"))
                .header("last-event-id", self.last.to_string()),
            None => self
                .server
                .request(Method::POST, "/v1/turns?wire=envelope")
                .header("idempotency-key", &self.key)
                .json(&self.turn),
        };
        let response = match tokio::time::timeout(SILENCE, self.server.send(request)).await {
            Ok(answer) => answer?,
            Err(_) => return Err(Failure::Lost("it does not answer".to_owned())),
        };
        if self.run.is_none() {
            let named = response.headers().get("threadkeep-run").and_then(|id| id.to_str().ok());
            let run = named
                .and_then(|id| id.parse().ok())
                .ok_or_else(|| Failure::Unreadable("a turn without a run".to_owned()))?;
            self.run = Some(run);
            self.ready.push_back(Item::Run(run));
        }
        if self.away.take().is_some() {
            self.ready.push_back(Item::Back);
        }
        self.response = Some(response);
        Ok(())
    }

    async fn read(&mut self, mut response: Response) -> Result<(), Failure> {
        let chunk = match tokio::time::timeout(SILENCE, response.chunk()).await {
            Ok(Ok(chunk)) => chunk,
            Ok(Err(error)) => return Err(Failure::Lost(reason(error))),
            Err(_) => return Err(Failure::Lost("it has gone silent".to_owned())),
        };
        // A server that stops ends its streams; the run goes on, or is on another node.
        let Some(chunk) = chunk else { return Err(Failure::Lost("it closed the stream".to_owned())) };
        let mut events = Vec::new();
        self.reader.push(&chunk, &mut events).map_err(|error| Failure::Unreadable(error.to_string()))?;
        for event in events {
            self.take(event)?;
        }
        self.response = Some(response);
        Ok(())
    }

    fn take(&mut self, SseEvent { name, data, id }: SseEvent) -> Result<(), Failure> {
        let Ok(seq) = id.parse::<i64>() else { return Ok(()) };
        self.last = seq;
        self.pause = Duration::ZERO;
        // A newer server may know events that we do not.
        let Ok(event) = decode_event(&name, &data) else { return Ok(()) };
        self.done |= matches!(event, RunEvent::Done(_));
        self.ready.push_back(Item::Event(Box::new(Seen { seq, event, data })));
        Ok(())
    }

    /// Waits a little if it is worth another try.
    async fn lost(&mut self, failure: Failure) -> Result<(), Failure> {
        if let (Failure::Refused { status: 400, .. }, Some(_), true) = (&failure, self.run, self.last > 0) {
            // The log's time is over, and the stored message is told with numbers of its own.
            self.last = 0;
            self.ready.push_back(Item::Again);
            return Ok(());
        }
        // Nothing has been accepted yet: whoever asked can ask again.
        let unheard = self.run.is_none() && !matches!(failure, Failure::Lost(_));
        let since = *self.away.get_or_insert_with(Instant::now);
        if unheard || !failure.passes() || since.elapsed() > AWAY {
            return Err(failure);
        }
        if self.pause >= Duration::from_millis(400) {
            self.ready.push_back(Item::Away(failure.to_string()));
        }
        self.pause = (self.pause * 2).clamp(Duration::from_millis(100), LONGEST_PAUSE);
        tokio::time::sleep(self.pause).await;
        Ok(())
    }
}
