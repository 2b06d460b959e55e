//! Orders of events between lookups, stores and purges.

use std::sync::atomic::AtomicBool;
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT_LANGUAGE, CONTENT_RANGE, VARY};
use http::{HeaderValue, Request, StatusCode};

use super::*;
use crate::body::folder::Disk;
use crate::body::in_memory::MemoryBody;
use crate::body::on_disk::DiskBody;
use crate::body::parts::BodyParts;
use crate::config::CacheConfig;
use crate::policy::content_range::ContentRange;
use crate::store::stored_response::{ArrivalContext, StoredBody};

fn asking_for(language: &'static str) -> HeaderMap {
    HeaderMap::from_iter([(ACCEPT_LANGUAGE, HeaderValue::from_static(language))])
}

/// Returns a response for requests with this language.
fn stored(began: u64, language: &'static str) -> StoredResponse {
    let (config, moment) = (CacheConfig::default(), Timestamp::default());
    let mut request = Request::new(()).into_parts().0;
    request.headers = asking_for(language);
    let arrival = ArrivalContext::new(&config, &request, "", began, moment, moment);
    let response = HeaderMap::from_iter([(VARY, HeaderValue::from_static("accept-language"))]);
    let body = StoredBody::Whole(Arc::new(MemoryBody::default()));
    StoredResponse {
        meta: Arc::new(StoredHead::new(StatusCode::OK, &response, &arrival)),
        body,
    }
}

#[test]
fn a_prefix_purge_leaves_other_prefixes_alone() {
    let table = EntryTable::new(1 << 20, 1 << 16, None).0;
    let [inside, outside] =
        ["http://a.example/x/1", "http://a.example/y/1"].map(|url| CacheKey::parse(url).remove(0));
    let began = table.next_ordinal();
    assert_eq!(
        table.invalidate_prefixes(vec!["http://a.example/x/".to_owned()]),
        0
    );
    assert!(!table.store(&inside, stored(began, "de"), |_, new| new));
    assert!(table.store(&outside, stored(began, "de"), |_, new| new));
    assert!(table.store(&inside, stored(table.next_ordinal(), "de"), |_, new| new));
    assert_eq!(
        table.invalidate_prefixes(vec!["http://a.example/".to_owned()]),
        2
    );
    assert!(!table.store(&outside, stored(began, "de"), |_, new| new));
}

#[test]
fn several_prefixes_are_purged_at_once() {
    let table = EntryTable::new(1 << 20, 1 << 16, None).0;
    let store = |path: &str| {
        let key = CacheKey::parse(&format!("http://a.example/{path}")).remove(0);
        assert!(table.store(&key, stored(table.next_ordinal(), "de"), |_, new| new));
        key
    };
    let (inside, outside) = (
        ["a/1", "ab/1", "c", "c/d"].map(store),
        ["a", "b", "bc/", "d"].map(store),
    );
    let prefixes =
        ["c/", "a/", "ab", "c", "abc", "bb"].map(|prefix| format!("http://a.example/{prefix}"));
    assert_eq!(table.invalidate_prefixes(prefixes.to_vec()), inside.len());
    assert!(inside.iter().all(|key| table.memory.peek(key).is_none()));
    assert!(outside.iter().all(|key| table.memory.peek(key).is_some()));
}

#[test]
fn a_sweep_frees_the_memory_of_a_group() {
    let table = EntryTable::new(1 << 20, 1 << 16, None).0;
    let key = CacheKey::parse("http://a.example/").remove(0);
    let mut grouped = stored(table.next_ordinal(), "de");
    Arc::get_mut(&mut grouped.meta).unwrap().groups = ["g".into()].into();
    table.store(&key, grouped, |_, new| new);
    table.store(&key, stored(table.next_ordinal(), "en"), |_, new| new);
    let before = table.memory.weight();
    table.invalidate_group("http://a.example", "g");
    assert_eq!(
        (
            table.sweep("http://a.exampl"),
            table.sweep("http://a.example")
        ),
        (0, 1)
    );
    assert!(table.memory.weight() < before);
    assert_eq!(table.memory.peek(&key).unwrap().variants.len(), 1);
    assert_eq!(table.sweep("http://a.example"), 0);
}

#[test]
fn a_requested_variant_outlives_others() {
    let table = EntryTable::new(1 << 30, 1 << 20, None).0;
    let key = CacheKey::parse("http://a.example/").remove(0);
    let asking = |language: &str| {
        HeaderMap::from_iter([(ACCEPT_LANGUAGE, HeaderValue::from_str(language).unwrap())])
    };
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
    let table = EntryTable::new(1 << 30, 1 << 20, None).0;
    let keys: Vec<CacheKey> = (0..10_000)
        .map(|at| CacheKey::parse(&format!("http://a.example/{at}")).remove(0))
        .collect();
    for key in &keys {
        table.store(key, stored(table.next_ordinal(), "de"), |_, new| new);
    }
    let key = &keys[0];
    table.store(key, stored(table.next_ordinal(), "en"), |_, new| new);
    let purged = AtomicBool::new(false);
    let is_recorded = || table.prefixes.last(keys[0].as_str()) > 0;
    thread::scope(|scope| {
        scope.spawn(|| {
            table.invalidate_prefixes(vec!["http://a.example/".to_owned()]);
            purged.store(true, Ordering::SeqCst);
        });
        while !is_recorded() {
            thread::yield_now();
        }
        // The purge may continue while this response is being stored.
        table.store(key, stored(table.next_ordinal(), "en"), |_, new| {
            (0..100)
                .take_while(|_| !purged.load(Ordering::SeqCst))
                .for_each(|_| {
                    thread::sleep(Duration::from_millis(2));
                });
            new
        });
    });
    assert!(table.find(key, &asking_for("de"), "").stored().is_none());
}

/// A POST removes the entry in memory, and waits for the index, which another change holds. A PUT begins and ends. Then the
/// POST removes the entry again: its response may be older than the PUT, and must not be stored.
#[test]
fn a_write_during_an_invalidation_is_noticed() {
    let folder = tempfile::tempdir().unwrap();
    let disk = Disk::open(folder.path(), 1 << 20).unwrap();
    let table = EntryTable::new(1 << 20, 1 << 16, Some(&disk.0)).0;
    let key = CacheKey::parse("http://a.example/").remove(0);
    let began = table.next_ordinal();
    let (start, started) = channel();
    let (end, has_ended) = channel::<()>();
    let index = &disk.0;
    thread::scope(|scope| {
        scope.spawn(move || {
            index.change(false, |_| {
                start.send(()).unwrap();
                assert!(has_ended.recv().is_err());
                Ok(())
            })
        });
        started.recv().unwrap();
        let post = scope.spawn(|| table.invalidate(&key));
        while table.last_invalidation(&key) < began {
            thread::yield_now();
        }
        let put = table.invalidate_in_memory(&key);
        drop(end);
        let post = post.join().unwrap();
        assert!(
            post.before >= put.ordinal && put.ordinal > began,
            "{post:?} {put:?}"
        );
    });
    let alone = table.invalidate(&key);
    assert!(
        alone.before < alone.ordinal - 1,
        "its own removals do not count: {alone:?}"
    );
}

/// A change of the index is under way. A purge removes a response with a part in a file. The part goes with it, and so
/// does its row, for which the purge would wait. The change asks if a response was invalidated, and waits for the lock that
/// the purge holds.
#[test]
fn a_purge_and_a_change_of_the_index_do_not_wait_for_each_other() {
    let folder = tempfile::tempdir().unwrap();
    let disk = Disk::open(folder.path(), 1 << 20).unwrap();
    let table = EntryTable::new(1 << 20, 1 << 16, Some(&disk.0)).0;
    let key = CacheKey::parse("http://a.example/").remove(0);
    let content = MemoryBody::compact(&[Bytes::from_static(b"part")].into(), None);
    let range = HeaderMap::from_iter([(CONTENT_RANGE, HeaderValue::from_static("bytes 0-3/9"))]);
    let parts = BodyParts::on_disk(
        ContentRange::of(&range).unwrap(),
        DiskBody::create(&disk.0, &content).unwrap(),
    );
    let response = stored(table.next_ordinal(), "de");
    let response = StoredResponse {
        body: StoredBody::Parts(Arc::new(parts)),
        ..response
    };
    assert!(table.store(&key, response, |_, new| new));
    assert_eq!(disk.0.index.rows("").len(), 1);
    let (begun, has_begun) = channel();
    thread::scope(|scope| {
        let change = scope.spawn(|| {
            let mut is_free = false;
            disk.0.change(false, |_| {
                begun.send(()).unwrap();
                while table.memory.peek(&key).is_some() {
                    thread::yield_now();
                }
                is_free = (0..1_000_000).any(|_| {
                    thread::yield_now();
                    table.shards.iter().all(|shard| shard.try_lock().is_ok())
                });
                Ok(())
            });
            is_free
        });
        has_begun.recv().unwrap();
        table.invalidate_prefixes(vec![String::new()]);
        assert!(change.join().unwrap(), "a lock is held");
    });
    assert_eq!((disk.0.index.rows("").len(), table.disk_bytes()), (0, 0));
}

/// A change of the index looks at a response in memory, which is removed since, so the change drops it. Dropping
/// its part in a file changes the index, too.
#[test]
fn a_change_of_the_index_may_drop_a_part_in_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let disk = Disk::open(folder.path(), 1 << 20).unwrap();
    let content = MemoryBody::compact(&[Bytes::from_static(b"part")].into(), None);
    let part = DiskBody::create(&disk.0, &content).unwrap();
    part.lend("row");
    let (end, has_ended) = channel();
    thread::spawn(move || {
        disk.0.change(false, |_| {
            drop(part);
            Ok(())
        });
        end.send(()).unwrap();
    });
    assert!(
        has_ended.recv_timeout(Duration::from_secs(30)).is_ok(),
        "it waits for itself"
    );
}
