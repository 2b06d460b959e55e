//! The keys of the index: `c/{container}` and `b/{container}/{incarnation}/{blob}`.
//!
//! The *incarnation* of a container is the generation of the record that created it. A container created again under
//! the same name has another incarnation and none of the earlier blobs, even if late writers add some.

use ifmatch_core::record::Revision;
use ifmatch_register::Key;

use ifmatch_blob::name::{BlobName, ContainerName};
use ifmatch_blob::store::{StoreError, StoreErrorKind};

/// Prefix of the keys of containers.
pub(super) const CONTAINERS: &str = "c/";
/// Prefix of the keys of blobs.
pub(super) const BLOBS: &str = "b/";

/// Number of hexadecimal digits of an incarnation.
const DIGITS: usize = 16;

/// The incarnation of internal containers, which have no records.
pub(super) const INTERNAL: Revision = Revision::NONE;

/// Returns the key of a blob's record.
pub(super) fn of_blob(
    container: &ContainerName,
    incarnation: Revision,
    name: &BlobName,
) -> Result<Key, StoreError> {
    below(&of_blobs_in(container, incarnation), name)
}

/// Returns the key of a blob's record from the prefix for its container.
pub(super) fn below(blobs_in_container: &str, name: &BlobName) -> Result<Key, StoreError> {
    key([blobs_in_container, name.as_str()].concat())
}

/// Returns the key of a container's record.
pub(super) fn of_container(container: &ContainerName) -> Result<Key, StoreError> {
    key([CONTAINERS, container.as_str()].concat())
}

/// Returns the prefix of the keys of a container's blobs.
pub(super) fn of_blobs_in(container: &ContainerName, incarnation: Revision) -> String {
    let incarnation = incarnation.get();
    format!("{BLOBS}{container}/{incarnation:0DIGITS$x}/")
}

/// Returns the internal container in a blob's key.
pub(super) fn internal_container_of(blob: &Key) -> Option<&str> {
    let (container, _) = blob.as_str().strip_prefix(BLOBS)?.split_once('/')?;
    ContainerName::is_internal_text(container).then_some(container)
}

/// Returns the key of the container's record, and the incarnation, from a blob's key.
pub(super) fn container_of(blob: &Key) -> Option<(Key, Revision)> {
    let (container, rest) = blob.as_str().strip_prefix(BLOBS)?.split_once('/')?;
    let (incarnation, _name) = rest
        .split_once('/')
        .filter(|(digits, _)| digits.len() == DIGITS)?;
    let incarnation = Revision::new(u64::from_str_radix(incarnation, 16).ok()?);
    Some((
        Key::new(format!("{CONTAINERS}{container}")).ok()?,
        incarnation,
    ))
}

/// Returns `container/blob` from a blob's key, for display.
pub(super) fn path_of(blob: &Key) -> String {
    let parts = blob
        .as_str()
        .strip_prefix(BLOBS)
        .unwrap_or(blob.as_str())
        .splitn(3, '/');
    match *parts.collect::<Vec<_>>() {
        [container, _incarnation, name] => format!("{container}/{name}"),
        _ => blob.to_string(),
    }
}

/// Makes a key. Never fails, since names are shorter than keys and contain no NUL.
fn key(text: String) -> Result<Key, StoreError> {
    Key::new(text).map_err(|error| StoreError::new(StoreErrorKind::Unsupported, error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_names_fit_into_a_key() {
        let container = ContainerName::new(&"c".repeat(ContainerName::MAX_LEN)).expect("valid");
        let name = BlobName::new(&format!("{}/x", "😀".repeat(480))).expect("valid");
        let incarnation = Revision::new(u64::MAX);
        let key = of_blob(&container, incarnation, &name).expect("it fits");
        let room = BlobName::MAX_BYTES - name.as_str().len();
        assert!(key.as_str().len() + room <= Key::MAX_LEN);
        assert_eq!(
            container_of(&key),
            Some((of_container(&container).expect("it fits"), incarnation))
        );
    }
}
