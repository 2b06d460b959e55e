//! Validation of a response's message framing.

use http::header::{CONTENT_LENGTH, TRANSFER_ENCODING};
use http::{HeaderMap, HeaderValue};
use ifmatch_core::fields;

/// The framing is ambiguous: recipients may disagree about the end of the content.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum InvalidFraming {
    #[error("the response has an unsupported transfer coding")]
    Coding,
    #[error("the response has both a Content-Length and a Transfer-Encoding")]
    Both,
    #[error("the Content-Length of the response is malformed or contradictory")]
    Length,
}

/// The registered transfer codings (RFC 9112 §7). Only `chunked` alone is supported.
const CODINGS: [&str; 6] = [
    "chunked",
    "compress",
    "deflate",
    "gzip",
    "x-compress",
    "x-gzip",
];

/// Checks the rules of RFC 9112 §6.1 and §6.3 that hyper doesn't enforce. A repeated length is reduced to one. With
/// unknown transfer codings, the content ends with the connection.
pub(crate) fn check(headers: &mut HeaderMap) -> Result<(), InvalidFraming> {
    let has_length = headers.contains_key(CONTENT_LENGTH);
    if headers.contains_key(TRANSFER_ENCODING) {
        let codings: Vec<_> = fields::members(headers, &TRANSFER_ENCODING)
            .map(<[u8]>::to_ascii_lowercase)
            .collect();
        let is_known = |coding: &Vec<u8>| {
            CODINGS
                .iter()
                .any(|known| coding.starts_with(known.as_bytes()))
        };
        let is_chunked = matches!(&codings[..], [only] if only == b"chunked");
        return match (is_chunked || !codings.iter().any(is_known), has_length) {
            (false, _) => Err(InvalidFraming::Coding),
            (true, true) => Err(InvalidFraming::Both),
            (true, false) => Ok(()),
        };
    }
    if has_length {
        let length = one_length(headers).ok_or(InvalidFraming::Length)?;
        headers.insert(CONTENT_LENGTH, HeaderValue::from(length));
    }
    Ok(())
}

fn one_length(headers: &HeaderMap) -> Option<u64> {
    let mut lengths = fields::members(headers, &CONTENT_LENGTH).map(|member| {
        let digits = std::str::from_utf8(member).ok()?;
        // The grammar has no sign.
        digits
            .parse::<u64>()
            .ok()
            .filter(|_| digits.bytes().all(|byte| byte.is_ascii_digit()))
    });
    let first = lengths.next()??;
    lengths.all(|length| length == Some(first)).then_some(first)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(lines: &[(&'static str, &'static str)]) -> Result<Option<String>, InvalidFraming> {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            headers.append(*name, HeaderValue::from_static(value));
        }
        check(&mut headers)?;
        assert!(headers.get_all(CONTENT_LENGTH).iter().count() < 2);
        Ok(headers
            .get(CONTENT_LENGTH)
            .map(|length| length.to_str().expect("digits").to_owned()))
    }

    #[test]
    fn ambiguous_framing_is_rejected() {
        let (length, coding) = ("content-length", "transfer-encoding");
        for (expected, lines) in [
            (Ok(None), &[][..]),
            (Ok(Some("5")), &[(length, "5")]),
            (Ok(Some("5")), &[(length, "5, 5"), (length, "5")]),
            (Ok(Some("5")), &[(length, "05")]),
            (Ok(None), &[(coding, "Chunked")]),
            (Err(InvalidFraming::Length), &[(length, "5, 6")]),
            (Err(InvalidFraming::Length), &[(length, "5"), (length, "6")]),
            (Err(InvalidFraming::Length), &[(length, "+5")]),
            (Err(InvalidFraming::Length), &[(length, "")]),
            (Err(InvalidFraming::Length), &[(length, "5,")]),
            (
                Err(InvalidFraming::Length),
                &[(length, "99999999999999999999")],
            ),
            (
                Err(InvalidFraming::Both),
                &[(coding, "chunked"), (length, "5")],
            ),
            (Err(InvalidFraming::Coding), &[(coding, "gzip, chunked")]),
            (
                Err(InvalidFraming::Coding),
                &[(coding, "chunked"), (coding, "chunked")],
            ),
            (
                Err(InvalidFraming::Coding),
                &[(coding, "identity, gzip;q=1")],
            ),
            (
                Err(InvalidFraming::Coding),
                &[(coding, "chunked"), (coding, "x")],
            ),
            (
                Err(InvalidFraming::Both),
                &[(coding, "identity"), (length, "5")],
            ),
            (Ok(None), &[(coding, "identity")]),
        ] {
            assert_eq!(
                checked(lines),
                expected.map(|length| length.map(str::to_owned)),
                "{lines:?}"
            );
        }
    }
}
