//! `threadkeep migrate`: brings the schema up to date without serving, for those who deploy in two steps.

use std::process::ExitCode;

use anyhow::Result;
use clap::{Arg, ArgAction, ArgMatches, Command};
use serde_json::json;

use super::{open_beside, say};
use crate::config::{Config, store_flags};

pub(super) fn command() -> Command {
    let json = Arg::new("json").long("json").action(ArgAction::SetTrue).help("Print JSON");
    store_flags(Command::new("migrate").about("Bring the database's schema up to date, and stop").arg(json))
}

pub(super) async fn run(config: Config, matches: ArgMatches) -> Result<ExitCode> {
    let before = super::doctor::schema_version(&config).await?;
    let store = open_beside(&config).await?;
    store.ping().await?;
    store.close().await;
    let after = super::doctor::schema_version(&config).await?.unwrap_or(0);
    say(&match before {
        _ if matches.get_flag("json") => json!({ "before": before, "after": after }).to_string(),
        Some(before) if before == after => format!("The schema is up to date at version {after}."),
        Some(before) => format!("The schema went from version {before} to {after}."),
        None => format!("The schema was made at version {after}."),
    });
    Ok(ExitCode::SUCCESS)
}
