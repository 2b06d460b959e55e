//! A work queue: a worker hides its job from the others while it works.
//!
//! The usual sample deletes a job by name when it's done, even if the job has expired and another worker has it. Here,
//! the late worker gets an error, and the number of attempts exposes jobs that never succeed.
//!
//! Run it: `cargo run -p ifmatch-examples --example work_queue -- http://127.0.0.1:10000/box`
#![allow(clippy::print_stdout, reason = "it is a demonstration")]

use std::time::Duration;

use ifmatch_client::Client;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let url = std::env::args()
        .nth(1)
        .unwrap_or_else(|| "http://127.0.0.1:10000/box".to_owned());
    let queue = Client::http(&url)?.queue("jobs");
    for image in ["1.jpg", "2.jpg", "broken.jpg"] {
        queue.push(&image).await?;
    }
    while let Some(job) = queue.take(Duration::from_mins(1)).await? {
        let image: String = job.payload()?;
        if image == "broken.jpg" && job.attempts() < 3 {
            job.abandon().await?;
            continue;
        }
        println!("{image} after {} attempts", job.attempts());
        job.done().await?;
    }
    Ok(())
}
