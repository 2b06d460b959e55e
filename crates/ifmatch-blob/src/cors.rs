//! Cross-origin requests from web pages (CORS, Fetch Standard §3.3), for the plain dialect.
//!
//! The Azure dialect has CORS rules of its own in Azure's API, and none of them is ever set.

use bytes::Bytes;
use http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, ACCESS_CONTROL_REQUEST_HEADERS,
    ACCESS_CONTROL_REQUEST_METHOD, ORIGIN, VARY,
};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Uri};
use ifmatch_core::fields;
use thiserror::Error;

use crate::name::is_server_path;

/// The methods of the plain dialect.
const METHODS: HeaderValue = HeaderValue::from_static("GET, HEAD, POST, PUT, DELETE, OPTIONS");
/// The response header fields that pages may read. `*` stands for metadata and all others; `Authorization` of the request
/// doesn't restrict it, because it isn't one of the browser's own credentials.
const EXPOSED: HeaderValue = HeaderValue::from_static(
    "ETag, Last-Modified, Content-Range, Accept-Ranges, Repr-Digest, Retry-After, Preference-Applied, Lease-Id, \
     Lease-Token, Lease-Remaining, X-Ms-Error-Code, X-Request-Id, *",
);
/// Seconds for which a browser may remember the response to a preflight request.
const MAX_AGE: HeaderValue = HeaderValue::from_static("600");
/// The field that marks a request in Azure's dialect.
const AZURE: &str = "x-ms-version";

/// The origins of pages that may send requests and read the responses.
///
/// Pages authenticate with a token, never with the browser's own credentials. The server's own endpoints (`/-/…`) are
/// not for pages.
///
/// ```
/// use http::Request;
/// use ifmatch_blob::cors::Cors;
///
/// let cors = Cors::new(&["https://app.example"])?.expect("one origin");
/// let request = Request::get("/c/b").header("origin", "https://app.example").body(())?;
/// assert_eq!(cors.fields(&request)["access-control-allow-origin"], "https://app.example");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cors(Origins);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Origins {
    Any,
    These(Vec<HeaderValue>),
}

/// The text isn't an origin.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(
    "{0:?} is not an origin. Use https://HOST[:PORT] in lower case without a path, or * alone for all"
)]
pub struct InvalidOrigin(String);

impl Cors {
    /// Allows these origins, or all if the only one is `*`. Returns `None` if there are none.
    ///
    /// # Errors
    /// Fails if a text isn't an origin as browsers send it, or `*` isn't the only one.
    pub fn new<T: AsRef<str>>(origins: &[T]) -> Result<Option<Self>, InvalidOrigin> {
        match origins {
            [] => Ok(None),
            [only] if only.as_ref() == "*" => Ok(Some(Self(Origins::Any))),
            origins => {
                let origins = origins
                    .iter()
                    .map(|text| origin(text.as_ref()))
                    .collect::<Result<_, _>>()?;
                Ok(Some(Self(Origins::These(origins))))
            }
        }
    }

    /// Returns the response to a preflight request, which has no token.
    pub fn preflight<B>(&self, request: &Request<B>) -> Option<Response<Bytes>> {
        let headers = request.headers();
        let is_preflight = *request.method() == Method::OPTIONS
            && fields::has(headers, &ORIGIN)
            && fields::has(headers, &ACCESS_CONTROL_REQUEST_METHOD);
        if !is_preflight || !applies(request) {
            return None;
        }
        let mut response = Response::new(Bytes::new());
        *response.status_mut() = StatusCode::NO_CONTENT;
        if self.allowed(headers).is_some() {
            let wanted = headers.get(ACCESS_CONTROL_REQUEST_HEADERS).cloned();
            let allowed = [
                (ACCESS_CONTROL_ALLOW_METHODS, Some(METHODS)),
                (ACCESS_CONTROL_ALLOW_HEADERS, wanted),
                (ACCESS_CONTROL_MAX_AGE, Some(MAX_AGE)),
            ];
            response.headers_mut().extend(
                allowed
                    .into_iter()
                    .filter_map(|(name, value)| Some((name, value?))),
            );
        }
        Some(response)
    }

    /// Returns the header fields that any response to a request needs in addition, also one to a preflight request or an
    /// error.
    pub fn fields<B>(&self, request: &Request<B>) -> HeaderMap {
        let mut fields = HeaderMap::new();
        if !applies(request) {
            return fields;
        }
        if matches!(self.0, Origins::These(_)) {
            // A stored response to another origin, or to none, doesn't have the fields of this one.
            fields.insert(VARY, HeaderValue::from_static("origin"));
        }
        if let Some(allowed) = self.allowed(request.headers()) {
            fields.insert(ACCESS_CONTROL_ALLOW_ORIGIN, allowed);
            fields.insert(ACCESS_CONTROL_EXPOSE_HEADERS, EXPOSED);
        }
        fields
    }

    /// Returns the allowed origin of a request.
    fn allowed(&self, headers: &HeaderMap) -> Option<HeaderValue> {
        let mut lines = fields::lines(headers, ORIGIN);
        let (origin, None) = (lines.next()?, lines.next()) else {
            return None;
        };
        match &self.0 {
            Origins::Any => Some(HeaderValue::from_static("*")),
            Origins::These(origins) => origins.contains(origin).then(|| origin.clone()),
        }
    }
}

/// Adds the fields to a response, beside those that it has.
pub fn add(fields: HeaderMap, response: &mut HeaderMap) {
    let mut last = None;
    for (name, value) in fields {
        last = name.or(last);
        if let Some(name) = &last {
            response.append(name, value);
        }
    }
}

/// Returns `false` for requests to the server's own endpoints, and in Azure's dialect.
fn applies<B>(request: &Request<B>) -> bool {
    let headers = request.headers();
    let is_azure = |line: &HeaderValue| {
        let names = line.to_str().unwrap_or_default();
        names
            .split(',')
            .any(|name| name.trim().eq_ignore_ascii_case(AZURE))
    };
    let is_preflight_of_azure =
        || fields::lines(headers, ACCESS_CONTROL_REQUEST_HEADERS).any(is_azure);
    !is_server_path(request.uri().path())
        && !headers.contains_key(AZURE)
        && !is_preflight_of_azure()
}

/// Parses an origin in the form in which browsers send it: scheme and host in lower case, without a default port.
fn origin(text: &str) -> Result<HeaderValue, InvalidOrigin> {
    let invalid = || InvalidOrigin(text.to_owned());
    let uri: Uri = text.parse().map_err(|_| invalid())?;
    let (Some(scheme), Some(authority)) = (uri.scheme_str(), uri.authority()) else {
        return Err(invalid());
    };
    let is_default = matches!(
        (scheme, authority.port_u16()),
        ("http", Some(80)) | ("https", Some(443))
    );
    let sent = format!("{scheme}://{authority}");
    if !matches!(scheme, "http" | "https")
        || is_default
        || sent != text
        || text != text.to_ascii_lowercase()
        || text.contains('@')
    {
        return Err(invalid());
    }
    HeaderValue::from_str(text).map_err(|_| invalid())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(method: Method, path: &str, lines: &[(&str, &str)]) -> Request<()> {
        let builder = Request::builder().method(method).uri(path);
        lines
            .iter()
            .fold(builder, |builder, (name, value)| {
                builder.header(*name, *value)
            })
            .body(())
            .unwrap()
    }

    #[test]
    fn origins_are_those_that_browsers_send() {
        for text in [
            "https://app.example",
            "http://localhost:5173",
            "https://[::1]:8443",
        ] {
            assert!(Cors::new(&[text]).is_ok(), "{text}");
        }
        let wrong = "app.example, https://app.example/, https://App.example, https://app.example:443, null, ftp://a, *, \
                     https://u@app.example, https://app.example/path, ";
        for text in wrong.split(", ") {
            let error = Cors::new(&["https://app.example", text]).unwrap_err();
            assert!(error.to_string().contains("https://HOST"), "{text}");
        }
        assert_eq!(Cors::new::<&str>(&[]), Ok(None));
    }

    #[test]
    fn responses_are_readable_for_allowed_origins_only() {
        let [listed, any] = [&["https://a.example", "https://b.example"][..], &["*"]]
            .map(|list| Cors::new(list).unwrap().unwrap());
        let allowed = |cors: &Cors, origins: &[&str], path: &str| {
            let lines: Vec<_> = origins.iter().map(|origin| ("origin", *origin)).collect();
            let fields = cors.fields(&request(Method::GET, path, &lines));
            let allowed = fields
                .get(ACCESS_CONTROL_ALLOW_ORIGIN)
                .map(|value| value.to_str().unwrap().to_owned());
            assert_eq!(
                allowed.is_some(),
                fields.contains_key(ACCESS_CONTROL_EXPOSE_HEADERS)
            );
            allowed
        };
        assert_eq!(
            allowed(&listed, &["https://b.example"], "/c/b").as_deref(),
            Some("https://b.example")
        );
        assert_eq!(
            allowed(&any, &["https://c.example"], "/c/b").as_deref(),
            Some("*")
        );
        for origins in [
            &["https://c.example"][..],
            &["null"],
            &[],
            &["https://a.example", "https://b.example"],
        ] {
            assert_eq!(allowed(&listed, origins, "/c/b"), None, "{origins:?}");
        }
        assert_eq!(allowed(&any, &["https://a.example"], "/-/leases"), None);
        let vary = |cors: &Cors| {
            cors.fields(&request(Method::GET, "/c/b", &[]))
                .contains_key(VARY)
        };
        assert!(
            vary(&listed) && !vary(&any),
            "the response to no origin must not be reused for one"
        );
    }

    #[test]
    fn a_preflight_request_is_answered_without_a_token() {
        let cors = Cors::new(&["https://a.example"]).unwrap().unwrap();
        let origin = ("origin", "https://a.example");
        let method = ("access-control-request-method", "PUT");
        let wanted = |names| ("access-control-request-headers", names);
        let plain = request(
            Method::OPTIONS,
            "/c/b",
            &[origin, method, wanted("authorization,if-match,x-meta-a")],
        );
        let answer = cors.preflight(&plain).unwrap();
        assert_eq!(
            answer.headers()[ACCESS_CONTROL_ALLOW_HEADERS],
            "authorization,if-match,x-meta-a"
        );
        assert_eq!(
            cors.fields(&plain)[ACCESS_CONTROL_ALLOW_ORIGIN],
            "https://a.example"
        );
        let foreign = request(
            Method::OPTIONS,
            "/c/b",
            &[("origin", "https://c.example"), method],
        );
        assert!(cors.preflight(&foreign).unwrap().headers().is_empty());
        for (verb, path, lines) in [
            (Method::OPTIONS, "/c/b", &[origin][..]),
            (Method::OPTIONS, "/c/b", &[method]),
            (Method::PUT, "/c/b", &[origin, method]),
            (Method::OPTIONS, "/-/leases", &[origin, method]),
            (
                Method::OPTIONS,
                "/devstoreaccount1/c/b",
                &[origin, method, wanted("authorization, X-Ms-Version")],
            ),
        ] {
            assert!(
                cors.preflight(&request(verb.clone(), path, lines))
                    .is_none(),
                "{verb} {path} {lines:?}"
            );
        }
    }
}
