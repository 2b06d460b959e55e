//! The servers that tests start and that come from npm: Azurite, the Azure storage emulator, pinned by a lock file.

use crate::Result;
use crate::command::Run;
use crate::step::Context;

/// Folders below the root that hold a `package.json` and a lock file.
const FOLDERS: &[&str] = &["tests/azurite"];

/// Installs exactly what the lock files say, without running the packages' own scripts.
pub(crate) fn install(context: &Context<'_>) -> Result {
    for folder in FOLDERS {
        Run::new("npm", &context.workspace.root().join(folder))
            .args(["ci", "--ignore-scripts", "--no-audit", "--no-fund"])
            .passes(context.deadline)?;
    }
    Ok(())
}
