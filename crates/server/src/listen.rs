//! The accept loop: connections with bounded headers and patience, drained when the shutdown comes.

use std::future::Future;
use std::sync::atomic::Ordering;
use std::time::Duration;

use axum::Router;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpListener;

use crate::patience::Patience;
use crate::state::AppState;

const MAX_HEAD_BYTES: usize = 32 * 1024;
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
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
    let builder = connection_builder();
    let (graceful, tracker) = (GracefulShutdown::new(), app.tasks.clone());
    tokio::pin!(shutdown);
    loop {
        let stream = tokio::select! {
            () = &mut shutdown => break,
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => stream,
                Err(error) => {
                    // Out of file descriptors, most likely: a moment's rest, then go on.
                    tracing::warn!(%error, "cannot accept a connection");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    continue;
                }
            },
        };
        // Small writes of a stream must not wait for each other.
        let _ = stream.set_nodelay(true);
        let service = TowerToHyperService::new(router.clone());
        let stream = TokioIo::new(Patience::new(stream, HEAD_TIMEOUT));
        let connection = builder.serve_connection_with_upgrades(stream, service).into_owned();
        let watched = graceful.watch(connection);
        tracker.spawn(async move {
            if let Err(error) = watched.await {
                tracing::debug!(%error, "a connection ended badly");
            }
        });
    }
    app.draining.store(true, Ordering::Relaxed);
    app.stopping.cancel();
    drop(listener);
    tracker.close();
    // Runs first: their readers' requests end with them.
    let drained = async { tokio::join!(app.turns.drain(RUNS), graceful.shutdown(), tracker.wait()) };
    if tokio::time::timeout(DRAIN, drained).await.is_err() {
        tracing::warn!("requests were still under way after {} s", DRAIN.as_secs());
    }
}

fn connection_builder() -> Builder<TokioExecutor> {
    let mut builder = Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_buf_size(MAX_HEAD_BYTES)
        .http2()
        .timer(TokioTimer::new())
        .max_header_list_size(MAX_HEAD_BYTES as u32)
        .max_concurrent_streams(200)
        .keep_alive_interval(Some(Duration::from_secs(20)));
    builder
}
