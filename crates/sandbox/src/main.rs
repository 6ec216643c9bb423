//! The sandbox alone, without the server: listens on the address in its first argument, else where its standard input
//! is a listener. `threadkeep sandbox` is the same with all settings.

use std::ffi::OsString;
use std::io::Write as _;
use std::process::ExitCode;
use std::sync::Arc;

use domain::limits::Limits;
use domain::time::SystemClock;
use sandbox::{Layer, Options, Sandbox};
use tokio::net::TcpListener;
use tokio_util::task::TaskTracker;

fn main() -> ExitCode {
    let args: Vec<OsString> = std::env::args_os().collect();
    if let Some(code) = sandbox::child(&args) {
        return code;
    }
    match run(args.get(1).and_then(|address| address.to_str())) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "threadkeep-sandbox: {error}");
            ExitCode::FAILURE
        }
    }
}

#[tokio::main]
async fn run(address: Option<&str>) -> Result<(), Box<dyn std::error::Error>> {
    let number = |name: &str, default: u64| -> u64 {
        std::env::var(format!("THREADKEEP_{name}")).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
    };
    let mut limits = Limits::default();
    limits.sandbox_concurrency = number("SANDBOX_CONCURRENCY", limits.sandbox_concurrency);
    limits.sandbox_cpu_seconds = number("SANDBOX_CPU_SECONDS", limits.sandbox_cpu_seconds);
    limits.sandbox_memory_bytes = number("SANDBOX_MEMORY_BYTES", limits.sandbox_memory_bytes);
    limits.sandbox_disk_bytes = number("SANDBOX_DISK_BYTES", limits.sandbox_disk_bytes);
    limits.sandbox_processes = number("SANDBOX_PROCESSES", limits.sandbox_processes);
    limits.tool_timeout_seconds = number("TOOL_TIMEOUT_SECONDS", limits.tool_timeout_seconds);
    limits.sandbox_idle_seconds = number("SANDBOX_IDLE_SECONDS", limits.sandbox_idle_seconds);
    limits.run_timeout_seconds = number("RUN_TIMEOUT_SECONDS", limits.run_timeout_seconds);
    limits.max_line_bytes = number("MAX_LINE_BYTES", limits.max_line_bytes);
    limits.max_file_bytes = number("MAX_FILE_BYTES", limits.max_file_bytes);
    limits.max_bag_bytes = number("MAX_BAG_BYTES", limits.max_bag_bytes);
    let layers = |name: &str| -> Vec<Layer> {
        let list = std::env::var(name).unwrap_or_default();
        list.split(',').filter_map(|name| Layer::parse(name.trim())).collect()
    };
    let sandbox = Sandbox::prepare(Options {
        program: "/proc/self/exe".into(),
        limits,
        token: std::env::var("SANDBOX_TOKEN").ok().map(domain::secret::Secret::new),
        allow_missing: layers("SANDBOX_ALLOW_MISSING"),
        bubblewrap: std::env::var("SANDBOX_BUBBLEWRAP").is_ok_and(|set| set == "on"),
        without: layers("SANDBOX_WITHOUT"),
        hide: Vec::new(),
        shortcut: None,
        clock: Arc::new(SystemClock),
        tasks: TaskTracker::new(),
    })
    .await?;
    let isolation = sandbox.isolation()?.describe();
    let listener = match address {
        Some(address) => TcpListener::bind(address).await?,
        None => sandbox::from_stdin()?,
    };
    let mut out = std::io::stdout();
    writeln!(out, "http://{} ({isolation})", listener.local_addr()?)?;
    out.flush()?;
    Ok(sandbox.run(listener, std::future::pending()).await?)
}
