//! The conformance suite: through one handle, through two, and in two processes.

use ifmatch_postgres::PostgresRegister;
use ifmatch_register::conformance::{self, RaceSize};

use crate::server::{connect, start};

#[tokio::test(flavor = "multi_thread")]
async fn conforms() {
    let server = start().await;
    conformance::run(connect(&server).await, RaceSize::default()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn conforms_through_two_handles() {
    let server = start().await;
    conformance::run_shared(async || connect(&server).await, RaceSize::default()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_processes_share_the_register() {
    let begin = async || {
        let server = start().await;
        (server.url(), server)
    };
    let open = async |url: &str| PostgresRegister::connect(url).await.expect("the server runs");
    let test = "conformance::two_processes_share_the_register";
    conformance::run_in_two_processes(test, begin, open, RaceSize::default()).await;
}
