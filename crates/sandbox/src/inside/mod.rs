//! What runs in the room: the hidden subcommand that the service starts itself again as. `enter` makes the
//! namespaces, `furnish` the root, `confine` shuts what is left open, `init` is the room's first process, which
//! serves the service's questions and ends with it.

mod command;
mod confine;
mod enter;
mod files;
mod furnish;
mod init;
mod syscalls;
mod usage;

pub use enter::{BUBBLEWRAP, NOBODY, is_root_beside_nobody};

use std::ffi::OsString;
use std::io;
use std::process::ExitCode;

use crate::frame::{self, Answer, Setup, Step};

/// The hidden subcommand's name.
pub const SUBCOMMAND: &str = "sandbox-child";

/// Where the agent's files are, where the root is the room's own.
pub const WORKSPACE: &str = "/root/workspace";

/// Runs the process as part of a room if its arguments say so. To be called before any thread is made.
pub fn child(args: &[OsString]) -> Option<ExitCode> {
    if args.get(1).is_none_or(|name| name != SUBCOMMAND) {
        return None;
    }
    let setup = args.get(2).and_then(|text| serde_json::from_str::<Setup>(text.to_str()?).ok());
    let done = match setup {
        Some(setup) => step(setup),
        None => Err("this command is for the sandbox's own use".to_owned()),
    };
    Some(match done {
        Ok(code) => code,
        Err(message) => {
            let _ = frame::write(&mut io::stdout(), &Answer::Failed { message }, &[]);
            ExitCode::FAILURE
        }
    })
}

fn step(setup: Setup) -> Result<ExitCode, String> {
    match setup.step {
        Step::Enter => enter::enter(setup),
        Step::Furnish => {
            enter::die_with_parent()?;
            furnish::furnish(&setup)?;
            init::settle(&setup)
        }
        Step::Settle => init::settle(&setup),
    }
}

/// An error with what was being done.
fn doing<E: std::fmt::Display>(what: impl std::fmt::Display) -> impl FnOnce(E) -> String {
    move |error| format!("{what}: {error}")
}
