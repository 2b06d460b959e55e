//! In which object what is kept.

/// The object of a key's record.
pub(super) fn record(key: &str) -> String {
    format!("record:{key}")
}

/// The object of the names of a group.
pub(super) fn names(group: &str) -> String {
    format!("names:{group}")
}

/// The group that a key is listed in, and that a listing by a prefix is of: all up to the second slash, or the first if
/// there is no second.
///
/// So `c/` are the containers, and `b/photos/` are the blobs of one container. A listing shows one group: by the prefix
/// `b/` it would not show `b/photos/cat.jpg`.
pub(super) fn group(key: &str) -> &str {
    let end = key.match_indices('/').map(|(at, _)| at + 1).take(2).last();
    &key[..end.unwrap_or(0)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listing_and_what_it_lists_are_one_group() {
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
