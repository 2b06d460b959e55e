//! The soak test (`cargo xtask soak`) and the benchmark (`cargo xtask bench registers`) of the shared registers.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a command-line tool reports to its terminal")]

mod bench;
mod engine;
mod soak;

use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, Subcommand};
use rustix::time::{ClockId, clock_gettime};

/// Result of a command. The error says what went wrong.
type Result<T = ()> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// Tests and measures the shared registers on servers that it starts.
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
    /// Measures the registers beside the tools of their engines.
    Bench(bench::Options),
    /// Swaps for a while, and prints the number of swaps.
    #[command(hide = true)]
    Swaps(bench::SwapOptions),
}

#[tokio::main]
async fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Command::Soak(options) => soak::run(&options).await,
        Command::Worker(options) => soak::work(options).await,
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

/// Returns the time in nanoseconds by a clock that all processes of the machine share.
fn now() -> u64 {
    let time = Duration::try_from(clock_gettime(ClockId::Monotonic)).unwrap_or_default();
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
