//! Pessimistic update of a blob: edit it while no other client may.
//!
//! The usual sample holds a lease, but its writes name no fencing token: after a pause, it overwrites the next holder's work.
//! Here, the document rejects such a write.
//!
//! Run it: `cargo run -p ifmatch-examples --example pessimistic_update -- http://127.0.0.1:10000/box`
#![allow(clippy::print_stdout, reason = "it is a demonstration")]

use ifmatch_client::Client;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let url = std::env::args()
        .nth(1)
        .unwrap_or_else(|| "http://127.0.0.1:10000/box".to_owned());
    let client = Client::http(&url)?;
    let report = client.json::<Vec<String>>("report.json");
    let lines = client
        .lock("locks/report")
        .with(|held| async move {
            report
                .update_fenced(&held, |lines| lines.push("first".to_owned()))
                .await?;
            report
                .update_fenced(&held, |lines| lines.push("second".to_owned()))
                .await
        })
        .await??;
    println!("{} lines, written under a lock", lines.len());
    Ok(())
}
