//! Functions: instructions by valgrind, nanoseconds by criterion, and hashing compared with OpenSSL.

use std::path::Path;
use std::time::Instant;

use crate::programs;
use xtask::Result;
use xtask::command::Run;
use xtask::step::Tool;
use xtask::workspace::Workspace;

const VALGRIND: Tool =
    Tool { name: "valgrind", probe: &["valgrind", "--version"], install: "apt-get install -y valgrind" };

/// Runs the benchmarks of benches/. A quick run skips the slow ones.
pub(crate) fn run(workspace: &Workspace, quick: bool, deadline: Instant) -> Result {
    VALGRIND.require(workspace)?;
    require_runner(workspace.root())?;
    let bench =
        |name| Run::cargo(&format!("bench --locked --package ifmatch-workspace --bench {name}"), workspace.root());
    // rustix reads the clock through the vDSO otherwise, which valgrind does not have.
    bench("instructions").env("RUSTFLAGS", "--cfg rustix_use_libc").passes(deadline)?;
    if quick {
        return Ok(());
    }
    bench("time").passes(deadline)?;
    programs::hashing(workspace, deadline)
}

/// The library for instruction counts works only with the runner of the same version.
fn require_runner(root: &Path) -> Result {
    let id = Run::cargo("pkgid --locked gungraun", root).output()?;
    let version = id.trim().rsplit(['@', '#']).next().unwrap_or_default();
    let installed = Run::new("gungraun-runner", root).args(["--version"]).output().unwrap_or_default();
    if installed.trim().ends_with(version) {
        return Ok(());
    }
    Err(format!("gungraun-runner {version} is needed: cargo install --locked gungraun-runner --version {version}")
        .into())
}
