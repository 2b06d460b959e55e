//! What tests need from npm, pinned by lock files: Azurite, the Azure storage emulator, the Azure clients, miniflare, and
//! Wrangler.

use std::fs;
use std::path::Path;
use std::time::{Instant, SystemTime};

use crate::Result;
use crate::command::Run;
use crate::step::Context;
use crate::workspace::Workspace;

/// Azurite.
pub(crate) const AZURITE: &str = "tests/azurite";
/// What the tests of the package for JavaScript use.
pub(crate) const JS: &str = "wasm/js";
/// The runtime of Cloudflare Workers, what starts it, and what deploys to it.
pub(crate) const MINIFLARE: &str = "wasm/miniflare";
/// The clients for JavaScript, and the suite that uses them.
pub(crate) const CLIENTS: &str = "tests/sdk/javascript";

/// Installs exactly what the lock files say, without running the packages' own scripts.
pub(crate) fn install(context: &Context<'_>) -> Result {
    [AZURITE, CLIENTS, JS, MINIFLARE]
        .iter()
        .try_for_each(|folder| install_in(context.workspace, folder, context.deadline))
}

/// Installs what a folder's lock file says if that has not been done since the file changed.
pub(crate) fn require(workspace: &Workspace, folder: &str, deadline: Instant) -> Result {
    let there = workspace.root().join(folder);
    // npm writes this file at the end of an installation.
    let installed = changed(&there.join("node_modules/.package-lock.json"));
    if installed.is_some() && installed >= changed(&there.join("package-lock.json")) {
        return Ok(());
    }
    install_in(workspace, folder, deadline)
}

fn install_in(workspace: &Workspace, folder: &str, deadline: Instant) -> Result {
    Run::new("npm", &workspace.root().join(folder))
        .args(["ci", "--ignore-scripts", "--no-audit", "--no-fund"])
        .passes(deadline)
}

fn changed(file: &Path) -> Option<SystemTime> {
    fs::metadata(file).and_then(|metadata| metadata.modified()).ok()
}
