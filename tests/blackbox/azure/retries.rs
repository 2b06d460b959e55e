//! Retries: SDKs keep `x-ms-client-request-id` when they send a request again.

use crate::azure::{A, B, blob, container};
use crate::http::Http;
use crate::site::Site;
use crate::suite::Suite;

const REQUEST: (&str, &str) = ("x-ms-client-request-id", "a2fbd51e-4b2a-4b1c-8a94-6d4e5a7b9c01");

pub(crate) fn add(suite: &mut Suite) {
    suite.case("retry: a creation gets its first response", creation);
    suite.case("retry: a creation is not replayed after the blob was recreated", undone);
    suite.case("retry: a creation is not replayed after the blob was deleted", deleted);
    suite.case("retry: a block list is not replayed after the blob was deleted", undone_list);
    suite.case("retry: a block list gets its first response", block_list);
    suite.case("retry: metadata under If-Match gets its first response", metadata);
    suite.case("retry: a change under If-Match gets its first response", change);
    suite.case("retry: a deletion under If-Match gets its first response", deletion);
    suite.case("retry: writes without a tag are repeated", repeated);
    suite.case("retry: an acquisition gets the same lease", acquisition);
    suite.case("retry: a release succeeds until another client holds the lease", release);
}

fn creation(site: &Site) {
    let mut http = site.azure();
    let path = format!("{}/a", container(&mut http, site));
    let create = [REQUEST, ("if-none-match", "*")];
    let first = http.upload(&path, &create, "x").is(201).etag().to_owned();
    assert_eq!(http.upload(&path, &create, "x").is(201).etag(), first);
    http.upload(&path, &create, "y").refused(409, "BlobAlreadyExists");
    http.upload(&path, &[REQUEST, create[1], ("cache-control", "no-store")], "x").refused(409, "BlobAlreadyExists");
    http.upload(&path, &create[1..], "x").refused(409, "BlobAlreadyExists");
}

/// Otherwise two clients could both believe that they created the blob.
fn undone(site: &Site) {
    let mut http = site.azure();
    let path = format!("{}/a", container(&mut http, site));
    let create = [REQUEST, ("if-none-match", "*")];
    let first = http.upload(&path, &create, "x").is(201).etag().to_owned();
    http.delete(&path, &[]).is(202);
    http.upload(&path, &[("if-none-match", "*")], "another's").is(201);
    http.upload(&path, &create, "x").refused(409, "BlobAlreadyExists");
    assert_ne!(http.get(&path).is(200).etag(), first);
}

fn deleted(site: &Site) {
    let mut http = site.azure();
    let path = format!("{}/a", container(&mut http, site));
    let create = [REQUEST, ("if-none-match", "*")];
    http.upload(&path, &create, "x").is(201);
    http.delete(&path, &[]).is(202);
    http.upload(&path, &create, "x").refused(409, "BlobAlreadyExists");
    http.get(&path).refused(404, "BlobNotFound");
}

const LIST: &str = "<BlockList><Latest>AA==</Latest></BlockList>";
const OTHER_LIST: &str = "<BlockList><Latest>AQ==</Latest></BlockList>";

/// Stages the block of `LIST` or of `OTHER_LIST`.
fn stage(http: &mut Http<'_>, path: &str, id: &str, content: &str) {
    http.put(&format!("{path}?comp=block&blockid={id}%3D%3D"), &[], content).is(201);
}

fn undone_list(site: &Site) {
    let mut http = site.azure();
    let path = format!("{}/a", container(&mut http, site));
    let create = [REQUEST, ("if-none-match", "*")];
    let commit = |http: &mut Http<'_>| {
        stage(http, &path, "AA", "x");
        http.put(&format!("{path}?comp=blocklist"), &create, LIST)
    };
    let tag = commit(&mut http).is(201).etag().to_owned();
    assert_eq!(commit(&mut http).is(201).etag(), tag);
    http.delete(&path, &[REQUEST]).is(202);
    commit(&mut http).refused(409, "BlobAlreadyExists");
    http.get(&path).refused(404, "BlobNotFound");
}

/// The blocks are no longer staged when the list is sent again.
fn block_list(site: &Site) {
    let mut http = site.azure();
    let path = format!("{}/a", container(&mut http, site));
    let commit = format!("{path}?comp=blocklist");
    stage(&mut http, &path, "AA", "x");
    let create = [REQUEST, ("if-none-match", "*")];
    let created = http.put(&commit, &create, LIST).is(201).etag().to_owned();
    assert_eq!(http.put(&commit, &create, LIST).is(201).etag(), created);
    http.put(&commit, &create[1..], LIST).refused(409, "BlobAlreadyExists");
    stage(&mut http, &path, "AQ", "y");
    http.put(&commit, &create, OTHER_LIST).refused(409, "BlobAlreadyExists");
    let replace = [REQUEST, ("if-match", created.as_str())];
    let replaced = http.put(&commit, &replace, OTHER_LIST).is(201).etag().to_owned();
    assert_eq!(http.put(&commit, &replace, OTHER_LIST).is(201).etag(), replaced);
    http.put(&commit, &replace[1..], OTHER_LIST).refused(412, "ConditionNotMet");
    http.put(&commit, &replace, LIST).refused(412, "ConditionNotMet");
    let read = http.get(&path).is(200);
    assert_eq!((read.text(), read.etag()), ("y", replaced.as_str()));
}

fn metadata(site: &Site) {
    let mut http = site.azure();
    let path = blob(&mut http, site);
    let tag = http.head(&path).is(200).etag().to_owned();
    let target = format!("{path}?comp=metadata");
    let fields = [REQUEST, ("if-match", tag.as_str()), ("x-ms-meta-a", "1")];
    let changed = http.put(&target, &fields, "").is(200).etag().to_owned();
    assert_eq!(http.put(&target, &fields, "").is(200).etag(), changed);
}

fn change(site: &Site) {
    let mut http = site.azure();
    let path = blob(&mut http, site);
    let tag = http.head(&path).is(200).etag().to_owned();
    let fields = [REQUEST, ("if-match", tag.as_str())];
    let second = http.upload(&path, &fields, "second").is(201).etag().to_owned();
    assert_eq!(http.upload(&path, &fields, "second").is(201).etag(), second);
    http.upload(&path, &fields[1..], "second").refused(412, "ConditionNotMet");
    assert_eq!(http.get(&path).is(200).etag(), second);
}

fn deletion(site: &Site) {
    let mut http = site.azure();
    let path = blob(&mut http, site);
    let tag = http.head(&path).is(200).etag().to_owned();
    let delete = [REQUEST, ("if-match", tag.as_str())];
    http.delete(&path, &delete).is(202);
    http.delete(&path, &delete).is(202);
    http.delete(&path, &delete[1..]).refused(404, "BlobNotFound");
}

/// Some programs use one id for all their requests.
fn repeated(site: &Site) {
    let mut http = site.azure();
    let path = blob(&mut http, site);
    for fields in [&[REQUEST][..], &[REQUEST, ("if-match", "*")], &[REQUEST, ("if-none-match", "\"other\"")]] {
        for content in ["a", "b", "a"] {
            http.upload(&path, fields, content).is(201);
            assert_eq!(http.get(&path).is(200).text(), content);
        }
    }
}

fn acquisition(site: &Site) {
    let mut http = site.azure();
    let path = blob(&mut http, site);
    let fields = [REQUEST, ("x-ms-lease-duration", "-1")];
    let first = http.lease(&path, "acquire", &fields).is(201).header("x-ms-lease-id").to_owned();
    assert_eq!(http.lease(&path, "acquire", &fields).is(201).header("x-ms-lease-id"), first);
    http.lease(&path, "acquire", &fields[1..]).refused(409, "LeaseAlreadyPresent");
    http.lease(&path, "release", &[("x-ms-lease-id", &first)]).is(200);
    crate::azure::acquire(&mut http, &path, B, -1).is(201);
    http.lease(&path, "acquire", &fields).refused(409, "LeaseAlreadyPresent");
}

fn release(site: &Site) {
    let mut http = site.azure();
    let path = blob(&mut http, site);
    crate::azure::acquire(&mut http, &path, A, -1).is(201);
    let fields = [REQUEST, ("x-ms-lease-id", A)];
    http.lease(&path, "release", &fields).is(200);
    http.lease(&path, "release", &fields).is(200);
    crate::azure::acquire(&mut http, &path, B, -1).is(201);
    http.lease(&path, "renew", &[("x-ms-lease-id", A)]).refused(409, "LeaseIdMismatchWithLeaseOperation");
    assert_eq!(http.head(&path).is(200).header("x-ms-lease-state"), "leased");
}
