//! `cargo xtask bench`: the measurements, by what they measure.

mod cache;
mod caches;
mod exchange;
mod functions;
mod leases;
mod load;
mod peers;
mod programs;
mod report;
mod rounds;
mod sockets;
mod subject;
mod worker;

use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};

use crate::Result;
use crate::workspace::Workspace;

/// What `cargo xtask bench` takes.
#[derive(Args)]
pub(crate) struct Options {
    /// What to measure.
    #[arg(value_enum, default_value_t = What::Sockets)]
    what: What,
    /// A short run, to see that it works: its numbers mean little.
    #[arg(long)]
    quick: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum What {
    /// Servers under load, ours beside others, each on one core.
    Sockets,
    /// Functions alone, and the layer around an empty service: instructions, allocations, time.
    Functions,
    /// What a request costs and a resource needs, with few resources and with many.
    Growth,
    /// The shared cache beside nginx, Varnish, Traffic Server and Pingora.
    Cache,
    /// Hit ratios of the shared cache over traces, compared with LRU and the optimum.
    Hits,
    /// Leases and conditional writes beside Azurite, and durable swaps by the number of clients.
    Leases,
    /// The Cloudflare Worker beside others on the same runtime.
    Worker,
}

/// Measures what was asked for.
pub(crate) fn run(options: &Options) -> Result {
    let workspace = Workspace::load()?;
    let deadline = Instant::now() + Duration::from_hours(1);
    match options.what {
        What::Sockets => sockets::run(&workspace, options.quick, deadline),
        What::Functions => functions::run(&workspace, options.quick, deadline),
        What::Growth => programs::growth(&workspace, options.quick, deadline),
        What::Cache => cache::run(&workspace, options.quick, deadline),
        What::Hits => programs::hits(&workspace, deadline),
        What::Leases => leases::run(&workspace, options.quick, deadline),
        What::Worker => worker::run(&workspace, options.quick, deadline),
    }
}
