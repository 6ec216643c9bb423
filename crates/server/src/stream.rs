//! A run's events as a response body, in the wire that was asked for. The reader's own pace drives it: the next
//! events are pulled when the last ones were taken.

use std::convert::Infallible;
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use domain::approval::all_undecided;
use domain::event::{Done, Failed, RunEvent, Turn};
use domain::run::{Run, RunStatus};
use domain::scope::{Role, Scope};
use domain::wire::{Renderer, Wire, forward};
use futures_util::stream;
use store::StoreError;
use tokio::sync::watch;
use turn::{Follower, TurnError};
use uuid::Uuid;

use crate::extract::{Caller, Named};
use crate::forget::Forget;
use crate::problem::Problem;

pub const HEARTBEAT: Duration = Duration::from_secs(15);
/// A stream ends within this of its reader losing the right to read, where nothing tells of it before.
const RECHECK: Duration = Duration::from_secs(30);
/// To a reader that has to go on elsewhere because this node stops: how soon it may come back, in milliseconds.
pub const COME_BACK: &[u8] = b"retry: 500\n\n";

/// How a run is told to one reader.
pub struct Telling {
    pub renderer: Renderer,
    /// What comes before the first event.
    pub opening: Vec<u8>,
    /// A conversation that was not to be kept: it goes when the reader does.
    #[expect(dead_code, reason = "its drop is what it is for")]
    pub forget: Option<Forget>,
    /// The response ends where the run waits for a person: such a client asks its own user, and comes back.
    pub pauses: bool,
    /// There is nothing after the opening.
    pub over: bool,
}

impl Telling {
    pub fn plain(renderer: Renderer) -> Self {
        Self { renderer, opening: Vec::new(), forget: None, pauses: false, over: false }
    }
}

struct Reader {
    follower: Follower,
    telling: Telling,
    /// What is said first, where the log does not say it any more.
    turn: Turn,
    workspace: Uuid,
    /// An execution's lines go on as they came.
    raw: bool,
    caller: Caller,
    checked: Instant,
    /// Rights have changed in the workspace.
    rights: watch::Receiver<()>,
}

impl Reader {
    /// The next bytes; `None` ends the response.
    async fn next(&mut self) -> Option<Bytes> {
        if !self.telling.opening.is_empty() {
            return Some(std::mem::take(&mut self.telling.opening).into());
        }
        let heartbeat = self.telling.renderer.wire().heartbeat();
        // Of the reader's silence: events that its wire does not tell do not end it.
        let mut silent_until = tokio::time::Instant::now() + HEARTBEAT;
        let mut changed = false;
        while !self.telling.over {
            if changed || self.checked.elapsed() >= RECHECK {
                changed = false;
                // A store that is away for a moment says nothing about what the caller may see.
                match self.recheck().await {
                    Err(problem) if problem.status == StatusCode::SERVICE_UNAVAILABLE => {}
                    Err(_) if self.is_deleted().await => return Some(self.gone()),
                    Err(_) => return None,
                    Ok(()) => {}
                }
                self.checked = Instant::now();
            }
            let told = tokio::select! {
                biased;
                Ok(()) = self.rights.changed() => {
                    changed = true;
                    continue;
                }
                told = tokio::time::timeout_at(silent_until, self.follower.next()) => told,
            };
            match told {
                Err(_) if heartbeat.is_empty() => silent_until += HEARTBEAT,
                Err(_) => return Some(Bytes::from_static(heartbeat.as_bytes())),
                Ok(Ok(Some(events))) => {
                    let mut out = Vec::with_capacity(events.iter().map(|event| event.data.len() + 64).sum());
                    for event in &events {
                        if event.kind == "done" {
                            self.count().await;
                        }
                        if self.raw {
                            forward(event.ts, event.kind, &event.data, event.line.as_deref(), &mut out);
                        } else {
                            let renderer = &mut self.telling.renderer;
                            renderer.push(event.seq, event.ts, event.kind, &event.data, &mut out);
                        }
                    }
                    if self.telling.pauses && self.rests().await {
                        self.count().await;
                        self.telling.renderer.pause(&mut out);
                        self.telling.over = true;
                    }
                    if !out.is_empty() {
                        return Some(out.into());
                    }
                }
                Ok(Ok(None)) if self.follower.is_finished() || heartbeat.is_empty() => return None,
                Ok(Ok(None)) => {
                    self.telling.over = true;
                    return Some(Bytes::from_static(COME_BACK));
                }
                Ok(Err(TurnError::Store(StoreError::NotFound))) => return Some(self.gone()),
                Ok(Err(error)) => {
                    tracing::warn!(%error, "a stream broke off");
                    return None;
                }
            }
        }
        None
    }

    /// The run's own workspace, whichever others the caller comes to be in.
    fn named(&self) -> Named {
        Named(Some(self.workspace))
    }

    /// The credential may have been taken back, the membership, or the conversation from the caller's sight.
    async fn recheck(&self) -> Result<(), Problem> {
        let scope = self.caller.recheck(self.named()).await?;
        self.caller.app().store.get_run(&scope, self.turn.run).await?;
        Ok(())
    }

    /// Whether the run is gone for everybody, not for this caller alone.
    async fn is_deleted(&self) -> bool {
        let everybody = Scope {
            workspace: self.workspace,
            org: String::new(),
            user: String::new(),
            role: Role::Service,
            key: None,
            administers: false,
        };
        let run = self.caller.app().store.get_run(&everybody, self.turn.run).await;
        matches!(run, Err(StoreError::NotFound))
    }

    /// The end of a run whose conversation was deleted under its readers: nothing of it is told any more, but that.
    fn gone(&mut self) -> Bytes {
        self.telling.over = true;
        let (code, message) = ("cancelled".to_owned(), "the conversation was deleted".to_owned());
        let (last, now) = (self.follower.last_seen(), self.caller.app().clock.now().as_millisecond());
        // One that waited in the queue has said nothing yet.
        let turn = (last == 0).then(|| RunEvent::Turn(self.turn.clone()));
        let end = [
            RunEvent::Error(Failed { code, message, assistant: None }),
            RunEvent::Done(Done { status: RunStatus::Cancelled }),
        ];
        let mut out = Vec::new();
        for (event, seq) in turn.iter().chain(&end).zip(last + 1..) {
            let data = serde_json::to_string(event).unwrap_or_default();
            if self.raw {
                forward(now, event.name(), &data, None, &mut out);
            } else {
                self.telling.renderer.push(seq, now, event.name(), &data, &mut out);
            }
        }
        out.into()
    }

    /// Tells the dialect what the run has cost, where it has a word for that.
    async fn count(&mut self) {
        if self.telling.renderer.wire() != Wire::Responses {
            return;
        }
        let Ok(scope) = self.caller.scope(self.named()).await else { return };
        if let Ok(run) = self.caller.app().store.get_run(&scope, self.turn.run).await {
            self.telling.renderer.know(run.usage);
        }
    }

    /// Whether people have to decide before the run goes on: what waits in the log may have been decided since.
    async fn rests(&self) -> bool {
        let waiting = self.telling.renderer.resting();
        if waiting.is_empty() {
            return false;
        }
        let Ok(scope) = self.caller.scope(self.named()).await else { return false };
        let known = self.caller.app().store.list_approvals(scope.workspace, self.turn.run).await;
        known.is_ok_and(|known| all_undecided(&known, waiting))
    }
}

/// The response that streams a run to its caller.
pub fn respond(mut follower: Follower, wire: Wire, caller: Caller, run: &Run) -> Response {
    let renderer = Renderer::after(wire, if wire.looks_back() { follower.rewind() } else { 0 });
    let renderer = renderer.at(&caller.app().public_url);
    respond_as(follower, Telling::plain(renderer), caller, run)
}

/// As `respond`, told in a way of its own.
pub fn respond_as(follower: Follower, telling: Telling, caller: Caller, run: &Run) -> Response {
    let wire = telling.renderer.wire();
    let raw = wire == Wire::Ndjson && run.execution.is_some();
    let checked = Instant::now();
    let rights = caller.app().turns.rights(run.workspace);
    let turn =
        Turn { conversation: run.conversation, run: run.id, message: run.message, conversation_id: None };
    let workspace = run.workspace;
    let reader = Reader { follower, telling, turn, workspace, raw, caller, checked, rights };
    let bytes = stream::unfold(reader, |mut reader| async move {
        let next = reader.next().await?;
        Some((Ok::<_, Infallible>(next), reader))
    });
    let mut response = Body::from_stream(bytes).into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(wire.content_type()));
    let_through(headers);
    if wire == Wire::UiMessage {
        // As its own server writes them.
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
        headers.insert(header::CONNECTION, HeaderValue::from_static("keep-alive"));
        headers
            .insert(HeaderName::from_static("x-vercel-ai-ui-message-stream"), HeaderValue::from_static("v1"));
    }
    tell_ids(headers, run);
    response
}

/// Tells whoever stands between not to keep a stream, nor to gather or change what must arrive at once.
pub fn let_through(headers: &mut axum::http::HeaderMap) {
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache, no-store, no-transform"));
    headers.insert(HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no"));
}

/// The ids of an accepted turn.
pub fn tell_ids(headers: &mut axum::http::HeaderMap, run: &Run) {
    let ids = [
        ("threadkeep-conversation", run.conversation),
        ("threadkeep-run", Some(run.id)),
        ("threadkeep-message", run.message),
    ];
    for (name, id) in ids {
        if let Some(value) = id.and_then(|id| HeaderValue::from_str(&id.to_string()).ok()) {
            headers.insert(HeaderName::from_static(name), value);
        }
    }
}
