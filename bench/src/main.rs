//! `make bench`: what the store's verbs and the API cost as history grows, on both databases in one run; then what turns
//! cost beside bare relays and a typical app, and files beside what the machine can do. In: which of them, sizes. Out:
//! Markdown tables on stdout, progress on stderr. README.md says how to read it.

mod corpus;
mod files;
mod http;
mod load;
mod measure;
mod place;
mod report;
mod threads;
mod transfer;
mod turns;
mod verbs;

use std::io::Write as _;
use std::path::PathBuf;

use anyhow::Context as _;
use clap::{Arg, ArgAction, Command, value_parser};

use crate::measure::Pace;
use crate::place::Database;

const WHAT: [&str; 4] = ["store", "turns", "files", "transfer"];
/// What is measured where nothing is named.
const USUAL: [&str; 3] = ["store", "turns", "files"];

/// Lengths of the one thread that grows.
const THREADS: [usize; 3] = [10, 1_000, 10_000];

fn arguments() -> Command {
    Command::new("threadkeep-bench")
        .about("Measures turns, and the store and the API as history grows")
        .args_conflicts_with_subcommands(true)
        .arg(
            Arg::new("what")
                .value_parser(WHAT)
                .num_args(..)
                .help("What is measured; without it the store, turns and files"),
        )
        .arg(
            Arg::new("conversations")
                .long("conversations")
                .value_delimiter(',')
                .value_parser(value_parser!(u32).range(500..))
                .default_value("1000,10000,100000")
                .help("How many conversations there are, smallest first"),
        )
        .arg(
            Arg::new("seconds")
                .long("seconds")
                .value_parser(value_parser!(u32).range(1..))
                .default_value("8")
                .help("The longest that one row of a table is measured"),
        )
        .arg(
            Arg::new("server")
                .long("server")
                .value_parser(value_parser!(PathBuf))
                .help("The threadkeep binary; without it turns and the HTTP rows are left out"),
        )
        .arg(
            Arg::new("node")
                .long("node")
                .value_parser(value_parser!(PathBuf))
                .help("The folder with the installed Node peer; without it that peer is left out"),
        )
        .subcommand(
            Command::new("relay")
                .hide(true)
                .about("Serves as the bare relay; the benchmark starts it by itself")
                .arg(Arg::new("upstream").long("upstream").required(true))
                .arg(Arg::new("database").long("database"))
                .arg(Arg::new("accepts").long("accepts").action(ArgAction::SetTrue).requires("database")),
        )
        .subcommand(
            Command::new("upstream")
                .hide(true)
                .about("Serves as the upstream; the benchmark starts it by itself"),
        )
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let given = arguments().get_matches();
    if let Some(("relay", given)) = given.subcommand() {
        let upstream = given.get_one::<String>("upstream").context("the relay needs an upstream")?;
        let database = given.get_one::<String>("database").map(String::as_str);
        return turns::relay::run(upstream, database, given.get_flag("accepts")).await;
    }
    if let Some(("upstream", _)) = given.subcommand() {
        return turns::upstream::run().await;
    }
    let sizes: Vec<usize> =
        given.get_many::<u32>("conversations").unwrap_or_default().map(|size| *size as usize).collect();
    let pace = Pace::new(given.get_one("seconds").copied().unwrap_or(8));
    // It is started in a folder of its own.
    let server = given.get_one::<PathBuf>("server").map(std::path::absolute).transpose()?;
    let server = server.as_ref();
    let what: Vec<&str> = given.get_many::<String>("what").unwrap_or_default().map(String::as_str).collect();
    let wanted = |name: &str| if what.is_empty() { USUAL.contains(&name) } else { what.contains(&name) };
    if wanted("store") {
        run(&sizes, pace, server).await?;
    }
    if wanted("turns")
        && let Some(server) = server
    {
        let node = given.get_one::<PathBuf>("node").map(PathBuf::as_path);
        turns::run(&turns::Plan { server, node, pace }).await?;
    }
    if wanted("files")
        && let Some(server) = server
    {
        files::run(server).await?;
    }
    if wanted("transfer")
        && let Some(server) = server
    {
        transfer::run(server).await?;
    }
    Ok(())
}

async fn run(sizes: &[usize], pace: Pace, server: Option<&PathBuf>) -> anyhow::Result<()> {
    let mut databases = vec![Database::sqlite(sizes)?];
    databases.extend(Database::postgres(sizes).await?);
    place::load(&databases).await?;

    let columns: Vec<String> = sizes.iter().map(|size| report::thousands(*size)).collect();
    let mut tables = report::Tables::new();
    tables.add("Store verbs, by conversations", &columns, verbs::rows(&databases, pace).await?)?;
    if let Some(binary) = server {
        tables.add("Over HTTP, by conversations", &columns, http::rows(&databases, binary, pace).await?)?;
    }
    note("making the threads");
    let grown = threads::grow(&databases, &THREADS).await?;
    let columns: Vec<String> = THREADS.iter().map(|length| report::thousands(*length)).collect();
    tables.add("One thread, by its messages", &columns, threads::rows(&databases, &grown, pace).await?)?;
    tables.finish()?;
    for place in databases.iter().flat_map(|database| &database.places) {
        place.store.close().await;
    }
    Ok(())
}

/// A line of progress.
fn note(line: &str) {
    let _ = writeln!(std::io::stderr(), "bench: {line}");
}
