//! The rules of Signature Version 4 that `s3s` leaves out.
//!
//! `s3s` verifies signatures, and compares the time of a request, and the end of a presigned URL, with the system's clock. It
//! accepts the older version 2, whose header has no time limit, and headers that the signature doesn't cover. The holder of a
//! presigned upload could thus add `x-amz-copy-source`, and copy any object. It also accepts signatures for another service, `sts`, for
//! which it reads a body before the signature is verified; and it knows no `Date`. So [`check`] comes first.

use http::header::{AUTHORIZATION, DATE};
use http::request::Parts;
use http::uri::PathAndQuery;
use http::{HeaderName, HeaderValue, Uri};
use ifmatch_core::date::HttpDate;
use percent_encoding::percent_decode_str;
use s3s::auth::{Credentials, SecretKey};
use s3s::{S3Error, S3ErrorCode, S3Request, S3Result, s3_error};
use time::OffsetDateTime;

use crate::bodies::chunks;
use crate::bodies::upload_body::{BODY_HASH, is_hash};
use crate::error;

/// The algorithm of Signature Version 4.
const ALGORITHM: &str = "AWS4-HMAC-SHA256";
/// The parameter with the signature of a presigned URL of version 4.
const SIGNATURE: &str = "X-Amz-Signature";
/// The same of version 2.
const SIGNATURE_2: &str = "Signature";
/// Maximum validity of a presigned URL, in seconds.
const MAX_EXPIRES: u64 = 7 * 24 * 60 * 60;
/// The service for which requests are signed.
const SERVICE: &str = "s3";
/// The time of a request, unless its `Date` is signed.
const X_AMZ_DATE: HeaderName = HeaderName::from_static("x-amz-date");

/// Returns `true` if a query has a signature of S3.
pub fn is_presigned(query: Option<&str>) -> bool {
    query.is_some_and(|query| has(&parameters(query), SIGNATURE))
}

/// Returns `true` if a request has no signature, and attempts none.
pub(crate) fn is_anonymous(head: &Parts, query: &[(String, String)]) -> bool {
    let is_of_signature =
        |name: &str| name.starts_with("X-Amz-") || name == SIGNATURE_2 || name == "AWSAccessKeyId";
    !head.headers.contains_key(AUTHORIZATION)
        && !query.iter().any(|(name, _)| is_of_signature(name))
}

/// Checks the form of a request's signature, not the signature itself. Returns the access key id. A signed `Date` takes the place of
/// `x-amz-date`, which is the only one that `s3s` knows.
pub(crate) fn check(head: &mut Parts, query: &[(String, String)]) -> S3Result<String> {
    let Signature { credential, signed } = Signature::of(head, query)?;
    check_body_hash(head)?;
    let is_signed = |name: &str| {
        signed
            .split(';')
            .any(|other| other.eq_ignore_ascii_case(name))
    };
    let names = head.headers.keys().map(HeaderName::as_str);
    // The hash of the body is signed in another form, or, in presigned requests, only makes a check stricter.
    let mut needed = names.filter(|name| name.starts_with("x-amz-") && *name != BODY_HASH);
    let unsigned = needed.find(|name| !is_signed(name));
    if let Some(name) = unsigned.or((!is_signed("host")).then_some("host")) {
        return Err(s3_error!(
            AccessDenied,
            "the signature does not cover the header {name}: sign it"
        ));
    }
    if head.headers.contains_key(AUTHORIZATION) && !head.headers.contains_key(X_AMZ_DATE) {
        let date = HttpDate::from_headers(&head.headers, DATE)
            .filter(|_| is_signed("date"))
            .and_then(amz_date);
        let missing = || {
            s3_error!(
                AccessDenied,
                "the request must have a time that is signed: x-amz-date, or Date"
            )
        };
        head.headers.insert(X_AMZ_DATE, date.ok_or_else(missing)?);
    }
    Ok(credential.split('/').next().unwrap_or_default().to_owned())
}

/// Marks a request of the account with this access key id, whose signature was verified, and then removed.
#[derive(Clone)]
pub(crate) struct VerifiedAccount(pub(crate) String);

/// Removes the signature of a request after it was verified, so the request can be changed.
/// [`AccessCheck`](crate::authorization::AccessCheck) admits it only for the operations that know the account nevertheless.
pub(crate) fn remove(head: &mut Parts, access_key: String) -> S3Result<()> {
    head.headers.remove(AUTHORIZATION);
    let query = head.uri.query().unwrap_or_default().split('&');
    let query: Vec<_> = query.filter(|part| !is_presigned(Some(part))).collect();
    let path = format!("{}?{}", head.uri.path(), query.join("&"));
    let path = PathAndQuery::try_from(path).map_err(|error| s3_error!(error, InvalidURI))?;
    let mut parts = head.uri.clone().into_parts();
    parts.path_and_query = Some(path);
    head.uri = Uri::from_parts(parts).map_err(|error| s3_error!(error, InvalidURI))?;
    head.extensions.insert(VerifiedAccount(access_key));
    Ok(())
}

/// Returns a request with the access key id of the signature that was [removed](remove) from it.
pub(crate) fn verified<T>(mut request: S3Request<T>) -> S3Request<T> {
    if let Some(VerifiedAccount(access_key)) = request.extensions.remove() {
        request.credentials = Some(Credentials {
            access_key,
            secret_key: SecretKey::from(String::new()),
        });
    }
    request
}

/// What a request states about its signature, in its header or in its URL.
struct Signature {
    /// The access key id, and what it signs for.
    credential: String,
    /// The names of the signed headers.
    signed: String,
}

impl Signature {
    /// Reads the header or the URL. Refuses other ways to sign, and other services.
    fn of(head: &Parts, query: &[(String, String)]) -> S3Result<Self> {
        let header = header(head)?;
        let signature = match (header, has(query, SIGNATURE), has(query, SIGNATURE_2)) {
            (Some(text), false, false) if text.starts_with(ALGORITHM) => Self {
                credential: field(text, "Credential=")?.to_owned(),
                signed: field(text, "SignedHeaders=")?.to_owned(),
            },
            (None, true, false) => presigned(query)?,
            (None, false, false) => return Err(error::unsigned()),
            (Some(_), true, _) => {
                let rule = "sign a request by its header or its URL, not by both";
                return Err(s3_error!(InvalidRequest, "{rule}"));
            }
            _ => {
                let rule = format!("sign the request with {ALGORITHM} (Signature Version 4)");
                return Err(s3_error!(InvalidRequest, "{rule}"));
            }
        };
        let service = signature.credential.split('/').nth(3);
        if service.is_some_and(|service| service != SERVICE) {
            let code = match header {
                Some(_) => S3ErrorCode::AuthorizationHeaderMalformed,
                None => S3ErrorCode::AuthorizationQueryParametersError,
            };
            let rule = format!("the credential must be one for the service {SERVICE}");
            return Err(S3Error::with_message(code, rule));
        }
        Ok(signature)
    }
}

/// Refuses a hash of the body that is repeated or has another form. `s3s` ignores it, and stores what it would have verified, or the
/// lines between chunks.
fn check_body_hash(head: &Parts) -> S3Result<()> {
    let mut lines = head.headers.get_all(BODY_HASH).iter();
    let is_known = |value: &[u8]| {
        chunks::KINDS.contains(&value) || value == b"UNSIGNED-PAYLOAD" || is_hash(value)
    };
    match (lines.next(), lines.next()) {
        (None, None) => Ok(()),
        (Some(value), None) if is_known(value.as_bytes()) => Ok(()),
        _ => Err(s3_error!(
            InvalidArgument,
            "{BODY_HASH} must be one of UNSIGNED-PAYLOAD, STREAMING-UNSIGNED-PAYLOAD-TRAILER, STREAMING-AWS4-HMAC-SHA256-PAYLOAD, \
             STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER, and the SHA-256 in hexadecimal digits"
        )),
    }
}

/// Returns a time as `20261124T192224Z`.
fn amz_date(date: HttpDate) -> Option<HeaderValue> {
    let date = OffsetDateTime::from_unix_timestamp(date.unix()).ok()?;
    let (year, month, day) = date.to_calendar_date();
    let (hour, minute, second) = date.to_hms();
    HeaderValue::try_from(format!(
        "{year:04}{:02}{day:02}T{hour:02}{minute:02}{second:02}Z",
        u8::from(month)
    ))
    .ok()
}

/// Returns the only `Authorization` header.
fn header(head: &Parts) -> S3Result<Option<&str>> {
    let mut lines = head.headers.get_all(AUTHORIZATION).iter();
    match (lines.next(), lines.next()) {
        (None, _) => Ok(None),
        (Some(line), None) => {
            let malformed = |_| s3_error!(InvalidRequest, "the header authorization is malformed");
            line.to_str().map(Some).map_err(malformed)
        }
        (Some(_), Some(_)) => {
            let rule = "there must be only one header authorization";
            Err(s3_error!(InvalidRequest, "{rule}"))
        }
    }
}

/// Returns the value of a field of the `Authorization` header, which must occur once.
fn field<'a>(text: &'a str, name: &str) -> S3Result<&'a str> {
    let malformed = || {
        s3_error!(
            AuthorizationHeaderMalformed,
            "the header authorization must have one {name}"
        )
    };
    let (_, rest) = text.split_once(name).ok_or_else(malformed)?;
    if rest.contains(name) {
        return Err(malformed());
    }
    Ok(rest.split(',').next().unwrap_or_default().trim())
}

/// Returns the credential and the signed headers of a presigned URL.
fn presigned(query: &[(String, String)]) -> S3Result<Signature> {
    let only = |wanted: &str| {
        let mut found = query.iter().filter(|(name, _)| name == wanted);
        match (found.next(), found.next()) {
            (Some((_, value)), None) => Ok(value),
            _ => Err(s3_error!(
                AuthorizationQueryParametersError,
                "a presigned URL must have one {wanted}"
            )),
        }
    };
    let expires = only("X-Amz-Expires")?;
    // The parser of numbers takes a sign, too.
    let is_number = expires.bytes().all(|byte| byte.is_ascii_digit());
    let seconds = expires.parse::<u64>().ok().filter(|_| is_number);
    if seconds.is_none_or(|seconds| seconds > MAX_EXPIRES) {
        let rule = "X-Amz-Expires must be a number of seconds, at most 604800 (7 days)";
        return Err(s3_error!(AuthorizationQueryParametersError, "{rule}"));
    }
    Ok(Signature {
        credential: only("X-Amz-Credential")?.clone(),
        signed: only("X-Amz-SignedHeaders")?.clone(),
    })
}

/// Returns `true` if a query has a parameter with this name.
fn has(query: &[(String, String)], name: &str) -> bool {
    query.iter().any(|(other, _)| other == name)
}

/// Returns the decoded parameters of a query.
pub(crate) fn parameters(query: &str) -> Vec<(String, String)> {
    let decode = |text: &str| {
        percent_decode_str(&text.replace('+', " "))
            .decode_utf8_lossy()
            .into_owned()
    };
    let pair = |part: &str| {
        let (name, value) = part.split_once('=').unwrap_or((part, ""));
        (decode(name), decode(value))
    };
    let parts = query.split('&').filter(|part| !part.is_empty());
    parts.map(pair).collect()
}

#[cfg(test)]
mod tests {
    use http::Request;
    use s3s::S3ErrorCode;

    use super::*;

    const SCOPE: &str = "photos/20260101/us-east-1/s3/aws4_request";

    fn checked(path: &str, headers: &[(&str, &str)]) -> Result<String, S3ErrorCode> {
        let request = headers
            .iter()
            .fold(Request::put(path), |request, (name, value)| {
                request.header(*name, *value)
            });
        check_head(&mut request.body(()).unwrap().into_parts().0)
    }

    fn check_head(head: &mut Parts) -> Result<String, S3ErrorCode> {
        let query = parameters(head.uri.query().unwrap_or_default());
        check(head, &query).map_err(|error| error.code().clone())
    }

    #[test]
    fn a_signature_must_cover_the_host_and_all_headers_of_amazon() {
        let signed = |names: &str| {
            format!("{ALGORITHM} Credential={SCOPE},SignedHeaders={names}, Signature=00")
        };
        let by_header = |names: &str, other: &str| {
            let (authorization, body) =
                (signed(names), ("x-amz-content-sha256", "UNSIGNED-PAYLOAD"));
            let date = ("date", "Tue, 24 Nov 2026 19:22:24 GMT");
            checked(
                "/bucket/key",
                &[
                    ("authorization", &authorization),
                    (other, "/a/b"),
                    body,
                    date,
                ],
            )
        };
        assert_eq!(
            by_header("host;x-amz-date", "x-amz-date"),
            Ok("photos".to_owned())
        );
        assert_eq!(by_header("host;date", "if-match"), Ok("photos".to_owned()));
        assert_eq!(
            by_header("host", "if-match"),
            Err(S3ErrorCode::AccessDenied)
        );
        assert_eq!(
            by_header("x-amz-date", "x-amz-date"),
            Err(S3ErrorCode::AccessDenied)
        );
        assert_eq!(
            by_header("host", "x-amz-copy-source"),
            Err(S3ErrorCode::AccessDenied)
        );
        let by_url = |names: &str, expires: &str, other: &str| {
            let credential = SCOPE.replace('/', "%2F");
            let signature =
                format!("X-Amz-Signature=00&X-Amz-Expires={expires}&X-Amz-SignedHeaders={names}");
            checked(
                &format!("/bucket/key?X-Amz-Credential={credential}&{signature}"),
                &[(other, "/a/b")],
            )
        };
        assert_eq!(
            by_url("host", "604800", "if-match"),
            Ok("photos".to_owned())
        );
        assert_eq!(
            by_url("host%3Bx-amz-copy-source", "60", "x-amz-copy-source"),
            Ok("photos".to_owned())
        );
        assert_eq!(
            by_url("host", "60", "x-amz-copy-source"),
            Err(S3ErrorCode::AccessDenied)
        );
        for expires in [
            "604801",
            "%2B300",
            "+300",
            "-1",
            "",
            "1e3",
            "99999999999999999999",
        ] {
            assert_eq!(
                by_url("host", expires, "if-match"),
                Err(S3ErrorCode::AuthorizationQueryParametersError)
            );
        }
        assert_eq!(
            by_url("host&X-Amz-Expires=1", "60", "if-match"),
            Err(S3ErrorCode::AuthorizationQueryParametersError)
        );
    }

    #[test]
    fn a_hash_of_the_body_is_one_of_the_known_forms() {
        let checked = |hashes: &[&str]| {
            let url = format!(
                "/b/k?X-Amz-Credential={}&X-Amz-Signature=00&X-Amz-Expires=60&X-Amz-SignedHeaders=host",
                SCOPE.replace('/', "%2F")
            );
            let hashes: Vec<_> = hashes.iter().map(|hash| (BODY_HASH, *hash)).collect();
            super::tests::checked(&url, &hashes).map(drop)
        };
        let hash = "0".repeat(64);
        for known in [
            "UNSIGNED-PAYLOAD",
            "STREAMING-UNSIGNED-PAYLOAD-TRAILER",
            &hash,
        ] {
            assert_eq!(checked(&[known]), Ok(()), "{known}");
            assert_eq!(
                checked(&[known, known]),
                Err(S3ErrorCode::InvalidArgument),
                "{known} twice"
            );
        }
        assert_eq!(checked(&[]), Ok(()));
        for unknown in [
            "",
            "streaming",
            "STREAMING-AWS4-ECDSA-P256-SHA256-PAYLOAD",
            &hash[1..],
        ] {
            assert_eq!(
                checked(&[unknown]),
                Err(S3ErrorCode::InvalidArgument),
                "{unknown}"
            );
        }
    }

    #[test]
    fn other_ways_to_sign_are_refused() {
        assert_eq!(checked("/bucket/key", &[]), Err(S3ErrorCode::AccessDenied));
        assert_eq!(
            checked("/bucket/key", &[("authorization", "AWS photos:00")]),
            Err(S3ErrorCode::InvalidRequest)
        );
        assert_eq!(
            checked("/bucket/key?AWSAccessKeyId=photos&Signature=00", &[]),
            Err(S3ErrorCode::InvalidRequest)
        );
        assert_eq!(
            checked("/bucket/key?%53ignature=00&X-Amz-Signature=00", &[]),
            Err(S3ErrorCode::InvalidRequest)
        );
    }

    #[test]
    fn a_signed_date_takes_the_place_of_x_amz_date() {
        let dated = |signed: &str, headers: &[(&str, &str)]| {
            let text =
                format!("{ALGORITHM} Credential={SCOPE}, SignedHeaders={signed}, Signature=00");
            let request = headers
                .iter()
                .fold(Request::get("/a/b"), |request, (name, value)| {
                    request.header(*name, *value)
                });
            let mut head = request
                .header("authorization", text)
                .body(())
                .unwrap()
                .into_parts()
                .0;
            check_head(&mut head).ok()?;
            head.headers
                .get(X_AMZ_DATE)
                .map(|date| date.to_str().unwrap().to_owned())
        };
        let date = ("date", "Tue, 24 Nov 2026 19:22:24 GMT");
        assert_eq!(
            dated("date;host", &[date]).as_deref(),
            Some("20261124T192224Z")
        );
        assert_eq!(dated("host", &[date]), None);
        assert_eq!(dated("date;host", &[("date", "yesterday")]), None);
        assert_eq!(dated("date;host", &[]), None);
        let own = ("x-amz-date", "20261124T000000Z");
        assert_eq!(
            dated("date;host;x-amz-date", &[date, own]).as_deref(),
            Some("20261124T000000Z")
        );
    }

    #[test]
    fn a_signature_for_another_service_is_refused() {
        let scope = SCOPE.replace("/s3/", "/sts/");
        let text =
            format!("{ALGORITHM} Credential={scope}, SignedHeaders=host;x-amz-date, Signature=00");
        let headers = [
            ("authorization", &*text),
            ("x-amz-date", "20261124T000000Z"),
        ];
        assert_eq!(
            checked("/bucket/key", &headers),
            Err(S3ErrorCode::AuthorizationHeaderMalformed)
        );
        let presigned = format!(
            "/bucket/key?X-Amz-Credential={}&X-Amz-Signature=00&X-Amz-Expires=60&X-Amz-SignedHeaders=host",
            scope.replace('/', "%2F")
        );
        assert_eq!(
            checked(&presigned, &[]),
            Err(S3ErrorCode::AuthorizationQueryParametersError)
        );
    }

    #[test]
    fn a_signature_is_removed_with_nothing_else() {
        let uri = "http://host/a%2Fb/c?X-Amz-Expires=1&%58-Amz-Signature=00&versionId=null";
        let mut head = Request::get(uri)
            .header("authorization", "a")
            .body(())
            .unwrap()
            .into_parts()
            .0;
        remove(&mut head, "photos".into()).unwrap();
        assert_eq!(
            head.uri,
            "http://host/a%2Fb/c?X-Amz-Expires=1&versionId=null"
        );
        assert!(!head.headers.contains_key(AUTHORIZATION));
    }
}
