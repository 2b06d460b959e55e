//! Tasks that are programs of their own, so the others needn't compile what they use: the benchmarks, the scoreboard, the
//! documentation site, and the soak test of the shared registers.

use std::ffi::OsString;

use clap::Args;

use crate::Result;
use crate::command::{Run, executable};
use crate::step::Context;
use crate::workspace::{FULL, Workspace};

/// How cargo runs the benchmarks, a workspace of their own.
pub(crate) const BENCH: &str = "run --quiet --locked --manifest-path benches/Cargo.toml --target-dir target/benches --package bench-run -- bench";
/// How cargo runs the scoreboard.
pub(crate) const SCOREBOARD: &str = "run --quiet --locked --manifest-path benches/Cargo.toml --target-dir target/benches --package bench-run -- scoreboard";
/// How cargo runs the program that builds the site.
pub(crate) const DOCS: &str = "run --quiet --locked --package xtask-docs --";
/// How cargo runs the soak test, optimised.
pub(crate) const SOAK: &str = "run --quiet --release --locked --package xtask-registers -- soak";

/// Arguments for a program.
#[derive(Args)]
pub(crate) struct Arguments {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<OsString>,
}

/// Builds and runs a program.
pub(crate) fn run(program: &str, Arguments { arguments }: &Arguments) -> Result {
    let workspace = Workspace::load()?;
    Run::cargo(program, workspace.root())
        .args(arguments)
        .serve()
}

/// Builds the site with the dependencies that other steps use as well.
pub(crate) fn check_docs(context: &Context<'_>) -> Result {
    let build = format!(
        "build --quiet --locked {FULL} --bin xtask-docs --message-format json-render-diagnostics"
    );
    let messages = Run::cargo(&build, context.workspace.root()).output()?;
    let program = executable(&messages).ok_or("cargo does not say where it put xtask-docs")?;
    Run::new(program, context.workspace.root()).passes(context.deadline)
}
