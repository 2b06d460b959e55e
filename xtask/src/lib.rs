//! The workspace's tasks: `cargo xtask test` checks everything, `cargo xtask bench` measures, `cargo xtask soak` tests the
//! shared registers for longer, `cargo xtask worker` serves the Cloudflare Worker, `cargo xtask js` builds the npm package.
//!
//! The benchmarks are a separate program, xtask-bench, which uses this library.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a command-line tool reports to its terminal")]

mod bench;
pub mod command;
mod js;
pub mod listening;
pub mod npm;
mod package;
mod sdk;
mod soak;
pub mod step;
mod test;
mod tree;
mod wasm;
pub mod worker;
pub mod workspace;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Result of a task, a step or a command. The error message says what to do.
pub type Result<T = ()> = std::result::Result<T, Box<dyn std::error::Error>>;

/// The workspace's tasks.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Cli {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Checks everything: format, lints, documentation, tests, packages.
    Test(test::Options),
    /// Runs benchmarks.
    #[command(disable_help_flag = true)]
    Bench(bench::Options),
    /// Runs clients of the shared registers under faults, and checks the history of their operations.
    #[command(disable_help_flag = true)]
    Soak(soak::Options),
    /// Builds the npm package into target/npm/ifmatch.
    Js,
    /// Builds the Cloudflare Worker, and serves it on this machine.
    Worker(worker::Options),
}

/// Runs the task named on the command line.
pub fn main() -> ExitCode {
    exit(match Cli::parse().task {
        Task::Test(options) => test::run(&options),
        Task::Bench(options) => bench::run(&options),
        Task::Soak(options) => soak::run(&options),
        Task::Js => js::run(),
        Task::Worker(options) => worker::run(&options),
    })
}

/// Reports a task's error.
pub fn exit(done: Result) -> ExitCode {
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error}");
            ExitCode::FAILURE
        }
    }
}
