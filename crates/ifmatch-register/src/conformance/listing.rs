//! Guarantees of listings.

use ifmatch_core::record::{Record, Revision};

use super::{fresh_key, written};
use crate::key::Key;
use crate::register::{Register, Scan};

pub(super) async fn pages_cover_the_prefix_in_order(register: &dyn Register) {
    let base = fresh_key("pages");
    let inside = format!("{base}/in/");
    let mut names: Vec<String> = ["b", "a/b", "a", "a b", "Z", "ä", "a%", "a_c", "aa", "10", "9"]
        .iter()
        .map(|n| format!("{inside}{n}"))
        .collect();
    for name in names.iter().chain([&format!("{base}/in"), &format!("{base}/io"), &format!("{base}/im/x")]) {
        let key = Key::new(name.as_str()).expect("the key is short");
        let record = written(&Record::absent(), name.as_bytes());
        register.compare_and_swap(&key, Revision::NONE, Some(&record)).await.expect("swap");
    }
    names.sort_unstable();
    for limit in [1, 3, names.len(), 100] {
        let mut seen = Vec::new();
        loop {
            let after = seen.last().cloned();
            let scan = Scan { prefix: &inside, after: after.as_deref(), limit };
            let page = register.scan(&scan).await.expect("scan");
            if page.is_empty() {
                break;
            }
            assert!(page.len() <= limit, "a page is no longer than asked for");
            for (key, record) in page {
                let version = record.settled(record.revision().timestamp());
                let payload = version.map(|version| version.payload().as_ref());
                assert_eq!(payload, Some(key.as_str().as_bytes()), "each key comes with its own record");
                seen.push(key.as_str().to_owned());
            }
        }
        assert_eq!(seen, names, "pages of {limit} show every key once, in the order of bytes");
    }
}

pub(super) async fn listing_shows_current_records(register: &dyn Register) {
    let key = fresh_key("current");
    let first = written(&Record::absent(), b"first");
    let second = written(&first, b"second");
    let scan = Scan { prefix: key.as_str(), after: None, limit: 10 };
    register.compare_and_swap(&key, Revision::NONE, Some(&first)).await.expect("swap");
    register.compare_and_swap(&key, first.revision(), Some(&second)).await.expect("swap");
    assert_eq!(register.scan(&scan).await.expect("scan"), [(key.clone(), second.clone())]);
    register.compare_and_swap(&key, second.revision(), None).await.expect("swap");
    assert_eq!(register.scan(&scan).await.expect("scan"), [], "a forgotten record is not listed");
}

/// A page shows every swap made before it was requested, including swaps between two pages of one listing.
pub(super) async fn each_page_is_as_fresh_as_a_load(register: &dyn Register) {
    let base = fresh_key("fresh-pages");
    let key = |name: &str| Key::new(format!("{base}/{name}")).expect("the key is short");
    let [a, b, c, d] = ["a", "b", "c", "d"].map(|name| written(&Record::absent(), name.as_bytes()));
    for (name, record) in [("a", &a), ("b", &b), ("c", &c)] {
        register.compare_and_swap(&key(name), Revision::NONE, Some(record)).await.expect("swap");
    }
    let prefix = format!("{base}/");
    let scan = Scan { prefix: &prefix, after: None, limit: 1 };
    assert_eq!(register.scan(&scan).await.expect("scan"), [(key("a"), a)]);

    let second = written(&c, b"second");
    register.compare_and_swap(&key("b"), b.revision(), None).await.expect("swap");
    register.compare_and_swap(&key("c"), c.revision(), Some(&second)).await.expect("swap");
    register.compare_and_swap(&key("d"), Revision::NONE, Some(&d)).await.expect("swap");
    for (after, expected) in [("a", ("c", second)), ("c", ("d", d))] {
        let after = key(after);
        let page = register.scan(&Scan { after: Some(after.as_str()), ..scan }).await.expect("scan");
        assert_eq!(page, [(key(expected.0), expected.1)], "a page shows all swaps before its request");
    }
}
