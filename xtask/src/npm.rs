//! What tests need from npm, pinned by lock files: Azurite, the Azure storage emulator, and the Azure clients.

use std::fs;
use std::path::Path;
use std::time::SystemTime;

use crate::Result;
use crate::command::Run;
use crate::step::Context;

/// Azurite.
pub(crate) const AZURITE: &str = "tests/azurite";
/// The clients for JavaScript, and the suite that uses them.
pub(crate) const CLIENTS: &str = "tests/sdk/javascript";

/// Installs exactly what the lock files say, without running the packages' own scripts.
pub(crate) fn install(context: &Context<'_>) -> Result {
    [AZURITE, CLIENTS].iter().try_for_each(|folder| install_in(context, folder))
}

/// Installs what a folder's lock file says if that has not been done since the file changed.
pub(crate) fn require(context: &Context<'_>, folder: &str) -> Result {
    let there = context.workspace.root().join(folder);
    // npm writes this file at the end of an installation.
    let installed = changed(&there.join("node_modules/.package-lock.json"));
    if installed.is_some() && installed >= changed(&there.join("package-lock.json")) {
        return Ok(());
    }
    install_in(context, folder)
}

fn install_in(context: &Context<'_>, folder: &str) -> Result {
    Run::new("npm", &context.workspace.root().join(folder))
        .args(["ci", "--ignore-scripts", "--no-audit", "--no-fund"])
        .passes(context.deadline)
}

fn changed(file: &Path) -> Option<SystemTime> {
    fs::metadata(file).and_then(|metadata| metadata.modified()).ok()
}
