//! The register on a real server: the conformance suite through one handle, two handles and two processes.

use ifmatch_register::conformance::{self, RaceSize};
use ifmatch_testbed::redis::{durable, start};

use crate::common::connect;

fn size() -> RaceSize {
    RaceSize::new(8, 5)
}

#[tokio::test(flavor = "multi_thread")]
async fn conforms() {
    let server = durable().await;
    conformance::run(connect(&server.url()).await, size()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn conforms_through_two_handles() {
    let server = start(&[]).await;
    conformance::run_shared(async || connect(&server.url()).await, size()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_processes_share_the_register() {
    let start = async || {
        let server = start(&[]).await;
        (server.url(), server)
    };
    let open = async |url: &str| connect(url).await;
    conformance::run_in_two_processes("register::two_processes_share_the_register", start, open, size()).await;
}
