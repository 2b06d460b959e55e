//! Blobs from their first write to their deletion.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::{Method, Request};
use http_body_util::Full;

use crate::support::{fixture, send};

#[tokio::test]
async fn a_blob_comes_back_as_it_was_written() {
    let client = fixture().await.client;
    let fields = [
        ("content-type", "application/octet-stream"),
        ("x-ms-blob-content-type", "text/plain"),
        ("x-ms-blob-content-encoding", "identity"),
        ("x-ms-blob-content-language", "en"),
        ("x-ms-blob-content-disposition", "inline"),
        ("x-ms-blob-cache-control", "no-cache"),
        ("x-ms-meta-owner", "me"),
        ("x-ms-client-request-id", "a name"),
    ];
    let written = client.upload("/box/a", "hello", &fields).await.is(201);
    assert_eq!(written.field("x-ms-version"), "2026-02-06");
    for method in [Method::GET, Method::HEAD] {
        let read = client.send(method.clone(), "/box/a", &[], "").await.is(200);
        assert_eq!(read.body, if method == Method::GET { "hello" } else { "" });
        let expected = [
            ("etag", written.field("etag")),
            ("last-modified", "Sun, 13 Sep 2020 12:26:41 GMT"),
            ("x-ms-creation-time", "Sun, 13 Sep 2020 12:26:40 GMT"),
            ("content-length", "5"),
            ("content-type", "text/plain"),
            ("content-encoding", "identity"),
            ("content-language", "en"),
            ("content-disposition", "inline"),
            ("cache-control", "no-cache"),
            ("x-ms-meta-owner", "me"),
            ("x-ms-blob-type", "BlockBlob"),
            ("x-ms-lease-state", "available"),
            ("x-ms-lease-status", "unlocked"),
            ("accept-ranges", "bytes"),
        ];
        for (name, value) in expected {
            assert_eq!(read.field(name), value, "{name}");
        }
        assert!(!read.headers.contains_key("x-ms-lease-duration"));
    }
    client.delete("/box/a", &[]).await.is(202);
    client.get("/box/a").await.refused(404, "BlobNotFound");
    client.send(Method::HEAD, "/box/a", &[], "").await.refused(404, "BlobNotFound");
    client.delete("/box/a", &[]).await.refused(404, "BlobNotFound");
}

#[tokio::test]
async fn without_a_container_there_are_no_blobs() {
    let client = fixture().await.client;
    for (method, target) in [(Method::GET, "/none/a"), (Method::HEAD, "/none/a"), (Method::DELETE, "/none/a")] {
        client.send(method, target, &[], "").await.refused(404, "ContainerNotFound");
    }
    client.upload("/none/a", "x", &[]).await.refused(404, "ContainerNotFound");
    client.put("/none/a?comp=metadata", &[], "").await.refused(404, "ContainerNotFound");
    client.lease("/none/a", "acquire", &[("x-ms-lease-duration", "-1")]).await.refused(404, "ContainerNotFound");
    client.put("/none/a?comp=block&blockid=AA==", &[], "x").await.refused(404, "ContainerNotFound");
    client.get("/none?restype=container&comp=list").await.refused(404, "ContainerNotFound");
    assert_eq!(client.get("?comp=list").await.all("Name"), ["box"], "no request may create a container");
}

#[tokio::test]
async fn each_write_gives_a_new_tag_even_of_the_same_bytes() {
    let client = fixture().await.client;
    let mut tags = Vec::new();
    for _ in 0..3 {
        tags.push(client.upload("/box/a", "same", &[]).await.is(201).tag());
    }
    tags.push(client.put("/box/a?comp=metadata", &[("x-ms-meta-a", "1")], "").await.is(200).tag());
    tags.push(client.put("/box/a?comp=metadata", &[("x-ms-meta-a", "1")], "").await.is(200).tag());
    tags.push(client.put("/box/a?comp=properties", &[], "").await.is(200).tag());
    let current = client.get("/box/a").await.tag();
    assert_eq!(tags.last(), Some(&current));
    tags.sort_unstable();
    tags.dedup();
    assert_eq!(tags.len(), 6);
}

#[tokio::test]
async fn metadata_and_properties_are_replaced_apart() {
    let client = fixture().await.client;
    let fields = [("x-ms-blob-content-type", "text/plain"), ("x-ms-meta-a", "1"), ("x-ms-meta-b", "2")];
    client.upload("/box/a", "x", &fields).await.is(201);
    client.put("/box/a?comp=metadata", &[("x-ms-meta-c", "3")], "").await.is(200);
    let read = client.send(Method::HEAD, "/box/a", &[], "").await.is(200);
    assert_eq!((read.field("x-ms-meta-c"), read.field("content-type")), ("3", "text/plain"));
    assert!(!read.headers.contains_key("x-ms-meta-a"));
    client.put("/box/a?comp=properties", &[("x-ms-blob-content-language", "en")], "").await.is(200);
    let read = client.get("/box/a").await.is(200);
    let found = (read.field("x-ms-meta-c"), read.field("content-type"), read.field("content-language"));
    assert_eq!(found, ("3", "application/octet-stream", "en"));
    assert_eq!(read.body, "x");
    let metadata = client.get("/box/a?comp=metadata").await.is(200);
    assert_eq!((metadata.field("x-ms-meta-c"), metadata.body.len()), ("3", 0));
}

#[tokio::test]
async fn names_are_what_they_are_once_decoded() {
    let client = fixture().await.client;
    let spellings = [
        ("/box/a%20b/%C3%BCn%C3%AFcode.txt", "/box/a%20b%2F%C3%BCn%C3%AFcode.txt"),
        ("/box/plus+and%25percent", "/box/plus%2Band%25percent"),
    ];
    for (one, other) in spellings {
        client.upload(one, one.to_owned(), &[]).await.is(201);
        assert_eq!(client.get(other).await.is(200).text(), one);
    }
    for refused in ["/box/a//b", "/box/a/../b", "/box/%2E%2E", "/box/a%00b", "/box/a%5Cb", "/box//a", "/BOX/a", "/b/a"]
    {
        client.upload(refused, "x", &[]).await.refused(400, "InvalidResourceName");
    }
    client.upload("/box/a%ZZ", "x", &[]).await.refused(400, "InvalidUri");
    client.upload(&format!("/box/{}", "n".repeat(1025)), "x", &[]).await.refused(400, "InvalidResourceName");
}

/// Both dialects see the same blobs, tags and metadata.
#[tokio::test]
async fn the_plain_dialect_sees_the_same() {
    let client = fixture().await.client;
    let written = client.upload("/box/a", "hello", &[("x-ms-meta-owner", "me")]).await.is(201);
    let plain = |request: http::request::Builder| {
        let service = client.service.clone();
        let request = request.body(Full::from("changed")).expect("a request");
        async move { tower::ServiceExt::oneshot(service, request).await.expect("infallible") }
    };
    let read = plain(Request::get("/box/a")).await;
    assert_eq!(read.headers()["etag"].to_str().expect("ASCII"), written.field("etag"));
    assert_eq!(read.headers()["x-meta-owner"], "me");
    let put = plain(Request::put("/box/a").header("if-match", written.tag())).await;
    assert_eq!(put.status(), 200);
    client.upload("/box/a", "late", &[("if-match", &written.tag())]).await.refused(412, "ConditionNotMet");
    assert_eq!(client.get("/box/a").await.is(200).body, "changed");
}

#[tokio::test]
async fn a_body_must_have_the_md5_that_was_promised() {
    let client = fixture().await.client;
    let right = STANDARD
        .encode([0x5d, 0x41, 0x40, 0x2a, 0xbc, 0x4b, 0x2a, 0x76, 0xb9, 0x71, 0x9d, 0x91, 0x10, 0x17, 0xc5, 0x92]);
    let written = client.upload("/box/a", "hello", &[("content-md5", &right)]).await.is(201);
    assert_eq!(written.field("content-md5"), right);
    client.upload("/box/a", "hallo", &[("content-md5", &right)]).await.refused(400, "Md5Mismatch");
    client.upload("/box/b", "hallo", &[("content-md5", &right)]).await.refused(400, "Md5Mismatch");
    client.upload("/box/b", "hallo", &[("content-md5", "short")]).await.refused(400, "InvalidMd5");
    client.put("/box/c?comp=block&blockid=AA==", &[("content-md5", &right)], "hallo").await.refused(400, "Md5Mismatch");
    client.get("/box/c?comp=blocklist&blocklisttype=all").await.refused(404, "BlobNotFound");
    assert_eq!(client.get("/box/a").await.is(200).body, "hello");
    client.get("/box/b").await.refused(404, "BlobNotFound");
}

#[tokio::test]
async fn too_much_is_refused_and_a_length_is_needed() {
    let client = fixture().await.client;
    let large = vec![0_u8; (1 << 20) + 1];
    client.upload("/box/a", large.clone(), &[]).await.refused(413, "RequestBodyTooLarge");
    client.put("/box/a?comp=block&blockid=AA==", &[], large).await.refused(413, "RequestBodyTooLarge");
    let metadata = "x".repeat(8 * 1024);
    client.upload("/box/a", "x", &[("x-ms-meta-a", &metadata)]).await.refused(400, "MetadataTooLarge");
    client.get("/box/a").await.refused(404, "BlobNotFound");
}

/// A body that is shorter than promised leaves the blob as it was.
#[tokio::test]
async fn an_incomplete_body_is_not_stored() {
    let client = fixture().await.client;
    client.upload("/box/a", "first", &[]).await.is(201);
    let mut request = client.signed(
        Method::PUT,
        "/box/a",
        &[("x-ms-blob-type", "BlockBlob")],
        "second".into(),
        std::time::Duration::ZERO,
    );
    *request.body_mut() = Full::from("sec");
    send(&client.service, request).await.refused(400, "IncompleteBody");
    assert_eq!(client.get("/box/a").await.is(200).body, "first");
}

#[tokio::test]
async fn the_account_and_the_service_describe_themselves() {
    let client = fixture().await.client;
    let account = client.get("?restype=account&comp=properties").await.is(200);
    assert_eq!(account.field("x-ms-account-kind"), "StorageV2");
    let properties = client.get("?restype=service&comp=properties").await.is(200);
    assert_eq!(properties.all("Cors"), [""]);
}

/// What is kept with a blob stands in listings of thousands, and in memory.
#[tokio::test]
async fn what_is_kept_with_a_blob_has_a_limit() {
    let client = fixture().await.client;
    let tag = client.upload("/box/a", "x", &[]).await.is(201).tag();
    let (long, half) = ("x".repeat(8 * 1024 + 1), "x".repeat(4 * 1024 + 1));
    let both = [("x-ms-blob-content-type", half.as_str()), ("x-ms-blob-cache-control", half.as_str())];
    for fields in [&[("x-ms-blob-content-disposition", long.as_str())][..], &both] {
        client.upload("/box/a", "y", fields).await.refused(400, "InvalidHeaderValue");
        client.put("/box/a?comp=properties", fields, "").await.refused(400, "InvalidHeaderValue");
        client.put("/box/a?comp=blocklist", fields, "<BlockList/>").await.refused(400, "InvalidHeaderValue");
    }
    assert_eq!(client.get("/box/a").await.is(200).tag(), tag);
}
