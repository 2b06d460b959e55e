//! Records that the register removes, and records that it must keep.

use std::sync::Arc;

use http::Method;
use ifmatch_blob_objects::{Backing, ObjectBlobs};
use ifmatch_core::command::{Authority, Command, Content, LeaseOperation, Write};
use ifmatch_core::date::Timestamp;
use ifmatch_core::digest::ContentHash;
use ifmatch_core::lease::LeaseUse;
use ifmatch_core::precondition::Preconditions;
use ifmatch_core::record::Record;
use ifmatch_register::{Key, Register};
use object_store::memory::InMemory;

use crate::{register, subject};
use ifmatch_blob::conformance::leases::acquire;
use ifmatch_blob::conformance::{blob, if_match};

/// Long before any of these tests runs.
const LONG_AGO: Timestamp = Timestamp::from_micros(1_600_000_000_000_000);

/// An old record: a version or a deletion, optionally with an infinite lease.
async fn known(register: &Arc<dyn Register>, key: &str, content: Content, is_leased: bool) {
    let nothing = Preconditions::default();
    let write = Write::new(&Method::PUT, &nothing, content, 1).with_lease(LeaseUse::Read(None));
    let lease = LeaseOperation::new(acquire(1).action, &nothing, 2).with_authority(Authority::Register);
    let mut record = Record::unknown().apply(&Command::Write(write), LONG_AGO).next.expect("written");
    if is_leased {
        record = record.apply(&Command::Lease(lease), LONG_AGO).next.expect("leased");
    }
    let before = Record::unknown().revision();
    register.compare_and_swap(&Key::new(key).unwrap(), before, Some(&record)).await.unwrap();
}

/// A container deleted at the given time.
pub(crate) async fn deleted_long_ago(register: &Arc<dyn Register>, key: &str) {
    known(register, key, Content::Absent, false).await;
}

fn version() -> Content {
    Content::Hashed { hash: ContentHash::of(b""), payload: r#"{"metadata":{}}"#.into() }
}

#[tokio::test]
async fn only_records_that_the_store_repeats_are_removed() {
    let register = register();
    let backing = Backing::new(Arc::new(InMemory::new()));
    let blobs = ObjectBlobs::open_durable(backing, register.clone()).await.unwrap();
    known(&register, "b/c/old", version(), false).await;
    known(&register, "b/c/gone", Content::Absent, false).await;
    known(&register, "b/c/leased", version(), true).await;
    known(&register, "c/gone", Content::Absent, false).await;
    known(&register, "c/empty", version(), false).await;
    let subject = subject(blobs.clone());
    let young = subject.write(&blob("c", "young"), "1").await.tag.unwrap();

    assert_eq!(blobs.forget_idle().await.unwrap(), 3);
    let is_there = async |key: &str| register.load(&Key::new(key).unwrap()).await.unwrap().is_some();
    for (key, stays) in [
        ("b/c/old", false),
        ("b/c/gone", false),
        ("b/c/leased", true),
        ("b/c/young", true),
        ("c/gone", false),
        ("c/empty", true),
        ("c/c", true),
    ] {
        assert_eq!(is_there(key).await, stays, "{key}");
    }
    assert_eq!(blobs.forget_idle().await.unwrap(), 0);
    subject.write_if(&blob("c", "young"), if_match(&young), "2").await.unwrap();
}
