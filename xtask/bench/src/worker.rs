//! The Worker compared with others on the same runtime.

use std::path::Path;
use std::time::Instant;

use support::statistics::spread;
use xtask::command::Run;
use xtask::workspace::Workspace;
use xtask::{Result, npm, worker};

/// Builds the Worker and measures it with wasm/bench.
pub(super) fn run(workspace: &Workspace, quick: bool, deadline: Instant) -> Result {
    let modules = worker::build(workspace, deadline)?;
    for folder in [npm::MINIFLARE, npm::JS] {
        npm::require(workspace, folder, deadline)?;
    }
    let bench = |script: &str| Run::new("node", workspace.root()).args([script, "--modules"]).args([&modules]);
    let requests = bench("wasm/bench/bench.mjs");
    let requests = if quick { requests.args(["--quick"]) } else { requests };
    requests.passes(deadline)?;
    start_up(workspace, &modules, if quick { 1 } else { 11 })
}

/// Prints the CPU time of a start, as Wrangler measures it before a deployment.
fn start_up(workspace: &Workspace, modules: &Path, rounds: u32) -> Result {
    let times = (0..rounds).map(|_| worker::start_up(workspace, modules)).collect::<Result<Vec<_>>>()?;
    println!("| start-up | {} ms active |", spread(times, 1));
    Ok(())
}
