//! What `s3s` writes otherwise than S3, mended in its responses.
//!
//! - Every response has an id, and the document of an error repeats it.
//! - The document of a 412 names the condition.
//! - A 304 has no document, and a HEAD of a range is a 206.
//! - The tag in the response to `GetObjectAttributes` has no quotes.
//! - U+FFFE and U+FFFF, which a key may have and XML can't, are written as U+FFFD.

use http::header::{CONTENT_LENGTH, CONTENT_RANGE};
use http::{HeaderName, HeaderValue, Response, StatusCode};

/// The id of a request, in its response.
const X_AMZ_REQUEST_ID: HeaderName = HeaderName::from_static("x-amz-request-id");
/// The name of the condition of a 412, on its way to the document.
pub(crate) const CONDITION: HeaderName = HeaderName::from_static("x-ifmatch-condition");
/// The characters of keys that XML can't have. A client that needs them asks for `encoding-type=url`.
const UNWRITABLE: [char; 2] = ['\u{fffe}', '\u{ffff}'];
/// The end of the document of an error.
const ERROR_END: &str = "</Error>";

/// The id of a request, as the service in front has chosen it for its log. Put it into the extensions of the request.
#[derive(Clone, Debug)]
pub struct RequestId(pub HeaderValue);

/// Marks a response whose tag has no quotes.
#[derive(Clone, Copy)]
pub(crate) struct BareTag;

/// Completes a response.
pub(crate) fn complete(
    mut response: Response<s3s::Body>,
    id: Option<&HeaderValue>,
) -> Response<s3s::Body> {
    let condition = response.headers_mut().remove(CONDITION);
    let status = response.status();
    if status == StatusCode::NOT_MODIFIED {
        *response.body_mut() = s3s::Body::empty();
    } else if status == StatusCode::OK && response.headers().contains_key(CONTENT_RANGE) {
        *response.status_mut() = StatusCode::PARTIAL_CONTENT;
    } else if status.is_client_error() || status.is_server_error() {
        let details: String = [("Condition", condition.as_ref()), ("RequestId", id)]
            .into_iter()
            .filter_map(|(name, value)| {
                Some(format!(
                    "<{name}>{}</{name}>",
                    escaped(value?.to_str().ok()?)
                ))
            })
            .collect();
        rewrite(&mut response, |document| {
            document
                .strip_suffix(ERROR_END)
                .map(|start| format!("{start}{details}{ERROR_END}"))
        });
    } else if response.extensions().get::<BareTag>().is_some() {
        rewrite(&mut response, |document| {
            let (start, rest) = document.split_once("<ETag>")?;
            let (tag, end) = rest.split_once("</ETag>")?;
            Some(format!(
                "{start}<ETag>{}</ETag>{end}",
                tag.replace("&quot;", "").replace('"', "")
            ))
        });
    }
    rewrite(&mut response, |document| {
        document
            .contains(UNWRITABLE)
            .then(|| document.replace(UNWRITABLE, "\u{fffd}"))
    });
    if let Some(id) = id {
        response.headers_mut().insert(X_AMZ_REQUEST_ID, id.clone());
    }
    response
}

/// Replaces the document of a response, if it is one.
fn rewrite(response: &mut Response<s3s::Body>, change: impl FnOnce(&str) -> Option<String>) {
    let document = response.body().bytes();
    let changed = document
        .as_deref()
        .and_then(|bytes| std::str::from_utf8(bytes).ok())
        .and_then(change);
    if let Some(changed) = changed {
        response.headers_mut().remove(CONTENT_LENGTH);
        *response.body_mut() = s3s::Body::from(changed);
    }
}

/// Returns a text as it is written in XML.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use s3s::s3_error;

    use super::*;
    use crate::error;

    #[test]
    fn an_error_tells_its_request_and_its_condition() {
        let id = HeaderValue::from_static("a<b&c");
        let error = error::with_condition(s3_error!(PreconditionFailed, "it is false"), "If-Match");
        let answer = complete(error.to_http_response().unwrap(), Some(&id));
        let text = String::from_utf8(answer.body().bytes().unwrap().to_vec()).unwrap();
        let end = "<Condition>If-Match</Condition><RequestId>a&lt;b&amp;c</RequestId></Error>";
        assert!(text.ends_with(end), "{text}");
        assert_eq!(answer.headers().get(X_AMZ_REQUEST_ID), Some(&id));
        assert_eq!(answer.headers().get(CONDITION), None);
        let echo = s3_error!(NoSuchKey, "no a\u{ffff}\u{fffe}b");
        let answer = complete(echo.to_http_response().unwrap(), None);
        let text = String::from_utf8(answer.body().bytes().unwrap().to_vec()).unwrap();
        assert!(text.contains("no a\u{fffd}\u{fffd}b"), "{text}");
        let plain = complete(s3_error!(NoSuchKey).to_http_response().unwrap(), None);
        let text = String::from_utf8(plain.body().bytes().unwrap().to_vec()).unwrap();
        assert!(
            text.ends_with("<Error><Code>NoSuchKey</Code></Error>"),
            "{text}"
        );
    }
}
