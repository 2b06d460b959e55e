//! List Blobs: order, pages and folders.

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
            for (query, first) in
                [("startFrom=b", 2), ("startFrom=a%2Fc", 2), ("startFrom=c%2Fd%2Ff", 4), ("startFrom=", 0)]
            {
                assert_eq!(pages(&mut http, &own, &format!("&{query}"), size), SORTED[first..], "{query}");
            }
            assert_eq!(pages(&mut http, &own, "&prefix=c&startFrom=cb", size), ["ccc"]);
        });
        suite.case(format!("azure list: folders in pages of {size}"), move |site| {
            let (mut http, own) = filled(site, &["a!", "a/1", "a/2", "a/b/3", "a/b/4", "a0", "b/1", "c"]);
            let with = |prefix: &str| format!("&delimiter=%2F{prefix}");
            assert_eq!(pages(&mut http, &own, &with(""), size), ["a!", "a/", "a0", "b/", "c"]);
            assert_eq!(pages(&mut http, &own, &with("&prefix=a%2F"), size), ["a/1", "a/2", "a/b/"]);
            assert_eq!(pages(&mut http, &own, &with("&prefix=a"), size), ["a!", "a/", "a0"]);
            assert_eq!(pages(&mut http, &own, &with("&startFrom=a%2F2"), size), ["a/", "a0", "b/", "c"]);
            assert_eq!(pages(&mut http, &own, &with("&startFrom=a0"), size), ["a0", "b/", "c"]);
        });
    }
    suite.case("azure list: properties, metadata and leases", properties);
    suite.case("azure list: with every value of include", |site| {
        let (mut http, own) = filled(site, &["a", "b"]);
        let all = "copy,deleted,metadata,snapshots,tags,uncommittedblobs,versions,deletedwithversions,legalhold";
        let listing = http.get(&format!("{own}?restype=container&comp=list&include={all}")).is(200);
        assert_eq!(listing.all("Name"), ["a", "b"]);
        let other = format!("{own}?restype=container&comp=list&include=copy,others");
        http.get(&other).refused(400, "InvalidQueryParameterValue");
        http.get("?comp=list&include=metadata,deleted,system").is(200);
    });
    suite.case("azure list: a delimiter of two characters", |site| {
        let (mut http, own) = filled(site, &["0", "a/1", "a/b/3", "a/b/4", "b/1"]);
        assert_eq!(pages(&mut http, &own, "&delimiter=%2Fb", 2), ["0", "a/1", "a/b", "b/1"]);
    });
    suite.case("azure list: folders with names that begin with the last character", last_character);
    suite.case("azure list: control characters in parameters", control_characters);
    suite.case("azure list: escapes names and values", escaped);
    suite.case("azure list: a plus in the query is a space", |site| {
        let (mut http, own) = filled(site, &["a%20b/1", "a%2Bb/1"]);
        for (prefix, found) in [("a+b", "a b/1"), ("a%20b", "a b/1"), ("a%2Bb", "a+b/1")] {
            assert_eq!(pages(&mut http, &own, &format!("&prefix={prefix}"), 2), [found]);
        }
    });
    suite.case("azure list: an invalid marker", |site| {
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

/// Returns the names in all pages.
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
    let quoted = "a\"<&>";
    let fields =
        [("x-ms-blob-content-type", "text/plain"), ("x-ms-meta-owner", "me"), ("x-ms-blob-cache-control", quoted)];
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
        ("Content-Encoding", ""),
        ("Cache-Control", "a\"&lt;&amp;&gt;"),
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

/// A folder's marker ends with the last character, which names in the folder may begin with.
fn last_character(site: &Site) {
    let last = "%F4%8F%BF%BF";
    let inner = [format!("a/{last}"), format!("a/{last}x"), format!("a/{last}{last}/y"), format!("c/{last}z")];
    let names = ["a/1", &inner[0], &inner[1], &inner[2], "b", &inner[3], "d"];
    let (mut http, own) = filled(site, &names);
    for size in 1..6 {
        assert_eq!(pages(&mut http, &own, "&delimiter=%2F", size), ["a/", "b", "c/", "d"], "in pages of {size}");
    }
}

/// XML cannot represent most control characters, so no response may contain one.
fn control_characters(site: &Site) {
    let (mut http, own) = filled(site, &["a"]);
    for query in ["&prefix=%01", "&delimiter=%1F", "&%02=x", "&include=%03", "&prefix=%EF%BF%BF", "&marker=AQ%3D%3D"] {
        let reply = http.get(&format!("{own}?restype=container&comp=list{query}"));
        let is_invalid = |char: char| char.is_control() || matches!(char, '\u{fffe}' | '\u{ffff}');
        assert!(!reply.text().contains(is_invalid), "{query}: {}", reply.text());
    }
}
