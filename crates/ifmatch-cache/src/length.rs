//! How long a response says that its body is.

use http::HeaderMap;
use http::header::CONTENT_LENGTH;

/// The length, if it is told. An error: what is told contradicts itself.
pub(crate) type Length = Result<Option<u64>, Contradiction>;

/// The header fields and the body do not agree, or are no number.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Contradiction;

/// What `Content-Length` says, and the body itself, if it knows.
pub(crate) fn declared(headers: &HeaderMap, exact: Option<u64>) -> Length {
    let mut lines = headers.get_all(CONTENT_LENGTH).iter();
    let told = match (lines.next(), lines.next()) {
        (None, _) => return Ok(exact),
        (Some(line), None) => line.to_str().ok().filter(|text| text.bytes().all(|byte| byte.is_ascii_digit())),
        (Some(_), Some(_)) => None,
    };
    let told = told.and_then(|digits| digits.parse().ok()).ok_or(Contradiction)?;
    if exact.is_some_and(|exact| exact != told) { Err(Contradiction) } else { Ok(Some(told)) }
}
