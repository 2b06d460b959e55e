//! Containers.

use crate::azure::container;
use crate::http::Http;
use crate::site::{Site, eventually};
use crate::suite::Suite;

pub(crate) fn add(suite: &mut Suite) {
    suite.case("container: created once, described, changed, deleted", life);
    suite.case("container: empty after it is recreated", again);
    suite.case("container: shared with the plain dialect", plain);
    suite.case("container: listed in pages, with metadata", listed);
    suite.case("container: the longest name", |site| {
        let name = format!("{:c<63}", site.name());
        site.azure().put(&format!("/{name}?restype=container"), &[], "").is(201);
    });
    suite.case("account: information and properties", |site| {
        let mut http = site.azure();
        let account = http.get("?restype=account&comp=properties").is(200);
        assert_eq!(account.header("x-ms-account-kind"), "StorageV2");
        http.get("?restype=service&comp=properties").is(200);
    });
}

fn life(site: &Site) {
    let (mut http, name) = (site.azure(), site.name());
    let path = format!("/{name}?restype=container");
    http.get(&path).refused(404, "ContainerNotFound");
    let created = http.put(&path, &[("x-ms-meta-owner", "me")], "").is(201);
    http.put(&path, &[], "").refused(409, "ContainerAlreadyExists");
    for (method, target) in [("GET", path.clone()), ("HEAD", path.clone()), ("GET", format!("{path}&comp=metadata"))] {
        let found = http.send(method, &target, &[], "").is(200);
        assert_eq!((found.header("x-ms-meta-owner"), found.etag()), ("me", created.etag()));
        assert_eq!(found.header("last-modified"), created.header("last-modified"));
        // The SDK for C++, and with it pyarrow and ClickHouse, fails without them.
        assert_eq!(
            (found.header("x-ms-has-immutability-policy"), found.header("x-ms-has-legal-hold")),
            ("false", "false")
        );
    }
    let changed = http.put(&format!("{path}&comp=metadata"), &[("x-ms-meta-a", "1")], "").is(200);
    assert_ne!(changed.etag(), created.etag());
    let found = http.get(&path).is(200);
    assert_eq!((found.header("x-ms-meta-a"), found.field("x-ms-meta-owner")), ("1", ""));
    http.delete(&path, &[]).is(202);
    http.get(&path).refused(404, "ContainerNotFound");
    http.delete(&path, &[]).refused(404, "ContainerNotFound");
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
    http.put(&format!("{own}/b?comp=block&blockid=AA%3D%3D"), &[], "old").is(201);
    http.delete(&path, &[]).is(202);
    http.get(&format!("{own}/a")).refused(404, "ContainerNotFound");
    created(&mut http, &path);
    http.get(&format!("{own}/a")).refused(404, "BlobNotFound");
    let list = "<BlockList><Latest>AA==</Latest></BlockList>";
    http.put(&format!("{own}/b?comp=blocklist"), &[], list).refused(400, "InvalidBlockList");
    let second = http.upload(&format!("{own}/a"), &[("if-none-match", "*")], "old").is(201);
    assert_ne!(first.etag(), second.etag());
}

/// Lists containers, including names that only the plain dialect allows.
fn plain(site: &Site) {
    let (mut azure, mut http, name) = (site.azure(), site.plain(), site.name());
    http.put(&format!("/{name}/blob"), &[], "x").is(201);
    http.put(&format!("/{name}_Plain/blob"), &[], "x").is(201);
    assert_eq!(azure.get(&format!("?comp=list&prefix={name}")).is(200).all("Name"), [name.as_str()]);
    azure.get(&format!("/{name}?restype=container")).is(200);
    azure.put(&format!("/{name}?restype=container"), &[], "").refused(409, "ContainerAlreadyExists");
    azure.delete(&format!("/{name}?restype=container"), &[]).is(202);
    http.get(&format!("/{name}/blob")).is(404);
    http.get(&format!("/{name}")).is(404);
}

fn listed(site: &Site) {
    let (mut http, prefix) = (site.azure(), site.name());
    for name in ["aaa", "bbb", "ccc"] {
        http.put(&format!("/{prefix}{name}?restype=container"), &[("x-ms-meta-of", name)], "").is(201);
    }
    for size in 1..5 {
        let (mut names, mut marker) = (Vec::new(), String::new());
        loop {
            let target = format!("?comp=list&include=metadata&prefix={prefix}&maxresults={size}&marker={marker}");
            let page = http.get(&target).is(200);
            assert_eq!(page.all("Name").len(), page.all("of").len());
            names.extend(page.all("of").into_iter().map(str::to_owned));
            marker = page.all("NextMarker").concat().replace('=', "%3D");
            if marker.is_empty() {
                break;
            }
        }
        assert_eq!(names, ["aaa", "bbb", "ccc"], "in pages of {size}");
    }
}
