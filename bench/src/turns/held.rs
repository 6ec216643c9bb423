//! Streams that are held open: each has had one delta and waits for the next. What one costs in memory, and whether
//! the server holds as many as it must.

use std::time::{Duration, Instant};

use anyhow::ensure;
use futures_util::future::try_join_all;

use super::client::{self, Held};
use super::peers::Subject;
use super::report::{self, Board};
use super::{attempt, process, upstream};
use crate::report::thousands;

const PAUSE_MS: u64 = 600_000;
const SOME: usize = 1_000;
/// How many the server itself must hold.
const MOST: usize = 10_000;
const OPENED_AT_ONCE: usize = 50;
/// Files that a process needs beside its streams.
const OTHER_FILES: usize = 300;
/// How long the end of all runs may take, once their readers have gone.
const QUIET: Duration = Duration::from_secs(20);

pub async fn some(subjects: &[Subject], board: &mut Board) -> anyhow::Result<()> {
    let mut each = Vec::new();
    for subject in subjects {
        let what = format!("{} held streams", thousands(SOME));
        each.push(attempt(subject, &what, hold(subject, SOME, SOME)).await);
        quiet(subject).await?;
    }
    board.row(report::HELD, each)
}

/// Of ours alone. A stream needs two files, for its reader and for its sandbox; where that is more than a process may
/// open, the last readers follow runs that have one already.
pub async fn most(subjects: &[Subject], board: &mut Board) -> anyhow::Result<()> {
    let room = process::file_limit().saturating_sub(OTHER_FILES);
    let streams = MOST.min(room * 51 / 100);
    let runs = streams.min(room - streams);
    let mut each = Vec::new();
    for subject in subjects {
        if subject.is_ours() {
            let what = format!("{} held streams of {} runs", thousands(streams), thousands(runs));
            each.push(attempt(subject, &what, hold(subject, streams, runs)).await);
            quiet(subject).await?;
        } else {
            each.push(None);
        }
    }
    board.row(&report::most_held(streams), each)
}

/// KiB for each of them.
async fn hold(subject: &Subject, streams: usize, runs: usize) -> anyhow::Result<f64> {
    let (target, ask) = (&subject.target, upstream::ask(2, PAUSE_MS));
    let before = process::resident(subject.pid)?;
    let mut open: Vec<Held> = Vec::with_capacity(streams);
    while open.len() < streams {
        let some = open.len()..streams.min(open.len() + OPENED_AT_ONCE);
        let (own, others): (Vec<usize>, Vec<usize>) = some.partition(|n| *n < runs);
        let mut opened = try_join_all(own.into_iter().map(|n| client::hold(target, &ask, n))).await?;
        let open_runs = &open;
        opened.extend(
            try_join_all(others.into_iter().map(async |n| {
                let shared = n - runs;
                let run = open_runs.get(shared).and_then(|held| held.run.as_deref()).unwrap_or_default();
                client::hold_too(target, run, shared).await
            }))
            .await?,
        );
        open.extend(opened);
    }
    tokio::time::sleep(Duration::from_millis(500)).await;
    let kib = (process::resident(subject.pid)? - before) / streams as f64;
    for held in &open {
        ensure!(held.is_open(), "a held stream was closed");
    }
    Ok(kib)
}

/// Waits until the subject has nothing left to do: runs whose reader has gone are ended.
async fn quiet(subject: &Subject) -> anyhow::Result<()> {
    let begun = Instant::now();
    let (mut still, mut before) = (0, process::cpu(subject.pid)?);
    while still < 4 && begun.elapsed() < QUIET {
        tokio::time::sleep(Duration::from_millis(300)).await;
        let now = process::cpu(subject.pid)?;
        still = if now.saturating_sub(before) < Duration::from_millis(20) { still + 1 } else { 0 };
        before = now;
    }
    Ok(())
}
