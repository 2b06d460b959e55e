//! Optimistic update of a blob.
//!
//! The usual sample retries a write whose response was lost, gets 412 from its own first attempt, and reports a conflict. Here, the
//! document shows that the first attempt took effect.
//!
//! Run it: `cargo run -p ifmatch-examples --example optimistic_update -- http://127.0.0.1:10000/box`
#![allow(clippy::print_stdout, reason = "it is a demonstration")]

use ifmatch_client::{Client, ErrorKind};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let url = std::env::args()
        .nth(1)
        .unwrap_or_else(|| "http://127.0.0.1:10000/box".to_owned());
    let note = Client::http(&url)?.json::<String>("note.json");
    if note.get().await?.is_none() {
        note.create("draft".to_owned()).await?;
    }
    let seen = note
        .get()
        .await?
        .ok_or("another client has deleted the note")?;
    note.replace(&seen.version, format!("{}, edited by Anna", seen.value))
        .await?;
    // Bert edits the version that Anna has replaced.
    match note
        .replace(&seen.version, format!("{}, edited by Bert", seen.value))
        .await
    {
        Err(error) if matches!(error.kind(), ErrorKind::Conflict { .. }) => {
            println!("Bert must read again");
        }
        other => println!("unexpected: {other:?}"),
    }
    println!("{}", note.get().await?.ok_or("no note")?.value);
    Ok(())
}
