//! A platform that limits the number of requests per invocation.

use std::cell::Cell;
use std::future::ready;
use std::sync::Arc;

use futures_util::stream::BoxStream;
use futures_util::{StreamExt, TryStreamExt};
use ifmatch_blob::BlobStore;
use ifmatch_blob::store::ListQuery;
use ifmatch_blob_objects::{BackingStore, DescribedListing, ObjectBlobs};
use ifmatch_core::date::Timestamp;
use object_store::path::Path;
use object_store::{Attributes, GetOptions, ObjectMeta, ObjectStore, Result};

use crate::faults::Faulty;
use crate::{register, subject};
use ifmatch_blob::conformance::leases::acquire;
use ifmatch_blob::conformance::{Subject, blob};

thread_local! {
    /// Number of requests that the platform still allows.
    static LEFT: Cell<usize> = const { Cell::new(usize::MAX) };
}

/// Creates a container with the given number of blobs.
async fn filled(names: usize) -> Subject {
    let backing = BackingStore::new(Faulty::in_memory(false))
        .listed_in_order()
        .with_allowance(|| LEFT.get());
    let subject = subject(
        ObjectBlobs::open_durable(backing, register())
            .await
            .unwrap(),
    );
    for name in 0..names {
        subject.write(&blob("c", &format!("{name:03}")), "x").await;
    }
    subject
}

fn all(limit: usize) -> ListQuery {
    ListQuery {
        leases: true,
        ..ListQuery::first(limit)
    }
}

#[tokio::test]
async fn a_page_fits_into_the_allowed_requests() {
    let subject = filled(12).await;
    let container = blob("c", "b").container;
    LEFT.set(8);
    let (mut names, mut query) = (Vec::new(), all(1000));
    loop {
        let page = subject
            .store
            .list(&container, &query)
            .await
            .unwrap()
            .unwrap();
        assert!(page.items.len() <= 6);
        names.extend(
            page.items
                .into_iter()
                .map(|entry| entry.name.as_str().to_owned()),
        );
        match page.next {
            Some(next) => query.after = Some(next),
            None => break,
        }
    }
    let expected: Vec<_> = (0..12).map(|name| format!("{name:03}")).collect();
    assert_eq!(names, expected);
}

/// A store that fails every request for a single object, but lists objects with all their attributes.
#[derive(Debug)]
struct Described(Arc<Faulty>);

impl DescribedListing for Described {
    fn list_described(
        &self,
        prefix: &str,
        after: Option<&Path>,
    ) -> BoxStream<'static, Result<(ObjectMeta, Attributes)>> {
        let (store, prefix) = (Arc::clone(&self.0), prefix.to_owned());
        let listed = match after {
            Some(after) => store.list_with_offset(None, after),
            None => store.list(None),
        };
        let listed =
            listed.try_filter(move |meta| ready(meta.location.as_ref().starts_with(&prefix)));
        let described = move |meta: ObjectMeta| {
            let store = Arc::clone(&store);
            async move {
                let found = store
                    .get_opts(&meta.location, GetOptions::new().with_head(true))
                    .await?;
                Ok((meta, found.attributes))
            }
        };
        listed.and_then(described).boxed()
    }
}

#[tokio::test]
async fn a_described_listing_equals_a_request_per_object() {
    let store = Faulty::in_memory(false);
    let plain = BackingStore::new(Arc::clone(&store) as Arc<dyn ObjectStore>).listed_in_order();
    let described = plain
        .clone()
        .described_by(Arc::new(Described(Arc::clone(&store))));
    let register = register();
    let plain = ObjectBlobs::open_durable(plain, register.clone())
        .await
        .unwrap();
    let described = ObjectBlobs::open_durable(described, register.clone())
        .await
        .unwrap();
    let subject = subject(plain.clone());
    for name in ["a", "b/1", "b/2", "c"] {
        subject.write(&blob("c", name), "x").await;
    }
    plain.lease(&blob("c", "b/1"), acquire(1)).await.unwrap();
    let container = blob("c", "b").container;
    let queries = [
        ("", None),
        ("b", None),
        ("b/", None),
        ("b/2", None),
        ("b/", Some("b/1")),
        ("", Some("b/1")),
    ];
    for (prefix, after) in queries {
        let query = ListQuery {
            prefix: prefix.to_owned(),
            after: after.map(ToOwned::to_owned),
            leases: true,
            ..ListQuery::first(2)
        };
        let (looked, listed) = (
            plain.list(&container, &query).await,
            described.list(&container, &query).await,
        );
        let (mut looked, mut listed) = (looked.unwrap().unwrap(), listed.unwrap().unwrap());
        // The leases were read at two times.
        for lease in looked
            .items
            .iter_mut()
            .chain(&mut listed.items)
            .filter_map(|entry| entry.info.lease.as_mut())
        {
            lease.at = Timestamp::default();
        }
        assert!(!looked.items.is_empty());
        assert_eq!(
            format!("{looked:?}"),
            format!("{listed:?}"),
            "{prefix} {after:?}"
        );
    }
    // More than are passed over.
    for number in 0..120 {
        subject
            .write(&blob("c", &format!("d/{number:03}")), "x")
            .await;
    }
    subject.write(&blob("c", "e"), "x").await;
    let mut query = ListQuery {
        delimiter: Some("/".to_owned()),
        ..all(2)
    };
    for expected in [["a", "b/1"].as_slice(), &["c", "d/000"], &["e"]] {
        let page = described.list(&container, &query).await.unwrap().unwrap();
        let names: Vec<_> = page.items.iter().map(|entry| entry.name.as_str()).collect();
        assert_eq!(names, expected, "the first name of a folder stands for all");
        query.after = page.next;
    }
    // Two requests at most: one for the container's record, one for the names.
    LEFT.set(2);
    let limited =
        BackingStore::new(Arc::clone(&store) as Arc<dyn ObjectStore>).with_allowance(|| LEFT.get());
    let limited = limited.described_by(Arc::new(Described(store)));
    let limited = ObjectBlobs::open_durable(limited, register).await.unwrap();
    for (leases, expected) in [(true, 1), (false, 10)] {
        let page = limited
            .list(&container, &ListQuery { leases, ..all(10) })
            .await
            .unwrap()
            .unwrap();
        assert_eq!(
            page.items.len(),
            expected,
            "a page without leases takes no request for each name"
        );
        assert!(
            leases || page.items.iter().all(|entry| entry.info.lease.is_none()),
            "{page:?}"
        );
    }
    LEFT.set(usize::MAX);
}
