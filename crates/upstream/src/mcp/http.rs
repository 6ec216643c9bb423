//! MCP over streamable HTTP: a request is a POST, its answer a JSON body or a stream of events that ends with it.

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use domain::secret::Secret;
use reqwest::header::{ACCEPT, ACCEPT_ENCODING, CONTENT_TYPE, HeaderMap, HeaderValue};
use reqwest::{RequestBuilder, Response, StatusCode, Url};
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use tokio_util::task::TaskTracker;

use super::MAX_ANSWER_BYTES;
use super::rpc::{Era, Fault, Incoming, STATELESS, notification, read, refusal_in, reply, request};
use crate::error::causes;
use crate::sse::SseReader;

const SESSION: &str = "mcp-session-id";
const VERSION: &str = "mcp-protocol-version";
const NOTE: Duration = Duration::from_secs(5);
const FAREWELL: Duration = Duration::from_secs(1);
/// How many of a server's own questions are being answered at once; what it asks beyond that it asks in vain.
const REPLIES: usize = 8;
/// Of a refusal's body.
const REFUSAL_BYTES: usize = 64 * 1024;

/// Where a server is.
#[derive(Debug, Clone)]
pub struct HttpEndpoint {
    pub client: reqwest::Client,
    pub url: Url,
    /// Sent as a bearer token.
    pub token: Option<Secret>,
}

pub(super) struct HttpWire {
    endpoint: HttpEndpoint,
    /// What the server calls this session.
    session: OnceLock<HeaderValue>,
    last: AtomicI64,
    changed: Arc<AtomicBool>,
    replies: Arc<Semaphore>,
    tasks: TaskTracker,
}

impl HttpWire {
    pub(super) fn new(endpoint: HttpEndpoint, changed: Arc<AtomicBool>, tasks: TaskTracker) -> Arc<Self> {
        let (session, last) = (OnceLock::new(), AtomicI64::new(0));
        Arc::new(Self { endpoint, session, last, changed, replies: Arc::new(Semaphore::new(REPLIES)), tasks })
    }

    pub(super) async fn ask(
        self: &Arc<Self>,
        era: &Era,
        method: &str,
        params: Value,
    ) -> Result<Value, Fault> {
        let id = self.last.fetch_add(1, Ordering::Relaxed) + 1;
        let name = params["name"].as_str().map(str::to_owned);
        let body = request(era, id, method, params);
        let mut unanswered = Unanswered { wire: self, era, id, armed: true };
        let sending = self.post(era, &body, Some((method, name.as_deref()))).send();
        let response = sending.await.map_err(|error| Fault::Unreachable(causes(error)));
        let answer = match response {
            Ok(response) => self.answer(era, id, response).await,
            Err(fault) => Err(fault),
        };
        unanswered.armed = false;
        answer
    }

    pub(super) async fn tell(&self, era: &Era, method: &str, params: Value) -> Result<(), Fault> {
        let body = notification(era, method, params);
        let sent = self.post(era, &body, Some((method, None))).timeout(NOTE).send().await;
        let status = sent.map_err(|error| Fault::Unreachable(causes(error)))?.status();
        if status.is_success() { Ok(()) } else { Err(Fault::Status(status.as_u16())) }
    }

    /// Lets the server forget the session.
    pub(super) async fn close(&self, era: &Era) {
        if self.session.get().is_some() {
            let ending = self.endpoint.client.delete(self.endpoint.url.clone());
            let _ = self.with_headers(ending, era, None).timeout(FAREWELL).send().await;
        }
    }

    fn post(&self, era: &Era, body: &Value, about: Option<(&str, Option<&str>)>) -> RequestBuilder {
        let posting = self.endpoint.client.post(self.endpoint.url.clone());
        self.with_headers(posting, era, about)
            .header(CONTENT_TYPE, "application/json")
            .header(ACCEPT, "application/json, text/event-stream")
            .header(ACCEPT_ENCODING, "identity")
            .body(body.to_string())
    }

    fn with_headers(
        &self,
        mut request: RequestBuilder,
        era: &Era,
        about: Option<(&str, Option<&str>)>,
    ) -> RequestBuilder {
        if let Some(token) = &self.endpoint.token {
            request = request.bearer_auth(token.expose());
        }
        match era {
            Era::Unknown => {}
            Era::Handshake { version } => {
                request = request.header(VERSION, version);
                if let Some(session) = self.session.get() {
                    request = request.header(SESSION, session);
                }
            }
            Era::Stateless => {
                request = request.header(VERSION, STATELESS);
                if let Some((method, name)) = about {
                    request = request.header("mcp-method", method);
                    if let Some(name) = name.and_then(header_text) {
                        request = request.header("mcp-name", name);
                    }
                }
            }
        }
        request
    }

    async fn answer(self: &Arc<Self>, era: &Era, id: i64, response: Response) -> Result<Value, Fault> {
        let status = response.status();
        if !status.is_success() {
            return Err(self.refused(status, response).await);
        }
        if *era == Era::Unknown
            && let Some(session) = response.headers().get(SESSION)
        {
            let mut session = session.clone();
            session.set_sensitive(true);
            let _ = self.session.set(session);
        }
        if is(response.headers(), "text/event-stream") {
            self.streamed(era, id, response).await
        } else {
            let body = bounded(response, MAX_ANSWER_BYTES).await?;
            self.find(era, id, &body).unwrap_or_else(|| Err(Fault::Broken("it is no answer".to_owned())))
        }
    }

    async fn refused(&self, status: StatusCode, response: Response) -> Fault {
        let body = bounded(response, REFUSAL_BYTES).await.unwrap_or_default();
        let refusal = refusal_in(&body);
        let about_session = matches!(&refusal, Some(Fault::Refused { message, .. })
            if message.to_ascii_lowercase().contains("session"));
        // By the protocol it is 404; some say 400 and why.
        let lost = status == StatusCode::NOT_FOUND || (status == StatusCode::BAD_REQUEST && about_session);
        if lost && self.session.get().is_some() {
            return Fault::SessionLost;
        }
        refusal.unwrap_or(Fault::Status(status.as_u16()))
    }

    async fn streamed(self: &Arc<Self>, era: &Era, id: i64, mut response: Response) -> Result<Value, Fault> {
        let (mut reader, mut events, mut read) = (SseReader::default(), Vec::new(), 0);
        while let Some(chunk) = response.chunk().await.map_err(cut)? {
            read += chunk.len();
            if read > MAX_ANSWER_BYTES || reader.push(&chunk, &mut events).is_err() {
                return Err(too_large());
            }
            for event in events.drain(..) {
                if let Some(answer) = self.find(era, id, event.data.as_bytes()) {
                    return answer;
                }
            }
        }
        Err(Fault::Broken("it ended before the answer".to_owned()))
    }

    /// The answer among the messages of a text; the rest of them is dealt with.
    fn find(self: &Arc<Self>, era: &Era, id: i64, text: &[u8]) -> Option<Result<Value, Fault>> {
        let mut found = None;
        for message in read(text) {
            match message {
                Incoming::Answer { id: own, outcome } if own == id => found = Some(outcome),
                Incoming::Notification { method } if method == super::LIST_CHANGED => {
                    self.changed.store(true, Ordering::Relaxed);
                }
                Incoming::Request { id, method } if *era != Era::Stateless => {
                    let Ok(place) = Arc::clone(&self.replies).try_acquire_owned() else { continue };
                    let posted = self.post(era, &reply(&id, &method), None).timeout(NOTE).send();
                    self.tasks.spawn(async move {
                        drop(posted.await);
                        drop(place);
                    });
                }
                _ => {}
            }
        }
        found
    }
}

/// A call that is given up is told to the server, once.
struct Unanswered<'w> {
    wire: &'w Arc<HttpWire>,
    era: &'w Era,
    id: i64,
    armed: bool,
}

impl Drop for Unanswered<'_> {
    fn drop(&mut self) {
        // Without a handshake the closed connection says it.
        if !self.armed || !matches!(self.era, Era::Handshake { .. }) {
            return;
        }
        let (wire, era, id) = (Arc::clone(self.wire), self.era.clone(), self.id);
        self.wire.tasks.spawn(async move {
            let _ = wire.tell(&era, "notifications/cancelled", json!({ "requestId": id })).await;
        });
    }
}

/// A header takes only some texts; the protocol has a spelling for the others.
fn header_text(text: &str) -> Option<HeaderValue> {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;
    let plain = text.bytes().all(|byte| (0x21..0x7f).contains(&byte) || byte == b' ') && text.trim() == text;
    if plain {
        return HeaderValue::from_str(text).ok();
    }
    HeaderValue::from_str(&format!("=?base64?{}?=", STANDARD.encode(text))).ok()
}

fn is(headers: &HeaderMap, media: &str) -> bool {
    let stated = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    stated.split(';').next().is_some_and(|stated| stated.trim().eq_ignore_ascii_case(media))
}

async fn bounded(mut response: Response, limit: usize) -> Result<Vec<u8>, Fault> {
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(cut)? {
        if body.len() + chunk.len() > limit {
            return Err(too_large());
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body)
}

fn cut(error: reqwest::Error) -> Fault {
    Fault::Broken(format!("it broke off: {}", causes(error)))
}

fn too_large() -> Fault {
    Fault::Broken(format!("it has more than {MAX_ANSWER_BYTES} bytes"))
}
