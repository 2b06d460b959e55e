//! The listener for S3 clients: its settings, accounts and signatures. The rules of the dialect are in the black-box suite.

use std::time::Duration;

use http::Method;
use support::azure::{DEVELOPMENT_ACCOUNT, DEVELOPMENT_KEY};
use support::s3::{S3, element, now};
use support::{Answer, Client, Gateway, run};

use crate::serve;

/// Checks the status and S3's code.
#[track_caller]
fn refused(answer: &Answer, status: u16, code: &str) {
    let text = answer.text();
    assert!(
        answer.status == status && text.contains(&format!("<Code>{code}</Code>")),
        "{}: {text}",
        answer.status
    );
}

/// `s3s` takes no list of tags, so the list and the signature are removed once that is verified. What is left must not count as a
/// request of the default account.
#[tokio::test]
async fn a_list_of_tags_shows_no_other_account() {
    let accounts = [
        "--accounts",
        "photos:c2VjcmV0",
        "--accounts",
        "reports:c2VjcmV0",
    ];
    let mut gateway =
        Gateway::on_folder(&[&["--listen-s3", "127.0.0.1:0"][..], &accounts[..]].concat());
    let address = gateway.s3();
    let (first, second) = (
        S3::new(address, "photos", "c2VjcmV0"),
        S3::new(address, "reports", "c2VjcmV0"),
    );
    first.put("/album", &[], "").await.expect(200);
    first.put("/album/private", &[], "secret").await.expect(200);
    let upload = first
        .send(Method::POST, "/album/private?uploads", &[], "")
        .await
        .expect(200);
    let parts = format!(
        "/album/private?uploadId={}",
        element(upload.text(), "UploadId")
    );
    for path in [
        "/",
        "/album",
        "/album?list-type=2",
        "/album?uploads",
        "/album?location",
        "/album?versioning",
        "/album?versions",
        "/album?acl",
        "/album?policy",
        "/album/private?acl",
        "/album/private",
        "/album/private?attributes",
        &parts,
    ] {
        for method in [Method::GET, Method::HEAD] {
            for list in [
                ("if-none-match", "\"a\", \"b\""),
                ("if-match", "*, \"b\""),
                ("if-match", "\"a\", \"b\""),
            ] {
                let fields = [list, ("x-amz-object-attributes", "ETag")];
                let answer = second.send(method.clone(), path, &fields, "").await;
                let row = format!(
                    "{method} {path} {list:?}: {} {}",
                    answer.status,
                    answer.text()
                );
                assert!(!answer.status.is_success() && answer.status != 304, "{row}");
                assert!(
                    !answer.text().contains("private") || answer.text().contains("<Error>"),
                    "{row}"
                );
            }
        }
    }
}

/// Only the operator knows if the disk encrypts. Without a word of theirs, nothing is stored that a client wants encrypted.
#[tokio::test]
async fn encryption_at_rest_is_what_the_operator_states() {
    const ASKS: (&str, &str) = ("x-amz-server-side-encryption", "AES256");
    let told = |answer: &Answer| {
        answer
            .headers
            .get(ASKS.0)
            .map(|value| value.to_str().unwrap().to_owned())
    };
    for (flags, is_stated) in [(&["--encrypted-at-rest"][..], true), (&[], false)] {
        let mut gateway =
            Gateway::on_folder(&[&["--listen-s3", "127.0.0.1:0"][..], flags].concat());
        let s3 = S3::development(gateway.s3());
        s3.put("/docs", &[], "").await.expect(200);
        s3.put("/docs/plain", &[], "one").await.expect(200);
        let read = s3
            .send(Method::HEAD, "/docs/plain", &[], "")
            .await
            .expect(200);
        assert_eq!(told(&read).as_deref(), is_stated.then_some("AES256"));
        let copy = [ASKS, ("x-amz-copy-source", "/docs/plain")];
        for (method, path, fields) in [
            (Method::PUT, "/docs/a", &[ASKS][..]),
            (Method::PUT, "/docs/copy", &copy),
            (Method::POST, "/docs/big?uploads", &[ASKS]),
        ] {
            let answer = s3.send(method, path, fields, "").await;
            if is_stated {
                assert_eq!(
                    told(&answer.expect(200)).as_deref(),
                    Some("AES256"),
                    "{path}"
                );
            } else {
                refused(&answer, 501, "NotImplemented");
                assert!(
                    answer.text().contains("--encrypted-at-rest"),
                    "{}",
                    answer.text()
                );
            }
        }
        let shown = s3.send(Method::GET, "/docs?encryption", &[], "").await;
        let (status, text) = if is_stated {
            (200, "AES256")
        } else {
            (404, "EncryptionConfigurationNotFound")
        };
        assert!(
            shown.status == status && shown.text().contains(text),
            "{}",
            shown.text()
        );
        for (name, value) in [
            ("x-amz-server-side-encryption", "aws:kms"),
            ("x-amz-server-side-encryption", "aes256"),
            ("x-amz-server-side-encryption-aws-kms-key-id", "a"),
            ("x-amz-server-side-encryption-customer-algorithm", "AES256"),
            ("x-amz-server-side-encryption-context", "e30="),
        ] {
            refused(
                &s3.put("/docs/secret", &[(name, value)], "x").await,
                501,
                "NotImplemented",
            );
            if name != ASKS.0 {
                refused(
                    &s3.put("/docs/secret", &[ASKS, (name, value)], "x").await,
                    501,
                    "NotImplemented",
                );
            }
        }
        s3.send(Method::GET, "/docs/secret", &[], "")
            .await
            .expect(404);
        let upload = s3
            .send(Method::POST, "/docs/parts?uploads", &[], "")
            .await
            .expect(200);
        let part = format!(
            "/docs/parts?partNumber=1&uploadId={}",
            element(upload.text(), "UploadId")
        );
        refused(&s3.put(&part, &[ASKS], "x").await, 501, "NotImplemented");
    }
}

/// Everyone may read what the plain dialect shows, and do nothing else.
#[tokio::test]
async fn public_reads_need_no_signature() {
    let flags = [
        "--listen-s3",
        "127.0.0.1:0",
        "--public-read",
        "--write-token",
        "secret",
        "--accounts",
        "photos:c2VjcmV0",
    ];
    let other = ["--accounts", "reports:c2VjcmV0"];
    let mut gateway = Gateway::on_folder(&[&flags[..], &other[..]].concat());
    let address = gateway.s3();
    let (s3, reports) = (
        S3::new(address, "photos", "c2VjcmV0"),
        S3::new(address, "reports", "c2VjcmV0"),
    );
    for client in [&s3, &reports] {
        client.put("/docs", &[], "").await.expect(200);
    }
    reports.put("/docs/theirs", &[], "secret").await.expect(200);
    let tag = s3
        .put("/docs/a", &[], "one")
        .await
        .expect(200)
        .etag()
        .to_owned();
    let client = Client::new(address);
    let upload = s3
        .send(Method::POST, "/docs/a?uploads", &[], "")
        .await
        .expect(200);
    let parts = format!("/docs/a?uploadId={}", element(upload.text(), "UploadId"));
    let (copy, delete) = (
        ("x-amz-copy-source", "/docs/a"),
        "<Delete><Object><Key>a</Key></Object></Delete>",
    );
    let none = ("accept", "*/*");
    let (get, head, put, post) = (Method::GET, Method::HEAD, Method::PUT, Method::POST);
    for (method, path, header, content, status, code) in [
        (&get, "/docs/a", none, "", 200, "one"),
        (&get, "/docs/a", ("if-none-match", &*tag), "", 304, ""),
        (&head, "/docs/a", none, "", 200, ""),
        (&head, "/docs", none, "", 200, ""),
        (&get, "/docs?list-type=2", none, "", 200, "<Key>a</Key>"),
        (&get, "/docs?prefix=a", none, "", 200, "<Key>a</Key>"),
        (&get, "/docs/theirs", none, "", 404, "NoSuchKey"),
        (
            &get,
            "/reports.docs/theirs",
            none,
            "",
            400,
            "InvalidBucketName",
        ),
        (
            &get,
            "/docs/a?response-content-type=text/html",
            none,
            "",
            400,
            "InvalidRequest",
        ),
        (
            &get,
            "/docs/a?%72esponse-content-type=text/html",
            none,
            "",
            400,
            "InvalidRequest",
        ),
        (&get, "/", none, "", 403, "AccessDenied"),
        (&get, "/docs?uploads", none, "", 403, "AccessDenied"),
        (&get, "/docs?versions", none, "", 403, "AccessDenied"),
        (&get, "/docs?policy", none, "", 403, "AccessDenied"),
        (&get, "/docs/a?acl", none, "", 403, "AccessDenied"),
        (&get, &*parts, none, "", 403, "AccessDenied"),
        (&put, "/docs/a", none, "two", 403, "AccessDenied"),
        (&put, "/docs/b", copy, "", 403, "AccessDenied"),
        (&put, "/other", none, "", 403, "AccessDenied"),
        (&Method::DELETE, "/docs/a", none, "", 403, "AccessDenied"),
        (&post, "/docs?delete", none, delete, 403, "AccessDenied"),
        (&post, "/docs/a?uploads", none, "", 403, "AccessDenied"),
        (
            &post,
            "/docs",
            ("content-type", "multipart/form-data; boundary=a"),
            "--a\r\n",
            501,
            "NotImplemented",
        ),
        (
            &get,
            "/docs/a",
            ("authorization", "AWS4-HMAC-SHA256 Credential=photos/a"),
            "",
            400,
            "AuthorizationHeaderMalformed",
        ),
        (
            &get,
            "/docs/a?X-Amz-Signature=00",
            none,
            "",
            400,
            "AuthorizationQueryParametersError",
        ),
        (
            &get,
            "/docs/a?X-Amz-Credential=photos",
            none,
            "",
            403,
            "AccessDenied",
        ),
    ] {
        let request = http::Request::builder()
            .method(method.clone())
            .uri(path)
            .header(header.0, header.1);
        let answer = client
            .send(request.body(support::full(content.to_owned())).unwrap())
            .await;
        let row = format!("{method} {path} {header:?}");
        assert_eq!(answer.status, status, "{row}: {}", answer.text());
        assert!(answer.text().contains(code), "{row}: {}", answer.text());
    }
    assert_eq!(s3.get("/docs/a", &[]).await.expect(200).text(), "one");
    // So does the plain dialect.
    let (plain, token) = (
        Client::new(gateway.address()),
        [("authorization", "Bearer secret")],
    );
    for (path, status) in [
        ("/docs/a", 200),
        ("/docs", 200),
        ("/", 401),
        ("/?limit=1", 401),
        ("/reports.docs", 401),
        ("/reports.docs/theirs", 401),
        ("/reports%2Edocs/theirs", 401),
        ("/%72eports.docs/theirs", 401),
    ] {
        assert_eq!(plain.get(path, &[]).await.status, status, "{path}");
        assert_eq!(plain.get(path, &token).await.status, 200, "{path}");
    }
}

#[tokio::test]
async fn a_host_may_name_the_bucket() {
    let folder = tempfile::tempdir().unwrap();
    let mut gateway = serve(
        folder.path(),
        &["--listen-s3", "127.0.0.1:0", "--s3-host", "s3.localhost"],
    );
    let address = gateway.s3();
    let s3 = S3::development(address);
    s3.put("/docs", &[], "").await.expect(200);
    let at = |host: &str| S3::development(address).at_host(&format!("{host}:{}", address.port()));
    at("docs.s3.localhost")
        .put("/folder/a", &[("if-none-match", "*")], "one")
        .await
        .expect(200);
    assert_eq!(
        s3.get("/docs/folder/a", &[]).await.expect(200).text(),
        "one"
    );
    assert_eq!(
        at("s3.localhost")
            .get("/docs/folder/a", &[])
            .await
            .expect(200)
            .text(),
        "one"
    );
    assert_eq!(
        at("other.localhost")
            .get("/docs/folder/a", &[])
            .await
            .expect(200)
            .text(),
        "one"
    );
    let listed = at("docs.s3.localhost")
        .get("/?prefix=folder%2F", &[])
        .await
        .expect(200);
    assert_eq!(element(listed.text(), "Key"), "folder/a");
    refused(
        &at("none.s3.localhost").get("/folder/a", &[]).await,
        404,
        "NoSuchBucket",
    );
}

#[tokio::test]
async fn pages_of_allowed_origins_may_send_requests() {
    let mut gateway = Gateway::on_folder(&[
        "--listen-s3",
        "127.0.0.1:0",
        "--cors-origin",
        "https://app.example",
    ]);
    let address = gateway.s3();
    let s3 = S3::development(address);
    s3.put("/docs", &[], "").await.expect(200);
    let preflight = |origin: &str| {
        let request = http::Request::builder()
            .method(Method::OPTIONS)
            .uri("/docs/a")
            .header("origin", origin);
        let request = request.header("access-control-request-method", "PUT");
        request
            .header(
                "access-control-request-headers",
                "authorization,x-amz-date,if-match",
            )
            .body(bytes::Bytes::new())
            .unwrap()
    };
    let allowed = s3
        .send_signed(preflight("https://app.example"))
        .await
        .expect(204);
    assert_eq!(
        allowed.header("access-control-allow-origin"),
        "https://app.example"
    );
    assert!(
        allowed
            .header("access-control-allow-headers")
            .contains("x-amz-date")
    );
    let other = s3.send_signed(preflight("https://evil.example")).await;
    assert!(!other.headers.contains_key("access-control-allow-origin"));
    let put = s3
        .put("/docs/a", &[("origin", "https://app.example")], "one")
        .await
        .expect(200);
    assert!(put.header("access-control-expose-headers").contains("ETag"));
}

#[tokio::test]
async fn signatures_are_verified_with_their_time_and_their_headers() {
    let account = format!("{DEVELOPMENT_ACCOUNT}:{DEVELOPMENT_KEY}:YW5vdGhlciBvZiAxNiBieXRlcw==");
    let mut gateway = Gateway::on_folder(&["--listen-s3", "127.0.0.1:0", "--accounts", &account]);
    let address = gateway.s3();
    let s3 = S3::development(address);
    s3.put("/docs", &[], "").await.expect(200);
    s3.put("/docs/a", &[], "one").await.expect(200);
    // Both keys of an account, and no other.
    let second = S3::new(address, DEVELOPMENT_ACCOUNT, "YW5vdGhlciBvZiAxNiBieXRlcw==");
    assert_eq!(second.get("/docs/a", &[]).await.expect(200).text(), "one");
    second.put("/docs/b", &[], "two").await.expect(200);
    refused(
        &S3::new(address, DEVELOPMENT_ACCOUNT, "b3RoZXI=")
            .get("/docs/a", &[])
            .await,
        403,
        "SignatureDoesNotMatch",
    );
    refused(
        &S3::new(address, "nobody", DEVELOPMENT_KEY)
            .get("/docs/a", &[])
            .await,
        403,
        "InvalidAccessKeyId",
    );
    refused(
        &Client::new(address).get("/docs/a", &[]).await,
        403,
        "AccessDenied",
    );

    // The time of a request, and the end of a presigned URL.
    let (now, minute) = (now(), Duration::from_mins(1));
    for (time, status) in [
        (now - 14 * minute, 200),
        (now - 16 * minute, 403),
        (now + 16 * minute, 403),
    ] {
        let request = s3.signer().signed(Method::GET, "/docs/a", &[], "", time);
        assert_eq!(s3.send_signed(request).await.status, status);
        let old = s3
            .signer()
            .presigned(&Method::GET, "/docs/a", time, 15 * 60);
        assert_eq!(
            Client::new(address).get(&old, &[]).await.status,
            status,
            "{old}"
        );
    }
    // The holder of a URL can't add what its signature doesn't cover.
    let upload = s3.signer().presigned(&Method::PUT, "/docs/c", now, 60);
    let copied = Client::new(address)
        .put(&upload, &[("x-amz-copy-source", "/docs/a")], "")
        .await;
    refused(&copied, 403, "AccessDenied");
    Client::new(address)
        .put(&upload, &[], "three")
        .await
        .expect(200);
    let other = upload.replace("/docs/c", "/docs/d");
    refused(
        &Client::new(address).put(&other, &[], "three").await,
        403,
        "SignatureDoesNotMatch",
    );

    // A signed `Date` is a time, too.
    for (time, status) in [(now, 200), (now - 16 * minute, 403)] {
        let date = httpdate::fmt_http_date(time);
        let request = s3
            .signer()
            .signed(Method::GET, "/docs/a", &[("date", &date)], "", time);
        assert_eq!(s3.send_signed(request).await.status, status, "{date}");
    }
    // A list of tags that is signed.
    let lists = [("if-none-match", "\"a\", \"b\"")];
    let other = S3::new(address, DEVELOPMENT_ACCOUNT, "b3RoZXI=");
    refused(
        &other.get("/docs/a", &lists).await,
        403,
        "SignatureDoesNotMatch",
    );
    second.get("/docs/a", &lists).await.expect(200);
    let url = s3.signer().presigned(&Method::GET, "/docs/a", now, 60);
    Client::new(address).get(&url, &lists).await.expect(200);
    Client::new(address)
        .get(&url.replace("Expires=60", "Expires=61"), &lists)
        .await
        .expect(403);

    // The bytes of a signed body.
    let mut request = s3.signer().signed(Method::PUT, "/docs/a", &[], "one", now);
    *request.body_mut() = "two".into();
    refused(
        &s3.send_signed(request).await,
        400,
        "XAmzContentSHA256Mismatch",
    );
    assert_eq!(s3.get("/docs/a", &[]).await.expect(200).text(), "one");
}

#[test]
fn s3_needs_an_account() {
    for (flags, expected) in [
        (&["--listen-s3", "0.0.0.0:0"][..], "--accounts NAME:KEY"),
        (
            &["--listen-s3", "127.0.0.1:0", "--write-token", "w"],
            "--accounts NAME:KEY",
        ),
        (
            &[
                "--listen-s3",
                "0.0.0.0:0",
                "--accounts",
                DEVELOPMENT_ACCOUNT,
            ],
            "is public",
        ),
    ] {
        let end = run(["serve", "--store", "memory://"].iter().chain(flags));
        assert_eq!(end.status.code(), Some(2), "{end:#?}");
        assert!(end.stderr.contains(expected), "{end:#?}");
    }
}
