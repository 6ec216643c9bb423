//! A peer as a child process, and what the operating system says of any process: its CPU time and its memory.

use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, ChildStdout, Command};

const START: Duration = Duration::from_secs(30);

/// A peer that says `http://…` as its first line; killed when dropped.
pub struct Peer {
    child: Child,
    /// Held, so that what it says later does not meet a closed pipe.
    _said: BufReader<ChildStdout>,
    pub address: String,
}

impl Peer {
    pub async fn start(command: &mut Command) -> anyhow::Result<Self> {
        let mut child = command.stdout(std::process::Stdio::piped()).kill_on_drop(true).spawn()?;
        let mut said = BufReader::new(child.stdout.take().context("no stdout")?);
        let mut line = String::new();
        tokio::time::timeout(START, said.read_line(&mut line)).await.context("a peer says no address")??;
        ensure!(line.starts_with("http://"), "a peer did not start: {line:?}");
        Ok(Self { child, _said: said, address: line.trim().to_owned() })
    }

    pub fn pid(&self) -> Option<u32> {
        self.child.id()
    }
}

/// CPU time of a process so far, threads that have ended included. The clock ticks every 10 ms.
pub fn cpu(pid: u32) -> anyhow::Result<Duration> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    // Its name is in brackets and may hold anything; user and system time are 12th and 13th after it.
    let (_, after) = stat.rsplit_once(')').context("no name")?;
    let ticks = after.split_whitespace().skip(11).take(2).filter_map(|ticks| ticks.parse::<u64>().ok());
    Ok(Duration::from_millis(ticks.sum::<u64>() * 10))
}

/// Resident memory in KiB.
pub fn resident(pid: u32) -> anyhow::Result<f64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no VmRSS")?;
    Ok(line.trim().trim_end_matches("kB").trim().parse()?)
}

/// How many files this process may have open.
pub fn file_limit() -> usize {
    let limits = std::fs::read_to_string("/proc/self/limits").unwrap_or_default();
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(1024)
}

/// How long something took to start.
pub async fn timed<T>(starting: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<(T, Duration)> {
    let started = Instant::now();
    Ok((starting.await?, started.elapsed()))
}
