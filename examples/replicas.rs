//! Two replicas of a service on one PostgreSQL database. With a shared register, no update is lost. With a register
//! each, updates are lost, although every write was conditional and acknowledged. For comparison, the same service runs
//! with a hand-written version column.
//!
//! Run it: `cargo run -p ifmatch-examples --example replicas -- postgres://postgres@127.0.0.1:5432/postgres`. It creates its
//! tables in the schema `ifmatch_example`, and drops them at the end.
#![allow(clippy::print_stdout, reason = "it is a demonstration")]

use std::error::Error;
use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::extract::{Path, State};
use axum::response::IntoResponse;
use axum::routing::get;
use http::header::{ETAG, IF_MATCH};
use http::{HeaderMap, StatusCode};
use ifmatch::axum::RouterExt;
use ifmatch::{Clock, ConditionalLayer, MemoryRegister, Permit, Register, SystemClock};
use ifmatch_postgres::PostgresRegister;
use support::Client;
use tokio::net::TcpListener;
use tokio_postgres::{Client as Database, NoTls};

type Failure = Box<dyn Error + Send + Sync>;

/// Number of clients of each replica, and of increments by each client.
const CLIENTS: i64 = 8;
const INCREMENTS: i64 = 20;

async fn read(
    State(database): State<Arc<Database>>,
    Path(name): Path<String>,
) -> Result<String, StatusCode> {
    let row = database
        .query_opt(
            "SELECT body FROM ifmatch_example.documents WHERE name = $1",
            &[&name],
        )
        .await;
    match row.map_err(unavailable)? {
        Some(row) => Ok(row.get(0)),
        None => Err(StatusCode::NOT_FOUND),
    }
}

/// The layer has compared the tags, and no other writer has a permit. The database has the last word: a writer that was delayed beyond its
/// permit has a smaller token than the next one, so it changes nothing.
async fn write(
    State(database): State<Arc<Database>>,
    Path(name): Path<String>,
    permit: Permit,
    body: String,
) -> Result<StatusCode, StatusCode> {
    let token =
        i64::try_from(permit.fencing_token()).map_err(|_| StatusCode::INTERNAL_SERVER_ERROR)?;
    let statement =
        "UPDATE ifmatch_example.documents SET body = $2, token = $3 WHERE name = $1 AND token < $3";
    match database
        .execute(statement, &[&name, &body, &token])
        .await
        .map_err(unavailable)?
    {
        1 => Ok(StatusCode::NO_CONTENT),
        _ => Err(StatusCode::CONFLICT),
    }
}

/// By hand: the version is the tag, and the statement compares it.
async fn read_by_hand(
    State(database): State<Arc<Database>>,
    Path(name): Path<String>,
) -> Result<impl IntoResponse, StatusCode> {
    let statement = "SELECT body, token FROM ifmatch_example.documents WHERE name = $1";
    let row = database
        .query_opt(statement, &[&name])
        .await
        .map_err(unavailable)?
        .ok_or(StatusCode::NOT_FOUND)?;
    Ok((
        [(ETAG, format!("\"{}\"", row.get::<_, i64>(1)))],
        row.get::<_, String>(0),
    ))
}

async fn write_by_hand(
    State(database): State<Arc<Database>>,
    Path(name): Path<String>,
    headers: HeaderMap,
    body: String,
) -> Result<impl IntoResponse, StatusCode> {
    let tag = headers
        .get(IF_MATCH)
        .and_then(|tag| tag.to_str().ok())
        .ok_or(StatusCode::PRECONDITION_REQUIRED)?;
    let version: i64 = tag
        .trim_matches('"')
        .parse()
        .map_err(|_| StatusCode::PRECONDITION_FAILED)?;
    let statement = "UPDATE ifmatch_example.documents SET body = $2, token = token + 1 WHERE name = $1 AND token = $3";
    match database
        .execute(statement, &[&name, &body, &version])
        .await
        .map_err(unavailable)?
    {
        1 => Ok((
            StatusCode::NO_CONTENT,
            [(ETAG, format!("\"{}\"", version + 1))],
        )),
        _ => Err(StatusCode::PRECONDITION_FAILED),
    }
}

fn unavailable(_: tokio_postgres::Error) -> StatusCode {
    StatusCode::SERVICE_UNAVAILABLE
}

/// Starts a replica with its own connection to the database.
async fn replica(url: &str, register: impl Register) -> Result<SocketAddr, Failure> {
    let routes = Router::new()
        .route("/documents/{name}", get(read).put(write))
        .with_state(connect(url).await?);
    // Every change goes through a layer, so the register knows the current version.
    let layer = ConditionalLayer::builder()
        .register(register)
        .authoritative()
        .build();
    serve(routes.guarded_by(layer)).await
}

async fn replica_by_hand(url: &str) -> Result<SocketAddr, Failure> {
    let documents = get(read_by_hand).put(write_by_hand);
    serve(
        Router::new()
            .route("/documents/{name}", documents)
            .with_state(connect(url).await?),
    )
    .await
}

async fn serve(app: Router) -> Result<SocketAddr, Failure> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    tokio::spawn(async move { axum::serve(listener, app).await });
    Ok(address)
}

async fn connect(url: &str) -> Result<Arc<Database>, Failure> {
    let (database, connection) = tokio_postgres::connect(url, NoTls).await?;
    tokio::spawn(connection);
    Ok(Arc::new(database))
}

/// Increments a number, and starts over whenever another client was faster. Each save uses the tag that the previous one returned.
async fn increment(client: Client, path: String) {
    let mut current = client.get(&path, &[]).await.expect(200);
    let mut number = current.text().parse::<i64>().unwrap_or_default();
    for _ in 0..INCREMENTS {
        loop {
            let written = client
                .put(
                    &path,
                    &[("if-match", current.etag())],
                    (number + 1).to_string(),
                )
                .await;
            if written.status.is_success() {
                number += 1;
                current = written;
                break;
            }
            current = client.get(&path, &[]).await.expect(200);
            number = current.text().parse().unwrap_or_default();
        }
    }
}

/// Lets the clients of two replicas increment one number, and prints how many of the increments it shows.
async fn run(name: &str, database: &Database, replicas: [SocketAddr; 2]) -> Result<(), Failure> {
    database
        .execute(
            "INSERT INTO ifmatch_example.documents VALUES ($1, '0', 0)",
            &[&name],
        )
        .await?;
    let (path, start) = (format!("/documents/{name}"), SystemClock.now());
    let clients = replicas
        .iter()
        .flat_map(|address| (0..CLIENTS).map(|_| Client::new(*address)));
    let running: Vec<_> = clients
        .map(|client| tokio::spawn(increment(client, path.clone())))
        .collect();
    for client in running {
        client.await?;
    }
    let row = database
        .query_one(
            "SELECT body FROM ifmatch_example.documents WHERE name = $1",
            &[&name],
        )
        .await?;
    let (acknowledged, found) = (
        2 * CLIENTS * INCREMENTS,
        row.get::<_, String>(0).parse::<i64>()?,
    );
    let millis = start.until(SystemClock.now()).as_millis();
    println!(
        "{name}: {acknowledged} updates acknowledged in {millis} ms, {} lost",
        acknowledged - found
    );
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let url = std::env::args()
        .nth(1)
        .ok_or("give the URL of a PostgreSQL database")?;
    let database = connect(&url).await?;
    let tables = "DROP SCHEMA IF EXISTS ifmatch_example CASCADE; CREATE SCHEMA ifmatch_example;
        CREATE TABLE ifmatch_example.documents (name text PRIMARY KEY, body text NOT NULL, token bigint NOT NULL)";
    database.batch_execute(tables).await?;

    ifmatch_postgres::migrate(&url).await?;
    let shared = async || PostgresRegister::connect(&url).await;
    let replicas = [
        replica(&url, shared().await?).await?,
        replica(&url, shared().await?).await?,
    ];
    run("one-shared-register", &database, replicas).await?;

    run(
        "by-hand",
        &database,
        [replica_by_hand(&url).await?, replica_by_hand(&url).await?],
    )
    .await?;

    let own = || MemoryRegister::with_capacity(1_000);
    run(
        "a-register-each",
        &database,
        [replica(&url, own()).await?, replica(&url, own()).await?],
    )
    .await?;

    database
        .batch_execute("DROP SCHEMA ifmatch_example CASCADE")
        .await?;
    Ok(())
}
