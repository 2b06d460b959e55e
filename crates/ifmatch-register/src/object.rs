//! A record in an object of its own: the object's name and content. For registers on stores of objects and on HTTP servers.

use std::fmt::Write;

use futures_util::future::try_join_all;
use ifmatch_core::digest::ContentHash;
use ifmatch_core::record::{Record, Revision};
use ifmatch_runtime::nonce;

use crate::key::Key;
use crate::register::{Register, RegisterError, RegisterErrorKind, Scan};

/// Maximum length of a key in the name of its object. The names of longer ones end in a hash: servers that keep objects in
/// files accept names of 255 bytes, and may encode them.
const LONGEST: usize = 110;
/// Length of that hash, in hexadecimal digits.
const HASH: usize = 32;

/// Returns the name of a key's object: `r`, then letters, digits, `-`, `_` and `.` as they are, other bytes as `=` and two
/// digits. The name of a long key ends in `+` and a hash.
///
/// ```
/// use ifmatch_register::{Key, object};
///
/// let key = Key::new("notes/7")?;
/// assert_eq!(object::name(&key), "rnotes=2f7");
/// assert_eq!(object::key("rnotes=2f7"), Some(key));
/// # Ok::<(), ifmatch_register::InvalidKey>(())
/// ```
pub fn name(key: &Key) -> String {
    let mut name = String::from("r");
    for byte in key.as_str().bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' => name.push(byte.into()),
            // Writing to a string cannot fail.
            _ => drop(write!(name, "={byte:02x}")),
        }
    }
    if name.len() > LONGEST {
        name.truncate(LONGEST);
        name.push('+');
        name.push_str(&ContentHash::of(key.as_str().as_bytes()).hex()[..HASH]);
    }
    name
}

/// Returns the key of a name, or `None` if the name doesn't contain all of it: the object's content does.
pub fn key(name: &str) -> Option<Key> {
    let mut bytes = Vec::with_capacity(name.len());
    let mut rest = name.strip_prefix('r')?.bytes();
    while let Some(byte) = rest.next() {
        match byte {
            b'=' => {
                let digits = [rest.next()?, rest.next()?];
                let [high, low] = digits.map(|digit| char::from(digit).to_digit(16));
                bytes.push(u8::try_from(16 * high? + low?).ok()?);
            }
            b'+' => return None,
            byte => bytes.push(byte),
        }
    }
    Key::new(String::from_utf8(bytes).ok()?).ok()
}

/// Encodes a record: its revision, the length of its key, its key, and the record itself. A removed record has the
/// revision zero and a random number, since a store may derive its tags from the content.
///
/// # Errors
/// Fails if the system provides no random number for a removed record. No [`Key`] is too long.
pub fn encode(key: &Key, record: Option<&Record>) -> Result<Vec<u8>, RegisterError> {
    let revision = record
        .map_or(Revision::NONE, Record::revision)
        .get()
        .to_be_bytes();
    let length = u16::try_from(key.as_str().len())
        .map_err(|error| RegisterError::new(RegisterErrorKind::Full, error))?;
    let record = match record {
        Some(record) => record.encode(),
        None => nonce()?.to_be_bytes().to_vec(),
    };
    Ok([
        &revision[..],
        &length.to_be_bytes(),
        key.as_str().as_bytes(),
        &record,
    ]
    .concat())
}

/// Decodes an object's content. A removed record is `None`.
///
/// # Errors
/// [`RegisterErrorKind::Unreadable`] if it isn't a record that this release can read.
pub fn decode(bytes: &[u8]) -> Result<(Key, Option<Record>), RegisterError> {
    let parts = || {
        let (revision, rest) = bytes.split_first_chunk::<8>()?;
        let (length, rest) = rest.split_first_chunk::<2>()?;
        let (key, record) = rest.split_at_checked(usize::from(u16::from_be_bytes(*length)))?;
        Some((
            u64::from_be_bytes(*revision),
            Key::new(str::from_utf8(key).ok()?).ok()?,
            record,
        ))
    };
    let (revision, key, record) = parts().ok_or(RegisterErrorKind::Unreadable)?;
    let record = if revision == 0 {
        None
    } else {
        Some(Record::decode(record)?)
    };
    Ok((key, record))
}

/// Number of records that [`page`] reads at the same time.
const PARALLEL: usize = 16;

/// Returns the page that a scan asks for, in the order of the keys. Records that have been removed since are left out.
/// Names sort differently from keys, so pass all `keys` that exist, in any order.
///
/// # Errors
/// A load failed.
pub async fn page(
    register: &dyn Register,
    mut keys: Vec<Key>,
    scan: &Scan<'_>,
) -> Result<Vec<(Key, Record)>, RegisterError> {
    let is_wanted = |key: &Key| {
        key.as_str().starts_with(scan.prefix) && scan.after.is_none_or(|after| key.as_str() > after)
    };
    keys.retain(is_wanted);
    keys.sort_unstable();
    let (mut page, mut rest) = (Vec::new(), keys.as_slice());
    while page.len() < scan.limit && !rest.is_empty() {
        let part = rest
            .split_off(..PARALLEL.min(scan.limit - page.len()).min(rest.len()))
            .unwrap_or_default();
        let records = try_join_all(part.iter().map(|key| register.load(key))).await?;
        page.extend(
            part.iter()
                .zip(records)
                .filter_map(|(key, record)| Some((key.clone(), record?))),
        );
    }
    Ok(page)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_contain_their_keys() {
        for text in ["a", ".", "..", "a/b//c", "é=+ %", &"/".repeat(20)] {
            let key = Key::new(text).expect("a key");
            let name = name(&key);
            assert!(
                !name.contains(['/', '%']) && !name.starts_with('.'),
                "{name} is one segment of a path"
            );
            assert_eq!(super::key(&name), Some(key));
        }
        let long = |last: char| Key::new("/".repeat(1_000) + &last.to_string()).expect("a key");
        assert_ne!(name(&long('a')), name(&long('b')));
        assert_eq!(key(&name(&long('a'))), None);
    }
}
