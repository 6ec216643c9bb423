//! Every request gets an id, a line in the log and its place in the metrics. Query strings and bodies are
//! never logged: they hold what people wrote.

use std::io::IsTerminal as _;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use axum::extract::{MatchedPath, Request};
use axum::http::{HeaderName, HeaderValue, Method, header};
use axum::middleware::Next;
use axum::response::Response;
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use tracing::Instrument;
use tracing_subscriber::EnvFilter;
use upstream::trace::{self, Context, Kind, Value};

use crate::config::LogFormat;

const COUNTED_EVERY: Duration = Duration::from_secs(5);
const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

pub async fn observe(mut request: Request, next: Next) -> Response {
    let id = request_id(&request);
    request.headers_mut().insert(REQUEST_ID, id.clone());
    let method = known(request.method());
    // The route, not the path: a label for each id would grow without end.
    let route = request.extensions().get::<MatchedPath>().map_or("none", MatchedPath::as_str).to_owned();
    let span = tracing::info_span!("request", id = id.to_str().unwrap_or(""), %method, route);
    let started = Instant::now();

    let parent = request.headers().get("traceparent").and_then(|value| value.to_str().ok());
    let parent = parent.and_then(Context::parse);
    let answering = next.run(request).instrument(span.clone());
    let traced = trace::span(
        || format!("{method} {route}"),
        Kind::Server,
        answering,
        |response: &Response, told| {
            let status = response.status();
            told.push(("http.request.method", Value::Text(method.to_owned())));
            told.push(("http.route", Value::Text(route.clone())));
            told.push(("http.response.status_code", Value::Number(status.as_u16().into())));
            told.push(("threadkeep.request_id", Value::Text(id.to_str().unwrap_or("").to_owned())));
            status.is_server_error()
        },
    );
    let mut response = trace::within(parent, traced).await;

    let (status, took) = (response.status().as_u16(), started.elapsed());
    span.in_scope(|| tracing::info!(status, ms = took.as_secs_f64() * 1000.0, "answered"));
    let labels = [("method", method.to_owned()), ("route", route), ("status", status.to_string())];
    metrics::counter!("threadkeep_http_requests_total", &labels).increment(1);
    metrics::histogram!("threadkeep_http_request_duration_seconds", &labels[..2]).record(took);

    let headers = response.headers_mut();
    headers.insert(REQUEST_ID, id);
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

/// A method by its name: any word may be sent as one, and a label for each would grow without end.
fn known(method: &Method) -> &'static str {
    const KNOWN: [&str; 9] = ["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS", "CONNECT", "TRACE"];
    KNOWN.into_iter().find(|name| *name == method.as_str()).unwrap_or("other")
}

/// The client's own id, if it is short and plain; otherwise a new one.
fn request_id(request: &Request) -> HeaderValue {
    let plain = |value: &&HeaderValue| {
        (1..=128).contains(&value.len())
            && value.as_bytes().iter().all(|byte| byte.is_ascii_alphanumeric() || b"-_.:".contains(byte))
    };
    request.headers().get(REQUEST_ID).filter(plain).cloned().unwrap_or_else(|| {
        let mut random = [0; 16];
        // Without randomness the id repeats, which costs a log search and nothing else.
        let _ = getrandom::fill(&mut random);
        let text: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
        HeaderValue::from_str(&text).unwrap_or(HeaderValue::from_static("none"))
    })
}

/// Logs to standard error; `RUST_LOG` chooses what. Called once by the binary.
pub fn start_logging(format: LogFormat) -> anyhow::Result<()> {
    let asked = std::env::var_os("RUST_LOG");
    let asked = asked.unwrap_or_else(|| "warn,server=info,store=info,upstream=info".into());
    let filter = asked.to_str().and_then(|text| EnvFilter::try_new(text).ok());
    let filter = filter.with_context(|| {
        format!("RUST_LOG is {asked:?}: it must be levels and targets, such as warn,server=debug")
    })?;
    let colours = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(|| Unbreakable(std::io::stderr()))
        .with_ansi(colours)
        // It would say so on standard error, where a failure is a panic.
        .log_internal_errors(false);
    match format {
        LogFormat::Json => builder.json().with_current_span(true).with_span_list(false).init(),
        LogFormat::Text => builder.init(),
    }
    Ok(())
}

/// Standard error, whose reader may have gone and whose disk may be full: what cannot be written is let go, and whatever
/// was being logged goes on.
struct Unbreakable(std::io::Stderr);

impl std::io::Write for Unbreakable {
    fn write(&mut self, line: &[u8]) -> std::io::Result<usize> {
        let _ = self.0.write_all(line);
        Ok(line.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Counts what was measured now and then: until somebody does, which may be nobody, each sample is kept by itself.
pub async fn count_samples(metrics: PrometheusHandle) {
    loop {
        tokio::time::sleep(COUNTED_EVERY).await;
        metrics.run_upkeep();
    }
}

/// The process's metrics; the first call installs their recorder.
pub fn metrics_handle() -> PrometheusHandle {
    static HANDLE: OnceLock<PrometheusHandle> = OnceLock::new();
    HANDLE
        .get_or_init(|| {
            let buckets = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];
            let builder = PrometheusBuilder::new();
            let builder = builder
                .set_buckets_for_metric(Matcher::Suffix("_seconds".into()), &buckets)
                .unwrap_or_else(|_| PrometheusBuilder::new());
            let recorder = builder.build_recorder();
            let handle = recorder.handle();
            if metrics::set_global_recorder(recorder).is_err() {
                tracing::warn!("another metrics recorder is installed; /metrics stays empty");
            }
            metrics::describe_counter!("threadkeep_http_requests_total", "Requests answered.");
            metrics::describe_histogram!(
                "threadkeep_http_request_duration_seconds",
                "Time to the response's head."
            );
            handle
        })
        .clone()
}
