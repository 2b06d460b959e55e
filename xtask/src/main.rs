//! The workspace's tasks: `cargo xtask test` checks everything, `cargo xtask bench` measures, `cargo xtask
//! worker` serves the Cloudflare Worker.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a command-line tool reports to its terminal")]

mod bench;
mod command;
mod listening;
mod npm;
mod package;
mod sdk;
mod step;
mod test;
mod tree;
mod wasm;
mod worker;
mod workspace;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// What a task, a step or a command ends with; the message says what to do.
type Result<T = ()> = std::result::Result<T, Box<dyn std::error::Error>>;

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
    /// Measures.
    Bench(bench::Options),
    /// Builds the Cloudflare Worker, and serves it on this machine.
    Worker(worker::Options),
}

fn main() -> ExitCode {
    let done = match Cli::parse().task {
        Task::Test(options) => test::run(&options),
        Task::Bench(options) => bench::run(&options),
        Task::Worker(options) => worker::run(&options),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error}");
            ExitCode::FAILURE
        }
    }
}
