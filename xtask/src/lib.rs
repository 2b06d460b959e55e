//! The workspace's tasks, and their modules:
//!
//! | `cargo xtask …` | does | in |
//! |---|---|---|
//! | `ci` | checks everything | `ci`, with the steps of `platforms`, [`sdk`], [`wasm`] and the tasks below. `tools` are the programs that it needs. |
//! | `docs` | builds the documentation site | `programs`, which runs the package in docs/ |
//! | `bench`, `scoreboard` | measures; checks other servers | `programs`: benches/run |
//! | `soak` | tests the shared registers for longer | `programs`: registers/ |
//! | `worker` | serves the Cloudflare Worker | [`worker`] |
//! | `js` | builds the npm package | `js` |
//! | `component` | builds the WebAssembly component | [`component`] |
//! | `dist` | builds the packages of a release | `dist` |
//!
//! `tree` and `modules` check the layering, as a step of `ci`. All tasks use [`step`] (named steps), [`command`] (external commands),
//! [`workspace`] (its folders), [`npm`] (packages of the tests) and [`listening`] (local servers).
//!
//! xtask-docs and the benchmarks in benches/run use this library.
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a command-line tool reports to its terminal"
)]

mod ci;
pub mod command;
pub mod component;
mod dist;
mod js;
pub mod listening;
mod modules;
pub mod npm;
mod platforms;
mod programs;
pub mod sdk;
pub mod step;
mod tools;
mod tree;
pub mod wasm;
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
    /// Checks everything: `cargo test`, then lints, documentation, servers, WebAssembly, browsers and SDKs.
    Ci(ci::Options),
    /// Runs benchmarks.
    #[command(disable_help_flag = true)]
    Bench(programs::Arguments),
    /// Builds the documentation site into target/book, and checks its links.
    #[command(disable_help_flag = true)]
    Docs(programs::Arguments),
    /// Runs `ifmatch check` on several servers, and writes the results to benches/scoreboard.md.
    #[command(disable_help_flag = true)]
    Scoreboard(programs::Arguments),
    /// Runs clients of the shared registers under faults, and checks the history of their operations.
    #[command(disable_help_flag = true)]
    Soak(programs::Arguments),
    /// Builds the npm package into target/npm/ifmatch.
    Js,
    /// Builds the WebAssembly component into target/component/ifmatch.wasm.
    Component,
    /// Builds the packages of a release into target/dist: an archive, a Debian package, a container image.
    Dist(dist::Options),
    /// Builds the Cloudflare Worker, and serves it on this machine.
    Worker(worker::Options),
}

/// Runs the task named on the command line.
pub fn main() -> ExitCode {
    exit(match Cli::parse().task {
        Task::Ci(options) => ci::run(&options),
        Task::Bench(options) => programs::run(programs::BENCH, &options),
        Task::Docs(options) => programs::run(programs::DOCS, &options),
        Task::Scoreboard(options) => programs::run(programs::SCOREBOARD, &options),
        Task::Soak(options) => programs::run(programs::SOAK, &options),
        Task::Component => component::run(),
        Task::Js => js::run(),
        Task::Dist(options) => dist::run(&options),
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
