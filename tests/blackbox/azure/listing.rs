//! Listings of blobs: in order, in pages, in folders.

use crate::azure::{A, acquire, container};
use crate::http::Http;
use crate::site::Site;
use crate::suite::Suite;

pub(crate) fn add(suite: &mut Suite) {
    for size in [1, 2, 3, 7, 8, 5000] {
        suite.case(format!("azure list: in pages of {size}"), move |site| {
            let (mut http, own) = filled(site, &ALL);
            assert_eq!(pages(&mut http, &own, "", size), SORTED);
            assert_eq!(pages(&mut http, &own, "&prefix=c", size), ["c/d/e", "ccc"]);
            assert!(pages(&mut http, &own, "&prefix=none", size).is_empty());
        });
        suite.case(format!("azure list: folders in pages of {size}"), move |site| {
            let (mut http, own) = filled(site, &["a!", "a/1", "a/2", "a/b/3", "a/b/4", "a0", "b/1", "c"]);
            let with = |prefix: &str| format!("&delimiter=%2F{prefix}");
            assert_eq!(pages(&mut http, &own, &with(""), size), ["a!", "a/", "a0", "b/", "c"]);
            assert_eq!(pages(&mut http, &own, &with("&prefix=a%2F"), size), ["a/1", "a/2", "a/b/"]);
            assert_eq!(pages(&mut http, &own, &with("&prefix=a"), size), ["a!", "a/", "a0"]);
        });
    }
    suite.case("azure list: properties, metadata and leases", properties);
    suite.case("azure list: with all that can be included", |site| {
        let (mut http, own) = filled(site, &["a", "b"]);
        let all = "copy,deleted,metadata,snapshots,tags,uncommittedblobs,versions,deletedwithversions,legalhold";
        let listing = http.get(&format!("{own}?restype=container&comp=list&include={all}")).is(200);
        assert_eq!(listing.all("Name"), ["a", "b"]);
        let other = format!("{own}?restype=container&comp=list&include=copy,others");
        http.get(&other).refused(400, "InvalidQueryParameterValue");
        http.get("?comp=list&include=metadata,deleted,system").is(200);
    });
    suite.case("azure list: names that XML cannot have as they are", escaped);
    suite.case("azure list: a marker that is none", |site| {
        let (mut http, own) = filled(site, &[]);
        let target = format!("{own}?restype=container&comp=list&marker=no%20marker");
        http.get(&target).refused(400, "InvalidQueryParameterValue");
    });
}

const ALL: [&str; 7] = ["a-", "a/b", "b", "c/d/e", "ccc", "z", "%C3%BC"];
const SORTED: [&str; 7] = ["a-", "a/b", "b", "c/d/e", "ccc", "z", "ü"];

fn filled<'a>(site: &'a Site, names: &[&str]) -> (Http<'a>, String) {
    let mut http = site.azure();
    let own = container(&mut http, site);
    for name in names {
        http.upload(&format!("{own}/{name}"), &[], "x").is(201);
    }
    (http, own)
}

/// The names in all pages.
fn pages(http: &mut Http<'_>, own: &str, query: &str, size: usize) -> Vec<String> {
    let (mut names, mut marker) = (Vec::new(), String::new());
    for _ in 0..100 {
        let target = format!("{own}?restype=container&comp=list{query}&maxresults={size}&marker={marker}");
        let page = http.get(&target).is(200);
        let found = page.all("Name");
        assert!(found.len() <= size, "{found:?}");
        names.extend(found.into_iter().map(str::to_owned));
        marker = page.all("NextMarker").concat().replace('=', "%3D").replace('+', "%2B").replace('/', "%2F");
        if marker.is_empty() {
            return names;
        }
    }
    panic!("the listing does not end: {names:?}");
}

fn properties(site: &Site) {
    let (mut http, own) = filled(site, &[]);
    let path = format!("{own}/a");
    let fields = [("x-ms-blob-content-type", "text/plain"), ("x-ms-meta-owner", "me")];
    let written = http.upload(&path, &fields, "hello").is(201);
    acquire(&mut http, &path, A, -1).is(201);
    let page = http.get(&format!("{own}?restype=container&comp=list&include=metadata")).is(200);
    assert_eq!(page.header("content-type"), "application/xml");
    let expected = [
        ("Name", "a"),
        ("Etag", written.etag().trim_matches('"')),
        ("Last-Modified", written.header("last-modified")),
        ("Content-Length", "5"),
        ("Content-Type", "text/plain"),
        ("BlobType", "BlockBlob"),
        ("LeaseStatus", "locked"),
        ("LeaseState", "leased"),
        ("LeaseDuration", "infinite"),
        ("owner", "me"),
    ];
    for (name, value) in expected {
        assert_eq!(page.all(name), [value], "{name}");
    }
}

fn escaped(site: &Site) {
    let (mut http, own) = filled(site, &["%3Ca%26b%3E"]);
    let page = http.get(&format!("{own}?restype=container&comp=list")).is(200);
    assert_eq!(page.all("Name"), ["&lt;a&amp;b&gt;"]);
}
