//! Append blobs on every kind of store: races at one position, and what a blob keeps.

use std::time::Duration;

use http::Method;

use crate::support::{Answer, Client, fixture, over_objects, send};

/// Number of races on each store.
const RACES: u64 = 1000;
const APPEND: &str = "/box/log?comp=appendblock";

/// Returns clients of a folder and of objects in memory, each with an empty append blob.
async fn clients() -> Vec<(&'static str, Client)> {
    let own = fixture().await.client;
    let in_memory = over_objects(&own, "memory:///").await;
    let clients = vec![("folder", own), ("objects", in_memory)];
    for (_, client) in &clients {
        client
            .put("/box/log", &[("x-ms-blob-type", "AppendBlob")], "")
            .await
            .expect(201);
    }
    clients
}

async fn append(client: &Client, fields: &[(&str, &str)], body: &'static str) -> Answer {
    let request = client.signed(Method::PUT, APPEND, fields, body.into(), Duration::ZERO);
    send(&client.service, request).await
}

/// Two appends at one position, or up to one size, of a body or of another blob: one wins, and the bytes are the winners'.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_position_and_a_size_have_one_winner() {
    for (name, client) in clients().await {
        let mut expected = String::new();
        for letter in ["a", "b"] {
            client
                .upload(&format!("/box/{letter}"), letter, &[])
                .await
                .expect(201);
        }
        for round in 0..RACES {
            let (field, value) = match round % 2 {
                0 => ("x-ms-blob-condition-appendpos", round),
                _ => ("x-ms-blob-condition-maxsize", round + 1),
            };
            let value = value.to_string();
            let race = ["a", "b"].map(|letter| {
                let (client, value) = (client.clone(), value.clone());
                tokio::spawn(async move {
                    let source = format!("http://localhost/photos/box/{letter}");
                    let from_url = [
                        (field, &*value),
                        ("host", "localhost"),
                        ("x-ms-copy-source", &*source),
                    ];
                    match round % 4 {
                        0 | 1 => append(&client, &from_url[..1], letter).await,
                        _ => append(&client, &from_url, "").await,
                    }
                })
            });
            let mut winners = Vec::new();
            for (racer, letter) in race.into_iter().zip(["a", "b"]) {
                let answer = racer.await.expect("no panic");
                match (answer.status.as_u16(), answer.code()) {
                    (201, _) => {
                        assert_eq!(answer.header("x-ms-blob-append-offset"), round.to_string());
                        winners.push(letter);
                    }
                    (412, "AppendPositionConditionNotMet" | "MaxBlobSizeConditionNotMet") => {}
                    _ => panic!("{name}: {answer:?}"),
                }
            }
            assert_eq!(winners.len(), 1, "{name}, round {round}: {winners:?}");
            expected += winners[0];
        }
        let read = client.get("/box/log").await.expect(200);
        assert_eq!(read.text(), expected, "{name}");
        assert_eq!(
            read.header("x-ms-blob-committed-block-count"),
            RACES.to_string()
        );
    }
}

/// Unconditional appends exclude nothing: each takes effect once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_appends_are_all_kept() {
    for (name, client) in clients().await {
        let all: Vec<_> = (0..40)
            .map(|_| {
                let client = client.clone();
                tokio::spawn(async move { append(&client, &[], "12345").await.expect(201) })
            })
            .collect();
        let mut offsets = Vec::new();
        for one in all {
            offsets.push(
                one.await
                    .expect("no panic")
                    .header("x-ms-blob-append-offset")
                    .parse::<u64>()
                    .expect("a number"),
            );
        }
        offsets.sort_unstable();
        assert_eq!(
            offsets,
            (0..40).map(|number| number * 5).collect::<Vec<_>>(),
            "{name}"
        );
        assert_eq!(
            client.get("/box/log").await.expect(200).text(),
            "12345".repeat(40),
            "{name}"
        );
    }
}

#[tokio::test]
#[expect(clippy::too_many_lines, reason = "one history")]
async fn a_blob_keeps_its_type_and_its_seal() {
    for (name, client) in clients().await {
        let typed = async |kind: &str, count: &str| {
            let read = client
                .send(Method::HEAD, "/box/log", &[], "")
                .await
                .expect(200);
            assert_eq!(
                (
                    read.header("x-ms-blob-type"),
                    read.header("x-ms-blob-committed-block-count")
                ),
                (kind, count),
                "{name}"
            );
        };
        // The metadata of a block is ignored: adlfs sends some.
        append(&client, &[("x-ms-meta-is_directory", "false")], "one")
            .await
            .expect(201);
        client
            .put("/box/log?comp=metadata", &[("x-ms-meta-a", "b")], "")
            .await
            .expect(200);
        client
            .put(
                "/box/log?comp=properties",
                &[("x-ms-blob-content-type", "a/b")],
                "",
            )
            .await
            .expect(200);
        typed("AppendBlob", "1").await;
        append(&client, &[], "two").await.expect(201);
        let read = client.get("/box/log").await.expect(200);
        assert_eq!(
            (
                read.text(),
                read.header("x-ms-meta-a"),
                read.header("content-type")
            ),
            ("onetwo", "b", "a/b")
        );
        assert!(!read.headers.contains_key("content-md5"));
        // A register in memory keeps no leases for objects.
        let mut with = Vec::new();
        let lease = [
            ("x-ms-lease-action", "acquire"),
            ("x-ms-lease-duration", "-1"),
        ];
        let lease = client.put("/box/log?comp=lease", &lease, "").await;
        if name == "folder" {
            append(&client, &[], "x")
                .await
                .refused(412, "LeaseIdMissing");
            client
                .put("/box/log?comp=seal", &[], "")
                .await
                .refused(412, "LeaseIdMissing");
            with.push(("x-ms-lease-id", lease.header("x-ms-lease-id")));
        }
        append(&client, &with, "three").await.expect(201);
        let md5 = [&with[..], &[("content-md5", "AAAAAAAAAAAAAAAAAAAAAA==")]].concat();
        append(&client, &md5, "x").await.refused(400, "Md5Mismatch");
        assert_eq!(
            client
                .put("/box/log?comp=seal", &with, "")
                .await
                .expect(200)
                .header("x-ms-blob-sealed"),
            "true"
        );
        append(&client, &with, "x")
            .await
            .refused(409, "BlobIsSealed");
        assert_eq!(
            client
                .get("/box/log")
                .await
                .expect(200)
                .header("x-ms-blob-sealed"),
            "true"
        );
        let listing = client
            .get("/box?restype=container&comp=list")
            .await
            .expect(200);
        assert_eq!(
            (listing.all("BlobType"), listing.all("Sealed")),
            (vec!["AppendBlob"], vec!["true"])
        );
        // A blob keeps its type until it is deleted.
        client
            .upload("/box/log", "block", &with)
            .await
            .refused(409, "InvalidBlobType");
        client
            .put("/box/log?comp=blocklist", &with, "<BlockList/>")
            .await
            .refused(409, "InvalidBlobType");
        client.upload("/box/block", "block", &[]).await.expect(201);
        client
            .put("/box/block", &[("x-ms-blob-type", "AppendBlob")], "")
            .await
            .refused(409, "InvalidBlobType");
        for (from, onto) in [("log", "block"), ("block", "log")] {
            let source = format!("http://localhost/photos/box/{from}");
            let copy = [("host", "localhost"), ("x-ms-copy-source", &*source)];
            let lease = if onto == "log" { &with[..] } else { &[] };
            client
                .put(&format!("/box/{onto}"), &[lease, &copy].concat(), "")
                .await
                .refused(409, "InvalidBlobType");
        }
        append(&client, &with, "x")
            .await
            .refused(409, "BlobIsSealed");
        client.delete("/box/log", &with).await.expect(202);
        client.upload("/box/log", "block", &[]).await.expect(201);
        assert_eq!(
            client
                .get("/box/log")
                .await
                .expect(200)
                .header("x-ms-blob-type"),
            "BlockBlob"
        );
        append(&client, &[], "x")
            .await
            .refused(409, "InvalidBlobType");
    }
}

/// Such a store would make a block blob of it.
#[tokio::test]
async fn a_store_without_metadata_has_no_append_blobs() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let url = url::Url::from_file_path(folder.path()).expect("absolute");
    let client = over_objects(&fixture().await.client, url.as_str()).await;
    client
        .put("/box/log", &[("x-ms-blob-type", "AppendBlob")], "")
        .await
        .refused(501, "NotImplemented");
    client.get("/box/log").await.refused(404, "BlobNotFound");
}
