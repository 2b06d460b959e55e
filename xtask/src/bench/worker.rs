//! The Worker beside others on the same runtime.

use std::time::Instant;

use crate::command::Run;
use crate::workspace::Workspace;
use crate::{Result, npm, worker};

/// Builds the Worker, and measures it: wasm/bench.
pub(super) fn run(workspace: &Workspace, quick: bool, deadline: Instant) -> Result {
    let modules = worker::build(workspace, deadline)?;
    for folder in [npm::MINIFLARE, npm::JS] {
        npm::require(workspace, folder, deadline)?;
    }
    let bench = |script: &str| Run::new("node", workspace.root()).args([script, "--modules"]).args([&modules]);
    let requests = bench("wasm/bench/bench.mjs");
    let requests = if quick { requests.args(["--quick"]) } else { requests };
    requests.passes(deadline)?;
    bench("wasm/bench/startup.mjs").passes(deadline)
}
