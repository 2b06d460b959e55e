//! The register on a real server: the conformance suite through one handle, two handles and two processes.

use std::time::Duration;

use futures_util::future::join_all;
use ifmatch_core::command::{Begin, Command, Content, Outcome, Write};
use ifmatch_core::date::Timestamp;
use ifmatch_core::digest::ContentHash;
use ifmatch_core::precondition::Preconditions;
use ifmatch_core::record::{Record, Revision};
use ifmatch_etcd::EtcdRegister;
use ifmatch_register::conformance::{self, RaceSize};
use ifmatch_register::{Driver, Key, Register, RegisterErrorKind, Scan, Swap};
use ifmatch_runtime::{Clock, SystemClock};
use ifmatch_testbed::etcd::start;

use crate::common::connect;

fn size() -> RaceSize {
    RaceSize::new(8, 5)
}

#[tokio::test(flavor = "multi_thread")]
async fn conforms() {
    let server = start(&[]).await;
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

/// Replaces whatever record there is. On a busy machine, the first attempts may exceed the time limit.
async fn replace(register: &EtcdRegister, key: &Key, record: &Record) {
    loop {
        let Ok(found) = register.load(key).await else { continue };
        if found.as_ref() == Some(record) {
            return;
        }
        let before = found.as_ref().map_or(Revision::NONE, Record::revision);
        match register.compare_and_swap(key, before, Some(record)).await {
            Ok(swap) => {
                assert!(matches!(&swap, Swap::Done) || swap == Swap::Conflict(Some(record.clone())), "{swap:?}");
            }
            Err(error) => {
                let is_unclear = [RegisterErrorKind::Unavailable, RegisterErrorKind::Ambiguous].contains(&error.kind());
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
    replace(&register, &other, &Record::forgotten(Revision::new(ahead.micros()))).await;
    let driver = Driver::new(connect(&server.url()).await);
    let (none, key) = (Preconditions::NONE, Key::new("key").unwrap());
    let begin = async || {
        let begin = Begin::new(&http::Method::PUT, &none, ifmatch_runtime::nonce().unwrap(), Duration::from_mins(1));
        driver.apply(&key, &Command::Begin(begin)).await
    };
    let granted = begin().await.expect("nothing is known of another clock").outcome;
    let Outcome::Granted(grant) = granted else { panic!("{granted:?}") };
    driver.apply(&key, &Command::Abort(grant.token)).await.unwrap();
    driver.load(&other).await.unwrap();
    let error = begin().await.expect_err("it is known");
    assert!(error.to_string().contains("is not known precisely"), "{error}");
}

/// A batch is divided into transactions by the number and by the length of its records.
#[tokio::test(flavor = "multi_thread")]
async fn batches_of_any_size_are_swapped() {
    let server = start(&[]).await;
    let register = connect(&server.url()).await;
    let payload = |number: u64| (0..30_000_u64).map(|at| (at ^ number).to_le_bytes()[0]).collect::<Vec<u8>>();
    let write = |number: u64, length: usize| {
        let bytes = payload(number)[..length].to_vec();
        let content = Content::Hashed { hash: ContentHash::of(&bytes), payload: bytes.into() };
        let write = Write::new(&http::Method::PUT, &Preconditions::NONE, content, number);
        Record::absent().apply(&Command::Write(write), Timestamp::from_micros(number + 1)).next.unwrap()
    };
    let keys: Vec<Key> = (0..300).map(|number| Key::new(format!("{number:03}")).unwrap()).collect();
    for length in [1, 30_000] {
        let records: Vec<Record> = (0..300).map(|number| write(number + length as u64, length)).collect();
        join_all(keys.iter().zip(&records).map(|(key, record)| replace(&register, key, record))).await;
        let scan = Scan { limit: 1_000, ..Scan::default() };
        let page = loop {
            match register.scan(&scan).await {
                Ok(page) => break page,
                Err(error) => assert_eq!(error.kind(), RegisterErrorKind::Unavailable, "{error}"),
            }
        };
        assert!(page.into_iter().map(|(_, record)| record).eq(records));
    }
}
