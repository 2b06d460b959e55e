//! Leader election.
//!
//! The usual sample only logs a failed renewal, and continues as the leader. Here, the work is dropped before another
//! candidate can lead, even without a network.
//!
//! Run it: `cargo run -p ifmatch-examples --example leader_election -- http://127.0.0.1:10000/box`
#![allow(clippy::print_stdout, reason = "it is a demonstration")]

use ifmatch_client::Client;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let url = std::env::args()
        .nth(1)
        .unwrap_or_else(|| "http://127.0.0.1:10000/box".to_owned());
    let client = Client::http(&url)?;
    let candidate = |name: &'static str| {
        let election = client.election("leaders/mail").name(name);
        tokio::spawn(async move {
            election
                .run(|term| async move {
                    println!("{name} leads");
                    term.fence()
                })
                .await
        })
    };
    let (one, two) = (candidate("one"), candidate("two"));
    println!("different terms: {}", one.await?? != two.await??);
    Ok(())
}
