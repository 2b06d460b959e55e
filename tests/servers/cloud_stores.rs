//! The object store adapter on real servers: an S3 server in this process, and Azurite.

use std::sync::Arc;

use ifmatch_blob::conformance;
use ifmatch_blob::headers::FieldText;
use ifmatch_blob::name::ContainerName;
use ifmatch_blob::store::{BlobStore, Delete, ListQuery, Reading, StoreErrorKind};
use ifmatch_blob_objects::{BackingStore, ObjectBlobs, ObjectRegister, OpenError, OpenErrorKind};
use ifmatch_register::MemoryRegister;
use ifmatch_register::conformance as register_conformance;
use ifmatch_testbed::{Network, Port, Proxy, azurite, s3};

type Settings = Vec<(String, String)>;

fn pairs_of(pairs: &[(&str, &str)]) -> Settings {
    pairs
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .collect()
}

async fn open(url: &str, settings: Settings) -> ObjectBlobs {
    let backing = BackingStore::from_url(url, settings).expect("valid settings");
    ObjectBlobs::open(backing, Arc::new(MemoryRegister::unbounded()))
        .await
        .expect("the store can be used")
}

/// Runs the conformance suite, then checks that one of many conditional creations wins although two gateways have their
/// own registers, since the store decides. The second gateway takes the store's mark, so it opens last.
async fn check(url: &str, settings: Settings, nests: bool) {
    let blobs = open(url, settings.clone()).await;
    assert!(
        blobs.capability().is_native() && blobs.capability().metadata,
        "{blobs:?}"
    );
    let subject = |blobs| conformance::Subject {
        store: Arc::new(blobs),
        keeps_headers: true,
        changes_tags: false,
        knows_retries: true,
        remembers_deletions: false,
        leases: false,
        nests,
        writers: 4,
    };
    let first = subject(blobs);
    conformance::check(&first).await;
    let gateways = [first, subject(open(url, settings).await)];

    let blob = conformance::blob("two-gateways", "create");
    let create = |writer: usize| {
        gateways[writer % 2].write_if(&blob, conformance::if_absent(), writer.to_string())
    };
    let results = futures_util::future::join_all((0..10).map(create)).await;
    let winners: Vec<_> = (0..10).filter(|writer| results[*writer].is_ok()).collect();
    assert_eq!(winners.len(), 1, "{results:?}");
    assert_eq!(
        gateways[1].read(&blob).await.expect("a blob").1,
        winners[0].to_string()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn s3_conforms() {
    let server = s3::start().await;
    check("s3://bucket/some/prefix", server.settings(), false).await;
    assert_eq!(
        server.unfinished_uploads(),
        0,
        "given up uploads are aborted at the store"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn azurite_conforms() {
    let server = azurite::start().await;
    check("az://container/prefix", server.settings(), true).await;
}

/// The first attempt of a write that the client retries on its own can arrive after a later write. Only a condition of the store
/// could refuse it then, and none covers a deletion.
#[tokio::test(flavor = "multi_thread")]
async fn a_change_is_sent_once() {
    let server = s3::start().await;
    let proxy = Proxy::start(server.address()).await;
    let endpoint = format!("http://{}", proxy.address());
    for conditions in ["disabled", "etag"] {
        let through = pairs_of(&[
            ("AWS_ENDPOINT", &endpoint),
            ("AWS_CONDITIONAL_PUT", conditions),
            // A connection for each request, so the proxy can tell them apart.
            ("AWS_POOL_MAX_IDLE_PER_HOST", "0"),
        ]);
        let blobs = open(
            "s3://bucket",
            server.settings().into_iter().chain(through).collect(),
        )
        .await;
        assert_eq!(blobs.capability().is_native(), conditions == "etag");
        let blob = conformance::blob("c", conditions);
        proxy.set_for(
            &format!("PUT /bucket/c/{conditions}"),
            Network::CutBeforeSending,
        );
        let error = blobs
            .put(&blob, conformance::put("1"))
            .await
            .expect_err(conditions);
        assert_eq!(error.kind(), &StoreErrorKind::OutcomeUnknown, "{error}");
        let old = conformance::blob("c", &format!("old-{conditions}"));
        blobs
            .put(&old, conformance::put("1"))
            .await
            .expect("the network is whole");
        proxy.set_for(
            &format!("DELETE /bucket/c/old-{conditions}"),
            Network::CutBeforeSending,
        );
        let error = blobs
            .delete(&old, Delete::default())
            .await
            .expect_err(conditions);
        assert_eq!(error.kind(), &StoreErrorKind::OutcomeUnknown, "{error}");
    }
}

/// A store never keeps such a blob, so the writer must not try again, and others needn't wait for an unclear write. A listing from
/// such a name is a listing.
#[tokio::test(flavor = "multi_thread")]
async fn names_and_metadata_that_the_store_cannot_keep_are_refused_as_such() {
    let (s3, azurite) = (s3::start().await, azurite::start().await);
    for (url, settings) in [
        ("s3://bucket/some", s3.settings()),
        ("az://container", azurite.settings()),
    ] {
        let blobs = open(url, settings).await;
        let long = conformance::blob("c", &"n".repeat(1_024));
        let (written, read) = (
            blobs.put(&long, conformance::put("1")).await,
            blobs.open(&long, Reading::HEAD).await,
        );
        for error in [written.expect_err(url), read.expect_err(url)] {
            assert_eq!(error.kind(), &StoreErrorKind::Unsupported, "{url}: {error}");
        }
        blobs
            .put(&conformance::blob("c", "a/b"), conformance::put("1"))
            .await
            .expect(url);
        let page = async |prefix: &str, after: &str| {
            let (prefix, after) = (prefix.to_owned(), Some(after.to_owned()));
            let query = ListQuery {
                prefix,
                after,
                ..ListQuery::first(10)
            };
            let page = blobs
                .list(&ContainerName::new("c").expect("a name"), &query)
                .await
                .expect(url)
                .expect("the container is there");
            page.items
                .into_iter()
                .map(|entry| entry.name.as_str().to_owned())
                .collect::<Vec<_>>()
        };
        assert_eq!(page("", &"a".repeat(22_000)).await, [""; 0], "{url}");
        assert_eq!(
            page("", &format!("a/a{}", "~".repeat(22_000))).await,
            ["a/b"],
            "{url}"
        );
        assert_eq!(
            page(&format!("{}/x", "~".repeat(22_000)), "").await,
            [""; 0],
            "{url}"
        );
    }
    let (blobs, blob) = (
        open("s3://bucket", s3.settings()).await,
        conformance::blob("c", "metadata"),
    );
    let mut put = conformance::put("1");
    put.headers.metadata.insert(
        "a".into(),
        FieldText::new(&"m".repeat(2_048)).expect("text"),
    );
    let error = blobs.put(&blob, put).await.expect_err("S3 keeps 2 KiB");
    assert_eq!(error.kind(), &StoreErrorKind::Unsupported, "{error}");
    blobs
        .put(&blob, conformance::put("2"))
        .await
        .expect("nothing is unclear about the first one");
}

/// Returns the error for a store that can't be opened.
async fn refusal(url: &str, settings: Settings, also: &[(&str, &str)]) -> OpenError {
    let settings = settings.into_iter().chain(pairs_of(also));
    let backing = match BackingStore::from_url(url, settings) {
        Ok(backing) => backing,
        Err(error) => return error,
    };
    let register = Arc::new(MemoryRegister::unbounded());
    ObjectBlobs::open(backing, register)
        .await
        .expect_err("it cannot be used")
}

#[tokio::test]
async fn an_unusable_server_is_refused_with_advice() {
    let (s3, azurite) = (s3::start().await, azurite::start().await);
    let closed = Port::claim();
    let unreachable = format!("http://{}", closed.address());
    for error in [
        refusal("az://no-such-container", azurite.settings(), &[]).await,
        refusal(
            "s3://bucket",
            s3.settings(),
            &[("AWS_SECRET_ACCESS_KEY", "wrong")],
        )
        .await,
        refusal(
            "s3://bucket",
            s3.settings(),
            &[("AWS_ENDPOINT", &unreachable)],
        )
        .await,
    ] {
        assert_eq!(error.kind(), OpenErrorKind::Unusable, "{error}");
        assert!(
            error
                .to_string()
                .contains("check that it exists, is reachable and is writable"),
            "{error}"
        );
    }
    for error in [
        refusal("az://container", vec![], &[]).await,
        refusal(
            "s3://bucket",
            s3.settings(),
            &[("AWS_ALLOW_HTTP", "perhaps")],
        )
        .await,
    ] {
        assert_eq!(error.kind(), OpenErrorKind::Settings, "{error}");
        assert!(error.to_string().contains("check the settings"), "{error}");
    }
}

/// Two handles, as two processes have them, swap records by S3's conditional writes.
#[tokio::test(flavor = "multi_thread")]
async fn a_register_on_s3_conforms() {
    let server = s3::start().await;
    let open = async || {
        ObjectRegister::connect("s3://bucket", server.settings())
            .await
            .unwrap()
    };
    register_conformance::run_shared(open, register_conformance::RaceSize::new(4, 3)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_register_on_azurite_conforms() {
    let server = azurite::start().await;
    let open = async || {
        ObjectRegister::connect("az://container", server.settings())
            .await
            .unwrap()
    };
    register_conformance::run_shared(open, register_conformance::RaceSize::new(4, 3)).await;
}
