//! Azure's dialect of the blob service.

mod access;
mod batches;
mod blobs;
mod blocks;
mod conditions;
mod containers;
mod copies;
mod leases;

use crate::http::{Http, Reply};
use crate::site::Site;
use crate::suite::Suite;

pub(crate) fn add(suite: &mut Suite, prepare: bool) {
    // First: these wait for leases to expire while the others run.
    leases::add(suite, prepare);
    access::add(suite);
    batches::add(suite);
    blobs::add(suite);
    blocks::add(suite);
    conditions::add(suite);
    containers::add(suite);
    copies::add(suite);
    containers::add_listing(suite);
    conditions::add_rejections(suite);
}

/// Lease ids of the clients A, B and C.
pub(crate) const A: &str = "a0000000-0000-4000-8000-00000000000a";
pub(crate) const B: &str = "b0000000-0000-4000-8000-00000000000b";
pub(crate) const C: &str = "c0000000-0000-4000-8000-00000000000c";

/// Ids of blocks, in base64.
pub(crate) const IDS: [&str; 4] = ["MDAwMA==", "MDAwMQ==", "MDAwMg==", "MDAwMw=="];

/// Creates a container and returns its path.
pub(crate) fn container(http: &mut Http<'_>, site: &Site) -> String {
    let path = format!("/{}", site.name());
    http.put(&format!("{path}?restype=container"), &[], "")
        .is(201);
    path
}

/// Creates a blob in a new container and returns its path.
pub(crate) fn blob(http: &mut Http<'_>, site: &Site) -> String {
    let path = format!("{}/blob", container(http, site));
    http.upload(&path, &[], "first").is(201);
    path
}

/// Acquires a lease with this id.
pub(crate) fn acquire(http: &mut Http<'_>, target: &str, id: &str, seconds: i32) -> Reply {
    let duration = seconds.to_string();
    http.lease(
        target,
        "acquire",
        &[
            ("x-ms-lease-duration", &duration),
            ("x-ms-proposed-lease-id", id),
        ],
    )
}
