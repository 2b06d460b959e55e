//! The JSON representation of a lease with its path.

use ifmatch_blob::leases::describe;
use ifmatch_blob::name::BlobName;
use ifmatch_core::lease::SeenLease;
use serde_json::Value;

use super::listing::LeaseTarget;

/// Returns a lease or its absence as JSON.
pub(crate) fn lease_json(target: &LeaseTarget, lease: Option<&SeenLease>) -> Value {
    let mut described = describe(lease);
    described.insert("path".into(), target.to_string().into());
    described.insert("container".into(), target.container.as_str().into());
    described.insert("blob".into(), target.blob.as_ref().map(BlobName::as_str).into());
    described.into()
}
