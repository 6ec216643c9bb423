//! Turns: Threadkeep on both databases beside a bare relay and a typical app, one after the other on the same
//! upstream. Out: what each reached, and the ratios that have goals.

mod chunked;
mod client;
mod growth;
mod peers;
mod process;
pub mod relay;
mod report;
mod stamp;
mod upstream;

use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use self::client::{Load, Turn};
use self::peers::{Kind, Subject};
use self::report::Measured;
use crate::measure::Pace;
use crate::place::{self, Database};
use crate::{note, report as tables};

const DELTAS: usize = 200;
/// What is in flight at once in a burst.
pub const AT_ONCE: [usize; 3] = [1, 16, 64];
const PACED_AT_ONCE: usize = 32;
const PACED_PAUSE_MS: u64 = 5;
const PACED_TURNS: usize = 96;
/// A stream that is held open has said one thing and waits for the next.
const HELD_PAUSE_MS: u64 = 120_000;
const HELD: usize = 1_000;
/// How many the server itself must hold.
const HELD_MOST: usize = 10_000;
const OPENED_AT_ONCE: usize = 50;

pub struct Plan<'a> {
    pub server: &'a Path,
    pub node: Option<&'a Path>,
    pub pace: Pace,
}

pub async fn run(plan: &Plan<'_>) -> anyhow::Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let sandbox = format!("http://{}", listener.local_addr()?);
    let mut upstream = JoinSet::new();
    upstream.spawn(upstream::serve(listener));

    let mut databases = vec![Database::sqlite(&[0])?];
    databases.extend(Database::postgres(&[0]).await?);
    for place in databases.iter().flat_map(|database| &database.places) {
        place::make_workspaces(&*place.store).await?;
    }
    let mut kinds = vec![Kind::Relay];
    kinds.extend(databases.iter().map(Kind::Threadkeep));
    kinds.extend(plan.node.map(Kind::Node));

    let mut measured = Vec::new();
    for kind in &kinds {
        let subject = Subject::start(kind, &sandbox, plan.server).await.with_context(|| kind.name())?;
        measured.push(measure(&subject).await.with_context(|| kind.name())?);
        subject.stop().await?;
    }
    report::print(&measured)?;

    let (columns, rows) = growth::rows(&databases, &sandbox, plan).await?;
    let mut tables = tables::Tables::new();
    tables.add("One more turn of 20 deltas, by messages already in the thread", &columns, rows)?;
    tables.finish()?;
    for place in databases.iter().flat_map(|database| &database.places) {
        place.store.close().await;
    }
    Ok(())
}

async fn measure(subject: &Subject) -> anyhow::Result<Measured> {
    // Memory first: what a peer keeps after a burst is no part of its idle size.
    tokio::time::sleep(Duration::from_millis(300)).await;
    let mut measured = Measured {
        name: subject.name(),
        ours: subject.is_ours(),
        started: subject.started,
        idle_kib: process::resident(subject.pid)?,
        bursts: Vec::new(),
        paced: None,
        held: None,
        most: None,
    };
    note(&format!("{}: held streams", measured.name));
    measured.held = Some(hold(subject, HELD).await?);
    let burst = upstream::ask(DELTAS, 0);
    note(&format!("{}: bursts", measured.name));
    load(subject, &burst, 4, subject.turns / 4).await?;
    for at_once in AT_ONCE {
        let turns = if at_once == 1 { subject.turns / 4 } else { subject.turns };
        measured.bursts.push(load(subject, &burst, at_once, turns).await?);
    }
    note(&format!("{}: paced", measured.name));
    let paced = upstream::ask(DELTAS, PACED_PAUSE_MS);
    measured.paced = Some(load(subject, &paced, PACED_AT_ONCE, PACED_TURNS).await?);
    if measured.ours {
        // Both ends of a stream are ours: one file for the reader, one for the sandbox.
        let most = HELD_MOST.min(process::file_limit().saturating_sub(500) / 2);
        note(&format!("{}: {most} held streams", measured.name));
        measured.most = Some(hold(subject, most).await?);
    }
    Ok(measured)
}

/// What a number of turns cost.
pub struct Reached {
    pub per_second: f64,
    pub cpu_ms: f64,
    pub first_ms: f64,
    pub added_ms: f64,
}

async fn load(subject: &Subject, ask: &str, at_once: usize, count: usize) -> anyhow::Result<Reached> {
    let longest = Duration::from_secs(12);
    let load = Load { target: &subject.target, ask, deltas: DELTAS, count, longest };
    let before = process::cpu(subject.pid)?;
    let (turns, took) = load.run(at_once).await?;
    let spent = process::cpu(subject.pid)?.saturating_sub(before);
    let number = turns.len() as f64;
    Ok(Reached {
        per_second: number / took.as_secs_f64(),
        cpu_ms: spent.as_secs_f64() * 1000.0 / number,
        first_ms: middle(turns.iter().map(|turn| turn.first.as_secs_f64() * 1000.0)),
        added_ms: middle(turns.iter().flat_map(added)),
    })
}

fn added(turn: &Turn) -> impl Iterator<Item = f64> {
    turn.added.iter().map(|micros| f64::from(*micros) / 1000.0)
}

fn middle(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_unstable_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

pub struct Held {
    pub streams: usize,
    pub kib_each: f64,
}

async fn hold(subject: &Subject, streams: usize) -> anyhow::Result<Held> {
    let ask = upstream::ask(2, HELD_PAUSE_MS);
    let before = process::resident(subject.pid)?;
    let mut open = Vec::with_capacity(streams);
    while open.len() < streams {
        let some = open.len()..streams.min(open.len() + OPENED_AT_ONCE);
        let opening = some.map(|n| client::hold(&subject.target, &ask, n));
        open.extend(futures_util::future::try_join_all(opening).await?);
    }
    tokio::time::sleep(Duration::from_millis(500)).await;
    let kib_each = (process::resident(subject.pid)? - before) / streams as f64;
    drop(open);
    // Runs whose reader has gone are cancelled; the next measurement should not meet that.
    tokio::time::sleep(Duration::from_secs(2)).await;
    Ok(Held { streams, kib_each })
}
