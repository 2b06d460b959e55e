//! A lock for several machines, with a wait.
//!
//! The usual sample deletes the lock blob to release it, even if it belongs to another client by now. Here, a release names the
//! version that it releases, and a dropped future or a panic releases the lock, too.
//!
//! Run it: `cargo run -p ifmatch-examples --example distributed_lock -- http://127.0.0.1:10000/box`
#![allow(clippy::print_stdout, reason = "it is a demonstration")]

use std::time::Duration;

use ifmatch_client::Client;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let url = std::env::args()
        .nth(1)
        .unwrap_or_else(|| "http://127.0.0.1:10000/box".to_owned());
    let lock = Client::http(&url)?
        .lock("locks/backup")
        .ttl(Duration::from_secs(15));
    let held = lock.acquire().await?;
    println!("a second holder: {}", lock.try_acquire().await?.is_some());
    let waiting = tokio::spawn({
        let lock = lock.clone();
        async move { lock.acquire_within(Duration::from_mins(10)).await }
    });
    let first = held.fence();
    held.release().await?;
    let next = waiting.await??.ok_or("not acquired in time")?;
    println!("a larger token: {}", next.fence() > first);
    next.release().await?;
    Ok(())
}
