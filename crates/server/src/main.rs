//! The `threadkeep` binary: arguments in, exit code out.

use std::process::ExitCode;

fn main() -> ExitCode {
    let args: Vec<_> = std::env::args_os().collect();
    // A part of a sandbox room is this program again: before anything else, and before there are threads.
    if let Some(code) = sandbox::child(&args) {
        return code;
    }
    server::cli::main(args, std::env::vars_os())
}
