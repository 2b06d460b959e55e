//! Copies within the account.

use crate::azure::{A, acquire, blob, container};
use crate::http::Http;
use crate::races::race;
use crate::site::Site;
use crate::suite::Suite;

const RACERS: usize = 20;

pub(crate) fn add(suite: &mut Suite) {
    suite.case("azure copy: bytes, fields and metadata are the source's", kept);
    suite.case("azure copy: the copy is told", told);
    suite.case("azure copy: the committed blocks are copied", block_list);
    suite.case("azure copy: listings tell the copy", listed);
    suite.case("azure copy: metadata of the request replaces the source's", replaced);
    suite.case("azure copy: Put Blob From URL", from_url);
    suite.case("azure copy: Put Block From URL", blocks);
    suite.case("azure copy: a leased target needs its lease, a leased source does not", leases);
    suite.case("azure copy: a longer blob, onto itself", onto_itself);
    suite.case("azure copy: the source must be of the account, on this server", foreign);
    for round in 0..3 {
        suite.case(format!("race: twenty copy to a new name, round {round}"), race_to_create);
        suite.case(format!("race: copies while the source is replaced, round {round}"), race_with_writers);
    }
}

fn kept(site: &Site) {
    let mut http = site.azure();
    let own = container(&mut http, site);
    let fields = [("x-ms-blob-content-type", "text/plain"), ("x-ms-meta-a", "1")];
    let source = http.upload(&format!("{own}/a%20b"), &fields, "hello").is(201);
    let url = site.url(&format!("{own}/a%20b"));
    let copied = http.put(&format!("{own}/b"), &[("x-ms-copy-source", &url)], "").is(202);
    assert_eq!((copied.header("x-ms-copy-status"), copied.header("x-ms-copy-id").len()), ("success", 36));
    let read = http.get(&format!("{own}/b")).is(200);
    assert_eq!((read.text(), read.etag()), ("hello", copied.etag()));
    assert_eq!((read.field("content-type"), read.field("x-ms-meta-a")), ("text/plain", "1"));
    assert_ne!(read.etag(), source.etag());
}

const COPY: [&str; 4] = ["x-ms-copy-id", "x-ms-copy-source", "x-ms-copy-status", "x-ms-copy-progress"];

/// As in Azure, the copy is told until the blob is written otherwise, or gets other properties.
fn told(site: &Site) {
    let mut http = site.azure();
    let own = container(&mut http, site);
    http.upload(&format!("{own}/a%20b"), &[], "hello").is(201);
    let (url, path) = (site.url(&format!("{own}/a%20b")), format!("{own}/b"));
    let seen = |http: &mut Http<'_>| {
        let properties = http.head(&path).is(200);
        let seen = COPY.map(|name| properties.field(name).to_owned());
        assert_eq!(properties.field("x-ms-copy-completion-time").is_empty(), seen[0].is_empty());
        seen
    };
    let copy = |http: &mut Http<'_>| {
        let secret = format!("{url}?token=secret");
        let copied = http.put(&path, &[("x-ms-copy-source", &secret)], "").is(202);
        [copied.header("x-ms-copy-id"), &*url, "success", "5/5"].map(str::to_owned)
    };
    let none = [(); 4].map(|()| String::new());
    let first = copy(&mut http);
    assert_eq!(seen(&mut http), first);
    http.put(&format!("{path}?comp=metadata"), &[("x-ms-meta-a", "1")], "").is(200);
    assert_eq!(seen(&mut http), first);
    http.put(&format!("{path}?comp=properties"), &[], "").is(200);
    assert_eq!(seen(&mut http), none);
    let second = copy(&mut http);
    assert_eq!(seen(&mut http), second);
    assert_ne!(first[0], second[0]);
    // A copy of the copy is another one.
    let again = site.url(&path);
    http.put(&format!("{own}/c"), &[("x-ms-copy-source", &*again)], "").is(202);
    assert_eq!(http.head(&format!("{own}/c")).is(200).field("x-ms-copy-source"), again);
    http.upload(&path, &[], "other").is(201);
    assert_eq!(seen(&mut http), none);
}

/// The copy has blocks of its own, which remain when the source is replaced.
fn block_list(site: &Site) {
    let mut http = site.azure();
    let own = container(&mut http, site);
    let commit = |http: &mut Http<'_>, name: &str, list: &str| {
        http.put(&format!("{own}/{name}?comp=blocklist"), &[], format!("<BlockList>{list}</BlockList>")).is(201);
    };
    for (id, bytes) in [("AA==", "one "), ("AQ==", "two ")] {
        http.put(&format!("{own}/a?comp=block&blockid={id}"), &[], bytes).is(201);
    }
    commit(&mut http, "a", "<Latest>AA==</Latest><Latest>AQ==</Latest>");
    let url = site.url(&format!("{own}/a"));
    for _ in 0..2 {
        http.put(&format!("{own}/b"), &[("x-ms-copy-source", &*url)], "").is(202);
    }
    http.upload(&format!("{own}/a"), &[], "other").is(201);
    let list = http.get(&format!("{own}/b?comp=blocklist")).is(200);
    assert_eq!((list.all("Name"), list.all("Size")), (vec!["AA==", "AQ=="], vec!["4", "4"]));
    commit(&mut http, "b", "<Committed>AQ==</Committed><Committed>AA==</Committed>");
    assert_eq!(http.get(&format!("{own}/b")).is(200).text(), "two one ");
}

fn listed(site: &Site) {
    let mut http = site.azure();
    let own = container(&mut http, site);
    http.upload(&format!("{own}/a"), &[], "hello").is(201);
    let url = site.url(&format!("{own}/a"));
    let copied = http.put(&format!("{own}/b"), &[("x-ms-copy-source", &*url)], "").is(202);
    let list = |http: &mut Http<'_>, include: &str| {
        let listed = http.get(&format!("{own}?restype=container&comp=list{include}")).is(200);
        ["CopyId", "CopySource", "CopyStatus", "CopyProgress"].map(|name| listed.all(name).concat())
    };
    assert_eq!(list(&mut http, "&include=copy"), [copied.header("x-ms-copy-id"), &*url, "success", "5/5"]);
    assert_eq!(list(&mut http, "").concat(), "");
}

fn replaced(site: &Site) {
    let mut http = site.azure();
    let own = container(&mut http, site);
    http.upload(&format!("{own}/a"), &[("x-ms-meta-a", "1")], "hello").is(201);
    let url = site.url(&format!("{own}/a"));
    http.put(&format!("{own}/b"), &[("x-ms-copy-source", &*url), ("x-ms-meta-b", "2")], "").is(202);
    let read = http.get(&format!("{own}/b")).is(200);
    assert_eq!((read.field("x-ms-meta-a"), read.field("x-ms-meta-b")), ("", "2"));
}

fn from_url(site: &Site) {
    let mut http = site.azure();
    let own = container(&mut http, site);
    let fields = [("x-ms-blob-content-type", "text/plain"), ("x-ms-blob-content-language", "en")];
    http.upload(&format!("{own}/a"), &fields, "hello").is(201);
    let url = site.url(&format!("{own}/a"));
    let md5 = [("x-ms-copy-source", &*url), ("x-ms-source-content-md5", "AAAAAAAAAAAAAAAAAAAAAA==")];
    http.upload(&format!("{own}/b"), &md5, "").refused(400, "Md5Mismatch");
    http.get(&format!("{own}/b")).refused(404, "BlobNotFound");
    let fields = [("x-ms-copy-source", &*url), ("x-ms-blob-content-type", "text/html"), ("x-ms-meta-b", "2")];
    http.upload(&format!("{own}/b"), &fields, "").is(201);
    let read = http.get(&format!("{own}/b")).is(200);
    let seen = ["content-type", "content-language", "x-ms-meta-b"].map(|name| read.field(name));
    assert_eq!((seen, read.text()), (["text/html", "en", "2"], "hello"));
    let fields = [("x-ms-copy-source", &*url), ("x-ms-copy-source-blob-properties", "false")];
    http.upload(&format!("{own}/b"), &fields, "").is(201);
    let read = http.get(&format!("{own}/b")).is(200);
    assert_eq!((read.field("content-language"), read.text()), ("", "hello"));
}

fn blocks(site: &Site) {
    let mut http = site.azure();
    let own = container(&mut http, site);
    let tag = http.upload(&format!("{own}/a"), &[], "0123456789").is(201).etag().to_owned();
    let url = site.url(&format!("{own}/a"));
    let block = |id: &str| format!("{own}/b?comp=block&blockid={id}");
    let source = ("x-ms-copy-source", &*url);
    http.put(&block("AA=="), &[source, ("x-ms-source-range", "bytes=7-")], "").is(201);
    http.put(&block("AQ=="), &[source, ("x-ms-source-range", "bytes=0-2"), ("x-ms-source-if-match", &tag)], "").is(201);
    let stale = [source, ("x-ms-source-if-match", "stale")];
    http.put(&block("Ag=="), &stale, "").refused(412, "SourceConditionNotMet");
    http.put(&block("Ag=="), &[source, ("x-ms-source-range", "bytes=10-")], "").refused(416, "InvalidRange");
    let list = "<BlockList><Latest>AA==</Latest><Latest>AQ==</Latest></BlockList>";
    http.put(&format!("{own}/b?comp=blocklist"), &[], list).is(201);
    assert_eq!(http.get(&format!("{own}/b")).is(200).text(), "789012");
}

fn leases(site: &Site) {
    let mut http = site.azure();
    let path = blob(&mut http, site);
    acquire(&mut http, &path, A, -1).is(201);
    let url = site.url(&path);
    let other = format!("{path}2");
    http.upload(&other, &[], "second").is(201);
    let into = site.url(&other);
    http.put(&path, &[("x-ms-copy-source", &into)], "").refused(412, "LeaseIdMissing");
    http.put(&path, &[("x-ms-copy-source", &into), ("if-none-match", "*")], "").refused(412, "LeaseIdMissing");
    assert_eq!(http.get(&path).is(200).text(), "first");
    http.put(&path, &[("x-ms-copy-source", &into), ("x-ms-lease-id", A)], "").is(202);
    assert_eq!(http.head(&path).is(200).header("x-ms-lease-state"), "leased");
    http.put(&other, &[("x-ms-copy-source", &url)], "").is(202);
    http.put(&other, &[("x-ms-copy-source", &url), ("x-ms-source-lease-id", A)], "").is(202);
    let wrong = [("x-ms-copy-source", &*url), ("x-ms-source-lease-id", crate::azure::B)];
    http.put(&other, &wrong, "").refused(412, "LeaseIdMismatchWithBlobOperation");
}

fn onto_itself(site: &Site) {
    let mut http = site.azure();
    let path = blob(&mut http, site);
    let content = (0..300_000).map(|number: u32| number.to_string()).collect::<Vec<_>>().join(",");
    let tag = http.upload(&path, &[], &content).is(201).etag().to_owned();
    let url = site.url(&path);
    let fields = [("x-ms-copy-source", &*url), ("if-match", &tag), ("x-ms-meta-a", "1")];
    let copied = http.put(&path, &fields, "").is(202).etag().to_owned();
    let read = http.get(&path).is(200);
    assert!(read.text() == content && copied != tag, "other bytes");
    assert_eq!((read.etag(), read.field("x-ms-meta-a")), (&*copied, "1"));
}

fn foreign(site: &Site) {
    let mut http = site.azure();
    let path = blob(&mut http, site);
    let own = site.url(&path);
    let elsewhere = own.replacen("http://", "http://x", 1);
    let account = own.replacen("/devstoreaccount1/", "/devstoreaccount2/", 1);
    for source in [elsewhere, account] {
        http.put(&path, &[("x-ms-copy-source", &source)], "").refused(400, "CopyAcrossAccountsNotSupported");
    }
    let snapshot = format!("{own}?snapshot=2020-09-13T12:26:40.0000000Z");
    http.put(&path, &[("x-ms-copy-source", &snapshot)], "").refused(400, "InvalidHeaderValue");
    assert_eq!(http.get(&path).is(200).text(), "first");
}

fn race_to_create(site: &Site) {
    let own = container(&mut site.azure(), site);
    let target = format!("{own}/target");
    for racer in 0..RACERS {
        site.azure().upload(&format!("{own}/{racer}"), &[], format!("by {racer}")).is(201);
    }
    let copy = |racer: usize| {
        let url = site.url(&format!("{own}/{racer}"));
        site.azure().put(&target, &[("x-ms-copy-source", &*url), ("if-none-match", "*")], "")
    };
    let replies = race(RACERS, copy);
    let won: Vec<usize> = (0..RACERS).filter(|racer| replies[*racer].status == 202).collect();
    let read = site.azure().get(&target).is(200);
    assert_eq!(won.len(), 1, "winners: {won:?}");
    assert_eq!((read.text(), read.etag()), (&*format!("by {}", won[0]), replies[won[0]].etag()));
    if let Some(reply) = replies.iter().find(|reply| reply.status != 202 && !reply.changed_nothing()) {
        reply.fail("202, or a rejection");
    }
}

/// A copy under a source condition has the bytes of the version that the condition names.
fn race_with_writers(site: &Site) {
    let own = container(&mut site.azure(), site);
    let source = format!("{own}/source");
    let tag = site.azure().upload(&source, &[], "first").is(201).etag().to_owned();
    let url = site.url(&source);
    race(RACERS, |racer| {
        let (mut http, target) = (site.azure(), format!("{own}/{racer}"));
        let fields = [("x-ms-copy-source", &*url), ("x-ms-source-if-match", &*tag)];
        for _ in 0..10 {
            if racer == 0 {
                http.upload(&source, &[], "another").is(201);
            } else if http.put(&target, &fields, "").status == 202 {
                assert_eq!(http.get(&target).is(200).text(), "first");
            }
        }
        http.head(&source)
    });
    site.azure()
        .put(&format!("{own}/late"), &[("x-ms-copy-source", &*url), ("x-ms-source-if-match", &*tag)], "")
        .refused(412, "SourceConditionNotMet");
}
