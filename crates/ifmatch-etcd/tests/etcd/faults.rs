//! Clusters with members that fail, hang or are cut off, clocks that disagree, and batches of any size.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use ifmatch_core::command::{Begin, Command, Outcome};
use ifmatch_core::precondition::Preconditions;
use ifmatch_core::record::{Record, Revision};
use ifmatch_register::{Driver, Key, Register, RegisterErrorKind, Scan, Swap};
use ifmatch_runtime::{Clock, SystemClock};
use ifmatch_testbed::engine::created;
use ifmatch_testbed::etcd::{Isolable, Isolation, etcdctl, start, start_three};
use ifmatch_testbed::{Clients, Server, within};

use crate::connect;

/// Returns the members' addresses for clients.
fn addresses(members: &[Server]) -> Vec<String> {
    let address = |member: &Server| member.address().to_string();
    members.iter().map(address).collect()
}

/// Each member is killed once, the leader among them. The others go on.
#[tokio::test(flavor = "multi_thread")]
async fn acknowledged_swaps_survive_the_end_of_the_leader() {
    let mut members = start_three().await;
    let addresses = addresses(&members);
    let register = Arc::new(connect(&format!("etcd://{}/prefix", addresses.join(","))).await);
    let mut clients = Clients::new("leader", 3, 8);
    for member in &mut members {
        clients = clients
            .run_during(&register, 20, async { member.kill() })
            .await;
        member.restart().await;
    }
    clients.check(&*register).await.unwrap();
}

/// The leader is cut off from the other members, but not from its clients. It acknowledges nothing, and shows no record that
/// may be outdated, while the others go on.
#[tokio::test(flavor = "multi_thread")]
async fn an_isolated_leader_answers_nothing() {
    let cluster = Isolable::start().await;
    let addresses = addresses(&cluster.members);
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
            assert!(
                alone.load(&key).await.is_err(),
                "a leader without the others does not know the current record"
            );
        }
        clients = clients.run(&register, 5).await;
        cluster.heal();
        last = Some(register);
    }
    clients.check(&*last.unwrap()).await.unwrap();
}

/// Each member hangs once, the leader among them. The others go on.
#[tokio::test(flavor = "multi_thread")]
async fn the_others_go_on_while_a_member_hangs() {
    let members = start_three().await;
    let addresses = addresses(&members);
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
async fn compaction_changes_nothing() {
    let server = start(&[]).await;
    let register = Arc::new(connect(&server.url()).await);
    let clients = Clients::new("compaction", 3, 4)
        .run_during(&register, 20, async {
            for _ in 0..5 {
                let status = etcdctl(&server, &["endpoint", "status", "--write-out=json"]);
                let (_, revision) = status.split_once("\"revision\":").unwrap();
                let revision = revision
                    .split(|letter: char| !letter.is_ascii_digit())
                    .next()
                    .unwrap();
                // Another round may have compacted the same revision.
                etcdctl(&server, &["put", "other", revision]);
                etcdctl(&server, &["compact", revision]);
            }
            etcdctl(&server, &["defrag"]);
        })
        .await;
    clients.check(&*register).await.unwrap();
}

/// Replaces whatever record there is. On a busy machine, the first attempts may exceed the time limit.
async fn replace(register: &dyn Register, key: &Key, record: &Record) {
    within("a replaced record", try_replace(register, key, record)).await;
}

/// Tries until the record is there.
async fn try_replace(register: &dyn Register, key: &Key, record: &Record) {
    loop {
        let Ok(found) = register.load(key).await else {
            continue;
        };
        if found.as_ref() == Some(record) {
            return;
        }
        let before = found.as_ref().map_or(Revision::NONE, Record::revision);
        match register.compare_and_swap(key, before, Some(record)).await {
            Ok(swap) => {
                assert!(
                    matches!(&swap, Swap::Done) || swap == Swap::Conflict(Some(record.clone())),
                    "{swap:?}"
                );
            }
            Err(error) => {
                let is_unclear = [RegisterErrorKind::Unavailable, RegisterErrorKind::Ambiguous]
                    .contains(&error.kind());
                assert!(is_unclear, "{error}");
            }
        }
    }
}

/// A process whose clock is an hour ahead has written a record. It would break the permits of this one at once.
#[tokio::test(flavor = "multi_thread")]
async fn no_permit_is_granted_while_the_clock_of_another_process_is_ahead() {
    let server = start(&[]).await;
    let (register, other) = (connect(&server.url()).await, Key::new("other").unwrap());
    let ahead = SystemClock.now().saturating_add(Duration::from_hours(1));
    replace(
        &*register,
        &other,
        &Record::forgotten(Revision::new(ahead.micros())),
    )
    .await;
    let driver = Driver::new(connect(&server.url()).await);
    let (none, key) = (Preconditions::NONE, Key::new("key").unwrap());
    let begin = async || {
        let begin = Begin::new(
            &http::Method::PUT,
            &none,
            ifmatch_runtime::nonce().unwrap(),
            Duration::from_mins(1),
        );
        driver.apply(&key, &Command::Begin(begin)).await
    };
    let granted = begin()
        .await
        .expect("nothing is known of another clock")
        .outcome;
    let Outcome::Granted(grant) = granted else {
        panic!("{granted:?}")
    };
    driver
        .apply(&key, &Command::Abort(grant.token))
        .await
        .unwrap();
    driver.load(&other).await.unwrap();
    let error = begin().await.expect_err("it is known");
    assert!(
        error.to_string().contains("is not known precisely"),
        "{error}"
    );
}

/// A batch is divided into transactions by the number and by the length of its records.
#[tokio::test(flavor = "multi_thread")]
async fn batches_of_any_size_are_swapped() {
    let server = start(&[]).await;
    let register = connect(&server.url()).await;
    let payload = |number: u64| (0..30_000_u64).map(move |at| (at ^ number).to_le_bytes()[0]);
    let write = |number: u64, length: usize| {
        created(
            payload(number).take(length).collect::<Vec<u8>>(),
            number + 1,
        )
    };
    let keys: Vec<Key> = (0..300)
        .map(|number| Key::new(format!("{number:03}")).unwrap())
        .collect();
    for length in [1, 30_000] {
        let records: Vec<Record> = (0..300)
            .map(|number| write(number + length as u64, length))
            .collect();
        join_all(
            keys.iter()
                .zip(&records)
                .map(|(key, record)| replace(&*register, key, record)),
        )
        .await;
        let scan = Scan {
            limit: 1_000,
            ..Scan::default()
        };
        let scanned = async {
            loop {
                match register.scan(&scan).await {
                    Ok(page) => return page,
                    Err(error) => {
                        assert_eq!(error.kind(), RegisterErrorKind::Unavailable, "{error}");
                    }
                }
            }
        };
        let page = within("a page of records", scanned).await;
        assert!(page.into_iter().map(|(_, record)| record).eq(records));
    }
}
