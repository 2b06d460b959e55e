//! Blocks that were committed before, or staged again, on stores that know hashes or don't; and their garbage collection.

use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ifmatch_azure::collect_garbage;
use ifmatch_blob::BlobService;
use ifmatch_blob::test_util::{Hooked, Stop};

use crate::support::{Answer, Client, Fixture, fixture, over_objects};

/// Stages a block with an id of one letter.
async fn stage(client: &Client, id: &str, bytes: &'static str) {
    client
        .put(
            &format!("/box/a?comp=block&blockid={}", STANDARD.encode(id)),
            &[],
            bytes,
        )
        .await
        .expect(201);
}

/// Commits blocks, each by its element in the block list (`Committed`, `Uncommitted` or `Latest`) and its id.
async fn commit(client: &Client, blocks: &[(&str, &str)]) -> Answer {
    let block = |(from, id): &(&str, &str)| format!("<{from}>{}</{from}>", STANDARD.encode(id));
    let list = format!(
        "<BlockList>{}</BlockList>",
        blocks.iter().map(block).collect::<String>()
    );
    client.put("/box/a?comp=blocklist", &[], list).await
}

/// If both blocks were committed under one id, the next list that names it would repeat the first of them in the place of
/// the second.
#[tokio::test]
async fn an_id_names_one_block_of_a_list() {
    let client = fixture().await.client;
    stage(&client, "a", "old").await;
    stage(&client, "b", "rest").await;
    commit(&client, &[("Latest", "a"), ("Latest", "b")])
        .await
        .expect(201);
    stage(&client, "a", "newer").await;
    for both in [
        ["Committed", "Uncommitted"],
        ["Uncommitted", "Committed"],
        ["Committed", "Latest"],
    ] {
        commit(&client, &[(both[0], "a"), (both[1], "a")])
            .await
            .refused(400, "InvalidBlockList");
    }
    assert_eq!(
        client.get("/box/a").await.expect(200).text(),
        "oldrest",
        "a refused list changes nothing"
    );
    commit(
        &client,
        &[
            ("Committed", "b"),
            ("Latest", "a"),
            ("Uncommitted", "a"),
            ("Latest", "b"),
        ],
    )
    .await
    .expect(201);
    assert_eq!(
        client.get("/box/a").await.expect(200).text(),
        "restnewernewerrest"
    );
    commit(
        &client,
        &[("Committed", "a"), ("Committed", "b"), ("Latest", "a")],
    )
    .await
    .expect(201);
    assert_eq!(
        client.get("/box/a").await.expect(200).text(),
        "newerrestnewer"
    );
}

/// A retry that gets the first response removes neither the list of the blob nor its blocks.
#[tokio::test]
async fn a_retry_keeps_the_blocks_of_the_blob() {
    let client = fixture().await.client;
    stage(&client, "a", "bytes").await;
    let fields = [("if-none-match", "*"), ("x-ms-client-request-id", "7")];
    for _ in 0..2 {
        let list = format!(
            "<BlockList><Latest>{0}</Latest></BlockList>",
            STANDARD.encode("a")
        );
        client
            .put("/box/a?comp=blocklist", &fields, list)
            .await
            .expect(201);
        stage(&client, "a", "bytes").await;
    }
    commit(&client, &[("Committed", "a"), ("Committed", "a")])
        .await
        .expect(201);
    assert_eq!(client.get("/box/a").await.expect(200).text(), "bytesbytes");
}

/// A retry changes nothing, so a block that was staged since the first attempt can still be committed.
#[tokio::test]
async fn a_retry_keeps_blocks_that_were_staged_since() {
    let client = fixture().await.client;
    client.upload("/box/source", "new", &[]).await.expect(201);
    let put = [
        ("if-none-match", "*"),
        ("x-ms-client-request-id", "7"),
        ("x-ms-blob-type", "BlockBlob"),
    ];
    let copy = [
        ("host", "localhost"),
        ("x-ms-copy-source", "http://localhost/photos/box/source"),
    ];
    for fields in [put.to_vec(), [&put[..], &copy].concat()] {
        client.put("/box/a", &fields, "").await.expect(201);
        stage(&client, "a", "staged").await;
        client.put("/box/a", &fields, "").await.expect(201);
        commit(&client, &[("Uncommitted", "a")]).await.expect(201);
        client.delete("/box/a", &[]).await.expect(202);
    }
}

/// Three writers commit the block that the blob has: the later ones find it in the list of the first.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_lists_find_the_committed_blocks() {
    let client = fixture().await.client;
    stage(&client, "a", "x").await;
    commit(&client, &[("Latest", "a")]).await.expect(201);
    for _ in 0..100 {
        let racers = [0, 1, 2].map(|_| {
            let client = client.clone();
            tokio::spawn(async move { commit(&client, &[("Committed", "a")]).await })
        });
        let mut committed = 0;
        for racer in racers {
            let answer = racer.await.expect("no panic");
            match (answer.status.as_u16(), answer.code()) {
                (201, _) => committed += 1,
                (503, "ServerBusy") => {}
                _ => panic!("{answer:?}"),
            }
        }
        assert!(committed > 0, "each writer gave way to the others");
        let list = client.get("/box/a?comp=blocklist").await.expect(200);
        assert_eq!(list.all("Size"), ["1"]);
    }
}

/// The winner of a race discards the staged blocks of the loser, whose condition is false as well.
#[tokio::test]
async fn a_false_condition_is_reported_before_a_missing_block() {
    let client = fixture().await.client;
    let tag = client
        .upload("/box/a", "old", &[])
        .await
        .expect(201)
        .header("etag")
        .to_owned();
    client.upload("/box/a", "new", &[]).await.expect(201);
    for condition in [("if-match", tag.as_str()), ("if-none-match", "*")] {
        for fields in [
            &[condition][..],
            &[condition, ("x-ms-client-request-id", "7")],
        ] {
            let list = "<BlockList><Uncommitted>AA==</Uncommitted></BlockList>";
            let answer = client.put("/box/a?comp=blocklist", fields, list).await;
            let expected = if condition.1 == "*" {
                (409, "BlobAlreadyExists")
            } else {
                (412, "ConditionNotMet")
            };
            answer.refused(expected.0, expected.1);
        }
    }
}

/// Size of the blocks; two of them exceed the limit of single uploads.
const LONG: usize = 5 * 1024 * 1024;

#[tokio::test]
async fn committed_blocks_can_be_reused() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let in_folder = url::Url::from_file_path(folder.path()).expect("absolute");
    for (store, block) in [(in_folder.as_str(), 1), ("memory:///", LONG)] {
        let client = over_objects(&fixture().await.client, store).await;
        let mut list = String::new();
        let mut bytes = String::new();
        for (id, letter) in [("AA==", "a"), ("AQ==", "b"), ("Ag==", "c")] {
            let target = format!("/box/a?comp=block&blockid={id}");
            client
                .put(&target, &[], letter.repeat(block))
                .await
                .expect(201);
            let _ = write!(list, "<Latest>{id}</Latest>");
            bytes += &letter.repeat(block);
            let document = format!("<BlockList>{list}</BlockList>");
            client
                .put("/box/a?comp=blocklist", &[], document)
                .await
                .expect(201);
            let read = client.get("/box/a").await.expect(200).body;
            assert!(read == bytes, "{store}: {} bytes", read.len());
        }
    }
}

const LIST: &str = "<BlockList><Latest>AA==</Latest></BlockList>";
const WEEK: Duration = Duration::from_hours(7 * 24);

/// Stages the block of [`LIST`].
async fn stage_of(fixture: &Fixture, blob: &str) {
    fixture
        .client
        .put(&format!("/box/{blob}?comp=block&blockid=AA=="), &[], "x")
        .await
        .expect(201);
}

#[tokio::test]
async fn blocks_are_collected_after_a_week() {
    let fixture = fixture().await;
    stage_of(&fixture, "old").await;
    fixture.clock.advance(Duration::from_hours(1));
    stage_of(&fixture, "young").await;
    fixture.clock.advance(WEEK);
    // The ages are a week and an hour, and exactly a week.
    assert_eq!(
        collect_garbage(fixture.client.service.context())
            .await
            .expect("the store works"),
        1
    );
    fixture
        .client
        .put("/box/old?comp=blocklist", &[], LIST)
        .await
        .refused(400, "InvalidBlockList");
    fixture
        .client
        .put("/box/young?comp=blocklist", &[], LIST)
        .await
        .expect(201);
}

#[tokio::test]
async fn lists_are_collected_with_their_blobs() {
    let fixture = fixture().await;
    let client = &fixture.client;
    for blob in ["used", "deleted", "written", "snapshot"] {
        stage_of(&fixture, blob).await;
        client
            .put(&format!("/box/{blob}?comp=blocklist"), &[], LIST)
            .await
            .expect(201);
    }
    client.delete("/box/deleted", &[]).await.expect(202);
    client
        .upload("/box/written", "whole", &[])
        .await
        .expect(201);
    let taken = client.put("/box/snapshot?comp=snapshot", &[], "").await;
    let time = taken.expect(201).header("x-ms-snapshot").to_owned();
    client
        .upload("/box/snapshot", "whole", &[])
        .await
        .expect(201);
    assert_eq!(
        collect_garbage(client.service.context())
            .await
            .expect("the store works"),
        0,
        "all are too recent"
    );
    fixture.clock.advance(WEEK * 2);
    assert_eq!(
        collect_garbage(client.service.context())
            .await
            .expect("the store works"),
        3
    );
    assert_eq!(
        collect_garbage(client.service.context())
            .await
            .expect("the store works"),
        0
    );
    let snapshot = format!("/box/snapshot?snapshot={time}");
    for used in ["/box/used?", &format!("{snapshot}&")] {
        let blocks = client.get(&format!("{used}comp=blocklist")).await;
        assert_eq!(blocks.expect(200).all("Name"), ["AA=="]);
    }
    client.delete(&snapshot, &[]).await.expect(202);
    assert_eq!(
        collect_garbage(client.service.context())
            .await
            .expect("the store works"),
        1
    );
}

#[tokio::test]
async fn an_interrupted_sweep_is_continued_by_the_next() {
    let fixture = fixture().await;
    stage_of(&fixture, "old").await;
    fixture.clock.advance(WEEK * 2);
    // More than two pages of recent blocks, listed before the old one.
    fixture
        .client
        .put("/aaa?restype=container", &[], "")
        .await
        .expect(201);
    for number in 0..120 {
        let id = STANDARD.encode(format!("{number:03}"));
        fixture
            .client
            .put(&format!("/aaa/young?comp=block&blockid={id}"), &[], "x")
            .await
            .expect(201);
    }
    let hook = Stop::of_listings();
    let service = BlobService::with_clock(
        Arc::new(Hooked {
            inner: Arc::new(fixture.store),
            hook: hook.clone(),
        }),
        fixture.clock,
    );
    let mut removed = Vec::new();
    for _ in 0..2 {
        hook.allow(2);
        tokio::select! {
            done = collect_garbage(service.context()) => removed.push(done.expect("the store works")),
            () = hook.reached() => {}
        }
    }
    assert_eq!(
        removed,
        [1],
        "the second invocation reaches the old block and completes the sweep"
    );
    hook.allow(9);
    assert_eq!(
        collect_garbage(service.context())
            .await
            .expect("the store works"),
        0
    );
    assert_eq!(
        hook.left(),
        5,
        "the next sweep starts over: three pages of blocks, one of lists"
    );
}
