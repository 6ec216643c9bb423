//! `threadkeep purge`: removes for good what was deleted, rows and bytes, and what uploads left behind.

use std::io::{IsTerminal as _, Write as _};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use domain::time::{Clock as _, SystemClock};
use jiff::Timestamp;
use serde_json::json;
use store::Store;
use store::bag::{Purged, purge, sweep_forks, sweep_orphans, sweep_reservations};
use store::files::Purgeable;
use tokio_util::task::TaskTracker;

use super::{open_beside, say};
use crate::boot::open_blobs;
use crate::config::{Config, store_flags};
use crate::progress::counted;

/// A thousand years.
const MAX_DAYS: u64 = 365_000;

pub(super) fn command() -> Command {
    let days = Arg::new("older-than-days")
        .long("older-than-days")
        .value_name("DAYS")
        .value_parser(value_parser!(u64).range(..=MAX_DAYS))
        .allow_negative_numbers(true)
        .default_value("0")
        .help("Only what was deleted at least so many days ago");
    let dry = Arg::new("dry-run")
        .long("dry-run")
        .action(ArgAction::SetTrue)
        .help("Say how much would go, and remove nothing");
    let json = Arg::new("json").long("json").action(ArgAction::SetTrue).help("Print JSON");
    store_flags(
        Command::new("purge")
            .about("Remove deleted conversations, files and workspaces for good, rows and bytes")
            .long_about(
                "Remove for good what was deleted: conversations with their messages, runs and files, deleted \
                 files of others, and removed workspaces with their executions and agents. It cannot be undone. Works beside a running server, and goes on where it was \
                 when it is interrupted.",
            )
            .args([days, dry, json]),
    )
}

pub(super) async fn run(config: Config, matches: ArgMatches) -> Result<ExitCode> {
    let store = open_beside(&config).await?;
    let blobs = open_blobs(&config, &TaskTracker::new()).await?;
    let now = SystemClock.now();
    let days = matches.get_one::<u64>("older-than-days").copied().unwrap_or(0);
    let age = Duration::from_secs(days.saturating_mul(24 * 3600));
    // What was deleted a moment ago counts too.
    let before = now.checked_sub(age)? + Duration::from_millis(1);
    let (json, dry) = (matches.get_flag("json"), matches.get_flag("dry-run"));
    let doomed = store.system_list_purgeable(before, usize::MAX / 2).await?;
    if dry {
        let would = count(&*store, &doomed, before).await?;
        say(&told(json, "would_remove", "Would remove", would));
        store.close().await;
        return Ok(ExitCode::SUCCESS);
    }
    let mut bar = Bar::new(doomed.len());
    let purged = purge(&*store, &blobs, before, |purged| bar.draw(purged)).await;
    bar.end();
    let grace = now - Duration::from_secs(config.limits.file_grace_seconds);
    let swept = sweep_reservations(&*store, &blobs, grace).await;
    sweep_forks(&*store, &blobs, grace).await?;
    sweep_orphans(&*store, &blobs, grace).await?;
    swept?;
    let purged = purged?;
    say(&told(json, "removed", "Removed", purged));
    store.close().await;
    Ok(ExitCode::SUCCESS)
}

/// How much there is to remove: of files, those of the conversations and those deleted by themselves.
async fn count(store: &dyn Store, doomed: &[Purgeable], before: Timestamp) -> Result<Purged> {
    let mut files = store.system_list_deleted_files(before, usize::MAX / 2).await?.len();
    for conversation in doomed {
        files += store.system_list_files_of(conversation).await?.len();
    }
    let workspaces = store.system_list_removed(before).await?.len() as u64;
    Ok(Purged { workspaces, conversations: doomed.len() as u64, files: files as u64 })
}

fn told(json: bool, key: &str, word: &str, purged: Purged) -> String {
    let Purged { workspaces, conversations, files } = purged;
    if json {
        let counts = json!({ "workspaces": workspaces, "conversations": conversations, "files": files });
        return json!({ key: counts }).to_string();
    }
    let (conversations, files) = (counted(conversations, "conversation"), counted(files, "file"));
    match workspaces {
        0 => format!("{word} {conversations} and {files}."),
        _ => format!("{word} {}, {conversations} and {files}.", counted(workspaces, "workspace")),
    }
}

/// A line that fills up while it goes on, where a person looks on.
struct Bar {
    total: u64,
    shown: bool,
}

impl Bar {
    fn new(conversations: usize) -> Self {
        Self { total: conversations.max(1) as u64, shown: std::io::stderr().is_terminal() }
    }

    fn draw(&mut self, purged: Purged) {
        if self.shown {
            let done = (purged.conversations * 40 / self.total).min(40) as usize;
            let line = format!(
                "\r[{}{}] {} of {} conversations, {} files",
                "#".repeat(done),
                "-".repeat(40 - done),
                purged.conversations,
                self.total,
                purged.files
            );
            let _ = std::io::stderr().write_all(line.as_bytes());
        }
    }

    fn end(&self) {
        if self.shown {
            let _ = std::io::stderr().write_all(b"\n");
        }
    }
}
