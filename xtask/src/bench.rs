//! `cargo xtask bench`: the measurements, by what they measure.

use std::time::{Duration, Instant};

use clap::{Args, Subcommand};

use crate::Result;
use crate::command::Run;
use crate::workspace::Workspace;

/// What `cargo xtask bench` takes.
#[derive(Args)]
pub(crate) struct Options {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Functions alone: the benchmarks of benches/ and of each crate.
    Functions {
        /// Only the benchmarks whose name contains this.
        filter: Option<String>,
    },
}

/// Measures what was asked for.
pub(crate) fn run(options: &Options) -> Result {
    let workspace = Workspace::load()?;
    match &options.what {
        What::Functions { filter } => functions(&workspace, filter.as_deref()),
    }
}

fn functions(workspace: &Workspace, filter: Option<&str>) -> Result {
    let deadline = Instant::now() + Duration::from_hours(1);
    let filter = filter.map(|filter| ["--", filter]);
    Run::cargo("bench --workspace --benches --locked", workspace.root())
        .args(filter.into_iter().flatten())
        .passes(deadline)
}
