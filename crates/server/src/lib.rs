//! HTTP in, HTTP out: the routes of Threadkeep, who may call them, and the binary's subcommands.
//! `serve` is the whole server given a listener and a shutdown, so that tests own both.

pub mod auth;
pub mod boot;
pub mod cli;
pub mod config;
mod content;
mod dialect;
mod etag;
mod extract;
mod forget;
mod gateway;
mod head;
mod host;
pub mod jsonapi;
mod kit;
mod limit;
mod listen;
pub mod observe;
mod problem;
mod progress;
mod protocol;
pub mod router;
mod routes;
mod sandbox_child;
mod state;
mod stream;
mod tidy;
mod tokens;
mod transfer;
mod unread;
mod watched;
mod web;
mod words;

use std::future::Future;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use domain::time::Clock;
use store::Store;
use tokio::net::TcpListener;
use tokio_util::task::TaskTracker;

use crate::config::Config;
use crate::state::AppState;

/// A server that is ready to accept: what it will be reached at is known.
pub struct Server {
    app: AppState,
    listener: TcpListener,
}

impl Server {
    /// Prepares everything that a request needs.
    pub async fn prepare(
        config: &Config,
        store: Arc<dyn Store>,
        clock: Arc<dyn Clock>,
        listener: TcpListener,
    ) -> anyhow::Result<Self> {
        let address = listener.local_addr()?;
        let public_url = config.public_url.clone().unwrap_or_else(|| reachable(address));
        let app = boot::build(config, store, clock, TaskTracker::new(), public_url).await?;
        Ok(Self { app, listener })
    }

    /// The address for a person to open; in local mode it logs the browser in.
    pub fn address(&self) -> String {
        let url = &self.app.public_url;
        match &self.app.local {
            Some(local) => {
                format!("{url}/login?ticket={}", auth::session::login_ticket(&self.app.secret, local.boot_id))
            }
            None => url.clone(),
        }
    }

    /// Serves until `shutdown`, drains, and closes the store.
    pub async fn run(self, shutdown: impl Future<Output = ()>) {
        listen::listen(self.listener, router::router(&self.app), &self.app, shutdown).await;
        self.app.tool_servers.stop().await;
        self.app.store.close().await;
    }
}

/// The URL of an address, as seen from this machine.
fn reachable(mut address: SocketAddr) -> String {
    if address.ip().is_unspecified() {
        address.set_ip(Ipv4Addr::LOCALHOST.into());
    }
    format!("http://{address}")
}
