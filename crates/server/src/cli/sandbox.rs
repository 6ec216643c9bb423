//! `threadkeep sandbox`: the built-in sandbox as a service, on a machine of its own or as a child of `serve`.

use std::net::SocketAddr;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use clap::{Arg, ArgMatches, Command, value_parser};
use nix::sys::prctl;
use nix::sys::signal::Signal;
use nix::unistd::getppid;
use sandbox::Sandbox;
use tokio::net::TcpListener;

use super::{outlive_file_limit, say, told_to_stop};
use crate::config::{Config, flags};
use crate::observe;
use crate::sandbox_child::{CHILD, SERVER_ADDRESSES, options};

pub(super) fn command() -> Command {
    let address = Arg::new("address")
        .long("address")
        .value_name("HOST:PORT")
        .value_parser(value_parser!(SocketAddr))
        .default_value("127.0.0.1:9001")
        .help("Address to listen on; outside loopback SANDBOX_TOKEN must be set");
    let child = Arg::new(CHILD).long(CHILD).value_parser(value_parser!(i32)).hide(true);
    let addresses = Arg::new(SERVER_ADDRESSES).long(SERVER_ADDRESSES).num_args(2).requires(CHILD).hide(true);
    let about = "Run the built-in sandbox alone, for a server that names it in SANDBOX_URL";
    flags(Command::new("sandbox").about(about).args([address, child, addresses]))
}

pub(super) async fn run(config: Config, matches: ArgMatches) -> Result<ExitCode> {
    outlive_file_limit()?;
    observe::start_logging(config.log_format)?;
    let parent = matches.get_one::<i32>(CHILD).copied();
    let child = parent.is_some();
    if let Some(parent) = parent {
        // The server that started us restarts us, and we must not outlive it.
        prctl::set_pdeathsig(Signal::SIGKILL)?;
        if getppid().as_raw() != parent {
            bail!("the server that started this sandbox has ended");
        }
    }
    let mut options = options(&config);
    let mut addresses = matches.get_many::<String>(SERVER_ADDRESSES).into_iter().flatten().cloned();
    options.shortcut = addresses.next().zip(addresses.next());
    let has_token = options.token.is_some();
    let sandbox = Sandbox::prepare(options).await?;
    let listener = match matches.get_one::<SocketAddr>("address") {
        _ if child => sandbox::from_stdin().context("there is no listener on standard input")?,
        Some(address) if !address.ip().is_loopback() && !has_token => {
            bail!("--address: {address} can be reached by others, so SANDBOX_TOKEN must be set")
        }
        Some(address) => TcpListener::bind(address)
            .await
            .with_context(|| format!("--address: cannot listen on {address}"))?,
        None => bail!("--address is needed"),
    };
    match sandbox.isolation() {
        Ok(isolation) => tracing::info!("sandbox: {}", isolation.describe()),
        // A child stays, and tells every run why it refuses.
        Err(refused) if child => tracing::error!("{refused}"),
        Err(refused) => return Err(refused.into()),
    }
    if !child {
        say(&format!("The sandbox is ready: http://{}", listener.local_addr()?));
    }
    let stop = async {
        if let Err(error) = told_to_stop().await {
            tracing::error!(%error, "signals cannot be heard");
            std::future::pending().await
        }
    };
    sandbox.run(listener, stop).await?;
    Ok(ExitCode::SUCCESS)
}
