//! The register on a real server: the conformance suite through one handle, two handles and two processes.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::connect;
use futures_util::future::join_all;
use ifmatch_core::command::{Command, Content, Write};
use ifmatch_core::date::Timestamp;
use ifmatch_core::digest::ContentHash;
use ifmatch_core::precondition::Preconditions;
use ifmatch_core::record::{Record, Revision};
use ifmatch_register::conformance::{self, Traits};
use ifmatch_register::{Key, Register, Scan, Swap};
use ifmatch_testbed::etcd::start;

fn traits() -> Traits {
    Traits::default().with_race(8, 5)
}

#[tokio::test(flavor = "multi_thread")]
async fn conforms() {
    let server = start(&[]).await;
    conformance::run(connect(&server.url()).await, traits()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn conforms_through_two_handles() {
    let server = start(&[]).await;
    conformance::run_shared(async || connect(&server.url()).await, traits()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_processes_share_the_register() {
    let start = async || {
        let server = start(&[]).await;
        (server.url(), server)
    };
    let open = async |url: &str| connect(url).await;
    conformance::run_in_two_processes("two_processes_share_the_register", start, open, traits()).await;
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
        let before: Vec<Revision> = join_all(keys.iter().map(|key| register.load(key)))
            .await
            .into_iter()
            .map(|found| found.unwrap().as_ref().map_or(Revision::NONE, Record::revision))
            .collect();
        let swaps = keys.iter().zip(&before).zip(&records);
        let swaps = swaps.map(|((key, before), record)| register.compare_and_swap(key, *before, Some(record)));
        for swap in join_all(swaps).await {
            assert_eq!(swap.unwrap(), Swap::Done);
        }
        let scan = Scan { limit: 1_000, ..Scan::default() };
        let found: Vec<Record> = register.scan(&scan).await.unwrap().into_iter().map(|(_, record)| record).collect();
        assert!(found == records);
    }
}
