//! Objects: errors, bodies in chunks, checksums, and listings.

use crate::http::Http;
use crate::s3::bucket;
use crate::site::Site;
use crate::suite::Suite;

pub(crate) fn add(suite: &mut Suite) {
    suite.case("s3: an error names its condition and its request", errors);
    suite.case("s3: a document of more than 4 MiB", |site| {
        let mut http = site.s3();
        let (own, _) = bucket(&mut http, site);
        let long = " ".repeat(4 * 1024 * 1024 + 1);
        http.send("POST", &format!("{own}?delete"), &[], long)
            .refused(400, "MaxMessageLengthExceeded");
    });
    suite.case("s3: a body in chunks is complete or refused", chunks);
    for (name, right) in CHECKSUMS {
        suite.case(
            format!("s3: {name} is verified in headers and trailers"),
            move |site| checksum(site, name, right),
        );
    }
    suite.case("s3: listings have folders and pages", listings);
}

/// Programs tell by the condition that an object exists, and their users tell the operator the id of a request.
fn errors(site: &Site) {
    let mut http = site.s3();
    let (own, tag) = bucket(&mut http, site);
    let (there, copy, other) = (
        format!("{own}/there"),
        format!("{own}/copy"),
        ("if-match", "\"other\""),
    );
    let source = ("x-amz-copy-source", there.as_str());
    let past = ("if-unmodified-since", "Thu, 01 Jan 1970 00:00:00 GMT");
    for (method, path, fields, condition) in [
        ("PUT", &there, vec![("if-none-match", "*")], "If-None-Match"),
        ("PUT", &there, vec![other], "If-Match"),
        ("GET", &there, vec![other], "If-Match"),
        ("GET", &there, vec![past], "If-Unmodified-Since"),
        ("DELETE", &there, vec![other], "If-Match"),
        (
            "PUT",
            &copy,
            vec![source, ("x-amz-copy-source-if-none-match", &tag)],
            "x-amz-copy-source-If-None-Match",
        ),
        (
            "PUT",
            &copy,
            vec![source, ("x-amz-copy-source-if-match", "\"other\"")],
            "x-amz-copy-source-If-Match",
        ),
    ] {
        let reply = http.send(method, path, &fields, "").is(412);
        assert_eq!(reply.code(), "PreconditionFailed");
        assert_eq!(reply.all("Condition"), [condition]);
        assert_eq!(reply.all("RequestId"), [reply.header("x-amz-request-id")]);
        // The name of the request in the log.
        assert_eq!(
            reply.header("x-amz-request-id"),
            reply.header("x-request-id")
        );
        assert!(!reply.headers.contains_key("x-ifmatch-condition"));
    }
    let [first, second] = [http.get(&there).is(200), http.get(&there).is(200)];
    assert_ne!(
        first.header("x-amz-request-id"),
        second.header("x-amz-request-id")
    );
    let wanted = [("x-amz-object-attributes", "ETag")];
    let attributes = http
        .send("GET", &format!("{there}?attributes"), &wanted, "")
        .is(200);
    assert_eq!(attributes.all("ETag"), [tag.trim_matches('"')]);
    http.send("GET", &format!("{own}/missing?attributes"), &wanted, "")
        .refused(404, "NoSuchKey");
}

/// A body in chunks, of any length if they aren't signed.
fn chunks(site: &Site) {
    let mut http = site.s3();
    let path = format!("{}/a", bucket(&mut http, site).0);
    let put = |http: &mut Http<'_>, kind: &str, length: usize, body: String| {
        let length = length.to_string();
        let headers = [
            ("x-amz-content-sha256", kind),
            ("x-amz-decoded-content-length", &*length),
            ("x-amz-trailer", "x-amz-checksum-crc32"),
            ("content-encoding", "aws-chunked"),
        ];
        http.put(&path, &headers, body)
    };
    let (signed, unsigned) = (
        "STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER",
        "STREAMING-UNSIGNED-PAYLOAD-TRAILER",
    );
    let long = 5 * 1024 * 1024;
    let line = |length: usize| format!("{length:x};chunk-signature={}\r\n", "0".repeat(64));
    let bytes = "x".repeat(long);
    for (kind, length, body, status, code) in [
        (
            unsigned,
            9,
            "9\r\n123456789\r\n".to_owned(),
            400,
            "IncompleteBody",
        ),
        (
            unsigned,
            9,
            "9\r\n123456789\r\n0\r\n\r\n".to_owned(),
            400,
            "InvalidRequest",
        ),
        (
            unsigned,
            8,
            "9\r\n123456789\r\n0\r\nx-amz-checksum-crc32:y/Q5Jg==\r\n\r\n".to_owned(),
            400,
            "IncompleteBody",
        ),
        (
            signed,
            9,
            format!("{}123456789\r\n{}\r\n", line(9), line(0)),
            403,
            "SignatureDoesNotMatch",
        ),
        (
            signed,
            long,
            format!("{}{bytes}\r\n{}\r\n", line(long), line(0)),
            400,
            "InvalidRequest",
        ),
    ] {
        put(&mut http, kind, length, body).refused(status, code);
    }
    http.get(&path).is(404);
    let trailer = "0\r\nx-amz-checksum-crc32:y/Q5Jg==\r\n\r\n";
    put(
        &mut http,
        unsigned,
        9,
        format!("9\r\n123456789\r\n{trailer}"),
    )
    .is(200);
    let body = format!("{long:x}\r\n{bytes}\r\n0\r\nx-amz-checksum-crc32:AAAAAA==\r\n\r\n");
    put(&mut http, unsigned, long, body).refused(400, "BadDigest");
    assert_eq!(http.get(&path).is(200).text(), "123456789");
}

/// Checksums of "123456789", the input for which the catalogues state their values.
const CHECKSUMS: [(&str, &str); 5] = [
    ("x-amz-checksum-crc32", "y/Q5Jg=="),
    ("x-amz-checksum-crc32c", "4waSgw=="),
    ("x-amz-checksum-crc64nvme", "rosUhgp5mIg="),
    ("x-amz-checksum-sha1", "98O8HYCOBHMq32eZZczDTKeuNEE="),
    (
        "x-amz-checksum-sha256",
        "FeKw08M4keuw8e9gnsQZQgwg4yDOlMZfvIwzEkSOsiU=",
    ),
];
const WITH_CHECKSUM: (&str, &str) = ("x-amz-checksum-mode", "ENABLED");

fn checksum(site: &Site, name: &str, right: &str) {
    let mut http = site.s3();
    let path = format!("{}/a", bucket(&mut http, site).0);
    assert_eq!(
        http.put(&path, &[(name, right)], "123456789")
            .is(200)
            .header(name),
        right
    );
    http.put(&path, &[(name, right)], "12345678X")
        .refused(400, "BadDigest");
    let trailer = |http: &mut Http<'_>, content: &str| {
        let body = format!("9\r\n{content}\r\n0\r\n{name}:{right}\r\n\r\n");
        let headers = [
            ("x-amz-content-sha256", "STREAMING-UNSIGNED-PAYLOAD-TRAILER"),
            ("x-amz-decoded-content-length", "9"),
            ("x-amz-trailer", name),
            ("content-encoding", "aws-chunked"),
        ];
        http.put(&path, &headers, body)
    };
    assert_eq!(trailer(&mut http, "123456789").is(200).header(name), right);
    trailer(&mut http, "12345678X").refused(400, "BadDigest");
    let read = http.send("GET", &path, &[WITH_CHECKSUM], "").is(200);
    assert_eq!(
        (
            read.text(),
            read.header(name),
            read.header("x-amz-checksum-type")
        ),
        ("123456789", right, "FULL_OBJECT")
    );
    assert!(!read.headers.contains_key("content-encoding"));
}

fn listings(site: &Site) {
    let mut http = site.s3();
    let (own, _) = bucket(&mut http, site);
    http.delete(&format!("{own}/there"), &[]).is(204);
    for key in ["a", "b/1", "b/2", "b//3", "c%20%26/1", "d"] {
        http.put(&format!("{own}/{key}"), &[], "x").is(200);
    }
    let page = http
        .get(&format!("{own}?delimiter=%2F&list-type=2&max-keys=2"))
        .is(200);
    assert_eq!(page.all("Key"), ["a"]);
    let token = page
        .all("NextContinuationToken")
        .concat()
        .replace('=', "%3D");
    let next =
        format!("{own}?continuation-token={token}&delimiter=%2F&encoding-type=url&list-type=2");
    let page = http.get(&next).is(200);
    assert_eq!(page.all("Key"), ["d"]);
    assert!(
        page.text().contains("<Prefix>c%20%26/</Prefix>") && !page.text().contains("b/"),
        "{}",
        page.text()
    );
    let page = http
        .get(&format!("{own}?delimiter=%2F&marker=b%2F&max-keys=1"))
        .is(200);
    assert_eq!(page.all("NextMarker"), ["c &amp;/"]);
}
