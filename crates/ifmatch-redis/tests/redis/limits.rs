//! A server that hangs, is unreachable, has no space or no connections. No call waits for it for longer than its limit, and
//! all is well once the server is.

use std::sync::Arc;
use std::time::Duration;

use http::Method;
use ifmatch_core::command::{Command, Content, Write};
use ifmatch_core::digest::ContentHash;
use ifmatch_core::precondition::Preconditions;
use ifmatch_core::record::{Record, Revision};
use ifmatch_redis::RedisRegister;
use ifmatch_register::{Key, Register, RegisterError, RegisterErrorKind, Swap};
use ifmatch_testbed::redis::{durable, start};
use ifmatch_testbed::{Clients, Network, Proxy};

use crate::common::{connect, send};

#[tokio::test(flavor = "multi_thread")]
async fn a_suspended_server_is_used_again() {
    let server = durable().await;
    let register = Arc::new(connect(&server.url()).await);
    let clients = Clients::new("stop", 3, 8).run_through(&register, || server.pause(), || server.resume()).await;
    clients.check(&connect(&server.url()).await).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_network_that_delivers_nothing_is_used_again() {
    let server = durable().await;
    let proxy = Proxy::start(server.address()).await;
    let register = Arc::new(connect(&server.url_at(proxy.address())).await);
    let mut clients = Clients::new("network", 3, 8);
    for network in [Network::BlackHole, Network::Silent, Network::Reset] {
        clients = clients.run_through(&register, || proxy.set(network), || proxy.set(Network::Whole)).await;
    }
    clients.check(&connect(&server.url()).await).await.unwrap();
}

fn key(number: usize) -> Key {
    Key::new(format!("key/{number}")).unwrap()
}

async fn create(register: &RedisRegister, number: usize) -> Result<Swap, RegisterError> {
    let payload = vec![7; 60_000];
    let content = Content::Hashed { hash: ContentHash::of(&payload), payload: payload.into() };
    let write = Write::new(&Method::PUT, &Preconditions::NONE, content, 1);
    let record = Record::absent().apply(&Command::Write(write), Revision::new(1).timestamp()).next.unwrap();
    register.compare_and_swap(&key(number), Revision::NONE, Some(&record)).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_memory_rejects_swaps_and_shows_records() {
    let server = start(&["--maxmemory", "8mb", "--maxmemory-policy", "noeviction"]).await;
    let register = connect(&server.url()).await;
    let mut written = 0;
    let error = loop {
        match create(&register, written).await {
            Ok(swap) => assert_eq!(swap, Swap::Done),
            Err(error) => break error,
        }
        written += 1;
    };
    assert_eq!(error.kind(), RegisterErrorKind::Full, "{error}");
    assert_eq!(register.load(&key(written)).await.unwrap(), None, "nothing was changed");
    for number in 0..written {
        assert!(register.load(&key(number)).await.unwrap().is_some(), "record {number} of {written}");
    }
    send(&server, &["CONFIG", "SET", "maxmemory", "100mb"]).await;
    assert_eq!(create(&register, written).await.unwrap(), Swap::Done);
}

/// A server that syncs each swap ends when it cannot write. Acknowledged swaps are there once it has space.
#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_loses_no_acknowledged_swap() {
    let mut server = durable().await;
    let register = connect(&server.url()).await;
    server.limit_files(Some(1 << 20));
    let mut written = 0;
    let error = loop {
        match create(&register, written).await {
            Ok(swap) => assert_eq!(swap, Swap::Done),
            Err(error) => break error,
        }
        written += 1;
    };
    assert_ne!(error.kind(), RegisterErrorKind::Unreadable, "{error}");
    assert!(written > 0, "the limit is reached in the middle");
    server.restart().await;
    let unwritten = loop {
        match create(&register, written).await {
            Ok(swap) => break swap,
            Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    };
    // The swap without an answer may have taken place.
    assert!(matches!(unwritten, Swap::Done | Swap::Conflict(Some(_))), "{unwritten:?}");
    for number in 0..written {
        assert!(register.load(&key(number)).await.unwrap().is_some(), "record {number} of {written}");
    }
}

/// Other programs use all connections.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_without_free_connections_is_used_once_it_has_some() {
    let server = start(&["--maxclients", "10"]).await;
    // One connection. Those for swaps and loads are opened at the first call.
    let register = connect(&server.url()).await;
    let mut others = Vec::new();
    loop {
        let client = redis::Client::open(server.url()).unwrap();
        match client.get_multiplexed_async_connection().await {
            Ok(connection) => others.push(connection),
            Err(_) => break,
        }
    }
    for _ in 0..5 {
        let error = create(&register, 0).await.expect_err("there is no connection");
        assert_eq!(error.kind(), RegisterErrorKind::Unavailable, "nothing was changed: {error}");
    }
    drop(others);
    while create(&register, 0).await.is_err() || register.load(&key(0)).await.is_err() {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
