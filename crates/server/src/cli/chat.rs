//! `threadkeep chat`: what was asked for on the command line, for the terminal's own crate.

use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use domain::secret::Secret;
use terminal::{Open, Options};
use uuid::Uuid;

use crate::config::{CLIENT_VARIABLES, Config, flags_of, http_url};

pub(super) fn command() -> Command {
    let [server_env, key_env] = CLIENT_VARIABLES;
    let text = |name: &'static str, value: &'static str, help: String| {
        Arg::new(format!("chat_{name}")).long(name).value_name(value).help(help)
    };
    let command = Command::new("chat")
        .about("Chat in the terminal")
        .long_about(
            "Chat in the terminal, with a server that runs here or elsewhere.\n\n\
             On a terminal it takes the whole screen: type a message and press Enter, or /help. Otherwise standard \
             input is one message; its answer is written to standard output as it comes, steps and problems to \
             standard error, and the exit code is 1 when the turn failed.",
        )
        .args([
            text("server", "URL", format!("The server's address [env: {server_env}] [default: where `serve` listens]")),
            text("key", "KEY", format!("API key or user token [env: {key_env}] [default: local.key of the data folder]")),
            Arg::new("workspace")
                .long("workspace")
                .value_name("ID")
                .value_parser(super::uuid)
                .help("The workspace, for a user token that is in several"),
            Arg::new("conversation")
                .long("conversation")
                .value_name("ID")
                .value_parser(super::uuid)
                .conflicts_with_all(["continue", "pick"])
                .help("Go on in this conversation [default: a new one]"),
            Arg::new("continue")
                .long("continue")
                .short('c')
                .action(ArgAction::SetTrue)
                .conflicts_with("pick")
                .help("Go on in the newest conversation"),
            Arg::new("pick").long("pick").action(ArgAction::SetTrue).help("Choose a conversation first"),
            text("mode", "MODE", "How it is answered".to_owned()).value_parser(["ask", "agent", "task_flow"]),
            text("model", "MODEL", "Model, as provider/model".to_owned()),
            text("agent", "ID", "Agent that answers".to_owned()),
            Arg::new("attach")
                .long("attach")
                .value_name("PATH")
                .value_parser(value_parser!(PathBuf))
                .action(ArgAction::Append)
                .num_args(1..)
                .help("File to attach to the first message; may be repeated"),
            Arg::new("json").long("json").action(ArgAction::SetTrue).help("Print one event per line, as JSON"),
        ]);
    flags_of(command, &["data", "listen"])
}

pub(super) async fn run(config: Config, matches: ArgMatches, env: super::Env) -> Result<ExitCode> {
    let [server_env, key_env] = CLIENT_VARIABLES;
    let text = |name: &str| matches.get_one::<String>(name).cloned();
    let variable = |name: &str| {
        let found = env.iter().find(|(known, _)| known == name).map(|(_, value)| value.clone());
        found.and_then(|value| value.into_string().ok()).filter(|value| !value.is_empty())
    };
    let server = match text("chat_server").or_else(|| variable(server_env)) {
        Some(named) => {
            http_url(&named).map_err(|wanted| anyhow::anyhow!("--server: {named:?} must be {wanted}"))?
        }
        None => default_server(&config),
    };
    let key = text("chat_key").or_else(|| variable(key_env)).or_else(|| local_key(&config, &server));
    let open = match matches.get_one::<Uuid>("conversation") {
        Some(id) => Open::Conversation(*id),
        None if matches.get_flag("continue") => Open::Continue,
        None if matches.get_flag("pick") => Open::Pick,
        None => Open::New,
    };
    let options = Options {
        server,
        key: key.map(Secret::new),
        workspace: matches.get_one::<Uuid>("workspace").copied(),
        open,
        mode: text("chat_mode"),
        model: text("chat_model"),
        agent: text("chat_agent"),
        attach: matches.get_many::<PathBuf>("attach").into_iter().flatten().cloned().collect(),
        json: matches.get_flag("json"),
        dumb: variable("TERM").as_deref() == Some("dumb"),
    };
    Ok(terminal::run(options).await?)
}

/// Where `serve` would listen with the same settings, as seen from this machine.
fn default_server(config: &Config) -> String {
    let mut address = config.listen;
    if address.ip().is_unspecified() {
        address.set_ip(Ipv4Addr::LOCALHOST.into());
    }
    format!("http://{address}")
}

/// The data folder's own key. It is this machine's admin: no other machine gets to see it.
fn local_key(config: &Config, server: &str) -> Option<String> {
    let host = server.split_once("://")?.1.split('/').next()?;
    let name = host.rsplit_once(':').map_or(host, |(name, _)| name);
    let here = name == "localhost"
        || name.trim_matches(['[', ']']).parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback());
    let text = std::fs::read_to_string(config.data.join("local.key")).ok().filter(|_| here)?;
    Some(text.trim().to_owned())
}
