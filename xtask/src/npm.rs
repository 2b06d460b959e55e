//! The tests' npm packages, pinned by lock files: Azurite (the Azure storage emulator), the Azure clients, a driver of
//! browsers, miniflare, Wrangler and componentize-qjs.

use std::time::Instant;

use crate::Result;
use crate::command::Run;
use crate::workspace::{Workspace, changed};

/// Folder of the component's guest in JavaScript, and of what makes a component of it.
pub const GUEST: &str = "wasm/guest/javascript";
/// Folder of Azurite.
pub const AZURITE: &str = "tests/azurite";
/// Folder of the console's tests in a browser.
pub const CONSOLE: &str = "tests/console";
/// Folder of the npm package, with its tests.
pub const JS: &str = "wasm/js";
/// Folder of miniflare, with the runtime of Cloudflare Workers, and Wrangler.
pub const MINIFLARE: &str = "wasm/miniflare";
/// Folder of the Azure clients for JavaScript and their suite.
pub const CLIENTS: &str = "tests/sdk/javascript";

/// Installs the packages of a folder's lock file, unless they are up to date.
pub fn require(workspace: &Workspace, folder: &str, deadline: Instant) -> Result {
    let there = workspace.root().join(folder);
    // npm writes this file at the end of an installation.
    let installed = changed(&there.join("node_modules/.package-lock.json"));
    if installed.is_some() && installed >= changed(&there.join("package-lock.json")) {
        return Ok(());
    }
    Run::new("npm", &there)
        .args(["ci", "--ignore-scripts", "--no-audit", "--no-fund"])
        .passes(deadline)
}
