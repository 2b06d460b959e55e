//! Hot keys: many clients that change one key, beside as many on a key each.
//!
//! ```text
//! contention IFMATCH [--quick]
//! ```
//!
//! `IFMATCH` is the gateway's program. Starts it on a folder, on the memory store with records in PostgreSQL and in etcd, in front
//! of a store that others use, and once and twice on a bucket of its own; beside them PostgreSQL, Redis and etcd themselves. All
//! sync each change before they answer, but Azurite. A client repeats a refused change at once.
//! Appends and merges run on the folder, beside Azurite, `XADD` of Redis, and an `UPDATE` of PostgreSQL that lengthens a text.
#![expect(
    clippy::unwrap_used,
    reason = "a benchmark stops at an unexpected result"
)]
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "prints its table, and its progress"
)]

#[path = "../leases/connection.rs"]
mod connection;
mod gateway;
mod peers;
#[path = "../client/stm.rs"]
mod stm;

use std::time::Duration;

use statistics::{median, ratio, row, spread};
use tokio::task::JoinSet;
use tokio::time::Instant;

use gateway::{Gateway, Work};
use peers::Peer;

/// Index of the first gateway that keeps bodies as objects.
const FIRST_ON_OBJECTS: usize = 3;

/// A server's work, with a number of clients on a number of keys.
struct Row {
    server: Server,
    clients: usize,
    keys: usize,
}

/// The server behind a row.
#[derive(Clone, Copy)]
enum Server {
    /// A gateway, by its position, and the work of its clients.
    Gateway(usize, Work),
    /// A peer, by its position.
    Peer(usize),
}

/// The results of a row, by round.
#[derive(Default)]
struct Results {
    /// Accepted changes per second.
    rates: Vec<f64>,
    /// Refused attempts for each accepted change.
    refused: Vec<f64>,
    /// The changes of the slowest client, as a share of the median client's.
    slowest: Vec<f64>,
}

/// The attempts of a client.
#[derive(Clone, Copy, Default)]
struct Tally {
    accepted: u32,
    refused: u32,
}

#[tokio::main]
async fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let quick = args.iter().any(|arg| arg == "--quick");
    let [binary, ..] = args.as_slice() else {
        panic!("see the first lines of benches/contention/main.rs")
    };
    let (rounds, time) = if quick {
        (1, Duration::from_millis(500))
    } else {
        (5, Duration::from_secs(2))
    };
    let mut gateways = Gateway::start_each(binary).await;
    let peers = Peer::start_each().await;
    let rows = rows(gateways.len(), peers.len());
    gateways.push(Gateway::start_azurite().await);
    let mut results: Vec<Results> = rows.iter().map(|_| Results::default()).collect();
    for round in 0..rounds {
        eprintln!("round {} of {rounds}", round + 1);
        for (at, (row, results)) in rows.iter().zip(&mut results).enumerate() {
            let keys: Vec<String> = (0..row.keys)
                .map(|key| format!("{round}-{at}-{key}"))
                .collect();
            let tallies = match row.server {
                Server::Gateway(at, work) => gateways[at].run(work, &keys, row.clients, time).await,
                Server::Peer(at) => peers[at].run(&keys, row.clients, time).await,
            };
            results.push(&tallies, time);
        }
    }
    print(&rows, &results, &gateways, &peers);
}

/// Returns the rows of the table, for these numbers of servers.
fn rows(gateways: usize, peers: usize) -> Vec<Row> {
    let mut rows = Vec::new();
    for at in 0..gateways {
        let mut push = |work, clients, keys| {
            rows.push(Row {
                server: Server::Gateway(at, work),
                clients,
                keys,
            })
        };
        push(Work::Put, 1, 1);
        push(Work::Put, 64, 64);
        push(Work::Put, 64, 1);
        // The others share objects, and differ in their writes.
        if at >= FIRST_ON_OBJECTS {
            continue;
        }
        push(Work::Put, 256, 1);
        push(Work::Update, 1, 1);
        push(Work::Update, 8, 1);
        push(Work::Update, 64, 1);
        push(Work::Lease, 64, 64);
        push(Work::Lease, 64, 1);
    }
    for work in [Work::Append, Work::Merge] {
        for (clients, keys) in [(1, 1), (64, 64), (64, 1)] {
            rows.push(Row {
                server: Server::Gateway(0, work),
                clients,
                keys,
            });
        }
    }
    // Azurite comes after the gateways.
    rows.extend([64, 1].map(|keys| Row {
        server: Server::Gateway(gateways, Work::Append),
        clients: 64,
        keys,
    }));
    for at in 0..peers {
        rows.extend([64, 1].map(|keys| Row {
            server: Server::Peer(at),
            clients: 64,
            keys,
        }));
    }
    rows
}

/// Runs all clients until the time has passed, and returns their tallies.
async fn together<C, F>(
    clients: Vec<C>,
    time: Duration,
    run: impl Fn(C, Instant) -> F,
) -> Vec<Tally>
where
    F: Future<Output = Tally> + Send + 'static,
{
    let end = Instant::now() + time;
    let mut running = JoinSet::new();
    for client in clients {
        running.spawn(run(client, end));
    }
    running.join_all().await
}

impl Tally {
    fn count(&mut self, is_accepted: bool) {
        if is_accepted {
            self.accepted += 1;
        } else {
            self.refused += 1;
        }
    }
}

impl Results {
    fn push(&mut self, tallies: &[Tally], time: Duration) {
        let mut accepted: Vec<f64> = tallies
            .iter()
            .map(|tally| f64::from(tally.accepted))
            .collect();
        accepted.sort_by(f64::total_cmp);
        let sum: f64 = accepted.iter().sum();
        self.rates.push(sum / time.as_secs_f64());
        self.refused.push(
            tallies
                .iter()
                .map(|tally| f64::from(tally.refused))
                .sum::<f64>()
                / sum,
        );
        // The median client may have no success either.
        self.slowest.push(accepted[0] / median(&accepted).max(1.0));
    }
}

fn print(rows: &[Row], results: &[Results], gateways: &[Gateway], peers: &[Peer]) {
    let name = |row: &Row| match row.server {
        Server::Gateway(at, work) => format!("{}, {}", gateways[at].name, work.name()),
        Server::Peer(at) => peers[at].name().to_owned(),
    };
    let columns = [
        "clients",
        "keys",
        "accepted/s",
        "of the rate with 64 keys",
        "refused for one accepted",
        "slowest / median client",
    ];
    println!(
        "\n{}\n|---{}|",
        row("", &columns.map(str::to_owned)),
        "|---".repeat(columns.len())
    );
    for (
        line,
        Results {
            rates,
            refused,
            slowest,
        },
    ) in rows.iter().zip(results)
    {
        let is_base = |other: &&(&Row, &Results)| other.0.keys == 64 && name(other.0) == name(line);
        let base = rows
            .iter()
            .zip(results)
            .find(|other| is_base(&other))
            .filter(|_| line.keys == 1);
        let share = base.map_or_else(Vec::new, |(_, base)| ratio(rates, &base.rates));
        let cells = [
            line.clients.to_string(),
            line.keys.to_string(),
            spread(rates.iter().copied(), 0),
            spread(share, 2),
            spread(refused.iter().copied(), 1),
            spread(slowest.iter().copied(), 2),
        ];
        println!("{}", row(&name(line), &cells));
    }
}
