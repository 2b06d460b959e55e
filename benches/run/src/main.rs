//! `cargo xtask bench`: benchmarks by subject.
#![expect(
    clippy::print_stdout,
    reason = "a command-line tool reports to its terminal"
)]

mod cache;
mod caches;
mod component;
mod exchange;
mod layer;
mod leases;
mod load;
mod peers;
mod programs;
mod report;
mod rounds;
mod s3;
mod scenarios;
mod scoreboard;
mod sockets;
mod subject;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::{Args, Parser, Subcommand, ValueEnum};
use xtask::Result;
use xtask::workspace::Workspace;

/// Measures ifmatch beside its peers, and checks them.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Runs benchmarks.
    Bench(Options),
    /// Runs `ifmatch check` on several servers, and writes the results to benches/scoreboard.md.
    Scoreboard(scoreboard::Options),
}

/// Options of `cargo xtask bench`.
#[derive(Args)]
struct Options {
    /// Subject of the benchmark.
    #[arg(value_enum, default_value_t = Subject::Sockets)]
    subject: Subject,
    /// Runs briefly, as a check. The numbers mean little.
    #[arg(long)]
    quick: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum Subject {
    /// HTTP servers under load, the gateway and others, each on one core.
    Sockets,
    /// Functions: instructions. The layer around an empty service, and hashing: time.
    Functions,
    /// The layer beside the bare service and `SetResponseHeaderLayer`: instructions per request.
    Layer,
    /// Cost per request and memory per resource, with few and with many resources.
    Growth,
    /// The shared cache compared with nginx, Varnish, Traffic Server and Pingora.
    Cache,
    /// The same caches under scans, slow readers, a slow origin and ranges. A part of `cache`.
    Scenarios,
    /// Hit ratios of the shared cache over traces, compared with LRU and the optimum.
    Hits,
    /// Leases and conditional writes compared with Azurite, and durable swaps by number of clients.
    Leases,
    /// The client toolkit compared with Azure's SDK for Python and with etcd: updates under contention, failover of locks.
    Client,
    /// Hot keys: changes of one key beside changes of many, and beside PostgreSQL, Redis and etcd.
    Contention,
    /// Reads and conditional writes in the dialect of S3 compared with the plain dialect, s3s-fs and moto.
    S3,
    /// The shared registers compared with the tools of their engines.
    Registers,
    /// The Cloudflare Worker compared with others on the same runtime.
    Worker,
    /// The WebAssembly component in front of a service, compared with the service alone.
    Component,
}

fn main() -> ExitCode {
    xtask::exit(match Cli::parse().command {
        Command::Bench(options) => run(&options),
        Command::Scoreboard(options) => scoreboard::run(&options),
    })
}

fn run(options: &Options) -> Result {
    let workspace = Workspace::load()?;
    let deadline = Instant::now() + Duration::from_hours(1);
    match options.subject {
        Subject::Sockets => sockets::run(&workspace, options.quick, deadline),
        Subject::Functions => programs::functions(&workspace, options.quick, deadline),
        Subject::Layer => layer::run(&workspace),
        Subject::Growth => programs::growth(&workspace, options.quick, deadline),
        Subject::Cache => cache::run(&workspace, options.quick, deadline),
        Subject::Scenarios => cache::scenarios(&workspace, options.quick),
        Subject::Hits => programs::hits(&workspace, deadline),
        Subject::Leases => leases::run(&workspace, options.quick, deadline),
        Subject::Client => programs::client(&workspace, options.quick, deadline),
        Subject::Contention => programs::contention(&workspace, options.quick, deadline),
        Subject::S3 => s3::run(&workspace, options.quick, deadline),
        Subject::Registers => programs::registers(&workspace, options.quick, deadline),
        Subject::Worker => programs::worker(&workspace, options.quick, deadline),
        Subject::Component => component::run(&workspace, options.quick, deadline),
    }
}
