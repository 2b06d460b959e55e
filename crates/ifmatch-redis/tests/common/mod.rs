//! Redis servers, and clients that record their operations.
#![allow(dead_code, reason = "each test uses a part of it")]
#![allow(clippy::expect_used, reason = "a test fails by panicking")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ifmatch_redis::RedisRegister;
use ifmatch_register::conformance::history::{self, Operation, Violation};
use ifmatch_register::conformance::workload::Client;
use ifmatch_testbed::Server;
use redis::cmd;

/// Starts the server `redis-server`, or the one named by `IFMATCH_REDIS_SERVER`, such as `valkey-server`.
pub(crate) async fn start(settings: &[&str]) -> Server {
    let program = std::env::var("IFMATCH_REDIS_SERVER").unwrap_or_else(|_| "redis-server".to_owned());
    Server::start(&program, "redis-server", |port, folder| {
        let folder = folder.to_str().expect("a path of text");
        let own =
            ["--port", &port.to_string(), "--dir", folder, "--save", "", "--bind", "127.0.0.1"].map(str::to_owned);
        own.into_iter().chain(settings.iter().map(|setting| (*setting).to_owned())).collect()
    })
    .await
}

/// Starts a server that syncs each change.
pub(crate) async fn durable() -> Server {
    start(&["--appendonly", "yes", "--appendfsync", "always"]).await
}

pub(crate) fn url(server: &Server) -> String {
    format!("redis://{}", server.address())
}

pub(crate) async fn connect(url: &str) -> RedisRegister {
    RedisRegister::connect(url).await.expect("the server is there")
}

/// Sends a command to a server.
pub(crate) async fn send(server: &Server, command: &[&str]) -> String {
    let client = redis::Client::open(url(server)).expect("a URL");
    let patient = redis::AsyncConnectionConfig::new().set_connection_timeout(None).set_response_timeout(None);
    let connection = client.get_multiplexed_async_connection_with_config(&patient).await;
    let mut connection = connection.expect("the server is there");
    let (name, arguments) = command.split_first().expect("a command");
    let answer: redis::Value = cmd(name).arg(arguments).query_async(&mut connection).await.expect("an answer");
    format!("{answer:?}")
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
pub(crate) async fn run(
    register: &Arc<RedisRegister>,
    clients: Vec<Client>,
    ticks: &Ticks,
    wins: usize,
) -> Vec<Client> {
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
pub(crate) async fn check(register: &RedisRegister, mut clients: Vec<Client>, ticks: &Ticks) -> Result<(), Violation> {
    clients[0].load_all(register, || ticks.now()).await;
    let operations: Vec<Operation> = clients.into_iter().flat_map(Client::into_history).collect();
    history::check(&operations)
}
