//! Requests that a client sends again because it lost the answer: the SDKs keep `x-ms-client-request-id` then.

use crate::azure::{A, B, blob, container};
use crate::site::Site;
use crate::suite::Suite;

const REQUEST: (&str, &str) = ("x-ms-client-request-id", "a2fbd51e-4b2a-4b1c-8a94-6d4e5a7b9c01");

pub(crate) fn add(suite: &mut Suite) {
    suite.case("retry: a creation gets its first answer", creation);
    suite.case("retry: a creation is not told again once it was undone", undone);
    suite.case("retry: a change under a tag gets its first answer", change);
    suite.case("retry: a deletion under a tag gets its first answer", deletion);
    suite.case("retry: writes that no tag decides are carried out each time", repeated);
    suite.case("retry: an acquisition gets the same lease", acquisition);
    suite.case("retry: a release is done, until another has the lease", release);
}

fn creation(site: &Site) {
    let mut http = site.azure();
    let path = format!("{}/a", container(&mut http, site));
    let create = [REQUEST, ("if-none-match", "*")];
    let first = http.upload(&path, &create, "x").is(201).etag().to_owned();
    assert_eq!(http.upload(&path, &create, "x").is(201).etag(), first);
    http.upload(&path, &create, "y").refused(409, "BlobAlreadyExists");
    http.upload(&path, &create[1..], "x").refused(409, "BlobAlreadyExists");
}

/// Else two would hold what one may create.
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

/// Some programs give all their requests one id.
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
