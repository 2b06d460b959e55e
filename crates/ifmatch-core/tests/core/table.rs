//! Reads the tables in `tests/data`: one case per line, columns separated by bars, `#` for comments, `\xNN` for a byte.

use http::{HeaderMap, HeaderName, HeaderValue};
use ifmatch_core::EntityTag;
use ifmatch_core::date::HttpDate;

/// One line of a table.
pub(crate) struct Row {
    /// The position of the row, for messages.
    pub(crate) place: String,
    /// The trimmed columns.
    pub(crate) columns: Vec<String>,
}

/// The tables, embedded because the tests may run without a file system.
macro_rules! tables {
    ($($file:literal)*) => {
        fn text(file: &str) -> &'static str {
            match file {
                $($file => include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/", $file)),)*
                _ => panic!("{file} is not in the list of tables"),
            }
        }
    };
}

tables! {
    "comparison.txt"
    "dates.txt"
    "digests.txt"
    "if_match.txt"
    "if_modified_since.txt"
    "if_none_match.txt"
    "if_range.txt"
    "if_unmodified_since.txt"
    "invalid_tags.txt"
    "lease-operations.txt"
    "lease-uses.txt"
    "methods.txt"
    "not_modified.txt"
    "precedence.txt"
    "ranges.txt"
    "write_conditions.txt"
}

/// Runs `check` on every row of a table with a fixed number of columns.
pub(crate) fn each_row(file: &str, columns: usize, check: impl Fn(&Row)) {
    let mut rows = 0;
    for (number, line) in text(file).lines().enumerate() {
        if line.trim().is_empty() || line.starts_with('#') {
            continue;
        }
        let row = Row {
            place: format!("{file}:{}: {line}", number + 1),
            columns: line
                .split(" | ")
                .map(|column| column.trim().to_owned())
                .collect(),
        };
        assert_eq!(row.columns.len(), columns, "{}", row.place);
        check(&row);
        rows += 1;
    }
    assert!(rows >= 5, "{file} has only {rows} rows");
}

/// Replaces `\xNN` by the byte, and `<>` by nothing.
pub(crate) fn bytes(text: &str) -> Vec<u8> {
    let mut parts = text.strip_prefix("<>").unwrap_or(text).split("\\x");
    let mut bytes = parts.next().unwrap().as_bytes().to_vec();
    for part in parts {
        bytes.push(u8::from_str_radix(&part[..2], 16).unwrap());
        bytes.extend_from_slice(&part.as_bytes()[2..]);
    }
    bytes
}

/// Reads `name: value ;; name: value`. `-` means none.
pub(crate) fn headers(text: &str) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for line in text.split(";;").map(str::trim).filter(|line| *line != "-") {
        let (name, value) = line.split_once(':').unwrap();
        let name: HeaderName = name.trim().parse().unwrap();
        headers.append(name, HeaderValue::from_bytes(&bytes(value.trim())).unwrap());
    }
    headers
}

/// Tags and a date of the current representation.
#[derive(Debug)]
pub(crate) struct Current {
    pub(crate) tags: Vec<EntityTag>,
    pub(crate) last_modified: Option<HttpDate>,
}

/// Reads `"a" W/"b" @100`: tags, and the modification date in seconds. `-` means neither, `absent` no representation.
pub(crate) fn current(text: &str) -> Option<Current> {
    let mut current = Current {
        tags: Vec::new(),
        last_modified: None,
    };
    for word in text.split_whitespace().filter(|word| *word != "-") {
        match word.strip_prefix('@') {
            _ if word == "absent" => return None,
            Some(seconds) => {
                current.last_modified = Some(HttpDate::from_unix(seconds.parse().unwrap()));
            }
            None => current.tags.push(EntityTag::parse(&bytes(word)).unwrap()),
        }
    }
    Some(current)
}
