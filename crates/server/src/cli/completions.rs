//! `threadkeep completions SHELL`: what a shell needs to complete our command lines.

use std::process::ExitCode;

use anyhow::Result;
use clap::{Arg, ArgMatches, Command, value_parser};
use clap_complete::{Shell, generate};

pub(super) fn command() -> Command {
    Command::new("completions")
        .about("Print a completion script")
        .arg(Arg::new("shell").required(true).value_parser(value_parser!(Shell)))
}

pub(super) fn run(matches: &ArgMatches) -> Result<ExitCode> {
    if let Some(shell) = matches.get_one::<Shell>("shell") {
        let mut script = Vec::new();
        generate(*shell, &mut super::command(), "threadkeep", &mut script);
        // The generator itself panics when its reader goes away.
        super::say(String::from_utf8_lossy(&script).trim_end());
    }
    Ok(ExitCode::SUCCESS)
}
