//! Registers and gateways that go away and come back, and many gateways.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use http::{Method, Request};
use ifmatch_testbed::{postgres, redis, within};
use support::{Answer, Client, Gateway, full, run};
use tokio::sync::RwLock;
use tokio::task::{JoinHandle, block_in_place};

use super::{Cluster, gateway};

/// Repeats a request without content until it gets this status.
async fn until(client: &Client, method: Method, path: &str, status: u16) {
    within(&format!("{status} to {method} {path}"), async {
        while client.request(method.clone(), path, &[], "").await.status != status {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_outage_of_the_register_refuses_writes_and_ends_nothing() {
    let mut cluster = Cluster::start(2).await;
    let clients = cluster.clients();
    let written = clients[0].put("/docs/a", &[], "first").await.expect(201);
    cluster.register.kill();
    for client in &clients {
        let refused = client
            .put("/docs/a", &[("if-match", written.etag())], "second")
            .await
            .expect(503);
        assert!(refused.headers.contains_key("retry-after"), "{refused:?}");
        client.get("/-/health", &[]).await.expect(200);
        until(client, Method::GET, "/-/ready", 503).await;
        let reason = format!(
            "PostgreSQL at {} refused the connection. Check that it is running.",
            cluster.register.address()
        );
        within("the reason in the overview", async {
            while !client
                .get("/-/overview", &[])
                .await
                .expect(200)
                .text()
                .contains(&reason)
            {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        })
        .await;
    }
    cluster.register.restart().await;
    for client in &clients {
        until(client, Method::GET, "/-/ready", 200).await;
    }
    let read = clients[1].get("/docs/a", &[]).await.expect(200);
    assert_eq!((read.text(), read.etag()), ("first", written.etag()));
    clients[1]
        .put("/docs/a", &[("if-match", written.etag())], "second")
        .await
        .expect(200);
    assert_eq!(
        clients[0].get("/docs/a", &[]).await.expect(200).text(),
        "second"
    );
}

/// The register answers loads, and refuses every change.
#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_is_not_ready_while_its_register_is_read_only() {
    let cluster = Cluster::start(1).await;
    let client = &cluster.clients()[0];
    client.put("/docs/a", &[], "first").await.expect(201);
    for (change, ready, written) in [
        ("SET default_transaction_read_only = on", 503, 503),
        ("RESET default_transaction_read_only", 200, 200),
    ] {
        postgres::sql(&cluster.register, &format!("ALTER SYSTEM {change}"));
        postgres::sql(&cluster.register, "SELECT pg_reload_conf()");
        until(client, Method::GET, "/-/ready", ready).await;
        // PostgreSQL's server processes reload their settings one by one.
        until(client, Method::PUT, "/docs/a", written).await;
    }
}

/// A gateway is killed in the middle of its writes. The others go on, and lose no acknowledged write.
#[tokio::test(flavor = "multi_thread")]
async fn a_killed_gateway_takes_no_acknowledged_write_with_it() {
    let mut cluster = Cluster::start(2).await;
    let clients = cluster.clients();
    for (writer, last) in cluster
        .kill_during_writes(|number| number.to_string())
        .await
    {
        let read = clients[1].get(&format!("/docs/{writer}"), &[]).await;
        match last {
            // The write after the last acknowledged one may have taken effect.
            Some(last) => {
                let found: usize = read.expect(200).text().parse().unwrap();
                assert!(
                    found == last || found == last + 1,
                    "writer {writer}: {found} after {last}"
                );
            }
            None => assert!(matches!(read.status.as_u16(), 200 | 404), "{read:?}"),
        }
        assert!(
            clients[1]
                .put(&format!("/docs/other-{writer}"), &[], "x")
                .await
                .status
                .is_success()
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn unusable_registers_are_refused_with_advice() {
    let mut cluster = Cluster::start(0).await;
    let refused = |folder: &Path, url: &str, code: i32| {
        let store = format!("file://{}", folder.join("bodies").display());
        let finished = block_in_place(|| run(["serve", "--store", &store, "--register", url]));
        assert_eq!(finished.status.code(), Some(code), "{}", finished.stderr);
        assert!(!finished.stderr.contains("secret"), "{}", finished.stderr);
        finished.stderr
    };
    let folder = cluster.folder.path().to_owned();
    let address = cluster.register.address();
    postgres::sql(&cluster.register, "CREATE DATABASE empty");
    let missing = refused(
        &folder,
        &format!("postgres://postgres:secret@{address}/empty"),
        2,
    );
    assert!(missing.contains("ifmatch register migrate"), "{missing}");
    let unknown = refused(
        &folder,
        &format!("postgres://postgres:secret@{address}/absent"),
        2,
    );
    assert!(unknown.contains("absent"), "{unknown}");
    cluster.register.kill();
    refused(&folder, &cluster.register.url(), 1);
    cluster.register.restart().await;
    block_in_place(|| gateway(&folder, &cluster.register.url()));
}

/// A failover of Redis may lose acknowledged changes, so the operator must accept that.
#[tokio::test(flavor = "multi_thread")]
async fn a_register_that_may_lose_changes_needs_consent() {
    let server = redis::durable().await;
    let folder = tempfile::tempdir().unwrap();
    let store = format!("file://{}", folder.path().join("bodies").display());
    let register = server.url();
    let args = ["serve", "--store", &store, "--register", &register];
    let refused = block_in_place(|| run(args));
    assert_eq!(refused.status.code(), Some(2), "{}", refused.stderr);
    assert!(
        refused.stderr.contains("--register-may-lose"),
        "{}",
        refused.stderr
    );
    let gateway =
        block_in_place(|| Gateway::start(args.into_iter().chain(["--register-may-lose"])));
    let client = Client::new(gateway.address());
    client
        .put("/docs/a", &[("if-none-match", "*")], "first")
        .await
        .expect(201);
    client
        .put("/docs/a", &[("if-none-match", "*")], "second")
        .await
        .expect(412);
}

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
/// Pause of a writer while its gateway isn't there.
const PAUSE: Duration = Duration::from_millis(20);

/// The increments of one counter.
#[derive(Debug, Default)]
struct Tally {
    /// Number of increments that were acknowledged.
    acknowledged: AtomicUsize,
    /// Number of increments without a response, which may have taken effect.
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
    clients: RwLock<Vec<Client>>,
}

fn path(counter: usize) -> String {
    format!("/docs/{counter}")
}

impl Race {
    /// Sends a request to a gateway. Returns `None` without a response.
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
        let answer = client
            .try_send(request.body(full(body)).unwrap())
            .await
            .ok();
        self.requests
            .fetch_add(usize::from(answer.is_some()), SeqCst);
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
            let read = match self
                .send(gateway, Method::GET, &path(counter), None, String::new())
                .await
            {
                Some(read) if read.status == 200 => read,
                Some(read) if read.status != 503 => panic!("{read:?}"),
                // The gateway isn't there, or its register isn't.
                _ => {
                    tokio::time::sleep(PAUSE).await;
                    continue;
                }
            };
            let number: usize = read.text().parse().unwrap();
            assert!(
                number >= last[counter],
                "counter {counter}: {number} after {}",
                last[counter]
            );
            last[counter] = number;
            let next = (number + 1).to_string();
            let written = self
                .send(
                    gateway,
                    Method::PUT,
                    &path(counter),
                    Some(read.etag()),
                    next,
                )
                .await;
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
    let race = Arc::new(Race {
        goal,
        clients: clients.into(),
        ..Race::default()
    });
    let writers: Vec<_> = (0..GATEWAYS * WRITERS)
        .map(|writer| {
            let race = Arc::clone(&race);
            tokio::spawn(async move { race.write(writer % GATEWAYS).await })
        })
        .collect();
    let kills = (goal / KILL_INTERVAL).max(2);
    for kill in 0..kills {
        while race.requests.load(SeqCst) < goal * (kill + 1) / (kills + 1)
            && !writers.iter().any(JoinHandle::is_finished)
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
            let found: usize = client
                .get(&path(counter), &[])
                .await
                .expect(200)
                .text()
                .parse()
                .unwrap();
            let range = acknowledged..=acknowledged + unclear;
            assert!(
                range.contains(&found),
                "counter {counter}: {found}, not in {range:?}"
            );
        }
    }
    let won = race
        .tallies
        .iter()
        .any(|tally| tally.acknowledged.load(SeqCst) > 0);
    assert!(won, "no increment was acknowledged");
    println!(
        "{GATEWAYS} gateways: {} requests, {:?}",
        race.requests.load(SeqCst),
        race.tallies
    );
}
