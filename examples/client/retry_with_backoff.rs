//! Read, modify, write, and retry with backoff.
//!
//! The usual sample retries at once, so all clients collide again, and after three conflicts it gives up and loses the update.
//! Here, pauses grow and are random, and the error tells contention from an unknown outcome.
//!
//! Run it: `cargo run -p ifmatch-examples --example retry_with_backoff -- http://127.0.0.1:10000/box`
#![allow(clippy::print_stdout, reason = "it is a demonstration")]

use ifmatch_client::{Client, Error};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let url = std::env::args()
        .nth(1)
        .unwrap_or_else(|| "http://127.0.0.1:10000/box".to_owned());
    let client = Client::http(&url)?;
    let visitor = |client: Client| async move {
        let visits = client.json::<u64>("visits.json");
        for _ in 0..10 {
            visits.update(|count| *count += 1).await?;
        }
        Ok::<_, Error>(())
    };
    let visitors: Vec<_> = (0..8)
        .map(|_| tokio::spawn(visitor(client.clone())))
        .collect();
    for visitor in visitors {
        visitor.await??;
    }
    println!(
        "{} visits",
        client
            .json::<u64>("visits.json")
            .get()
            .await?
            .ok_or("no visits")?
            .value
    );
    Ok(())
}
