//! The rules of Signature Version 4 that `s3s` leaves out, and the operations that need no signature where everyone may read.
//!
//! `s3s` verifies signatures, and compares the time of a request, and the end of a presigned URL, with the system's clock. It
//! accepts the older version 2, whose header has no time limit, and headers that the signature does not cover. The holder of a
//! presigned upload could thus add `x-amz-copy-source`, and copy any object.

use http::header::{AUTHORIZATION, CONTENT_TYPE};
use http::request::Parts;
use http::{HeaderValue, Method};
use percent_encoding::percent_decode_str;
use s3s::access::{S3Access, S3AccessContext};
use s3s::{S3Error, S3Result, s3_error};

/// The algorithm of Signature Version 4.
const ALGORITHM: &str = "AWS4-HMAC-SHA256";
/// The parameter with the signature of a presigned URL, of version 4 and of version 2.
const SIGNATURE: &str = "X-Amz-Signature";
const SIGNATURE_2: &str = "Signature";
/// Maximum validity of a presigned URL, in seconds.
const MAX_EXPIRES: u64 = 7 * 24 * 60 * 60;
/// A header that is signed in another form, or, in presigned requests, only makes a check stricter.
const BODY_HASH: &str = "x-amz-content-sha256";

/// Returns `true` if a query has a signature of S3.
pub fn is_presigned(query: Option<&str>) -> bool {
    query.is_some_and(|query| has(&parameters(query), SIGNATURE))
}

/// Returns `true` if a request has no signature, and attempts none.
pub(crate) fn is_anonymous(head: &Parts, query: &[(String, String)]) -> bool {
    let is_of_signature = |name: &str| name.starts_with("X-Amz-") || name == SIGNATURE_2 || name == "AWSAccessKeyId";
    !head.headers.contains_key(AUTHORIZATION) && !query.iter().any(|(name, _)| is_of_signature(name))
}

/// Returns the error for a request that must be signed, and is not.
pub(crate) fn unsigned() -> S3Error {
    s3_error!(AccessDenied, "the request is not signed: sign it with the key of an account")
}

/// Marks a request without a signature, at a time when everyone may read.
#[derive(Clone, Copy)]
pub(crate) struct Anonymous;

/// Admits signed requests, and those that are [`Anonymous`] and read.
pub(crate) struct SignedOrReading;

#[async_trait::async_trait]
impl S3Access for SignedOrReading {
    async fn check(&self, request: &mut S3AccessContext<'_>) -> S3Result<()> {
        if request.credentials().is_some() {
            return Ok(());
        }
        let operation = request.s3_op().name();
        let reads = matches!(operation, "GetObject" | "HeadObject" | "ListObjects" | "ListObjectsV2" | "HeadBucket");
        if !reads || request.extensions_mut().get::<Anonymous>().is_none() {
            return Err(unsigned());
        }
        // Otherwise, the author of a link could turn an object into a web page.
        let query = parameters(request.uri().query().unwrap_or_default());
        if query.iter().any(|(name, _)| name.starts_with("response-")) {
            return Err(s3_error!(InvalidRequest, "only a signed request may choose header fields of the response"));
        }
        Ok(())
    }
}

/// Checks the form of a request's signature, not the signature itself. Returns the access key id.
pub(crate) fn check(head: &Parts, query: &[(String, String)]) -> S3Result<String> {
    if head.method == Method::POST && head.headers.get_all(CONTENT_TYPE).iter().any(is_form) {
        return Err(s3_error!(NotImplemented, "uploads by HTML forms are not implemented: use PUT"));
    }
    let (credential, signed) = match (header(head)?, has(query, SIGNATURE), has(query, SIGNATURE_2)) {
        (Some(text), false, false) if text.starts_with(ALGORITHM) => {
            (field(text, "Credential=")?.to_owned(), field(text, "SignedHeaders=")?.to_owned())
        }
        (None, true, false) => presigned(query)?,
        (None, false, false) => {
            return Err(unsigned());
        }
        (Some(_), true, _) => {
            return Err(s3_error!(InvalidRequest, "sign a request by its header or its URL, not by both"));
        }
        _ => return Err(s3_error!(InvalidRequest, "sign the request with {ALGORITHM} (Signature Version 4)")),
    };
    let is_signed = |name: &str| signed.split(';').any(|signed| signed.eq_ignore_ascii_case(name));
    let mut names = head.headers.keys().map(http::HeaderName::as_str);
    match names.find(|name| name.starts_with("x-amz-") && *name != BODY_HASH && !is_signed(name)) {
        Some(name) => Err(s3_error!(AccessDenied, "the signature does not cover the header {name}: sign it")),
        None if !is_signed("host") => {
            Err(s3_error!(AccessDenied, "the signature does not cover the header host: sign it"))
        }
        None => Ok(credential.split('/').next().unwrap_or_default().to_owned()),
    }
}

fn is_form(value: &HeaderValue) -> bool {
    let form = b"multipart/form-data";
    value.as_bytes().trim_ascii_start().get(..form.len()).is_some_and(|text| text.eq_ignore_ascii_case(form))
}

/// Returns the only `Authorization` header.
fn header(head: &Parts) -> S3Result<Option<&str>> {
    let mut lines = head.headers.get_all(AUTHORIZATION).iter();
    match (lines.next(), lines.next()) {
        (None, _) => Ok(None),
        (Some(line), None) => {
            line.to_str().map(Some).map_err(|_| s3_error!(InvalidRequest, "the header authorization is malformed"))
        }
        (Some(_), Some(_)) => Err(s3_error!(InvalidRequest, "there must be only one header authorization")),
    }
}

/// Returns the value of a field of the `Authorization` header, which must occur once.
fn field<'a>(text: &'a str, name: &str) -> S3Result<&'a str> {
    let malformed = || s3_error!(AuthorizationHeaderMalformed, "the header authorization must have one {name}");
    let (_, rest) = text.split_once(name).ok_or_else(malformed)?;
    if rest.contains(name) {
        return Err(malformed());
    }
    Ok(rest.split(',').next().unwrap_or_default().trim())
}

/// Returns the credential and the signed headers of a presigned URL.
fn presigned(query: &[(String, String)]) -> S3Result<(String, String)> {
    let only = |wanted: &str| {
        let mut found = query.iter().filter(|(name, _)| name == wanted).map(|(_, value)| value);
        match (found.next(), found.next()) {
            (Some(value), None) => Ok(value),
            _ => Err(s3_error!(AuthorizationQueryParametersError, "a presigned URL must have one {wanted}")),
        }
    };
    if only("X-Amz-Expires")?.parse::<u64>().is_ok_and(|seconds| seconds > MAX_EXPIRES) {
        let rule = "X-Amz-Expires must be at most 604800 seconds (7 days)";
        return Err(s3_error!(AuthorizationQueryParametersError, "{rule}"));
    }
    Ok((only("X-Amz-Credential")?.clone(), only("X-Amz-SignedHeaders")?.clone()))
}

/// Returns `true` if a query has a parameter with this name.
fn has(query: &[(String, String)], name: &str) -> bool {
    query.iter().any(|(other, _)| other == name)
}

/// Returns the decoded parameters of a query.
pub(crate) fn parameters(query: &str) -> Vec<(String, String)> {
    let decode = |text: &str| percent_decode_str(&text.replace('+', " ")).decode_utf8_lossy().into_owned();
    let pair = |part: &str| {
        let (name, value) = part.split_once('=').unwrap_or((part, ""));
        (decode(name), decode(value))
    };
    query.split('&').filter(|part| !part.is_empty()).map(pair).collect()
}

#[cfg(test)]
mod tests {
    use http::Request;
    use s3s::S3ErrorCode;

    use super::*;

    const SCOPE: &str = "photos/20260101/us-east-1/s3/aws4_request";

    fn checked(path: &str, headers: &[(&str, &str)]) -> Result<String, S3ErrorCode> {
        let request = headers.iter().fold(Request::put(path), |request, (name, value)| request.header(*name, *value));
        check_head(&request.body(()).unwrap().into_parts().0)
    }

    fn check_head(head: &Parts) -> Result<String, S3ErrorCode> {
        check(head, &parameters(head.uri.query().unwrap_or_default())).map_err(|error| error.code().clone())
    }

    #[test]
    fn a_signature_must_cover_the_host_and_all_headers_of_amazon() {
        let signed = |names: &str| format!("{ALGORITHM} Credential={SCOPE},SignedHeaders={names}, Signature=00");
        let by_header = |names: &str, other: &str| {
            let (authorization, body) = (signed(names), ("x-amz-content-sha256", "UNSIGNED-PAYLOAD"));
            checked("/bucket/key", &[("authorization", &authorization), (other, "/a/b"), body])
        };
        assert_eq!(by_header("host;x-amz-date", "x-amz-date"), Ok("photos".to_owned()));
        assert_eq!(by_header("host", "if-match"), Ok("photos".to_owned()));
        assert_eq!(by_header("x-amz-date", "x-amz-date"), Err(S3ErrorCode::AccessDenied));
        assert_eq!(by_header("host", "x-amz-copy-source"), Err(S3ErrorCode::AccessDenied));
        let by_url = |names: &str, expires: &str, other: &str| {
            let credential = SCOPE.replace('/', "%2F");
            let signature = format!("X-Amz-Signature=00&X-Amz-Expires={expires}&X-Amz-SignedHeaders={names}");
            checked(&format!("/bucket/key?X-Amz-Credential={credential}&{signature}"), &[(other, "/a/b")])
        };
        assert_eq!(by_url("host", "604800", "if-match"), Ok("photos".to_owned()));
        assert_eq!(by_url("host%3Bx-amz-copy-source", "60", "x-amz-copy-source"), Ok("photos".to_owned()));
        assert_eq!(by_url("host", "60", "x-amz-copy-source"), Err(S3ErrorCode::AccessDenied));
        assert_eq!(by_url("host", "604801", "if-match"), Err(S3ErrorCode::AuthorizationQueryParametersError));
        assert_eq!(
            by_url("host&X-Amz-Expires=1", "60", "if-match"),
            Err(S3ErrorCode::AuthorizationQueryParametersError)
        );
    }

    #[test]
    fn other_ways_to_sign_are_refused() {
        assert_eq!(checked("/bucket/key", &[]), Err(S3ErrorCode::AccessDenied));
        assert_eq!(checked("/bucket/key", &[("authorization", "AWS photos:00")]), Err(S3ErrorCode::InvalidRequest));
        assert_eq!(checked("/bucket/key?AWSAccessKeyId=photos&Signature=00", &[]), Err(S3ErrorCode::InvalidRequest));
        assert_eq!(checked("/bucket/key?%53ignature=00&X-Amz-Signature=00", &[]), Err(S3ErrorCode::InvalidRequest));
        let form = Request::post("/bucket").header("content-type", "Multipart/Form-Data; boundary=a").body(()).unwrap();
        assert_eq!(check_head(&form.into_parts().0), Err(S3ErrorCode::NotImplemented));
    }
}
