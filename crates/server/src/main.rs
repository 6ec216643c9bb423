//! The `threadkeep` binary: arguments in, exit code out.

use std::process::ExitCode;

fn main() -> ExitCode {
    server::cli::main(std::env::args_os(), std::env::vars_os())
}
