//! Purges of three proxies that share a register: one that is acknowledged holds on all.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use http::Method;
use ifmatch_testbed::{Network, Proxy, Server, etcd, postgres, redis, within};
use support::{Answer, Client, Gateway};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::block_in_place;

use super::migrate;

/// Number of resources.
pub(super) const RESOURCES: usize = 64;

/// An origin whose resources have a version, in the content and in their tag, and stay fresh for an hour.
#[derive(Clone)]
pub(super) struct Origin {
    versions: Arc<[AtomicU64; RESOURCES]>,
    asked: Arc<AtomicU64>,
    url: String,
    /// Maximum time in milliseconds from reading a version to its response. Unless it is zero, some answers are 503.
    latency: u64,
}

impl Origin {
    pub(super) async fn start(latency: u64) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let versions = Arc::new([const { AtomicU64::new(0) }; RESOURCES]);
        let origin = Self {
            versions,
            asked: Arc::default(),
            url,
            latency,
        };
        let serving = origin.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serving.clone().serve(stream));
            }
        });
        origin
    }

    /// Answers the requests of a connection, until it is closed.
    async fn serve(self, stream: TcpStream) {
        let mut stream = BufReader::new(stream);
        loop {
            let mut head = String::new();
            while !head.ends_with("\r\n\r\n") {
                if !stream.read_line(&mut head).await.is_ok_and(|read| read > 0) {
                    return;
                }
            }
            let name = head.split('/').nth(1).unwrap();
            let version = self.versions[name.parse::<usize>().unwrap()]
                .load(SeqCst)
                .to_string();
            let asked = self.asked.fetch_add(1, SeqCst);
            if self.latency > 0 {
                tokio::time::sleep(Duration::from_millis(asked * 7 % self.latency)).await;
            }
            if self.latency > 0 && asked.is_multiple_of(19) {
                if stream
                    .write_all(b"HTTP/1.1 503 Busy\r\ncontent-length: 0\r\n\r\n")
                    .await
                    .is_err()
                {
                    return;
                }
                continue;
            }
            let tag = format!("\"{version}\"");
            let (status, content) = if head.contains(&tag) {
                ("304 Not Modified", "")
            } else {
                ("200 OK", &*version)
            };
            let length = content.len();
            let answer = format!(
                "HTTP/1.1 {status}\r\ncache-control: max-age=3600, stale-while-revalidate=3600, stale-if-error=3600\r\n\
                 cache-groups: \"g{name}\"\r\netag: {tag}\r\ncontent-length: {length}\r\n\r\n{content}"
            );
            if stream.write_all(answer.as_bytes()).await.is_err() {
                return;
            }
        }
    }

    /// Changes a resource, and returns its new version.
    pub(super) fn change(&self, resource: usize) -> u64 {
        self.versions[resource].fetch_add(1, SeqCst) + 1
    }
}

/// Starts a proxy.
pub(super) fn node(origin: &Origin, flags: &[&str]) -> Gateway {
    let common = ["proxy", "--upstream", &origin.url, "--purge-bound", "500ms"];
    block_in_place(|| Gateway::start(common.iter().chain(flags)))
}

fn client(gateway: &Gateway) -> Client {
    Client::new(gateway.address())
}

async fn read(node: &Gateway) -> Answer {
    client(node)
        .get("/0/", &[("host", "example.com")])
        .await
        .expect(200)
}

pub(super) fn is_hit(answer: &Answer) -> bool {
    answer.header("cache-status").contains("; hit")
}

/// Reads until the response comes from the store.
async fn stored(node: &Gateway) -> Answer {
    within("a response from the store", async {
        loop {
            let answer = read(node).await;
            if is_hit(&answer) {
                return answer;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await
}

/// Reads until the response has this version, and once more.
async fn read_at_last(node: &Gateway, version: &str) {
    within(&format!("version {version}"), async {
        while read(node).await.text() != version {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    assert_eq!(read(node).await.text(), version);
}

async fn purge(node: &Gateway, query: &str) -> Answer {
    client(node).delete(&format!("/-/cache?{query}"), &[]).await
}

const KINDS: [&str; 5] = [
    "url=http://example.com/0/",
    "prefix=http://example.com/0",
    "group=g0&origin=http://example.com",
    "url=http://example.com/0/&soft=true",
    "group=g0&origin=http://example.com&soft=true",
];

/// Purges through each node in turn, and reads from all of them.
async fn holds_on_all(origin: &Origin, nodes: &[Gateway]) {
    for (round, query) in KINDS.into_iter().enumerate() {
        for node in nodes {
            stored(node).await;
        }
        let version = origin.change(0).to_string();
        purge(&nodes[round % nodes.len()], query).await.expect(200);
        for (at, node) in nodes.iter().enumerate() {
            // After a soft purge, a stale response may be used once more where the origin permits it.
            if !query.contains("soft") {
                assert_eq!(read(node).await.text(), version, "{query} at node {at}");
            }
        }
        for node in nodes {
            read_at_last(node, &version).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_purge_holds_on_all_nodes_on_every_engine() {
    let (postgres, redis, etcd) =
        tokio::join!(postgres::start(&[]), redis::durable(), etcd::start(&[]));
    migrate(&postgres);
    for register in [postgres, redis, etcd].iter().map(Server::url) {
        let origin = Origin::start(0).await;
        let nodes: Vec<_> = (0..3)
            .map(|_| node(&origin, &["--purge-register", &register]))
            .collect();
        holds_on_all(&origin, &nodes).await;
    }
}

/// One node is cut off from the register. It serves nothing that may be purged, and says so; the others go on, and it catches up.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_is_cut_off_validates_and_catches_up() {
    let origin = Origin::start(0).await;
    let register = postgres::start(&[]).await;
    migrate(&register);
    let network = Proxy::start(register.address()).await;
    let near = node(&origin, &["--purge-register", &register.url()]);
    let far = node(
        &origin,
        &["--purge-register", &register.url_at(network.address())],
    );
    for node in [&near, &far] {
        stored(node).await;
    }
    network.set(Network::BlackHole);
    let version = origin.change(0).to_string();
    purge(&near, KINDS[0]).await.expect(200);
    for _ in 0..3 {
        assert_eq!(read(&far).await.text(), version);
        assert!(!is_hit(&read(&far).await));
    }
    let ready = client(&far).get("/-/ready", &[]).await.expect(200);
    assert!(
        ready.text().contains("--purge-register"),
        "{}",
        ready.text()
    );
    let asked = origin.asked.load(SeqCst);
    let only = client(&far)
        .get(
            "/0/",
            &[("host", "example.com"), ("cache-control", "only-if-cached")],
        )
        .await;
    assert_eq!(
        (only.status.as_u16(), origin.asked.load(SeqCst)),
        (504, asked)
    );
    let refused = purge(&far, KINDS[0]).await.expect(503);
    assert!(
        refused.text().contains("Repeat the purge"),
        "{}",
        refused.text()
    );
    network.set(Network::Whole);
    assert_eq!(stored(&far).await.text(), version);
    let version = origin.change(0).to_string();
    purge(&far, KINDS[0]).await.expect(200);
    assert_eq!(read(&near).await.text(), version);
}

/// A node is killed, misses a purge, and comes back with the same folder. A new node joins.
#[tokio::test(flavor = "multi_thread")]
async fn nodes_come_and_go() {
    let origin = Origin::start(0).await;
    let (mut register, folder) = (redis::durable().await, tempfile::tempdir().unwrap());
    let flags = |folder| ["--cache-dir", folder, "--cache-disk", "64MiB"];
    let url = register.url();
    let with = |folder| [&["--purge-register", &url][..], &flags(folder)].concat();
    let folder = folder.path().to_str().unwrap();
    let near = node(&origin, &["--purge-register", &url]);
    let mut far = node(&origin, &with(folder));
    for node in [&near, &far] {
        stored(node).await;
    }
    block_in_place(|| far.kill());
    let version = origin.change(0).to_string();
    purge(&near, KINDS[0]).await.expect(200);
    let far = node(&origin, &with(folder));
    let new = node(&origin, &["--purge-register", &url]);
    for node in [&near, &far, &new] {
        assert_eq!(read(node).await.text(), version);
        stored(node).await;
    }
    // The whole register is down: nothing is served unvalidated, and nothing is acknowledged.
    register.kill();
    purge(&near, KINDS[0]).await.expect(503);
    let version = origin.change(0).to_string();
    for node in [&near, &far, &new] {
        read_at_last(node, &version).await;
    }
    register.restart().await;
    for node in [&near, &far, &new] {
        stored(node).await;
    }
}

/// Without a register, the purge is acknowledged if all peers have confirmed it, and otherwise names those that haven't.
#[tokio::test(flavor = "multi_thread")]
async fn peers_are_asked_one_by_one() {
    let origin = Origin::start(0).await;
    let mut far = node(&origin, &[]);
    let address = far.address().to_string();
    let near = node(&origin, &["--purge-peer", &format!("http://{address}")]);
    for query in KINDS {
        for node in [&near, &far] {
            stored(node).await;
        }
        let version = origin.change(0).to_string();
        purge(&near, query).await.expect(200);
        for node in [&near, &far] {
            if query.contains("soft") {
                read_at_last(node, &version).await;
            }
            assert_eq!(read(node).await.text(), version, "{query}");
        }
    }
    let method = Method::from_bytes(b"PURGE").unwrap();
    client(&near)
        .request(method, "/0/", &[("host", "example.com")], "")
        .await
        .expect(200);
    block_in_place(|| far.kill());
    let failed = purge(&near, KINDS[0]).await.expect(502);
    assert!(failed.text().contains(&address), "{}", failed.text());
    purge(&near, &format!("{}&local=true", KINDS[0]))
        .await
        .expect(200);
}
