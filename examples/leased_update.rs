//! Updates two tables under one lease. Only the holder can update them; other clients get 409 or 412. If the holder
//! crashes, another client takes over when the lease expires.
//!
//! Run it: `cargo run -p ifmatch-examples --example leased_update`. It starts the server and its clients, and prints their
//! requests. The layer has a manual clock, so the lease expires without a real wait.
#![allow(clippy::print_stdout, reason = "it is a demonstration")]

use std::error::Error;
use std::future::pending;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::extract::{Extension, State};
use axum::routing::get;
use http::StatusCode;
use ifmatch::axum::RouterExt;
use ifmatch::testing::ManualClock;
use ifmatch::{ConditionalLayer, Permit};
use support::{Answer, Client};
use tokio::sync::Notify;

const LEDGER: &str = "/ledger";

/// Two tables that must agree: the items sold and the items in stock. They reject fencing tokens smaller than the largest they have seen.
#[derive(Default)]
struct Ledger {
    sold: u32,
    stock: u32,
    highest_token: u64,
}

type Tables = Arc<Mutex<Ledger>>;

fn lock(tables: &Tables) -> MutexGuard<'_, Ledger> {
    tables.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn show(State(tables): State<Tables>) -> String {
    let ledger = lock(&tables);
    format!("sold {}, in stock {}", ledger.sold, ledger.stock)
}

/// Sells `count` items. Only the holder of the lease gets here, one request at a time.
async fn sell(
    State(tables): State<Tables>,
    Extension(permit): Extension<Permit>,
    count: String,
) -> StatusCode {
    let (Some(token), Ok(count)) = (permit.lease_token(), count.parse::<u32>()) else {
        return StatusCode::BAD_REQUEST;
    };
    {
        let mut ledger = lock(&tables);
        if token < ledger.highest_token || count > ledger.stock {
            return StatusCode::CONFLICT;
        }
        ledger.highest_token = token;
        ledger.sold += count;
        ledger.stock -= count;
    }
    StatusCode::NO_CONTENT
}

/// A sale whose handler never ends, so the holder's write outlasts its lease.
async fn hang(Extension(begun): Extension<Arc<Notify>>) -> StatusCode {
    begun.notify_one();
    pending().await
}

fn app(clock: ManualClock, tables: Tables, begun: Arc<Notify>) -> Router {
    let routes = Router::new()
        .route(LEDGER, get(show).post(sell).put(hang))
        .layer(Extension(begun))
        .with_state(tables);
    routes.guarded_by(
        ConditionalLayer::builder()
            .clock(clock)
            .ephemeral_leases()
            .build(),
    )
}

/// A client that sells items.
struct Seller {
    name: &'static str,
    client: Client,
    lease: Option<String>,
}

impl Seller {
    async fn acquire(&mut self) -> Answer {
        let fields = [
            ("x-ms-lease-action", "acquire"),
            ("x-ms-lease-duration", "15"),
        ];
        let answer = self
            .client
            .put(&format!("{LEDGER}?comp=lease"), &fields, "")
            .await;
        self.lease = (answer.status == StatusCode::CREATED)
            .then(|| answer.header("x-ms-lease-id").to_owned());
        self.tell("acquires", &answer);
        answer
    }

    async fn sell(&self, count: &str) -> Answer {
        let fields: Vec<_> = self
            .lease
            .iter()
            .map(|id| ("x-ms-lease-id", id.as_str()))
            .collect();
        let answer = self
            .client
            .request(http::Method::POST, LEDGER, &fields, count.to_owned())
            .await;
        self.tell(&format!("sells {count}"), &answer);
        answer
    }

    fn tell(&self, what: &str, answer: &Answer) {
        let code = answer
            .headers
            .get("x-ms-error-code")
            .and_then(|code| code.to_str().ok())
            .unwrap_or_default();
        println!("{:>5} {what}: {} {code}", self.name, answer.status.as_u16());
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let (clock, tables) = (ManualClock::default(), Tables::default());
    lock(&tables).stock = 10;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let client = Client::new(listener.local_addr()?);
    let begun = Arc::new(Notify::new());
    let app = app(clock.clone(), tables, Arc::clone(&begun));
    let server = tokio::spawn(async move { axum::serve(listener, app).await });
    let seller = |name| Seller {
        name,
        client: client.clone(),
        lease: None,
    };
    let (mut anna, mut bert) = (seller("Anna"), seller("Bert"));

    anna.acquire().await.expect(201);
    bert.acquire().await.expect(409);
    bert.sell("3").await.expect(412);
    anna.sell("4").await.expect(204);

    // Anna's next sale hangs. She crashes while she waits for it, and never releases the lease.
    let hanging = tokio::spawn({
        let (client, lease) = (client.clone(), anna.lease.clone().unwrap_or_default());
        async move { client.put(LEDGER, &[("x-ms-lease-id", &lease)], "2").await }
    });
    begun.notified().await;
    while bert.acquire().await.status != StatusCode::CREATED {
        clock.advance(Duration::from_secs(5));
        println!("      5 seconds later");
    }
    println!(
        " Anna's hanging request: {}",
        hanging.await?.status.as_u16()
    );
    bert.sell("3").await.expect(204);
    anna.sell("2").await.expect(412);

    let ledger = client.get(LEDGER, &[]).await.text().to_owned();
    println!("      in the end: {ledger}");
    server.abort();
    if ledger == "sold 7, in stock 3" {
        Ok(())
    } else {
        Err("the tables disagree".into())
    }
}
