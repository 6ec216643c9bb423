//! `threadkeep config`: the configuration as it would be used, secrets masked.

use std::process::ExitCode;

use anyhow::Result;
use clap::{Arg, ArgAction, ArgMatches, Command};

use super::say;
use crate::config::{Config, flags};

pub(super) fn command() -> Command {
    let json = Arg::new("json").long("json").action(ArgAction::SetTrue).help("Print JSON");
    flags(Command::new("config").about("Print the effective configuration, secrets masked").arg(json))
}

pub(super) fn run(config: &Config, matches: &ArgMatches) -> Result<ExitCode> {
    if matches.get_flag("json") {
        say(&serde_json::to_string_pretty(&config.to_json())?);
    } else {
        say(config.to_toml().trim_end());
    }
    Ok(ExitCode::SUCCESS)
}
