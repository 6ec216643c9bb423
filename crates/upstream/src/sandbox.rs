//! The client side of the sandbox protocol: one `POST {SANDBOX_URL}/stream` per run. In go the envelope
//! and a cancellation token; out come batches of lines and exactly one outcome, within the time limits.

use std::pin::{Pin, pin};
use std::time::Duration;

use domain::limits::Limits;
use domain::secret::Secret;
use reqwest::header::{ACCEPT, ACCEPT_ENCODING, CONNECTION, HeaderMap};
use reqwest::{Response, Url};
use serde::{Serialize, Serializer};
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::error::{UpstreamError, causes};
use crate::ndjson::{Ending, Intake};
pub use crate::ndjson::{FailureCode, MAX_REJECTED_IN_A_ROW, MAX_RUN_BYTES, Outcome, Received};
pub use crate::room::MAX_STEPS;
use crate::silence::Silence;
use crate::trace::{self, Kind};

/// From the call to the response's headers.
pub const HEADERS_TIMEOUT: Duration = Duration::from_secs(30);
/// What is spent on the body of an error response, which only makes the message better.
const ERROR_BODY_TIMEOUT: Duration = Duration::from_secs(2);
const ERROR_BODY_BYTES: usize = 4096;
const ERROR_BODY_CHARS: usize = 200;
/// How long a body that has said how it ends is waited for to be over: what else it says is noted.
const AFTER_END: Duration = Duration::from_millis(200);
/// A batch is handed out when it has this many bytes, even if more has arrived.
const BATCH_BYTES: usize = 256 * 1024;

/// What a run is told. `session_id` is the run.
#[derive(Debug, Clone, Serialize)]
pub struct Envelope {
    pub version: Version,
    pub session_id: Uuid,
    pub agent_url: String,
    #[serde(serialize_with = "exposed")]
    pub config_token: Secret,
    #[serde(serialize_with = "exposed")]
    pub upload_otp: Secret,
    pub workspace_id: Uuid,
    pub chat_id: Option<Uuid>,
    pub execution_id: Option<Uuid>,
    pub workflow_id: Option<String>,
    pub message: EnvelopeMessage,
    pub conversation: Vec<ChatTurn>,
    pub accepts: Accepts,
}

/// The one version there is: 1.
#[derive(Debug, Clone, Copy, Default)]
pub struct Version;

impl Serialize for Version {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_u8(1)
    }
}

/// The optional line types that are understood here: `delta`.
#[derive(Debug, Clone, Copy, Default)]
pub struct Accepts;

impl Serialize for Accepts {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(["delta"])
    }
}

#[derive(Debug, Clone, Serialize)]
pub struct EnvelopeMessage {
    pub id: Uuid,
    pub content: String,
    /// Epoch milliseconds, as every `ts` of the protocol.
    pub ts: i64,
}

#[derive(Debug, Clone, Serialize)]
pub struct ChatTurn {
    pub role: String,
    pub content: String,
    pub ts: i64,
}

fn exposed<S: Serializer>(secret: &Secret, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(secret.expose())
}

#[derive(Debug, Clone, Copy)]
pub struct SandboxLimits {
    pub headers: Duration,
    /// Without a byte of the body.
    pub idle: Duration,
    pub line_bytes: usize,
}

impl SandboxLimits {
    pub fn new(limits: &Limits) -> Self {
        Self {
            headers: HEADERS_TIMEOUT,
            idle: Duration::from_secs(limits.sandbox_idle_seconds),
            line_bytes: usize::try_from(limits.max_line_bytes).unwrap_or(usize::MAX),
        }
    }
}

#[derive(Debug, Clone)]
pub struct SandboxClient {
    client: reqwest::Client,
    url: Url,
    token: Option<Secret>,
    limits: SandboxLimits,
}

impl SandboxClient {
    /// `client` is the one of `upstream::http`.
    pub fn new(
        base: &str,
        token: Option<Secret>,
        client: reqwest::Client,
        limits: SandboxLimits,
    ) -> Result<Self, UpstreamError> {
        let bad = |reason: String| UpstreamError::Url { setting: "SANDBOX_URL", reason };
        let mut url = Url::parse(base).map_err(|error| bad(error.to_string()))?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err(bad(format!("its scheme is {}", url.scheme())));
        }
        url.set_query(None);
        url.set_fragment(None);
        if token.is_some() {
            // One Authorization header only; the token is the more particular of the two.
            let _ = (url.set_username(""), url.set_password(None));
        }
        if let Ok(mut path) = url.path_segments_mut() {
            path.pop_if_empty().push("stream");
        }
        Ok(Self { client, url, token, limits })
    }

    /// Nothing is sent before the first `next`. Dropping the stream drops the connection.
    pub fn stream(&self, envelope: &Envelope, cancel: CancellationToken) -> LineStream {
        let mut request = self
            .client
            .post(self.url.clone())
            .header(ACCEPT, "application/x-ndjson")
            .header(ACCEPT_ENCODING, "identity")
            .json(envelope);
        if self.url.scheme() == "http" {
            // A kept connection that the sandbox closes at this moment would fail a run that cannot be
            // sent again. (Over https it may be HTTP/2, where this header is not allowed nor needed.)
            request = request.header(CONNECTION, "close");
        }
        if let Some(token) = &self.token {
            request = request.bearer_auth(token.expose());
        }
        if let Some(context) = trace::current() {
            request = request.header("traceparent", context.header());
        }
        let mut secrets = vec![envelope.config_token.clone(), envelope.upload_otp.clone()];
        secrets.extend(self.token.clone());
        secrets.extend(self.url.password().map(Secret::new));
        let opening = open(request, self.limits.headers, secrets);
        LineStream {
            state: State::Opening(Box::pin(opening)),
            cancel,
            idle: self.limits.idle,
            silence: Silence::begin(),
            intake: Intake::new(self.limits.line_bytes, envelope.execution_id.is_some()),
            decided: None,
            batch: Vec::new(),
        }
    }
}

type Opening = Pin<Box<dyn Future<Output = Result<Response, Outcome>> + Send>>;

enum State {
    Opening(Opening),
    Reading(Response),
    Done,
}

/// The lines of one run as they arrive.
pub struct LineStream {
    state: State,
    cancel: CancellationToken,
    idle: Duration,
    /// Since the last byte came, or the headers.
    silence: Silence,
    intake: Intake,
    /// When its end was known.
    decided: Option<Instant>,
    /// Kept here, so that a `next` that is dropped half-way loses nothing.
    batch: Vec<Received>,
}

impl LineStream {
    /// What has arrived since the last call, at least one thing. The last batch ends with `End`; after it
    /// every batch is empty. May be dropped before it is ready and called again: nothing is lost, and the
    /// time limits run on.
    pub async fn next(&mut self) -> Vec<Received> {
        let cancel = self.cancel.clone();
        tokio::select! {
            biased;
            () = cancel.cancelled(), if !matches!(self.state, State::Done) => {
                if self.intake.is_decided() {
                    self.finish(Ending::Whole);
                } else {
                    self.state = State::Done;
                    self.batch.push(Received::End(Outcome::Cancelled));
                }
            }
            () = self.fill() => {}
        }
        std::mem::take(&mut self.batch)
    }

    /// What has arrived by now; nothing is waited for.
    pub async fn at_hand(&mut self) -> Vec<Received> {
        // The connection has its own task, which gets one turn to hand over what it has read.
        tokio::select! { biased; () = self.fill() => {}, () = tokio::task::yield_now() => {} }
        std::mem::take(&mut self.batch)
    }

    async fn fill(&mut self) {
        if let State::Opening(opening) = &mut self.state {
            match opening.await {
                Ok(response) => {
                    self.state = State::Reading(response);
                    self.silence = Silence::begin();
                }
                Err(outcome) => {
                    self.state = State::Done;
                    return self.batch.push(Received::End(outcome));
                }
            }
        }
        // A chunk may hold no whole line, or many; a batch is at least one and all that is here.
        let mut read = 0;
        while let State::Reading(response) = &mut self.state {
            let chunk = if self.batch.is_empty() && !self.intake.is_decided() {
                let heard = self.silence.within(self.idle, pin!(response.chunk())).await;
                match heard {
                    Some(chunk) => chunk,
                    None => return self.time_out(),
                }
            } else {
                match if read < BATCH_BYTES { arrived(response).await } else { None } {
                    Some(chunk) => chunk,
                    None if self.intake.is_decided() => {
                        let since = self.decided.get_or_insert_with(Instant::now);
                        let left = AFTER_END.saturating_sub(since.elapsed());
                        // Asked with no time left, a sandbox that never pauses would still be heard.
                        if left.is_zero() {
                            return self.finish(Ending::Whole);
                        }
                        match timeout(left, response.chunk()).await {
                            Ok(chunk) => chunk,
                            Err(_) => return self.finish(Ending::Whole),
                        }
                    }
                    None => return,
                }
            };
            match chunk {
                Ok(Some(chunk)) if chunk.is_empty() => {}
                Ok(Some(chunk)) => {
                    self.silence = Silence::begin();
                    read += chunk.len();
                    self.intake.take(&chunk, &mut self.batch);
                    if self.intake.is_over() {
                        return self.finish(Ending::Whole);
                    }
                }
                Ok(None) => self.finish(Ending::Whole),
                Err(error) => self.finish(Ending::Broken(&causes(error))),
            }
        }
    }

    /// The connection goes with the response.
    fn finish(&mut self, ending: Ending<'_>) {
        self.state = State::Done;
        self.intake.end(ending, &mut self.batch);
    }

    fn time_out(&mut self) {
        self.state = State::Done;
        let span = seconds(self.idle);
        let message = format!("The sandbox sent nothing for {span} (SANDBOX_IDLE_SECONDS). Try again.");
        self.batch.push(Received::End(Outcome::Failed { code: FailureCode::Timeout, message }));
    }
}

/// A further chunk, if it is here already. The connection has its own task, which gets one turn to
/// hand over what it has read.
pub(crate) async fn arrived(response: &mut Response) -> Option<reqwest::Result<Option<bytes::Bytes>>> {
    for turn in 0..2 {
        if turn > 0 {
            tokio::task::yield_now().await;
        }
        tokio::select! {
            biased;
            chunk = response.chunk() => return Some(chunk),
            () = std::future::ready(()) => {}
        }
    }
    None
}

/// A response that is still to be read, without its headers: they would keep the buffer in which they came for as long
/// as the body lasts.
pub(crate) fn without_head(mut response: Response) -> Response {
    *response.headers_mut() = HeaderMap::new();
    response
}

fn seconds(span: Duration) -> String {
    format!("{} s", span.as_secs_f64())
}

async fn open(
    request: reqwest::RequestBuilder,
    limit: Duration,
    secrets: Vec<Secret>,
) -> Result<Response, Outcome> {
    let unreachable = |message| Outcome::Failed { code: FailureCode::Unreachable, message };
    let sending = pin!(trace::span(
        || "sandbox POST /stream".into(),
        Kind::Client,
        request.send(),
        |answer, attributes| {
            let status = answer.as_ref().map_or(0, |answer| answer.status().as_u16());
            attributes.push(("http.response.status_code", trace::Value::Number(status.into())));
            !(200..300).contains(&status)
        },
    ));
    let response = match Silence::begin().within(limit, sending).await {
        None => {
            let span = seconds(limit);
            return Err(unreachable(format!("The sandbox did not answer within {span}. Is it running?")));
        }
        Some(Err(error)) => {
            let reason = causes(error);
            return Err(unreachable(format!("The sandbox could not be reached: {reason}.")));
        }
        Some(Ok(response)) => response,
    };
    let status = response.status();
    if status.is_success() {
        return Ok(without_head(response));
    }
    let hint = if status.is_redirection() { " (redirects are not followed)" } else { "" };
    let said = excerpt(&beginning(response).await, &secrets, ERROR_BODY_CHARS);
    let said = if said.is_empty() { String::new() } else { format!(": {said}") };
    Err(unreachable(format!("The sandbox answered with status {}{hint}{said}", status.as_u16())))
}

/// The first bytes of an error's body, or as many of them as come in time.
pub(crate) async fn beginning(mut response: Response) -> Vec<u8> {
    let mut bytes = Vec::new();
    let read = async {
        while let Ok(Some(chunk)) = response.chunk().await {
            let room = ERROR_BODY_BYTES - bytes.len();
            bytes.extend_from_slice(&chunk[..chunk.len().min(room)]);
            if bytes.len() == ERROR_BODY_BYTES {
                break;
            }
        }
    };
    // Late is as good as never: what came so far is shown.
    let _ = timeout(ERROR_BODY_TIMEOUT, read).await;
    bytes
}

/// Readable text on one line, without anything secret that an error page may repeat.
pub(crate) fn excerpt(bytes: &[u8], secrets: &[Secret], chars: usize) -> String {
    let mut text = String::from_utf8_lossy(bytes).into_owned();
    for secret in secrets.iter().filter(|secret| !secret.expose().is_empty()) {
        text = text.replace(secret.expose(), "****");
    }
    let clean: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    let words: Vec<&str> = clean.split_whitespace().collect();
    words.join(" ").chars().take(chars).collect()
}
