//! The benchmark: registers beside the tools of their engines, in interleaved rounds.

mod etcd;
mod postgres;
mod redis;
mod report;
mod swaps;

use std::time::Duration;

use clap::Args;
use ifmatch_testbed::Server;

use crate::Result;
use crate::engine::Engine;
use report::Table;
pub(crate) use swaps::{SwapOptions, swap};

/// Number of records.
const KEYS: usize = 20_000;
/// Length of an encoded record, about.
const RECORD: usize = 300;

/// Options of the benchmark.
#[derive(Args)]
pub(crate) struct Options {
    /// Engine to measure. By default, all.
    #[arg(long, value_enum)]
    engine: Vec<Engine>,
    /// Runs briefly, as a check. The numbers mean little.
    #[arg(long)]
    quick: bool,
}

/// The length of the rounds.
#[derive(Clone, Copy)]
struct Plan {
    rounds: usize,
    time: Duration,
}

/// The result of one round.
#[derive(Clone, Copy, Debug, Default)]
struct Round {
    /// Calls per second.
    rate: f64,
    /// CPU time of the server for each call in microseconds.
    cpu: f64,
    /// Median duration of a call in milliseconds.
    median: f64,
    /// Duration in milliseconds that one of a hundred calls exceeds. Zero if unknown.
    slow: f64,
}

/// Measures each engine, and prints its tables.
pub(crate) async fn run(options: &Options) -> Result {
    let plan = if options.quick {
        Plan {
            rounds: 1,
            time: Duration::from_millis(300),
        }
    } else {
        Plan {
            rounds: 5,
            time: Duration::from_secs(2),
        }
    };
    let all = [Engine::Postgres, Engine::Redis, Engine::Etcd];
    let engines = if options.engine.is_empty() {
        &all[..]
    } else {
        &options.engine
    };
    for engine in engines {
        let mut table = Table::default();
        match engine {
            Engine::Postgres => postgres::measure(plan, &mut table).await?,
            Engine::Redis => redis::measure(plan, &mut table).await?,
            Engine::Etcd => etcd::measure(plan, &mut table).await?,
            Engine::Http => {
                return Err(
                    "the register by HTTP has no benchmark: choose postgres, redis or etcd".into(),
                );
            }
        }
        table.print(engine.name());
    }
    Ok(())
}

/// Measures the server's CPU time beside a run that returns its calls, seconds and durations.
async fn beside(
    server: &Server,
    run: impl Future<Output = Result<swaps::Counted>>,
) -> Result<Round> {
    let before = server.cpu();
    let counted = run.await?;
    Ok(counted.round(server.cpu() - before))
}

/// Returns a number with a noun, in the plural if necessary.
fn counted(number: usize, name: &str) -> String {
    match (number, name.ends_with('s')) {
        (1, _) => format!("1 {name}"),
        (_, true) => format!("{number} {name}es"),
        (_, false) => format!("{number} {name}s"),
    }
}
