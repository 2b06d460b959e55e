//! The register on a real server: the conformance suite through one handle, two handles and two processes.

mod common;

use common::{connect, durable, start, url};
use ifmatch_register::conformance::{self, Traits};

fn traits() -> Traits {
    Traits::default().with_race(8, 5)
}

#[tokio::test(flavor = "multi_thread")]
async fn conforms() {
    let server = durable().await;
    conformance::run(connect(&url(&server)).await, traits()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn conforms_through_two_handles() {
    let server = start(&[]).await;
    conformance::run_shared(async || connect(&url(&server)).await, traits()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_processes_share_the_register() {
    let start = async || {
        let server = start(&[]).await;
        (url(&server), server)
    };
    let open = async |url: &str| connect(url).await;
    conformance::run_in_two_processes("two_processes_share_the_register", start, open, traits()).await;
}
