//! Writers that add one to numbers, on one key or on a key each. Each run verifies that no update was lost.

use std::process::Command;
use std::time::Duration;

use ifmatch_client::Client;
use ifmatch_testbed::Server;
use rustix::time::{ClockId, clock_gettime};
use statistics::{ratio, row, spread};
use support::azure::{DEVELOPMENT_ACCOUNT, DEVELOPMENT_KEY};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::Site;
use crate::stm::Number;

/// Number of writers, each with a connection of its own.
const WRITERS: usize = 64;
/// Numbers of keys that they share.
const KEYS: [usize; 2] = [1, WRITERS];
/// Far beyond the time of an update.
const PATIENCE: Duration = Duration::from_hours(1);

/// A client.
#[derive(Clone, Copy)]
enum Kind {
    Library,
    Sdk,
    Stm,
}

/// The counts of one writer, or of all.
#[derive(Clone, Copy, Default)]
struct Tally {
    /// Updates that ended before the time was over.
    in_time: u32,
    all: u32,
    attempts: u32,
}

/// The result of one round.
#[derive(Clone, Copy)]
struct Round {
    /// Updates per second.
    rate: f64,
    /// Attempts for each update.
    attempts: f64,
    /// CPU time for each update in milliseconds.
    client: f64,
    server: f64,
}

impl Kind {
    const ALL: [Self; 3] = [Self::Library, Self::Sdk, Self::Stm];

    fn name(self) -> &'static str {
        match self {
            Self::Library => "ifmatch-client",
            Self::Sdk => "Azure SDK for Python",
            Self::Stm => "etcd, as `NewSTM`",
        }
    }
}

/// Measures in interleaved rounds, and prints the tables.
pub(crate) async fn run(site: &Site, rounds: usize, time: Duration) {
    for keys in KEYS {
        let mut results = Kind::ALL.map(|_| Vec::new());
        for round in 0..rounds {
            eprintln!(
                "{WRITERS} writers, {keys} keys: round {} of {rounds}",
                round + 1
            );
            for at in (0..Kind::ALL.len()).map(|at| (at + round) % Kind::ALL.len()) {
                results[at].push(
                    measure(
                        site,
                        Kind::ALL[at],
                        &format!("bench-{keys}-{round}"),
                        keys,
                        time,
                    )
                    .await,
                );
            }
        }
        print(keys, &results);
    }
}

async fn measure(site: &Site, kind: Kind, name: &str, keys: usize, time: Duration) -> Round {
    let server = if let Kind::Stm = kind {
        &site.etcd
    } else {
        &site.gateway
    };
    let (server_before, client_before) = (server.cpu(), own_cpu());
    let (tally, client) = match kind {
        Kind::Library => (
            library(server, name, keys, time).await,
            own_cpu() - client_before,
        ),
        Kind::Stm => (
            stm(server, name, keys, time).await,
            own_cpu() - client_before,
        ),
        Kind::Sdk => sdk(site, name, keys, time),
    };
    let all = f64::from(tally.all);
    Round {
        rate: f64::from(tally.in_time) / time.as_secs_f64(),
        attempts: f64::from(tally.attempts) / all,
        client: client * 1e3 / all,
        server: (server.cpu() - server_before) * 1e3 / all,
    }
}

/// Each writer is a client of its own, as on 64 machines.
async fn library(server: &Server, name: &str, keys: usize, time: Duration) -> Tally {
    let url = format!("http://{}/library-{name}", server.address());
    let document = |key: usize| {
        let client = Client::http(&url).unwrap().with_patience(PATIENCE);
        client.json::<u64>(key.to_string())
    };
    for key in 0..keys {
        document(key).create(0).await.unwrap();
    }
    let mut writers = JoinSet::new();
    for number in 0..WRITERS {
        let document = document(number % keys);
        writers.spawn(async move {
            document.get().await.unwrap();
            document
        });
    }
    let ready = writers.join_all().await;
    let end = Instant::now() + time;
    let mut running = JoinSet::new();
    for document in ready {
        running.spawn(async move {
            let mut tally = Tally::default();
            while Instant::now() < end {
                let attempts = &mut tally.attempts;
                let change = |count: &mut u64| {
                    *attempts += 1;
                    *count += 1;
                };
                document.update(change).await.unwrap();
                tally.count(end);
            }
            tally
        });
    }
    let tally = total(running.join_all().await);
    let mut sum = 0;
    for key in 0..keys {
        sum += document(key).get().await.unwrap().unwrap().value;
    }
    tally.verified(sum)
}

async fn stm(server: &Server, name: &str, keys: usize, time: Duration) -> Tally {
    let number = |key: usize| {
        let key = format!("{name}/{key}");
        async move { Number::open(server.address(), &key).await }
    };
    let mut ready = Vec::new();
    for writer in 0..WRITERS {
        let number = number(writer % keys).await;
        number.get().await;
        ready.push(number);
    }
    let end = Instant::now() + time;
    let mut running = JoinSet::new();
    for number in ready {
        running.spawn(async move {
            let mut tally = Tally::default();
            while Instant::now() < end {
                tally.attempts += number.increment().await;
                tally.count(end);
            }
            tally
        });
    }
    let tally = total(running.join_all().await);
    let mut sum = 0;
    for key in 0..keys {
        sum += number(key).await.get().await;
    }
    tally.verified(sum)
}

/// Runs the threads of one Python process. Returns their CPU time in seconds, too.
fn sdk(site: &Site, name: &str, keys: usize, time: Duration) -> (Tally, f64) {
    let endpoint = format!("http://{}/{DEVELOPMENT_ACCOUNT}", site.gateway.address());
    let (container, seconds) = (format!("sdk-{name}"), time.as_secs_f64().to_string());
    let output = Command::new(&site.python)
        .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/client/counter.py"))
        .args([&endpoint, DEVELOPMENT_ACCOUNT, DEVELOPMENT_KEY, &container])
        .args([WRITERS.to_string(), keys.to_string(), seconds])
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let counts: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let count = |name: &str| u32::try_from(counts[name].as_u64().unwrap()).unwrap();
    let tally = Tally {
        in_time: count("in_time"),
        all: count("all"),
        attempts: count("attempts"),
    };
    (
        tally.verified(counts["sum"].as_u64().unwrap()),
        counts["cpu"].as_f64().unwrap(),
    )
}

impl Tally {
    fn count(&mut self, end: Instant) {
        self.all += 1;
        self.in_time += u32::from(Instant::now() < end);
    }

    /// Panics unless each update is in the sum of all numbers, once.
    fn verified(self, sum: u64) -> Self {
        assert_eq!(sum, u64::from(self.all), "updates were lost or repeated");
        self
    }
}

fn total(tallies: Vec<Tally>) -> Tally {
    let add = |one: Tally, other: Tally| Tally {
        in_time: one.in_time + other.in_time,
        all: one.all + other.all,
        attempts: one.attempts + other.attempts,
    };
    tallies.into_iter().fold(Tally::default(), add)
}

/// Returns the CPU time of this process in seconds.
fn own_cpu() -> f64 {
    Duration::try_from(clock_gettime(ClockId::ProcessCPUTime))
        .unwrap()
        .as_secs_f64()
}

fn print(keys: usize, results: &[Vec<Round>]) {
    let title = if keys == 1 {
        "one key".to_owned()
    } else {
        format!("{keys} keys")
    };
    let columns = [
        "updates/s",
        "attempts for each",
        "client's CPU, ms",
        "server's CPU, ms",
        "ratio of updates/s",
    ];
    println!(
        "\n{}",
        row(
            &format!("{WRITERS} writers on {title}"),
            &columns.map(str::to_owned)
        )
    );
    println!("|---{}|", "|---".repeat(columns.len()));
    let values =
        |rounds: &[Round], value: fn(&Round) -> f64| rounds.iter().map(value).collect::<Vec<_>>();
    let rates: Vec<_> = results
        .iter()
        .map(|rounds| values(rounds, |round| round.rate))
        .collect();
    for (at, (kind, rounds)) in Kind::ALL.into_iter().zip(results).enumerate() {
        let cells = [
            spread(rates[at].iter().copied(), 0),
            spread(values(rounds, |round| round.attempts), 1),
            spread(values(rounds, |round| round.client), 2),
            spread(values(rounds, |round| round.server), 2),
            spread(ratio(&rates[0], &rates[at]), 2),
        ];
        println!("{}", row(kind.name(), &cells));
    }
}
