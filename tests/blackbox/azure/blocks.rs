//! Put Block, Put Block List and Get Block List.

use std::fmt::Write;

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

use crate::azure::{blob, container};
use crate::http::{Http, Reply};
use crate::plain::ranges::pattern;
use crate::site::Site;
use crate::suite::Suite;

pub(crate) fn add(suite: &mut Suite) {
    suite.case("blocks: a list assembles a blob from staged blocks", list_makes_blob);
    suite.case("blocks: committed blocks can be reused", reused);
    suite.case("blocks: Put Blob and Delete Blob discard them", discarded);
    suite.case("blocks: ids have the same length", one_length);
    suite.case("blocks: a list with a stale tag changes nothing and can be sent again", stale);
    suite.case("blocks: a list with missing blocks changes nothing", missing);
    suite.case("blocks: a list of more than 50,000", too_many);
    suite.case("blocks: 4 MiB in total, read by ranges", large);
    suite.case("blocks: staging and committing check the lease", leased);
}

const IDS: [&str; 4] = ["MDAwMA==", "MDAwMQ==", "MDAwMg==", "MDAwMw=="];

fn stage(http: &mut Http<'_>, path: &str, id: usize, content: impl AsRef<[u8]>) -> Reply {
    let id = utf8_percent_encode(IDS[id], NON_ALPHANUMERIC);
    http.put(&format!("{path}?comp=block&blockid={id}"), &[], content)
}

fn commit(http: &mut Http<'_>, path: &str, fields: &[(&str, &str)], blocks: &[(&str, usize)]) -> Reply {
    let mut list = "<?xml version=\"1.0\" encoding=\"utf-8\"?><BlockList>".to_owned();
    for (from, id) in blocks {
        let _ = write!(list, "<{from}>{}</{from}>", IDS[*id]);
    }
    http.put(&format!("{path}?comp=blocklist"), fields, list + "</BlockList>")
}

fn staged(http: &mut Http<'_>, path: &str) -> Vec<String> {
    let reply = http.get(&format!("{path}?comp=blocklist&blocklisttype=uncommitted")).is(200);
    reply.all("Name").into_iter().map(str::to_owned).collect()
}

fn list_makes_blob(site: &Site) {
    let mut http = site.azure();
    let path = format!("{}/a", container(&mut http, site));
    for (id, text) in [(1, "one "), (2, "two "), (3, "three ")] {
        stage(&mut http, &path, id, text).is(201);
    }
    http.get(&path).refused(404, "BlobNotFound");
    assert_eq!(staged(&mut http, &path), IDS[1..]);
    let fields = [("x-ms-blob-content-type", "text/plain"), ("x-ms-meta-a", "1")];
    let blocks = [("Latest", 3), ("Uncommitted", 1), ("Latest", 1)];
    let written = commit(&mut http, &path, &fields, &blocks).is(201);
    let read = http.get(&path).is(200);
    assert_eq!((read.text(), read.etag()), ("three one one ", written.etag()));
    assert_eq!((read.field("content-type"), read.field("x-ms-meta-a")), ("text/plain", "1"));
    assert!(staged(&mut http, &path).is_empty(), "blocks that are not in the list are discarded");
    let all = http.get(&format!("{path}?comp=blocklist&blocklisttype=all")).is(200);
    assert_eq!(all.all("Name"), [IDS[3], IDS[1], IDS[1]]);
    assert_eq!(all.field("x-ms-blob-content-length"), "14");
}

fn reused(site: &Site) {
    let mut http = site.azure();
    let path = format!("{}/a", container(&mut http, site));
    for (id, text) in [(1, "one "), (2, "two ")] {
        stage(&mut http, &path, id, text).is(201);
    }
    commit(&mut http, &path, &[], &[("Latest", 1), ("Latest", 2)]).is(201);
    stage(&mut http, &path, 2, "TWO ").is(201);
    let both = [("Committed", 2), ("Uncommitted", 2)];
    commit(&mut http, &path, &[], &both).refused(400, "InvalidBlockList");
    commit(&mut http, &path, &[], &[("Committed", 1), ("Uncommitted", 2), ("Latest", 2), ("Committed", 1)]).is(201);
    assert_eq!(http.get(&path).is(200).text(), "one TWO TWO one ");
    http.put(&format!("{path}?comp=metadata"), &[("x-ms-meta-a", "1")], "").is(200);
    commit(&mut http, &path, &[], &[("Committed", 1)]).is(201);
    assert_eq!(http.get(&path).is(200).text(), "one ");
    commit(&mut http, &path, &[], &[]).is(201);
    assert_eq!(http.get(&path).is(200).text(), "");
}

fn discarded(site: &Site) {
    let mut http = site.azure();
    let path = blob(&mut http, site);
    stage(&mut http, &path, 1, "one").is(201);
    http.upload(&path, &[], "whole").is(201);
    assert!(staged(&mut http, &path).is_empty());
    commit(&mut http, &path, &[], &[("Latest", 1)]).refused(400, "InvalidBlockList");
    stage(&mut http, &path, 1, "one").is(201);
    commit(&mut http, &path, &[], &[("Latest", 1)]).is(201);
    http.upload(&path, &[], "whole").is(201);
    commit(&mut http, &path, &[], &[("Committed", 1)]).refused(400, "InvalidBlockList");
    stage(&mut http, &path, 1, "one").is(201);
    http.delete(&path, &[]).is(202);
    commit(&mut http, &path, &[], &[("Latest", 1)]).refused(400, "InvalidBlockList");
    http.get(&path).refused(404, "BlobNotFound");
}

fn missing(site: &Site) {
    let mut http = site.azure();
    let path = format!("{}/a", container(&mut http, site));
    commit(&mut http, &path, &[], &[("Latest", 1)]).refused(400, "InvalidBlockList");
    stage(&mut http, &path, 1, "one").is(201);
    for blocks in [&[("Latest", 1), ("Latest", 2)][..], &[("Committed", 1)], &[("Uncommitted", 2)]] {
        commit(&mut http, &path, &[], blocks).refused(400, "InvalidBlockList");
    }
    http.get(&path).refused(404, "BlobNotFound");
    assert_eq!(staged(&mut http, &path), [IDS[1]], "the staged block remains");
    commit(&mut http, &path, &[], &[("Latest", 1)]).is(201);
    commit(&mut http, &path, &[], &[("Uncommitted", 1)]).refused(400, "InvalidBlockList");
    assert_eq!(http.get(&path).is(200).text(), "one");
}

fn too_many(site: &Site) {
    let mut http = site.azure();
    let path = blob(&mut http, site);
    stage(&mut http, &path, 1, "one").is(201);
    commit(&mut http, &path, &[], &vec![("Latest", 1); 50_001]).refused(400, "BlockListTooLong");
    assert_eq!(http.get(&path).is(200).text(), "first");
}

fn one_length(site: &Site) {
    let mut http = site.azure();
    let path = blob(&mut http, site);
    stage(&mut http, &path, 1, "old").is(201);
    http.put(&format!("{path}?comp=block&blockid=AA%3D%3D"), &[], "x").refused(400, "InvalidBlobOrBlock");
    http.put(&format!("{path}x?comp=block&blockid=AA%3D%3D"), &[], "x").is(201);
    stage(&mut http, &path, 1, "newer").is(201);
    assert_eq!(staged(&mut http, &path), [IDS[1]]);
    commit(&mut http, &path, &[], &[("Latest", 1)]).is(201);
    assert_eq!(http.get(&path).is(200).text(), "newer");
}

fn stale(site: &Site) {
    let mut http = site.azure();
    let path = blob(&mut http, site);
    let old = http.get(&path).is(200).etag().to_owned();
    let tag = http.upload(&path, &[], "second").is(201).etag().to_owned();
    stage(&mut http, &path, 1, "third").is(201);
    commit(&mut http, &path, &[("if-match", &old)], &[("Latest", 1)]).refused(412, "ConditionNotMet");
    commit(&mut http, &path, &[("if-none-match", "*")], &[("Latest", 1)]).refused(409, "BlobAlreadyExists");
    assert_eq!(http.get(&path).is(200).text(), "second");
    commit(&mut http, &path, &[("if-match", &tag)], &[("Latest", 1)]).is(201);
    assert_eq!(http.get(&path).is(200).text(), "third");
}

fn large(site: &Site) {
    let mut http = site.azure();
    let path = format!("{}/a", container(&mut http, site));
    let content = pattern(4 << 20);
    for (id, block) in content.chunks(1 << 20).enumerate() {
        stage(&mut http, &path, id, block).is(201);
    }
    commit(&mut http, &path, &[], &[("Latest", 0), ("Latest", 1), ("Latest", 2), ("Latest", 3)]).is(201);
    let read = http.get(&path).is(200);
    assert!(read.body == content, "the content of the blocks, in order");
    let read = http.send("GET", &path, &[("x-ms-range", "bytes=1048570-1048585")], "").is(206);
    assert_eq!(read.body, content[1_048_570..=1_048_585]);
}

fn leased(site: &Site) {
    let mut http = site.azure();
    let path = blob(&mut http, site);
    stage(&mut http, &path, 2, "before the lease").is(201);
    crate::azure::acquire(&mut http, &path, crate::azure::A, -1).is(201);
    commit(&mut http, &path, &[], &[("Latest", 2)]).refused(412, "LeaseIdMissing");
    let id = [("x-ms-lease-id", crate::azure::A)];
    let target = format!("{path}?comp=block&blockid=MDAwMQ%3D%3D");
    http.put(&target, &[], "one").refused(412, "LeaseIdMissing");
    http.put(&target, &id, "one").is(201);
    commit(&mut http, &path, &[], &[("Latest", 1)]).refused(412, "LeaseIdMissing");
    commit(&mut http, &path, &id, &[("Latest", 1)]).is(201);
    assert_eq!(http.get(&path).is(200).text(), "one");
}
