//! The conformance suite: through one handle, through two, and in two processes.

use ifmatch_postgres::PostgresRegister;
use ifmatch_register::conformance::{self, Traits};

use crate::server::Server;

#[tokio::test(flavor = "multi_thread")]
async fn conforms() {
    let server = Server::start().await;
    conformance::run(server.register().await, Traits::default()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn conforms_through_two_handles() {
    let server = Server::start().await;
    conformance::run_shared(async || server.register().await, Traits::default()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_processes_share_the_register() {
    let start = async || {
        let server = Server::start().await;
        (server.url(), server)
    };
    let open = async |url: &str| PostgresRegister::connect(url).await.expect("the server runs");
    let test = "conformance::two_processes_share_the_register";
    conformance::run_in_two_processes(test, start, open, Traits::default()).await;
}
