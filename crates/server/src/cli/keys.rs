//! `threadkeep keys`: API keys by the store itself, so that the first one needs no other.

use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use clap::{Arg, ArgAction, ArgMatches, Command};
use domain::scope::{Role, Scope};
use domain::time::{Clock, SystemClock, rfc3339};
use domain::workspace::ApiKey;
use serde_json::json;
use store::Store;
use uuid::Uuid;

use super::{admin_scope, open_beside, say, say_list};
use crate::config::{Config, store_flags};
use crate::routes::api_keys::make_key;

pub(super) fn command() -> Command {
    let workspace = || {
        Arg::new("workspace")
            .long("workspace")
            .value_name("ID")
            .value_parser(super::uuid)
            .help("The workspace's id; may be left out when the user is in one only")
    };
    let user = || {
        Arg::new("user").long("user").value_name("USER").help(
            "The member who makes the key, and as whom member and admin keys act [default: the local user]",
        )
    };
    let json = || Arg::new("json").long("json").action(ArgAction::SetTrue).help("Print JSON");
    let common = |command: Command| store_flags(command.args([workspace(), user(), json()]));
    let keys = common(Command::new("keys").about("Make, list and remove API keys; alone it lists"));
    keys.args_conflicts_with_subcommands(true).subcommands([
        common(Command::new("create").about("Make a key and print it, once"))
            .arg(Arg::new("name").long("name").value_name("TEXT").required(true).help("What the key is for"))
            .arg(
                Arg::new("role")
                    .long("role")
                    .value_name("ROLE")
                    .required(true)
                    .value_parser(["member", "admin", "service"])
                    .help("What it may do: as a member or an admin, or for the workspace itself"),
            ),
        common(Command::new("list").about("List a workspace's keys")),
        common(Command::new("remove").about("Remove a key, which stops working at once")).arg(
            Arg::new("id")
                .value_name("ID")
                .required(true)
                .value_parser(super::uuid)
                .help("The key's id, as `keys list` shows it"),
        ),
    ])
}

pub(super) async fn run(config: Config, matches: ArgMatches) -> Result<ExitCode> {
    let (action, sub) = matches.subcommand().unwrap_or(("list", &matches));
    let store = open_beside(&config).await?;
    let scope = admin_scope(&config, &*store, sub).await?;
    let json = sub.get_flag("json");
    match action {
        "create" => create(&*store, &scope, sub, json).await?,
        "list" => list(&*store, &scope, json).await?,
        _ => remove(&*store, &scope, sub, json).await?,
    }
    store.close().await;
    Ok(ExitCode::SUCCESS)
}

async fn create(store: &dyn Store, scope: &Scope, matches: &ArgMatches, json: bool) -> Result<()> {
    let role =
        matches.get_one::<String>("role").and_then(|role| Role::parse(role)).context("--role is needed")?;
    let name = matches.get_one::<String>("name").cloned().unwrap_or_default();
    if name.trim().is_empty() || name.chars().count() > 255 || name.chars().any(char::is_control) {
        bail!("--name must be 1 to 255 characters, without control characters");
    }
    let key = ApiKey {
        id: SystemClock.new_id(),
        name,
        role,
        created_by: scope.user.clone(),
        created_at: SystemClock.now(),
    };
    let (text, hash) = make_key(scope.workspace).map_err(|problem| anyhow::anyhow!(problem.detail))?;
    store.create_key(scope, &key, hash).await?;
    say(&if json {
        let mut shown = shape(&key, scope);
        shown["key"] = text.expose().into();
        shown.to_string()
    } else {
        text.expose().to_owned()
    });
    Ok(())
}

fn shape(key: &ApiKey, scope: &Scope) -> serde_json::Value {
    json!({
        "id": key.id, "name": key.name, "role": key.role, "workspace": scope.workspace,
        "created_by": key.created_by, "created_at": rfc3339(key.created_at),
    })
}

async fn list(store: &dyn Store, scope: &Scope, json: bool) -> Result<()> {
    let (mut keys, mut after) = (Vec::new(), None);
    loop {
        let page = store.list_keys(scope, after, 100).await?;
        let Some(last) = page.last() else { break };
        after = Some(last.id);
        keys.extend(page);
    }
    if json {
        say_list(keys.iter().map(|key| shape(key, scope)).collect());
        return Ok(());
    }
    for key in keys {
        let (role, made, name) = (key.role.as_str(), rfc3339(key.created_at), key.name.escape_debug());
        say(&format!("{}  {role:<7}  {made}  {name}", key.id));
    }
    Ok(())
}

async fn remove(store: &dyn Store, scope: &Scope, matches: &ArgMatches, json: bool) -> Result<()> {
    let id = matches.get_one::<Uuid>("id").copied().context("the key's id is needed")?;
    match store.remove_key(scope, id, SystemClock.now()).await {
        Err(store::StoreError::NotFound) => bail!("there is no key {id} in workspace {}", scope.workspace),
        removed => removed?,
    }
    say(&if json { json!({ "removed": id }).to_string() } else { format!("Key {id} was removed.") });
    Ok(())
}
