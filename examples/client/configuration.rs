//! A configuration that running processes follow.
//!
//! The usual sample polls, and replaces a good configuration with a broken or empty one. Here, the last good value stays, and
//! a server with long polls reports changes at once.
//!
//! Run it: `cargo run -p ifmatch-examples --example configuration -- http://127.0.0.1:10000/box`
#![allow(clippy::print_stdout, reason = "it is a demonstration")]

use ifmatch_client::Client;
use serde::{Deserialize, Serialize};

#[derive(Debug, Default, Serialize, Deserialize)]
struct Config {
    limit: u32,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let url = std::env::args()
        .nth(1)
        .unwrap_or_else(|| "http://127.0.0.1:10000/box".to_owned());
    let document = Client::http(&url)?.json::<Config>("config.json");
    document.update(|config| config.limit = 10).await?;
    let mut config = document.watch().await?;
    println!(
        "limit {}",
        config
            .borrow_and_update()
            .as_ref()
            .ok_or("no configuration")?
            .value
            .limit
    );
    document.update(|config| config.limit = 20).await?;
    config.changed().await?;
    println!(
        "limit {}",
        config
            .borrow_and_update()
            .as_ref()
            .ok_or("no configuration")?
            .value
            .limit
    );
    Ok(())
}
