//! Access control by bearer tokens (RFC 6750), for reading and for writing.

use http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use ifmatch_core::problem::Problem;
use sha2::{Digest, Sha256};
use subtle::{Choice, ConstantTimeEq};
use thiserror::Error;

/// The tokens that a server accepts. Without any tokens every request is allowed, unless access is [never
/// open](Self::never_open).
///
/// Only SHA-256 digests are stored, and they are compared in constant time, so neither response times nor a dump of
/// this value reveals a token.
///
/// ```
/// use http::{HeaderMap, HeaderValue, Method};
/// use ifmatch_blob::access::{Access, Denied};
///
/// let access = Access::new(&["reader"], &["writer"]).unwrap();
/// let mut headers = HeaderMap::new();
/// assert_eq!(access.check(&Method::GET, &headers), Err(Denied::NoToken));
/// headers.insert("authorization", HeaderValue::from_static("Bearer reader"));
/// assert_eq!(access.check(&Method::GET, &headers), Ok(()));
/// assert_eq!(access.check(&Method::PUT, &headers), Err(Denied::NotForWriting));
/// ```
#[derive(Clone, Debug, Default)]
pub struct Access {
    read: Vec<TokenDigest>,
    write: Vec<TokenDigest>,
    never_open: bool,
    public_read: bool,
}

/// The reason why a request was denied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Denied {
    /// The request carries no bearer token (401).
    NoToken,
    /// The token is unknown (401).
    UnknownToken,
    /// The token may only read (403).
    NotForWriting,
}

/// The text isn't a valid token. The message doesn't show it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("a token must be visible ASCII without spaces, at least one character long")]
pub struct InvalidToken(());

impl Denied {
    /// Returns the response to the request (RFC 6750 §3).
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
                "unknown token",
                r#"Bearer realm="ifmatch", error="invalid_token""#,
            ),
            Self::NotForWriting => (
                StatusCode::FORBIDDEN,
                "not-for-writing",
                "this token may only read. Use a write token",
                r#"Bearer realm="ifmatch", error="insufficient_scope""#,
            ),
        };
        let challenge = HeaderValue::from_static(challenge);
        Problem::new(status, name)
            .detail(detail)
            .header(header::WWW_AUTHENTICATE, challenge)
    }
}

type TokenDigest = [u8; 32];

impl Access {
    /// Creates access control with these tokens.
    ///
    /// # Errors
    /// A token is empty, or contains characters that a header can't carry.
    pub fn new<T: AsRef<str>>(read: &[T], write: &[T]) -> Result<Self, InvalidToken> {
        let digests = |tokens: &[T]| {
            tokens
                .iter()
                .map(|token| digest(token.as_ref()))
                .collect::<Result<_, _>>()
        };
        Ok(Self {
            read: digests(read)?,
            write: digests(write)?,
            never_open: false,
            public_read: false,
        })
    }

    /// Denies every request while no token is configured.
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
        Self {
            never_open: true,
            ..self
        }
    }

    /// Allows [`check`](Self::check) to admit reads without a token.
    ///
    /// ```
    /// use http::{HeaderMap, Method};
    /// use ifmatch_blob::access::{Access, Denied};
    ///
    /// let access = Access::new(&[], &["writer"]).unwrap().public_read(true);
    /// assert_eq!(access.check(&Method::GET, &HeaderMap::new()), Ok(()));
    /// assert_eq!(access.check(&Method::PUT, &HeaderMap::new()), Err(Denied::NoToken));
    /// assert_eq!(access.check_token(&Method::GET, &HeaderMap::new()), Err(Denied::NoToken));
    /// ```
    #[must_use]
    pub fn public_read(self, public_read: bool) -> Self {
        Self {
            public_read,
            ..self
        }
    }

    /// Returns `true` if reads need no token, on any address.
    pub fn is_public_read(&self) -> bool {
        self.public_read
    }

    /// Returns `true` if no token is needed.
    pub fn is_open(&self) -> bool {
        !self.never_open && self.has_no_tokens()
    }

    /// Returns `true` if there are no tokens.
    pub fn has_no_tokens(&self) -> bool {
        self.read.is_empty() && self.write.is_empty()
    }

    /// Checks if a request for a blob with this method and these headers is allowed.
    ///
    /// # Errors
    /// The token is missing, unknown, or not allowed to write.
    pub fn check(&self, method: &Method, headers: &HeaderMap) -> Result<(), Denied> {
        if self.public_read && method.is_safe() {
            Ok(())
        } else {
            self.check_token(method, headers)
        }
    }

    /// Checks if a request to an endpoint of operators is allowed. It needs a token even if reads of blobs don't.
    ///
    /// # Errors
    /// The token is missing, unknown, or not allowed to write.
    pub fn check_token(&self, method: &Method, headers: &HeaderMap) -> Result<(), Denied> {
        if self.is_open() {
            return Ok(());
        }
        let token = bearer(headers).ok_or(Denied::NoToken)?;
        let digest = TokenDigest::from(Sha256::digest(token));
        let (reads, writes) = (
            is_one_of(&digest, &self.read),
            is_one_of(&digest, &self.write),
        );
        match (bool::from(writes), bool::from(reads)) {
            (true, _) => Ok(()),
            (false, true) if method.is_safe() => Ok(()),
            (false, true) => Err(Denied::NotForWriting),
            (false, false) => Err(Denied::UnknownToken),
        }
    }
}

/// Returns the credentials of `Authorization: Bearer`, which must not be repeated.
fn bearer(headers: &HeaderMap) -> Option<&[u8]> {
    let mut lines = headers.get_all(header::AUTHORIZATION).iter();
    let (line, None) = (lines.next()?, lines.next()) else {
        return None;
    };
    let (scheme, token) = line.as_bytes().split_at_checked("Bearer ".len())?;
    scheme
        .eq_ignore_ascii_case(b"Bearer ")
        .then(|| token.trim_ascii())
}

/// Compares with every digest, even after a match.
fn is_one_of(digest: &TokenDigest, known: &[TokenDigest]) -> Choice {
    known
        .iter()
        .fold(Choice::from(0), |found, known| found | known.ct_eq(digest))
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
    fn every_method_with_every_kind_of_token() {
        let access = Access::new(&["r1", "r2"], &["w1"]).unwrap();
        for method in [Method::GET, Method::HEAD, Method::OPTIONS] {
            assert_eq!(check(&access, &method, &["Bearer r2"]), Ok(()), "{method}");
            assert_eq!(check(&access, &method, &["bearer w1"]), Ok(()), "{method}");
            assert_eq!(
                check(&access, &method, &["Bearer no"]),
                Err(Denied::UnknownToken),
                "{method}"
            );
            assert_eq!(
                check(&access, &method, &[]),
                Err(Denied::NoToken),
                "{method}"
            );
        }
        for method in [Method::PUT, Method::DELETE, Method::POST, Method::PATCH] {
            assert_eq!(check(&access, &method, &["Bearer w1"]), Ok(()), "{method}");
            assert_eq!(
                check(&access, &method, &["Bearer r1"]),
                Err(Denied::NotForWriting),
                "{method}"
            );
            assert_eq!(
                check(&access, &method, &["Bearer w"]),
                Err(Denied::UnknownToken),
                "{method}"
            );
        }
    }

    #[test]
    fn rejects_other_schemes_and_repeated_headers() {
        let access = Access::new(&[], &["w1"]).unwrap();
        for lines in [
            &["Basic w1"][..],
            &["w1"],
            &["Bearer"],
            &["Bearer w1", "Bearer w1"],
            &["Bearer no", "Bearer w1"],
        ] {
            assert_eq!(
                check(&access, &Method::GET, lines),
                Err(Denied::NoToken),
                "{lines:?}"
            );
        }
        assert_eq!(
            check(&access, &Method::GET, &["Bearer "]),
            Err(Denied::UnknownToken)
        );
    }

    #[test]
    fn writes_need_a_write_token() {
        let access = Access::new(&["r1"], &[]).unwrap();
        assert_eq!(
            check(&access, &Method::PUT, &["Bearer r1"]),
            Err(Denied::NotForWriting)
        );
    }

    #[test]
    fn rejects_tokens_that_no_header_can_carry() {
        for token in ["", "a b", "gr\u{fc}n", "a\n"] {
            assert!(Access::new(&[token], &[]).is_err(), "{token:?}");
        }
    }

    #[test]
    fn debug_output_shows_no_token() {
        let access = Access::new(&["hunter2hunter2"], &[]).unwrap();
        assert!(!format!("{access:?}").contains("hunter2"));
    }
}
