//! The contract, requirement by requirement: swaps, loads and listings.

use std::time::Duration;

use http::Method;
use ifmatch_core::command::{Authority, Begin, Command, Outcome};
use ifmatch_core::date::Timestamp;
use ifmatch_core::precondition::Preconditions;
use ifmatch_core::record::{Record, RequestId, Revision};

use super::{fresh_key, put, written};
use crate::key::Key;
use crate::register::{Register, Scan, Swap};

pub(super) async fn absent_key_loads_nothing(register: &dyn Register) {
    let loaded = register.load(&fresh_key("absent")).await.expect("load");
    assert_eq!(loaded, None, "a key that was never written has no record");
}

pub(super) async fn created_once(register: &dyn Register) {
    let key = fresh_key("create");
    let (first, second) = (
        written(&Record::absent(), b"first"),
        written(&Record::absent(), b"second"),
    );
    let swap = register
        .compare_and_swap(&key, Revision::NONE, Some(&first))
        .await
        .expect("swap");
    assert_eq!(
        swap,
        Swap::Done,
        "a record is created where none is expected and none is"
    );
    let swap = register
        .compare_and_swap(&key, Revision::NONE, Some(&second))
        .await
        .expect("swap");
    assert_eq!(
        swap,
        Swap::Conflict(Some(first.clone())),
        "a second creation conflicts and shows the first"
    );
    assert_eq!(
        register.load(&key).await.expect("load"),
        Some(first),
        "the conflict changed nothing"
    );
}

pub(super) async fn replaced_at_the_expected_revision_only(register: &dyn Register) {
    let key = fresh_key("replace");
    let first = written(&Record::absent(), b"first");
    let second = written(&first, b"second");
    let swap = register
        .compare_and_swap(&key, first.revision(), Some(&second))
        .await
        .expect("swap");
    assert_eq!(
        swap,
        Swap::Conflict(None),
        "a missing record cannot be replaced"
    );
    register
        .compare_and_swap(&key, Revision::NONE, Some(&first))
        .await
        .expect("swap");
    let swap = register
        .compare_and_swap(&key, first.revision(), Some(&second))
        .await
        .expect("swap");
    assert_eq!(swap, Swap::Done, "a record is replaced at its revision");
    let third = written(&first, b"third");
    let swap = register
        .compare_and_swap(&key, first.revision(), Some(&third))
        .await
        .expect("swap");
    assert_eq!(
        swap,
        Swap::Conflict(Some(second.clone())),
        "a stale revision conflicts and shows the current record"
    );
    assert_eq!(
        register.load(&key).await.expect("load"),
        Some(second),
        "the conflict changed nothing"
    );
}

pub(super) async fn forgotten_at_the_expected_revision_only(register: &dyn Register) {
    let key = fresh_key("forget");
    let first = written(&Record::absent(), b"first");
    register
        .compare_and_swap(&key, Revision::NONE, Some(&first))
        .await
        .expect("swap");
    let stale = Revision::new(first.revision().get() + 1);
    let swap = register
        .compare_and_swap(&key, stale, None)
        .await
        .expect("swap");
    assert_eq!(
        swap,
        Swap::Conflict(Some(first.clone())),
        "a removal at another revision fails"
    );
    let swap = register
        .compare_and_swap(&key, first.revision(), None)
        .await
        .expect("swap");
    assert_eq!(swap, Swap::Done, "a record is forgotten at its revision");
    assert_eq!(
        register.load(&key).await.expect("load"),
        None,
        "a forgotten record is gone"
    );
    let swap = register
        .compare_and_swap(&key, Revision::NONE, Some(&first))
        .await
        .expect("swap");
    assert_eq!(
        swap,
        Swap::Done,
        "a key can be written again after it was forgotten"
    );
}

pub(super) async fn every_part_of_a_record_is_kept(register: &dyn Register) {
    let key = fresh_key("parts");
    let none = Preconditions::default();
    let mut write = put(b"content", &none);
    write.request = Some(RequestId::of(&[b"a request"]));
    let now = Timestamp::from_micros(1_700_000_000_000_000);
    let present = Record::absent()
        .apply(&Command::Write(write), now)
        .next
        .expect("a write");
    let begin = Command::Begin(
        Begin::new(&Method::PUT, &none, u64::MAX, Duration::from_secs(30))
            .with_authority(Authority::Register),
    );
    let transition = present.apply(&begin, now);
    assert!(matches!(transition.outcome, Outcome::Granted(_)));
    let in_flight = transition.next.expect("a grant");
    register
        .compare_and_swap(&key, Revision::NONE, Some(&in_flight))
        .await
        .expect("swap");
    let loaded = register.load(&key).await.expect("load");
    assert_eq!(
        loaded,
        Some(in_flight),
        "state, permit and replies are loaded as stored"
    );
}

pub(super) async fn keys_are_distinguished(register: &dyn Register) {
    let base = fresh_key("keys");
    let names = [
        "a", "A", "a ", "a/", "a%", "a_", "ä", "a\u{308}", "日本", "a\\", "a'b", "a\"b",
    ];
    let keys: Vec<_> = names
        .iter()
        .map(|name| Key::new(format!("{base}/{name}")).expect("the key is short"))
        .collect();
    let records: Vec<_> = names
        .iter()
        .map(|name| written(&Record::absent(), name.as_bytes()))
        .collect();
    for (key, record) in keys.iter().zip(&records) {
        let swap = register
            .compare_and_swap(key, Revision::NONE, Some(record))
            .await
            .expect("swap");
        assert_eq!(swap, Swap::Done, "{key} is a separate key");
    }
    for (key, record) in keys.iter().zip(&records) {
        let loaded = register.load(key).await.expect("load");
        assert_eq!(loaded.as_ref(), Some(record), "{key} has its own record");
    }
    let longest = format!(
        "{base}/{}",
        "x".repeat(Key::MAX_LEN - base.as_str().len() - 1)
    );
    let longest = Key::new(longest).expect("the longest key");
    let swap = register
        .compare_and_swap(&longest, Revision::NONE, Some(&records[0]))
        .await
        .expect("swap");
    assert_eq!(swap, Swap::Done, "the longest key is accepted");
    assert_eq!(
        register.load(&longest).await.expect("load").as_ref(),
        Some(&records[0])
    );
}

pub(super) async fn large_payloads_are_kept(register: &dyn Register) {
    let key = fresh_key("large");
    let bytes: Vec<u8> = (0..64 * 1024_u32)
        .map(|at| at.to_le_bytes()[0] ^ 0x5a)
        .collect();
    let record = written(&Record::absent(), &bytes);
    register
        .compare_and_swap(&key, Revision::NONE, Some(&record))
        .await
        .expect("swap");
    assert_eq!(
        register.load(&key).await.expect("load"),
        Some(record),
        "64 KiB of payload are loaded as stored"
    );
}

pub(super) async fn pages_cover_the_prefix_in_order(register: &dyn Register) {
    let base = fresh_key("pages");
    let inside = format!("{base}/in/");
    let mut names: Vec<String> = [
        "b", "a/b", "a", "a b", "Z", "ä", "a%", "a_c", "aa", "10", "9",
    ]
    .iter()
    .map(|name| format!("{inside}{name}"))
    .collect();
    for name in names.iter().chain([
        &format!("{base}/in"),
        &format!("{base}/io"),
        &format!("{base}/im/x"),
    ]) {
        let key = Key::new(name.as_str()).expect("the key is short");
        let record = written(&Record::absent(), name.as_bytes());
        register
            .compare_and_swap(&key, Revision::NONE, Some(&record))
            .await
            .expect("swap");
    }
    names.sort_unstable();
    for limit in [1, 3, names.len(), 100] {
        let mut seen = Vec::new();
        loop {
            let after = seen.last().cloned();
            let scan = Scan {
                prefix: &inside,
                after: after.as_deref(),
                limit,
            };
            let page = register.scan(&scan).await.expect("scan");
            if page.is_empty() {
                break;
            }
            assert!(page.len() <= limit, "a page is no longer than asked for");
            for (key, record) in page {
                let version = record.settled(record.revision().timestamp());
                let payload = version.map(|version| version.payload().as_ref());
                assert_eq!(
                    payload,
                    Some(key.as_str().as_bytes()),
                    "each key comes with its own record"
                );
                seen.push(key.as_str().to_owned());
            }
            assert!(
                seen.len() <= names.len(),
                "a page begins after the last key of the one before"
            );
        }
        assert_eq!(
            seen, names,
            "pages of {limit} show every key once, in the order of bytes"
        );
    }
}

pub(super) async fn listing_shows_current_records(register: &dyn Register) {
    let key = fresh_key("current");
    let first = written(&Record::absent(), b"first");
    let second = written(&first, b"second");
    let scan = Scan {
        prefix: key.as_str(),
        after: None,
        limit: 10,
    };
    register
        .compare_and_swap(&key, Revision::NONE, Some(&first))
        .await
        .expect("swap");
    register
        .compare_and_swap(&key, first.revision(), Some(&second))
        .await
        .expect("swap");
    assert_eq!(
        register.scan(&scan).await.expect("scan"),
        [(key.clone(), second.clone())]
    );
    register
        .compare_and_swap(&key, second.revision(), None)
        .await
        .expect("swap");
    assert_eq!(
        register.scan(&scan).await.expect("scan"),
        [],
        "a forgotten record is not listed"
    );
}

/// A page shows every swap made before it was requested, including swaps between two pages of one listing.
pub(super) async fn each_page_is_as_fresh_as_a_load(register: &dyn Register) {
    let base = fresh_key("fresh-pages");
    let key = |name: &str| Key::new(format!("{base}/{name}")).expect("the key is short");
    let [a, b, c, d] = ["a", "b", "c", "d"].map(|name| written(&Record::absent(), name.as_bytes()));
    for (name, record) in [("a", &a), ("b", &b), ("c", &c)] {
        register
            .compare_and_swap(&key(name), Revision::NONE, Some(record))
            .await
            .expect("swap");
    }
    let prefix = format!("{base}/");
    let scan = Scan {
        prefix: &prefix,
        after: None,
        limit: 1,
    };
    assert_eq!(register.scan(&scan).await.expect("scan"), [(key("a"), a)]);

    let second = written(&c, b"second");
    register
        .compare_and_swap(&key("b"), b.revision(), None)
        .await
        .expect("swap");
    register
        .compare_and_swap(&key("c"), c.revision(), Some(&second))
        .await
        .expect("swap");
    register
        .compare_and_swap(&key("d"), Revision::NONE, Some(&d))
        .await
        .expect("swap");
    for (after, expected) in [("a", ("c", second)), ("c", ("d", d))] {
        let after = key(after);
        let page = register
            .scan(&Scan {
                after: Some(after.as_str()),
                ..scan
            })
            .await
            .expect("scan");
        assert_eq!(
            page,
            [(key(expected.0), expected.1)],
            "a page shows all swaps before its request"
        );
    }
}
