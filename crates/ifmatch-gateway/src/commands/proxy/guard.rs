//! Guarded writes, for upstreams that are changed through this proxy only.

use std::sync::Arc;
use std::time::Duration;

use http::header::{ETAG, HOST};
use http::request::Parts;
use http::{Request, Response};
use ifmatch::ConditionalLayer;
use ifmatch::key::{KeyExtractor, PathKey, shorten};
use ifmatch_register::{InvalidKey, Key, Register};
use url::Url;

use ifmatch_gateway_config::proxy_settings::ProxySettings;

/// Time after the upstream's timeout until the outcome of a write counts as unknown.
const MARGIN: Duration = Duration::from_secs(5);

/// Returns the layer between the cache and the upstreams, which keeps the heads of responses in `memory` bytes. A write may
/// take as long as the upstream's timeout.
pub(super) fn layer(
    register: Arc<dyn Register>,
    memory: u64,
    settings: &ProxySettings,
) -> ConditionalLayer {
    let mut path = PathKey::new();
    if settings.guard_ignore_case {
        path = path.ignoring_case();
    }
    if settings.guard_ignore_trailing_slash {
        path = path.ignoring_trailing_slash();
    }
    let builder = ConditionalLayer::builder()
        .register(register)
        .key(HostAndPath(path));
    // Any method may change an upstream's resource. A GET that no client has sent is one that a condition needs.
    let builder = builder.guard_where(|_| true).get_after_writes(false);
    builder
        .cache_capacity(memory)
        .write_timeout(settings.answer_timeout.duration() + MARGIN)
        .build()
}

/// Removes an upstream's own tag, so the layer makes one. Many servers derive it from the date and the length, and two
/// versions of one second can then have the same tag.
pub(super) fn without_tag<B>(mut response: Response<B>) -> Response<B> {
    response.headers_mut().remove(ETAG);
    response
}

/// Identifies a resource by host and path, in any version of HTTP and in any of their spellings that a route or any upstream
/// takes for the same: with a port or a final dot, and with dot segments.
#[derive(Debug, Default)]
struct HostAndPath(PathKey);

impl KeyExtractor for HostAndPath {
    fn key(&self, head: &Parts) -> Result<Key, InvalidKey> {
        let named = head.headers.get(HOST).and_then(|host| host.to_str().ok());
        let host = head
            .uri
            .authority()
            .map(http::uri::Authority::as_str)
            .or(named)
            .unwrap_or_default();
        let url = Some(format!("http://{host}{}", head.uri.path())).filter(|_| !host.is_empty());
        let Some(url) = url.and_then(|url| Url::parse(&url).ok()) else {
            return shorten(&format!("{host}{}", self.0.key(head)?.as_str()));
        };
        let mut plain = Request::new(()).into_parts().0;
        plain.uri = url.path().parse().unwrap_or_else(|_| head.uri.clone());
        let host = url.host_str().unwrap_or_default().trim_end_matches('.');
        shorten(&format!("{host}{}", self.0.key(&plain)?.as_str()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(uri: &str, host: Option<&str>) -> Key {
        let mut request = Request::put(uri);
        if let Some(host) = host {
            request = request.header(HOST, host);
        }
        HostAndPath::default()
            .key(&request.body(()).unwrap().into_parts().0)
            .unwrap()
    }

    #[test]
    fn both_versions_of_http_identify_the_same_resource() {
        assert_eq!(
            key("/a?x", Some("Example.com")),
            key("https://example.com/a", None)
        );
        assert_ne!(key("/a", Some("a.example")), key("/a", Some("b.example")));
        for host in [
            "a.example:80",
            "a.example:8080",
            "A.example.",
            "a.example.:80",
        ] {
            assert_eq!(
                key("/a", Some(host)),
                key("/a", Some("a.example")),
                "{host}"
            );
        }
        for path in ["/./b", "/a/../b", "/a/%2E%2e/b", "/%62", "/../b?x"] {
            assert_eq!(
                key(path, Some("a.example")),
                key("/b", Some("a.example")),
                "{path}"
            );
        }
        for path in ["/B", "/b/", "//b", "/a%2Fb", "/b%3Fx", "/.b"] {
            assert_ne!(
                key(path, Some("a.example")),
                key("/b", Some("a.example")),
                "{path}"
            );
        }
        assert_eq!(
            key("/a%2fb", Some("a.example")),
            key("/a/b", Some("a.example"))
        );
        assert_ne!(key("/a", Some("[::1]")), key("/a", Some("[::2]:80")));
        assert_ne!(key("/a/b", None), key("/b", Some("a")));
        let longest = format!("/{}", "a".repeat(Key::MAX_LEN - 1));
        assert_ne!(
            key(&longest, Some("a.example")),
            key(&longest, Some("b.example")),
            "host and path together are too long"
        );
    }
}
