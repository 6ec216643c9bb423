//! `threadkeep serve`: the server, until it is told to stop.

use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, Result};
use clap::Command;
use domain::time::SystemClock;
use store::sqlite::Use;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::task::TaskTracker;

use super::{outlive_file_limit, say};
use crate::config::{Config, GOOD_SECRET_BYTES, flags};
use crate::sandbox_child::SandboxChild;
use crate::{Server, boot, observe};

pub(super) fn command() -> Command {
    flags(Command::new("serve").about("Start the server").long_about(
        "Start the server. Without any setting: SQLite and files in ./threadkeep-data, on http://127.0.0.1:8080, \
         for this machine's user alone.",
    ))
}

pub(super) async fn run(mut config: Config) -> Result<ExitCode> {
    outlive_file_limit()?;
    observe::start_logging(config.log_format)?;
    for setting in config.short_secrets() {
        tracing::warn!(
            setting,
            "the secret has fewer than {GOOD_SECRET_BYTES} bytes and could be guessed: make it longer"
        );
    }
    super::backup::check_not_half_restored(&config)?;
    // For as long as the process lives, after the last request too.
    let tracing = TaskTracker::new();
    let exporter =
        upstream::trace::start(|name| std::env::var(name).ok(), env!("CARGO_PKG_VERSION"), &tracing)?;
    let store = boot::open_store(&config, Use::Serve).await?;
    let listener = TcpListener::bind(config.listen)
        .await
        .with_context(|| format!("THREADKEEP_LISTEN: cannot listen on {}", config.listen))?;
    let sandbox = SandboxChild::instead_of_a_remote_one(&mut config, listener.local_addr()?)?;
    let server = Server::prepare(&config, store, Arc::new(SystemClock), listener).await?;
    // Before the line that says it: whoever reads it may ask for the stop at once.
    let stop = stop_signal()?;
    say(&format!("Threadkeep {} is ready: {}", env!("CARGO_PKG_VERSION"), server.address()));
    let sandbox = sandbox.map(SandboxChild::start);
    server.run(stop).await;
    // Runs that were let finish had it to the end.
    if let Some(sandbox) = sandbox {
        sandbox.stop().await;
    }
    if let Some(exporter) = exporter {
        exporter.stop().await;
    }
    Ok(ExitCode::SUCCESS)
}

/// Resolves at the first SIGINT or SIGTERM; the second one ends the process at once.
fn stop_signal() -> Result<impl Future<Output = ()>> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    Ok(async move {
        tokio::select! { _ = interrupt.recv() => {}, _ = terminate.recv() => {} }
        tracing::info!("draining");
        let force = async move {
            tokio::select! { _ = interrupt.recv() => {}, _ = terminate.recv() => {} }
            std::process::exit(1);
        };
        #[expect(
            clippy::disallowed_methods,
            reason = "it waits for the second signal, and ends with the process"
        )]
        tokio::spawn(force);
    })
}
