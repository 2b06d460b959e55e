//! Leases and conditional writes under load, on servers that speak the Azure dialect, in turns.
//!
//! ```text
//! leases gateway=127.0.0.1:10000 azurite=127.0.0.1:10010 [--quick]
//! ```
//!
//! The first server is compared with the others. Its durable swaps a second are measured besides, by the number of clients:
//! what they share is the sync of the disk.
#![expect(clippy::unwrap_used, reason = "a benchmark ends at what it did not expect")]
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "prints its tables, and its progress")]

mod load;
mod table;

use std::time::Duration;

use load::{Scene, Server};
use table::{ratio, row, spread};

/// Clients at a time, each with a blob of its own.
const CLIENTS: [usize; 2] = [8, 64];
/// Clients at a time for the durable swaps.
const SWAPPERS: [usize; 3] = [1, 8, 64];

#[tokio::main]
async fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let quick = args.iter().any(|arg| arg == "--quick");
    let (rounds, time) = if quick { (1, Duration::from_millis(500)) } else { (5, Duration::from_secs(3)) };
    let mut servers = Vec::new();
    for (name, address) in args.iter().filter_map(|arg| arg.split_once('=')) {
        servers.push(Server::prepare(name, address.parse().unwrap(), SWAPPERS[2]).await);
    }
    assert!(!servers.is_empty(), "see the first lines of benches/leases/main.rs");
    for clients in CLIENTS {
        compare(&servers, clients, rounds, time).await;
    }
    swaps(&servers[0], rounds, time).await;
}

/// Each scene on each server, in interleaved rounds.
async fn compare(servers: &[Server], clients: usize, rounds: usize, time: Duration) {
    let mut rates = vec![vec![Vec::new(); servers.len()]; Scene::ALL.len()];
    for round in 0..rounds {
        eprintln!("{clients} clients, round {} of {rounds}", round + 1);
        for (scene, rates) in Scene::ALL.iter().zip(&mut rates) {
            for at in (0..servers.len()).map(|at| (at + round) % servers.len()) {
                rates[at].push(servers[at].rate(*scene, clients, time).await);
            }
        }
    }
    let names = servers.iter().map(|server| server.name.clone());
    let ratios = servers[1..].iter().map(|other| format!("{} / {}", servers[0].name, other.name));
    let heading: Vec<String> = names.chain(ratios).collect();
    println!("\n{}", row(&format!("a second, {clients} clients"), &heading));
    println!("|---{}|", "|---".repeat(heading.len()));
    for (scene, rates) in Scene::ALL.iter().zip(&rates) {
        let cells = rates.iter().map(|rates| spread(rates, 0));
        let ratios = rates[1..].iter().map(|other| spread(&ratio(&rates[0], other), 1));
        println!("{}", row(scene.name(), &cells.chain(ratios).collect::<Vec<_>>()));
    }
}

/// Durable conditional writes by the number of clients, in interleaved rounds.
async fn swaps(server: &Server, rounds: usize, time: Duration) {
    let mut rates = vec![Vec::new(); SWAPPERS.len()];
    for round in 0..rounds {
        eprintln!("durable swaps, round {} of {rounds}", round + 1);
        for (clients, rates) in SWAPPERS.iter().zip(&mut rates) {
            rates.push(server.rate(Scene::ConditionalPut, *clients, time).await);
        }
    }
    println!("\n{}", row("clients", &["durable swaps a second".into(), "of one client's".into()]));
    println!("|---|---|---|");
    for (clients, these) in SWAPPERS.iter().zip(&rates) {
        println!("{}", row(&clients.to_string(), &[spread(these, 0), spread(&ratio(these, &rates[0]), 1)]));
    }
}
