//! Faults of the server and of the network.

use std::sync::Arc;
use std::time::Duration;

use ifmatch_core::record::{Record, Revision, State};
use ifmatch_register::conformance::history::ViolationKind;
use ifmatch_register::{Driver, Key, Register, RegisterErrorKind, Scan, Swap};
use ifmatch_runtime::{Clock, SystemClock};
use ifmatch_testbed::engine::{behind_proxy, check_filled, fill};
use ifmatch_testbed::redis::{durable, start};
use ifmatch_testbed::{Clients, Network, Proxy, Server, within};

use crate::{Redis, connect, send};

/// Pause between two attempts.
const PAUSE: Duration = Duration::from_millis(20);

fn record(revision: u64) -> Record {
    Record::forgotten(Revision::new(revision))
}

/// Each call samples the server's time, which is this machine's.
#[tokio::test(flavor = "multi_thread")]
async fn the_servers_time_is_known() {
    let server = start(&[]).await;
    let before = SystemClock.wall();
    let register = connect(&server.url()).await;
    let key = Key::new("key").unwrap();
    let first = register.engine().time.unwrap();
    assert!(
        first.latest >= before && first.earliest <= SystemClock.wall(),
        "{first:?}"
    );
    register.load(&key).await.unwrap();
    let second = register.engine().time.unwrap();
    assert!(
        second.earliest >= first.earliest && second.latest >= first.earliest,
        "{first:?}, {second:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flushed_script_is_sent_again() {
    let server = start(&[]).await;
    let register = connect(&server.url()).await;
    let key = Key::new("key").unwrap();
    for revision in 1..5 {
        let swap = register
            .compare_and_swap(&key, Revision::new(revision - 1), Some(&record(revision)))
            .await;
        assert_eq!(swap.unwrap(), Swap::Done);
        send(&server, &["SCRIPT", "FLUSH"]).await;
    }
}

/// After FLUSHALL a register would be empty, and each writer could create each resource again.
#[tokio::test(flavor = "multi_thread")]
async fn emptying_the_server_is_noticed() {
    let server = start(&[]).await;
    let (first, second) = (connect(&server.url()).await, connect(&server.url()).await);
    let key = Key::new("key").unwrap();
    assert_eq!(
        first
            .compare_and_swap(&key, Revision::NONE, Some(&record(1)))
            .await
            .unwrap(),
        Swap::Done
    );
    send(&server, &["FLUSHALL"]).await;
    assert_lost(&*first, &key).await;
    // A process that starts afterwards begins with an empty register. The others still don't trust it.
    let third = connect(&server.url()).await;
    assert_eq!(
        third
            .compare_and_swap(&key, Revision::NONE, Some(&record(3)))
            .await
            .unwrap(),
        Swap::Done
    );
    assert_lost(&*first, &key).await;
    assert_lost(&*second, &key).await;
}

async fn assert_lost(register: &dyn Register, key: &Key) {
    let swap = register
        .compare_and_swap(key, Revision::NONE, Some(&record(2)))
        .await
        .unwrap_err();
    assert_eq!(swap.kind(), RegisterErrorKind::Unavailable, "{swap}");
    assert!(swap.to_string().contains("lost the records"), "{swap}");
    assert_eq!(
        register.load(key).await.unwrap_err().kind(),
        RegisterErrorKind::Unavailable
    );
    assert_eq!(
        register
            .scan(&Scan {
                limit: 1,
                ..Scan::default()
            })
            .await
            .unwrap_err()
            .kind(),
        RegisterErrorKind::Unavailable
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_swap_that_was_never_sent_does_not_take_place() {
    let (_server, proxy, register) = behind_proxy::<Redis>().await;
    let key = Key::new("key").unwrap();
    // Opens the connections of the key's lanes.
    register
        .compare_and_swap(&key, Revision::NONE, Some(&record(1)))
        .await
        .unwrap();
    register.load(&key).await.unwrap();
    proxy.set(Network::CutBeforeSending);
    let error = register
        .compare_and_swap(&key, Revision::new(1), Some(&record(2)))
        .await
        .unwrap_err();
    assert_eq!(
        error.kind(),
        RegisterErrorKind::Ambiguous,
        "the client cannot tell: {error}"
    );
    assert_eq!(register.load(&key).await.unwrap(), Some(record(1)));
}

/// The positive control: a replica that hasn't received the latest swaps takes over, and the checker sees the loss.
#[tokio::test(flavor = "multi_thread")]
async fn a_failover_with_loss_is_seen() {
    let (primary, replica) = (durable().await, start(&[]).await);
    let proxy = Proxy::start(primary.address()).await;
    let through = Proxy::start(primary.address()).await;
    let register = Arc::new(connect(&format!("redis://{}", proxy.address())).await);
    let clients = Clients::new("failover", 3, 4).run(&register, 5).await;
    // The replica has all swaps so far, and receives no more.
    let port = through.address().port().to_string();
    replicate(&replica, &port).await;
    through.set(Network::Silent);
    let clients = clients.run(&register, 5).await;
    // The service's address now leads to the promoted replica.
    drop(primary);
    send(&replica, &["REPLICAOF", "NO", "ONE"]).await;
    proxy.redirect(replica.address());
    let clients = clients.run(&register, 5).await;
    let violation = clients
        .check(&*register)
        .await
        .expect_err("acknowledged swaps were lost");
    assert!(
        matches!(violation.kind(), ViolationKind::Fork | ViolationKind::Stale),
        "{violation}"
    );
    let identity = send(&replica, &["GET", "ifmatch:identity"]).await;
    assert!(identity.contains(" 1 "), "the epoch has risen: {identity}");
}

/// Records of a backup were loaded into the server that runs.
#[tokio::test(flavor = "multi_thread")]
async fn versions_from_before_a_restore_are_unknown() {
    let server = start(&[]).await;
    let (before, key) = (connect(&server.url()).await, Key::new("key").unwrap());
    before
        .compare_and_swap(&key, Revision::NONE, Some(&record(1)))
        .await
        .unwrap();
    assert_eq!(ifmatch_redis::restored(&server.url()).await.unwrap(), 1);
    for register in [before, connect(&server.url()).await] {
        let driver = Driver::new(register);
        let found = driver.load(&key).await.unwrap();
        assert_eq!(
            (
                found.state(driver.now()),
                driver.register().engine().epoch.number
            ),
            (&State::Unknown, 1)
        );
        assert!(found.revision() > Revision::new(1));
    }
}

/// The service's address leads to the former primary again. It lacks the swaps since the failover, and acknowledges others.
#[tokio::test(flavor = "multi_thread")]
async fn a_former_primary_is_not_used_again() {
    let (primary, replica) = (durable().await, start(&[]).await);
    // A primary has another replication id once the first replica has connected.
    replicate(&replica, &primary.address().port().to_string()).await;
    let proxy = Proxy::start(primary.address()).await;
    let register = connect(&format!("redis://{}", proxy.address())).await;
    let key = Key::new("key").unwrap();
    let (first, second) = (record(1), record(2));
    register
        .compare_and_swap(&key, Revision::NONE, Some(&first))
        .await
        .unwrap();
    within("the record on the replica", async {
        while send(&replica, &["GET", "ifmatch:r/key"]).await == "nil" {
            tokio::time::sleep(PAUSE).await;
        }
    })
    .await;
    send(&replica, &["REPLICAOF", "NO", "ONE"]).await;
    proxy.redirect(replica.address());
    // The first calls find that their connections have ended.
    within("a swap on the promoted replica", async {
        while register
            .compare_and_swap(&key, first.revision(), Some(&second))
            .await
            .is_err()
        {
            tokio::time::sleep(PAUSE).await;
        }
    })
    .await;
    proxy.redirect(primary.address());
    within("the refusal of the former primary", async {
        loop {
            match register.load(&key).await {
                Ok(found) => assert_eq!(found.as_ref(), Some(&second)),
                Err(error) if error.to_string().contains("a former primary") => break,
                Err(_) => tokio::time::sleep(PAUSE).await,
            }
        }
    })
    .await;
}

/// Makes a server the replica of the one on this port, and waits until it is connected.
async fn replicate(replica: &Server, port: &str) {
    send(replica, &["REPLICAOF", "127.0.0.1", port]).await;
    within("the replica's connection", async {
        while !send(replica, &["INFO", "replication"])
            .await
            .contains("master_link_status:up")
        {
            tokio::time::sleep(PAUSE).await;
        }
    })
    .await;
}

/// A server that syncs each swap ends when it can't write. Acknowledged swaps are there once it has space.
#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_loses_no_acknowledged_swap() {
    let mut server = durable().await;
    let register = connect(&server.url()).await;
    server.limit_files(Some(1 << 20));
    let (written, error) = fill(&*register).await;
    assert_ne!(error.kind(), RegisterErrorKind::Unreadable, "{error}");
    server.restart().await;
    check_filled(&*register, written).await;
}
