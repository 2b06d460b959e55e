//! The `ifmatch` command.

use std::process::ExitCode;

use mimalloc::MiMalloc;

/// Every request allocates a little here and there; this one takes less time for it than the system's.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

fn main() -> ExitCode {
    ifmatch_gateway::cli::main()
}
