//! Orders of events between lookups, stores and purges.

use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::Duration;

use http::header::{ACCEPT_LANGUAGE, VARY};
use http::{HeaderValue, StatusCode};

use super::*;
use crate::body::in_memory::MemoryBody;
use crate::store::stored_response::{Arrival, StoredBody};

fn asking_for(language: &'static str) -> HeaderMap {
    HeaderMap::from_iter([(ACCEPT_LANGUAGE, HeaderValue::from_static(language))])
}

/// Returns a response for requests with this language.
fn stored(began: u64, language: &'static str) -> Stored {
    let arrival = Arrival {
        request: &asking_for(language),
        implicit_key: "",
        audience: crate::policy::audience::Audience::Shared,
        began,
        requested: Timestamp::default(),
        received: Timestamp::default(),
        heuristic: None,
        while_revalidate: Duration::ZERO,
        unstored: &[],
        always_validate: false,
    };
    let response = HeaderMap::from_iter([(VARY, HeaderValue::from_static("accept-language"))]);
    let body = StoredBody::Whole(Arc::new(MemoryBody::default()));
    Stored { meta: Arc::new(Meta::new(StatusCode::OK, &response, &arrival)), body }
}

#[test]
fn a_prefix_purge_leaves_other_prefixes_alone() {
    let table = Table::new(1 << 20, 1 << 16, None).0;
    let [inside, outside] = ["http://a.example/x/1", "http://a.example/y/1"].map(|url| Key::parse(url).remove(0));
    let began = table.next_ordinal();
    assert_eq!(table.invalidate_prefix("http://a.example/x/"), 0);
    assert!(!table.store(&inside, stored(began, "de"), |_, new| new));
    assert!(table.store(&outside, stored(began, "de"), |_, new| new));
    assert!(table.store(&inside, stored(table.next_ordinal(), "de"), |_, new| new));
    assert_eq!(table.invalidate_prefix("http://a.example/"), 2);
    assert!(!table.store(&outside, stored(began, "de"), |_, new| new));
}

#[test]
fn a_sweep_frees_the_memory_of_a_group() {
    let table = Table::new(1 << 20, 1 << 16, None).0;
    let key = Key::parse("http://a.example/").remove(0);
    let mut grouped = stored(table.next_ordinal(), "de");
    Arc::get_mut(&mut grouped.meta).unwrap().groups = ["g".into()].into();
    table.store(&key, grouped, |_, new| new);
    table.store(&key, stored(table.next_ordinal(), "en"), |_, new| new);
    let before = table.memory.weight();
    table.invalidate_group("http://a.example", "g");
    assert_eq!((table.sweep("http://a.exampl"), table.sweep("http://a.example")), (0, 1));
    assert!(table.memory.weight() < before);
    assert_eq!(table.memory.peek(&key).unwrap().variants.len(), 1);
    assert_eq!(table.sweep("http://a.example"), 0);
}

#[test]
fn a_requested_variant_outlives_others() {
    let table = Table::new(1 << 30, 1 << 20, None).0;
    let key = Key::parse("http://a.example/").remove(0);
    let asking = |language: &str| HeaderMap::from_iter([(ACCEPT_LANGUAGE, HeaderValue::from_str(language).unwrap())]);
    let found = |language: &str| table.find(&key, &asking(language), "").stored().is_some();
    table.store(&key, stored(table.next_ordinal(), "en"), |_, new| new);
    table.store(&key, stored(table.next_ordinal(), "de"), |_, new| new);
    for at in 0..1_000 {
        assert!(found("en"), "{at}");
        let language: &'static str = Box::leak(format!("x{at}").into());
        table.store(&key, stored(table.next_ordinal(), language), |_, new| new);
    }
    assert!(!found("de") && found("x999") && found("x900") && !found("x0"));
}

#[test]
fn storing_during_a_purge_restores_nothing() {
    let table = Table::new(1 << 30, 1 << 20, None).0;
    let keys: Vec<Key> = (0..10_000).map(|at| Key::parse(&format!("http://a.example/{at}")).remove(0)).collect();
    for key in &keys {
        table.store(key, stored(table.next_ordinal(), "de"), |_, new| new);
    }
    let key = &keys[0];
    table.store(key, stored(table.next_ordinal(), "en"), |_, new| new);
    let purged = AtomicBool::new(false);
    let is_recorded = || table.prefixes.last(keys[0].as_str()) > 0;
    thread::scope(|scope| {
        scope.spawn(|| {
            table.invalidate_prefix("http://a.example/");
            purged.store(true, Ordering::SeqCst);
        });
        while !is_recorded() {
            thread::yield_now();
        }
        // The purge may continue while this response is being stored.
        table.store(key, stored(table.next_ordinal(), "en"), |_, new| {
            (0..100).take_while(|_| !purged.load(Ordering::SeqCst)).for_each(|_| {
                thread::sleep(Duration::from_millis(2));
            });
            new
        });
    });
    assert!(table.find(key, &asking_for("de"), "").stored().is_none());
}
