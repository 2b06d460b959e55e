//! Names of the Durable Objects.

/// Returns the name of a record's object.
pub(super) fn record(key: &str) -> String {
    format!("record:{key}")
}

/// Returns the name of the object with a group's names.
pub(super) fn names(group: &str) -> String {
    format!("names:{group}")
}

/// Returns the group of a key or of a listing's prefix: everything up to the second slash, or up to the first if there is
/// no second.
///
/// For example, `c/` has the containers, and `b/photos/` the blobs of one container. A listing covers one group: with the
/// prefix `b/` it would not include `b/photos/cat.jpg`.
pub(super) fn group(key: &str) -> &str {
    let end = key.match_indices('/').map(|(at, _)| at + 1).take(2).last();
    &key[..end.unwrap_or(0)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_and_its_keys_are_in_one_group() {
        for (prefix, key) in [
            ("c/", "c/photos"),
            ("c/ph", "c/photos"),
            ("b/photos/", "b/photos/2026/cat.jpg"),
            ("b/photos/2026/c", "b/photos/2026/cat.jpg"),
            ("b/photos/", "b/photos/ "),
            ("no slash", "no slash at all"),
        ] {
            assert_eq!(group(prefix), group(key), "{prefix} {key}");
        }
    }

    #[test]
    fn containers_do_not_share_a_group() {
        assert_ne!(group("b/photos/x"), group("b/photos2/x"));
        assert_ne!(group("b/photos/x"), group("c/photos"));
    }
}
