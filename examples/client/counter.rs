//! A counter that many clients add to.
//!
//! The usual sample counts a write twice if it retries after a lost response. Here, each write leaves a random number in its
//! shard, which shows that it was counted.
//!
//! Run it: `cargo run -p ifmatch-examples --example counter -- http://127.0.0.1:10000/box`
#![allow(clippy::print_stdout, reason = "it is a demonstration")]

use ifmatch_client::{Client, Error};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let url = std::env::args()
        .nth(1)
        .unwrap_or_else(|| "http://127.0.0.1:10000/box".to_owned());
    let hits = Client::http(&url)?.counter("hits").shards(4);
    let clients: Vec<_> = (0..8)
        .map(|_| {
            let hits = hits.clone();
            tokio::spawn(async move {
                for _ in 0..5 {
                    hits.add(1).await?;
                }
                Ok::<_, Error>(())
            })
        })
        .collect();
    for client in clients {
        client.await??;
    }
    println!("{} hits", hits.get().await?);
    Ok(())
}
