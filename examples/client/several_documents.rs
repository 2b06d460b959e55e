//! Several updates under one lock.
//!
//! The usual sample checks the lease once, before its first update. Here, each update checks the lock, names its
//! fencing token, and fails if another holder has written.
//!
//! Run it: `cargo run -p ifmatch-examples --example several_documents -- http://127.0.0.1:10000/box`
#![allow(clippy::print_stdout, reason = "it is a demonstration")]

use ifmatch_client::{Client, Error};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let url = std::env::args()
        .nth(1)
        .unwrap_or_else(|| "http://127.0.0.1:10000/box".to_owned());
    let client = Client::http(&url)?;
    let (from, to) = (
        client.json::<i64>("accounts/anna"),
        client.json::<i64>("accounts/bert"),
    );
    let lock = client.lock("locks/accounts");
    let moved = lock.with(|held| async move {
        let left = from.update_fenced(&held, |sum| *sum -= 30).await?;
        let got = to.update_fenced(&held, |sum| *sum += 30).await?;
        Ok::<_, Error>((left, got))
    });
    let (left, got) = moved.await??;
    println!("sum {}", left + got);
    Ok(())
}
