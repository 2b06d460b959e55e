//! Clusters of etcd.

use std::process::Command;
use std::time::Duration;

use crate::port::Port;
use crate::proxy::{Network, Proxy};
use crate::server::{Program, Server};
use crate::within;

/// Starts a cluster of one member.
///
/// # Panics
/// Same as [`Server::start`].
pub async fn start(settings: &[&str]) -> Server {
    let peer = Port::claim();
    let advertised = peer.number();
    member("one", peer, advertised, "", settings).await
}

/// Starts a cluster of three members.
///
/// # Panics
/// Same as [`Server::start`].
pub async fn start_three() -> Vec<Server> {
    let ports = [(); 3].map(|()| Port::claim());
    let advertised = ports.each_ref().map(Port::number);
    three(ports, advertised).await
}

/// A cluster of three members that reach each other by proxies.
#[derive(Debug)]
pub struct Isolable {
    /// The members.
    pub members: Vec<Server>,
    /// The proxy in front of each member, for the other ones.
    proxies: Vec<Proxy>,
}

/// The direction in which a member is cut off from the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Isolation {
    /// Nothing arrives in either direction.
    Full,
    /// The member isn't reached, nor are its responses, on connections that the others have opened.
    Inbound,
    /// The others aren't reached on connections that the member has opened.
    Outbound,
}

impl Isolable {
    /// Starts a cluster.
    ///
    /// # Panics
    /// Same as [`Server::start`].
    pub async fn start() -> Self {
        let ports = [(); 3].map(|()| Port::claim());
        let mut proxies = Vec::new();
        for port in &ports {
            proxies.push(Proxy::start(port.address()).await);
        }
        let advertised = [0, 1, 2].map(|at: usize| proxies[at].address().port());
        Self {
            members: three(ports, advertised).await,
            proxies,
        }
    }

    /// Returns the index of the leader, once all members agree on it.
    pub async fn leader(&self) -> usize {
        let agreed = async {
            loop {
                let leaders: Vec<u64> = self
                    .members
                    .iter()
                    .map(|member| number(member, "leader"))
                    .collect();
                let is_leader = |member: &Server| {
                    let id = number(member, "member_id");
                    leaders.iter().all(|leader| *leader == id)
                };
                if let Some(leader) = self.members.iter().position(is_leader) {
                    return leader;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        within("a leader of etcd", agreed).await
    }

    /// Cuts a member off from the others, but not from its clients.
    pub fn isolate(&self, index: usize, isolation: Isolation) {
        // Members name themselves in the first request of a connection.
        let from = format!(
            "X-Server-From: {:x}",
            number(&self.members[index], "member_id")
        );
        for (at, proxy) in self.proxies.iter().enumerate() {
            match isolation {
                Isolation::Full | Isolation::Inbound if at == index => {
                    proxy.set(Network::BlackHole);
                }
                Isolation::Full | Isolation::Outbound if at != index => {
                    proxy.set_for(&from, Network::BlackHole);
                }
                _ => {}
            }
        }
    }

    /// Connects all members again.
    pub fn heal(&self) {
        for proxy in &self.proxies {
            proxy.set(Network::Whole);
        }
    }
}

/// Returns a number in the status of a member, or zero.
fn number(member: &Server, name: &str) -> u64 {
    let status = etcdctl(member, &["endpoint", "status", "--write-out=json"]);
    let text = status
        .split_once(&format!("\"{name}\":"))
        .map_or("", |(_, text)| text);
    text.split(|letter: char| !letter.is_ascii_digit())
        .next()
        .and_then(|digits| digits.parse().ok())
        .unwrap_or_default()
}

async fn three([one, two, three]: [Port; 3], advertised: [u16; 3]) -> Vec<Server> {
    let names = ["one", "two", "three"];
    let cluster: Vec<String> = names
        .iter()
        .zip(advertised)
        .map(|(name, peer)| format!("{name}=http://127.0.0.1:{peer}"))
        .collect();
    let cluster = cluster.join(",");
    let start = |at: usize, peer| member(names[at], peer, advertised[at], &cluster, &[]);
    let (one, two, three) = tokio::join!(start(0, one), start(1, two), start(2, three));
    vec![one, two, three]
}

async fn member(
    name: &str,
    peer: Port,
    advertised: u16,
    cluster: &str,
    settings: &[&str],
) -> Server {
    let name = name.to_owned();
    let advertised = format!("http://127.0.0.1:{advertised}");
    let cluster = if cluster.is_empty() {
        format!("{name}={advertised}")
    } else {
        cluster.to_owned()
    };
    let settings: Vec<String> = settings
        .iter()
        .map(|setting| (*setting).to_owned())
        .collect();
    let scheme = if settings.iter().any(|setting| setting == "--cert-file") {
        "https"
    } else {
        "http"
    };
    let program = Program::new(
        "etcd",
        "etcd-server",
        ("etcd://", ""),
        move |port, folder| {
            let (client, data) = (
                format!("{scheme}://127.0.0.1:{port}"),
                folder.to_str().expect("a path of text"),
            );
            let own = [
                ["--name", &name],
                ["--data-dir", data],
                ["--listen-client-urls", &client],
                ["--advertise-client-urls", &client],
                ["--listen-peer-urls", &format!("http://{}", peer.address())],
                ["--initial-advertise-peer-urls", &advertised],
                ["--initial-cluster", &cluster],
                ["--logger", "zap"],
                // The reason for an end is seen, and nothing else.
                ["--log-outputs", "stderr"],
                ["--log-level", "fatal"],
            ];
            own.concat()
                .into_iter()
                .map(str::to_owned)
                .chain(settings.iter().cloned())
                .collect()
        },
    );
    Server::start(program).await
}

/// Runs a command of an operator, and returns its output.
///
/// # Panics
/// Panics if etcdctl is missing or fails.
pub fn etcdctl(server: &Server, arguments: &[&str]) -> String {
    let endpoint = format!("--endpoints={}", server.address());
    let output = Command::new("etcdctl")
        .arg(endpoint)
        .args(arguments)
        .env("ETCDCTL_API", "3")
        .output();
    let output = output.expect("etcdctl is missing: install it with `apt-get install etcd-client`");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8_lossy(&output.stdout).into_owned()
}
