//! Who may do what: bearer tokens (RFC 6750) for reading and for writing.

use http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use ifmatch_core::problem::Problem;
use sha2::{Digest, Sha256};
use subtle::{Choice, ConstantTimeEq};
use thiserror::Error;

/// The tokens that open a server; with none at all, everything is allowed, unless it is [never
/// open](Self::never_open).
///
/// Only SHA-256 digests are kept and compared, each in constant time, so that neither the time of an answer nor a
/// dump of this value tells a token.
///
/// ```
/// use http::{HeaderMap, HeaderValue, Method};
/// use ifmatch_blob::access::{Access, Denied};
///
/// let access = Access::new(&["see-only"], &["see-and-change"]).unwrap();
/// let mut headers = HeaderMap::new();
/// assert_eq!(access.check(&Method::GET, &headers), Err(Denied::NoToken));
/// headers.insert("authorization", HeaderValue::from_static("Bearer see-only"));
/// assert_eq!(access.check(&Method::GET, &headers), Ok(()));
/// assert_eq!(access.check(&Method::PUT, &headers), Err(Denied::NotForWriting));
/// ```
#[derive(Clone, Debug, Default)]
pub struct Access {
    read: Vec<TokenDigest>,
    write: Vec<TokenDigest>,
    never_open: bool,
}

/// Why a request was not let in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Denied {
    /// It carries no bearer token (401).
    NoToken,
    /// It carries a token that opens nothing (401).
    UnknownToken,
    /// Its token may read, and it asks to write (403).
    NotForWriting,
}

/// The text cannot be a token. The message does not show it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("a token must be visible ASCII without spaces, at least one character long")]
pub struct InvalidToken(());

impl Denied {
    /// The answer to the request (RFC 6750 §3).
    ///
    /// ```
    /// use http::StatusCode;
    /// use ifmatch_blob::access::Denied;
    ///
    /// assert_eq!(Denied::NotForWriting.to_problem().status(), StatusCode::FORBIDDEN);
    /// ```
    pub fn to_problem(self) -> Problem {
        let (status, name, detail, challenge) = match self {
            Self::NoToken => (
                StatusCode::UNAUTHORIZED,
                "no-token",
                "send a token: Authorization: Bearer …",
                r#"Bearer realm="ifmatch""#,
            ),
            Self::UnknownToken => (
                StatusCode::UNAUTHORIZED,
                "unknown-token",
                "this token opens nothing here",
                r#"Bearer realm="ifmatch", error="invalid_token""#,
            ),
            Self::NotForWriting => (
                StatusCode::FORBIDDEN,
                "not-for-writing",
                "this token may only read: use one that may write",
                r#"Bearer realm="ifmatch", error="insufficient_scope""#,
            ),
        };
        let challenge = HeaderValue::from_static(challenge);
        Problem::new(status, name).detail(detail).header(header::WWW_AUTHENTICATE, challenge)
    }
}

type TokenDigest = [u8; 32];

impl Access {
    /// Access by these tokens.
    ///
    /// # Errors
    /// A token is empty or holds characters that a header cannot carry.
    pub fn new<T: AsRef<str>>(read: &[T], write: &[T]) -> Result<Self, InvalidToken> {
        let digests = |tokens: &[T]| tokens.iter().map(|token| digest(token.as_ref())).collect::<Result<_, _>>();
        Ok(Self { read: digests(read)?, write: digests(write)?, never_open: false })
    }

    /// Lets nobody in without a token, not even where there are none.
    ///
    /// ```
    /// use http::{HeaderMap, Method};
    /// use ifmatch_blob::access::{Access, Denied};
    ///
    /// let access = Access::default().never_open();
    /// assert_eq!(access.check(&Method::GET, &HeaderMap::new()), Err(Denied::NoToken));
    /// ```
    #[must_use]
    pub fn never_open(self) -> Self {
        Self { never_open: true, ..self }
    }

    /// Whether no token is needed.
    pub fn is_open(&self) -> bool {
        !self.never_open && self.has_no_tokens()
    }

    /// Whether there is no token at all.
    pub fn has_no_tokens(&self) -> bool {
        self.read.is_empty() && self.write.is_empty()
    }

    /// Whether a request with this method and these headers is let in.
    ///
    /// # Errors
    /// Says why not.
    pub fn check(&self, method: &Method, headers: &HeaderMap) -> Result<(), Denied> {
        if self.is_open() {
            return Ok(());
        }
        let token = bearer(headers).ok_or(Denied::NoToken)?;
        let digest = TokenDigest::from(Sha256::digest(token));
        let (reads, writes) = (is_one_of(&digest, &self.read), is_one_of(&digest, &self.write));
        match (bool::from(writes), bool::from(reads)) {
            (true, _) => Ok(()),
            (false, true) if method.is_safe() => Ok(()),
            (false, true) => Err(Denied::NotForWriting),
            (false, false) => Err(Denied::UnknownToken),
        }
    }
}

/// The credentials of the one `Authorization: Bearer` line; a repeated header is no credential.
fn bearer(headers: &HeaderMap) -> Option<&[u8]> {
    let mut lines = headers.get_all(header::AUTHORIZATION).iter();
    let (line, None) = (lines.next()?, lines.next()) else { return None };
    let (scheme, token) = line.as_bytes().split_at_checked("Bearer ".len())?;
    scheme.eq_ignore_ascii_case(b"Bearer ").then(|| token.trim_ascii())
}

/// Looks at every known digest, whatever the first ones say.
fn is_one_of(digest: &TokenDigest, known: &[TokenDigest]) -> Choice {
    known.iter().fold(Choice::from(0), |found, known| found | known.ct_eq(digest))
}

fn digest(token: &str) -> Result<TokenDigest, InvalidToken> {
    if token.is_empty() || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(InvalidToken(()));
    }
    Ok(Sha256::digest(token).into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    fn check(access: &Access, method: &Method, lines: &[&'static str]) -> Result<(), Denied> {
        let mut headers = HeaderMap::new();
        for line in lines {
            headers.append(header::AUTHORIZATION, HeaderValue::from_static(line));
        }
        access.check(method, &headers)
    }

    #[test]
    fn every_method_with_every_sort_of_token() {
        let access = Access::new(&["r1", "r2"], &["w1"]).unwrap();
        for method in [Method::GET, Method::HEAD, Method::OPTIONS] {
            assert_eq!(check(&access, &method, &["Bearer r2"]), Ok(()), "{method}");
            assert_eq!(check(&access, &method, &["bearer w1"]), Ok(()), "{method}");
            assert_eq!(check(&access, &method, &["Bearer no"]), Err(Denied::UnknownToken), "{method}");
            assert_eq!(check(&access, &method, &[]), Err(Denied::NoToken), "{method}");
        }
        for method in [Method::PUT, Method::DELETE, Method::POST, Method::PATCH] {
            assert_eq!(check(&access, &method, &["Bearer w1"]), Ok(()), "{method}");
            assert_eq!(check(&access, &method, &["Bearer r1"]), Err(Denied::NotForWriting), "{method}");
            assert_eq!(check(&access, &method, &["Bearer w"]), Err(Denied::UnknownToken), "{method}");
        }
    }

    #[test]
    fn other_schemes_and_repeated_lines_are_no_credentials() {
        let access = Access::new(&[], &["w1"]).unwrap();
        for lines in [&["Basic w1"][..], &["w1"], &["Bearer"], &["Bearer w1", "Bearer w1"], &["Bearer no", "Bearer w1"]]
        {
            assert_eq!(check(&access, &Method::GET, lines), Err(Denied::NoToken), "{lines:?}");
        }
        assert_eq!(check(&access, &Method::GET, &["Bearer "]), Err(Denied::UnknownToken));
    }

    #[test]
    fn without_write_tokens_nobody_writes() {
        let access = Access::new(&["r1"], &[]).unwrap();
        assert_eq!(check(&access, &Method::PUT, &["Bearer r1"]), Err(Denied::NotForWriting));
    }

    #[test]
    fn a_token_that_no_header_can_carry_is_refused() {
        for token in ["", "a b", "gr\u{fc}n", "a\n"] {
            assert!(Access::new(&[token], &[]).is_err(), "{token:?}");
        }
    }

    #[test]
    fn the_debug_text_does_not_hold_a_token() {
        let access = Access::new(&["hunter2hunter2"], &[]).unwrap();
        assert!(!format!("{access:?}").contains("hunter2"));
    }
}
