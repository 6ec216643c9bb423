//! `threadkeep man`: the manual, one page for the program and one for each of its commands.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use clap::{Arg, ArgMatches, Command, value_parser};
use clap_mangen::Man;

use super::say;

pub(super) fn command() -> Command {
    let out = Arg::new("out")
        .long("out")
        .value_name("DIR")
        .value_parser(value_parser!(PathBuf))
        .help("Folder to write all pages to, such as /usr/local/share/man/man1");
    Command::new("man").about("Print the manual page, or write all of them to a folder").arg(out)
}

pub(super) fn run(matches: &ArgMatches) -> Result<ExitCode> {
    let mut program = super::command();
    program.build();
    let Some(folder) = matches.get_one::<PathBuf>("out") else {
        say(String::from_utf8_lossy(&page(&program)?).trim_end());
        return Ok(ExitCode::SUCCESS);
    };
    std::fs::create_dir_all(folder).with_context(|| format!("--out: {} cannot be made", folder.display()))?;
    for (name, page) in pages(&program, "")? {
        let path = folder.join(format!("{name}.1"));
        std::fs::write(&path, page)
            .with_context(|| format!("--out: {} cannot be written", path.display()))?;
        say(&path.display().to_string());
    }
    Ok(ExitCode::SUCCESS)
}

/// The pages of a command and those below it, by name.
fn pages(command: &Command, above: &str) -> Result<Vec<(String, Vec<u8>)>> {
    let name = if above.is_empty() {
        command.get_name().to_owned()
    } else {
        format!("{above}-{}", command.get_name())
    };
    let mut all = vec![(name.clone(), page(&command.clone().name(name.clone()))?)];
    for below in command.get_subcommands().filter(|below| !below.is_hide_set() && below.get_name() != "help")
    {
        all.extend(pages(below, &name)?);
    }
    Ok(all)
}

fn page(command: &Command) -> Result<Vec<u8>> {
    let mut page = Vec::new();
    Man::new(command.clone()).render(&mut page)?;
    Ok(page)
}
