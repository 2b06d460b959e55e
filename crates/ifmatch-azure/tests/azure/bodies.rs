//! Limits of bodies, bodies that end early, and the form of batches that single clients need.

use std::time::Duration;

use http::Method;
use http_body_util::Full;
use ifmatch_blob::documents::Documents;

use crate::support::{fixture, send};

#[tokio::test]
async fn a_body_over_the_limit_is_refused() {
    let client = fixture().await.client;
    let large = vec![0_u8; (1 << 20) + 1];
    client
        .upload("/box/a", large.clone(), &[])
        .await
        .refused(413, "RequestBodyTooLarge");
    client
        .put("/box/a?comp=block&blockid=AA==", &[], large)
        .await
        .refused(413, "RequestBodyTooLarge");
    client.get("/box/a").await.refused(404, "BlobNotFound");
    client
        .put("/box/a?comp=block&blockid=AA==", &[], vec![0; 512 * 1024])
        .await
        .expect(201);
    let list = |blocks: usize| {
        format!(
            "<BlockList>{}</BlockList>",
            "<Latest>AA==</Latest>".repeat(blocks)
        )
    };
    client
        .put("/box/a?comp=blocklist", &[], list(3))
        .await
        .refused(413, "RequestBodyTooLarge");
    client
        .put("/box/a?comp=blocklist", &[], list(2))
        .await
        .expect(201);
    assert_eq!(
        client
            .send(Method::HEAD, "/box/a", &[], "")
            .await
            .header("content-length"),
        "1048576"
    );
}

#[tokio::test]
async fn an_incomplete_body_is_not_stored() {
    let client = fixture().await.client;
    client.upload("/box/a", "first", &[]).await.expect(201);
    let fields = [("x-ms-blob-type", "BlockBlob")];
    let mut request = client.signed(
        Method::PUT,
        "/box/a",
        &fields,
        "second".into(),
        Duration::ZERO,
    );
    *request.body_mut() = Full::from("sec");
    send(&client.service, request)
        .await
        .refused(400, "IncompleteBody");
    assert_eq!(client.get("/box/a").await.expect(200).body, "first");
}

#[tokio::test]
async fn a_body_that_is_held_whole_needs_memory() {
    let mut client = fixture().await.client;
    let documents = Documents::new(4096);
    client.service = client.service.clone().documents(documents.clone());
    client
        .put("/box/log", &[("x-ms-blob-type", "AppendBlob")], "")
        .await
        .expect(201);
    let kind = [("content-type", "multipart/mixed; boundary=b")];
    let batch = "--b\r\nContent-ID: 0\r\n\r\nDELETE /box/none HTTP/1.1\r\n\r\n--b--\r\n";
    let requests = [
        (
            Method::PUT,
            "/box/a?comp=blocklist",
            &[][..],
            "<BlockList></BlockList>",
            201,
        ),
        (Method::PUT, "/box/log?comp=appendblock", &[], "line", 201),
        (Method::POST, "/?comp=batch", &kind, batch, 202),
    ];
    for (method, target, fields, body, status) in requests {
        let mut others = documents.begin(None);
        others.grow(4096).expect("all of it");
        let refused = client.send(method.clone(), target, fields, body).await;
        refused.refused(503, "ServerBusy");
        assert_eq!(refused.header("retry-after"), "1", "{target}");
        drop(others);
        client
            .send(method, target, fields, body)
            .await
            .expect(status);
        assert_eq!(documents.taken(), 0, "{target}");
    }
}

#[tokio::test]
async fn a_body_has_one_digest_which_is_verified() {
    const MD5: (&str, &str) = ("content-md5", "XUFAKrxLKna5cZ2REBfFkg==");
    const CRC64: (&str, &str) = ("x-ms-content-crc64", "V0JSBnCFdzM=");
    const OTHER: (&str, &str) = ("x-ms-content-crc64", "AAAAAAAAAAA=");
    let client = fixture().await.client;
    let append = [("x-ms-blob-type", "AppendBlob")];
    let kind = [("x-ms-blob-type", "BlockBlob")];
    client.put("/box/log", &append, "").await.expect(201);
    let targets = [
        ("/box/log?comp=appendblock", &[][..]),
        ("/box/a?comp=block&blockid=AA==", &[]),
        ("/box/a", &kind),
    ];
    for (target, fields) in targets {
        let put = |digests: &[(&'static str, &'static str)]| {
            let fields = [fields, digests].concat();
            let client = client.clone();
            async move { client.put(target, &fields, "hello").await }
        };
        put(&[OTHER]).await.refused(400, "Crc64Mismatch");
        put(&[CRC64, MD5]).await.refused(400, "InvalidHeaderValue");
        let stored = put(&[CRC64]).await.expect(201);
        assert!(
            kind == fields || stored.header("x-ms-content-crc64") == CRC64.1,
            "{target}: {stored:?}"
        );
    }
    assert_eq!(
        client.get("/box/log").await.expect(200).text(),
        "hello",
        "one append took effect"
    );
}

#[tokio::test]
async fn a_range_comes_with_the_digest_that_is_asked_for() {
    let client = fixture().await.client;
    client.upload("/box/a", "-hello-", &[]).await.expect(201);
    let (range, md5) = (
        ("x-ms-range", "bytes=1-5"),
        ("x-ms-range-get-content-md5", "true"),
    );
    let crc64 = ("x-ms-range-get-content-crc64", "True");
    let get = |fields: Vec<(&'static str, &'static str)>| {
        let client = client.clone();
        async move { client.send(Method::GET, "/box/a", &fields, "").await }
    };
    for (asked, name, digest) in [
        (md5, "content-md5", "XUFAKrxLKna5cZ2REBfFkg=="),
        (crc64, "x-ms-content-crc64", "V0JSBnCFdzM="),
    ] {
        let part = get(vec![range, asked]).await.expect(206);
        assert_eq!((part.text(), part.header(name)), ("hello", digest));
    }
    get(vec![range, md5, crc64])
        .await
        .refused(400, "InvalidHeaderValue");
}

const TYPE: (&str, &str) = ("content-type", "multipart/mixed; boundary=b");
/// Its only part isn't signed.
const BATCH: &str = "--b\r\nContent-ID: 0\r\n\r\nDELETE /photos/box/a HTTP/1.1\r\n\r\n--b--\r\n";

/// The SDK for JavaScript takes an account in the path for a container. The SDK for C++ ends the process if anything follows the last
/// boundary.
#[tokio::test]
async fn a_batch_of_an_account_may_look_like_that_of_a_container_and_its_answer_ends_with_the_boundary()
 {
    let client = fixture().await.client;
    for target in [
        "?comp=batch",
        "?restype=container&comp=batch",
        "/box?restype=container&comp=batch",
    ] {
        let answer = client
            .send(Method::POST, target, &[TYPE], BATCH)
            .await
            .expect(202);
        let (_, boundary) = answer
            .header("content-type")
            .split_once("boundary=")
            .expect("a boundary");
        assert_eq!(
            answer.text().matches("HTTP/1.1 401 ").count(),
            1,
            "{target}: {answer:?}"
        );
        assert!(
            answer.text().ends_with(&format!("\r\n--{boundary}--")),
            "{target}: {answer:?}"
        );
    }
}
