//! `cargo xtask dist`: the packages of a release, by the scripts in packaging, and the WebAssembly component.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::Args;

use crate::command::Run;
use crate::workspace::Workspace;
use crate::{Result, component};

/// Time limit of each script.
const LIMIT: Duration = Duration::from_hours(2);

/// Options of `cargo xtask dist`.
#[derive(Args)]
pub(crate) struct Options {
    /// Target to build for, this machine's first. May be repeated. Defaults to this machine's, with a static glibc.
    #[arg(long, value_name = "TRIPLE")]
    target: Vec<String>,
    /// Also installs and runs the packages in systems of their own, with the tools of Debian. Needs root.
    #[arg(long)]
    check: bool,
    /// With --check: folder of another Linux system, in which the binary must run. May be repeated.
    #[arg(long, value_name = "DIR", requires = "check")]
    root: Vec<PathBuf>,
}

/// Builds the packages into target/dist, and checks them if asked to.
pub(crate) fn run(options: &Options) -> Result {
    let workspace = Workspace::load()?;
    let script = |name: &str| {
        Run::new(
            workspace.root().join("packaging").join(name),
            workspace.root(),
        )
        .env("CARGO_TARGET_DIR", workspace.target())
    };
    let component = component::build(&workspace, Instant::now() + LIMIT)?;
    script("build.sh")
        .args(&options.target)
        .env("IFMATCH_COMPONENT", component)
        .passes(Instant::now() + LIMIT)?;
    if options.check {
        script("check.sh")
            .args(&options.root)
            .passes(Instant::now() + LIMIT)
    } else {
        Ok(())
    }
}
