//! `cargo xtask bench registers`: the shared registers beside the tools of their engines.
#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a command-line tool reports to its terminal"
)]

mod bench;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use xtask_registers::{Result, engine, now};

/// Measures the shared registers on servers that it starts.
#[derive(Parser)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Measures the registers beside the tools of their engines.
    Bench(bench::Options),
    /// Swaps for a while, and prints the number of swaps.
    #[command(hide = true)]
    Swaps(bench::SwapOptions),
}

#[tokio::main]
async fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Command::Bench(options) => bench::run(&options).await,
        Command::Swaps(options) => bench::swap(options).await,
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
