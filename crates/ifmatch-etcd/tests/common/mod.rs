//! etcd servers, and clients that record their operations.
#![allow(dead_code, reason = "each test uses a part of it")]
#![allow(clippy::expect_used, reason = "a test fails by panicking")]

use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ifmatch_etcd::{ConnectErrorKind, EtcdRegister};
use ifmatch_register::conformance::history::{self, Operation};
use ifmatch_register::conformance::workload::Client;
use ifmatch_testbed::{Server, free_port};

/// Starts a cluster of one member.
pub(crate) async fn start(settings: &[&str]) -> Server {
    member("one", free_port(), "", settings).await
}

/// Starts a cluster of three members.
pub(crate) async fn start_three() -> Vec<Server> {
    let names = ["one", "two", "three"];
    let peers = names.map(|_| free_port());
    let cluster: Vec<String> =
        names.iter().zip(peers).map(|(name, peer)| format!("{name}=http://127.0.0.1:{peer}")).collect();
    let cluster = cluster.join(",");
    let [one, two, three] = [0, 1, 2].map(|at| member(names[at], peers[at], &cluster, &[]));
    let (one, two, three) = tokio::join!(one, two, three);
    vec![one, two, three]
}

async fn member(name: &str, peer: u16, cluster: &str, settings: &[&str]) -> Server {
    let peer = format!("http://127.0.0.1:{peer}");
    let cluster = if cluster.is_empty() { format!("{name}={peer}") } else { cluster.to_owned() };
    let scheme = if settings.contains(&"--cert-file") { "https" } else { "http" };
    Server::start("etcd", "etcd-server", |port, folder| {
        let (client, data) = (format!("{scheme}://127.0.0.1:{port}"), folder.to_str().expect("a path of text"));
        let own = [
            ["--name", name],
            ["--data-dir", data],
            ["--listen-client-urls", &client],
            ["--advertise-client-urls", &client],
            ["--listen-peer-urls", &peer],
            ["--initial-advertise-peer-urls", &peer],
            ["--initial-cluster", &cluster],
            ["--logger", "zap"],
            ["--log-outputs", "stdout"],
        ];
        own.concat().into_iter().chain(settings.iter().copied()).map(str::to_owned).collect()
    })
    .await
}

pub(crate) fn url(server: &Server) -> String {
    format!("etcd://{}", server.address())
}

/// Connects, once the cluster has a leader.
pub(crate) async fn connect(url: &str) -> EtcdRegister {
    loop {
        match EtcdRegister::connect(url).await {
            Ok(register) => return register,
            Err(error) => assert_eq!(error.kind(), ConnectErrorKind::Unreachable, "{error}"),
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Runs a command of an operator.
pub(crate) fn etcdctl(server: &Server, arguments: &[&str]) -> String {
    let endpoint = format!("--endpoints={}", server.address());
    let output = Command::new("etcdctl").arg(endpoint).args(arguments).env("ETCDCTL_API", "3").output();
    let output = output.expect("etcdctl is missing: install it with `apt-get install etcd-client`");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// A clock that counts the operations of one process.
#[derive(Clone, Default)]
pub(crate) struct Ticks(Arc<AtomicU64>);

impl Ticks {
    pub(crate) fn now(&self) -> u64 {
        self.0.fetch_add(1, Ordering::SeqCst)
    }
}

/// Runs clients on a register until each has swapped `wins` more times.
pub(crate) async fn run(register: &Arc<EtcdRegister>, clients: Vec<Client>, ticks: &Ticks, wins: usize) -> Vec<Client> {
    let tasks: Vec<_> = clients
        .into_iter()
        .map(|mut client| {
            let (register, ticks) = (Arc::clone(register), ticks.clone());
            tokio::spawn(async move {
                let goal = client.wins() + wins;
                while client.wins() < goal {
                    if !client.step(&*register, || ticks.now()).await {
                        tokio::time::sleep(Duration::from_millis(5)).await;
                    }
                }
                client
            })
        })
        .collect();
    let mut clients = Vec::new();
    for task in tasks {
        clients.push(task.await.expect("a client"));
    }
    clients
}

/// Loads all keys, and checks the history of all clients.
pub(crate) async fn check(register: &EtcdRegister, mut clients: Vec<Client>, ticks: &Ticks) {
    clients[0].load_all(register, || ticks.now()).await;
    let operations: Vec<Operation> = clients.into_iter().flat_map(Client::into_history).collect();
    history::check(&operations).unwrap_or_else(|violation| panic!("{violation}"));
}
