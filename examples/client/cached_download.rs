//! Cached download: transfers the content only if it has changed.
//!
//! The usual sample compares `Last-Modified`, and misses the second change within a second. Here, the strong tag shows it.
//!
//! Run it: `cargo run -p ifmatch-examples --example cached_download -- http://127.0.0.1:10000/box`
#![allow(clippy::print_stdout, reason = "it is a demonstration")]

use ifmatch_client::{Client, Read};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let url = std::env::args()
        .nth(1)
        .unwrap_or_else(|| "http://127.0.0.1:10000/box".to_owned());
    let client = Client::http(&url)?;
    let logo = client.json::<String>("logo.json");
    logo.update(|logo| "a logo".clone_into(logo)).await?;
    let Read::Found(first) = client.backend().get("logo.json", None, None).await? else {
        return Err("no logo".into());
    };
    println!("downloaded {} bytes", first.body.len());
    let again = client
        .backend()
        .get("logo.json", first.version.as_ref(), None)
        .await?;
    println!("unchanged: {}", matches!(again, Read::Unchanged { .. }));
    logo.update(|logo| logo.push('!')).await?;
    let changed = client
        .backend()
        .get("logo.json", first.version.as_ref(), None)
        .await?;
    println!("changed: {}", matches!(changed, Read::Found(_)));
    Ok(())
}
