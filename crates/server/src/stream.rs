//! A run's events as a response body, in the wire that was asked for. The reader's own pace drives it: the next
//! events are pulled when the last ones were taken.

use std::convert::Infallible;
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use domain::run::Run;
use domain::wire::{Renderer, Wire, forward};
use futures_util::stream;
use turn::Follower;

use crate::extract::{Caller, Named};

const HEARTBEAT: Duration = Duration::from_secs(15);
/// A stream ends within this of its reader losing the right to read.
const RECHECK: Duration = Duration::from_secs(30);

struct Reader {
    follower: Follower,
    wire: Wire,
    /// An execution's lines go on as they came.
    raw: bool,
    renderer: Renderer,
    caller: Caller,
    named: Named,
    checked: Instant,
}

impl Reader {
    /// The next bytes; `None` ends the response.
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            if self.checked.elapsed() >= RECHECK {
                // The credential may have been taken back, and the membership with it. A store that is away for a
                // moment says nothing about that.
                match self.caller.recheck(self.named).await {
                    Err(problem) if problem.status != StatusCode::SERVICE_UNAVAILABLE => return None,
                    _ => {}
                }
                self.checked = Instant::now();
            }
            match tokio::time::timeout(HEARTBEAT, self.follower.next()).await {
                Err(_) if self.wire.heartbeat().is_empty() => {}
                Err(_) => return Some(Bytes::from_static(self.wire.heartbeat().as_bytes())),
                Ok(Ok(Some(events))) => {
                    let mut out = Vec::with_capacity(events.iter().map(|event| event.data.len() + 64).sum());
                    for event in &events {
                        if self.raw {
                            forward(event.ts, event.kind, &event.data, event.line.as_deref(), &mut out);
                        } else {
                            self.renderer.push(event.seq, event.ts, event.kind, &event.data, &mut out);
                        }
                    }
                    if !out.is_empty() {
                        return Some(out.into());
                    }
                }
                Ok(Ok(None)) => return None,
                Ok(Err(error)) => {
                    tracing::warn!(%error, "a stream broke off");
                    return None;
                }
            }
        }
    }
}

/// The response that streams a run to its caller.
pub fn respond(mut follower: Follower, wire: Wire, caller: Caller, named: Named, run: &Run) -> Response {
    let raw = wire == Wire::Ndjson && run.execution.is_some();
    let renderer = Renderer::after(wire, if wire.looks_back() { follower.rewind() } else { 0 });
    let reader = Reader { follower, wire, raw, renderer, caller, named, checked: Instant::now() };
    let bytes = stream::unfold(reader, |mut reader| async move {
        let next = reader.next().await?;
        Some((Ok::<_, Infallible>(next), reader))
    });
    let mut response = Body::from_stream(bytes).into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(wire.content_type()));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store, no-transform"));
    // Tells a proxy in front not to gather what must arrive at once.
    headers.insert(HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no"));
    tell_ids(headers, run);
    response
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
