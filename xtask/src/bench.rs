//! `cargo xtask bench`: runs the benchmarks, which are a separate program.

use std::ffi::OsString;

use clap::Args;

use crate::Result;
use crate::command::Run;
use crate::workspace::Workspace;

/// Arguments for xtask-bench.
#[derive(Args)]
pub(crate) struct Options {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<OsString>,
}

/// Builds and runs xtask-bench.
pub(crate) fn run(Options { arguments }: &Options) -> Result {
    let workspace = Workspace::load()?;
    Run::cargo("run --quiet --locked --package xtask-bench --", workspace.root()).args(arguments).serve()
}
