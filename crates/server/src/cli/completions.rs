//! `threadkeep completions SHELL`: what a shell needs to complete our command lines.

use std::process::ExitCode;

use anyhow::Result;
use clap::{Arg, ArgMatches, Command, value_parser};
use clap_complete::{Shell, generate};

pub(super) fn command() -> Command {
    Command::new("completions")
        .about("Print a completion script")
        .long_about(
            "Print a completion script. For bash: source <(threadkeep completions bash), in ~/.bashrc. For zsh: \
             threadkeep completions zsh > _threadkeep, in a folder of $fpath. For fish: threadkeep completions fish > \
             ~/.config/fish/completions/threadkeep.fish.",
        )
        .arg(Arg::new("shell")
                .value_name("SHELL")
                .required(true)
                .value_parser(value_parser!(Shell))
                .help("The shell that is to read it"),
        )
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
