//! The way to the collector: spans are gathered, and sent in batches from a task of their own.

use std::time::{Duration, Instant};

use domain::time::{Clock as _, SystemClock};
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use tokio::sync::{mpsc, oneshot};
use tokio_util::task::TaskTracker;

use super::proto::{Resource, encode};
use super::{RECORDER, Recorder, Span};
use crate::error::{UpstreamError, causes};

/// Spans that wait for the collector; more are dropped.
const WAITING: usize = 8192;
const BATCH: usize = 512;
const EVERY: Duration = Duration::from_secs(1);
const PATIENCE: Duration = Duration::from_secs(10);
/// How often it is said at most that the collector does not take anything.
const COMPLAIN: Duration = Duration::from_secs(60);

/// Sends on what is recorded until it is stopped.
pub struct Exporter {
    stop: oneshot::Sender<()>,
    stopped: oneshot::Receiver<()>,
}

impl Exporter {
    /// Sends what is there, if the collector takes it soon.
    pub async fn stop(self) {
        let _ = self.stop.send(());
        let _ = tokio::time::timeout(Duration::from_secs(2), self.stopped).await;
    }
}

struct Target {
    client: reqwest::Client,
    url: reqwest::Url,
    headers: HeaderMap,
    resource: Resource,
    complained: Option<Instant>,
}

/// Begins to export where the environment, in OpenTelemetry's own variables, names a collector.
pub fn start(
    env: impl Fn(&str) -> Option<String>,
    version: &str,
    tasks: &TaskTracker,
) -> Result<Option<Exporter>, UpstreamError> {
    let set = |name: &str| env(name).map(|value| value.trim().to_owned()).filter(|value| !value.is_empty());
    let Some(url) = url(&set)? else { return Ok(None) };
    let share = share(&set)?;
    let target = Target {
        client: crate::http::client()?,
        url,
        headers: headers(&set)?,
        resource: resource(&set, version),
        complained: None,
    };
    let (spans, queue) = mpsc::channel(WAITING);
    let began = (SystemClock.now().as_millisecond(), Instant::now());
    if RECORDER.set(Recorder { spans, share, began }).is_err() {
        return Ok(None);
    }
    let (stop, stopping) = oneshot::channel();
    let (done, stopped) = oneshot::channel();
    tasks.spawn(async move {
        export(target, queue, stopping).await;
        let _ = done.send(());
    });
    Ok(Some(Exporter { stop, stopped }))
}

type Set<'a> = &'a dyn Fn(&str) -> Option<String>;

fn url(set: Set<'_>) -> Result<Option<reqwest::Url>, UpstreamError> {
    if set("OTEL_SDK_DISABLED").is_some_and(|value| value.eq_ignore_ascii_case("true"))
        || set("OTEL_TRACES_EXPORTER").is_some_and(|value| value == "none")
    {
        return Ok(None);
    }
    let (setting, url) = match (set("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"), set("OTEL_EXPORTER_OTLP_ENDPOINT"))
    {
        (Some(own), _) => ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", own),
        (None, Some(base)) => {
            ("OTEL_EXPORTER_OTLP_ENDPOINT", format!("{}/v1/traces", base.trim_end_matches('/')))
        }
        (None, None) => return Ok(None),
    };
    let bad = |reason: String| UpstreamError::Url { setting, reason };
    let url: reqwest::Url = url.parse().map_err(|error| bad(format!("{error}")))?;
    match url.scheme() {
        "http" | "https" => Ok(Some(url)),
        other => Err(bad(format!("its scheme is {other}"))),
    }
}

fn share(set: Set<'_>) -> Result<f64, UpstreamError> {
    let malformed =
        |reason: &str| UpstreamError::Malformed { what: "OTEL_TRACES_SAMPLER", reason: reason.to_owned() };
    let sampler = set("OTEL_TRACES_SAMPLER").unwrap_or_else(|| "parentbased_always_on".to_owned());
    match sampler.trim_start_matches("parentbased_") {
        "always_on" => Ok(1.0),
        "always_off" => Ok(0.0),
        "traceidratio" => {
            let share = set("OTEL_TRACES_SAMPLER_ARG").map_or(Some(1.0), |text| text.parse::<f64>().ok());
            let share = share.filter(|share| (0.0..=1.0).contains(share));
            share.ok_or_else(|| malformed("OTEL_TRACES_SAMPLER_ARG must be a number from 0 to 1"))
        }
        _ => Err(malformed("it must be always_on, always_off or traceidratio, alone or after parentbased_")),
    }
}

/// `name=value,name=value`; the values are usually secrets, so an error does not show them.
fn headers(set: Set<'_>) -> Result<HeaderMap, UpstreamError> {
    let mut headers = HeaderMap::new();
    let text = set("OTEL_EXPORTER_OTLP_TRACES_HEADERS").or_else(|| set("OTEL_EXPORTER_OTLP_HEADERS"));
    for (name, value) in pairs(text.as_deref().unwrap_or_default()) {
        let name = HeaderName::from_bytes(name.to_ascii_lowercase().as_bytes());
        let value = HeaderValue::from_str(&value);
        let (Ok(name), Ok(mut value)) = (name, value) else {
            let reason = "it must be a list of name=value".to_owned();
            return Err(UpstreamError::Malformed { what: "OTEL_EXPORTER_OTLP_HEADERS", reason });
        };
        value.set_sensitive(true);
        headers.insert(name, value);
    }
    Ok(headers)
}

fn resource(set: Set<'_>, version: &str) -> Resource {
    let mut attributes = pairs(&set("OTEL_RESOURCE_ATTRIBUTES").unwrap_or_default());
    let named =
        attributes.iter().position(|(key, _)| key == "service.name").map(|at| attributes.remove(at).1);
    let name = set("OTEL_SERVICE_NAME").or(named).unwrap_or_else(|| "threadkeep".to_owned());
    attributes.push(("service.name".to_owned(), name));
    attributes.push(("service.version".to_owned(), version.to_owned()));
    Resource(attributes)
}

fn pairs(text: &str) -> Vec<(String, String)> {
    let pairs = text.split(',').filter_map(|pair| pair.split_once('='));
    pairs.map(|(key, value)| (key.trim().to_owned(), unescape(value.trim()))).collect()
}

/// Percent-encoding, as both variables may have it; what is none stays as it is.
fn unescape(text: &str) -> String {
    let (mut out, mut rest) = (Vec::new(), text.as_bytes());
    while let Some((first, tail)) = rest.split_first() {
        let digits =
            tail.get(..2).filter(|_| *first == b'%').and_then(|digits| std::str::from_utf8(digits).ok());
        match digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(byte) => {
                out.push(byte);
                rest = &tail[2..];
            }
            None => {
                out.push(*first);
                rest = tail;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

async fn export(mut target: Target, mut queue: mpsc::Receiver<Span>, mut stopping: oneshot::Receiver<()>) {
    let mut batch = Vec::new();
    let mut tick = tokio::time::interval(EVERY);
    loop {
        let stop = tokio::select! {
            _ = tick.tick() => false,
            _ = &mut stopping => true,
        };
        while let Ok(span) = queue.try_recv() {
            batch.push(span);
            if batch.len() == BATCH {
                target.send(&batch).await;
                batch.clear();
            }
        }
        if !batch.is_empty() {
            target.send(&batch).await;
            batch.clear();
        }
        if stop {
            return;
        }
    }
}

impl Target {
    async fn send(&mut self, spans: &[Span]) {
        let request = self
            .client
            .post(self.url.clone())
            .headers(self.headers.clone())
            .header(CONTENT_TYPE, "application/x-protobuf")
            .timeout(PATIENCE)
            .body(encode(&self.resource, spans));
        let failure = match request.send().await {
            Ok(answer) if answer.status().is_success() => return,
            Ok(answer) => format!("it answers {}", answer.status()),
            Err(error) => causes(error),
        };
        if self.complained.is_none_or(|at| at.elapsed() > COMPLAIN) {
            self.complained = Some(Instant::now());
            tracing::warn!(spans = spans.len(), "the trace collector takes nothing: {failure}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_variables_are_read_as_opentelemetry_has_them() {
        let of = |pairs: &'static [(&'static str, &'static str)]| {
            move |name: &str| pairs.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned())
        };
        assert_eq!(url(&of(&[])).unwrap(), None);
        let base = of(&[("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:4318/")]);
        assert_eq!(url(&base).unwrap().unwrap().as_str(), "http://127.0.0.1:4318/v1/traces");
        let own = of(&[
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://a"),
            ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://b/in"),
        ]);
        assert_eq!(url(&own).unwrap().unwrap().as_str(), "http://b/in");
        let off = of(&[("OTEL_EXPORTER_OTLP_ENDPOINT", "http://a"), ("OTEL_SDK_DISABLED", "TRUE")]);
        assert_eq!(url(&off).unwrap(), None);
        assert!(url(&of(&[("OTEL_EXPORTER_OTLP_ENDPOINT", "127.0.0.1:4318")])).is_err());
        let ratio =
            of(&[("OTEL_TRACES_SAMPLER", "parentbased_traceidratio"), ("OTEL_TRACES_SAMPLER_ARG", "0.25")]);
        assert!((share(&ratio).unwrap() - 0.25).abs() < 1e-9);
        assert!(share(&of(&[("OTEL_TRACES_SAMPLER", "sometimes")])).is_err());
        let secret = of(&[("OTEL_EXPORTER_OTLP_HEADERS", "Authorization=Bearer%20x,X-A=b")]);
        let headers = headers(&secret).unwrap();
        assert_eq!(
            (&headers["authorization"], &headers["x-a"]),
            (&"Bearer x".parse().unwrap(), &"b".parse().unwrap())
        );
        assert!(!format!("{headers:?}").contains("Bearer"));
        let named = of(&[("OTEL_RESOURCE_ATTRIBUTES", "service.name=mine,zone=a%2Cb")]);
        assert!(resource(&named, "1").0.contains(&("zone".into(), "a,b".into())));
        assert!(resource(&named, "1").0.contains(&("service.name".into(), "mine".into())));
    }
}
