//! The `ifmatch` command.

use std::process::ExitCode;

fn main() -> ExitCode {
    ifmatch_gateway::cli::main()
}
