//! The service: `POST /stream` takes an envelope and answers with the run's lines. One run, one connection: when it
//! closes, the run is over.

use std::future::Future;
use std::io;
use std::os::fd::AsFd as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use bytes::Bytes;
use domain::limits::Limits;
use domain::secret::Secret;
use domain::time::Clock;
use futures_util::stream;
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, mpsc};
use tokio_util::task::TaskTracker;

use crate::emit::Emitter;
use crate::envelope::Envelope;
use crate::frame::RoomLimits;
use crate::layers::{self, Isolation, Layer, Refused};
use crate::room::RoomSettings;

/// The message and the conversation, at most.
const MAX_ENVELOPE: usize = 64 * 1024 * 1024;
/// How long nothing is said, at most, before a blank line shows that we are there.
const HEARTBEAT: Duration = Duration::from_secs(10);
/// Lines on their way out; a reader that is slower makes the run wait.
const QUEUE: usize = 64;

pub struct Options {
    /// This program, to be started again: its `main` calls `sandbox::child` first.
    pub program: PathBuf,
    pub limits: Limits,
    /// What callers must show as `Authorization: Bearer`.
    pub token: Option<Secret>,
    pub allow_missing: Vec<Layer>,
    /// Whether bubblewrap is used where it is installed.
    pub bubblewrap: bool,
    /// Layers that are left out although the machine has them.
    pub without: Vec<Layer>,
    /// Folders that no run may see.
    pub hide: Vec<PathBuf>,
    /// The server's public address and where it is from here, if that is nearer.
    pub shortcut: Option<(String, String)>,
    pub clock: Arc<dyn Clock>,
    pub tasks: TaskTracker,
}

pub struct Sandbox(Arc<Service>);

pub(crate) struct Service {
    pub(crate) client: reqwest::Client,
    pub(crate) limits: Limits,
    pub(crate) rooms: RoomSettings,
    /// How rooms are made, or why none are.
    pub(crate) isolation: Result<Isolation, Refused>,
    pub(crate) places: Semaphore,
    shortcut: Option<(String, String)>,
    token: Option<Secret>,
    clock: Arc<dyn Clock>,
    pub(crate) tasks: TaskTracker,
}

impl Sandbox {
    /// Looks at what the machine offers. Where that is not enough the service runs all the same, and says so to
    /// every run; see `isolation`.
    pub async fn prepare(options: Options) -> Result<Self, upstream::UpstreamError> {
        let limits = &options.limits;
        let rooms = RoomSettings {
            program: options.program,
            limits: RoomLimits {
                cpu_seconds: limits.sandbox_cpu_seconds,
                memory_bytes: limits.sandbox_memory_bytes,
                disk_bytes: limits.sandbox_disk_bytes,
                processes: limits.sandbox_processes,
            },
            hide: options.hide.iter().map(|path| path.to_string_lossy().into_owned()).collect(),
            without: options.without,
            folder: Arc::new(crate::room::bare_base()),
            tasks: options.tasks.clone(),
        };
        crate::room::sweep(&rooms.folder);
        let isolation = layers::inspect(&rooms, options.bubblewrap, &options.allow_missing).await;
        let places =
            usize::try_from(limits.sandbox_concurrency).unwrap_or(usize::MAX).min(Semaphore::MAX_PERMITS);
        Ok(Self(Arc::new(Service {
            client: upstream::http::client()?,
            limits: options.limits,
            rooms,
            isolation,
            places: Semaphore::new(places),
            token: options.token,
            shortcut: options.shortcut,
            clock: options.clock,
            tasks: options.tasks,
        })))
    }

    /// How rooms are made here, or why none are.
    pub fn isolation(&self) -> Result<Isolation, Refused> {
        self.0.isolation.clone()
    }

    /// Serves until `stop`, then ends what runs.
    pub async fn run(self, listener: TcpListener, stop: impl Future<Output = ()>) -> io::Result<()> {
        let router = Router::new()
            .route("/stream", post(stream_run))
            .route("/healthz", get(async || "ok"))
            .with_state(Arc::clone(&self.0));
        tokio::select! {
            served = axum::serve(listener, router).into_future() => served?,
            () = stop => {}
        }
        // A stop ends what runs: rooms go with this process. Those that are ending get their moment.
        self.0.tasks.close();
        let _ = tokio::time::timeout(Duration::from_secs(2), self.0.tasks.wait()).await;
        Ok(())
    }
}

/// The listener that whoever started this process has put on its standard input.
pub fn from_stdin() -> io::Result<TcpListener> {
    let listener = std::net::TcpListener::from(io::stdin().as_fd().try_clone_to_owned()?);
    listener.set_nonblocking(true)?;
    TcpListener::from_std(listener)
}

async fn stream_run(State(service): State<Arc<Service>>, request: Request) -> Response {
    if !service.admits(request.headers()) {
        return (StatusCode::UNAUTHORIZED, "the sandbox's token is missing or wrong").into_response();
    }
    let Ok(body) = to_bytes(request.into_body(), MAX_ENVELOPE).await else {
        return (StatusCode::PAYLOAD_TOO_LARGE, "the envelope is too large, or broke off").into_response();
    };
    let mut envelope: Envelope = match serde_json::from_slice(&body) {
        Ok(envelope) => envelope,
        Err(error) => {
            return (StatusCode::BAD_REQUEST, format!("the envelope is malformed: {error}")).into_response();
        }
    };
    if envelope.version != 1 {
        let told = format!("version {} of the protocol is not known: send 1", envelope.version);
        return (StatusCode::BAD_REQUEST, told).into_response();
    }
    service.nearer(&mut envelope.agent_url);
    let (sender, lines) = mpsc::channel(QUEUE);
    let task = Arc::clone(&service);
    service.tasks.spawn(async move {
        let closed = sender.clone();
        let emitter = Emitter::new(sender, Arc::clone(&task.clock), task.limits.max_line_bytes);
        tokio::select! {
            // The caller has gone: the run is dropped where it stands, and its room with it.
            () = closed.closed() => {}
            _ = task.run(envelope, &emitter) => {}
        }
    });
    let silence = service.silence();
    let lines = stream::unfold(lines, move |lines| next_line(lines, silence));
    let mut response = Body::from_stream(lines).into_response();
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/x-ndjson"));
    response
}

/// The next line, or a blank one when there is none for a while.
async fn next_line(
    mut lines: mpsc::Receiver<Bytes>,
    silence: Duration,
) -> Option<(io::Result<Bytes>, mpsc::Receiver<Bytes>)> {
    let line = match tokio::time::timeout(silence, lines.recv()).await {
        Ok(line) => line?,
        Err(_) => Bytes::from_static(b"\n"),
    };
    Some((Ok(line), lines))
}

impl Service {
    /// How long we say nothing: well below what the server takes for our end.
    fn silence(&self) -> Duration {
        HEARTBEAT.min(Duration::from_secs(self.limits.sandbox_idle_seconds) / 3)
    }

    /// An address of the server, by the shorter way if there is one.
    pub(crate) fn nearer(&self, url: &mut String) {
        let Some((public, near)) = &self.shortcut else { return };
        if let Some(rest) =
            url.strip_prefix(public.as_str()).filter(|rest| rest.is_empty() || rest.starts_with('/'))
        {
            *url = format!("{near}{rest}");
        }
    }

    fn admits(&self, headers: &HeaderMap) -> bool {
        let Some(token) = &self.token else { return true };
        let given = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok()).unwrap_or("");
        let given = given.strip_prefix("Bearer ").unwrap_or("");
        // Compared by hash: how long it takes says nothing of the token.
        use sha2::{Digest as _, Sha256};
        Sha256::digest(given) == Sha256::digest(token.expose())
    }
}
