//! `cargo xtask docs`: builds the documentation site, by a separate program.

use std::ffi::OsString;

use clap::Args;

use crate::Result;
use crate::command::{Run, executable};
use crate::step::Context;
use crate::workspace::{SELECTION, Workspace};

/// Arguments for xtask-docs.
#[derive(Args)]
pub(crate) struct Options {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<OsString>,
}

/// Builds and runs xtask-docs.
pub(crate) fn run(Options { arguments }: &Options) -> Result {
    let workspace = Workspace::load()?;
    Run::cargo("run --quiet --locked --package xtask-docs --", workspace.root()).args(arguments).serve()
}

/// Builds the site with the dependencies that other steps use as well.
pub(crate) fn check(context: &Context<'_>) -> Result {
    let build = format!("build --quiet --locked {SELECTION} --bin xtask-docs --message-format json-render-diagnostics");
    let messages = Run::cargo(&build, context.workspace.root()).output()?;
    let program = executable(&messages).ok_or("cargo does not say where it put xtask-docs")?;
    Run::new(program, context.workspace.root()).passes(context.deadline)
}
