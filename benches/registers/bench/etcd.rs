//! etcd: lanes beside one transaction a call.

use std::sync::Arc;

use ifmatch_core::record::Revision;
use ifmatch_register::{Key, Register};
use ifmatch_testbed::etcd;

use super::report::Table;
use super::swaps::{Clients, Operation};
use super::{KEYS, Plan, beside, counted};
use crate::Result;
use crate::engine::Engine;

/// Numbers of clients of each operation.
const CLIENTS: [(Operation, &[usize]); 2] = [
    (Operation::Swap, &[1, 8, 64, 256]),
    (Operation::Load, &[1, 8, 64]),
];

pub(super) async fn measure(plan: Plan, table: &mut Table) -> Result {
    let server = etcd::start(&[]).await;
    let register = Engine::Etcd.connect(&server.url()).await?;
    drop(Clients::load(&register, 0, KEYS, 64).await?);
    // A register of its own for each of at most 256 clients: no two calls share a transaction.
    let mut alone: Vec<Arc<dyn Register>> = Vec::new();
    for _ in 0..256 {
        let register = Engine::Etcd.connect(&server.url()).await?;
        open_lanes(&register).await?;
        alone.push(register);
    }
    let shared = vec![register.clone(); alone.len()];
    for round in 0..plan.rounds {
        println!("round {} of {}", round + 1, plan.rounds);
        for (operation, numbers) in CLIENTS {
            for clients in numbers.iter().copied() {
                for (registers, name) in [
                    (&alone, plain(operation, clients)),
                    (&shared, ours(operation, clients)),
                ] {
                    let loaded = Clients::load(&register, 0, KEYS, clients).await?;
                    let run = async { Ok(loaded.run_on(registers, operation, plan.time).await?.1) };
                    table.push(&name, beside(&server, run).await?);
                }
            }
        }
    }
    for (operation, numbers) in CLIENTS {
        for clients in numbers.iter().copied() {
            table.compare(&ours(operation, clients), &plain(operation, clients));
        }
    }
    Ok(())
}

/// Opens the connections of all lanes, with calls that change nothing.
async fn open_lanes(register: &Arc<dyn Register>) -> Result {
    for number in 0..8 {
        let key = Key::new(format!("lane/{number}"))?;
        register
            .compare_and_swap(&key, Revision::new(1), None)
            .await?;
        register.load(&key).await?;
    }
    Ok(())
}

fn ours(operation: Operation, clients: usize) -> String {
    format!(
        "{}, {}",
        named(operation, "register"),
        counted(clients, "client")
    )
}

fn plain(operation: Operation, clients: usize) -> String {
    format!(
        "{}, {}",
        named(operation, "a transaction each"),
        counted(clients, "client")
    )
}

fn named(operation: Operation, by: &str) -> String {
    match operation {
        Operation::Swap => format!("swaps, {by}"),
        Operation::Load => format!("loads, {by}"),
    }
}
