//! The register on real servers: what all engines do, faults of its own, settings and promotions.
#![cfg(unix)]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking"
)]

mod clocks;
mod faults;
mod mutations;
mod opening;
mod promotion;

use std::sync::Arc;

use ifmatch_postgres::{ConnectError, PostgresRegister, migrate};
use ifmatch_register::Register;
use ifmatch_testbed::{Server, engine, postgres};
use tokio_postgres::{Client, NoTls};

struct Postgres;

impl engine::Engine for Postgres {
    const WRONG_URLS: &[&str] = &[
        "",
        "postgres:",
        "mysql://u@h/d",
        "postgres://u@h:port/d",
        "postgres://u@h/d?sslmode=prefer",
    ];

    async fn start(settings: &'static [&'static str]) -> Server {
        let server = postgres::start(settings).await;
        migrate(&server.url())
            .await
            .expect("the tables are created");
        server
    }

    /// The table reaches the end of the disk. The log of changes doesn't: its files have 16 MiB, and are used again.
    async fn start_small() -> Server {
        let server = start().await;
        // In the middle of a page, so the server can write a part of it.
        server.limit_files(Some((16 << 20) + 4_096));
        server
    }

    async fn enlarge(server: &Server) -> bool {
        server.limit_files(None);
        true
    }

    async fn connect(url: &str) -> Result<Arc<dyn Register>, ConnectError> {
        Ok(Arc::new(Box::pin(PostgresRegister::connect(url)).await?))
    }
}

ifmatch_testbed::engine_tests!(Postgres);

#[tokio::test(flavor = "multi_thread")]
async fn a_server_without_free_connections_is_used_once_it_has_some() {
    engine::check_without_connections::<Postgres>(&[
        "max_connections=10",
        "superuser_reserved_connections=0",
    ])
    .await;
}

/// Starts a server with the register's tables.
async fn start() -> Server {
    <Postgres as engine::Engine>::start(&[]).await
}

/// Connects to a server that runs.
async fn connect(server: &Server) -> PostgresRegister {
    PostgresRegister::connect(&server.url())
        .await
        .expect("the server runs")
}

/// Returns a connection of the test's own.
async fn client(server: &Server) -> Client {
    let (client, connection) = tokio_postgres::connect(&server.url(), NoTls)
        .await
        .expect("the server runs");
    tokio::spawn(connection);
    client
}
