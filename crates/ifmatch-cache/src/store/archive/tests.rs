//! Orders of events between a response that goes to disk or comes from there, and its invalidation.

use bytes::Bytes;
use http::header::{ACCEPT_LANGUAGE, ETAG};
use http::{HeaderValue, Request, StatusCode};

use super::*;
use crate::body::folder::Disk;
use crate::body::in_memory::MemoryBody;
use crate::body::on_disk::WrittenBody;
use crate::config::CacheConfig;
use crate::policy::reuse::StaleUse;
use crate::store::entry::CacheEntry;
use crate::store::stored_response::ArrivalContext;
use crate::store::table::EntryTable;

fn key() -> CacheKey {
    CacheKey::parse("http://a.example/").remove(0)
}

/// Returns a response with this tag, to a request with this ordinal.
fn stored(began: u64, tag: &'static str) -> StoredResponse {
    let headers = HeaderMap::from_iter([(ETAG, HeaderValue::from_static(tag))]);
    let (config, request) = (CacheConfig::default(), Request::new(()).into_parts().0);
    let moment = Timestamp::default();
    let arrival = ArrivalContext::new(&config, &request, "", began, moment, moment);
    let content = MemoryBody::compact(&[Bytes::from_static(tag.as_bytes())].into(), None);
    StoredResponse {
        meta: Arc::new(StoredHead::new(StatusCode::OK, &headers, &arrival)),
        body: StoredBody::Whole(Arc::new(content)),
    }
}

fn entry(stored: StoredResponse) -> Arc<CacheEntry> {
    CacheEntry::default()
        .with(stored, u64::MAX)
        .expect("room for a response")
}

fn table(disk: &Disk) -> EntryTable {
    EntryTable::new(1 << 20, 1 << 16, Some(&disk.0)).0
}

/// Returns the tag of the response in memory, after reading from disk.
fn found(table: &EntryTable) -> Option<String> {
    let tag = |table: &EntryTable| {
        let found = table.find(&key(), &HeaderMap::new(), "");
        found
            .stored()
            .map(|stored| stored.meta.headers[ETAG].to_str().expect("text").to_owned())
    };
    tag(table).or_else(|| {
        let found = table.load(&key(), &HeaderMap::new(), "")?;
        Some(
            found.stored()?.meta.headers[ETAG]
                .to_str()
                .expect("text")
                .to_owned(),
        )
    })
}

#[test]
fn an_evicted_response_that_was_invalidated_does_not_reach_the_disk() {
    let folder = tempfile::tempdir().unwrap();
    let disk = Disk::open(folder.path(), 1 << 20).unwrap();
    let table = table(&disk);
    // Evicted, then purged, then written.
    let evicted = entry(stored(table.next_ordinal(), "\"1\""));
    assert!(!table.invalidate(&key()).found);
    table.spill(&key(), &evicted);
    assert_eq!((found(&table), table.disk_bytes()), (None, 0));
    // The same with a purge by prefix, and in the right order.
    let evicted = entry(stored(table.next_ordinal(), "\"2\""));
    table.invalidate_prefixes(vec!["http://".to_owned()]);
    table.spill(&key(), &evicted);
    assert_eq!(found(&table), None);
    table.spill(&key(), &entry(stored(table.next_ordinal(), "\"3\"")));
    assert_eq!(found(&table).as_deref(), Some("\"3\""));
}

#[test]
fn an_evicted_response_does_not_replace_a_newer_one() {
    let folder = tempfile::tempdir().unwrap();
    let disk = Disk::open(folder.path(), 1 << 20).unwrap();
    let table = table(&disk);
    let old = entry(stored(table.next_ordinal(), "\"1\""));
    let new = stored(table.next_ordinal(), "\"2\"");
    assert!(table.store(&key(), new.clone(), |_, new| new));
    table.spill(&key(), &old);
    assert_eq!(
        (found(&table).as_deref(), table.disk_bytes()),
        (Some("\"2\""), 0)
    );
    // On disk, the newer one stays as well.
    drop(table.memory.remove(&key()));
    table.spill(&key(), &entry(new));
    table.spill(&key(), &old);
    assert_eq!(found(&table).as_deref(), Some("\"2\""));
    // A newer one in memory removes the older one on disk.
    assert!(table.store(&key(), stored(table.next_ordinal(), "\"3\""), |_, new| new));
    drop(table.memory.remove(&key()));
    assert_eq!((found(&table), table.disk_bytes()), (None, 0));
}

#[test]
fn a_response_that_was_read_before_an_invalidation_does_not_reach_the_memory() {
    let folder = tempfile::tempdir().unwrap();
    let disk = Disk::open(folder.path(), 1 << 20).unwrap();
    let table = table(&disk);
    let archive = DiskArchive::new(Arc::clone(&disk.0));
    let invalidations: [&dyn Fn(); 4] = [
        &|| assert!(table.invalidate(&key()).found),
        &|| assert_eq!(table.invalidate_prefixes(vec![String::new()]), 1),
        &|| {
            assert!(
                table.store(&key(), stored(table.next_ordinal(), "\"new\""), |_, new| {
                    new
                })
            );
        },
        &|| table.discard(&key(), &stored(1, "\"x\"")),
    ];
    for invalidate in invalidations {
        table.spill(&key(), &entry(stored(table.next_ordinal(), "\"old\"")));
        let loaded = archive.load(&key(), &HeaderMap::new(), "").unwrap();
        invalidate();
        assert!(table.admit(&archive, &key(), &loaded).is_none());
        assert_ne!(found(&table).as_deref(), Some("\"old\""));
        table.invalidate(&key());
    }
}

/// A request reads a response from disk. A soft purge makes it stale there, and finds nothing in memory. The request then
/// adds what it has read to the memory, where it would be fresh.
#[test]
fn a_response_that_was_read_before_a_soft_purge_does_not_reach_the_memory() {
    let folder = tempfile::tempdir().unwrap();
    let disk = Disk::open(folder.path(), 1 << 20).unwrap();
    let table = table(&disk);
    let archive = DiskArchive::new(Arc::clone(&disk.0));
    let now = Timestamp::default();
    let purges: [&dyn Fn(); 2] = [&|| assert!(table.soft_purge(&key(), now)), &|| {
        assert_eq!(table.soft_purge_prefix("", now), 1);
    }];
    for purge in purges {
        table.spill(&key(), &entry(stored(table.next_ordinal(), "\"1\"")));
        let loaded = archive.load(&key(), &HeaderMap::new(), "").unwrap();
        purge();
        assert!(table.admit(&archive, &key(), &loaded).is_none());
        let found = table.load(&key(), &HeaderMap::new(), "").unwrap();
        assert!(
            found.stored().unwrap().meta.terms.stale_since.is_some(),
            "what is on disk now is used"
        );
        table.invalidate(&key());
    }
}

#[test]
fn a_body_that_was_spared_by_an_eviction_is_still_of_an_earlier_process() {
    let folder = tempfile::tempdir().unwrap();
    let disk = Disk::open(folder.path(), 1_000).unwrap();
    {
        let table = table(&disk);
        table.spill(&key(), &entry(stored(table.next_ordinal(), "\"1\"")));
    }
    drop(disk);
    let disk = Disk::open(folder.path(), 1_000).unwrap();
    let row = disk.0.index.rows("").remove(0).1;
    assert!(disk.0.index.run > row.run);
    // An eviction spares a body by putting its row back.
    assert!(
        disk.0.change(false, |change| {
            let (key, row) = change.first()?.unwrap();
            change.put(&key, row)
        }) == 0
    );
    let table = table(&disk);
    let found = table.load(&key(), &HeaderMap::new(), "").unwrap();
    assert_eq!(
        found.stored().unwrap().meta.terms.stale_use,
        StaleUse::Never,
        "it must be validated"
    );
}

#[test]
fn a_head_is_restored_as_it_was() {
    let mut headers = HeaderMap::from_iter([(ETAG, HeaderValue::from_static("\"1\""))]);
    headers.append("vary", HeaderValue::from_static("accept-language, x"));
    headers.append("x", HeaderValue::from_bytes(b"\xff").unwrap());
    headers.append("x", HeaderValue::from_static("second"));
    headers.append(
        "cache-control",
        HeaderValue::from_static("max-age=5, stale-if-error=7, must-revalidate"),
    );
    let mut request = Request::new(()).into_parts().0;
    let language = HeaderValue::from_static("de");
    request.headers.insert(ACCEPT_LANGUAGE, language);
    let (requested, received) = (5, 7_000_000);
    let config = CacheConfig::default();
    let arrival = ArrivalContext::new(
        &config,
        &request,
        "x-forwarded-host: a\n",
        9,
        Timestamp::from_micros(requested),
        Timestamp::from_micros(received),
    );
    let meta = StoredHead::new(StatusCode::NOT_FOUND, &headers, &arrival);
    let (restored, body) =
        record::decode(&record::encode(&meta, WrittenBody::default()), 9, 0).unwrap();
    assert_eq!(format!("{restored:?}"), format!("{meta:?}"));
    assert_eq!((body.len, body.sums.len()), (0, 0));
    let now = Timestamp::from_micros(9_000_000);
    assert_eq!(restored.age(now), meta.age(now));
    assert!(record::decode(b"damaged", 1, 0).is_none());
}
