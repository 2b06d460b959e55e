//! Three proxies that share their purges, while they are killed, suspended, reloaded and cut off.
//!
//! Clients verify every response: each is at least as new as the last purge that was acknowledged before the request.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use http::Request;
use ifmatch_testbed::{Network, Proxy, postgres};
use support::{Client, full, kill};
use tokio::sync::RwLock;
use tokio::task::{JoinSet, block_in_place};

use super::migrate;
use super::purges::{Origin, RESOURCES, is_hit, node};

/// Sets the number of reads of a long run.
const SOAK: &str = "IFMATCH_CLUSTER_READS";
/// Number of reads by default.
const READS: usize = 10_000;
const NODES: usize = 3;
const READERS: usize = 24;
const PURGERS: usize = 8;
/// Pause of a client while its node isn't there.
const PAUSE: Duration = Duration::from_millis(20);

/// What all tasks share.
struct Storm {
    origin: Origin,
    /// The oldest version of each resource that a read may return from now on.
    promised: [AtomicU64; RESOURCES],
    clients: RwLock<Vec<Client>>,
    /// Number of reads after which the tasks end.
    goal: usize,
    reads: AtomicUsize,
    /// Number of reads that a store answered.
    hits: AtomicUsize,
    /// Number of reads that got an error or no response.
    failed: AtomicUsize,
    /// Number of acknowledged purges.
    purges: AtomicUsize,
    /// Number of purges that got an error or no response, which may hold nevertheless.
    unclear: AtomicUsize,
}

impl Storm {
    fn is_over(&self) -> bool {
        self.reads.load(SeqCst) >= self.goal
    }

    async fn client(&self, node: usize) -> Client {
        self.clients.read().await[node].clone()
    }

    /// Reads one resource after another, at one node after another.
    async fn read(self: Arc<Self>, reader: usize) {
        for round in reader.. {
            if self.is_over() {
                return;
            }
            let (node, resource) = (round % NODES, round * 31 % RESOURCES);
            let client = self.client(node).await;
            let promised = self.promised[resource].load(SeqCst);
            let request = Request::get(format!("/{resource}/"))
                .header("host", "example.com")
                .body(full(""))
                .unwrap();
            match client.try_send(request).await {
                Ok(answer) if answer.status == 200 => {
                    let version: u64 = answer.text().parse().unwrap();
                    assert!(
                        version >= promised,
                        "node {node} has served version {version} of {resource} after a purge of version {promised} was \
                         acknowledged: {answer:?}"
                    );
                    self.hits.fetch_add(usize::from(is_hit(&answer)), SeqCst);
                    self.reads.fetch_add(1, SeqCst);
                }
                Ok(answer) if !answer.status.is_server_error() => {
                    panic!("node {node} has answered a read of {resource} with {answer:?}")
                }
                Ok(_) | Err(_) => {
                    self.failed.fetch_add(1, SeqCst);
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
    }

    /// Changes resources that no other purger changes, and purges each by URL, prefix or group.
    async fn purge(self: Arc<Self>, purger: usize) {
        for round in 0.. {
            if self.is_over() {
                return;
            }
            let resource = (round * PURGERS + purger) % RESOURCES;
            let client = self.client((round + purger) % NODES).await;
            let version = self.origin.change(resource);
            let query = match round % 3 {
                0 => format!("url=http://example.com/{resource}/"),
                1 => format!("prefix=http://example.com/{resource}/"),
                _ => format!("group=g{resource}&origin=http://example.com"),
            };
            let request = Request::delete(format!("/-/cache?{query}"))
                .body(full(""))
                .unwrap();
            match client.try_send(request).await {
                Ok(answer) if answer.status == 200 => {
                    self.promised[resource].store(version, SeqCst);
                    self.purges.fetch_add(1, SeqCst);
                }
                Ok(answer) if !answer.status.is_server_error() => {
                    panic!("a purge by {query} was answered with {answer:?}")
                }
                Ok(_) | Err(_) => {
                    self.unclear.fetch_add(1, SeqCst);
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_older_than_an_acknowledged_purge_is_read() {
    let goal = std::env::var(SOAK).map_or(READS, |text| text.parse().expect(SOAK));
    let origin = Origin::start(30).await;
    let (register, folder) = (postgres::start(&[]).await, tempfile::tempdir().unwrap());
    migrate(&register);
    let network = Proxy::start(register.address()).await;
    let (direct, far) = (register.url(), register.url_at(network.address()));
    let disk = folder.path().to_str().unwrap();
    let mut nodes = [
        node(&origin, &["--purge-register", &direct]),
        node(
            &origin,
            &[
                "--purge-register",
                &direct,
                "--cache-dir",
                disk,
                "--cache-disk",
                "64MiB",
                "--cache",
                "1MiB",
            ],
        ),
        node(&origin, &["--purge-register", &far]),
    ];
    let clients = nodes
        .iter()
        .map(|node| Client::new(node.address()))
        .collect();
    let storm = Arc::new(Storm {
        origin,
        promised: [const { AtomicU64::new(0) }; RESOURCES],
        clients: RwLock::new(clients),
        goal,
        reads: AtomicUsize::new(0),
        hits: AtomicUsize::new(0),
        failed: AtomicUsize::new(0),
        purges: AtomicUsize::new(0),
        unclear: AtomicUsize::new(0),
    });
    let mut tasks = JoinSet::new();
    (0..READERS).for_each(|reader| drop(tasks.spawn(Arc::clone(&storm).read(reader))));
    (0..PURGERS).for_each(|purger| drop(tasks.spawn(Arc::clone(&storm).purge(purger))));
    let (mut troubles, mut reads) = ([0; 5], None);
    while !storm.is_over() {
        if let Some(ended) = tasks.try_join_next() {
            ended.unwrap();
        }
        let round: usize = troubles.iter().sum();
        let (trouble, at) = (round % troubles.len(), round / troubles.len() % NODES);
        if trouble == 0 {
            let before = reads.replace(storm.reads.load(SeqCst));
            assert_ne!(reads, before, "all troubles, and no read meanwhile");
        }
        match trouble {
            0 => {
                block_in_place(|| nodes[at].kill());
                block_in_place(|| nodes[at].restart());
                storm.clients.write().await[at] = Client::new(nodes[at].address());
            }
            1 => {
                let pid = nodes[at].pid().to_string();
                kill("STOP", &pid);
                tokio::time::sleep(Duration::from_millis(1_500)).await;
                kill("CONT", &pid);
            }
            2 => nodes[at].hang_up(),
            3 => {
                network.set(if at == 0 {
                    Network::Reset
                } else {
                    Network::BlackHole
                });
                tokio::time::sleep(Duration::from_secs(2)).await;
                network.set(Network::Whole);
            }
            _ => {
                register.pause();
                tokio::time::sleep(Duration::from_secs(1)).await;
                register.resume();
            }
        }
        troubles[trouble] += 1;
        tokio::time::sleep(Duration::from_millis(700)).await;
    }
    while let Some(ended) = tasks.join_next().await {
        ended.unwrap();
    }
    let count = |count: &AtomicUsize| count.load(SeqCst);
    let (reads, hits, purges) = (
        count(&storm.reads),
        count(&storm.hits),
        count(&storm.purges),
    );
    println!(
        "{reads} reads, {hits} of them from a store, {} failed; {purges} purges acknowledged, {} not; kills, suspensions, \
         reloads, cuts and outages: {troubles:?}",
        count(&storm.failed),
        count(&storm.unclear)
    );
    assert!(hits > 0 && purges > 0, "the storm has tested nothing");
}
