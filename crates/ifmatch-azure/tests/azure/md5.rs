//! The MD5 of a blob: computed or supplied, stored, and returned.

use http::Method;

use crate::support::{Answer, Client, fixture};

/// MD5 of `hello`.
const HELLO: &str = "XUFAKrxLKna5cZ2REBfFkg==";
/// MD5 of `hallo`.
const HALLO: &str = "WY1MIARhuBUiozKFZcJffA==";
const GIVEN: &str = "x-ms-blob-content-md5";

/// Returns the MD5 reported by HEAD, GET, a range and a listing, which must agree.
async fn told(client: &Client, path: &str) -> String {
    let fields = |answer: &Answer| {
        let field = |name| answer.headers.get(name).map_or("", |value| value.to_str().expect("ASCII")).to_owned();
        (field("content-md5"), field(GIVEN))
    };
    let (md5, _) = fields(&client.send(Method::HEAD, path, &[], "").await.is(200));
    assert_eq!(fields(&client.get(path).await.is(200)), (md5.clone(), String::new()));
    let range = client.send(Method::GET, path, &[("x-ms-range", "bytes=1-2")], "").await.is(206);
    assert_eq!(fields(&range), (String::new(), md5.clone()));
    let listed = client.get("/box?restype=container&comp=list").await.is(200);
    assert_eq!(listed.all("Content-MD5").concat(), md5);
    md5
}

#[tokio::test]
async fn put_blob_computes_it() {
    let client = fixture().await.client;
    let written = client.upload("/box/a", "hello", &[]).await.is(201);
    assert_eq!((written.field("content-md5"), told(&client, "/box/a").await.as_str()), (HELLO, HELLO));
    let written = client.upload("/box/a", "hallo", &[]).await.is(201);
    assert_eq!((written.field("content-md5"), told(&client, "/box/a").await.as_str()), (HALLO, HALLO));
}

#[tokio::test]
async fn put_blob_checks_the_one_that_is_given_for_the_blob_before_that_of_the_body() {
    let client = fixture().await.client;
    client.upload("/box/a", "hello", &[(GIVEN, HELLO), ("content-md5", HALLO)]).await.is(201);
    let both = [(GIVEN, HELLO), ("content-md5", HALLO)];
    client.upload("/box/a", "hallo", &both).await.refused(400, "Md5Mismatch");
    client.upload("/box/a", "hallo", &[(GIVEN, HELLO)]).await.refused(400, "Md5Mismatch");
    client.upload("/box/a", "hallo", &[(GIVEN, "short")]).await.refused(400, "InvalidMd5");
    assert_eq!(client.get("/box/a").await.is(200).text(), "hello");
    assert_eq!(told(&client, "/box/a").await, HELLO);
}

#[tokio::test]
async fn a_block_list_keeps_what_the_client_gives_and_computes_nothing() {
    let client = fixture().await.client;
    let commit = async |fields: &[(&str, &str)]| {
        client.put("/box/a?comp=block&blockid=AA==", &[("content-md5", HELLO)], "hello").await.is(201);
        let list = "<BlockList><Latest>AA==</Latest></BlockList>";
        client.put("/box/a?comp=blocklist", fields, list).await.is(201);
        told(&client, "/box/a").await
    };
    assert_eq!(commit(&[(GIVEN, HELLO)]).await, HELLO);
    // The MD5 is not checked, as in the real service.
    assert_eq!(commit(&[(GIVEN, HALLO)]).await, HALLO);
    assert_eq!(commit(&[]).await, "");
}

#[tokio::test]
async fn it_is_one_of_the_properties_and_no_metadata() {
    let client = fixture().await.client;
    client.upload("/box/a", "hello", &[]).await.is(201);
    client.put("/box/a?comp=metadata", &[("x-ms-meta-a", "1")], "").await.is(200);
    assert_eq!(told(&client, "/box/a").await, HELLO);
    client.put("/box/a?comp=properties", &[(GIVEN, HALLO)], "").await.is(200);
    assert_eq!(told(&client, "/box/a").await, HALLO);
    client.put("/box/a?comp=properties", &[("x-ms-blob-content-type", "text/plain")], "").await.is(200);
    assert_eq!(told(&client, "/box/a").await, "");
}

#[tokio::test]
async fn a_range_can_have_one_of_its_own() {
    let client = fixture().await.client;
    client.upload("/box/a", "hello world", &[]).await.is(201);
    let fields = [("x-ms-range", "bytes=0-4"), ("x-ms-range-get-content-md5", "true")];
    let read = client.send(Method::GET, "/box/a", &fields, "").await.is(206);
    assert_eq!((read.field("content-md5"), read.field(GIVEN)), (HELLO, "XrY7u+Ae7tCTyyK7j1rNww=="));
}
