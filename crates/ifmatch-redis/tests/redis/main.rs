//! The register on real servers of Redis: what all engines do, faults of its own, and settings.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod faults;
mod settings;

use std::sync::Arc;

use ifmatch_redis::{ConnectError, RedisRegister};
use ifmatch_register::Register;
use ifmatch_testbed::{Server, engine, redis as servers};
use redis::cmd;

struct Redis;

impl engine::Engine for Redis {
    const WRONG_URLS: &[&str] = &[
        "",
        "localhost",
        "http://localhost",
        "redis://",
        "redis://host:port",
        "rediss://host/#insecure",
    ];

    async fn start(settings: &'static [&'static str]) -> Server {
        servers::start(&[&servers::DURABLE, settings].concat()).await
    }

    async fn start_small() -> Server {
        servers::start(&["--maxmemory", "8mb", "--maxmemory-policy", "noeviction"]).await
    }

    async fn enlarge(server: &Server) -> bool {
        send(server, &["CONFIG", "SET", "maxmemory", "100mb"]).await;
        true
    }

    async fn connect(url: &str) -> Result<Arc<dyn Register>, ConnectError> {
        Ok(Arc::new(RedisRegister::connect(url).await?))
    }
}

ifmatch_testbed::engine_tests!(Redis);

#[tokio::test(flavor = "multi_thread")]
async fn a_server_without_free_connections_is_used_once_it_has_some() {
    engine::check_without_connections::<Redis>(&["--maxclients", "10"]).await;
}

async fn connect(url: &str) -> Arc<dyn Register> {
    engine::connect::<Redis>(url).await
}

/// Sends a command to a server.
async fn send(server: &Server, command: &[&str]) -> String {
    let client = redis::Client::open(server.url()).unwrap();
    let patient = redis::AsyncConnectionConfig::new()
        .set_connection_timeout(None)
        .set_response_timeout(None);
    let mut connection = client
        .get_multiplexed_async_connection_with_config(&patient)
        .await
        .unwrap();
    let (name, arguments) = command.split_first().unwrap();
    let answer: redis::Value = cmd(name)
        .arg(arguments)
        .query_async(&mut connection)
        .await
        .unwrap();
    format!("{answer:?}")
}
