//! Parts of a blob.

use http::Method;

use crate::support::fixture;

#[tokio::test]
async fn one_range_is_served_and_azures_own_field_wins() {
    let client = fixture().await.client;
    let tag = client.upload("/box/a", "0123456789", &[]).await.is(201).tag();
    let rows = [
        (&[("x-ms-range", "bytes=2-4")][..], 206, "234", "bytes 2-4/10"),
        (&[("range", "bytes=2-4")], 206, "234", "bytes 2-4/10"),
        (&[("range", "bytes=0-0"), ("x-ms-range", "bytes=8-")], 206, "89", "bytes 8-9/10"),
        (&[("x-ms-range", "bytes=0-33554431")], 206, "0123456789", "bytes 0-9/10"),
        (&[("x-ms-range", "bytes=2-4"), ("if-match", &tag)], 206, "234", "bytes 2-4/10"),
        (&[("x-ms-range", "bytes=0-1,4-5")], 200, "0123456789", ""),
        (&[("x-ms-range", "lines=0-1")], 200, "0123456789", ""),
        (&[("range", "bytes=0-1"), ("if-range", "\"other\"")], 200, "0123456789", ""),
        (&[("range", "bytes=0-1"), ("if-range", &tag)], 206, "01", "bytes 0-1/10"),
    ];
    for (fields, status, body, content_range) in rows {
        let answer = client.send(Method::GET, "/box/a", fields, "").await.is(status);
        assert_eq!(answer.body, body, "{fields:?}");
        assert_eq!(
            answer.headers.get("content-range").map_or("", |value| value.to_str().expect("ASCII")),
            content_range
        );
        assert_eq!(answer.tag(), tag);
    }
    let whole = client.send(Method::HEAD, "/box/a", &[("range", "bytes=2-4")], "").await.is(200);
    assert_eq!(whole.field("content-length"), "10");
}

/// Python asks for the first 32 MiB of everything, and for all of it if there is nothing.
#[tokio::test]
async fn an_empty_blob_has_no_range() {
    let client = fixture().await.client;
    client.upload("/box/a", "", &[]).await.is(201);
    let answer = client.send(Method::GET, "/box/a", &[("x-ms-range", "bytes=0-33554431")], "").await;
    answer.refused(416, "InvalidRange");
    assert_eq!(answer.field("content-range"), "bytes */0");
    assert_eq!(client.get("/box/a").await.is(200).field("content-length"), "0");
}

/// Conditions come before ranges: a client that goes on with a download must learn that the blob changed.
#[tokio::test]
async fn a_condition_comes_before_the_range() {
    let client = fixture().await.client;
    let tag = client.upload("/box/a", "0123456789", &[]).await.is(201).tag();
    client.upload("/box/a", "01", &[]).await.is(201);
    let fields = [("x-ms-range", "bytes=5-9"), ("if-match", tag.as_str())];
    client.send(Method::GET, "/box/a", &fields, "").await.refused(412, "ConditionNotMet");
}

#[tokio::test]
async fn a_range_comes_with_its_md5_if_that_is_asked_for() {
    let client = fixture().await.client;
    client.upload("/box/a", "say hello", &[]).await.is(201);
    let fields = [("x-ms-range", "bytes=4-8"), ("x-ms-range-get-content-md5", "true")];
    let answer = client.send(Method::GET, "/box/a", &fields, "").await.is(206);
    assert_eq!((answer.text(), answer.field("content-md5")), ("hello", "XUFAKrxLKna5cZ2REBfFkg=="));
}
