//! etcd: lanes beside one transaction a swap.

use ifmatch_core::record::Revision;
use ifmatch_register::{AnyRegister, Key, Register};
use ifmatch_testbed::etcd;

use super::report::Table;
use super::swaps::Clients;
use super::{KEYS, Plan, beside};
use crate::Result;
use crate::engine::Engine;

/// Numbers of clients.
const CLIENTS: [usize; 2] = [64, 256];

pub(super) async fn measure(plan: Plan, table: &mut Table) -> Result {
    let server = etcd::start(&[]).await;
    let register = Engine::Etcd.connect(&server.url()).await?;
    drop(Clients::load(&register, 0, KEYS, 64).await?);
    // A register of its own for each client: no two swaps share a transaction.
    let mut alone: Vec<AnyRegister> = Vec::new();
    for _ in 0..CLIENTS[1] {
        let register = Engine::Etcd.connect(&server.url()).await?;
        open_lanes(&register).await?;
        alone.push(register);
    }
    for round in 0..plan.rounds {
        println!("round {} of {}", round + 1, plan.rounds);
        for clients in CLIENTS {
            let loaded = Clients::load(&register, 0, KEYS, clients).await?;
            let run = async { Ok(loaded.run_on(&alone, plan.time).await?.1) };
            table.push(&plain(clients), beside(&server, run).await?);
            let loaded = Clients::load(&register, 0, KEYS, clients).await?;
            let run = async { Ok(loaded.run(&register, plan.time).await?.1) };
            table.push(&ours(clients), beside(&server, run).await?);
        }
    }
    for clients in CLIENTS {
        table.compare(&ours(clients), &plain(clients));
    }
    Ok(())
}

/// Opens the connections of all lanes, with swaps that change nothing.
async fn open_lanes(register: &AnyRegister) -> Result {
    for number in 0..8 {
        register.compare_and_swap(&Key::new(format!("lane/{number}"))?, Revision::new(1), None).await?;
    }
    Ok(())
}

fn ours(clients: usize) -> String {
    format!("register, {clients} clients")
}

fn plain(clients: usize) -> String {
    format!("a transaction for each swap, {clients} clients")
}
