//! The listener for S3 clients.

use std::collections::BTreeSet;
use std::time::Duration;

use futures_util::future::join_all;
use http::Method;
use support::azure::{Azure, DEVELOPMENT_ACCOUNT, DEVELOPMENT_KEY};
use support::s3::{S3, assert_one, element, list, now, race};
use support::{Answer, Client, Gateway, run};

use crate::serve;

/// A gateway with the bucket `docs`.
struct Setup {
    gateway: Gateway,
    s3: S3,
    _folder: tempfile::TempDir,
}

async fn setup() -> Setup {
    let folder = tempfile::tempdir().unwrap();
    let mut gateway = serve(folder.path(), &["--listen-s3", "127.0.0.1:0"]);
    let s3 = S3::development(gateway.s3());
    s3.put("/docs", &[], "").await.expect(200);
    Setup { gateway, s3, _folder: folder }
}

/// Checks the status and S3's code.
#[track_caller]
fn refused(answer: &Answer, status: u16, code: &str) {
    let text = answer.text();
    assert!(answer.status == status && text.contains(&format!("<Code>{code}</Code>")), "{}: {text}", answer.status);
}

/// The status and the code of each condition, as S3 documents them: conditional reads, writes and deletes.
#[tokio::test]
async fn conditions_have_the_status_and_the_code_of_s3() {
    let setup = setup().await;
    let s3 = &setup.s3;
    let put = s3.put("/docs/there", &[("if-none-match", "*")], "one").await.expect(200);
    let (tag, bare) = (put.etag().to_owned(), put.etag().trim_matches('"').to_owned());
    let (get, head, delete) = (Method::GET, Method::HEAD, Method::DELETE);
    for (method, key, condition, value, status, code) in [
        (Method::PUT, "there", "if-none-match", "*", 412, "PreconditionFailed"),
        (Method::PUT, "there", "if-match", "\"other\"", 412, "PreconditionFailed"),
        (Method::PUT, "there", "if-match", "W/\"other\"", 412, "PreconditionFailed"),
        (Method::PUT, "missing", "if-match", &tag, 404, "NoSuchKey"),
        (Method::PUT, "there", "if-none-match", &tag, 501, "NotImplemented"),
        (Method::PUT, "there", "if-match", "\"a\", \"b", 400, "Invalid"),
        (delete.clone(), "there", "if-match", "\"other\"", 412, "PreconditionFailed"),
        (delete.clone(), "missing", "if-match", "*", 404, "NoSuchKey"),
        (delete.clone(), "missing", "x-amz-meta-a", "b", 204, ""),
        (get.clone(), "there", "if-match", &tag, 200, ""),
        (get.clone(), "there", "if-match", &bare, 200, ""),
        (get.clone(), "there", "if-match", "\"other\"", 412, "PreconditionFailed"),
        (get.clone(), "there", "if-none-match", &tag, 304, ""),
        (get.clone(), "there", "if-none-match", "\"other\"", 200, ""),
        (get.clone(), "there", "if-none-match", &format!("\"other\", {tag}"), 304, ""),
        (get.clone(), "there", "if-match", &format!("\"other\",{tag}"), 200, ""),
        (head.clone(), "there", "if-match", "\"other\", \"another\"", 412, ""),
        (get.clone(), "there", "if-match", "a, b", 400, "InvalidArgument"),
        (get.clone(), "there", "if-modified-since", "Fri, 01 Jan 2100 00:00:00 GMT", 304, ""),
        (get.clone(), "there", "if-unmodified-since", "Thu, 01 Jan 1970 00:00:00 GMT", 412, "PreconditionFailed"),
        (get.clone(), "there", "range", "bytes=1-1", 206, ""),
        (get.clone(), "there", "range", "bytes=3-", 416, "InvalidRange"),
        (get, "missing", "if-none-match", &tag, 404, "NoSuchKey"),
        (head.clone(), "there", "if-none-match", &tag, 304, ""),
        (head.clone(), "there", "range", "bytes=1-1", 206, ""),
        (head, "missing", "if-match", &tag, 404, ""),
        (Method::PUT, "there", "if-match", &bare, 200, ""),
        (Method::PUT, "there", "if-match", &tag, 412, "PreconditionFailed"),
        (delete.clone(), "there", "if-match", "*", 204, ""),
        (delete, "there", "if-match", "*", 404, "NoSuchKey"),
    ] {
        let path = format!("/docs/{key}");
        let answer = s3.send(method.clone(), &path, &[(condition, value)], "").await;
        let row = format!("{method} {key} {condition}: {value}");
        assert_eq!(answer.status, status, "{row}: {}", answer.text());
        assert!(answer.text().contains(code), "{row}: {}", answer.text());
        assert!(!code.is_empty() || status == 200 || status == 206 || answer.body.is_empty(), "{row}");
    }
}

/// Programs tell by the condition that an object exists, and their users tell the operator the id of a request.
#[tokio::test]
async fn an_error_names_its_condition_and_its_request() {
    let setup = setup().await;
    let s3 = &setup.s3;
    let tag = s3.put("/docs/a", &[], "one").await.expect(200).etag().to_owned();
    let (other, source) = ([("if-match", "\"other\"")], ("x-amz-copy-source", "/docs/a"));
    let copied = |name, value| [source, (name, value)];
    for (answer, condition) in [
        (s3.put("/docs/a", &[("if-none-match", "*")], "two").await, "If-None-Match"),
        (s3.put("/docs/a", &other, "two").await, "If-Match"),
        (s3.get("/docs/a", &other).await, "If-Match"),
        (s3.get("/docs/a", &[("if-unmodified-since", "Thu, 01 Jan 1970 00:00:00 GMT")]).await, "If-Unmodified-Since"),
        (s3.delete("/docs/a", &other).await, "If-Match"),
        (
            s3.put("/docs/b", &copied("x-amz-copy-source-if-none-match", &tag), "").await,
            "x-amz-copy-source-If-None-Match",
        ),
        (s3.put("/docs/b", &copied("x-amz-copy-source-if-match", "\"other\""), "").await, "x-amz-copy-source-If-Match"),
    ] {
        refused(&answer, 412, "PreconditionFailed");
        assert_eq!(element(answer.text(), "Condition"), condition);
        assert_eq!(element(answer.text(), "RequestId"), answer.header("x-amz-request-id"));
        // The name of the request in the log.
        assert_eq!(answer.header("x-amz-request-id"), answer.header("x-request-id"));
        assert!(!answer.headers.contains_key("x-ifmatch-condition"), "{answer:?}");
    }
    let first = s3.get("/docs/a", &[]).await.expect(200);
    let second = s3.get("/docs/a", &[]).await.expect(200);
    assert_ne!(first.header("x-amz-request-id"), second.header("x-amz-request-id"));
    let attributes = s3.get("/docs/a?attributes", &[("x-amz-object-attributes", "ETag")]).await.expect(200);
    assert_eq!(element(attributes.text(), "ETag"), tag.trim_matches('"'));
}

#[tokio::test]
async fn a_deletion_of_a_version_has_no_condition() {
    let setup = setup().await;
    let s3 = &setup.s3;
    let tag = s3.put("/docs/a", &[], "one").await.expect(200).etag().to_owned();
    refused(&s3.delete("/docs/a?versionId=null", &[("if-match", &tag)]).await, 501, "NotImplemented");
    let bare = tag.trim_matches('"');
    let entry = format!("<Key>a</Key><VersionId>null</VersionId><ETag>{bare}</ETag>");
    let list = format!("<Delete><Object>{entry}</Object></Delete>");
    let answer = s3.send(Method::POST, "/docs?delete", &[], list).await.expect(200);
    assert!(answer.text().contains("<Code>NotImplemented</Code>"), "{}", answer.text());
    s3.get("/docs/a", &[]).await.expect(200);
    s3.delete("/docs/a?versionId=null", &[]).await.expect(204);
    s3.get("/docs/a", &[]).await.expect(404);
}

/// A document is what its checksums say, or nothing is done.
#[tokio::test]
async fn a_deletion_has_the_checksums_of_its_list() {
    let setup = setup().await;
    let s3 = &setup.s3;
    s3.put("/docs/a", &[], "one").await.expect(200);
    let list = "<Delete><Object><Key>a</Key></Object></Delete>";
    let unsigned = ("x-amz-content-sha256", "UNSIGNED-PAYLOAD");
    let zeros = "0".repeat(64);
    for (headers, code) in [
        ([unsigned, ("content-md5", "AAAAAAAAAAAAAAAAAAAAAA==")], "BadDigest"),
        ([unsigned, ("content-md5", "")], "InvalidDigest"),
        ([unsigned, ("x-amz-checksum-crc32", "AAAAAA==")], "BadDigest"),
        ([unsigned, ("x-amz-checksum-sha256", "FeKw08M4keuw8e9gnsQZQgwg4yDOlMZfvIwzEkSOsiU=")], "BadDigest"),
        ([("x-amz-content-sha256", &*zeros), ("accept", "*/*")], "XAmzContentSHA256Mismatch"),
    ] {
        refused(&s3.send(Method::POST, "/docs?delete", &headers, list).await, 400, code);
        refused(&s3.put("/new", &headers, list).await, 400, code);
    }
    s3.get("/docs/a", &[]).await.expect(200);
    s3.send(Method::HEAD, "/new", &[], "").await.expect(404);
    let upload = s3.send(Method::POST, "/docs/b?uploads", &[], "").await.expect(200);
    let complete = format!("/docs/b?uploadId={}", element(upload.text(), "UploadId"));
    let wrong = [unsigned, ("content-md5", "AAAAAAAAAAAAAAAAAAAAAA==")];
    refused(&s3.send(Method::POST, &complete, &wrong, "<CompleteMultipartUpload/>").await, 400, "BadDigest");
    let long = " ".repeat(4 * 1024 * 1024 + 1);
    refused(&s3.send(Method::POST, "/docs?delete", &[], long).await, 400, "MaxMessageLengthExceeded");
    s3.send(Method::POST, "/docs?delete", &[("x-amz-checksum-crc32", "v6Ysrw==")], list).await.expect(200);
    s3.get("/docs/a", &[]).await.expect(404);
}

/// An object is not kept in the clear if its client asked for encryption, if only by half, and goes to no other owner's bucket.
#[tokio::test]
async fn a_write_that_asks_for_what_it_would_not_get_is_refused() {
    let setup = setup().await;
    let s3 = &setup.s3;
    s3.put("/docs/a", &[], "one").await.expect(200);
    for (name, value, status) in [
        ("x-amz-server-side-encryption-customer-key", "pO3upElrwuEXSoFwCfnZPdSsmt/xWeFa0N9KgDijwVs=", 501),
        ("x-amz-server-side-encryption-aws-kms-key-id", "a", 501),
        ("x-amz-server-side-encryption", "AES256", 501),
        ("x-amz-object-lock-retain-until-date", "2030-01-01T00:00:00Z", 501),
        ("x-amz-website-redirect-location", "/b", 501),
        ("x-amz-checksum-sha512", "AAAA", 501),
        ("x-amz-expected-bucket-owner", "999999999999", 403),
    ] {
        let (header, copy) = ((name, value), ("x-amz-copy-source", "/docs/a"));
        for answer in [
            s3.put("/docs/b", &[header], "secret").await,
            s3.put("/docs/b", &[header, copy], "").await,
            s3.send(Method::POST, "/docs/b?uploads", &[header], "").await,
        ] {
            assert_eq!(answer.status, status, "{name}: {}", answer.text());
        }
    }
    s3.get("/docs/b", &[]).await.expect(404);
    let (owner, foreign) = ("x-amz-expected-bucket-owner", "999999999999");
    for answer in [
        s3.get("/docs/a", &[(owner, foreign)]).await,
        s3.get("/docs?list-type=2", &[(owner, foreign)]).await,
        s3.delete("/docs/a", &[(owner, foreign)]).await,
        s3.put("/docs/b", &[("x-amz-copy-source", "/docs/a"), ("x-amz-source-expected-bucket-owner", foreign)], "")
            .await,
    ] {
        refused(&answer, 403, "AccessDenied");
    }
    s3.get("/docs/a", &[(owner, DEVELOPMENT_ACCOUNT)]).await.expect(200);
}

/// A body in chunks, of any length if they are not signed.
#[tokio::test]
async fn a_body_in_chunks_is_complete_or_refused() {
    let setup = setup().await;
    let s3 = &setup.s3;
    let put = async |kind: &str, length: usize, body: String| {
        let length = length.to_string();
        let headers = [
            ("x-amz-content-sha256", kind),
            ("x-amz-decoded-content-length", &*length),
            ("x-amz-trailer", "x-amz-checksum-crc32"),
            ("content-encoding", "aws-chunked"),
        ];
        s3.put("/docs/a", &headers, body).await
    };
    let (signed, unsigned) = ("STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER", "STREAMING-UNSIGNED-PAYLOAD-TRAILER");
    let long = 5 * 1024 * 1024;
    let line = |length: usize| format!("{length:x};chunk-signature={}\r\n", "0".repeat(64));
    let bytes = "x".repeat(long);
    for (kind, length, body, code) in [
        (unsigned, 9, "9\r\n123456789\r\n".to_owned(), "IncompleteBody"),
        (unsigned, 9, "9\r\n123456789\r\n0\r\n\r\n".to_owned(), "InvalidRequest"),
        (unsigned, 8, "9\r\n123456789\r\n0\r\nx-amz-checksum-crc32:y/Q5Jg==\r\n\r\n".to_owned(), "IncompleteBody"),
        (signed, 9, format!("{}123456789\r\n{}\r\n", line(9), line(0)), "SignatureDoesNotMatch"),
        (signed, long, format!("{}{bytes}\r\n{}\r\n", line(long), line(0)), "InvalidRequest"),
    ] {
        refused(&put(kind, length, body).await, 400, code);
    }
    s3.get("/docs/a", &[]).await.expect(404);
    let trailer = "0\r\nx-amz-checksum-crc32:y/Q5Jg==\r\n\r\n";
    put(unsigned, 9, format!("9\r\n123456789\r\n{trailer}")).await.expect(200);
    let body = format!("{long:x}\r\n{bytes}\r\n0\r\nx-amz-checksum-crc32:AAAAAA==\r\n\r\n");
    refused(&put(unsigned, long, body).await, 400, "BadDigest");
    assert_eq!(s3.get("/docs/a", &[]).await.expect(200).text(), "123456789");
}

#[tokio::test]
async fn clients_of_all_dialects_see_one_tag_and_exclude_each_other() {
    let setup = setup().await;
    let (gateway, s3) = (&setup.gateway, &setup.s3);
    let plain = Client::new(gateway.address());
    let azure = Azure::development(plain.clone());
    let headers = [("x-amz-meta-owner", "me"), ("content-type", "text/plain")];
    let tag = s3.put("/docs/a%20b", &headers, "one").await.expect(200).etag().to_owned();
    let read = plain.get("/docs/a%20b", &[]).await.expect(200);
    assert_eq!((read.etag(), read.header("x-meta-owner"), read.text()), (&*tag, "me", "one"));
    assert_eq!(azure.blob(Method::GET, "/docs/a%20b", &[], "").await.expect(200).etag(), tag);

    let tag = azure.put("/docs/a%20b", &[("if-match", &tag)], "two").await.expect(201).etag().to_owned();
    assert_eq!(s3.get("/docs/a%20b", &[("if-match", &tag)]).await.expect(200).text(), "two");
    let tag = plain.put("/docs/a%20b", &[("if-match", &tag)], "three").await.expect(200).etag().to_owned();
    let stale = s3.put("/docs/a%20b", &[("if-match", "\"old\"")], "four").await;
    refused(&stale, 412, "PreconditionFailed");
    s3.put("/docs/a%20b", &[("if-match", &tag)], "four").await.expect(200);
    plain.put("/docs/a%20b", &[("if-match", &tag)], "five").await.expect(412);
    azure.put("/docs/a%20b", &[("if-match", &tag)], "five").await.expect(412);
}

#[tokio::test]
async fn a_lease_holds_against_s3() {
    let setup = setup().await;
    let (gateway, s3) = (&setup.gateway, &setup.s3);
    let azure = Azure::development(Client::new(gateway.address()));
    s3.put("/docs/a", &[], "one").await.expect(200);
    s3.put("/docs/b", &[], "two").await.expect(200);
    let lease = azure.lease("/docs/a", "acquire", &[("x-ms-lease-duration", "-1")]).await.expect(201);
    let upload = s3.send(Method::POST, "/docs/a?uploads", &[], "").await.expect(200);
    let id = element(upload.text(), "UploadId");
    let part = s3.put(&format!("/docs/a?partNumber=1&uploadId={id}"), &[], "part").await.expect(200);
    let list = list(&[(1, part.etag())]);
    let complete = format!("/docs/a?uploadId={id}");
    let source = [("x-amz-copy-source", "/docs/b")];
    for answer in [
        s3.put("/docs/a", &[], "two").await,
        s3.put("/docs/a", &source, "").await,
        s3.delete("/docs/a", &[]).await,
        s3.send(Method::POST, &complete, &[], list.clone()).await,
    ] {
        refused(&answer, 403, "AccessDenied");
        assert!(answer.text().contains("lease"), "{}", answer.text());
    }
    assert_eq!(s3.get("/docs/a", &[]).await.expect(200).text(), "one");
    let delete = "<Delete><Object><Key>a</Key></Object><Object><Key>b</Key></Object></Delete>";
    let deleted = s3.send(Method::POST, "/docs?delete", &[], delete).await.expect(200);
    assert_eq!(element(deleted.text(), "Deleted"), "<Key>b");
    assert_eq!(element(deleted.text(), "Code"), "AccessDenied");
    azure.lease("/docs/a", "release", &[("x-ms-lease-id", lease.header("x-ms-lease-id"))]).await.expect(200);
    s3.send(Method::POST, &complete, &[], list).await.expect(200);
    assert_eq!(s3.get("/docs/a", &[]).await.expect(200).text(), "part");
}

/// Of the writers that expect the same version, one wins, whatever they do, on each kind of store, and in front of a server for S3
/// that ignores conditions.
#[tokio::test(flavor = "multi_thread")]
async fn one_of_sixteen_writers_wins() {
    let setup = setup().await;
    race(std::slice::from_ref(&setup.s3), 50).await;
    let (careless, folder) = (ifmatch_testbed::s3::start_without_conditions().await, tempfile::tempdir().unwrap());
    let records = folder.path().display().to_string();
    for (store, more, tries) in [("memory://", &[][..], 50), ("s3://bucket/some", &["--data", &records][..], 5)] {
        let mut command = Gateway::command();
        command.args(["serve", "--store", store, "--listen", "127.0.0.1:0", "--listen-s3", "127.0.0.1:0"]);
        command.args(more).envs(careless.settings());
        let mut gateway = tokio::task::block_in_place(|| Gateway::launch(command));
        let s3 = S3::development(tokio::task::block_in_place(|| gateway.s3()));
        s3.put("/docs", &[], "").await.expect(200);
        race(&[s3], tries).await;
    }
}

/// `s3s` takes no list of tags, so the list and the signature are removed once that is verified. What is left must not count as a
/// request of the default account.
#[tokio::test]
async fn a_list_of_tags_shows_no_other_account() {
    let folder = tempfile::tempdir().unwrap();
    let accounts = ["--accounts", "photos:c2VjcmV0", "--accounts", "reports:c2VjcmV0"];
    let mut gateway = serve(folder.path(), &[&["--listen-s3", "127.0.0.1:0"][..], &accounts[..]].concat());
    let address = gateway.s3();
    let (first, second) = (S3::new(address, "photos", "c2VjcmV0"), S3::new(address, "reports", "c2VjcmV0"));
    first.put("/album", &[], "").await.expect(200);
    first.put("/album/private", &[], "secret").await.expect(200);
    let upload = first.send(Method::POST, "/album/private?uploads", &[], "").await.expect(200);
    let parts = format!("/album/private?uploadId={}", element(upload.text(), "UploadId"));
    for path in [
        "/",
        "/album",
        "/album?list-type=2",
        "/album?uploads",
        "/album?location",
        "/album?versioning",
        "/album/private",
        "/album/private?attributes",
        &parts,
    ] {
        for method in [Method::GET, Method::HEAD] {
            for list in [("if-none-match", "\"a\", \"b\""), ("if-match", "*, \"b\""), ("if-match", "\"a\", \"b\"")] {
                let fields = [list, ("x-amz-object-attributes", "ETag")];
                let answer = second.send(method.clone(), path, &fields, "").await;
                let row = format!("{method} {path} {list:?}: {} {}", answer.status, answer.text());
                assert!(!answer.status.is_success() && answer.status != 304, "{row}");
                assert!(!answer.text().contains("private") || answer.text().contains("<Error>"), "{row}");
            }
        }
    }
}

/// Everyone may read what the plain dialect shows, and do nothing else.
#[tokio::test]
async fn public_reads_need_no_signature() {
    let folder = tempfile::tempdir().unwrap();
    let flags =
        ["--listen-s3", "127.0.0.1:0", "--public-read", "--write-token", "secret", "--accounts", "photos:c2VjcmV0"];
    let other = ["--accounts", "reports:c2VjcmV0"];
    let mut gateway = serve(folder.path(), &[&flags[..], &other[..]].concat());
    let address = gateway.s3();
    let (s3, reports) = (S3::new(address, "photos", "c2VjcmV0"), S3::new(address, "reports", "c2VjcmV0"));
    for client in [&s3, &reports] {
        client.put("/docs", &[], "").await.expect(200);
    }
    reports.put("/docs/theirs", &[], "secret").await.expect(200);
    let tag = s3.put("/docs/a", &[], "one").await.expect(200).etag().to_owned();
    let client = Client::new(address);
    let upload = s3.send(Method::POST, "/docs/a?uploads", &[], "").await.expect(200);
    let parts = format!("/docs/a?uploadId={}", element(upload.text(), "UploadId"));
    let (copy, delete) = (("x-amz-copy-source", "/docs/a"), "<Delete><Object><Key>a</Key></Object></Delete>");
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
        (&get, "/reports.docs/theirs", none, "", 400, "InvalidBucketName"),
        (&get, "/docs/a?response-content-type=text/html", none, "", 400, "InvalidRequest"),
        (&get, "/docs/a?%72esponse-content-type=text/html", none, "", 400, "InvalidRequest"),
        (&get, "/", none, "", 403, "AccessDenied"),
        (&get, "/docs?uploads", none, "", 403, "AccessDenied"),
        (&get, &*parts, none, "", 403, "AccessDenied"),
        (&put, "/docs/a", none, "two", 403, "AccessDenied"),
        (&put, "/docs/b", copy, "", 403, "AccessDenied"),
        (&put, "/other", none, "", 403, "AccessDenied"),
        (&Method::DELETE, "/docs/a", none, "", 403, "AccessDenied"),
        (&post, "/docs?delete", none, delete, 403, "AccessDenied"),
        (&post, "/docs/a?uploads", none, "", 403, "AccessDenied"),
        (&post, "/docs", ("content-type", "multipart/form-data; boundary=a"), "--a\r\n", 501, "NotImplemented"),
        (
            &get,
            "/docs/a",
            ("authorization", "AWS4-HMAC-SHA256 Credential=photos/a"),
            "",
            400,
            "AuthorizationHeaderMalformed",
        ),
        (&get, "/docs/a?X-Amz-Signature=00", none, "", 400, "AuthorizationQueryParametersError"),
        (&get, "/docs/a?X-Amz-Credential=photos", none, "", 403, "AccessDenied"),
    ] {
        let request = http::Request::builder().method(method.clone()).uri(path).header(header.0, header.1);
        let answer = client.send(request.body(support::full(content.to_owned())).unwrap()).await;
        let row = format!("{method} {path} {header:?}");
        assert_eq!(answer.status, status, "{row}: {}", answer.text());
        assert!(answer.text().contains(code), "{row}: {}", answer.text());
    }
    assert_eq!(s3.get("/docs/a", &[]).await.expect(200).text(), "one");
    // So does the plain dialect.
    let (plain, token) = (Client::new(gateway.address()), [("authorization", "Bearer secret")]);
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
    let mut gateway = serve(folder.path(), &["--listen-s3", "127.0.0.1:0", "--s3-host", "s3.localhost"]);
    let address = gateway.s3();
    let s3 = S3::development(address);
    s3.put("/docs", &[], "").await.expect(200);
    let at = |host: &str| S3::development(address).at_host(&format!("{host}:{}", address.port()));
    at("docs.s3.localhost").put("/folder/a", &[("if-none-match", "*")], "one").await.expect(200);
    assert_eq!(s3.get("/docs/folder/a", &[]).await.expect(200).text(), "one");
    assert_eq!(at("s3.localhost").get("/docs/folder/a", &[]).await.expect(200).text(), "one");
    assert_eq!(at("other.localhost").get("/docs/folder/a", &[]).await.expect(200).text(), "one");
    let listed = at("docs.s3.localhost").get("/?prefix=folder%2F", &[]).await.expect(200);
    assert_eq!(element(listed.text(), "Key"), "folder/a");
    refused(&at("none.s3.localhost").get("/folder/a", &[]).await, 404, "NoSuchBucket");
}

#[tokio::test]
async fn pages_of_allowed_origins_may_send_requests() {
    let folder = tempfile::tempdir().unwrap();
    let mut gateway = serve(folder.path(), &["--listen-s3", "127.0.0.1:0", "--cors-origin", "https://app.example"]);
    let address = gateway.s3();
    let s3 = S3::development(address);
    s3.put("/docs", &[], "").await.expect(200);
    let preflight = |origin: &str| {
        let request = http::Request::builder().method(Method::OPTIONS).uri("/docs/a").header("origin", origin);
        let request = request.header("access-control-request-method", "PUT");
        request
            .header("access-control-request-headers", "authorization,x-amz-date,if-match")
            .body(bytes::Bytes::new())
            .unwrap()
    };
    let allowed = s3.send_signed(preflight("https://app.example")).await.expect(204);
    assert_eq!(allowed.header("access-control-allow-origin"), "https://app.example");
    assert!(allowed.header("access-control-allow-headers").contains("x-amz-date"));
    let other = s3.send_signed(preflight("https://evil.example")).await;
    assert!(!other.headers.contains_key("access-control-allow-origin"));
    let put = s3.put("/docs/a", &[("origin", "https://app.example")], "one").await.expect(200);
    assert!(put.header("access-control-expose-headers").contains("ETag"));
}

const PART: usize = 5 * 1024 * 1024;

#[tokio::test(flavor = "multi_thread")]
async fn parts_in_any_order_make_one_object() {
    let setup = setup().await;
    let s3 = &setup.s3;
    let created = s3.send(Method::POST, "/docs/big?uploads", &[("content-type", "text/x")], "").await.expect(200);
    let id = element(created.text(), "UploadId").to_owned();
    let part = async |number: u32, content: Vec<u8>| {
        s3.put(&format!("/docs/big?partNumber={number}&uploadId={id}"), &[], content).await
    };
    let last = part(7, b"end".to_vec()).await.expect(200);
    let replaced = part(2, vec![b'x'; PART]).await.expect(200);
    let first = part(2, vec![b'a'; PART]).await.expect(200);
    let short = part(3, b"short".to_vec()).await.expect(200);
    refused(&part(10_001, vec![]).await, 400, "InvalidArgument");
    let listed = s3.get(&format!("/docs/big?uploadId={id}"), &[]).await.expect(200);
    let numbers: Vec<_> = listed.text().split("<PartNumber>").skip(1).map(|rest| rest.split('<').next()).collect();
    assert_eq!(numbers, [Some("2"), Some("3"), Some("7")]);
    let uploads = s3.get("/docs?uploads", &[]).await.expect(200);
    assert_eq!((element(uploads.text(), "Key"), element(uploads.text(), "UploadId")), ("big", &*id));

    let path = format!("/docs/big?uploadId={id}");
    let complete = async |headers: &[(&str, &str)], parts: &[(u32, &str)]| {
        s3.send(Method::POST, &path, headers, list(parts)).await
    };
    let (first, replaced, short, last) = (first.etag(), replaced.etag(), short.etag(), last.etag());
    refused(&complete(&[], &[(7, last), (2, first)]).await, 400, "InvalidPartOrder");
    refused(&complete(&[], &[(2, replaced), (7, last)]).await, 400, "InvalidPart");
    refused(&complete(&[], &[(2, first), (3, short), (7, last)]).await, 400, "EntityTooSmall");
    refused(&complete(&[], &[]).await, 400, "MalformedXML");
    refused(&complete(&[("if-match", "\"other\"")], &[(2, first), (7, last)]).await, 404, "NoSuchKey");
    let wrong = [("x-amz-checksum-crc32", "AAAAAA==")];
    refused(&complete(&wrong, &[(2, first), (7, last)]).await, 400, "BadDigest");
    s3.get("/docs/big", &[]).await.expect(404);

    let create = [("if-none-match", "*")];
    let done = complete(&create, &[(2, first), (7, last)]).await.expect(200);
    let read = s3.get("/docs/big", &[]).await.expect(200);
    assert_eq!(read.etag(), element(done.text(), "ETag"));
    assert_eq!((read.header("content-type"), read.body.len()), ("text/x", PART + 3));
    assert!(read.body.starts_with(b"aaa") && read.body.ends_with(b"aend"));
    // A retry gets the same answer, and another list finds no upload.
    let again = complete(&create, &[(2, first), (7, last)]).await.expect(200);
    assert_eq!(element(again.text(), "ETag"), element(done.text(), "ETag"));
    refused(&complete(&[], &[(7, last)]).await, 404, "NoSuchUpload");
    refused(&part(1, vec![]).await, 404, "NoSuchUpload");
    assert!(!s3.get("/docs?uploads", &[]).await.expect(200).text().contains("<Upload>"));
}

/// Begins an upload to `/docs/sum` of two parts, and returns its path, the tags of its parts, and the parts as listed.
async fn upload_of_two(s3: &S3, headers: &[(&str, &str)]) -> (String, [String; 2], String) {
    let created = s3.send(Method::POST, "/docs/sum?uploads", headers, "").await.expect(200);
    let path = format!("/docs/sum?uploadId={}", element(created.text(), "UploadId"));
    let mut tags = Vec::new();
    for (number, content) in [(1, vec![b'a'; PART]), (2, b"end".to_vec())] {
        let part = path.replace("?uploadId", &format!("?partNumber={number}&uploadId"));
        tags.push(s3.put(&part, &[], content).await.expect(200).etag().to_owned());
    }
    let listed = s3.get(&path, &[]).await.expect(200).text().to_owned();
    (path, tags.try_into().unwrap(), listed)
}

/// Checksums of an object of two parts, computed with Python: that of the parts' checksums, and that of all bytes.
const SHA256_OF_PARTS: &str = "CCs1a+1DlLxspT19ARp9eg2ZuO4lvUykB7Orxi45QJg=-2";
const CRC32_OF_PARTS: &str = "gJQ79w==-2";
const CRC32_OF_BYTES: &str = "JZ3nOw==";
const CRC64_OF_BYTES: &str = "Naidc2+phk8=";

#[tokio::test(flavor = "multi_thread")]
async fn an_upload_has_the_checksum_that_its_client_chose() {
    let setup = setup().await;
    let s3 = &setup.s3;
    for (algorithm, kind, element_name, whole) in [
        ("SHA256", "COMPOSITE", "ChecksumSHA256", SHA256_OF_PARTS),
        ("CRC32", "COMPOSITE", "ChecksumCRC32", CRC32_OF_PARTS),
        ("CRC32", "FULL_OBJECT", "ChecksumCRC32", CRC32_OF_BYTES),
    ] {
        let chosen = [("x-amz-checksum-algorithm", algorithm), ("x-amz-checksum-type", kind)];
        let (path, [first, last], listed) = upload_of_two(s3, &chosen).await;
        assert_eq!((element(&listed, "ChecksumAlgorithm"), element(&listed, "ChecksumType")), (algorithm, kind));
        assert_eq!(listed.matches(&format!("<{element_name}>")).count(), 2, "{listed}");
        let parts = list(&[(1, &first), (2, &last)]);
        let complete =
            async |headers: &[(&str, &str)], parts: &str| s3.send(Method::POST, &path, headers, parts.to_owned()).await;
        // Other checksums than those of the parts, another type, and another length.
        let wrong = parts.replacen("</Part>", &format!("<{element_name}>AAAAAA==</{element_name}></Part>"), 1);
        refused(&complete(&[], &wrong).await, 400, "InvalidPart");
        let name = format!("x-amz-checksum-{}", algorithm.to_lowercase());
        let other = if kind == "COMPOSITE" { "AAAAAA==-2" } else { "AAAAAA==" };
        refused(&complete(&[(&name, other)], &parts).await, 400, "BadDigest");
        let other = if kind == "COMPOSITE" { "FULL_OBJECT" } else { "COMPOSITE" };
        refused(&complete(&[("x-amz-checksum-type", other)], &parts).await, 400, "InvalidRequest");
        refused(&complete(&[("x-amz-mp-object-size", "3")], &parts).await, 400, "InvalidRequest");
        s3.get("/docs/sum", &[]).await.expect(404);

        let size = (PART + 3).to_string();
        let given = [(&*name, whole), ("x-amz-mp-object-size", &size)];
        for _ in 0..2 {
            let done = complete(&given, &parts).await.expect(200);
            assert_eq!((element(done.text(), element_name), element(done.text(), "ChecksumType")), (whole, kind));
        }
        let mode = [("x-amz-checksum-mode", "ENABLED")];
        for method in [Method::GET, Method::HEAD] {
            let read = s3.send(method, "/docs/sum", &mode, "").await.expect(200);
            assert_eq!((read.header(&name), read.header("x-amz-checksum-type")), (whole, kind));
        }
        let wanted = [("x-amz-object-attributes", "ETag,Checksum,ObjectParts,StorageClass,ObjectSize")];
        let told = s3.get("/docs/sum?attributes", &wanted).await.expect(200);
        assert_eq!((element(told.text(), element_name), element(told.text(), "ObjectSize")), (whole, &*size));
        assert_eq!(told.text().contains("<PartsCount>2</PartsCount>"), kind == "COMPOSITE", "{}", told.text());
        s3.delete("/docs/sum", &[]).await.expect(204);
    }
    // Without a choice, that of S3.
    let (path, [first, last], _) = upload_of_two(s3, &[]).await;
    let done = s3.send(Method::POST, &path, &[], list(&[(1, &first), (2, &last)])).await.expect(200);
    assert_eq!(element(done.text(), "ChecksumCRC64NVME"), CRC64_OF_BYTES);
    let chosen = [("x-amz-checksum-algorithm", "SHA1"), ("x-amz-checksum-type", "FULL_OBJECT")];
    refused(&s3.send(Method::POST, "/docs/sum?uploads", &chosen, "").await, 400, "InvalidRequest");
    refused(&s3.get("/docs/none?attributes", &[("x-amz-object-attributes", "ETag")]).await, 404, "NoSuchKey");
}

#[tokio::test(flavor = "multi_thread")]
async fn one_of_several_uploads_creates_the_object() {
    let setup = setup().await;
    let s3 = &setup.s3;
    for attempt in 0..20 {
        let key = format!("/docs/race-{attempt}");
        let begin = async |writer: usize| {
            let created = s3.send(Method::POST, &format!("{key}?uploads"), &[], "").await.expect(200);
            let path = format!("{key}?uploadId={}", element(created.text(), "UploadId"));
            let part = path.replace("?uploadId", "?partNumber=1&uploadId");
            let part = s3.put(&part, &[], format!("by {writer}")).await.expect(200);
            (path, list(&[(1, part.etag())]))
        };
        let uploads = join_all((0..8).map(begin)).await;
        let complete = async |(path, list): &(String, String)| {
            s3.send(Method::POST, path, &[("if-none-match", "*")], list.clone()).await.status.as_u16()
        };
        assert_one(&join_all(uploads.iter().map(complete)).await, &[412, 409]);
    }
}

/// Each of the requests gets the result of the one that wrote, or is told to ask again; an abort that comes first ends all.
#[tokio::test(flavor = "multi_thread")]
async fn requests_that_complete_one_upload_write_once() {
    let setup = setup().await;
    let s3 = &setup.s3;
    for attempt in 0..20 {
        let key = format!("/docs/once-{attempt}");
        let created = s3.send(Method::POST, &format!("{key}?uploads"), &[], "").await.expect(200);
        let path = format!("{key}?uploadId={}", element(created.text(), "UploadId"));
        let part = s3.put(&path.replace("?uploadId", "?partNumber=1&uploadId"), &[], "part").await.expect(200);
        let list = list(&[(1, part.etag())]);
        let act = async |number: usize| match number {
            0 => s3.delete(&path, &[]).await,
            _ => s3.send(Method::POST, &path, &[], list.clone()).await,
        };
        let answers = join_all((0..8).map(act)).await;
        let done = answers[1..].iter().filter(|answer| answer.status == 200);
        let tags: BTreeSet<_> = done.map(|answer| element(answer.text(), "ETag")).collect();
        assert!(tags.len() <= 1, "several versions: {tags:?}");
        let aborted = answers[0].status == 204;
        let read = s3.get(&key, &[]).await;
        assert_eq!(read.status.as_u16(), if tags.is_empty() { 404 } else { 200 }, "aborted: {aborted}");
        for answer in &answers {
            assert!([200, 204, 404, 503].contains(&answer.status.as_u16()), "{}: {}", answer.status, answer.text());
        }
        assert!(!aborted || tags.is_empty(), "an aborted upload was completed");
    }
}

/// "123456789" is the input for which the catalogues of checksums state their values.
#[tokio::test]
async fn checksums_are_verified_in_headers_and_trailers() {
    let setup = setup().await;
    let s3 = &setup.s3;
    for (name, right) in [
        ("x-amz-checksum-crc32", "y/Q5Jg=="),
        ("x-amz-checksum-crc32c", "4waSgw=="),
        ("x-amz-checksum-crc64nvme", "rosUhgp5mIg="),
        ("x-amz-checksum-sha1", "98O8HYCOBHMq32eZZczDTKeuNEE="),
        ("x-amz-checksum-sha256", "FeKw08M4keuw8e9gnsQZQgwg4yDOlMZfvIwzEkSOsiU="),
    ] {
        let key = format!("/docs/{name}");
        let put = s3.put(&key, &[(name, right)], "123456789").await.expect(200);
        assert_eq!(put.header(name), right);
        refused(&s3.put(&key, &[(name, right)], "12345678X").await, 400, "BadDigest");
        let trailer = async |content: &str, value: &str| {
            let body = format!("9\r\n{content}\r\n0\r\n{name}:{value}\r\n\r\n");
            let headers = [
                ("x-amz-content-sha256", "STREAMING-UNSIGNED-PAYLOAD-TRAILER"),
                ("x-amz-decoded-content-length", "9"),
                ("x-amz-trailer", name),
                ("content-encoding", "aws-chunked"),
            ];
            s3.put(&key, &headers, body).await
        };
        assert_eq!(trailer("123456789", right).await.expect(200).header(name), right);
        refused(&trailer("12345678X", right).await, 400, "BadDigest");
        let read = s3.get(&key, &[("x-amz-checksum-mode", "ENABLED")]).await.expect(200);
        assert_eq!(
            (read.text(), read.header(name), read.header("x-amz-checksum-type")),
            ("123456789", right, "FULL_OBJECT")
        );
        assert!(!read.headers.contains_key("content-encoding"));
    }
    let md5 = [("content-md5", "AAAAAAAAAAAAAAAAAAAAAA==")];
    refused(&s3.put("/docs/a", &md5, "123456789").await, 400, "BadDigest");
    // A copy has the checksum of its source, and other bytes have none of it: the hash takes its place.
    let mode = [("x-amz-checksum-mode", "ENABLED")];
    s3.put("/docs/copy", &[("x-amz-copy-source", "/docs/x-amz-checksum-crc32")], "").await.expect(200);
    assert_eq!(s3.get("/docs/copy", &mode).await.expect(200).header("x-amz-checksum-crc32"), "y/Q5Jg==");
    Client::new(setup.gateway.address()).put("/docs/copy", &[], "123456789").await.expect(200);
    let read = s3.get("/docs/copy", &mode).await.expect(200);
    assert_eq!(read.header("x-amz-checksum-sha256"), "FeKw08M4keuw8e9gnsQZQgwg4yDOlMZfvIwzEkSOsiU=");
    assert!(!read.headers.contains_key("x-amz-checksum-crc32"));
}

#[tokio::test]
async fn signatures_are_verified_with_their_time_and_their_headers() {
    let folder = tempfile::tempdir().unwrap();
    let account = format!("{DEVELOPMENT_ACCOUNT}:{DEVELOPMENT_KEY}:YW5vdGhlciBvZiAxNiBieXRlcw==");
    let mut gateway = serve(folder.path(), &["--listen-s3", "127.0.0.1:0", "--accounts", &account]);
    let address = gateway.s3();
    let s3 = S3::development(address);
    s3.put("/docs", &[], "").await.expect(200);
    s3.put("/docs/a", &[], "one").await.expect(200);
    // Both keys of an account, and no other.
    let second = S3::new(address, DEVELOPMENT_ACCOUNT, "YW5vdGhlciBvZiAxNiBieXRlcw==");
    assert_eq!(second.get("/docs/a", &[]).await.expect(200).text(), "one");
    second.put("/docs/b", &[], "two").await.expect(200);
    refused(&S3::new(address, DEVELOPMENT_ACCOUNT, "b3RoZXI=").get("/docs/a", &[]).await, 403, "SignatureDoesNotMatch");
    refused(&S3::new(address, "nobody", DEVELOPMENT_KEY).get("/docs/a", &[]).await, 403, "InvalidAccessKeyId");
    refused(&Client::new(address).get("/docs/a", &[]).await, 403, "AccessDenied");

    // The time of a request, and the end of a presigned URL.
    let (now, minute) = (now(), Duration::from_mins(1));
    for (time, status) in [(now - 14 * minute, 200), (now - 16 * minute, 403), (now + 16 * minute, 403)] {
        let request = s3.signed(Method::GET, "/docs/a", &[], "", time);
        assert_eq!(s3.send_signed(request).await.status, status);
        let old = s3.presigned(&Method::GET, "/docs/a", time, 15 * 60);
        assert_eq!(Client::new(address).get(&old, &[]).await.status, status, "{old}");
    }
    // The holder of a URL cannot add what its signature does not cover.
    let upload = s3.presigned(&Method::PUT, "/docs/c", now, 60);
    let copied = Client::new(address).put(&upload, &[("x-amz-copy-source", "/docs/a")], "").await;
    refused(&copied, 403, "AccessDenied");
    Client::new(address).put(&upload, &[], "three").await.expect(200);
    let other = upload.replace("/docs/c", "/docs/d");
    refused(&Client::new(address).put(&other, &[], "three").await, 403, "SignatureDoesNotMatch");

    // A signed `Date` is a time, too.
    for (time, status) in [(now, 200), (now - 16 * minute, 403)] {
        let date = httpdate::fmt_http_date(time);
        let request = s3.signed(Method::GET, "/docs/a", &[("date", &date)], "", time);
        assert_eq!(s3.send_signed(request).await.status, status, "{date}");
    }
    // A list of tags that is signed.
    let lists = [("if-none-match", "\"a\", \"b\"")];
    let other = S3::new(address, DEVELOPMENT_ACCOUNT, "b3RoZXI=");
    refused(&other.get("/docs/a", &lists).await, 403, "SignatureDoesNotMatch");
    second.get("/docs/a", &lists).await.expect(200);
    let url = s3.presigned(&Method::GET, "/docs/a", now, 60);
    Client::new(address).get(&url, &lists).await.expect(200);
    Client::new(address).get(&url.replace("Expires=60", "Expires=61"), &lists).await.expect(403);

    // The bytes of a signed body.
    let mut request = s3.signed(Method::PUT, "/docs/a", &[], "one", now);
    *request.body_mut() = "two".into();
    refused(&s3.send_signed(request).await, 400, "XAmzContentSHA256Mismatch");
    assert_eq!(s3.get("/docs/a", &[]).await.expect(200).text(), "one");
}

/// The SDKs name a call, and repeat the name when they retry it.
#[tokio::test]
async fn a_retry_gets_the_first_answer() {
    let setup = setup().await;
    let s3 = &setup.s3;
    let call = [("if-none-match", "*"), ("amz-sdk-invocation-id", "3b2e1b0c-58a3-4f0b-93b0-5f0c2b6c9a10")];
    let first = s3.put("/docs/a", &call, "one").await.expect(200);
    let again = s3.put("/docs/a", &call, "one").await.expect(200);
    assert_eq!(first.etag(), again.etag());
    refused(&s3.put("/docs/a", &call, "two").await, 412, "PreconditionFailed");
    s3.put("/docs/a", &[], "three").await.expect(200);
    refused(&s3.put("/docs/a", &call, "one").await, 412, "PreconditionFailed");
}

#[tokio::test]
async fn listings_have_folders_and_pages() {
    let setup = setup().await;
    let s3 = &setup.s3;
    for key in ["a", "b/1", "b/2", "b//3", "c%20%26/1", "d"] {
        s3.put(&format!("/docs/{key}"), &[], "x").await.expect(200);
    }
    let names = |text: &str, element: &str| -> Vec<String> {
        let start = format!("<{element}>");
        let rest = text.split(&start).skip(1);
        rest.map(|rest| rest.split("</").next().unwrap().to_owned()).collect()
    };
    let page = s3.get("/docs?delimiter=%2F&list-type=2&max-keys=2", &[]).await.expect(200);
    assert_eq!(names(page.text(), "Key"), ["a"]);
    let token = element(page.text(), "NextContinuationToken").replace('=', "%3D");
    let next = format!("/docs?continuation-token={token}&delimiter=%2F&encoding-type=url&list-type=2");
    let page = s3.get(&next, &[]).await.expect(200);
    assert_eq!(names(page.text(), "Key"), ["d"]);
    assert!(page.text().contains("<Prefix>c%20%26/</Prefix>") && !page.text().contains("b/"), "{}", page.text());
    let page = s3.get("/docs?delimiter=%2F&marker=b%2F&max-keys=1", &[]).await.expect(200);
    assert!(page.text().contains("<NextMarker>c &amp;/</NextMarker>"), "{}", page.text());
    refused(&s3.delete("/docs", &[]).await, 409, "BucketNotEmpty");
    refused(&s3.get("/none?list-type=2", &[]).await, 404, "NoSuchBucket");
    refused(&s3.put("/docs.other", &[], "").await, 400, "InvalidBucketName");
}

#[test]
fn s3_needs_an_account() {
    for (flags, status, expected) in [
        (&["--listen-s3", "0.0.0.0:0"][..], 2, "--accounts NAME:KEY"),
        (&["--listen-s3", "127.0.0.1:0", "--write-token", "w"], 2, "--accounts NAME:KEY"),
        (&["--listen-s3", "0.0.0.0:0", "--accounts", DEVELOPMENT_ACCOUNT], 2, "is public"),
    ] {
        let end = run(["serve", "--store", "memory://"].iter().chain(flags));
        assert_eq!(end.status.code(), Some(status), "{end:#?}");
        assert!(end.stderr.contains(expected), "{end:#?}");
    }
}
