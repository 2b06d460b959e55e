//! Rejection of request heads that hyper and h2 accept, but RFC 9110, RFC 9112 or RFC 9113 forbid.

use bytes::Bytes;
use http::header::{CONNECTION, CONTENT_LENGTH, TRANSFER_ENCODING};
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode, Version};
use ifmatch_core::fields;
use ifmatch_core::problem::Problem;

use crate::host;

/// Returns the error response for a request with an unreliable length, transfer coding or host. Normalizes the length
/// and the host of other requests. An HTTP/1 connection closes after the response.
pub fn reject<B>(request: &mut Request<B>) -> Option<Response<Bytes>> {
    let is_http1 = request.version() < Version::HTTP_2;
    let coding = if is_http1 {
        coding(request.headers())
    } else {
        None
    };
    let problem = coding
        .or_else(|| scheme(request))
        .or_else(|| length(request.headers_mut()))
        .or_else(|| host::check(request));
    let Some(problem) = problem else {
        host::normalize(request);
        return None;
    };
    let mut response = problem.to_response();
    if is_http1 {
        response
            .headers_mut()
            .insert(CONNECTION, HeaderValue::from_static("close"));
    }
    Some(response)
}

/// Rejects codings other than a single `chunked`, since the coded bytes would be taken for the content (RFC 9112 §6.1).
fn coding(headers: &HeaderMap) -> Option<Problem> {
    if !fields::has(headers, &TRANSFER_ENCODING) {
        return None;
    }
    let codings: Vec<&[u8]> = fields::members(headers, &TRANSFER_ENCODING).collect();
    let is_chunked = |coding: &&[u8]| coding.eq_ignore_ascii_case(b"chunked");
    if codings.iter().filter(|coding| is_chunked(coding)).count() > 1 {
        return Some(Problem::bad_request(
            "Transfer-Encoding names chunked more than once",
        ));
    }
    let unknown = codings.iter().any(|coding| !is_chunked(coding));
    unknown.then(|| {
        Problem::new(StatusCode::NOT_IMPLEMENTED, "unknown-transfer-coding").detail(
            "the only supported transfer coding is chunked: send the content without others, or with Content-Encoding",
        )
    })
}

/// Rejects targets of schemes that aren't HTTP, which the next hop may treat in its own way.
fn scheme<B>(request: &Request<B>) -> Option<Problem> {
    let is_http = request
        .uri()
        .scheme_str()
        .is_none_or(|scheme| matches!(scheme, "http" | "https"));
    (!is_http).then(|| Problem::bad_request("the scheme of the target must be http or https"))
}

/// Rejects a length that isn't a plain number. The next hop may read `010` as eight, and two lengths as two requests.
fn length(headers: &mut HeaderMap) -> Option<Problem> {
    let mut lengths = fields::lines(headers, CONTENT_LENGTH);
    let (first, second) = (lengths.next()?, lengths.next());
    if second.is_none() && is_canonical(first.as_bytes()) {
        return None;
    }
    let parsed = number(first);
    let all_same = second
        .into_iter()
        .chain(lengths)
        .all(|length| number(length) == parsed);
    match parsed.filter(|_| all_same) {
        Some(length) => {
            headers.insert(CONTENT_LENGTH, HeaderValue::from(length));
            None
        }
        None => Some(Problem::bad_request(
            "Content-Length must be a single number in decimal digits",
        )),
    }
}

/// Returns `true` for a number in its shortest form. One of at most 19 digits fits a `u64`.
fn is_canonical(length: &[u8]) -> bool {
    length == b"0"
        || (matches!(length, [b'1'..=b'9', ..])
            && length.len() < 20
            && length.iter().all(u8::is_ascii_digit))
}

/// Parses a length of digits only.
fn number(length: &HeaderValue) -> Option<u64> {
    let digits = length.to_str().ok()?;
    digits
        .parse()
        .ok()
        .filter(|_| digits.bytes().all(|byte| byte.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn length_of(lines: &[&'static str]) -> Result<Vec<String>, StatusCode> {
        let mut request = Request::post("http://a/").version(Version::HTTP_2);
        for line in lines {
            request = request.header(CONTENT_LENGTH, *line);
        }
        let mut request = request.body(()).unwrap();
        if let Some(rejected) = reject(&mut request) {
            return Err(rejected.status());
        }
        Ok(request
            .headers()
            .get_all(CONTENT_LENGTH)
            .iter()
            .map(|line| line.to_str().unwrap().to_owned())
            .collect())
    }

    #[test]
    fn a_request_without_a_single_host_is_rejected() {
        for (uri, host) in [
            ("ftp://a/", "a"),
            ("http://a/", "b"),
            ("http://u@a/", "a"),
            ("/", "a/b"),
        ] {
            let mut request = Request::get(uri)
                .version(Version::HTTP_2)
                .header("host", host)
                .body(())
                .unwrap();
            assert_eq!(
                reject(&mut request).unwrap().status(),
                StatusCode::BAD_REQUEST,
                "{uri} {host}"
            );
        }
    }

    #[test]
    fn the_host_in_the_target_replaces_the_field() {
        let host = |uri: &str, host: Option<&str>| {
            let request = Request::put(uri).version(Version::HTTP_11);
            let request = host
                .into_iter()
                .fold(request, |request, host| request.header("host", host));
            let mut request = request.body(()).unwrap();
            assert!(reject(&mut request).is_none(), "{uri}");
            request
                .headers()
                .get("host")
                .map(|host| host.to_str().unwrap().to_owned())
        };
        for (uri, field, expected) in [
            ("http://a/x", Some("b"), Some("a")),
            ("http://a:81/x", Some("a"), Some("a:81")),
            ("http://a/x", Some(""), Some("a")),
            ("http://a/x", None, None),
            ("/x", Some("b"), Some("b")),
        ] {
            assert_eq!(host(uri, field).as_deref(), expected, "{uri} {field:?}");
        }
    }

    #[test]
    fn a_length_is_normalized_or_rejected() {
        for (lines, length) in [
            (&[][..], Some(&[][..])),
            (&["0"], Some(&["0"])),
            (&["5"], Some(&["5"])),
            (&["05"], Some(&["5"])),
            (&["010"], Some(&["10"])),
            (&["00"], Some(&["0"])),
            (&["5", "05", "5"], Some(&["5"])),
            (&["18446744073709551615"], Some(&["18446744073709551615"])),
            (&["18446744073709551616"], None),
            (&["5", "6"], None),
            (&["5", ""], None),
            (&[""], None),
            (&["", ""], None),
            (&["+5"], None),
            (&["5, 5"], None),
            (&["0x5"], None),
            (&["5 "], None),
        ] {
            let expected =
                length.map(|length| length.iter().map(ToString::to_string).collect::<Vec<_>>());
            assert_eq!(
                length_of(lines),
                expected.ok_or(StatusCode::BAD_REQUEST),
                "{lines:?}"
            );
        }
    }
}
