//! The soak test (`cargo xtask soak`) of the shared registers.
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a command-line tool reports to its terminal"
)]

mod soak;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use xtask_registers::{Result, engine, now};

/// Tests the shared registers on servers that it starts.
#[derive(Parser)]
#[command(name = "xtask-registers")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Runs clients in several processes under faults, and checks the history of all operations.
    Soak(soak::Options),
    /// Runs the clients of one process of a soak test, until its standard input ends.
    #[command(hide = true)]
    Worker(soak::WorkerOptions),
}

#[tokio::main]
async fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Command::Soak(options) => soak::run(&options).await,
        Command::Worker(options) => soak::work(options).await,
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
