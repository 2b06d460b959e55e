//! Leases and conditional writes under load, on servers with the Azure dialect, in turns.
//!
//! ```text
//! leases gateway=127.0.0.1:10000 azurite=127.0.0.1:10010 [--quick] [--clients 64]
//! ```
//!
//! The first server is compared with the others, with the same number of clients, and with each one's best number. Its writes
//! with many clients, which share disk syncs, are compared with one client's.
#![expect(
    clippy::unwrap_used,
    reason = "a benchmark stops at an unexpected result"
)]
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "prints its tables, and its progress"
)]

mod connection;
mod load;

use std::time::Duration;

use load::{Scene, Server};
use statistics::{median, ratio, row, spread};

/// Numbers of concurrent clients, each with its own connection and blob.
const CLIENTS: [usize; 4] = [1, 8, 64, 256];

/// Operations per second, round by round.
type Rates = Vec<f64>;

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let quick = args.iter().any(|arg| arg == "--quick");
    let (rounds, time) = if quick {
        (1, Duration::from_millis(500))
    } else {
        (5, Duration::from_secs(3))
    };
    let only = args
        .iter()
        .skip_while(|arg| *arg != "--clients")
        .nth(1)
        .map(|number| vec![number.parse().unwrap()]);
    let clients = only.unwrap_or(CLIENTS.to_vec());
    let mut servers = Vec::new();
    for (name, address) in args.iter().filter_map(|arg| arg.split_once('=')) {
        servers.push(
            Server::prepare(
                name,
                address.parse().unwrap(),
                *clients.iter().max().unwrap(),
            )
            .await,
        );
    }
    assert!(
        !servers.is_empty(),
        "see the first lines of benches/leases/main.rs"
    );
    for scene in Scene::ALL {
        let rates = measure(&servers, scene, &clients, rounds, time).await;
        compare(&servers, scene, &clients, &rates);
        if let (Scene::ConditionalPut, [gateway, ..]) = (scene, rates.as_slice()) {
            share(&clients, gateway);
        }
    }
}

/// Measures the rates by server and number of clients, in interleaved rounds.
async fn measure(
    servers: &[Server],
    scene: Scene,
    clients: &[usize],
    rounds: usize,
    time: Duration,
) -> Vec<Vec<Rates>> {
    let mut rates = vec![vec![Rates::new(); clients.len()]; servers.len()];
    for round in 0..rounds {
        eprintln!("{}: round {} of {rounds}", scene.name(), round + 1);
        for (column, clients) in clients.iter().enumerate() {
            for at in (0..servers.len()).map(|at| (at + round) % servers.len()) {
                rates[at][column].push(servers[at].rate(scene, *clients, time).await);
            }
        }
    }
    rates
}

/// Prints a table: a row for each number of clients, and one for each server's best.
fn compare(servers: &[Server], scene: Scene, clients: &[usize], rates: &[Vec<Rates>]) {
    let names = servers.iter().map(|server| server.name.clone());
    let ratios = servers[1..]
        .iter()
        .map(|other| format!("{} / {}", servers[0].name, other.name));
    print_heading(
        &format!("{}, per second", scene.name()),
        &names.chain(ratios).collect::<Vec<_>>(),
    );
    for (at, clients) in clients.iter().enumerate() {
        let plural = if *clients == 1 { "" } else { "s" };
        print_rates(
            &format!("{clients} client{plural}"),
            &rates.iter().map(|rates| &rates[at]).collect::<Vec<_>>(),
        );
    }
    let best = |rates: &'_ [Rates]| {
        rates
            .iter()
            .max_by(|one, other| median(one).total_cmp(&median(other)))
            .unwrap()
            .clone()
    };
    let best: Vec<Rates> = rates.iter().map(|rates| best(rates)).collect();
    print_rates("each at its best", &best.iter().collect::<Vec<_>>());
}

/// Prints the gain of group commits.
fn share(clients: &[usize], rates: &[Rates]) {
    print_heading(
        "clients",
        &[
            "durable swaps per second".into(),
            "compared with one client".into(),
        ],
    );
    for (clients, these) in clients.iter().zip(rates) {
        println!(
            "{}",
            row(
                &clients.to_string(),
                &[
                    spread(these.iter().copied(), 0),
                    spread(ratio(these, &rates[0]), 1)
                ]
            )
        );
    }
}

fn print_heading(name: &str, columns: &[String]) {
    println!("\n{}", row(name, columns));
    println!("|---{}|", "|---".repeat(columns.len()));
}

/// Prints the rates of each server, and the ratio of the first one's to the others'.
fn print_rates(name: &str, rates: &[&Rates]) {
    let cells = rates.iter().map(|rates| spread(rates.iter().copied(), 0));
    let ratios = rates[1..]
        .iter()
        .map(|other| spread(ratio(rates[0], other), 1));
    println!("{}", row(name, &cells.chain(ratios).collect::<Vec<_>>()));
}
