//! `threadkeep import`: conversations from files into the configured store.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Result, bail};
use clap::builder::{NonEmptyStringValueParser, PossibleValuesParser};
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use domain::time::SystemClock;
use domain::transfer::format::Format;
use tokio_util::task::TaskTracker;

use super::{admin_scope, open_beside, say, told_to_stop};
use crate::boot::{open_blobs, prepare_local};
use crate::config::{Config, store_flags};
use crate::transfer::import::Importer;
use crate::transfer::report::Report;

pub(super) fn command() -> Command {
    let files = Arg::new("files")
        .value_name("FILE")
        .num_args(1..)
        .required(true)
        .value_parser(value_parser!(PathBuf))
        .help("JSON, JSON Lines, CSV, a zip of these, or a folder that `export` made");
    let format = Arg::new("format")
        .long("format")
        .value_name("FORMAT")
        .value_parser(PossibleValuesParser::new(
            std::iter::once("auto").chain(Format::ALL.into_iter().map(Format::name)),
        ))
        .default_value("auto")
        .help("What the files are; told by what is in them unless it is named");
    let owner = Arg::new("owner")
        .long("owner")
        .value_name("USER")
        .value_parser(NonEmptyStringValueParser::new())
        .help("Give everything to this user; otherwise each conversation keeps the owner that it names");
    let dry = Arg::new("dry-run")
        .long("dry-run")
        .action(ArgAction::SetTrue)
        .help("Read everything and say what would come in, and write nothing");
    let json = Arg::new("json").long("json").action(ArgAction::SetTrue).help("Print JSON");
    let report = Arg::new("report")
        .long("report")
        .value_name("PATH")
        .value_parser(value_parser!(PathBuf))
        .help("Write a line of JSON for each conversation: where it stood and what became of it");
    store_flags(
        Command::new("import")
            .about("Take in conversations from an export, ours or somebody else's")
            .long_about(
                "Take in conversations from an export. What is there already is left as it is, so that an import can \
                 be repeated, and one that was interrupted goes on when it is started again. Works beside a running \
                 server. The exit code is 1 when something was refused.",
            )
            .args(super::whose())
            .args([files, format, owner, dry, json, report]),
    )
}

pub(super) async fn run(config: Config, matches: ArgMatches) -> Result<ExitCode> {
    // What is asked for is looked at before anything is made.
    let paths: Vec<PathBuf> = matches.get_many("files").into_iter().flatten().cloned().collect();
    if let Some(missing) = paths.iter().find(|path| !path.exists()) {
        bail!("{} is not there", missing.display());
    }
    let (dry, json) = (matches.get_flag("dry-run"), matches.get_flag("json"));
    let mut report = Report::new(matches.get_one::<PathBuf>("report").map(PathBuf::as_path), dry)?;
    let store = open_beside(&config).await?;
    let blobs = open_blobs(&config, &TaskTracker::new()).await?;
    if config.is_local() {
        prepare_local(&config, &*store, &SystemClock).await?;
    }
    let scope = admin_scope(&config, &*store, &matches).await?;
    let importer = Importer {
        store: Arc::clone(&store),
        blobs,
        scope,
        clock: Arc::new(SystemClock),
        max_tabs: config.limits.max_persisted_tabs as usize,
        format: matches.get_one::<String>("format").and_then(|name| Format::parse(name)),
        owner: matches.get_one::<String>("owner").cloned(),
        dry,
    };
    let whole = importer.run(paths, &mut report, told_to_stop()).await;
    store.close().await;
    let whole = whole?;
    say(&report.told(json));
    if !whole {
        bail!("interrupted: start it again and it goes on");
    }
    Ok(if report.refused == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
