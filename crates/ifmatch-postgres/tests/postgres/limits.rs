//! A server that hangs, is unreachable, has no space or no connections. No call waits for it for longer than its limit, and
//! all is well once the server is.

use std::sync::Arc;

use http::Method;
use ifmatch_core::command::{Command, Content, Write};
use ifmatch_core::digest::ContentHash;
use ifmatch_core::precondition::Preconditions;
use ifmatch_core::record::{Record, Revision};
use ifmatch_postgres::{PostgresRegister, migrate};
use ifmatch_register::{Key, Register, RegisterError, RegisterErrorKind, Swap};
use ifmatch_testbed::{Clients, Network, Proxy, postgres};
use tokio_postgres::NoTls;

use crate::server::{connect, start};

#[tokio::test(flavor = "multi_thread")]
async fn a_suspended_server_is_used_again() {
    let server = start().await;
    let register = Arc::new(connect(&server).await);
    let clients = Clients::new("stop", 3, 8).run_through(&register, || server.pause(), || server.resume()).await;
    clients.check(&connect(&server).await).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_network_that_delivers_nothing_is_used_again() {
    let server = start().await;
    let proxy = Proxy::start(server.address()).await;
    let register = Arc::new(PostgresRegister::connect(&server.url_at(proxy.address())).await.unwrap());
    let mut clients = Clients::new("network", 3, 8);
    for network in [Network::BlackHole, Network::Silent, Network::Reset] {
        clients = clients.run_through(&register, || proxy.set(network), || proxy.set(Network::Whole)).await;
    }
    clients.check(&connect(&server).await).await.unwrap();
}

fn key(number: usize) -> Key {
    Key::new(format!("key/{number}")).unwrap()
}

/// Creates a record with a payload that does not compress.
async fn create(register: &PostgresRegister, number: usize) -> Result<Swap, RegisterError> {
    let mut random = number as u64 + 1;
    let payload: Vec<u8> = (0..60_000)
        .map(|_| {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            random.to_le_bytes()[0]
        })
        .collect();
    let content = Content::Hashed { hash: ContentHash::of(&payload), payload: payload.into() };
    let write = Write::new(&Method::PUT, &Preconditions::NONE, content, 1);
    let record = Record::absent().apply(&Command::Write(write), Revision::new(1).timestamp()).next.unwrap();
    register.compare_and_swap(&key(number), Revision::NONE, Some(&record)).await
}

/// The table reaches the end of the disk. The log of changes does not: its files have 16 MiB, and are used again.
#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_rejects_swaps_and_shows_records() {
    let server = start().await;
    let register = connect(&server).await;
    // In the middle of a page, so that the server can write a part of it.
    server.limit_files(Some((16 << 20) + 4_096));
    let mut written = 0;
    let error = loop {
        match create(&register, written).await {
            Ok(swap) => assert_eq!(swap, Swap::Done),
            Err(error) => break error,
        }
        written += 1;
    };
    assert_eq!(error.kind(), RegisterErrorKind::Full, "{error}");
    assert!(written > 0, "the limit is reached in the middle");
    assert_eq!(register.load(&key(written)).await.unwrap(), None, "nothing was changed");
    for number in 0..written {
        assert!(register.load(&key(number)).await.unwrap().is_some(), "record {number} of {written}");
    }
    server.limit_files(None);
    assert_eq!(create(&register, written).await.unwrap(), Swap::Done);
}

/// Other programs use all connections.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_without_free_connections_is_used_once_it_has_some() {
    let server = postgres::start(&["max_connections=10", "superuser_reserved_connections=0"]).await;
    migrate(&server.url()).await.unwrap();
    // One connection. Those for swaps and loads are opened at the first call.
    let register = connect(&server).await;
    let mut others = Vec::new();
    while let Ok((client, connection)) = tokio_postgres::connect(&server.url(), NoTls).await {
        tokio::spawn(connection);
        others.push(client);
    }
    // More than the number of failures after which calls fail at once.
    for _ in 0..5 {
        let error = create(&register, 0).await.expect_err("there is no connection");
        assert_eq!(error.kind(), RegisterErrorKind::Unavailable, "nothing was changed: {error}");
        register.load(&key(0)).await.expect_err("there is no connection");
    }
    drop(others);
    while create(&register, 0).await.is_err() || register.load(&key(0)).await.is_err() {
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
}
