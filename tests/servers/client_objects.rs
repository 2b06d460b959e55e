//! The client on an S3 server: races of writers, and lost responses.

use std::net::SocketAddr;
use std::time::Duration;

use futures_util::future::join_all;
use ifmatch_client::{Client, ErrorKind, Objects};
use ifmatch_testbed::{Network, Proxy, s3};
use object_store::RetryConfig;
use object_store::aws::AmazonS3Builder;

use crate::client_for_azure::{lost_answers, updates};

/// Number of races of each kind.
const ROUNDS: usize = 10;

/// Returns a client with connections of its own.
fn client(address: SocketAddr) -> Client {
    // An error means that another test was first.
    let _chosen = rustls::crypto::ring::default_provider().install_default();
    let store = AmazonS3Builder::new()
        .with_endpoint(format!("http://{address}"))
        .with_bucket_name("bucket")
        .with_allow_http(true)
        .with_access_key_id("key")
        .with_secret_access_key("secret")
        .with_region("us-east-1")
        .with_disable_bulk_delete(true)
        .with_retry(RetryConfig {
            max_retries: 0,
            ..RetryConfig::default()
        });
    Client::new(Objects::new(store.build().unwrap())).with_patience(Duration::from_hours(1))
}

#[tokio::test(flavor = "multi_thread")]
async fn of_16_writers_on_one_condition_one_succeeds_and_its_content_is_read() {
    let server = s3::start().await;
    let clients: Vec<Client> = (0..16).map(|_| client(server.address())).collect();
    for round in 0..ROUNDS {
        let key = format!("race/{round}");
        let created = join_all(clients.iter().zip(0_u64..).map(|(client, number)| {
            let note = client.json::<u64>(key.clone());
            async move { note.create(number).await }
        }));
        let created: Vec<_> = created.await.into_iter().filter_map(Result::ok).collect();
        assert_eq!(created.len(), 1, "creators");
        let version = &created[0].version;
        let written = join_all(clients.iter().zip(100_u64..).map(|(client, number)| {
            let note = client.json::<u64>(key.clone());
            async move { note.replace(version, number).await }
        }));
        let written: Vec<_> = written.await.into_iter().filter_map(Result::ok).collect();
        assert_eq!(written.len(), 1, "writers");
        let read = clients[0]
            .json::<u64>(key.clone())
            .get()
            .await
            .unwrap()
            .unwrap();
        assert_eq!(
            (read.value, &read.version),
            (written[0].value, &written[0].version)
        );
    }
}

/// Equal bytes have equal tags on S3, so only the stamp tells two writes of one value apart.
#[tokio::test(flavor = "multi_thread")]
async fn a_stored_version_does_not_come_back_with_its_value() {
    let server = s3::start().await;
    let note = client(server.address()).json::<u64>("note");
    let first = note.create(1).await.unwrap().version;
    note.update(|value| *value = 2).await.unwrap();
    note.update(|value| *value = 1).await.unwrap();
    assert!(matches!(
        note.replace(&first, 9).await.unwrap_err().kind(),
        ErrorKind::Conflict { .. }
    ));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_request_or_answer_neither_fails_nor_repeats_an_update() {
    let server = s3::start().await;
    lost_answers(server.address(), client).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_8_clients_with_20_updates_each_none_is_lost() {
    let server = s3::start().await;
    updates(|| client(server.address())).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_whose_acquisition_is_not_answered_is_held_once() {
    let server = s3::start().await;
    let proxy = Proxy::start(server.address()).await;
    let (through, direct) = (client(proxy.address()), client(server.address()));
    let mut total = 0;
    for round in 0..20 {
        let key = format!("lock/{round}");
        proxy.set(if round % 2 == 0 {
            Network::CutAfterCommit
        } else {
            Network::CutAfterSending
        });
        let locks = [through.lock(key.clone()), direct.lock(key)];
        let (one, other) = tokio::join!(locks[0].try_acquire(), locks[1].try_acquire());
        let held = [one, other]
            .into_iter()
            .filter_map(|held| held.ok().flatten())
            .count();
        assert!(held <= 1, "two holders in round {round}");
        assert_eq!(proxy.network(), Network::Whole, "nothing was lost");
        total += held;
    }
    assert!(total > 0, "nobody has held a lock");
}
