//! A request as it is sent to a server, in either version of HTTP.

use http::header::{CONNECTION, HOST, TRANSFER_ENCODING, UPGRADE};
use http::uri::{Authority, PathAndQuery};
use http::{HeaderMap, HeaderValue, Method, Request, Uri, Version};
use http_body::Body;

use crate::forward::request_body::LentBody;
use crate::upstream::server::UpstreamServer;

/// Creates a request for a connection with this version. `headers` are those for HTTP/1.1, with a `Host`.
///
/// In HTTP/2, the host is part of the URL (`:authority`), and connections have no fields of their own (RFC 9113 §8.2.2
/// and §8.3.1).
pub(crate) fn request(
    version: Version,
    method: Method,
    (server, path): (&UpstreamServer, &PathAndQuery),
    mut headers: HeaderMap,
    body: LentBody,
) -> Option<Request<LentBody>> {
    let uri = if version == Version::HTTP_2 {
        headers.remove(UPGRADE);
        headers.remove(CONNECTION);
        let authority = headers
            .remove(HOST)
            .as_ref()
            .and_then(authority)
            .unwrap_or_else(|| server.authority.clone());
        let uri = Uri::builder()
            .scheme(server.scheme.clone())
            .authority(authority)
            .path_and_query(path.clone());
        uri.build().ok()?
    } else {
        if !body.is_end_stream() && body.size_hint().exact().is_none() {
            // Otherwise hyper drops the content of a GET or HEAD without a length.
            headers.insert(TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
        }
        Uri::from(path.clone())
    };
    let mut request = Request::new(body);
    *request.method_mut() = method;
    *request.uri_mut() = uri;
    *request.version_mut() = version;
    *request.headers_mut() = headers;
    Some(request)
}

/// Returns a `Host` as an authority. It must not contain user information (RFC 9113 §8.3.1).
fn authority(host: &HeaderValue) -> Option<Authority> {
    Authority::try_from(host.as_bytes())
        .ok()
        .filter(|authority| !authority.as_str().contains('@'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Upstream;
    use crate::forward::request_body::RequestBody;

    fn sent(version: Version, host: &'static str) -> Request<LentBody> {
        let upstream = Upstream::parse(&["https://inner:8443/base"]).expect("a server");
        let server = &upstream.servers[0];
        let path = server.path("/a?b").expect("a path");
        let headers = [
            (HOST, host),
            (CONNECTION, "upgrade"),
            (UPGRADE, "websocket"),
            (http::header::TE, "trailers"),
        ];
        let headers = headers
            .into_iter()
            .map(|(name, value)| (name, HeaderValue::from_static(value)))
            .collect();
        request(
            version,
            Method::GET,
            (server, &path),
            headers,
            RequestBody::empty().lend(false),
        )
        .expect("a request")
    }

    #[test]
    fn http_1_requests_have_a_path_and_a_host() {
        let request = sent(Version::HTTP_11, "example.com");
        assert_eq!(request.uri(), "/base/a?b");
        assert_eq!(
            (&request.headers()[HOST], request.headers().len()),
            (&HeaderValue::from_static("example.com"), 4)
        );
    }

    #[test]
    fn http_2_requests_name_the_client_s_host_and_have_no_connection_fields() {
        for (host, expected) in [
            ("example.com:81", "https://example.com:81/base/a?b"),
            ("", "https://inner:8443/base/a?b"),
            ("user@example.com", "https://inner:8443/base/a?b"),
        ] {
            let request = sent(Version::HTTP_2, host);
            assert_eq!(request.uri(), expected);
            assert_eq!(request.headers().keys().collect::<Vec<_>>(), ["te"]);
        }
    }
}
