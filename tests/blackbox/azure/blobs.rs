//! Blobs in Azure's dialect, and seen from the plain dialect.

use std::time::Duration;

use crate::azure::{blob, container};
use crate::plain::ranges::pattern;
use crate::site::Site;
use crate::suite::Suite;

pub(crate) fn add(suite: &mut Suite) {
    suite.case("azure blob: written, read, deleted", life);
    suite.case("azure blob: each write gives a new tag, even of the same bytes", tags);
    suite.case("azure blob: metadata and properties are replaced separately", apart);
    suite.case("azure blob: the plain dialect sees the same", plain);
    suite.case("azure blob: the MD5 of a body is checked", md5);
    suite.case("azure blob: the MD5 is stored and returned", kept_md5);
    suite.case("azure blob: the MD5 of a block list is not checked", list_md5);
    suite.case("azure blob: a condition is checked before the range", condition_before_range);
    suite.case("azure blob: stored headers have a size limit", stored_headers_limit);
    suite.case("azure blob: names are compared after decoding", spellings);
    suite.case("azure blob: a deletion is permanent", |site| {
        let mut http = site.azure();
        let path = blob(&mut http, site);
        assert_eq!(http.delete(&path, &[]).is(202).header("x-ms-delete-type-permanent"), "true");
        assert_eq!(http.head(&path).is(404).field("content-type"), "", "no body, no content type");
    });
    suite.case("azure blob: x-ms-range overrides Range, and only a single range is supported", ranges);
    suite.case("azure blob: tiers, checksums and unknown fields that Azure accepts", tolerated);
    suite.case("azure blob: empty", empty);
    suite.case("azure blob: creation time", |site| {
        let mut http = site.azure();
        let path = blob(&mut http, site);
        let created = http.head(&path).is(200).header("x-ms-creation-time").to_owned();
        assert!(httpdate::parse_http_date(&created).is_ok(), "{created}");
        let first = http.head(&path).header("last-modified").to_owned();
        // On object stores, two versions of one second have one date.
        let is_later = (0..1000).any(|_| {
            std::thread::sleep(Duration::from_millis(20));
            http.upload(&path, &[], "second").is(201);
            http.head(&path).header("last-modified") != first
        });
        assert!(is_later, "1,000 versions have the date {first}");
        assert_eq!(http.head(&path).is(200).header("x-ms-creation-time"), created);
    });
    suite.case("azure blob: dates are always sent", dated);
    suite.case("azure blob: a body without a length", no_length);
    for name in ["with%20space", "a/b/c", "%C3%BC", "plus+sign", "a%2Fb", "~a!$'()", "a//b", "dir/", "a%5Cb"] {
        suite.case(format!("azure blob: the name {name}"), move |site| named(site, name));
    }
}

fn life(site: &Site) {
    let mut http = site.azure();
    let path = format!("{}/a", container(&mut http, site));
    let fields = [
        ("content-type", "application/octet-stream"),
        ("x-ms-blob-content-type", "text/plain"),
        ("x-ms-blob-content-encoding", "identity"),
        ("x-ms-blob-content-language", "en"),
        ("x-ms-blob-content-disposition", "inline"),
        ("x-ms-blob-cache-control", "no-cache"),
        ("x-ms-meta-owner", "me"),
    ];
    let written = http.upload(&path, &fields, "hello").is(201);
    for method in ["GET", "HEAD"] {
        let read = http.send(method, &path, &[], "").is(200);
        assert_eq!(read.body, if method == "GET" { "hello" } else { "" });
        let expected = [
            ("etag", written.etag()),
            ("last-modified", written.header("last-modified")),
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
            assert_eq!(read.header(name), value, "{method} {name}");
        }
        assert_eq!(read.field("x-ms-lease-duration"), "");
    }
    http.delete(&path, &[]).is(202);
    http.get(&path).refused(404, "BlobNotFound");
    http.head(&path).refused(404, "BlobNotFound");
    http.delete(&path, &[]).refused(404, "BlobNotFound");
}

fn tags(site: &Site) {
    let mut http = site.azure();
    let path = blob(&mut http, site);
    let mut tags = vec![http.head(&path).is(200).etag().to_owned()];
    for _ in 0..3 {
        tags.push(http.upload(&path, &[], "same").is(201).etag().to_owned());
    }
    for comp in ["metadata", "metadata", "properties"] {
        tags.push(http.put(&format!("{path}?comp={comp}"), &[], "").is(200).etag().to_owned());
    }
    assert_eq!(http.get(&path).is(200).etag(), tags[6]);
    tags.sort();
    tags.dedup();
    assert_eq!(tags.len(), 7, "{tags:?}");
}

fn apart(site: &Site) {
    let mut http = site.azure();
    let path = blob(&mut http, site);
    let fields = [("x-ms-blob-content-type", "text/plain"), ("x-ms-meta-a", "1"), ("x-ms-meta-b", "2")];
    http.upload(&path, &fields, "x").is(201);
    http.put(&format!("{path}?comp=metadata"), &[("x-ms-meta-c", "3")], "").is(200);
    let read = http.get(&path).is(200);
    let seen = ["content-type", "x-ms-meta-a", "x-ms-meta-b", "x-ms-meta-c"].map(|name| read.field(name));
    assert_eq!((seen, read.text()), (["text/plain", "", "", "3"], "x"));
    http.put(&format!("{path}?comp=properties"), &[("x-ms-blob-content-type", "text/html")], "").is(200);
    let read = http.send("HEAD", &format!("{path}?comp=metadata"), &[], "").is(200);
    assert_eq!(read.field("x-ms-meta-c"), "3");
    assert_eq!(http.get(&path).is(200).field("content-type"), "text/html");
    http.put(&format!("{path}?comp=properties"), &[("x-ms-blob-content-language", "en")], "").is(200);
    let read = http.get(&path).is(200);
    let seen = ["content-type", "content-language", "x-ms-meta-c"].map(|name| read.field(name));
    assert_eq!((seen, read.text()), (["application/octet-stream", "en", "3"], "x"));
}

fn tolerated(site: &Site) {
    let mut http = site.azure();
    let path = format!("{}/a", container(&mut http, site));
    // The CRC-64 of "hello".
    let fields = [("x-ms-access-tier", "Cool"), ("x-ms-content-crc64", "V0JSBnCFdzM="), ("x-ms-unheard-of", "1")];
    let written = http.upload(&format!("{path}?unheardof=1"), &fields, "hello").is(201);
    assert_eq!(written.header("x-ms-content-crc64"), "V0JSBnCFdzM=");
    let block = format!("{path}?comp=block&blockid=AA==");
    let fields = [("x-ms-blob-content-md5", "AAAAAAAAAAAAAAAAAAAAAA=="), ("x-ms-content-crc64", "V0JSBnCFdzM=")];
    http.put(&block, &fields, "hello").is(201);
    http.put(&format!("{path}?comp=tier"), &[("x-ms-access-tier", "Cool")], "").is(200);
    let read = http.head(&path).is(200);
    assert_eq!((read.header("x-ms-access-tier"), read.header("x-ms-access-tier-inferred")), ("Hot", "true"));
    assert_eq!(read.etag(), written.etag(), "a tier is no change");
}

fn plain(site: &Site) {
    let (mut azure, mut http) = (site.azure(), site.plain());
    let path = blob(&mut azure, site);
    let written = azure.upload(&path, &[("x-ms-meta-owner", "me")], "hello").is(201);
    let read = http.get(&path).is(200);
    assert_eq!((read.etag(), read.text(), read.field("x-meta-owner")), (written.etag(), "hello", "me"));
    let changed = http.put(&path, &[("if-match", written.etag())], "changed").is(200);
    azure.upload(&path, &[("if-match", written.etag())], "late").refused(412, "ConditionNotMet");
    azure.upload(&path, &[("if-match", changed.etag())], "third").is(201);
    http.put(&path, &[("if-match", changed.etag())], "late").is(412);
    assert_eq!(http.get(&path).is(200).text(), "third");
    azure.delete(&path, &[]).is(202);
    http.get(&path).is(404);
}

/// MD5 of `hello`.
const MD5: &str = "XUFAKrxLKna5cZ2REBfFkg==";

/// MD5 of `hallo`.
const OTHER_MD5: &str = "WY1MIARhuBUiozKFZcJffA==";

fn md5(site: &Site) {
    let mut http = site.azure();
    let path = blob(&mut http, site);
    assert_eq!(http.upload(&path, &[("content-md5", MD5)], "hello").is(201).field("content-md5"), MD5);
    http.upload(&path, &[("content-md5", MD5)], "hallo").refused(400, "Md5Mismatch");
    http.upload(&path, &[("content-md5", MD5)], "").refused(400, "Md5Mismatch");
    http.upload(&path, &[("content-md5", "short")], "hello").refused(400, "InvalidMd5");
    let block = format!("{path}x?comp=block&blockid=AA%3D%3D");
    http.put(&block, &[("content-md5", MD5)], "hallo").refused(400, "Md5Mismatch");
    http.get(&format!("{path}x?comp=blocklist&blocklisttype=all")).refused(404, "BlobNotFound");
    let fields = [("x-ms-range", "bytes=0-4"), ("x-ms-range-get-content-md5", "true")];
    let read = http.send("GET", &path, &fields, "").is(206);
    assert_eq!((read.text(), read.field("content-md5")), ("hello", MD5));
    http.upload(&path, &[], "hello world").is(201);
    let read = http.send("GET", &path, &fields, "").is(206);
    assert_eq!((read.text(), read.field("content-md5")), ("hello", MD5));
}

fn kept_md5(site: &Site) {
    let mut http = site.azure();
    let path = blob(&mut http, site);
    let given = "x-ms-blob-content-md5";
    let listing = format!("{}?restype=container&comp=list", path.trim_end_matches("/blob"));
    for fields in [&[][..], &[(given, MD5)], &[(given, MD5), ("content-md5", OTHER_MD5)]] {
        assert_eq!(http.upload(&path, fields, "hello").is(201).field("content-md5"), MD5);
        assert_eq!(http.head(&path).is(200).field("content-md5"), MD5);
        let part = http.send("GET", &path, &[("x-ms-range", "bytes=0-1")], "").is(206);
        assert_eq!((part.field("content-md5"), part.field(given)), ("", MD5));
        let whole = http.get(&path).is(200);
        assert_eq!((whole.field("content-md5"), whole.field(given)), (MD5, ""));
        assert_eq!(http.get(&listing).is(200).all("Content-MD5"), [MD5]);
    }
    let ranged = [("x-ms-range", "bytes=0-0"), ("x-ms-range-get-content-md5", "true")];
    let part = http.send("GET", &path, &ranged, "").is(206);
    assert_eq!((part.field("content-md5"), part.field(given)), ("JRDDkBHFvnBBgkI+OmlekQ==", MD5));
    http.put(&format!("{path}?comp=metadata"), &[("x-ms-meta-a", "1")], "").is(200);
    assert_eq!(http.head(&path).is(200).field("content-md5"), MD5);
    http.put(&format!("{path}?comp=properties"), &[(given, OTHER_MD5)], "").is(200);
    assert_eq!(http.head(&path).is(200).field("content-md5"), OTHER_MD5);
    http.upload(&path, &[(given, MD5)], "hallo").refused(400, "Md5Mismatch");
    http.upload(&path, &[(given, MD5), ("content-md5", OTHER_MD5)], "hallo").refused(400, "Md5Mismatch");
    let block = format!("{path}?comp=block&blockid=AA%3D%3D");
    http.put(&block, &[("x-ms-meta-owner", "me")], "hello").is(201);
    let list = "<BlockList><Latest>AA==</Latest></BlockList>";
    http.put(&format!("{path}?comp=blocklist"), &[(given, MD5)], list).is(201);
    assert_eq!((http.get(&path).is(200).field("content-md5"), http.head(&path).field("x-ms-meta-owner")), (MD5, ""));
    http.put(&format!("{path}?comp=properties"), &[], "").is(200);
    assert_eq!(http.get(&path).is(200).field("content-md5"), "");
}

/// As in the real service.
fn list_md5(site: &Site) {
    let mut http = site.azure();
    let path = format!("{}/a", container(&mut http, site));
    let block = format!("{path}?comp=block&blockid=AA%3D%3D");
    let list = "<BlockList><Latest>AA==</Latest></BlockList>";
    for (fields, md5) in [(&[("x-ms-blob-content-md5", OTHER_MD5)][..], OTHER_MD5), (&[], "")] {
        http.put(&block, &[("content-md5", MD5)], "hello").is(201);
        http.put(&format!("{path}?comp=blocklist"), fields, list).is(201);
        assert_eq!(http.head(&path).is(200).field("content-md5"), md5);
    }
}

fn ranges(site: &Site) {
    let mut http = site.azure();
    let path = blob(&mut http, site);
    let content = pattern(1000);
    http.upload(&path, &[], &content).is(201);
    for (fields, first, last) in [
        (&[("x-ms-range", "bytes=0-33554431")][..], 0, 999),
        (&[("range", "bytes=10-19")], 10, 19),
        (&[("range", "bytes=10-19"), ("x-ms-range", "bytes=0-0")], 0, 0),
        (&[("x-ms-range", "bytes=990-")], 990, 999),
    ] {
        let read = http.send("GET", &path, fields, "").is(206);
        assert_eq!(read.header("content-range"), format!("bytes {first}-{last}/1000"));
        assert_eq!(read.body, content[first..=last]);
    }
    let tag = http.head(&path).is(200).etag().to_owned();
    for fields in [
        &[("x-ms-range", "bytes=0-0,2-2")][..],
        &[("x-ms-range", "lines=0-1")],
        &[("range", "bytes=0-1"), ("if-range", "\"other\"")],
    ] {
        let whole = http.send("GET", &path, fields, "").is(200);
        assert_eq!((whole.field("content-range"), whole.etag()), ("", tag.as_str()), "{fields:?}");
        assert_eq!(whole.body, content, "{fields:?}");
    }
    for condition in ["if-range", "if-match"] {
        let read = http.send("GET", &path, &[("range", "bytes=0-1"), (condition, &tag)], "").is(206);
        assert_eq!((read.body.len(), read.etag()), (2, tag.as_str()));
    }
    let head = http.send("HEAD", &path, &[("range", "bytes=2-4")], "").is(200);
    assert_eq!(head.header("content-length"), "1000");
    let beyond = http.send("GET", &path, &[("x-ms-range", "bytes=1000-")], "").is(416);
    assert_eq!((beyond.code(), beyond.header("content-range")), ("InvalidRange", "bytes */1000"));
}

/// A client that resumes a download must learn that the blob changed.
fn condition_before_range(site: &Site) {
    let mut http = site.azure();
    let path = blob(&mut http, site);
    let tag = http.upload(&path, &[], "0123456789").is(201).etag().to_owned();
    http.upload(&path, &[], "01").is(201);
    let fields = [("x-ms-range", "bytes=5-9"), ("if-match", tag.as_str())];
    http.send("GET", &path, &fields, "").refused(412, "ConditionNotMet");
}

/// Listings contain the stored headers of thousands of blobs.
fn stored_headers_limit(site: &Site) {
    let mut http = site.azure();
    let path = blob(&mut http, site);
    let (tag, long, half) = (http.head(&path).etag().to_owned(), "x".repeat(8 * 1024 + 1), "x".repeat(4 * 1024 + 1));
    let both = [("x-ms-blob-content-type", half.as_str()), ("x-ms-blob-cache-control", half.as_str())];
    for fields in [&[("x-ms-blob-content-disposition", long.as_str())][..], &both] {
        http.upload(&path, fields, "y").refused(400, "InvalidHeaderValue");
        http.put(&format!("{path}?comp=properties"), fields, "").refused(400, "InvalidHeaderValue");
        http.put(&format!("{path}?comp=blocklist"), fields, "<BlockList/>").refused(400, "InvalidHeaderValue");
    }
    http.upload(&path, &[("x-ms-meta-a", &long[1..])], "y").refused(400, "MetadataTooLarge");
    assert_eq!(http.get(&path).is(200).etag(), tag);
}

fn spellings(site: &Site) {
    let mut http = site.azure();
    let own = container(&mut http, site);
    for (one, other) in [
        ("a%20b/%C3%BCn%C3%AFcode.txt", "a%20b%2F%C3%BCn%C3%AFcode.txt"),
        ("plus+and%25percent", "plus%2Band%25percent"),
    ] {
        http.upload(&format!("{own}/{one}"), &[], one).is(201);
        assert_eq!(http.get(&format!("{own}/{other}")).is(200).text(), one);
    }
    http.upload(&format!("{own}/{}", "n".repeat(1025)), &[], "x").refused(400, "InvalidResourceName");
}

/// The Python client asks for a range first, then again without one.
fn empty(site: &Site) {
    let mut http = site.azure();
    let path = blob(&mut http, site);
    http.upload(&path, &[], "").is(201);
    http.send("GET", &path, &[("x-ms-range", "bytes=0-33554431")], "").refused(416, "InvalidRange");
    let read = http.get(&path).is(200);
    assert_eq!((read.header("content-length"), read.text()), ("0", ""));
}

fn dated(site: &Site) {
    let mut http = site.azure();
    let path = blob(&mut http, site);
    let parse = |date: &str| httpdate::parse_http_date(date).expect("a date");
    let mut last = parse(http.head(&path).is(200).header("last-modified"));
    for _ in 0..3 {
        let written = http.upload(&path, &[], "x").is(201);
        let date = parse(written.header("last-modified"));
        assert!(date >= last, "dates never go back");
        let read = parse(http.get(&path).is(200).header("last-modified"));
        // The Worker's response to a write has the Worker's time; later reads have the time of R2.
        assert!(
            read == date || (site.server == "worker" && read < date),
            "{read:?}, but {date:?} in the response to the write"
        );
        last = date;
    }
}

fn no_length(site: &Site) {
    let mut http = site.azure();
    let path = blob(&mut http, site);
    let fields = [("x-ms-blob-type", "BlockBlob"), ("transfer-encoding", "chunked")];
    let mut request = http.request("PUT", &path, &fields, b"");
    *request.body_mut() = "5\r\nhello\r\n0\r\n\r\n".into();
    http.exchange(&request).refused(411, "MissingContentLengthHeader");
    let mut http = site.azure();
    assert_eq!(http.get(&path).is(200).text(), "first");
}

fn named(site: &Site, name: &str) {
    let mut http = site.azure();
    let path = format!("{}/{name}", container(&mut http, site));
    let written = http.upload(&path, &[], name).is(201);
    let read = http.get(&path).is(200);
    assert_eq!((read.etag(), read.text()), (written.etag(), name));
    http.delete(&path, &[("if-match", written.etag())]).is(202);
}
