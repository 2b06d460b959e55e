//! Many gateways on one register, some of which are killed.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use http::{Method, Request};
use support::{Answer, Client, full};
use tokio::task::block_in_place;

use super::Cluster;

/// Sets the number of requests of a long run.
const SOAK: &str = "IFMATCH_CLUSTER_REQUESTS";
/// Number of requests by default.
const REQUESTS: usize = 1_500;
/// Number of requests between two kills in a long run.
const KILL_INTERVAL: usize = 50_000;
const GATEWAYS: usize = 8;
/// Number of counters.
const COUNTERS: usize = 16;
/// Writers of each gateway.
const WRITERS: usize = 3;
/// Pause of a writer while its gateway is not there.
const PAUSE: Duration = Duration::from_millis(20);

/// The increments of one counter.
#[derive(Debug, Default)]
struct Tally {
    /// Number of increments that were acknowledged.
    acknowledged: AtomicUsize,
    /// Number of increments without an answer, which may have taken effect.
    unclear: AtomicUsize,
}

/// What the writers share.
#[derive(Debug, Default)]
struct Race {
    tallies: [Tally; COUNTERS],
    /// Number of answered requests.
    requests: AtomicUsize,
    /// Number of answers after which the writers end.
    goal: usize,
    /// The present clients of the gateways.
    clients: tokio::sync::RwLock<Vec<Client>>,
}

fn path(counter: usize) -> String {
    format!("/docs/{counter}")
}

impl Race {
    /// Sends a request to a gateway. Returns `None` without an answer.
    async fn send(
        &self,
        gateway: usize,
        method: Method,
        path: &str,
        tag: Option<&str>,
        body: String,
    ) -> Option<Answer> {
        let client = self.clients.read().await[gateway].clone();
        let mut request = Request::builder().method(method).uri(path);
        if let Some(tag) = tag {
            request = request.header("if-match", tag);
        }
        let answer = client.try_send(request.body(full(body)).unwrap()).await.ok();
        self.requests.fetch_add(usize::from(answer.is_some()), SeqCst);
        answer
    }

    /// Reads a counter, and writes the next number if it is still the same. The number never decreases.
    async fn write(&self, gateway: usize) {
        let mut last = [0; COUNTERS];
        for round in gateway.. {
            if self.requests.load(SeqCst) >= self.goal {
                return;
            }
            let counter = round % COUNTERS;
            let read = match self.send(gateway, Method::GET, &path(counter), None, String::new()).await {
                Some(read) if read.status == 200 => read,
                Some(read) if read.status != 503 => panic!("{read:?}"),
                // The gateway is not there, or its register is not.
                _ => {
                    tokio::time::sleep(PAUSE).await;
                    continue;
                }
            };
            let number: usize = read.text().parse().unwrap();
            assert!(number >= last[counter], "counter {counter}: {number} after {}", last[counter]);
            last[counter] = number;
            let next = (number + 1).to_string();
            let written = self.send(gateway, Method::PUT, &path(counter), Some(read.etag()), next).await;
            let tally = &self.tallies[counter];
            match written.map(|written| written.status.as_u16()) {
                Some(200) => drop(tally.acknowledged.fetch_add(1, SeqCst)),
                Some(409 | 412) => {}
                Some(503) | None => drop(tally.unclear.fetch_add(1, SeqCst)),
                Some(status) => panic!("counter {counter}: {status}"),
            }
        }
    }
}

/// No increment that was acknowledged is lost, and none happens twice, while gateways are killed and started again.
#[tokio::test(flavor = "multi_thread")]
async fn eight_gateways_lose_no_update_while_some_are_killed() {
    let goal = std::env::var(SOAK).map_or(REQUESTS, |requests| requests.parse().unwrap());
    let mut cluster = Cluster::start(GATEWAYS).await;
    let clients = cluster.clients();
    for counter in 0..COUNTERS {
        clients[0].put(&path(counter), &[], "0").await.expect(201);
    }
    let race = Arc::new(Race { goal, clients: clients.into(), ..Race::default() });
    let writers: Vec<_> = (0..GATEWAYS * WRITERS)
        .map(|writer| {
            let race = Arc::clone(&race);
            tokio::spawn(async move { race.write(writer % GATEWAYS).await })
        })
        .collect();
    let kills = (goal / KILL_INTERVAL).max(2);
    for kill in 0..kills {
        while race.requests.load(SeqCst) < goal * (kill + 1) / (kills + 1)
            && !writers.iter().any(tokio::task::JoinHandle::is_finished)
        {
            tokio::time::sleep(PAUSE).await;
        }
        let gateway = &mut cluster.gateways[kill % GATEWAYS];
        block_in_place(|| gateway.restart());
        race.clients.write().await[kill % GATEWAYS] = Client::new(gateway.address());
    }
    for writer in writers {
        writer.await.unwrap();
    }
    for (counter, tally) in race.tallies.iter().enumerate() {
        let (acknowledged, unclear) = (tally.acknowledged.load(SeqCst), tally.unclear.load(SeqCst));
        for client in cluster.clients() {
            let found: usize = client.get(&path(counter), &[]).await.expect(200).text().parse().unwrap();
            let range = acknowledged..=acknowledged + unclear;
            assert!(range.contains(&found), "counter {counter}: {found}, not in {range:?}");
        }
    }
    let won = race.tallies.iter().any(|tally| tally.acknowledged.load(SeqCst) > 0);
    assert!(won, "no increment was acknowledged");
    println!("{GATEWAYS} gateways: {} requests, {:?}", race.requests.load(SeqCst), race.tallies);
}
