//! One call of a provider over HTTP: sent, sent again where that is allowed, read within the time limits. Whatever
//! the other side does, the events end with exactly one `End`, and no secret is in its words.

use std::pin::pin;
use std::time::Duration;

use bytes::Bytes;
use domain::model::{ModelEvent, ModelFault, ModelFaultKind, Own};
use domain::secret::Secret;
use futures_util::stream;
use reqwest::header::{ACCEPT, ACCEPT_ENCODING, CONTENT_TYPE, HeaderMap, RETRY_AFTER};
use reqwest::{Response, StatusCode, Url};
use serde_json::Value;

use super::halves::Halves;
use super::{ModelLimits, ModelStream};
use crate::error::causes;
use crate::room::MAX_TEXT_BYTES;
use crate::sandbox::{arrived, beginning, excerpt, without_head};
use crate::silence::Silence;
use crate::sse::{SseEvent, SseReader};
use crate::trace::{self, Kind};

/// What a call's body may have in all.
const MAX_BODY_BYTES: usize = 64 * 1024 * 1024;
/// A batch is handed out when this much was read, even if more has arrived.
const BATCH_BYTES: usize = 256 * 1024;
/// How much of what a provider says about an error is told.
const WORDS_CHARS: usize = 1000;
/// A provider that wants more patience than this is told on instead of waited for.
const LONGEST_WAIT: Duration = Duration::from_secs(30);

/// What of a dialect is needed to read its answers.
pub(super) trait Parser: Send + Sync {
    /// One event of the stream. True when it was the last.
    fn event(&mut self, event: &SseEvent, out: &mut Vec<ModelEvent>) -> Result<bool, ModelFault>;
    /// A whole answer, from a server that does not stream.
    fn whole(&mut self, body: &Value, out: &mut Vec<ModelEvent>) -> Result<(), ModelFault>;
    /// The body is over: the end, if the answer had one.
    fn finish(&self) -> Option<ModelEvent>;
}

pub(super) struct Request {
    pub(super) client: reqwest::Client,
    pub(super) url: Url,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
    /// Never to be repeated in an error.
    pub(super) secrets: Vec<Secret>,
    /// Who is called, as an error names it.
    pub(super) provider: &'static str,
    pub(super) limits: ModelLimits,
    pub(super) parser: fn() -> Box<dyn Parser>,
    /// The provider's own words are handed out, too.
    pub(super) verbatim: bool,
}

pub(super) fn stream(request: Request) -> ModelStream {
    let parser = (request.parser)();
    let call = Call {
        request,
        attempt: 0,
        state: State::Unsent,
        sse: SseReader::default(),
        halves: Halves::default(),
        parser,
        held: Vec::new(),
        read: 0,
        said: 0,
        silence: Silence::begin(),
        spoke: false,
    };
    Box::pin(stream::unfold(call, |mut call| async move {
        let batch = call.next().await;
        (!batch.is_empty()).then_some((batch, call))
    }))
}

enum State {
    Unsent,
    Reading(Response, Media),
    Done,
}

struct Call {
    request: Request,
    attempt: u32,
    state: State,
    sse: SseReader,
    halves: Halves,
    parser: Box<dyn Parser>,
    /// The provider's own words before the first that counts: another try begins anew.
    held: Vec<ModelEvent>,
    read: usize,
    /// Of what was read, what is the answer.
    said: usize,
    /// Since the call was sent; after the first word, since the last byte came.
    silence: Silence,
    /// Something of the answer was handed out: from here on nothing is tried again.
    spoke: bool,
}

/// A failure, and whether another try may help.
struct Failed {
    fault: ModelFault,
    again: bool,
}

impl Call {
    async fn next(&mut self) -> Vec<ModelEvent> {
        let mut out = Vec::new();
        while out.is_empty() && !matches!(self.state, State::Done) {
            let step = match &mut self.state {
                State::Unsent => self.send().await,
                _ => self.read(&mut out).await,
            };
            self.spoke |= out.iter().any(is_word);
            if self.spoke {
                // It is not sent again, and may be long.
                self.request.body = Bytes::new();
            }
            if let Err(failed) = step {
                self.fail(failed, &mut out).await;
            }
        }
        out
    }

    async fn send(&mut self) -> Result<(), Failed> {
        self.silence = Silence::begin();
        let Request { client, url, headers, body, .. } = &self.request;
        let sending = client
            .post(url.clone())
            .header(CONTENT_TYPE, "application/json")
            .header(ACCEPT, "text/event-stream")
            .header(ACCEPT_ENCODING, "identity")
            .headers(headers.clone())
            .body(body.clone())
            .send();
        let provider = self.request.provider;
        let sending = pin!(trace::span(
            || format!("model {provider}"),
            Kind::Client,
            sending,
            |answer, attributes| {
                let status = answer.as_ref().map_or(0, |answer| answer.status().as_u16());
                attributes.push(("http.response.status_code", trace::Value::Number(status.into())));
                !(200..300).contains(&status)
            },
        ));
        let response = match self.silence.within(self.request.limits.first_token, sending).await {
            None => return Err(self.timed_out()),
            Some(Err(error)) => {
                let message = format!("{provider} could not be reached: {}.", causes(error));
                let fault = ModelFault::new(ModelFaultKind::Unreachable, self.clean(&message));
                return Err(Failed { fault, again: true });
            }
            Some(Ok(response)) => response,
        };
        if !response.status().is_success() {
            return Err(self.refused(response).await);
        }
        let media = Media::of(&response);
        self.state = State::Reading(without_head(response), media);
        Ok(())
    }

    /// Reads until there is something to hand out, and then what else is here already.
    async fn read(&mut self, out: &mut Vec<ModelEvent>) -> Result<(), Failed> {
        let json = matches!(self.state, State::Reading(_, Media::Json));
        let mut whole = Vec::new();
        let mut batch = 0;
        loop {
            let limits = &self.request.limits;
            let limit = if self.spoke { limits.idle } else { limits.first_token };
            let State::Reading(response, _) = &mut self.state else { return Ok(()) };
            let chunk = if out.is_empty() {
                let heard = self.silence.within(limit, pin!(response.chunk())).await;
                match heard {
                    Some(chunk) => chunk,
                    None => return self.end(out, Self::timed_out),
                }
            } else {
                match if batch < BATCH_BYTES { arrived(response).await } else { None } {
                    Some(chunk) => chunk,
                    None => return Ok(()),
                }
            };
            let bytes = match chunk {
                Ok(Some(bytes)) => bytes,
                Ok(None) if json => return self.whole(&whole, out),
                Ok(None) if self.is_no_stream() => {
                    return Err(self.nonsense("its answer is not a stream of events"));
                }
                Ok(None) => return self.end(out, |call| call.broke_off("it ended")),
                Err(error) => {
                    let reason = causes(error);
                    return self.end(out, |call| call.broke_off(&reason));
                }
            };
            self.read += bytes.len();
            batch += bytes.len();
            if self.read > MAX_BODY_BYTES {
                return Err(self.nonsense("its answer has more than 64 MiB"));
            }
            if json {
                whole.extend_from_slice(&bytes);
                continue;
            }
            let at = out.len();
            let over = self.take(&bytes, out)?;
            self.count(&out[at..])?;
            if over {
                return Ok(());
            }
            if self.spoke || out.iter().any(is_word) {
                self.spoke = true;
                self.silence = Silence::begin();
            }
        }
    }

    /// True when the answer is over.
    fn take(&mut self, bytes: &[u8], out: &mut Vec<ModelEvent>) -> Result<bool, Failed> {
        let mut events = Vec::new();
        let fits = self.sse.push(bytes, &mut events);
        self.halves.mend(&mut events);
        for event in events {
            let at = out.len();
            let last = self.parser.event(&event, out).map_err(|fault| self.of_provider(fault))?;
            if self.request.verbatim {
                // A block that came whole without a word of ours is an answer begun as well.
                let begun = last || event.name == "content_block_stop" || self.spoke;
                self.held.push(ModelEvent::Own(Own::Event { name: event.name, data: event.data }));
                if begun || out.iter().any(is_word) {
                    out.splice(at..at, self.held.drain(..));
                }
            }
            if last {
                self.state = State::Done;
                out.extend(self.parser.finish());
                return Ok(true);
            }
        }
        fits.map_err(|error| self.nonsense(&error.to_string()))?;
        Ok(false)
    }

    fn count(&mut self, events: &[ModelEvent]) -> Result<(), Failed> {
        self.said += events.iter().map(length).sum::<usize>();
        if self.said > MAX_TEXT_BYTES {
            let limit = MAX_TEXT_BYTES / (1024 * 1024);
            return Err(self.nonsense(&format!("its answer has more than {limit} MiB of text")));
        }
        Ok(())
    }

    /// All has come, and it is of another kind with no event in it: a page of a proxy, say.
    fn is_no_stream(&self) -> bool {
        self.read > 0 && !self.sse.has_read() && matches!(self.state, State::Reading(_, Media::Other))
    }

    fn whole(&mut self, body: &[u8], out: &mut Vec<ModelEvent>) -> Result<(), Failed> {
        let value = serde_json::from_slice(body)
            .map_err(|error| self.nonsense(&format!("its answer is not valid JSON: {error}")))?;
        self.parser.whole(&value, out).map_err(|fault| self.of_provider(fault))?;
        self.count(out)?;
        if self.request.verbatim {
            out.insert(0, ModelEvent::Own(Own::Whole(value)));
        }
        self.end(out, |call| call.broke_off("it ended"))
    }

    /// The body is over, or nothing more comes: a whole answer all the same, or a failure.
    fn end(&mut self, out: &mut Vec<ModelEvent>, why: impl FnOnce(&Self) -> Failed) -> Result<(), Failed> {
        let Some(end) = self.parser.finish() else { return Err(why(self)) };
        self.state = State::Done;
        out.append(&mut self.held);
        out.push(end);
        Ok(())
    }

    /// Tries again if that may help and nothing was said yet, else ends.
    async fn fail(&mut self, Failed { fault, again }: Failed, out: &mut Vec<ModelEvent>) {
        let limits = &self.request.limits;
        let asked = fault.retry_after.map(Duration::from_secs);
        let wait = asked.unwrap_or_else(|| limits.backoff.saturating_mul(1 << self.attempt.min(6)));
        if !again || self.spoke || self.attempt >= limits.retries || wait > LONGEST_WAIT {
            self.state = State::Done;
            out.push(ModelEvent::End(Err(fault)));
            return;
        }
        tracing::debug!(provider = self.request.provider, attempt = self.attempt, "a model is called again");
        out.clear();
        self.attempt += 1;
        self.state = State::Unsent;
        self.sse = SseReader::default();
        self.halves = Halves::default();
        self.held.clear();
        self.parser = (self.request.parser)();
        self.read = 0;
        tokio::time::sleep(wait).await;
    }

    fn timed_out(&self) -> Failed {
        let Request { provider, limits, .. } = &self.request;
        let message = if self.spoke {
            format!("{provider} sent nothing for {} s (MODEL_IDLE_SECONDS).", limits.idle.as_secs_f64())
        } else {
            let limit = limits.first_token.as_secs_f64();
            format!("{provider} sent no first word within {limit} s (MODEL_FIRST_TOKEN_SECONDS).")
        };
        Failed { fault: ModelFault::new(ModelFaultKind::Timeout, message), again: false }
    }

    fn broke_off(&self, reason: &str) -> Failed {
        let provider = self.request.provider;
        let message = format!("{provider} broke off before the end of its answer: {reason}.");
        let kind = if self.spoke { ModelFaultKind::Error } else { ModelFaultKind::Unreachable };
        Failed { fault: ModelFault::new(kind, self.clean(&message)), again: true }
    }

    fn nonsense(&self, reason: &str) -> Failed {
        let message = format!("{} cannot be understood: {reason}.", self.request.provider);
        Failed { fault: ModelFault::new(ModelFaultKind::Error, self.clean(&message)), again: false }
    }

    /// An error that the provider told in a body it had begun as a success.
    fn of_provider(&self, mut fault: ModelFault) -> Failed {
        fault.message = format!("{}: {}", self.request.provider, self.clean(&fault.message));
        let again = fault.status.is_some_and(worth_repeating);
        Failed { fault, again }
    }

    async fn refused(&self, response: Response) -> Failed {
        let status = response.status();
        let retry_after = response.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok());
        let retry_after = retry_after.and_then(|text| text.trim().parse().ok());
        let body = beginning(response).await;
        let said = serde_json::from_slice(&body).ok().and_then(|body: Value| words(&body));
        let said =
            said.map_or_else(|| excerpt(&body, &self.request.secrets, WORDS_CHARS), |said| self.clean(&said));
        let hint = if status.is_redirection() { " (redirects are not followed)" } else { "" };
        let colon = if said.is_empty() { "" } else { ": " };
        let message =
            format!("{} answered with status {}{hint}{colon}{said}", self.request.provider, status.as_u16());
        let fault = ModelFault {
            status: Some(status.as_u16()),
            retry_after,
            ..ModelFault::new(ModelFaultKind::Error, message)
        };
        Failed { fault, again: worth_repeating(status.as_u16()) }
    }

    fn clean(&self, text: &str) -> String {
        excerpt(text.as_bytes(), &self.request.secrets, WORDS_CHARS)
    }
}

/// What has been seen cannot be unseen: after one of these nothing is tried again.
fn is_word(event: &ModelEvent) -> bool {
    matches!(event, ModelEvent::Text(_) | ModelEvent::Reasoning(_) | ModelEvent::Call(_) | ModelEvent::Own(_))
}

fn length(event: &ModelEvent) -> usize {
    match event {
        ModelEvent::Text(text) | ModelEvent::Reasoning(text) => text.len(),
        ModelEvent::Call(part) => part.args.len(),
        _ => 0,
    }
}

fn worth_repeating(status: u16) -> bool {
    status == StatusCode::TOO_MANY_REQUESTS.as_u16() || (500..600).contains(&status)
}

/// What an answer says it is.
#[derive(Clone, Copy)]
enum Media {
    Json,
    Events,
    Other,
}

impl Media {
    fn of(response: &Response) -> Self {
        let kind = response.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or("");
        let kind = kind.trim_start().to_ascii_lowercase();
        match () {
            () if kind.starts_with("application/json") => Self::Json,
            () if kind.starts_with("text/event-stream") => Self::Events,
            () => Self::Other,
        }
    }
}

/// The message of an error in either dialect, with its type where that says more.
pub(super) fn words(body: &Value) -> Option<String> {
    let error = body.get("error").unwrap_or(body);
    let message = error.as_str().or_else(|| error.get("message")?.as_str())?.trim();
    (!message.is_empty()).then(|| message.to_owned())
}

/// An error in the middle of a stream, with the status that it would have had as an answer.
pub(super) fn told(error: &Value) -> ModelFault {
    let message = words(error).unwrap_or_else(|| error.to_string());
    let inner = error.get("error").unwrap_or(error);
    let kind = inner.get("type").or_else(|| inner.get("code")).and_then(Value::as_str).unwrap_or("");
    let status = match kind {
        "server_error" | "api_error" | "internal_error" => Some(500),
        "overloaded_error" => Some(529),
        "timeout_error" => Some(504),
        "rate_limit_error" | "rate_limit_exceeded" => Some(429),
        "invalid_request_error" => Some(400),
        "authentication_error" => Some(401),
        "permission_error" => Some(403),
        "not_found_error" => Some(404),
        "request_too_large" => Some(413),
        _ => inner.get("code").and_then(Value::as_u64).and_then(|code| u16::try_from(code).ok()),
    };
    ModelFault { status, ..ModelFault::new(ModelFaultKind::Error, message) }
}

pub(super) fn unreadable(error: &serde_json::Error) -> ModelFault {
    ModelFault::new(ModelFaultKind::Error, format!("it sent an event that is not valid JSON: {error}"))
}
