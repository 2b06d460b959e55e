//! The keys of entities, and the names of their blobs.

use ifmatch_blob::name::BlobName;

use crate::error::{ErrorCode, TableError};

/// The key of an entity within its table. Always valid.
///
/// A blob's name contains both keys, separated by a space. A space sorts before every other character allowed in names,
/// and spaces in keys are escaped. So names sort by partition key, then by row key, each by their UTF-8 bytes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct EntityKey {
    pub(crate) partition: Box<str>,
    pub(crate) row: Box<str>,
}

/// Maximum length of a key, in UTF-16 units: 1 KiB as Azure counts.
const MAX_UNITS: usize = 512;
/// Separates the keys.
const CUT: char = ' ';
/// Begins an escape.
const ESCAPE: char = '!';
/// The escapes of a space and an exclamation mark.
const ESCAPED: [(char, char); 2] = [(CUT, '0'), (ESCAPE, '1')];

impl EntityKey {
    /// Creates a key.
    ///
    /// # Errors
    /// A key has more than 512 UTF-16 units, or contains `/`, `\`, `#`, `?` or a control character.
    pub(crate) fn new(partition: &str, row: &str) -> Result<Self, TableError> {
        check(partition)?;
        check(row)?;
        Ok(Self {
            partition: partition.into(),
            row: row.into(),
        })
    }

    /// Returns the name of the entity's blob.
    ///
    /// # Errors
    /// The keys are too long together.
    pub(crate) fn name_in(&self, table: &str) -> Result<BlobName, TableError> {
        let name = prefix(table, Some(&self.partition), Some(&self.row));
        BlobName::new(&name).map_err(|_| TableError::new(ErrorCode::KeyValueTooLarge))
    }

    /// Returns the name of the record of the partition's batches. No key contains it: `!.` isn't an escape.
    ///
    /// # Errors
    /// The partition key is too long.
    pub(crate) fn record_in(&self, table: &str) -> Result<BlobName, TableError> {
        let mut name = format!("{table}/!.");
        escape(&self.partition, &mut name);
        BlobName::new(&name).map_err(|_| TableError::new(ErrorCode::KeyValueTooLarge))
    }

    /// Parses a blob's name.
    pub(crate) fn parse(name: &str) -> Option<Self> {
        let (_, keys) = name.split_once('/')?;
        let (partition, row) = keys.split_once(CUT)?;
        Self::new(&unescape(partition)?, &unescape(row)?).ok()
    }
}

/// Returns the common prefix of the names of all entities of a table, of a partition, or of row keys with a prefix.
pub(crate) fn prefix(table: &str, partition: Option<&str>, row: Option<&str>) -> String {
    let mut name = format!("{table}/");
    if let Some(partition) = partition {
        escape(partition, &mut name);
        name.push(CUT);
        escape(row.unwrap_or_default(), &mut name);
    }
    name
}

/// Rejects a key that is too long, or has forbidden characters.
fn check(key: &str) -> Result<(), TableError> {
    if key.encode_utf16().count() > MAX_UNITS {
        return Err(TableError::new(ErrorCode::KeyValueTooLarge));
    }
    let forbidden = |char: char| char.is_control() || matches!(char, '/' | '\\' | '#' | '?');
    if key.contains(forbidden) {
        return Err(TableError::invalid(
            "a key must not contain '/', '\\', '#', '?' or control characters",
        ));
    }
    Ok(())
}

/// Appends a key to a name.
fn escape(key: &str, name: &mut String) {
    for char in key.chars() {
        match ESCAPED.iter().find(|(plain, _)| *plain == char) {
            Some((_, escaped)) => name.extend([ESCAPE, *escaped]),
            None => name.push(char),
        }
    }
}

/// Returns the key in a part of a name.
fn unescape(text: &str) -> Option<String> {
    let mut chars = text.chars();
    let mut key = String::with_capacity(text.len());
    while let Some(char) = chars.next() {
        key.push(match char {
            ESCAPE => {
                let escaped = chars.next()?;
                ESCAPED.iter().find(|(_, other)| *other == escaped)?.0
            }
            char => char,
        });
    }
    Some(key)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Short keys with characters around the escapes, so many share prefixes.
    fn keys() -> impl Strategy<Value = EntityKey> {
        let key = "[ !\"01.a'é🦀\u{a0}-]{0,5}";
        (key, key).prop_map(|(partition, row)| EntityKey::new(&partition, &row).expect("valid"))
    }

    proptest! {
        #[test]
        fn names_sort_like_keys(one in keys(), other in keys()) {
            let name = |key: &EntityKey| key.name_in("t").expect("short");
            prop_assert_eq!(name(&one).cmp(&name(&other)), one.cmp(&other));
        }

        #[test]
        fn names_round_trip(key in keys()) {
            let name = key.name_in("t").expect("short");
            prop_assert_eq!(EntityKey::parse(name.as_str()), Some(key));
        }

        #[test]
        fn a_prefix_matches_its_partition_only(key in keys(), other in keys()) {
            let name = key.name_in("t").expect("short");
            let within = name.as_str().starts_with(&prefix("t", Some(&other.partition), None));
            prop_assert_eq!(within, key.partition == other.partition);
        }
    }

    #[test]
    fn keys_of_a_kibibyte_fit_unless_both_are_that_long() {
        let longest = "漢".repeat(MAX_UNITS);
        let table = "0".repeat(32);
        assert!(
            EntityKey::new(&longest, &"漢".repeat(120))
                .expect("valid")
                .name_in(&table)
                .is_ok()
        );
        let both = EntityKey::new(&longest, &longest)
            .expect("valid")
            .name_in(&table);
        assert_eq!(both.unwrap_err().code(), ErrorCode::KeyValueTooLarge);
        let longer = EntityKey::new(&"a".repeat(MAX_UNITS + 1), "");
        assert_eq!(longer.unwrap_err().code(), ErrorCode::KeyValueTooLarge);
    }

    #[test]
    fn rejects_characters_that_azure_forbids() {
        for char in ['/', '\\', '#', '?', '\0', '\t', '\u{7f}', '\u{9f}'] {
            assert_eq!(
                EntityKey::new("p", &format!("r{char}")).unwrap_err().code(),
                ErrorCode::InvalidInput,
                "{char:?}"
            );
        }
        assert!(EntityKey::new("", "").is_ok_and(|key| key.name_in("t").is_ok()));
    }
}
