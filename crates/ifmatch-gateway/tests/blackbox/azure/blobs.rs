//! Blobs in Azure's dialect, and seen from the plain dialect.

use std::time::Duration;

use crate::azure::{blob, container};
use crate::plain::reads::pattern;
use crate::site::Site;
use crate::suite::Suite;

pub(crate) fn add(suite: &mut Suite) {
    suite.case(
        "azure blob: each write gives a new tag, even of the same bytes",
        tags,
    );
    suite.case(
        "azure blob: stored headers have a size limit",
        stored_headers_limit,
    );
    suite.case("azure blob: a name of 1,025 characters", |site| {
        let mut http = site.azure();
        let path = format!("{}/{}", container(&mut http, site), "n".repeat(1025));
        http.upload(&path, &[], "x")
            .refused(400, "InvalidResourceName");
    });
    suite.case(
        "azure blob: x-ms-range overrides Range, and only a single range is supported",
        ranges,
    );
    suite.case("azure blob: creation time", |site| {
        let mut http = site.azure();
        let path = blob(&mut http, site);
        let created = http
            .head(&path)
            .is(200)
            .header("x-ms-creation-time")
            .to_owned();
        assert!(httpdate::parse_http_date(&created).is_ok(), "{created}");
        let first = http.head(&path).header("last-modified").to_owned();
        // On object stores, two versions of one second have one date.
        let is_later = (0..1000).any(|_| {
            std::thread::sleep(Duration::from_millis(20));
            http.upload(&path, &[], "second").is(201);
            http.head(&path).header("last-modified") != first
        });
        assert!(is_later, "1,000 versions have the date {first}");
        assert_eq!(
            http.head(&path).is(200).header("x-ms-creation-time"),
            created
        );
    });
    suite.case("azure blob: dates are always sent", dated);
    suite.case("azure blob: a body without a length", no_length);
    for name in [
        "with%20space",
        "a/b/c",
        "%C3%BC",
        "plus+sign",
        "a%2Fb",
        "~a!$'()",
        "a//b",
        "dir/",
        "a%5Cb",
    ] {
        suite.case(format!("azure blob: the name {name}"), move |site| {
            named(site, name);
        });
    }
}

fn tags(site: &Site) {
    let mut http = site.azure();
    let path = blob(&mut http, site);
    let mut tags = vec![http.head(&path).is(200).etag().to_owned()];
    for _ in 0..3 {
        tags.push(http.upload(&path, &[], "same").is(201).etag().to_owned());
    }
    for comp in ["metadata", "metadata", "properties"] {
        tags.push(
            http.put(&format!("{path}?comp={comp}"), &[], "")
                .is(200)
                .etag()
                .to_owned(),
        );
    }
    assert_eq!(http.get(&path).is(200).etag(), tags[6]);
    tags.sort();
    tags.dedup();
    assert_eq!(tags.len(), 7, "{tags:?}");
}

fn ranges(site: &Site) {
    let mut http = site.azure();
    let path = blob(&mut http, site);
    let content = pattern(1000);
    http.upload(&path, &[], &content).is(201);
    for (fields, first, last) in [
        (&[("x-ms-range", "bytes=0-33554431")][..], 0, 999),
        (&[("range", "bytes=10-19")], 10, 19),
        (
            &[("range", "bytes=10-19"), ("x-ms-range", "bytes=0-0")],
            0,
            0,
        ),
        (&[("x-ms-range", "bytes=990-")], 990, 999),
    ] {
        let read = http.send("GET", &path, fields, "").is(206);
        assert_eq!(
            read.header("content-range"),
            format!("bytes {first}-{last}/1000")
        );
        assert_eq!(read.body, content[first..=last]);
    }
    let tag = http.head(&path).is(200).etag().to_owned();
    for fields in [
        &[("x-ms-range", "bytes=0-0,2-2")][..],
        &[("x-ms-range", "lines=0-1")],
        &[("range", "bytes=0-1"), ("if-range", "\"other\"")],
    ] {
        let whole = http.send("GET", &path, fields, "").is(200);
        assert_eq!(
            (whole.field("content-range"), whole.etag()),
            ("", tag.as_str()),
            "{fields:?}"
        );
        assert_eq!(whole.body, content, "{fields:?}");
    }
    for condition in ["if-range", "if-match"] {
        let read = http
            .send(
                "GET",
                &path,
                &[("range", "bytes=0-1"), (condition, &tag)],
                "",
            )
            .is(206);
        assert_eq!((read.body.len(), read.etag()), (2, tag.as_str()));
    }
    let head = http
        .send("HEAD", &path, &[("range", "bytes=2-4")], "")
        .is(200);
    assert_eq!(head.header("content-length"), "1000");
    let beyond = http
        .send("GET", &path, &[("x-ms-range", "bytes=1000-")], "")
        .is(416);
    assert_eq!(
        (beyond.code(), beyond.header("content-range")),
        ("InvalidRange", "bytes */1000")
    );
}

/// Listings contain the stored headers of thousands of blobs.
fn stored_headers_limit(site: &Site) {
    let mut http = site.azure();
    let path = blob(&mut http, site);
    let (tag, long, half) = (
        http.head(&path).etag().to_owned(),
        "x".repeat(8 * 1024 + 1),
        "x".repeat(4 * 1024 + 1),
    );
    let both = [
        ("x-ms-blob-content-type", half.as_str()),
        ("x-ms-blob-cache-control", half.as_str()),
    ];
    for fields in [
        &[("x-ms-blob-content-disposition", long.as_str())][..],
        &both,
    ] {
        http.upload(&path, fields, "y")
            .refused(400, "InvalidHeaderValue");
        http.put(&format!("{path}?comp=properties"), fields, "")
            .refused(400, "InvalidHeaderValue");
        http.put(&format!("{path}?comp=blocklist"), fields, "<BlockList/>")
            .refused(400, "InvalidHeaderValue");
    }
    http.upload(&path, &[("x-ms-meta-a", &long[1..])], "y")
        .refused(400, "MetadataTooLarge");
    assert_eq!(http.get(&path).is(200).etag(), tag);
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
        // In front of a store, the response to a write has the gateway's time; later reads have the store's.
        let has_store = ["file", "memory", "worker"].contains(&&*site.server);
        assert!(
            read == date || (has_store && read < date),
            "{read:?}, but {date:?} in the response to the write"
        );
        last = date;
    }
}

fn no_length(site: &Site) {
    let mut http = site.azure();
    let path = blob(&mut http, site);
    let fields = [
        ("x-ms-blob-type", "BlockBlob"),
        ("transfer-encoding", "chunked"),
    ];
    let mut request = http.request("PUT", &path, &fields, b"");
    *request.body_mut() = "5\r\nhello\r\n0\r\n\r\n".into();
    http.exchange(&request)
        .refused(411, "MissingContentLengthHeader");
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
