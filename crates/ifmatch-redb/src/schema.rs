//! The table of the records, and the databases that have it.

use std::borrow::Cow;
use std::cmp::Ordering;

use redb::{Builder, TableDefinition, TypeName, Value};

/// Size of the cache of a database's pages, in bytes. The operating system caches the file as well.
const PAGE_CACHE: usize = 128 * 1024 * 1024;

/// Returns a builder of databases with a bounded cache: redb's own default is a gibibyte.
pub(crate) fn builder() -> Builder {
    let mut builder = Builder::new();
    builder.set_cache_size(PAGE_CACHE);
    builder
}

/// Key, revision and encoded record.
pub(crate) const RECORDS: TableDefinition<'_, TextKey, (u64, &[u8])> =
    TableDefinition::new("records");

/// Has the encoding and the order of redb's `&str`, which validates both sides as UTF-8 at each comparison. That validation
/// would double the cost of an insertion.
#[derive(Debug)]
pub(crate) struct TextKey;

impl Value for TextKey {
    type SelfType<'a> = &'a [u8];
    type AsBytes<'a> = &'a [u8];

    fn fixed_width() -> Option<usize> {
        None
    }

    fn from_bytes<'a>(data: &'a [u8]) -> &'a [u8]
    where
        Self: 'a,
    {
        data
    }

    fn as_bytes<'a, 'b: 'a>(value: &'a &'b [u8]) -> &'a [u8]
    where
        Self: 'b,
    {
        value
    }

    fn type_name() -> TypeName {
        <&str as Value>::type_name()
    }
}

impl redb::Key for TextKey {
    fn compare(one: &[u8], other: &[u8]) -> Ordering {
        one.cmp(other)
    }

    fn separator<'a>(left: &'a [u8], right: &'a [u8]) -> Cow<'a, [u8]> {
        <&str as redb::Key>::separator(left, right)
    }
}

#[cfg(test)]
mod tests {
    use redb::backends::InMemoryBackend;
    use redb::{Builder, ReadableDatabase, ReadableTable};

    use super::*;

    const AS_TEXT: TableDefinition<'_, &str, u64> = TableDefinition::new("keys");
    const AS_BYTES: TableDefinition<'_, TextKey, u64> = TableDefinition::new("keys");

    /// Names with UTF-8 sequences of all lengths, which differ early or late.
    fn names() -> Vec<String> {
        let stems = ["a", "ä", "€", "😀", "b/c", "b/c/0000/"];
        stems
            .iter()
            .flat_map(|stem| (0..400).map(move |at| format!("{stem}{}{at}", "ü".repeat(at % 40))))
            .collect()
    }

    #[test]
    fn text_and_byte_keys_are_interchangeable() {
        let database = Builder::new()
            .create_with_backend(InMemoryBackend::new())
            .expect("in memory");
        for (at, name) in (0_u64..).zip(names()) {
            let transaction = database.begin_write().expect("it is open");
            if at % 2 == 0 {
                transaction
                    .open_table(AS_TEXT)
                    .expect("text")
                    .insert(name.as_str(), at)
                    .expect("room");
            } else {
                transaction
                    .open_table(AS_BYTES)
                    .expect("bytes")
                    .insert(name.as_bytes(), at)
                    .expect("room");
            }
            transaction.commit().expect("in memory");
        }
        let transaction = database.begin_read().expect("it is open");
        let (text, bytes) = (
            transaction.open_table(AS_TEXT),
            transaction.open_table(AS_BYTES),
        );
        let (text, bytes) = (text.expect("text"), bytes.expect("bytes"));
        for (at, name) in (0_u64..).zip(names()) {
            let found =
                |value: Option<redb::AccessGuard<'_, u64>>| value.map(|value| value.value());
            assert_eq!(
                found(text.get(name.as_str()).expect("readable")),
                Some(at),
                "{name}"
            );
            assert_eq!(
                found(bytes.get(name.as_bytes()).expect("readable")),
                Some(at),
                "{name}"
            );
        }
        let mut sorted = names();
        sorted.sort_unstable();
        let listed = bytes
            .iter()
            .expect("readable")
            .map(|entry| entry.expect("readable").0.value().to_vec());
        assert!(listed.eq(sorted.into_iter().map(String::into_bytes)));
    }
}
