//! Faults of the members and of the network.

use std::sync::Arc;

use ifmatch_core::command::{Command, Content, Outcome, Write};
use ifmatch_core::digest::ContentHash;
use ifmatch_core::precondition::Preconditions;
use ifmatch_core::record::{Record, Revision};
use ifmatch_etcd::EtcdRegister;
use ifmatch_register::{Driver, Key, Register, RegisterErrorKind, Swap};
use ifmatch_testbed::etcd::{Isolable, Isolation, etcdctl, start, start_three};
use ifmatch_testbed::{Clients, Network, Proxy, Server};

use crate::common::connect;

fn record(revision: u64) -> Record {
    Record::forgotten(Revision::new(revision))
}

#[tokio::test(flavor = "multi_thread")]
async fn acknowledged_swaps_survive_kills() {
    let mut server = start(&[]).await;
    let register = Arc::new(connect(&server.url()).await);
    let mut clients = Clients::new("kill", 3, 8);
    for _ in 0..2 {
        clients = clients.run_during(&register, 20, server.restart()).await;
    }
    clients.check(&*register).await.unwrap();
}

/// Each member is killed once, the leader among them. The others go on.
#[tokio::test(flavor = "multi_thread")]
async fn acknowledged_swaps_survive_the_end_of_the_leader() {
    let mut members = start_three().await;
    let addresses: Vec<String> = members.iter().map(|member| member.address().to_string()).collect();
    let register = Arc::new(connect(&format!("etcd://{}/prefix", addresses.join(","))).await);
    let mut clients = Clients::new("leader", 3, 8);
    for member in &mut members {
        clients = clients.run_during(&register, 20, async { member.kill() }).await;
        member.restart().await;
    }
    clients.check(&*register).await.unwrap();
}

/// The leader is cut off from the other members, but not from its clients. It acknowledges nothing, and shows no record that
/// may be outdated, while the others go on.
#[tokio::test(flavor = "multi_thread")]
async fn an_isolated_leader_answers_nothing() {
    let cluster = Isolable::start().await;
    let addresses: Vec<String> = cluster.members.iter().map(|member| member.address().to_string()).collect();
    let mut clients = Clients::new("isolated", 3, 8);
    let mut last = None;
    for isolation in [Isolation::Full, Isolation::Inbound, Isolation::Outbound] {
        let leader = cluster.leader().await;
        let mut order = addresses.clone();
        // A register uses the first member until it fails.
        order.swap(0, leader);
        let register = Arc::new(connect(&format!("etcd://{}", order.join(","))).await);
        let alone = connect(&format!("etcd://{}", addresses[leader])).await;
        clients = clients.run(&register, 1).await;
        cluster.isolate(leader, isolation);
        let key = clients.workload().keys()[0].clone();
        if isolation == Isolation::Full {
            assert!(alone.load(&key).await.is_err(), "a leader without the others does not know the current record");
        }
        clients = clients.run(&register, 5).await;
        cluster.heal();
        last = Some(register);
    }
    clients.check(&*last.unwrap()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_suspended_server_is_used_again() {
    let server = start(&[]).await;
    let register = Arc::new(connect(&server.url()).await);
    let clients = Clients::new("stop", 3, 8).run_through(&register, || server.pause(), || server.resume()).await;
    clients.check(&*register).await.unwrap();
}

/// Each member hangs once, the leader among them. The others go on.
#[tokio::test(flavor = "multi_thread")]
async fn the_others_go_on_while_a_member_hangs() {
    let members = start_three().await;
    let addresses: Vec<String> = members.iter().map(|member| member.address().to_string()).collect();
    let register = Arc::new(connect(&format!("etcd://{}/prefix", addresses.join(","))).await);
    let mut clients = Clients::new("hang", 3, 8);
    for member in &members {
        member.pause();
        clients = clients.run(&register, 5).await;
        member.resume();
    }
    clients.check(&*register).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_network_that_delivers_nothing_is_used_again() {
    let (server, proxy, register) = behind_proxy().await;
    let register = Arc::new(register);
    let mut clients = Clients::new("network", 3, 8);
    for network in [Network::BlackHole, Network::Silent, Network::Reset] {
        clients = clients.run_through(&register, || proxy.set(network), || proxy.set(Network::Whole)).await;
    }
    clients.check(&connect(&server.url()).await).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn compaction_changes_nothing() {
    let server = start(&[]).await;
    let register = Arc::new(connect(&server.url()).await);
    let clients = Clients::new("compaction", 3, 4)
        .run_during(&register, 20, async {
            for _ in 0..5 {
                let status = etcdctl(&server, &["endpoint", "status", "--write-out=json"]);
                let (_, revision) = status.split_once("\"revision\":").unwrap();
                let revision = revision.split(|letter: char| !letter.is_ascii_digit()).next().unwrap();
                // Another round may have compacted the same revision.
                etcdctl(&server, &["put", "other", revision]);
                etcdctl(&server, &["compact", revision]);
            }
            etcdctl(&server, &["defrag"]);
        })
        .await;
    clients.check(&*register).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_database_rejects_swaps_and_shows_records() {
    let server = start(&["--quota-backend-bytes", "1048576"]).await;
    let register = connect(&server.url()).await;
    let bytes = vec![7; 60_000];
    let content = Content::Hashed { hash: ContentHash::of(&bytes), payload: bytes.into() };
    let write = Write::new(&http::Method::PUT, &Preconditions::NONE, content, 1);
    let large = Record::absent().apply(&Command::Write(write), Revision::new(1).timestamp()).next.unwrap();
    let mut written = Vec::new();
    let error = loop {
        let key = Key::new(format!("large/{}", written.len())).unwrap();
        match register.compare_and_swap(&key, Revision::NONE, Some(&large)).await {
            Ok(swap) => {
                assert_eq!(swap, Swap::Done);
                written.push(key);
            }
            Err(error) => {
                assert_eq!(register.load(&key).await.unwrap(), None, "the swap did not take place");
                break error;
            }
        }
    };
    assert_eq!(error.kind(), RegisterErrorKind::Full, "{error}");
    for key in written {
        assert_eq!(register.load(&key).await.unwrap().as_ref(), Some(&large));
    }
}

/// The connection ends with the server's next bytes, which may be those of the answer or earlier ones. The swap takes place
/// or does not, but never after another one that expects the same revision.
#[tokio::test(flavor = "multi_thread")]
async fn a_swap_without_an_answer_is_ambiguous_and_never_sent_twice() {
    let (server, proxy, register) = behind_proxy().await;
    let direct = connect(&server.url()).await;
    for number in 0..20 {
        let key = Key::new(format!("key/{number}")).unwrap();
        // Opens the connection of the key's lane again.
        let swap = register.compare_and_swap(&key, Revision::new(99), None).await.unwrap();
        assert_eq!(swap, Swap::Conflict(None));
        proxy.set(Network::CutAfterCommit);
        let first = register.compare_and_swap(&key, Revision::NONE, Some(&record(1))).await;
        let second = direct.compare_and_swap(&key, Revision::NONE, Some(&record(2))).await.unwrap();
        let found = match (first, second) {
            (Ok(first), Swap::Conflict(found)) => {
                assert_eq!(first, Swap::Done);
                found
            }
            (Err(error), second) => {
                assert_eq!(error.kind(), RegisterErrorKind::Ambiguous, "{error}");
                if let Swap::Conflict(found) = second { found } else { Some(record(2)) }
            }
            (first, second) => panic!("both took place: {first:?} and {second:?}"),
        };
        proxy.set(Network::Whole);
        assert_eq!(register.load(&key).await.unwrap(), found);
    }
}

/// The answer of each swap is lost. The driver finds out if its write took place: none is doubled, none denied.
#[tokio::test(flavor = "multi_thread")]
async fn a_driver_resolves_lost_answers() {
    let (server, proxy, register) = behind_proxy().await;
    let driver = Driver::new(register).assume_absent();
    let direct = Driver::new(connect(&server.url()).await).assume_absent();
    let key = Key::new("key").unwrap();
    for number in 0..20_u64 {
        let bytes = number.to_be_bytes().to_vec();
        let content = Content::Hashed { hash: ContentHash::of(&bytes), payload: bytes.into() };
        let nonce = ifmatch_runtime::nonce().unwrap();
        let write = Command::Write(Write::new(&http::Method::PUT, &Preconditions::NONE, content, nonce));
        let before = direct.load(&key).await.unwrap();
        // Opens the connection of the key's lane again.
        driver.register().compare_and_swap(&key, Revision::new(1), None).await.unwrap();
        proxy.set(Network::CutAfterCommit);
        let applied = driver.apply_to(&key, Some(before), &write).await.unwrap();
        proxy.set(Network::Whole);
        assert!(matches!(applied.outcome, Outcome::Written(_)), "{:?}", applied.outcome);
        assert_eq!(applied.after, direct.load(&key).await.unwrap(), "the write took place once");
    }
}

async fn behind_proxy() -> (Server, Proxy, EtcdRegister) {
    let server = start(&[]).await;
    let proxy = Proxy::start(server.address()).await;
    let register = connect(&format!("etcd://{}", proxy.address())).await;
    (server, proxy, register)
}
