//! S3's dialect of the blob service.

mod objects;
mod requests;
mod uploads;

use crate::http::Http;
use crate::site::Site;
use crate::suite::Suite;

pub(crate) fn add(suite: &mut Suite) {
    requests::add(suite);
    objects::add(suite);
    uploads::add(suite);
}

/// Creates a bucket with the object `there`, and returns its path and the object's tag.
fn bucket(http: &mut Http<'_>, site: &Site) -> (String, String) {
    let path = format!("/{}", site.name());
    http.put(&path, &[], "").is(200);
    let tag = http
        .put(&format!("{path}/there"), &[], "one")
        .is(200)
        .etag()
        .to_owned();
    (path, tag)
}
