//! Problem details (RFC 9457): the bodies of error responses.

use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_RANGE, CONTENT_TYPE, ETAG, RETRY_AFTER};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Response, StatusCode};
use serde_json::{Map, Value};

use crate::precondition::{Precondition, Preconditions};
use crate::range::unsatisfied_content_range;
use crate::tag::EntityTag;

/// The media type of a problem.
pub const MEDIA_TYPE: HeaderValue = HeaderValue::from_static("application/problem+json");

/// A problem details object (RFC 9457) and its header fields.
///
/// The type is `urn:ifmatch:problem:` followed by a stable name. The title is the reason phrase of the status, and the
/// detail states what to do.
///
/// ```
/// use http::StatusCode;
/// use ifmatch_core::problem::Problem;
///
/// let problem = Problem::new(StatusCode::BAD_REQUEST, "bad-key")
///     .detail("the name must not contain a NUL byte")
///     .member("position", 4);
/// let json: serde_json::Value = serde_json::from_slice(&problem.to_json())?;
/// assert_eq!(json["type"], "urn:ifmatch:problem:bad-key");
/// assert_eq!(json["status"], 400);
/// assert_eq!(json["position"], 4);
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Problem {
    status: StatusCode,
    name: &'static str,
    detail: Option<String>,
    members: Map<String, Value>,
    /// Boxed to keep a `Result` with a problem small.
    headers: Box<HeaderMap>,
}

impl Problem {
    /// Creates a problem with a name of lower-case words and hyphens.
    pub fn new(status: StatusCode, name: &'static str) -> Self {
        Self {
            status,
            name,
            detail: None,
            members: Map::new(),
            headers: Box::default(),
        }
    }

    /// Sets the detail: what happened and what to do.
    #[must_use]
    pub fn detail(mut self, text: impl Into<String>) -> Self {
        self.detail = Some(text.into());
        self
    }

    /// Adds an extension member. It can't replace a member defined by the RFC.
    ///
    /// ```
    /// # use ifmatch_core::problem::Problem;
    /// let json = Problem::not_found().member("status", 200).to_json();
    /// assert!(String::from_utf8_lossy(&json).contains("\"status\":404"));
    /// ```
    #[must_use]
    pub fn member(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.members.insert(name.to_owned(), value.into());
        self
    }

    /// Adds a header field to the response.
    ///
    /// ```
    /// # use http::{header, HeaderValue, StatusCode};
    /// # use ifmatch_core::problem::Problem;
    /// let problem = Problem::new(StatusCode::METHOD_NOT_ALLOWED, "method-not-allowed")
    ///     .header(header::ALLOW, HeaderValue::from_static("GET"));
    /// assert_eq!(problem.to_response().headers()[header::ALLOW], "GET");
    /// ```
    #[must_use]
    pub fn header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.headers.insert(name, value);
        self
    }

    /// Returns the name, the last part of the `type`.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Returns the detail, if there is one.
    ///
    /// ```
    /// # use ifmatch_core::problem::Problem;
    /// assert_eq!(Problem::not_found().message(), Some("no such resource"));
    /// ```
    pub fn message(&self) -> Option<&str> {
        self.detail.as_deref()
    }

    /// Returns the response's status.
    pub fn status(&self) -> StatusCode {
        self.status
    }

    /// Returns `true` if the request may have taken effect despite the problem.
    ///
    /// ```
    /// # use http::StatusCode;
    /// # use ifmatch_core::problem::Problem;
    /// assert!(Problem::new(StatusCode::SERVICE_UNAVAILABLE, "outcome-unknown").leaves_doubt());
    /// assert!(!Problem::not_found().leaves_doubt());
    /// ```
    pub fn leaves_doubt(&self) -> bool {
        ["outcome-unknown", "handler-failed", "version-unchecked"].contains(&self.name)
    }

    /// Returns the response's body.
    pub fn to_json(&self) -> Bytes {
        let mut object = self.members.clone();
        object.insert(
            "type".to_owned(),
            format!("urn:ifmatch:problem:{}", self.name).into(),
        );
        object.insert("title".to_owned(), self.status.canonical_reason().into());
        object.insert("status".to_owned(), self.status.as_u16().into());
        object.extend(
            self.detail
                .clone()
                .map(|text| ("detail".to_owned(), text.into())),
        );
        Bytes::from(Value::Object(object).to_string())
    }

    /// Returns the response. Omit the body in response to HEAD.
    ///
    /// ```
    /// # use http::header::CONTENT_TYPE;
    /// # use ifmatch_core::problem::{MEDIA_TYPE, Problem};
    /// let response = Problem::not_found().to_response();
    /// assert_eq!(response.status(), 404);
    /// assert_eq!(response.headers()[CONTENT_TYPE], MEDIA_TYPE);
    /// ```
    pub fn to_response(&self) -> Response<Bytes> {
        let mut response = Response::new(self.to_json());
        *response.status_mut() = self.status;
        response.headers_mut().clone_from(&self.headers);
        response.headers_mut().insert(CONTENT_TYPE, MEDIA_TYPE);
        response
    }
}

/// The problems used by this project's services.
impl Problem {
    /// 400: the request is malformed.
    pub fn bad_request(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "bad-request").detail(detail)
    }

    /// 404: the resource doesn't exist.
    pub fn not_found() -> Self {
        Self::new(StatusCode::NOT_FOUND, "not-found").detail("no such resource")
    }

    /// 409: another write is in flight, for at most `wait`.
    ///
    /// ```
    /// # use http::header::RETRY_AFTER;
    /// # use std::time::Duration;
    /// # use ifmatch_core::problem::Problem;
    /// let response = Problem::write_in_flight(Duration::from_millis(1_200)).to_response();
    /// assert_eq!(response.status(), 409);
    /// assert_eq!(response.headers()[RETRY_AFTER], "2");
    /// ```
    pub fn write_in_flight(wait: Duration) -> Self {
        Self::new(StatusCode::CONFLICT, "write-in-flight")
            .detail("another write to this resource is in flight. Retry later")
            .retry_after(wait)
    }

    /// 412: the precondition is false. `current` is the current tag.
    ///
    /// ```
    /// # use http::header::ETAG;
    /// # use ifmatch_core::EntityTag;
    /// # use ifmatch_core::precondition::Precondition;
    /// # use ifmatch_core::problem::Problem;
    /// let tag = EntityTag::strong("v2")?;
    /// let problem = Problem::precondition_failed(Precondition::IfMatch, Some(&tag));
    /// assert_eq!(problem.to_response().headers()[ETAG], "\"v2\"");
    /// # Ok::<(), ifmatch_core::tag::InvalidTag>(())
    /// ```
    pub fn precondition_failed(failed: Precondition, current: Option<&EntityTag>) -> Self {
        let header = failed.header();
        let detail = match failed {
            Precondition::IfMatch if current.is_none() => {
                "If-Match failed: the resource doesn't exist, or has no ETag. To create it, send If-None-Match: *"
            }
            Precondition::IfMatch => {
                "If-Match failed: the resource has changed. Fetch it, merge, and retry"
            }
            Precondition::UnreadableIfMatch => {
                "If-Match is malformed or too long. Send an ETag with its quotes, a list of them, or *"
            }
            Precondition::WeakIfMatch => {
                "If-Match has only weak ETags (W/), which it never matches. Send a strong one: the resource may be unchanged"
            }
            Precondition::UnreadableIfNoneMatch => {
                "If-None-Match is malformed or too long. Send an ETag with its quotes, a list of them, or *"
            }
            Precondition::IfUnmodifiedSince => {
                "If-Unmodified-Since failed: the resource has changed. Fetch it, merge, and retry"
            }
            Precondition::IfNoneMatch => "If-None-Match failed: the resource already exists",
            Precondition::IfModifiedSince => {
                "If-Modified-Since failed: the resource hasn't changed"
            }
        };
        let mut problem = Self::new(StatusCode::PRECONDITION_FAILED, "precondition-failed")
            .detail(detail)
            .member("condition", header.as_str());
        if let Some(tag) = current {
            let text = std::str::from_utf8(tag.as_bytes()).ok();
            problem
                .members
                .extend(text.map(|text| ("etag".to_owned(), text.into())));
            problem.headers.insert(ETAG, tag.to_header());
        }
        problem
    }

    /// 413: the body is longer than `limit` bytes.
    pub fn content_too_large(limit: u64) -> Self {
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, "content-too-large")
            .detail(format!("the body is larger than {limit} bytes"))
            .member("limit", limit)
    }

    /// 416: no requested range lies within the `total` bytes.
    ///
    /// ```
    /// # use http::header::CONTENT_RANGE;
    /// # use ifmatch_core::problem::Problem;
    /// let response = Problem::range_not_satisfiable(9).to_response();
    /// assert_eq!(response.headers()[CONTENT_RANGE], "bytes */9");
    /// ```
    pub fn range_not_satisfiable(total: u64) -> Self {
        Self::new(StatusCode::RANGE_NOT_SATISFIABLE, "range-not-satisfiable")
            .detail(format!(
                "the range starts past the end ({total} {})",
                if total == 1 { "byte" } else { "bytes" }
            ))
            .member("length", total)
            .header(CONTENT_RANGE, unsatisfied_content_range(total))
    }

    /// 428: the method requires a precondition.
    pub fn precondition_required(method: &Method) -> Self {
        let or_create = match *method {
            Method::DELETE | Method::PATCH => "",
            _ => ", or send If-None-Match: * to create it",
        };
        Self::new(StatusCode::PRECONDITION_REQUIRED, "precondition-required")
            .detail(format!(
                "{method} needs a condition here. GET the resource and send its ETag in If-Match{or_create}"
            ))
            .member("conditions", Preconditions::WRITE_HEADERS.map(|name| name.as_str().to_owned()).to_vec())
    }

    /// 503: a backend doesn't respond, or too many requests are waiting.
    pub fn unavailable(wait: Duration) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "unavailable")
            .detail("storage didn't respond, or too many requests are waiting. Retry later")
            .retry_after(wait)
    }

    /// 507: the disk is full. Nothing was changed.
    pub fn insufficient_storage() -> Self {
        Self::new(StatusCode::INSUFFICIENT_STORAGE, "insufficient-storage")
            .detail("no space left; nothing was changed")
    }

    /// Adds `Retry-After` (RFC 9110 §10.2.3) in whole seconds, rounded up, at least one.
    fn retry_after(self, wait: Duration) -> Self {
        let seconds = wait
            .as_secs()
            .saturating_add(u64::from(wait.subsec_nanos() > 0))
            .max(1);
        self.header(RETRY_AFTER, seconds.into())
    }
}
