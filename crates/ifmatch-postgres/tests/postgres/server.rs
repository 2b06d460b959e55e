//! A server with the register's tables.

use ifmatch_postgres::{PostgresRegister, migrate};
use ifmatch_testbed::{Server, postgres};
use tokio_postgres::{Client, NoTls};

/// Starts a server with the register's tables.
pub(crate) async fn start() -> Server {
    let server = postgres::start(&[]).await;
    migrate(&server.url()).await.expect("the tables are created");
    server
}

/// Connects to a server that runs.
pub(crate) async fn connect(server: &Server) -> PostgresRegister {
    PostgresRegister::connect(&server.url()).await.expect("the server runs")
}

/// Returns a connection of the test's own.
pub(crate) async fn client(server: &Server) -> Client {
    let (client, connection) = tokio_postgres::connect(&server.url(), NoTls).await.expect("the server runs");
    tokio::spawn(connection);
    client
}
