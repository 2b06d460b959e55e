//! Pages of listings end by bytes as well as by number.

use std::sync::Arc;

use bytes::Bytes;
use http_body_util::{BodyExt, Empty, Full};
use ifmatch_blob::BlobService;
use ifmatch_blob::dialect::Client;
use ifmatch_blob::documents::{Documents, PAGE};
use ifmatch_blob::headers::{BlobHeaders, FieldText};
use ifmatch_blob::name::{BlobPath, ContainerName};
use ifmatch_blob::store::{
    BlobEntry, BlobStore, Hierarchy, ListQuery, Listed, Put, StoreErrorKind, Upload,
};
use ifmatch_blob_indexed::IndexedStore;
use tower::ServiceExt;

const COUNT: usize = 300;

/// Creates blobs with long names and 8 KB of metadata.
async fn store(folder: &tempfile::TempDir) -> IndexedStore {
    let store = IndexedStore::open(folder.path())
        .await
        .expect("an empty folder opens");
    let metadata = (0..10)
        .map(|nr| {
            (
                format!("m{nr}").into(),
                FieldText::new(&"v".repeat(800)).expect("valid"),
            )
        })
        .collect();
    let headers = BlobHeaders {
        metadata,
        ..BlobHeaders::default()
    };
    for nr in 0..COUNT {
        let put = Put {
            headers: headers.clone(),
            ..Put::new(Upload::new(Full::<Bytes>::from("x")))
        };
        let blob = BlobPath::parse(&format!("/c/{}", name(nr))).expect("a path");
        store.put(&blob, put).await.expect("written");
    }
    store
}

fn name(nr: usize) -> String {
    format!("{}{nr:04}", "n".repeat(900))
}

fn all() -> Vec<String> {
    (0..COUNT).map(name).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_end_by_bytes_and_continue_there() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let store = store(&folder).await;
    let container = ContainerName::new("c").expect("valid");

    let (mut names, mut pages) = (Vec::new(), 0);
    let mut query = ListQuery::first(1000);
    loop {
        let page = store
            .list(&container, &query)
            .await
            .expect("listed")
            .expect("the container exists");
        let bytes: usize = page.items.iter().map(BlobEntry::size).sum();
        assert!(bytes < PAGE / 2, "the store's own page has {bytes} bytes");
        names.extend(
            page.items
                .into_iter()
                .map(|entry| entry.name.as_str().to_owned()),
        );
        pages += 1;
        match page.next {
            Some(next) => query.after = Some(next),
            None => break,
        }
    }
    assert_eq!((names, pages > 5), (all(), true), "{pages} pages");

    let documents = Documents::default();
    let (mut names, mut after, mut pages) = (Vec::new(), None, 0);
    loop {
        let listing = Hierarchy {
            prefix: "",
            delimiter: None,
            after,
            start: None,
            limit: 5000,
            leases: false,
        };
        let mut memory = documents.begin(None);
        let page = listing
            .list(&store, &container, &mut memory)
            .await
            .expect("listed")
            .expect("the container exists");
        let taken = documents.taken() as usize;
        assert!(
            taken < PAGE + 20_000,
            "the items of a page take {taken} bytes"
        );
        names.extend(page.items.iter().map(|item| match item {
            Listed::Blob(entry) => entry.name.as_str().to_owned(),
            Listed::Folder(folder) => folder.clone(),
        }));
        pages += 1;
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    assert_eq!((names, pages), (all(), 3));
    assert_eq!(documents.taken(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_that_a_client_does_not_read_leave_memory_to_others() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let documents = Documents::new(8 << 20);
    let service = BlobService::new(Arc::new(store(&folder).await)).documents(documents.clone());
    let list = async |last: u8| {
        let mut request = http::Request::get("/c?prefix=n")
            .body(Empty::<Bytes>::new())
            .expect("a request");
        request
            .extensions_mut()
            .insert(Client([192, 0, 2, last].into()));
        let Ok(response) = service.clone().oneshot(request).await;
        response
    };
    let mut unread = Vec::new();
    let refused = loop {
        let response = list(1).await;
        if response.status() != 200 {
            break response;
        }
        unread.push(response.into_body());
        assert!(unread.len() < 10, "the answers that wait are limited");
    };
    assert_eq!(
        (
            refused.status().as_u16(),
            refused.headers().contains_key("retry-after")
        ),
        (503, true)
    );
    assert!(
        documents.taken() as usize <= 4 << 20,
        "half is left to others"
    );
    assert_eq!(list(2).await.status(), 200, "another client is served");
    let page = unread
        .pop()
        .expect("an answer that waits")
        .collect()
        .await
        .expect("a whole body")
        .to_bytes();
    assert!(
        page.len() < PAGE + 20_000,
        "a page has {} bytes",
        page.len()
    );
    let parsed: serde_json::Value = serde_json::from_slice(&page).expect("JSON");
    assert_eq!(
        parsed["next"],
        parsed["blobs"]
            .as_array()
            .expect("blobs")
            .last()
            .expect("a blob")["name"],
        "it continues behind its last"
    );
    drop((unread, page));
    assert_eq!(
        documents.taken(),
        0,
        "nothing is kept once it was sent or its client has left"
    );

    let mut memory = Documents::new(100).begin(None);
    let listing = Hierarchy {
        prefix: "",
        delimiter: None,
        after: None,
        start: None,
        limit: 10,
        leases: false,
    };
    let refused = listing
        .list(
            &*service.context().store,
            &ContainerName::new("c").expect("valid"),
            &mut memory,
        )
        .await;
    assert_eq!(
        refused.expect_err("no memory").kind(),
        &StoreErrorKind::Crowded
    );
}

#[tokio::test]
async fn a_list_of_containers_takes_memory_before_it_is_built() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let store = IndexedStore::open(folder.path())
        .await
        .expect("an empty folder opens");
    let list = async |bytes: u32| {
        let documents = Documents::new(bytes);
        let service = BlobService::new(Arc::new(store.clone())).documents(documents);
        let request = http::Request::get("/")
            .body(Empty::<Bytes>::new())
            .expect("a request");
        let Ok(response) = service.oneshot(request).await;
        response.status().as_u16()
    };
    assert_eq!((list(1 << 20).await, list(10_000).await), (200, 503));
}
