//! `threadkeep backup` and `threadkeep restore`: the embedded store into a folder while it runs, and back again.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, Result, bail};
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use domain::time::{Clock as _, SystemClock, rfc3339};
use serde_json::json;
use store::backup::{Manifest, Places, RESTORING, back_up, restore};
use tokio_util::task::TaskTracker;

use super::bar::Bar;
use super::say;
use crate::boot::open_blobs;
use crate::config::{Config, Database, store_flags};

fn arguments(command: Command, help: &'static str) -> Command {
    let path =
        Arg::new("path").value_name("PATH").required(true).value_parser(value_parser!(PathBuf)).help(help);
    let json = Arg::new("json").long("json").action(ArgAction::SetTrue).help("Print JSON");
    store_flags(command.args([path, json]))
}

pub(super) fn command() -> Command {
    arguments(
        Command::new("backup").about("Back up the embedded store into a folder, while it runs").long_about(
            "Back up the embedded store (SQLite and its files) into a new folder, also while a server runs on it: \
             everything that was answered before the backup began is in it. The folder gets its name when all of \
             it is on the disk; it holds keys, so keep it as safe as the data folder.",
        ),
        "Folder to make; it must not be there yet",
    )
}

pub(super) fn restore_command() -> Command {
    arguments(
        Command::new("restore").about("Restore a backup into an empty data folder").long_about(
            "Restore a backup into an empty data folder on which no server runs. Interrupted, it is simply run \
             again; until it has ended no server starts there.",
        ),
        "Folder that `threadkeep backup` made",
    )
}

pub(super) async fn run(config: Config, matches: ArgMatches) -> Result<ExitCode> {
    let (places, path) = (places(&config).await?, path(&matches)?);
    let mut bar = Bar::new();
    let made =
        back_up(&places, &path, rfc3339(SystemClock.now()), |at| bar.draw(at.stage, at.done, at.total));
    let made = made.await;
    bar.end();
    tell(&matches, "backup", &format!("Backed up to {}", path.display()), &path, &made?)
}

pub(super) async fn run_restore(config: Config, matches: ArgMatches) -> Result<ExitCode> {
    let (places, path) = (places(&config).await?, path(&matches)?);
    let mut bar = Bar::new();
    let made = restore(&path, &places, |at| bar.draw(at.stage, at.done, at.total)).await;
    bar.end();
    tell(&matches, "restored", &format!("Restored from {}", path.display()), &path, &made?)
}

/// A server must not start on half a store.
pub(super) fn check_not_half_restored(config: &Config) -> Result<()> {
    if config.data.join(RESTORING).exists() {
        let data = config.data.display();
        bail!(
            "THREADKEEP_DATA: {data} is being restored; run `threadkeep restore` again, or empty the folder"
        );
    }
    Ok(())
}

fn path(matches: &ArgMatches) -> Result<PathBuf> {
    let path = matches.get_one::<PathBuf>("path").context("PATH is needed")?;
    Ok(std::path::absolute(path)?)
}

async fn places(config: &Config) -> Result<Places> {
    let Database::Sqlite(database) = &config.database else {
        bail!(
            "this is for the embedded store; back up PostgreSQL with pg_dump or your provider's snapshots, and after \
             it the blob folder or bucket (docs/operating.md says how)"
        )
    };
    let blobs = open_blobs(config, &TaskTracker::new()).await?;
    Ok(Places { data: config.data.clone(), database: database.clone(), blobs })
}

fn tell(
    matches: &ArgMatches,
    key: &str,
    done: &str,
    path: &std::path::Path,
    made: &Manifest,
) -> Result<ExitCode> {
    say(&if matches.get_flag("json") {
        let mut shown = serde_json::to_value(made)?;
        shown[key] = json!(path);
        shown.to_string()
    } else {
        format!(
            "{done}: {} files, {:.1} MiB of them and {:.1} MiB of database, schema version {}, as of {}.",
            made.files,
            made.file_bytes as f64 / 1_048_576.0,
            made.database_bytes as f64 / 1_048_576.0,
            made.schema,
            made.made_at
        )
    });
    Ok(ExitCode::SUCCESS)
}
