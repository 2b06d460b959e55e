//! Replace by a stored tag: someone fills in a form for hours, then saves it if no one else has.
//!
//! The usual sample reads the tag again right before it saves, so its condition is always true. Here, it saves with the
//! version that the form showed.
//!
//! Run it: `cargo run -p ifmatch-examples --example replace_by_tag -- http://127.0.0.1:10000/box`
#![allow(clippy::print_stdout, reason = "it is a demonstration")]

use ifmatch_client::{Client, Version};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let url = std::env::args()
        .nth(1)
        .unwrap_or_else(|| "http://127.0.0.1:10000/box".to_owned());
    let order = Client::http(&url)?.json::<Vec<String>>("order.json");
    order
        .update(|items| *items = vec!["tea".to_owned()])
        .await?;
    let shown = order.get().await?.ok_or("no order")?;
    // Part of the form, as a hidden field.
    let stored: String = shown.version.to_string();
    order.update(|items| items.push("milk".to_owned())).await?;
    let saved = order
        .replace(&Version::new(stored), vec!["coffee".to_owned()])
        .await;
    println!("saved over the milk: {}", saved.is_ok());
    Ok(())
}
