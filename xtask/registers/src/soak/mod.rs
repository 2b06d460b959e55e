//! The soak test: processes write to a register while faults happen, and the history of all operations is checked.

mod faults;
mod journal;
mod team;

use clap::{Args, ValueEnum};
use ifmatch_register::conformance::history;
use ifmatch_register::conformance::workload::Workload;

use crate::engine::Engine;
use crate::{Result, now};
use faults::Fault;
use team::Team;
pub(crate) use team::{WorkerOptions, work};

/// Keys that half of the operations use.
const HOT_KEYS: usize = 20;
/// Keys that the other half of the operations use.
const COLD_KEYS: usize = 10_000;
/// Maximum number of clients, killed processes' included.
const CLIENT_NUMBERS: usize = 1 << 20;

/// Options of a soak test.
#[derive(Args)]
pub(crate) struct Options {
    /// Engine to test. By default, all.
    #[arg(long, value_enum)]
    engine: Vec<Engine>,
    /// Number of operations on each engine.
    #[arg(long, default_value_t = 1_000_000)]
    operations: usize,
    /// Number of processes that share the register.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u8).range(1..))]
    processes: u8,
    /// Seconds for which the network or a process hangs. Calls take at most five.
    #[arg(long, default_value_t = 6)]
    hold: u64,
}

/// Tests each engine.
pub(crate) async fn run(options: &Options) -> Result {
    let engines = if options.engine.is_empty() {
        Engine::value_variants()
    } else {
        &options.engine
    };
    for engine in engines {
        soak(*engine, options)
            .await
            .map_err(|error| format!("{}: {error}", engine.name()))?;
    }
    Ok(())
}

/// Returns the workload that all processes share.
fn workload(prefix: &str) -> Workload {
    Workload::new(prefix, HOT_KEYS, CLIENT_NUMBERS).with_rare_keys(COLD_KEYS)
}

async fn soak(engine: Engine, options: &Options) -> Result {
    let mut team = Team::start(engine, options.processes).await?;
    // Each fault twice.
    let rounds = 2 * Fault::ALL.len();
    let share = options.operations / rounds;
    for (round, fault) in Fault::ALL.iter().cycle().take(rounds).enumerate() {
        println!(
            "{}: {fault:?}, after {} operations",
            engine.name(),
            team.operations()?
        );
        team.suffer(*fault, round, options.hold, share).await?;
        // All processes get on, and together reach this round's share of the operations.
        team.until_progress(share).await?;
    }
    let (register, mut operations, longest) = team.finish().await?;
    let mut last = workload("soak").client(CLIENT_NUMBERS - 1);
    last.load_all(&register, now).await;
    operations.extend(last.into_history());
    println!(
        "{}: checking {} operations",
        engine.name(),
        operations.len()
    );
    history::check(&operations)?;
    println!(
        "{}: no violation; the longest call took {} ms",
        engine.name(),
        longest.as_millis()
    );
    Ok(())
}
