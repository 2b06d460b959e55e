//! The keys of the index: `c/{container}` and `b/{container}/{incarnation}/{blob}`.
//!
//! The *incarnation* of a container is the generation of the record that created it. A container that is created again
//! under its name is another incarnation, and has none of the blobs of the one before, whoever still writes to that.

use ifmatch_core::record::Revision;
use ifmatch_register::Key;

use ifmatch_blob::name::{BlobName, ContainerName};
use ifmatch_blob::store::{StoreError, StoreErrorKind};

/// What the keys of containers begin with.
pub(super) const CONTAINERS: &str = "c/";
/// What the keys of blobs begin with.
pub(super) const BLOBS: &str = "b/";

/// How many hexadecimal digits an incarnation is written with.
const DIGITS: usize = 16;

/// The incarnation of the containers that this crate keeps for itself, which have no records.
pub(super) const INTERNAL: Revision = Revision::NONE;

/// The key of a blob's record.
pub(super) fn of_blob(container: &ContainerName, incarnation: Revision, name: &BlobName) -> Result<Key, StoreError> {
    key([&of_blobs_in(container, incarnation), name.as_str()].concat())
}

/// The key of a container's record.
pub(super) fn of_container(container: &ContainerName) -> Result<Key, StoreError> {
    key([CONTAINERS, container.as_str()].concat())
}

/// What the keys of a container's blobs begin with.
pub(super) fn of_blobs_in(container: &ContainerName, incarnation: Revision) -> String {
    let digits = hex::encode(incarnation.get().to_be_bytes());
    [BLOBS, container.as_str(), "/", &digits, "/"].concat()
}

/// The container of this crate's own whose blob a key names.
pub(super) fn internal_container_of(blob: &Key) -> Option<&str> {
    let (container, _) = blob.as_str().strip_prefix(BLOBS)?.split_once('/')?;
    ContainerName::is_internal_text(container).then_some(container)
}

/// The key of the record of the container that a blob's key names, and which incarnation of it.
pub(super) fn container_of(blob: &Key) -> Option<(Key, Revision)> {
    let (container, rest) = blob.as_str().strip_prefix(BLOBS)?.split_once('/')?;
    let (incarnation, _name) = rest.split_once('/').filter(|(digits, _)| digits.len() == DIGITS)?;
    let incarnation = Revision::new(u64::from_str_radix(incarnation, 16).ok()?);
    Some((Key::new(format!("{CONTAINERS}{container}")).ok()?, incarnation))
}

/// Names are shorter than keys, and without NUL, so that this does not fail.
fn key(text: String) -> Result<Key, StoreError> {
    Key::new(text).map_err(|error| StoreError::new(StoreErrorKind::Unsupported, error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_names_have_keys_that_tell_their_container() {
        let container = ContainerName::new(&"c".repeat(ContainerName::MAX_LEN)).expect("valid");
        let name = BlobName::new(&format!("{}/x", "😀".repeat(990))).expect("valid");
        let incarnation = Revision::new(u64::MAX);
        let key = of_blob(&container, incarnation, &name).expect("it fits");
        let room = BlobName::MAX_BYTES - name.as_str().len();
        assert!(key.as_str().len() + room <= Key::MAX_LEN);
        assert_eq!(container_of(&key), Some((of_container(&container).expect("it fits"), incarnation)));
    }
}
