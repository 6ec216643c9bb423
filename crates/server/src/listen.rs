//! The accept loop: connections with bounded headers and patience. When the shutdown comes, what is under way is let
//! finish, and runs may still call back.

use std::future::Future;
use std::sync::atomic::Ordering;
use std::time::Duration;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{HeaderValue, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use hyper::server::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;

use crate::head;
use crate::problem::Problem;
use crate::protocol::Protocol;
use crate::state::AppState;
use crate::stream::COME_BACK;

const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a peer may leave what it was sent unacknowledged, or take nothing of it.
#[cfg(target_os = "linux")]
const WRITE_TIMEOUT: Duration = Duration::from_secs(30);
/// How long requests under way may take to finish once the server is told to stop.
const DRAIN: Duration = Duration::from_secs(30);
/// Of that, what runs get; those still under way then are settled as interrupted.
const RUNS: Duration = Duration::from_secs(20);

/// Serves until `shutdown` resolves, then lets what is under way finish.
pub async fn listen(
    listener: TcpListener,
    router: Router,
    app: &AppState,
    shutdown: impl Future<Output = ()>,
) {
    let (before, after) = (GracefulShutdown::new(), GracefulShutdown::new());
    let over = CancellationToken::new();
    tokio::select! {
        () = shutdown => {}
        () = accept(&listener, &router, app, (&before, &over)) => {}
    }
    app.draining.store(true, Ordering::Relaxed);
    app.stopping.cancel();
    app.tasks.close();
    // Their sandboxes call back over connections of their own, so the door stays open until they have ended.
    let runs = async {
        tokio::select! {
            () = app.turns.drain(RUNS) => {}
            () = accept(&listener, &router, app, (&after, &over)) => {}
        }
        drop(listener);
        over.cancel();
        after.shutdown().await;
    };
    // Runs first: their readers' requests end with them.
    let drained = async { tokio::join!(runs, before.shutdown(), app.tasks.wait()) };
    if tokio::time::timeout(DRAIN, drained).await.is_err() {
        tracing::warn!("requests were still under way after {} s", DRAIN.as_secs());
    }
}

/// Takes connections without end. Those that have said nothing by then are dropped when all is `over`.
async fn accept(
    listener: &TcpListener,
    router: &Router,
    app: &AppState,
    (graceful, over): (&GracefulShutdown, &CancellationToken),
) {
    loop {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                // Out of file descriptors, most likely: a moment's rest, then go on.
                tracing::warn!(%error, "cannot accept a connection");
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            }
        };
        // Small writes of a stream must not wait for each other.
        let _ = stream.set_nodelay(true);
        give_up_on_the_silent(&stream);
        let (router, watcher, over) = (router.clone(), graceful.watcher(), over.clone());
        app.tasks.spawn(async move {
            let protocol = tokio::select! {
                protocol = Protocol::of(&stream, HEAD_TIMEOUT) => protocol,
                () = over.cancelled() => return,
            };
            let served = match protocol {
                Ok(protocol) => serve(stream, protocol, router, watcher).await,
                Err(error) => Err(error.into()),
            };
            if let Err(error) = served {
                tracing::debug!(error, "a connection ended badly");
            }
        });
    }
}

/// What a run under way, and whoever watches this server, may ask for while it stops.
const CALLBACKS: [&str; 8] = [
    "/v1/agent/",
    "/v1/assets/",
    "/v1/chat/completions",
    "/v1/messages",
    "/v1/models",
    "/healthz",
    "/readyz",
    "/metrics",
];

/// On a server that stops, all else is for another node, or the next start. A reader is sent there: a browser's
/// `EventSource` gives up for good on any status but 200.
pub async fn callbacks_alone(State(app): State<AppState>, request: Request, next: Next) -> Response {
    let path = request.uri().path();
    if !app.is_draining() || CALLBACKS.iter().any(|callback| path.starts_with(callback)) {
        return next.run(request).await;
    }
    let sent_events = HeaderValue::from_static("text/event-stream");
    if path.ends_with("/events") && request.headers().get(header::ACCEPT) == Some(&sent_events) {
        return ([(header::CONTENT_TYPE, sent_events)], COME_BACK).into_response();
    }
    Problem::stopping().into_response()
}

/// A reader that vanished without a word, or reads no more, is nobody's reader: it holds its place, and a run that is to
/// end with its last reader, no longer than this. It finds what it missed when it comes back.
#[cfg(target_os = "linux")]
fn give_up_on_the_silent(stream: &TcpStream) {
    let millis = WRITE_TIMEOUT.as_millis().try_into().unwrap_or(u32::MAX);
    if let Err(error) = rustix::net::sockopt::set_tcp_user_timeout(stream, millis) {
        tracing::debug!(%error, "peers that fall silent are noticed late");
    }
}

#[cfg(not(target_os = "linux"))]
fn give_up_on_the_silent(_: &TcpStream) {}

type Served = Result<(), Box<dyn std::error::Error + Send + Sync>>;

async fn serve(stream: TcpStream, protocol: Protocol, router: Router, watcher: Watcher) -> Served {
    let (stream, service) = (TokioIo::new(stream), TowerToHyperService::new(router));
    match protocol {
        Protocol::Http1 => {
            let mut builder = http1::Builder::new();
            builder.timer(TokioTimer::new()).header_read_timeout(HEAD_TIMEOUT).max_buf_size(head::MAX_BYTES);
            Ok(watcher.watch(builder.serve_connection(stream, service)).await?)
        }
        Protocol::Http2 => {
            let mut builder = http2::Builder::new(TokioExecutor::new());
            builder
                .timer(TokioTimer::new())
                .max_header_list_size(head::MAX_BYTES as u32)
                .max_concurrent_streams(200)
                .keep_alive_interval(Some(Duration::from_secs(20)));
            // Boxed: few speak it, and a connection's task is as large as the larger of the two.
            Ok(Box::pin(watcher.watch(builder.serve_connection(stream, service))).await?)
        }
    }
}
