//! The subcommands. Each file is one of them: its arguments and what it does with them.

mod backup;
mod bar;
mod chat;
mod completions;
mod config;
mod doctor;
mod export;
mod import;
mod keys;
mod locks;
mod man;
mod migrate;
mod purge;
mod sandbox;
mod serve;

use std::ffi::OsString;
use std::io::{ErrorKind, Write as _};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Result, bail};
use clap::{Arg, ArgMatches, Command};
use domain::scope::{Role, Scope};
use nix::sys::signal::Signal;
use nix::sys::stat::{Mode, umask};
use store::Store;
use tokio::signal::unix::{SignalKind, signal};
use uuid::Uuid;

use crate::boot::LOCAL_USER;
use crate::config::{Config, load};

pub fn command() -> Command {
    Command::new("threadkeep")
        .about("A conversation server for AI assistants")
        .version(env!("CARGO_PKG_VERSION"))
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommands([
            serve::command(),
            chat::command(),
            config::command(),
            keys::command(),
            locks::command(),
            backup::command(),
            backup::restore_command(),
            migrate::command(),
            purge::command(),
            import::command(),
            export::command(),
            sandbox::command(),
            doctor::command(),
            completions::command(),
            man::command(),
        ])
}

type Env = Vec<(OsString, OsString)>;

/// Runs one command line. Whatever goes wrong is one sentence on standard error and exit code 1
/// (2 for arguments that make no sense).
pub fn main(
    args: impl IntoIterator<Item = OsString>,
    env: impl Iterator<Item = (OsString, OsString)>,
) -> ExitCode {
    // What this process makes is for its user alone, the files that SQLite puts beside its own too.
    umask(Mode::S_IRWXG | Mode::S_IRWXO);
    let matches = match command().try_get_matches_from(args) {
        Ok(matches) => matches,
        Err(error) => {
            let _ = error.print();
            return ExitCode::from(error.exit_code() as u8);
        }
    };
    match dispatch(&matches, env.collect()) {
        Ok(_) if UNSAID.load(Ordering::Relaxed) => ExitCode::FAILURE,
        Ok(code) => code,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "threadkeep: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn dispatch(matches: &ArgMatches, env: Env) -> Result<ExitCode> {
    let Some((name, sub)) = matches.subcommand() else { return Ok(ExitCode::FAILURE) };
    match name {
        "completions" => return completions::run(sub),
        "man" => return man::run(sub),
        _ => {}
    }
    // Of `keys list` and its like the flags stand with the inner one.
    let flags = sub.subcommand().map_or(sub, |(_, inner)| inner);
    let config = load(flags, env.iter().cloned())?;
    match name {
        "chat" => block_on(chat::run(config, sub.clone(), env)),
        "config" => config::run(&config, sub),
        "serve" => block_on(serve::run(config)),
        "backup" => block_on(backup::run(config, sub.clone())),
        "restore" => block_on(backup::run_restore(config, sub.clone())),
        "locks" => block_on(locks::run(config, sub.clone())),
        "keys" => block_on(keys::run(config, sub.clone())),
        "migrate" => block_on(migrate::run(config, sub.clone())),
        "import" => block_on(import::run(config, sub.clone())),
        "export" => block_on(export::run(config, sub.clone())),
        "purge" => block_on(purge::run(config, sub.clone())),
        "sandbox" => block_on(sandbox::run(config, sub.clone())),
        _ => block_on(doctor::run(config, sub.clone())),
    }
}

fn block_on(work: impl Future<Output = Result<ExitCode>>) -> Result<ExitCode> {
    tokio::runtime::Builder::new_multi_thread().enable_all().build()?.block_on(work)
}

/// Resolves at the first SIGINT or SIGTERM.
async fn told_to_stop() -> Result<()> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    tokio::select! { _ = interrupt.recv() => {}, _ = terminate.recv() => {} }
    Ok(())
}

/// A write over the limit on file sizes (`ulimit -f`, systemd's `LimitFSIZE`) is an error from here on; unheard, its
/// signal ends the process. What this process starts has the signal as it was made: `exec` forgets who listens.
fn outlive_file_limit() -> Result<()> {
    // The listener may go: who has listened once is not ended any more.
    drop(signal(SignalKind::from_raw(Signal::SIGXFSZ as i32))?);
    Ok(())
}

/// Whether something could not be said.
static UNSAID: AtomicBool = AtomicBool::new(false);

/// One line on standard output. A reader that went away is no reason to fail, a disk that is full is one.
fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    if let Err(error) = writeln!(out, "{line}").and_then(|()| out.flush())
        && error.kind() != ErrorKind::BrokenPipe
        && !UNSAID.swap(true, Ordering::Relaxed)
    {
        let _ = writeln!(std::io::stderr(), "threadkeep: standard output cannot be written: {error}");
    }
}

/// A list for a script: one document, also where there is nothing in it.
fn say_list(items: Vec<serde_json::Value>) {
    say(&serde_json::Value::Array(items).to_string());
}

/// An id on the command line.
fn uuid(text: &str) -> Result<Uuid, &'static str> {
    text.parse().map_err(|_| "it must be a UUID, such as 01a1de95-4808-7263-ba89-ffcd7dae3033")
}

/// Opens the configured store beside a server that may be running.
async fn open_beside(config: &Config) -> Result<std::sync::Arc<dyn store::Store>> {
    crate::boot::open_store(config, store::sqlite::Use::Command).await
}

/// The workspace that a command is about, and the member it acts as.
fn whose() -> [Arg; 2] {
    let workspace = Arg::new("workspace")
        .long("workspace")
        .value_name("ID")
        .value_parser(uuid)
        .help("The workspace's id; may be left out when the user is in one only");
    let user = Arg::new("user")
        .long("user")
        .value_name("USER")
        .help("The member as whom it is done [default: the local user]");
    [workspace, user]
}

/// Whoever can open the store may do anything; still it is done as a member of a workspace.
async fn admin_scope(config: &Config, store: &dyn Store, matches: &ArgMatches) -> Result<Scope> {
    let user = match matches.get_one::<String>("user") {
        Some(user) => user.clone(),
        None if config.is_local() => LOCAL_USER.into(),
        None => bail!("--user is needed: a member of the workspace"),
    };
    let named = matches.get_one::<Uuid>("workspace").copied();
    let mut found = store.list_memberships(&user, named, None, 2).await?;
    let membership = match (found.len(), named) {
        (1, _) => found.remove(0),
        (0, Some(id)) => bail!("{user} is not a member of workspace {id}"),
        (0, None) if config.is_local() && user == LOCAL_USER => {
            bail!("there is no local workspace yet; start the server once")
        }
        (0, None) => bail!("{user} is in no workspace"),
        _ => bail!("{user} is in several workspaces; name one with --workspace"),
    };
    Ok(Scope {
        workspace: membership.workspace.id,
        org: membership.workspace.org,
        user,
        role: Role::Admin,
        key: None,
        administers: true,
    })
}
