//! The built-in sandbox as a child process of `serve`: started where no other sandbox is named, started again when
//! it ends, stopped at the end. It gets a listener that outlives it, a token, the numbers, and nothing else that the
//! server knows.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use domain::secret::Secret;
use domain::time::SystemClock;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use sandbox::{Layer, Options};
use tokio::process::{Child, Command};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::config::{Config, LogFormat, as_env};

/// The flag that says: you are the child of the server with this pid, and your listener is on standard input.
pub const CHILD: &str = "as-child";
/// The flag with the server's public address, and where it is from this machine.
pub const SERVER_ADDRESSES: &str = "server-addresses";

const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
/// One that lived so long was well.
const WELL: Duration = Duration::from_secs(30);
const STOPPING: Duration = Duration::from_secs(3);

/// What the sandbox is told of the configuration, in whatever process it runs.
pub fn options(config: &Config) -> Options {
    let absolute = |path: &std::path::Path| std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    Options {
        program: "/proc/self/exe".into(),
        limits: config.limits.clone(),
        token: config.sandbox.token.clone(),
        allow_missing: config.sandbox.allow_missing.iter().filter_map(|name| Layer::parse(name)).collect(),
        bubblewrap: true,
        without: Vec::new(),
        hide: vec![absolute(&config.data)],
        shortcut: None,
        clock: Arc::new(SystemClock),
        tasks: TaskTracker::new(),
    }
}

pub struct SandboxChild {
    listener: TcpListener,
    args: Vec<String>,
    env: Vec<(&'static str, String)>,
}

/// A child that is watched over.
pub struct Running {
    stop: CancellationToken,
    tasks: TaskTracker,
}

impl SandboxChild {
    /// Where no remote sandbox is named: a place for the built-in one, which the configuration names from here on.
    /// `server` is what the server listens on.
    pub fn instead_of_a_remote_one(config: &mut Config, server: SocketAddr) -> Result<Option<Self>> {
        if config.sandbox.url.is_some() {
            return Ok(None);
        }
        let listener =
            TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("the sandbox has no address to listen on")?;
        let mut random = [0; 32];
        getrandom::fill(&mut random).map_err(|error| anyhow::anyhow!("no randomness: {error}"))?;
        let token: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
        let mut args = vec!["sandbox".to_owned(), format!("--{CHILD}={}", std::process::id())];
        let here = crate::reachable(server);
        if let Some(public) = &config.public_url {
            args.extend([format!("--{SERVER_ADDRESSES}"), public.clone(), here]);
        }
        let mut env = as_env(&config.limits);
        let format = if config.log_format == LogFormat::Json { "json" } else { "text" };
        env.extend([
            ("LOG_FORMAT", format.to_owned()),
            ("SANDBOX_TOKEN", token.clone()),
            ("SANDBOX_ALLOW_MISSING", config.sandbox.allow_missing.join(",")),
            ("THREADKEEP_DATA", config.data.to_string_lossy().into_owned()),
        ]);
        env.retain(|(_, value)| !value.is_empty());
        config.sandbox.url = Some(format!("http://{}", listener.local_addr()?));
        config.sandbox.token = Some(Secret::new(token));
        Ok(Some(Self { listener, args, env }))
    }

    pub fn start(self) -> Running {
        let (stop, tasks) = (CancellationToken::new(), TaskTracker::new());
        tasks.spawn(self.watch(stop.clone()));
        tasks.close();
        Running { stop, tasks }
    }

    fn spawn(&self) -> std::io::Result<Child> {
        // Not this process's group: an interrupt from the terminal is for the server, which drains first.
        Command::new("/proc/self/exe")
            .args(&self.args)
            .env_clear()
            .envs(self.env.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::from(OwnedFd::from(self.listener.try_clone()?)))
            .stdout(Stdio::null())
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
    }

    async fn watch(self, stop: CancellationToken) {
        let mut pause = FIRST_PAUSE;
        loop {
            let began = Instant::now();
            match self.spawn() {
                Ok(mut child) => {
                    tokio::select! {
                        ended = child.wait() => tracing::warn!(?ended, "the sandbox has ended; it is started again"),
                        () = stop.cancelled() => return end(child).await,
                    }
                }
                Err(error) => tracing::error!(%error, "the sandbox cannot be started"),
            }
            pause = if began.elapsed() > WELL { FIRST_PAUSE } else { (pause * 2).min(LONGEST_PAUSE) };
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = stop.cancelled() => return,
            }
        }
    }
}

async fn end(mut child: Child) {
    if let Some(pid) = child.id().and_then(|pid| i32::try_from(pid).ok()) {
        let _ = kill(Pid::from_raw(pid), Signal::SIGTERM);
    }
    if tokio::time::timeout(STOPPING, child.wait()).await.is_err() {
        let _ = child.kill().await;
    }
}

impl Running {
    /// Ends it and waits for that.
    pub async fn stop(self) {
        self.stop.cancel();
        self.tasks.wait().await;
    }
}
