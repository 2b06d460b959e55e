//! Clusters of etcd.

use std::process::Command;

use crate::server::{Program, Server, free_port};

/// Starts a cluster of one member.
///
/// # Panics
/// As for [`Server::start`].
pub async fn start(settings: &[&str]) -> Server {
    member("one", free_port(), "", settings).await
}

/// Starts a cluster of three members.
///
/// # Panics
/// As for [`Server::start`].
pub async fn start_three() -> Vec<Server> {
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
    let name = name.to_owned();
    let peer = format!("http://127.0.0.1:{peer}");
    let cluster = if cluster.is_empty() { format!("{name}={peer}") } else { cluster.to_owned() };
    let settings: Vec<String> = settings.iter().map(|setting| (*setting).to_owned()).collect();
    let scheme = if settings.iter().any(|setting| setting == "--cert-file") { "https" } else { "http" };
    let program = Program::new("etcd", "etcd-server", ("etcd://", ""), move |port, folder| {
        let (client, data) = (format!("{scheme}://127.0.0.1:{port}"), folder.to_str().expect("a path of text"));
        let own = [
            ["--name", &name],
            ["--data-dir", data],
            ["--listen-client-urls", &client],
            ["--advertise-client-urls", &client],
            ["--listen-peer-urls", &peer],
            ["--initial-advertise-peer-urls", &peer],
            ["--initial-cluster", &cluster],
            ["--logger", "zap"],
            ["--log-outputs", "stdout"],
        ];
        own.concat().into_iter().map(str::to_owned).chain(settings.iter().cloned()).collect()
    });
    Server::start(program).await
}

/// Runs a command of an operator, and returns its output.
///
/// # Panics
/// If etcdctl is missing or fails.
pub fn etcdctl(server: &Server, arguments: &[&str]) -> String {
    let endpoint = format!("--endpoints={}", server.address());
    let output = Command::new("etcdctl").arg(endpoint).args(arguments).env("ETCDCTL_API", "3").output();
    let output = output.expect("etcdctl is missing: install it with `apt-get install etcd-client`");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}
