//! A normal form of `Accept-Encoding`, which the origin gets in place of the client's.
//!
//! A response that varies by the field is then selected by what the origin has seen, and browsers with different spellings share
//! it. The normal form lists the usual codings that the client accepts, in a fixed order and without weights.

use http::header::ACCEPT_ENCODING;
use http::{HeaderMap, HeaderValue};

use crate::policy::fields::members;

/// The codings that origins are offered, with their aliases (RFC 9110 §8.4.1.3).
const CODINGS: [(&str, &[&str]); 3] = [
    ("gzip", &["gzip", "x-gzip"]),
    ("br", &["br"]),
    ("zstd", &["zstd"]),
];

/// Replaces the field by its normal form. A request without the field keeps none.
pub(crate) fn normalize(headers: &mut HeaderMap) {
    if headers.contains_key(ACCEPT_ENCODING)
        && let Ok(normal) = HeaderValue::try_from(normal(headers))
    {
        headers.insert(ACCEPT_ENCODING, normal);
    }
}

/// Returns the codings that the client accepts and likes at least as much as none. Wildcards and other codings don't count, and
/// a member with a malformed weight isn't a coding.
fn normal(headers: &HeaderMap) -> String {
    let preferences: Vec<_> = members(headers.get_all(ACCEPT_ENCODING))
        .filter_map(parse)
        .collect();
    let best_weight = |names: &[&str]| {
        let named = preferences.iter().filter(|(name, _)| {
            names
                .iter()
                .any(|known| name.eq_ignore_ascii_case(known.as_bytes()))
        });
        named.map(|(_, weight)| *weight).max()
    };
    let least = best_weight(&["identity"]).unwrap_or_default().max(1);
    let accepted = CODINGS
        .iter()
        .filter(|(_, names)| best_weight(names).is_some_and(|weight| weight >= least));
    let accepted: Vec<_> = accepted.map(|(name, _)| *name).collect();
    if accepted.is_empty() {
        "identity".to_owned()
    } else {
        accepted.join(", ")
    }
}

/// Returns a coding, and its weight in thousandths.
fn parse(member: &[u8]) -> Option<(&[u8], u16)> {
    match member.iter().position(|byte| *byte == b';') {
        None => Some((member, 1_000)),
        Some(at) => Some((
            member[..at].trim_ascii(),
            weight(member[at + 1..].trim_ascii())?,
        )),
    }
}

/// Parses a weight such as `q=0.5`, in thousandths.
fn weight(parameter: &[u8]) -> Option<u16> {
    let digits = parameter
        .strip_prefix(b"q=")
        .or_else(|| parameter.strip_prefix(b"Q="))?;
    let (whole, decimals) = match digits {
        [whole @ (b'0' | b'1')] => (*whole, &[][..]),
        [whole @ (b'0' | b'1'), b'.', decimals @ ..] if decimals.len() <= 3 => (*whole, decimals),
        _ => return None,
    };
    let scale = [100, 10, 1];
    let digit = |(byte, scale): (&u8, u16)| {
        byte.is_ascii_digit()
            .then(|| u16::from(*byte - b'0') * scale)
    };
    let thousandths = decimals.iter().zip(scale).map(digit).sum::<Option<u16>>()?;
    let weight = u16::from(whole - b'0') * 1_000 + thousandths;
    (weight <= 1_000).then_some(weight)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equivalent_fields_have_one_normal_form() {
        for (expected, fields) in [
            (
                "gzip, br, zstd",
                &["gzip, deflate, br, zstd", "zstd;q=0.1,BR , gzip"][..],
            ),
            (
                "gzip, br",
                &[
                    "gzip, deflate, br",
                    "br;q=1.0, gzip;q=0.8, *;q=0.1",
                    "gzip, br;q=0.9, zstd;q=0",
                ],
            ),
            (
                "gzip",
                &[
                    "gzip",
                    "deflate, gzip",
                    "x-gzip",
                    "gzip;q=1.0,deflate;q=0.6,identity;q=0.3",
                    "gzip, evil\"<;q=0.1",
                ],
            ),
            (
                "identity",
                &[
                    "",
                    "identity",
                    "*",
                    "deflate",
                    "gzip;q=0",
                    "gzip;q=x",
                    "gzip;q=0.5, identity",
                    "identity;q=1, *;q=0",
                ],
            ),
        ] {
            for field in fields {
                let mut headers = HeaderMap::from_iter([(ACCEPT_ENCODING, field.parse().unwrap())]);
                normalize(&mut headers);
                assert_eq!(headers[ACCEPT_ENCODING], expected, "{field}");
                normalize(&mut headers);
                assert_eq!(
                    headers[ACCEPT_ENCODING], expected,
                    "the normal form of {expected} is itself"
                );
            }
        }
    }

    #[test]
    fn all_lines_are_read_and_none_is_added() {
        let mut headers = HeaderMap::new();
        normalize(&mut headers);
        assert!(headers.is_empty());
        for line in ["br", "gzip"] {
            headers.append(ACCEPT_ENCODING, HeaderValue::from_static(line));
        }
        normalize(&mut headers);
        assert_eq!(
            headers.get_all(ACCEPT_ENCODING).iter().collect::<Vec<_>>(),
            ["gzip, br"]
        );
    }
}
