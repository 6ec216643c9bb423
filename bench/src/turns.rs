//! Turns: Threadkeep on both databases beside bare relays and a typical app, on the same upstream. Every figure is
//! taken of all of them, one after the other, before the next one is begun. Out: the figures row by row, and the
//! ratios that have goals.

mod by_model;
mod chunked;
mod client;
mod growth;
mod held;
mod peers;
mod process;
pub mod relay;
mod report;
mod stamp;
pub mod upstream;

use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;
use tokio::process::Command;

use self::client::{Load, Turn};
use self::peers::{Kind, Rows, Subject};
use self::process::Peer;
use self::report::Board;
use crate::measure::Pace;
use crate::note;
use crate::place::{self, Database};

const DELTAS: usize = 200;
/// What is in flight at once in a burst.
const AT_ONCE: [usize; 3] = [1, 16, 64];
/// How often each load is taken of each.
const ROUNDS: usize = 3;
const BURST: Duration = Duration::from_millis(2_000);
const WARM_UP: Duration = Duration::from_millis(1_500);
const PACED_AT_ONCE: usize = 32;
const PACED_PAUSE_MS: u64 = 5;
const PACED: Duration = Duration::from_millis(3_500);
/// A paced turn lasts a second: begun evenly over it, the turns do not all wait for each other's first moment.
const PACED_SPREAD: Duration = Duration::from_secs(1);
/// Beyond this a measurement is given up.
const PATIENCE: Duration = Duration::from_secs(60);

pub struct Plan<'a> {
    pub server: &'a Path,
    pub node: Option<&'a Path>,
    pub pace: Pace,
}

pub async fn run(plan: &Plan<'_>) -> anyhow::Result<()> {
    let upstream = Peer::start(Command::new(std::env::current_exe()?).arg("upstream")).await?;
    let sandbox = upstream.address.as_str();
    let mut databases = vec![Database::sqlite(&[0])?];
    databases.extend(Database::postgres(&[0]).await?);
    for place in databases.iter().flat_map(|database| &database.places) {
        place::make_workspaces(&*place.store).await?;
        peers::invite(place).await?;
    }
    // The peers' tables are apart from each other and from ours.
    let peers = if databases.len() > 1 { testkit::postgres::database().await } else { None };
    let rows = || std::iter::once(Rows::Sqlite).chain(peers.iter().map(|peers| Rows::Postgres(peers.url())));
    let mut kinds = vec![Kind::Relay];
    kinds.extend(rows().map(Kind::KeepingRelay));
    kinds.push(Kind::AcceptingRelay);
    kinds.extend(databases.iter().map(Kind::Threadkeep));
    kinds.extend(plan.node.iter().flat_map(|node| rows().map(|rows| Kind::Node(node, rows))));

    let mut subjects = Vec::new();
    for kind in &kinds {
        subjects.push(Subject::start(kind, sandbox, plan.server).await.with_context(|| kind.name())?);
    }
    let mut board = Board::begin(&subjects)?;
    measure(&subjects, &mut board).await?;
    board.finish()?;
    for subject in subjects {
        subject.stop().await?;
    }
    drop(peers);
    by_model::print(&databases, sandbox, plan).await?;
    growth::print(&databases, sandbox, plan).await?;
    for place in databases.iter().flat_map(|database| &database.places) {
        place.store.close().await;
    }
    Ok(())
}

async fn measure(subjects: &[Subject], board: &mut Board) -> anyhow::Result<()> {
    let ready = subjects.iter().map(|subject| Some(subject.started.as_secs_f64() * 1000.0));
    board.row(report::READY, ready.collect())?;
    // Memory first: what a peer keeps after a burst is no part of its idle size.
    tokio::time::sleep(Duration::from_millis(500)).await;
    let idle = subjects.iter().map(|subject| process::resident(subject.pid).ok().map(|kib| kib / 1024.0));
    board.row(report::IDLE, idle.collect())?;
    let burst = upstream::ask(DELTAS, 0);
    for subject in subjects {
        attempt(subject, "warm-up", load(subject, &burst, 4, (WARM_UP, Duration::ZERO))).await;
    }
    // What is loaded once is no part of a stream.
    held::some(subjects, board).await?;
    for at_once in AT_ONCE {
        let reached = rounds(subjects, &burst, at_once, (BURST, Duration::ZERO)).await;
        let column = |what| column(&reached, what);
        board.row(&report::turns(at_once), column(|reached| reached.per_second))?;
        board.row(&report::cpu(at_once), column(|reached| reached.cpu_ms))?;
        board.row(&report::first_byte(at_once), column(|reached| reached.first_byte_ms))?;
        board.row(&report::first_delta(at_once), column(|reached| reached.first_delta_ms))?;
    }
    let paced = upstream::ask(DELTAS, PACED_PAUSE_MS);
    let reached = rounds(subjects, &paced, PACED_AT_ONCE, (PACED, PACED_SPREAD)).await;
    let column = |what| column(&reached, what);
    board.row(report::ADDED, column(|reached| reached.added_ms))?;
    board.row(report::PACED_BYTE, column(|reached| reached.first_byte_ms))?;
    board.row(report::PACED_DELTA, column(|reached| reached.first_delta_ms))?;
    board.row(report::PACED_CPU, column(|reached| reached.cpu_ms))?;
    held::most(subjects, board).await
}

/// The same work by all of them, one after the other, round by round.
async fn rounds(
    subjects: &[Subject],
    ask: &str,
    at_once: usize,
    times: (Duration, Duration),
) -> Vec<Vec<Reached>> {
    let mut reached: Vec<Vec<Reached>> = subjects.iter().map(|_| Vec::new()).collect();
    for round in 1..=ROUNDS {
        for (subject, reached) in subjects.iter().zip(&mut reached) {
            let what = format!("{at_once} at once, {round} of {ROUNDS}");
            reached.extend(attempt(subject, &what, load(subject, ask, at_once, times)).await);
        }
    }
    reached
}

/// Of each the middle of its rounds: a second of somebody else's work spoils one of them.
fn column(reached: &[Vec<Reached>], what: fn(&Reached) -> f64) -> Vec<Option<f64>> {
    reached.iter().map(|rounds| middle(rounds.iter().map(what))).collect()
}

/// A measurement that fails is left out and said; the others go on.
async fn attempt<T>(
    subject: &Subject,
    what: &str,
    measuring: impl Future<Output = anyhow::Result<T>>,
) -> Option<T> {
    note(&format!("{}: {what}", subject.name));
    let measured = tokio::time::timeout(PATIENCE, measuring).await;
    match measured.context("it took longer than a minute").and_then(|measured| measured) {
        Ok(measured) => Some(measured),
        Err(error) => {
            note(&format!("{}: {what} FAILED: {error:#}", subject.name));
            None
        }
    }
}

/// What a number of turns cost.
struct Reached {
    per_second: f64,
    cpu_ms: f64,
    first_byte_ms: f64,
    first_delta_ms: f64,
    added_ms: f64,
}

async fn load(
    subject: &Subject,
    ask: &str,
    at_once: usize,
    (longest, spread): (Duration, Duration),
) -> anyhow::Result<Reached> {
    let load = Load { target: &subject.target, ask, deltas: DELTAS, longest, spread };
    let before = process::cpu(subject.pid)?;
    let (turns, took) = load.run(at_once).await?;
    let spent = process::cpu(subject.pid)?.saturating_sub(before);
    let number = turns.len() as f64;
    let ms = |time: fn(&Turn) -> Duration| middle(turns.iter().map(|turn| time(turn).as_secs_f64() * 1000.0));
    Ok(Reached {
        per_second: number / took.as_secs_f64(),
        cpu_ms: spent.as_secs_f64() * 1000.0 / number,
        first_byte_ms: ms(|turn| turn.first_byte).context("no turn ended")?,
        first_delta_ms: ms(|turn| turn.first_delta).context("no turn ended")?,
        // In a burst no delta says when it was sent.
        added_ms: middle(turns.iter().flat_map(added)).unwrap_or(f64::NAN),
    })
}

fn added(turn: &Turn) -> impl Iterator<Item = f64> {
    turn.added.iter().flatten().map(|micros| f64::from(*micros) / 1000.0)
}

fn middle(values: impl Iterator<Item = f64>) -> Option<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_unstable_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}
