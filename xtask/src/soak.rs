//! `cargo xtask soak`: runs the soak test of the shared registers, a separate program.

use std::ffi::OsString;

use clap::Args;

use crate::Result;
use crate::command::Run;
use crate::workspace::Workspace;

/// Arguments for `xtask-registers soak`.
#[derive(Args)]
pub(crate) struct Options {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<OsString>,
}

/// Builds and runs the test, optimised.
pub(crate) fn run(Options { arguments }: &Options) -> Result {
    let workspace = Workspace::load()?;
    let program = "run --quiet --release --locked --package xtask-registers -- soak";
    Run::cargo(program, workspace.root()).args(arguments).serve()
}
