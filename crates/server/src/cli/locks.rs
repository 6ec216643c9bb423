//! `threadkeep locks`: which runs hold which conversations, and the end of one by hand.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, bail};
use clap::{Arg, ArgAction, ArgMatches, Command};
use domain::scope::{Role, Scope};
use domain::time::{SystemClock, rfc3339};
use serde_json::{Value, json};
use store::turns::Lock;
use store::{Store, StoreError};
use turn::TurnError;
use uuid::Uuid;

use super::{open_beside, say, say_list};
use crate::boot::turns_beside;
use crate::config::{Config, store_flags};

const PAGE: usize = 200;

pub(super) fn command() -> Command {
    let json = || Arg::new("json").long("json").action(ArgAction::SetTrue).help("Print JSON");
    let list = "List the runs that hold a conversation, with their node and lease";
    let clear = "End the run that holds a conversation, as interrupted; what was streamed is kept";
    store_flags(
        Command::new("locks").about("List and clear the locks of conversations; alone it lists").arg(json()),
    )
    .args_conflicts_with_subcommands(true)
    .subcommands([
        store_flags(Command::new("list").about(list).arg(json())),
        store_flags(
            Command::new("clear").about(clear).arg(json()).arg(
                Arg::new("id")
                    .value_name("ID")
                    .required(true)
                    .value_parser(super::uuid)
                    .help("The conversation, or the run that holds it"),
            ),
        ),
    ])
}

pub(super) async fn run(config: Config, matches: ArgMatches) -> Result<ExitCode> {
    // Alone it lists.
    let (action, sub) = matches.subcommand().unwrap_or(("list", &matches));
    let store = open_beside(&config).await?;
    let json = sub.get_flag("json");
    let locks = all(&*store).await?;
    match sub.try_get_one::<Uuid>("id").ok().flatten().copied() {
        Some(id) if action == "clear" => clear(&config, &store, &locks, id, json).await?,
        _ => list(&*store, &locks, json).await?,
    }
    store.close().await;
    Ok(ExitCode::SUCCESS)
}

async fn all(store: &dyn Store) -> Result<Vec<Lock>> {
    let (mut locks, mut after) = (Vec::new(), None);
    loop {
        let page = store.system_list_locks(after, PAGE).await?;
        let Some(last) = page.last() else { return Ok(locks) };
        after = Some((last.workspace, last.run));
        locks.extend(page);
    }
}

/// Whoever can open the store may do anything.
fn operator(workspace: Uuid) -> Scope {
    let user = "operator".to_owned();
    Scope { workspace, org: String::new(), user, role: Role::Admin, key: None, administers: true }
}

async fn list(store: &dyn Store, locks: &[Lock], json: bool) -> Result<()> {
    let mut shown = Vec::new();
    for lock in locks {
        let since = match store.get_run(&operator(lock.workspace), lock.run).await {
            Ok(run) if run.status.is_settled() => continue,
            Ok(run) => run.started_at.map(rfc3339),
            // Its conversation is deleted; the run is on its way to its end.
            Err(StoreError::NotFound) => None,
            Err(error) => return Err(error.into()),
        };
        shown.push((lock, since));
    }
    match (json, shown.is_empty()) {
        (true, _) => say_list(shown.into_iter().map(|(lock, since)| shape(lock, since)).collect()),
        (false, true) => say("No conversation is locked."),
        (false, false) => shown.into_iter().for_each(|(lock, since)| say(&line(lock, since))),
    }
    Ok(())
}

fn shape(lock: &Lock, since: Option<String>) -> Value {
    json!({
        "conversation": lock.conversation, "run": lock.run, "workspace": lock.workspace, "node": lock.node,
        "since": since, "lease_seconds": lock.lease_left_ms as f64 / 1000.0,
    })
}

fn line(lock: &Lock, since: Option<String>) -> String {
    let lease = match lock.lease_left_ms {
        left if left > 0 => format!("lease for {:.0} s", left as f64 / 1000.0),
        left => format!("lease over for {:.0} s", -left as f64 / 1000.0),
    };
    let (since, node) = (since.unwrap_or_else(|| "-".into()), lock.node.as_deref().unwrap_or("-"));
    format!("{}  run {}  node {node}  since {since}  {lease}", lock.conversation, lock.run)
}

async fn clear(config: &Config, store: &Arc<dyn Store>, locks: &[Lock], id: Uuid, json: bool) -> Result<()> {
    let Some(lock) = locks.iter().find(|lock| lock.conversation == id || lock.run == id) else {
        bail!("no run holds {id}: it is no conversation that is locked, and no run that is under way");
    };
    let turns = turns_beside(config, Arc::clone(store), Arc::new(SystemClock)).await?;
    match turns.clear_lock(&operator(lock.workspace), lock.conversation).await {
        // A server saw it change hands and ends it itself.
        Ok(_) | Err(TurnError::Store(StoreError::Lost)) => {}
        Err(error) => return Err(error.into()),
    }
    for _ in 0..50 {
        if !all(&**store).await?.iter().any(|held| held.run == lock.run) {
            say(&if json {
                json!({ "cleared": { "conversation": lock.conversation, "run": lock.run } }).to_string()
            } else {
                format!("The run {} was ended; the conversation {} is free.", lock.run, lock.conversation)
            });
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    bail!("the run {} is still there; look at the servers' logs", lock.run)
}
