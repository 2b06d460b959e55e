//! Uploads of several parts: their order, checksums and conditions, and writers that race.

use std::collections::BTreeSet;

use support::s3::{list, race as writers};

use crate::http::{Http, Reply};
use crate::races::race;
use crate::s3::bucket;
use crate::site::Site;
use crate::suite::Suite;

const PART: usize = 5 * 1024 * 1024;

pub(crate) fn add(suite: &mut Suite) {
    suite.case("s3: parts in any order make one object", parts);
    for checksum in CHECKSUMS {
        suite.case(
            format!(
                "s3: an upload has the checksum {} {}",
                checksum.0, checksum.1
            ),
            move |site| {
                checksums(site, checksum);
            },
        );
    }
    suite.case(
        "s3: an upload without a choice has the checksum of S3",
        |site| {
            let mut http = site.s3();
            let path = format!("{}/sum", bucket(&mut http, site).0);
            let (complete, parts) = begun(
                &mut http,
                &path,
                &[],
                &[(1, &vec![b'a'; PART]), (2, b"end")],
            );
            let done = http.send("POST", &complete, &[], parts).is(200);
            assert_eq!(done.all("ChecksumCRC64NVME"), ["Naidc2+phk8="]);
            let chosen = [
                ("x-amz-checksum-algorithm", "SHA1"),
                ("x-amz-checksum-type", "FULL_OBJECT"),
            ];
            http.send("POST", &format!("{path}?uploads"), &chosen, "")
                .refused(400, "InvalidRequest");
        },
    );
    suite.case("s3: a list of parts that its checksum denies", |site| {
        let mut http = site.s3();
        let path = format!("{}/a", bucket(&mut http, site).0);
        let (complete, parts) = begun(&mut http, &path, &[], &[(1, b"part")]);
        let wrong = [
            ("x-amz-content-sha256", "UNSIGNED-PAYLOAD"),
            ("content-md5", "AAAAAAAAAAAAAAAAAAAAAA=="),
        ];
        http.send("POST", &complete, &wrong, parts)
            .refused(400, "BadDigest");
        http.get(&path).is(404);
    });
    suite.case("s3: requests that complete one upload write once", once);
    suite.case("s3: one of sixteen writers wins", |site| {
        let (own, _) = bucket(&mut site.s3(), site);
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a runtime");
        runtime.block_on(writers(&[site.s3_client()], &own, 50));
    });
}

/// Begins an upload with these parts. Returns the path that completes it, and the list of its parts.
fn begun(
    http: &mut Http<'_>,
    path: &str,
    headers: &[(&str, &str)],
    parts: &[(u32, &[u8])],
) -> (String, String) {
    let begun = http
        .send("POST", &format!("{path}?uploads"), headers, "")
        .is(200);
    let id = begun.all("UploadId").concat();
    let mut tags = Vec::new();
    for (number, content) in parts {
        tags.push(
            http.put(
                &format!("{path}?partNumber={number}&uploadId={id}"),
                &[],
                content,
            )
            .is(200)
            .etag()
            .to_owned(),
        );
    }
    let parts: Vec<(u32, &str)> = parts
        .iter()
        .zip(&tags)
        .map(|((number, _), tag)| (*number, tag.as_str()))
        .collect();
    (format!("{path}?uploadId={id}"), list(&parts))
}

fn parts(site: &Site) {
    let mut http = site.s3();
    let (own, _) = bucket(&mut http, site);
    let path = format!("{own}/big");
    let created = http
        .send(
            "POST",
            &format!("{path}?uploads"),
            &[("content-type", "text/x")],
            "",
        )
        .is(200);
    let id = created.all("UploadId").concat();
    let part = |http: &mut Http<'_>, number: u32, content: &[u8]| -> Reply {
        http.put(
            &format!("{path}?partNumber={number}&uploadId={id}"),
            &[],
            content,
        )
    };
    let tag = |reply: Reply| reply.is(200).etag().to_owned();
    let last = tag(part(&mut http, 7, b"end"));
    let replaced = tag(part(&mut http, 2, &vec![b'x'; PART]));
    let first = tag(part(&mut http, 2, &vec![b'a'; PART]));
    let short = tag(part(&mut http, 3, b"short"));
    part(&mut http, 10_001, b"").refused(400, "InvalidArgument");
    let upload = format!("{path}?uploadId={id}");
    assert_eq!(http.get(&upload).is(200).all("PartNumber"), ["2", "3", "7"]);
    let uploads = http.get(&format!("{own}?uploads")).is(200);
    assert_eq!(
        (uploads.all("Key"), uploads.all("UploadId")),
        (vec!["big"], vec![&*id])
    );

    let complete = |headers: &[(&str, &str)], parts: &[(u32, &str)]| {
        site.s3().send("POST", &upload, headers, list(parts))
    };
    let right = [(2, &*first), (7, &*last)];
    complete(&[], &[(7, &last), (2, &first)]).refused(400, "InvalidPartOrder");
    complete(&[], &[(2, &replaced), (7, &last)]).refused(400, "InvalidPart");
    complete(&[], &[(2, &first), (3, &short), (7, &last)]).refused(400, "EntityTooSmall");
    complete(&[], &[]).refused(400, "MalformedXML");
    complete(&[("if-match", "\"other\"")], &right).refused(404, "NoSuchKey");
    complete(&[("x-amz-checksum-crc32", "AAAAAA==")], &right).refused(400, "BadDigest");
    http.get(&path).is(404);

    let create = [("if-none-match", "*")];
    let done = complete(&create, &right).is(200);
    let read = http.get(&path).is(200);
    assert_eq!(done.all("ETag"), [read.etag()]);
    assert_eq!(
        (read.header("content-type"), read.body.len()),
        ("text/x", PART + 3)
    );
    assert!(read.body.starts_with(b"aaa") && read.body.ends_with(b"aend"));
    // A retry gets the same answer, and another list finds no upload.
    assert_eq!(
        complete(&create, &right).is(200).all("ETag"),
        done.all("ETag")
    );
    complete(&[], &right[1..]).refused(404, "NoSuchUpload");
    part(&mut http, 1, b"").refused(404, "NoSuchUpload");
    assert_eq!(
        http.get(&format!("{own}?uploads")).is(200).all("Key"),
        Vec::<&str>::new()
    );
    // The object is there: a condition that it is missing fails, and one on another version.
    let (other, parts) = begun(&mut http, &path, &[], &[(1, b"other")]);
    for condition in [("if-none-match", "*"), ("if-match", "\"other\"")] {
        http.send("POST", &other, &[condition], &parts)
            .refused(412, "PreconditionFailed");
    }
    assert_eq!(http.get(&path).is(200).etag(), read.etag());
}

/// Checksums of an object of two parts, computed with Python: over the parts' checksums, or over all bytes. Algorithm, type,
/// name of the element, value.
const CHECKSUMS: [(&str, &str, &str, &str); 3] = [
    (
        "SHA256",
        "COMPOSITE",
        "ChecksumSHA256",
        "CCs1a+1DlLxspT19ARp9eg2ZuO4lvUykB7Orxi45QJg=-2",
    ),
    ("CRC32", "COMPOSITE", "ChecksumCRC32", "gJQ79w==-2"),
    ("CRC32", "FULL_OBJECT", "ChecksumCRC32", "JZ3nOw=="),
];

fn checksums(site: &Site, (algorithm, kind, element, whole): (&str, &str, &str, &str)) {
    let mut http = site.s3();
    let path = format!("{}/sum", bucket(&mut http, site).0);
    let chosen = [
        ("x-amz-checksum-algorithm", algorithm),
        ("x-amz-checksum-type", kind),
    ];
    let (upload, parts) = begun(
        &mut http,
        &path,
        &chosen,
        &[(1, &vec![b'a'; PART]), (2, b"end")],
    );
    let listed = http.get(&upload).is(200);
    assert_eq!(
        (listed.all("ChecksumAlgorithm"), listed.all("ChecksumType")),
        (vec![algorithm], vec![kind])
    );
    assert_eq!(listed.all(element).len(), 2, "{}", listed.text());
    // Checksums that the parts don't have, another type, and another length.
    let wrong = parts.replacen(
        "</Part>",
        &format!("<{element}>AAAAAA==</{element}></Part>"),
        1,
    );
    http.send("POST", &upload, &[], wrong)
        .refused(400, "InvalidPart");
    let name = format!("x-amz-checksum-{}", algorithm.to_lowercase());
    let (value, other) = if kind == "COMPOSITE" {
        ("AAAAAA==-2", "FULL_OBJECT")
    } else {
        ("AAAAAA==", "COMPOSITE")
    };
    for (field, value, code) in [
        (&*name, value, "BadDigest"),
        ("x-amz-checksum-type", other, "InvalidRequest"),
        ("x-amz-mp-object-size", "3", "InvalidRequest"),
    ] {
        http.send("POST", &upload, &[(field, value)], &parts)
            .refused(400, code);
    }
    http.get(&path).is(404);

    let length = (PART + 3).to_string();
    for _ in 0..2 {
        let done = http
            .send(
                "POST",
                &upload,
                &[(&name, whole), ("x-amz-mp-object-size", &length)],
                &parts,
            )
            .is(200);
        assert_eq!(
            (done.all(element), done.all("ChecksumType")),
            (vec![whole], vec![kind])
        );
    }
    for method in ["GET", "HEAD"] {
        let read = http
            .send(method, &path, &[("x-amz-checksum-mode", "ENABLED")], "")
            .is(200);
        assert_eq!(
            (read.header(&name), read.header("x-amz-checksum-type")),
            (whole, kind)
        );
    }
    let wanted = [(
        "x-amz-object-attributes",
        "ETag,Checksum,ObjectParts,StorageClass,ObjectSize",
    )];
    let told = http
        .send("GET", &format!("{path}?attributes"), &wanted, "")
        .is(200);
    assert_eq!(
        (told.all(element), told.all("ObjectSize")),
        (vec![whole], vec![&*length])
    );
    assert_eq!(
        told.text().contains("<PartsCount>2</PartsCount>"),
        kind == "COMPOSITE",
        "{}",
        told.text()
    );
}

/// Each of the requests gets the result of the one that wrote, or is told to ask again; an abort that comes first ends all.
fn once(site: &Site) {
    let mut http = site.s3();
    let (own, _) = bucket(&mut http, site);
    for attempt in 0..20 {
        let path = format!("{own}/once-{attempt}");
        let (upload, parts) = begun(&mut http, &path, &[], &[(1, b"part")]);
        let replies = race(8, |number| match number {
            0 => site.s3().delete(&upload, &[]),
            _ => site.s3().send("POST", &upload, &[], &parts),
        });
        let done = replies[1..].iter().filter(|reply| reply.status == 200);
        let tags: BTreeSet<String> = done.map(|reply| reply.all("ETag").concat()).collect();
        assert!(tags.len() <= 1, "several versions: {tags:?}");
        let aborted = replies[0].status == 204;
        http.get(&path).is(if tags.is_empty() { 404 } else { 200 });
        for reply in &replies {
            if ![200, 204, 404, 503].contains(&reply.status.as_u16()) {
                reply.fail("200, 204, 404 or 503");
            }
        }
        assert!(
            !aborted || tags.is_empty(),
            "an aborted upload was completed"
        );
    }
}
