//! A process of a soak test.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use clap::Args;
use ifmatch_register::Register;
use ifmatch_register::conformance::workload::Client;
use tokio::io::AsyncReadExt;

use super::journal::Writer;
use super::workload;
use crate::engine::Engine;
use crate::{Result, now};

/// Number of clients of a process.
pub(super) const CLIENTS: usize = 24;
/// Pause of a client after a failure.
const PAUSE: Duration = Duration::from_millis(10);

/// Options of a process.
#[derive(Args)]
pub(crate) struct WorkerOptions {
    #[arg(long, value_enum)]
    engine: Engine,
    #[arg(long)]
    url: String,
    /// Number of the first client.
    #[arg(long)]
    first: usize,
    #[arg(long)]
    journal: PathBuf,
}

/// Runs the clients until standard input ends.
pub(crate) async fn work(options: WorkerOptions) -> Result {
    let writer = Writer::create(&options.journal)?;
    let register = connect(&options).await;
    let (workload, is_over) = (workload("soak"), Arc::new(AtomicBool::new(false)));
    let clients: Vec<_> = (0..CLIENTS)
        .map(|number| {
            let (writer, is_over) = (writer.clone(), Arc::clone(&is_over));
            let client = workload.client(options.first + number).with_journal(move |operation| {
                if let Err(error) = writer.write(operation) {
                    panic!("the journal is incomplete: {error}");
                }
            });
            tokio::spawn(run(client, register.clone(), is_over))
        })
        .collect();
    // Also ends if the first process does.
    tokio::io::stdin().read_to_end(&mut Vec::new()).await?;
    is_over.store(true, Ordering::SeqCst);
    for client in clients {
        client.await?;
    }
    Ok(())
}

/// Connects, again after failures: the process may start in the middle of a fault. The first process notices if there is no
/// progress, and ends this one.
async fn connect(options: &WorkerOptions) -> Arc<dyn Register> {
    loop {
        match options.engine.connect(&options.url).await {
            Ok(register) => return register,
            Err(_) => tokio::time::sleep(PAUSE).await,
        }
    }
}

async fn run(mut client: Client, register: Arc<dyn Register>, is_over: Arc<AtomicBool>) {
    while !is_over.load(Ordering::SeqCst) {
        if !client.step(&register, now).await {
            tokio::time::sleep(PAUSE).await;
        }
        tokio::task::yield_now().await;
    }
}
