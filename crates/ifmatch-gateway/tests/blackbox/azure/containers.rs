//! Containers and listings.

use support::eventually;

use crate::azure::container;
use crate::http::Http;
use crate::site::Site;
use crate::suite::Suite;

pub(crate) fn add(suite: &mut Suite) {
    suite.case("container: empty after it is recreated", again);
    suite.case("container: shared with the plain dialect", plain);
    suite.case("container: listed in pages, with metadata", listed);
    suite.case("container: the longest name", |site| {
        let name = format!("{:c<63}", site.name());
        site.azure()
            .put(&format!("/{name}?restype=container"), &[], "")
            .is(201);
    });
}

/// Creates a container again. In Azure, the deletion may take a while.
fn created(http: &mut Http<'_>, path: &str) {
    eventually("creating the container again", || {
        let reply = http.put(path, &[], "");
        if reply.status == 409 {
            reply.refused(409, "ContainerBeingDeleted");
            return None;
        }
        reply.is(201);
        Some(())
    });
}

fn again(site: &Site) {
    let mut http = site.azure();
    let own = container(&mut http, site);
    let path = format!("{own}?restype=container");
    let first = http.upload(&format!("{own}/a"), &[], "old").is(201);
    http.put(&format!("{own}/b?comp=block&blockid=AA%3D%3D"), &[], "old")
        .is(201);
    http.delete(&path, &[]).is(202);
    http.get(&format!("{own}/a"))
        .refused(404, "ContainerNotFound");
    created(&mut http, &path);
    http.get(&format!("{own}/a")).refused(404, "BlobNotFound");
    let list = "<BlockList><Latest>AA==</Latest></BlockList>";
    http.put(&format!("{own}/b?comp=blocklist"), &[], list)
        .refused(400, "InvalidBlockList");
    let second = http
        .upload(&format!("{own}/a"), &[("if-none-match", "*")], "old")
        .is(201);
    assert_ne!(first.etag(), second.etag());
}

/// Lists containers, including names that only the plain dialect allows.
fn plain(site: &Site) {
    let (mut azure, mut http, name) = (site.azure(), site.plain(), site.name());
    http.put(&format!("/{name}/blob"), &[], "x").is(201);
    http.put(&format!("/{name}_Plain/blob"), &[], "x").is(201);
    assert_eq!(
        azure
            .get(&format!("?comp=list&prefix={name}"))
            .is(200)
            .all("Name"),
        [name.as_str()]
    );
    azure.get(&format!("/{name}?restype=container")).is(200);
    azure
        .put(&format!("/{name}?restype=container"), &[], "")
        .refused(409, "ContainerAlreadyExists");
    azure
        .delete(&format!("/{name}?restype=container"), &[])
        .is(202);
    http.get(&format!("/{name}/blob")).is(404);
    http.get(&format!("/{name}")).is(404);
}

fn listed(site: &Site) {
    let (mut http, prefix) = (site.azure(), site.name());
    for name in ["aaa", "bbb", "ccc"] {
        http.put(
            &format!("/{prefix}{name}?restype=container"),
            &[("x-ms-meta-of", name)],
            "",
        )
        .is(201);
    }
    let suffixes = ["aaa", "bbb", "ccc"].map(str::to_owned);
    let names = suffixes
        .each_ref()
        .map(|suffix| format!("{prefix}{suffix}"));
    let list = format!("?comp=list&include=metadata&prefix={prefix}");
    for size in 1..5 {
        for (element, expected) in [("Name", &names), ("of", &suffixes)] {
            let found = elements(&mut http, &list, element, size);
            assert_eq!(found, *expected, "{element} in pages of {size}");
        }
    }
}

pub(crate) fn add_listing(suite: &mut Suite) {
    for size in [1, 2, 3, 7, 8, 5000] {
        suite.case(format!("azure list: in pages of {size}"), move |site| {
            let (mut http, own) = filled(site, &ALL);
            assert_eq!(pages(&mut http, &own, "", size), SORTED);
            assert_eq!(pages(&mut http, &own, "&prefix=c", size), ["c/d/e", "ccc"]);
            assert!(pages(&mut http, &own, "&prefix=none", size).is_empty());
            for (query, first) in [
                ("startFrom=b", 2),
                ("startFrom=a%2Fc", 2),
                ("startFrom=c%2Fd%2Ff", 4),
                ("startFrom=", 0),
            ] {
                assert_eq!(
                    pages(&mut http, &own, &format!("&{query}"), size),
                    SORTED[first..],
                    "{query}"
                );
            }
            assert_eq!(
                pages(&mut http, &own, "&prefix=c&startFrom=cb", size),
                ["ccc"]
            );
        });
        suite.case(
            format!("azure list: folders in pages of {size}"),
            move |site| {
                let (mut http, own) = filled(
                    site,
                    &["a!", "a/1", "a/2", "a/b/3", "a/b/4", "a0", "b/1", "c"],
                );
                let with = |prefix: &str| format!("&delimiter=%2F{prefix}");
                assert_eq!(
                    pages(&mut http, &own, &with(""), size),
                    ["a!", "a/", "a0", "b/", "c"]
                );
                assert_eq!(
                    pages(&mut http, &own, &with("&prefix=a%2F"), size),
                    ["a/1", "a/2", "a/b/"]
                );
                assert_eq!(
                    pages(&mut http, &own, &with("&prefix=a"), size),
                    ["a!", "a/", "a0"]
                );
                assert_eq!(
                    pages(&mut http, &own, &with("&startFrom=a%2F2"), size),
                    ["a/", "a0", "b/", "c"]
                );
                assert_eq!(
                    pages(&mut http, &own, &with("&startFrom=a0"), size),
                    ["a0", "b/", "c"]
                );
            },
        );
    }
    suite.case("azure list: a delimiter of two characters", |site| {
        let (mut http, own) = filled(site, &["0", "a/1", "a/b/3", "a/b/4", "b/1"]);
        assert_eq!(
            pages(&mut http, &own, "&delimiter=%2Fb", 2),
            ["0", "a/1", "a/b", "b/1"]
        );
    });
    suite.case(
        "azure list: folders with names that begin with the last character",
        last_character,
    );
    suite.case(
        "azure list: control characters in parameters",
        control_characters,
    );
    suite.case("azure list: a plus in the query is a space", |site| {
        let (mut http, own) = filled(site, &["a%20b/1", "a%2Bb/1"]);
        for (prefix, found) in [("a+b", "a b/1"), ("a%20b", "a b/1"), ("a%2Bb", "a+b/1")] {
            assert_eq!(
                pages(&mut http, &own, &format!("&prefix={prefix}"), 2),
                [found]
            );
        }
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

/// Returns the names in all pages of a listing of blobs.
fn pages(http: &mut Http<'_>, own: &str, query: &str, size: usize) -> Vec<String> {
    let list = format!("{own}?restype=container&comp=list{query}");
    elements(http, &list, "Name", size)
}

/// Returns the texts of an element in all pages of a listing, which has one for each entry.
fn elements(http: &mut Http<'_>, list: &str, element: &str, size: usize) -> Vec<String> {
    let (mut texts, mut marker) = (Vec::new(), String::new());
    for _ in 0..100 {
        let page = http
            .get(&format!("{list}&maxresults={size}&marker={marker}"))
            .is(200);
        let found = page.all(element);
        assert!(found.len() <= size, "{found:?}");
        texts.extend(found.into_iter().map(str::to_owned));
        marker = page
            .all("NextMarker")
            .concat()
            .replace('=', "%3D")
            .replace('+', "%2B")
            .replace('/', "%2F");
        if marker.is_empty() {
            return texts;
        }
    }
    panic!("the listing does not end: {texts:?}");
}

/// A folder's marker ends with the last character, which names in the folder may begin with.
fn last_character(site: &Site) {
    let last = "%F4%8F%BF%BF";
    let inner = [
        format!("a/{last}"),
        format!("a/{last}x"),
        format!("a/{last}{last}/y"),
        format!("c/{last}z"),
    ];
    let names = ["a/1", &inner[0], &inner[1], &inner[2], "b", &inner[3], "d"];
    let (mut http, own) = filled(site, &names);
    for size in 1..6 {
        assert_eq!(
            pages(&mut http, &own, "&delimiter=%2F", size),
            ["a/", "b", "c/", "d"],
            "in pages of {size}"
        );
    }
}

/// XML can't represent most control characters, so no response may contain one.
fn control_characters(site: &Site) {
    let (mut http, own) = filled(site, &["a"]);
    for query in [
        "&prefix=%01",
        "&delimiter=%1F",
        "&%02=x",
        "&include=%03",
        "&prefix=%EF%BF%BF",
        "&marker=AQ%3D%3D",
    ] {
        let reply = http.get(&format!("{own}?restype=container&comp=list{query}"));
        let is_invalid = |char: char| char.is_control() || matches!(char, '\u{fffe}' | '\u{ffff}');
        assert!(
            !reply.text().contains(is_invalid),
            "{query}: {}",
            reply.text()
        );
    }
}
