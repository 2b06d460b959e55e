//! The engines themselves: an `UPDATE` of PostgreSQL, `INCR` of Redis, a transaction of etcd.

use std::sync::Arc;
use std::time::Duration;

use ifmatch_testbed::{Server, etcd, postgres, redis};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::process::Command;
use tokio::time::Instant;

use crate::stm::Number;
use crate::{Tally, together};

/// An engine.
pub(crate) enum Peer {
    Postgres(Arc<Server>),
    PostgresAppend(Arc<Server>),
    Redis(Arc<Server>),
    RedisAppend(Arc<Server>),
    Etcd(Server),
}

impl Peer {
    /// Starts all peers of the table.
    pub(crate) async fn start_each() -> Vec<Self> {
        let postgres = postgres::start(&["max_connections=200"]).await;
        postgres::sql(
            &postgres,
            "CREATE TABLE counters (name text PRIMARY KEY, value bigint) WITH (fillfactor = 10)",
        );
        postgres::sql(
            &postgres,
            "CREATE TABLE logs (name text PRIMARY KEY, log text)",
        );
        let (postgres, redis) = (Arc::new(postgres), Arc::new(redis::durable().await));
        vec![
            Self::Postgres(Arc::clone(&postgres)),
            Self::Redis(Arc::clone(&redis)),
            Self::Etcd(etcd::start(&[]).await),
            Self::PostgresAppend(postgres),
            Self::RedisAppend(redis),
        ]
    }

    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Postgres(_) => "PostgreSQL itself, `UPDATE`",
            Self::Redis(_) => "Redis itself, `INCR`",
            Self::PostgresAppend(_) => "PostgreSQL itself, `UPDATE` that appends",
            Self::RedisAppend(_) => "Redis itself, `XADD`",
            Self::Etcd(_) => "etcd itself, `NewSTM`",
        }
    }

    /// Changes these keys: adds one to their numbers, or appends to their logs.
    pub(crate) async fn run(&self, keys: &[String], clients: usize, time: Duration) -> Vec<Tally> {
        match self {
            Self::Postgres(server) => {
                pgbench(
                    server,
                    "counters (name, value) VALUES",
                    "0",
                    "counters SET value = value + 1",
                    keys,
                    clients,
                    time,
                )
                .await
            }
            Self::PostgresAppend(server) => {
                let update = format!("logs SET log = log || '{BLOCK}'");
                pgbench(
                    server,
                    "logs (name, log) VALUES",
                    "''",
                    &update,
                    keys,
                    clients,
                    time,
                )
                .await
            }
            Self::Redis(server) | Self::RedisAppend(server) => {
                let appends = matches!(self, Self::RedisAppend(_));
                let mut ready = Vec::new();
                for number in 0..clients {
                    let stream = TcpStream::connect(server.address()).await.unwrap();
                    stream.set_nodelay(true).unwrap();
                    ready.push((stream, keys[number % keys.len()].clone()));
                }
                // The response to XADD is an id, after its length.
                let command = |key: &str| match appends {
                    true => (resp(&["XADD", &format!("log-{key}"), "*", "b", BLOCK]), 2),
                    false => (resp(&["INCR", key]), 1),
                };
                together(ready, time, |(stream, key), end| {
                    commands(stream, command(&key), end)
                })
                .await
            }
            Self::Etcd(server) => {
                let mut ready = Vec::new();
                for number in 0..clients {
                    let number = Number::open(server.address(), &keys[number % keys.len()]).await;
                    number.get().await;
                    ready.push(number);
                }
                together(ready, time, transactions).await
            }
        }
    }
}

/// A block to append: 64 bytes.
const BLOCK: &str = "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx";

/// Encodes a command of Redis.
fn resp(words: &[&str]) -> String {
    let strings: String = words
        .iter()
        .map(|word| format!("${}\r\n{word}\r\n", word.len()))
        .collect();
    format!("*{}\r\n{strings}", words.len())
}

/// Sends a Redis command again and again. Its responses have this number of lines.
async fn commands(mut stream: TcpStream, (command, lines): (String, usize), end: Instant) -> Tally {
    let mut tally = Tally::default();
    while Instant::now() < end {
        stream.write_all(command.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        while answer.iter().filter(|byte| **byte == b'\n').count() < lines {
            assert_ne!(
                stream.read_buf(&mut answer).await.unwrap(),
                0,
                "Redis closed the connection"
            );
        }
        assert!(
            matches!(answer[0], b':' | b'$'),
            "{}",
            String::from_utf8_lossy(&answer)
        );
        tally.count(true);
    }
    tally
}

async fn transactions(number: Number, end: Instant) -> Tally {
    let mut tally = Tally::default();
    while Instant::now() < end {
        let attempts = number.increment().await;
        tally.refused += attempts - 1;
        tally.count(true);
    }
    tally
}

/// Every connection updates its row. pgbench reports the sum alone, so each client counts as the average.
async fn pgbench(
    server: &Server,
    table: &str,
    first: &str,
    update: &str,
    keys: &[String],
    clients: usize,
    time: Duration,
) -> Vec<Tally> {
    let values: Vec<String> = keys
        .iter()
        .map(|key| format!("('{key}', {first})"))
        .collect();
    postgres::sql(
        server,
        &format!("INSERT INTO {table} {}", values.join(", ")),
    );
    let folder = tempfile::tempdir().unwrap();
    let script = folder.path().join("update.sql");
    // The keys of a run differ in their last part.
    let (start, _) = keys[0].rsplit_once('-').unwrap();
    let key = format!("'{start}-' || (:client_id % {})::text", keys.len());
    std::fs::write(&script, format!("UPDATE {update} WHERE name = {key};\n")).unwrap();
    // pgbench takes whole seconds.
    let seconds = time.as_secs().max(1);
    let mut command = Command::from(postgres::program("pgbench"));
    command.args([
        "--no-vacuum",
        "--protocol=prepared",
        "--jobs=2",
        "--time",
        &seconds.to_string(),
    ]);
    command
        .args(["--client", &clients.to_string(), "--file"])
        .arg(&script)
        .arg(server.url());
    let output = command.output().await.unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let rate = text.lines().find_map(|line| {
        line.strip_prefix("tps = ")?
            .split_whitespace()
            .next()?
            .parse::<f64>()
            .ok()
    });
    let rate = rate
        .unwrap_or_else(|| panic!("pgbench: {text}{}", String::from_utf8_lossy(&output.stderr)));
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a number of changes"
    )]
    let each = (rate * time.as_secs_f64() / clients as f64) as u32;
    vec![
        Tally {
            accepted: each,
            refused: 0
        };
        clients
    ]
}
