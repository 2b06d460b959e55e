//! Snapshots: what they keep, what deletions do with them, and their interleavings with other changes.

use std::sync::Arc;
use std::time::Duration;

use http::Method;
use ifmatch_blob::dialect::Context;
use ifmatch_blob::name::{BlobPath, ContainerName};
use ifmatch_blob::store::{BlobStore, Cached, Delete, ListQuery, Peek, Wrapper};
use ifmatch_blob::test_util::{Hook, Hooked, Step, Stop, reopen};
use ifmatch_blob_indexed::{IndexedStore, Objects};
use ifmatch_register::{Driver, MemoryRegister};
use object_store::memory::InMemory;
use object_store::path::Path;

use crate::shared_access::{Token, read};
use crate::support::{Answer, Client, Fixture, fixture, over_objects};

/// Number of races.
const RACES: usize = 1000;
/// More than a store keeps in a record.
const LARGE: usize = 100_000;

impl Client {
    async fn snapshot(&self, target: &str, fields: &[(&str, &str)]) -> Answer {
        self.put(&format!("{target}?comp=snapshot"), fields, "")
            .await
    }

    /// Takes a snapshot, and returns the address at which it can be read.
    async fn snapshot_of(&self, target: &str) -> String {
        let answer = self.snapshot(target, &[]).await.expect(201);
        format!("{target}?snapshot={}", answer.header("x-ms-snapshot"))
    }

    /// Returns what a listing of `box` has, in its order: `name:content` for a snapshot, `name` for a blob, and `name/` for a folder.
    async fn listed(&self, query: &str) -> Vec<String> {
        let (mut all, mut marker) = (Vec::new(), String::new());
        for _ in 0..100 {
            let target =
                format!("/box?restype=container&comp=list&include=snapshots{query}{marker}");
            let page = self.get(&target).await.expect(200);
            for entry in page.all("Blob") {
                let between = |name: &str| {
                    let open = format!("<{name}>");
                    entry
                        .split_once(&open)
                        .and_then(|(_, rest)| rest.split('<').next())
                        .map(str::to_owned)
                };
                let name = between("Name").expect("a name");
                match between("Snapshot") {
                    Some(time) => {
                        let read = self
                            .get(&format!("/box/{name}?snapshot={time}"))
                            .await
                            .expect(200);
                        all.push(format!("{name}:{}", read.text()));
                    }
                    None => all.push(name),
                }
            }
            all.extend(
                page.all("BlobPrefix")
                    .iter()
                    .map(|folder| format!("{folder}/")),
            );
            match page
                .all("NextMarker")
                .first()
                .filter(|next| !next.is_empty())
            {
                Some(next) => marker = format!("&marker={next}"),
                None => return all,
            }
        }
        panic!("the listing does not end: {all:?}");
    }
}

#[tokio::test]
async fn a_snapshot_keeps_its_version() {
    let Fixture { client, clock, .. } = fixture().await;
    for large in [false, true] {
        let text = |text: &str| {
            if large {
                text.repeat(LARGE)
            } else {
                text.to_owned()
            }
        };
        let fields = [("x-ms-meta-a", "1"), ("content-type", "text/plain")];
        let first = client
            .upload("/box/a", text("1"), &fields)
            .await
            .expect(201);
        let taken = client
            .snapshot("/box/a", &[("if-match", first.header("etag"))])
            .await
            .expect(201);
        assert_eq!(taken.header("etag"), first.header("etag"));
        assert_eq!(taken.header("last-modified"), first.header("last-modified"));
        let snapshot = format!("/box/a?snapshot={}", taken.header("x-ms-snapshot"));
        clock.advance(Duration::from_secs(1));
        let second = client.upload("/box/a", text("2"), &[]).await.expect(201);
        for method in [Method::GET, Method::HEAD] {
            let old = client
                .send(method.clone(), &snapshot, &[], "")
                .await
                .expect(200);
            for name in ["etag", "last-modified"] {
                assert_eq!(old.header(name), first.header(name));
            }
            assert_eq!(
                (old.header("x-ms-meta-a"), old.header("content-type")),
                ("1", "text/plain")
            );
            assert!(method == Method::HEAD || old.text() == text("1"));
        }
        let in_part = client
            .send(Method::GET, &snapshot, &[("range", "bytes=0-0")], "")
            .await
            .expect(206);
        assert_eq!(in_part.text(), "1");
        let stale = [("if-match", second.header("etag"))];
        client
            .send(Method::GET, &snapshot, &stale, "")
            .await
            .refused(412, "ConditionNotMet");
        client
            .snapshot("/box/a", &[("if-match", first.header("etag"))])
            .await
            .refused(412, "ConditionNotMet");

        let own = client
            .snapshot("/box/a", &[("x-ms-meta-b", "2")])
            .await
            .expect(201);
        assert_ne!(own.header("etag"), second.header("etag"));
        let own = client
            .get(&format!("/box/a?snapshot={}", own.header("x-ms-snapshot")))
            .await
            .expect(200);
        assert_eq!((own.header("x-ms-meta-b"), own.text()), ("2", &*text("2")));

        // A copy onto its own blob promotes the snapshot, which stays.
        let source = format!("http://localhost/photos{snapshot}");
        let copied = client
            .put(
                "/box/a",
                &[("host", "localhost"), ("x-ms-copy-source", &*source)],
                "",
            )
            .await;
        copied.expect(202);
        let promoted = client.get("/box/a").await.expect(200);
        assert_eq!(
            (promoted.text(), promoted.header("x-ms-copy-source")),
            (&*text("1"), &*source)
        );
        assert_ne!(promoted.header("etag"), first.header("etag"));
        client.get(&snapshot).await.expect(200);
        client
            .delete("/box/a", &[("x-ms-delete-snapshots", "include")])
            .await
            .expect(202);
        client.get(&snapshot).await.refused(404, "BlobNotFound");
    }
}

#[tokio::test]
async fn a_snapshot_is_read_only_and_has_no_lease() {
    let client = fixture().await.client;
    client.upload("/box/a", "1", &[]).await.expect(201);
    let snapshot = client.snapshot_of("/box/a").await;
    for (comp, fields) in [
        ("&comp=metadata", &[("x-ms-meta-a", "b")][..]),
        ("&comp=lease", &[("x-ms-lease-action", "break")]),
        ("&comp=snapshot", &[]),
        ("", &[("x-ms-blob-type", "BlockBlob")]),
    ] {
        client
            .put(&format!("{snapshot}{comp}"), fields, "")
            .await
            .refused(400, "UnsupportedQueryParameter");
    }
    for time in ["now", "2026-11-28T19:00:00Z"] {
        client
            .get(&format!("/box/a?snapshot={time}"))
            .await
            .refused(400, "InvalidQueryParameterValue");
    }
    client
        .get("/box/a?snapshot=2026-11-28T19:00:00.0000000Z")
        .await
        .refused(404, "BlobNotFound");
    client
        .get("/box/b?snapshot=2026-11-28T19:00:00.0000000Z")
        .await
        .refused(404, "BlobNotFound");
    client
        .get("/new/b?snapshot=2026-11-28T19:00:00.0000000Z")
        .await
        .refused(404, "ContainerNotFound");
    client
        .snapshot("/box/b", &[])
        .await
        .refused(404, "BlobNotFound");
    client
        .snapshot("/new/b", &[])
        .await
        .refused(404, "ContainerNotFound");

    // The lease of a blob neither forbids snapshots nor protects them.
    let lease = [
        ("x-ms-lease-action", "acquire"),
        ("x-ms-lease-duration", "-1"),
    ];
    let lease = client
        .put("/box/a?comp=lease", &lease, "")
        .await
        .expect(201);
    let held = [("x-ms-lease-id", lease.header("x-ms-lease-id"))];
    client.snapshot("/box/a", &[]).await.expect(201);
    client.snapshot("/box/a", &held).await.expect(201);
    let other = [("x-ms-lease-id", "11111111-1111-1111-1111-111111111111")];
    client
        .snapshot("/box/a", &other)
        .await
        .refused(412, "LeaseIdMismatchWithBlobOperation");
    let old = client.get(&snapshot).await.expect(200);
    assert_eq!(old.header("x-ms-lease-state"), "available");
    client
        .send(Method::GET, &snapshot, &held, "")
        .await
        .refused(412, "LeaseNotPresentWithBlobOperation");
    client.delete(&snapshot, &[]).await.expect(202);
    client
        .delete(&snapshot, &[])
        .await
        .refused(404, "BlobNotFound");
}

#[tokio::test]
async fn a_deletion_spares_snapshots_or_deletes_them() {
    let Fixture { client, store, .. } = fixture().await;
    client.upload("/box/a", "1", &[]).await.expect(201);
    let (one, two) = (
        client.snapshot_of("/box/a").await,
        client.snapshot_of("/box/a").await,
    );
    assert_ne!(one, two);
    client
        .delete("/box/a", &[])
        .await
        .refused(409, "SnapshotsPresent");
    client
        .delete("/box/a", &[("if-match", "\"other\"")])
        .await
        .refused(412, "ConditionNotMet");
    client
        .delete("/box/a", &[("x-ms-delete-snapshots", "all")])
        .await
        .refused(400, "InvalidHeaderValue");
    client
        .delete(&one, &[("x-ms-delete-snapshots", "include")])
        .await
        .refused(400, "InvalidHeaderValue");
    client
        .delete(&one, &[("if-match", "\"other\"")])
        .await
        .refused(412, "ConditionNotMet");
    let lease = [
        ("x-ms-lease-action", "acquire"),
        ("x-ms-lease-duration", "-1"),
    ];
    let lease = client
        .put("/box/a?comp=lease", &lease, "")
        .await
        .expect(201);
    for snapshots in ["include", "only"] {
        client
            .delete("/box/a", &[("x-ms-delete-snapshots", snapshots)])
            .await
            .refused(412, "LeaseIdMissing");
    }
    client
        .delete("/box/a", &[])
        .await
        .refused(412, "LeaseIdMissing");
    let held = [("x-ms-lease-id", lease.header("x-ms-lease-id"))];
    client
        .delete("/box/a", &held)
        .await
        .refused(409, "SnapshotsPresent");
    client.delete(&one, &[]).await.expect(202);
    client.get(&one).await.refused(404, "BlobNotFound");
    assert_eq!(client.listed("").await, ["a:1", "a"]);
    client
        .delete(
            "/box/a",
            &[&held[..], &[("x-ms-delete-snapshots", "only")]].concat(),
        )
        .await
        .expect(202);
    assert_eq!(client.listed("").await, ["a"]);
    client.delete("/box/a", &held).await.expect(202);
    assert!(store.is_empty(&ContainerName::internal("snapshots").expect("valid")));

    // Another blob of the name has none of the old one's, whatever deleted it.
    for by_store in [false, true] {
        client.upload("/box/a", "1", &[]).await.expect(201);
        let old = client.snapshot_of("/box/a").await;
        if by_store {
            let blob = BlobPath::parse("/box/a").expect("valid");
            store
                .delete(&blob, Delete::default())
                .await
                .expect("deleted");
        } else {
            client
                .delete("/box/a", &[("x-ms-delete-snapshots", "include")])
                .await
                .expect(202);
        }
        client.get(&old).await.refused(404, "BlobNotFound");
        client.upload("/box/a", "2", &[]).await.expect(201);
        client.get(&old).await.refused(404, "BlobNotFound");
        assert_eq!(client.listed("").await, ["a"]);
        client.delete("/box/a", &[]).await.expect(202);
    }
    client.upload("/box/a", "1", &[]).await.expect(201);
    let old = client.snapshot_of("/box/a").await;
    client
        .delete("/box?restype=container", &[])
        .await
        .expect(202);
    client
        .put("/box?restype=container", &[], "")
        .await
        .expect(201);
    client.upload("/box/a", "2", &[]).await.expect(201);
    client.get(&old).await.refused(404, "BlobNotFound");
    client.delete("/box/a", &[]).await.expect(202);
}

#[tokio::test]
async fn pages_of_a_listing_may_end_between_snapshots() {
    let client = fixture().await.client;
    for name in ["a", "b", "f/a", "g"] {
        for text in ["1", "2", "3"] {
            client
                .upload(&format!("/box/{name}"), text, &[])
                .await
                .expect(201);
            if name != "b" {
                client.snapshot_of(&format!("/box/{name}")).await;
            }
        }
    }
    let all = [
        "a:1", "a:2", "a:3", "a", "b", "f/a:1", "f/a:2", "f/a:3", "f/a", "g:1", "g:2", "g:3", "g",
    ];
    for most in 1..15 {
        assert_eq!(
            client.listed(&format!("&maxresults={most}")).await,
            all,
            "{most}"
        );
        let within = client.listed(&format!("&prefix=f&maxresults={most}")).await;
        assert_eq!(within, ["f/a:1", "f/a:2", "f/a:3", "f/a"], "{most}");
        let from = client
            .listed(&format!("&startFrom=b&prefix=&maxresults={most}"))
            .await;
        assert_eq!(from, all[4..], "{most}");
    }
    let page = client
        .get("/box?restype=container&comp=list&delimiter=/&include=snapshots")
        .await
        .expect(200);
    assert_eq!(
        (page.all("BlobPrefix").len(), page.all("Snapshot").len()),
        (1, 6)
    );
    let without = client
        .get("/box?restype=container&comp=list")
        .await
        .expect(200);
    assert_eq!(
        (without.all("Name"), without.all("Snapshot").len()),
        (vec!["a", "b", "f/a", "g"], 0)
    );
}

/// The sweep at the start removes bodies that no record names, and a backup has the bodies of all records.
#[tokio::test]
async fn the_bytes_of_a_snapshot_survive_sweeps_and_backups() {
    let own = fixture().await;
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut store = IndexedStore::open(folder.path()).await.expect("it opens");
    let client = |store: &IndexedStore| own.client.over(store.clone());
    let first = client(&store);
    first
        .put("/box?restype=container", &[], "")
        .await
        .expect(201);
    first
        .upload("/box/a", "1".repeat(LARGE), &[])
        .await
        .expect(201);
    let snapshot = first.snapshot_of("/box/a").await;
    first
        .upload("/box/a", "2".repeat(LARGE), &[])
        .await
        .expect(201);
    let backup = store.snapshot().await.expect("a backup");
    assert_eq!(backup.bodies, 2);
    let backup = IndexedStore::open(&backup.folder).await.expect("it opens");
    assert_eq!(
        client(&backup).get(&snapshot).await.expect(200).text(),
        "1".repeat(LARGE)
    );
    drop(first);
    drop(store);
    store = reopen(|| IndexedStore::open(folder.path())).await;
    store.forget_deletions().await.expect("collected");
    let later = client(&store);
    assert_eq!(
        later.get(&snapshot).await.expect(200).text(),
        "1".repeat(LARGE)
    );
    assert_eq!(
        later.get("/box/a").await.expect(200).text(),
        "2".repeat(LARGE)
    );
    later
        .delete("/box/a", &[])
        .await
        .refused(409, "SnapshotsPresent");
}

#[tokio::test]
async fn unreachable_snapshots_are_collected() {
    let Fixture {
        client,
        store,
        clock,
    } = fixture().await;
    for name in ["gone", "kept"] {
        client
            .upload(&format!("/box/{name}"), "1", &[])
            .await
            .expect(201);
        client.snapshot_of(&format!("/box/{name}")).await;
    }
    store
        .delete(
            &BlobPath::parse("/box/gone").expect("valid"),
            Delete::default(),
        )
        .await
        .expect("deleted");
    let context = context(&store, &client);
    assert_eq!(
        ifmatch_azure::collect_garbage(&context)
            .await
            .expect("collected"),
        0
    );
    clock.advance(Duration::from_hours(8 * 24));
    assert_eq!(
        ifmatch_azure::collect_garbage(&context)
            .await
            .expect("collected"),
        1
    );
    assert_eq!(client.listed("").await, ["kept:1", "kept"]);
    assert_eq!(stored(&store).await, 1);
}

/// Returns the number of snapshots, also of those that can't be reached.
async fn stored(store: &IndexedStore) -> usize {
    let (container, all) = (
        ContainerName::internal("snapshots").expect("valid"),
        ListQuery::first(10),
    );
    store
        .list(&container, &all)
        .await
        .expect("listed")
        .map_or(0, |page| page.items.len())
}

fn context(store: &IndexedStore, client: &Client) -> Context {
    Context {
        store: Arc::new(store.clone()),
        clock: Arc::new(client.clock.clone()),
        max_body: u64::MAX,
        required: ifmatch_core::policy::RequirePreconditions::default(),
        waits: Arc::new(ifmatch_blob::waits::Waits::new(1)),
        documents: ifmatch_blob::documents::Documents::default(),
    }
}

#[tokio::test]
async fn a_signature_for_a_blob_is_none_for_its_snapshots() {
    let client = fixture().await.client;
    client.upload("/box/a", "1", &[]).await.expect(201);
    let snapshot = client.snapshot_of("/box/a").await;
    let of_blob = Token::service("b", "r").sign("/blob/photos/box/a");
    read(&client, "/box/a", &of_blob).await.expect(200);
    read(&client, &snapshot, &of_blob)
        .await
        .refused(403, "AuthenticationFailed");
    read(
        &client,
        &snapshot,
        &Token::service("c", "r").sign("/blob/photos/box"),
    )
    .await
    .expect(200);
    read(&client, &snapshot, &Token::account("b", "o", "r").sign(""))
        .await
        .expect(200);
    let source = format!("http://localhost/photos{snapshot}&{of_blob}");
    let copied = client
        .put(
            "/box/b",
            &[("host", "localhost"), ("x-ms-copy-source", &*source)],
            "",
        )
        .await;
    copied.refused(403, "AuthenticationFailed");
}

/// There, nothing would keep a deletion by another gateway away.
#[tokio::test]
async fn object_stores_have_no_snapshots() {
    let client = over_objects(&fixture().await.client, "memory:///").await;
    client.upload("/box/a", "1", &[]).await.expect(201);
    client
        .snapshot("/box/a", &[])
        .await
        .refused(501, "NotImplemented");
    client
        .get("/box/a?snapshot=2026-11-28T19:00:00.0000000Z")
        .await
        .refused(404, "BlobNotFound");
    assert_eq!(client.listed("").await, ["a"]);
    client
        .delete("/box/a", &[("x-ms-delete-snapshots", "only")])
        .await
        .expect(202);
    client
        .delete("/box/a", &[("x-ms-delete-snapshots", "include")])
        .await
        .expect(202);
}

/// Otherwise, a snapshot that its client was told of would be lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_a_snapshot_and_a_bare_deletion_one_wins() {
    let client = fixture().await.client;
    race(&client, &client).await;
}

/// Also if they are requests to two gateways that share a bucket.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_a_snapshot_and_a_bare_deletion_by_two_gateways_one_wins() {
    let own = fixture().await;
    let (register, bodies) = (
        Arc::new(MemoryRegister::unbounded()),
        Arc::new(InMemory::new()),
    );
    let gateway = || {
        let objects = Objects::new(Arc::<InMemory>::clone(&bodies), Path::default());
        let store =
            IndexedStore::in_bucket(objects, Driver::new(Arc::clone(&register))).expect("it opens");
        own.client.over(store)
    };
    let (one, other) = (gateway(), gateway());
    one.put("/box?restype=container", &[], "").await.expect(201);
    race(&one, &other).await;
}

/// Races snapshots by one client and deletions by another. Each wins some of the races.
async fn race(one: &Client, other: &Client) {
    let mut won = [0, 0];
    for round in 0..RACES {
        one.upload("/box/a", "1", &[]).await.expect(201);
        let (first, second) = (one.clone(), other.clone());
        let take = tokio::spawn(async move { first.snapshot("/box/a", &[]).await });
        let delete = tokio::spawn(async move { second.delete("/box/a", &[]).await });
        let (taken, deleted) = (
            take.await.expect("no panic"),
            delete.await.expect("no panic"),
        );
        match (taken.status.as_u16(), deleted.status.as_u16()) {
            (201, 409) => {
                won[0] += 1;
                let snapshot = format!("/box/a?snapshot={}", taken.header("x-ms-snapshot"));
                one.get(&snapshot).await.expect(200);
                other.get(&snapshot).await.expect(200);
                other
                    .delete("/box/a", &[("x-ms-delete-snapshots", "include")])
                    .await
                    .expect(202);
            }
            (404, 202) => won[1] += 1,
            _ => panic!("round {round}: {taken:?} {deleted:?}"),
        }
    }
    assert!(won.iter().all(|won| *won > 0), "no race: {won:?}");
}

/// A hooked store that tells which internal containers are empty.
struct Told<H>(Hooked<H>);

impl<H: Hook> Wrapper for Told<H> {
    fn inner(&self) -> &dyn BlobStore {
        &self.0
    }

    fn peek(&self) -> Option<&dyn Peek> {
        Some(self)
    }
}

impl<H: Hook> Peek for Told<H> {
    fn cached(&self, _: &BlobPath) -> Option<Cached> {
        None
    }

    fn is_empty(&self, container: &ContainerName) -> bool {
        self.0
            .inner
            .peek()
            .is_some_and(|store| store.is_empty(container))
    }
}

/// Returns a client whose requests stop before a step, and the hook.
fn stopped(fixture: &Fixture, step: fn(Step, &ContainerName) -> bool) -> (Client, Stop) {
    let hook = Stop::new(step, 0);
    let store = Told(Hooked {
        inner: Arc::new(fixture.store.clone()),
        hook: hook.clone(),
    });
    (fixture.client.over(store), hook)
}

fn before_the_write_of_a_snapshot(step: Step, container: &ContainerName) -> bool {
    step == Step::Put && container.as_str() == "-snapshots"
}

fn before_a_deletion(step: Step, container: &ContainerName) -> bool {
    step == Step::Delete && container.as_str() == "box"
}

/// Begins a request, and returns it once it has stopped.
async fn begin(
    work: impl Future<Output = Answer> + Send + 'static,
    hook: &Stop,
) -> tokio::task::JoinHandle<Answer> {
    let request = tokio::spawn(work);
    hook.reached().await;
    request
}

#[tokio::test]
async fn a_snapshot_that_a_bare_deletion_overtakes_is_not_taken() {
    let fixture = fixture().await;
    let client = fixture.client.clone();
    for is_created_again in [false, true] {
        client.upload("/box/a", "1", &[]).await.expect(201);
        let (slow, hook) = stopped(&fixture, before_the_write_of_a_snapshot);
        let taking = begin(async move { slow.snapshot("/box/a", &[]).await }, &hook).await;
        client.delete("/box/a", &[]).await.expect(202);
        if is_created_again {
            client.upload("/box/a", "2", &[]).await.expect(201);
        }
        hook.go_on();
        taking.await.expect("no panic").refused(404, "BlobNotFound");
        assert_eq!(stored(&fixture.store).await, 0);
    }
    client.delete("/box/a", &[]).await.expect(202);
}

/// Whatever else is written, and whether or not there were snapshots before.
#[tokio::test]
async fn a_bare_deletion_that_a_snapshot_overtakes_spares_the_blob() {
    for had_one in [false, true] {
        for (comp, fields) in [
            ("", &[][..]),
            ("&comp=metadata", &[("x-ms-meta-a", "1")]),
            ("&comp=tier", &[("x-ms-access-tier", "Cool")]),
        ] {
            let fixture = fixture().await;
            let client = fixture.client.clone();
            client.upload("/box/a", "1", &[]).await.expect(201);
            if had_one {
                let snapshot = client.snapshot_of("/box/a").await;
                client.delete(&snapshot, &[]).await.expect(202);
            }
            let (slow, hook) = stopped(&fixture, before_a_deletion);
            let deleting = begin(async move { slow.delete("/box/a", &[]).await }, &hook).await;
            let snapshot = client.snapshot_of("/box/a").await;
            if comp.is_empty() {
                client.upload("/box/a", "2", &[]).await.expect(201);
            } else {
                client
                    .put(&format!("/box/a?x=1{comp}"), fields, "")
                    .await
                    .expect(200);
            }
            hook.go_on();
            deleting
                .await
                .expect("no panic")
                .refused(409, "SnapshotsPresent");
            assert_eq!(client.get(&snapshot).await.expect(200).text(), "1");
        }
    }
}

fn before_the_deletion_of_a_snapshot(step: Step, container: &ContainerName) -> bool {
    step == Step::Delete && container.as_str() == "-snapshots"
}

/// The condition of the deletion was for the version before.
#[tokio::test]
async fn a_deletion_of_the_snapshots_alone_spares_those_of_a_later_version() {
    let fixture = fixture().await;
    let client = fixture.client.clone();
    let first = client.upload("/box/a", "1", &[]).await.expect(201);
    client.snapshot_of("/box/a").await;
    let (slow, hook) = stopped(&fixture, before_the_deletion_of_a_snapshot);
    let tag = first.header("etag").to_owned();
    let only = async move {
        slow.delete(
            "/box/a",
            &[("if-match", &*tag), ("x-ms-delete-snapshots", "only")],
        )
        .await
    };
    let deleting = begin(only, &hook).await;
    client.upload("/box/a", "2", &[]).await.expect(201);
    client.snapshot_of("/box/a").await;
    hook.go_on();
    deleting.await.expect("no panic").expect(202);
    assert_eq!(client.listed("").await, ["a:2", "a"]);
}

#[tokio::test]
async fn a_snapshot_that_a_deletion_with_snapshots_overtakes_is_not_taken() {
    let fixture = fixture().await;
    let client = fixture.client.clone();
    client.upload("/box/a", "1", &[]).await.expect(201);
    let (slow, hook) = stopped(&fixture, before_the_write_of_a_snapshot);
    let taking = begin(async move { slow.snapshot("/box/a", &[]).await }, &hook).await;
    client
        .delete("/box/a", &[("x-ms-delete-snapshots", "include")])
        .await
        .expect(202);
    client.upload("/box/a", "2", &[]).await.expect(201);
    hook.go_on();
    taking.await.expect("no panic").refused(404, "BlobNotFound");
    assert_eq!(client.listed("").await, ["a"]);
    client.delete("/box/a", &[]).await.expect(202);
}

#[tokio::test]
async fn a_snapshot_that_a_write_overtakes_has_the_version_that_it_saw() {
    for large in [false, true] {
        let text = |text: &str| {
            if large {
                text.repeat(LARGE)
            } else {
                text.to_owned()
            }
        };
        let fixture = fixture().await;
        let client = fixture.client.clone();
        let first = client.upload("/box/a", text("1"), &[]).await.expect(201);
        let (slow, hook) = stopped(&fixture, before_the_write_of_a_snapshot);
        let taking = begin(async move { slow.snapshot("/box/a", &[]).await }, &hook).await;
        client.upload("/box/a", text("2"), &[]).await.expect(201);
        hook.go_on();
        let taken = taking.await.expect("no panic").expect(201);
        let old = client
            .get(&format!(
                "/box/a?snapshot={}",
                taken.header("x-ms-snapshot")
            ))
            .await
            .expect(200);
        assert_eq!(
            (old.text(), old.header("etag")),
            (&*text("1"), first.header("etag"))
        );
        assert_eq!(client.get("/box/a").await.expect(200).text(), text("2"));
    }
}
