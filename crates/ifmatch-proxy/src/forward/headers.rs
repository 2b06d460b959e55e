//! The header fields of forwarded requests and responses.

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::net::SocketAddr;

use http::header::{CONNECTION, EXPECT, HOST, HeaderName, MAX_FORWARDS, TE, UPGRADE, VIA};
use http::request::Parts;
use http::uri::Authority;
use http::{HeaderMap, HeaderValue, Method, Version};
use ifmatch_core::fields::{self, forwarded, hop_by_hop};

use crate::forward::interim::Interim;
use crate::upstream::server::UpstreamServer;

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const X_FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const X_FORWARDED_PREFIX: HeaderName = HeaderName::from_static("x-forwarded-prefix");
const X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");

/// The client of a request, as reported to the upstream. A server puts it into the request's extensions.
///
/// ```
/// use ifmatch_proxy::ForwardedClient;
///
/// let mut request = http::Request::new(());
/// let client = ForwardedClient { address: ([192, 0, 2, 7], 4711).into(), secure: true, interim: None };
/// request.extensions_mut().insert(client);
/// ```
#[derive(Clone, Debug)]
pub struct ForwardedClient {
    /// Address of the client's end of the connection.
    pub address: SocketAddr,
    /// `true` if the connection is encrypted.
    pub secure: bool,
    /// Receiver of interim responses, if the client accepts them.
    pub interim: Option<Interim>,
}

/// Rules for the header fields of forwarded requests.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ForwardingRules {
    /// Send the upstream's own name as `Host` instead of the client's.
    pub(crate) rewrite_host: bool,
    /// Keep the client information in the request, set by a trusted proxy in front.
    pub(crate) trust_forwarded: bool,
}

impl ForwardingRules {
    /// Returns the header fields of a request to a server, sent by the proxy with this name, which has removed the prefix of
    /// its path.
    pub(crate) fn request(
        self,
        head: &Parts,
        server: &UpstreamServer,
        name: ProxyName,
        prefix: Option<&str>,
    ) -> HeaderMap {
        let mut headers = head.headers.clone();
        let upgrade = requested_upgrade(head.version, &head.headers);
        remove_connection_fields(&mut headers);
        // The server in front answers it when the content is read.
        headers.remove(EXPECT);
        let host = host(head).and_then(|host| HeaderValue::from_str(host).ok());
        self.set_forwarded(
            &mut headers,
            head.extensions.get::<ForwardedClient>(),
            host.as_ref(),
        );
        if let Some(prefix) = prefix {
            // A trusted proxy in front may have removed another one before.
            let before = headers
                .get(X_FORWARDED_PREFIX)
                .and_then(|before| before.to_str().ok())
                .unwrap_or_default();
            if let Ok(prefix) = HeaderValue::from_str(&format!("{before}{prefix}")) {
                headers.insert(X_FORWARDED_PREFIX, prefix);
            }
        }
        let own = || HeaderValue::from_str(server.authority.as_str()).ok();
        match host.filter(|_| !self.rewrite_host).or_else(own) {
            Some(host) => drop(headers.insert(HOST, host)),
            None => drop(headers.remove(HOST)),
        }
        name.add_to(&mut headers, head.version);
        if let Some(left) = max_forwards(head) {
            headers.insert(MAX_FORWARDS, HeaderValue::from(left.saturating_sub(1)));
        }
        if let Some(upgrade) = upgrade {
            headers.insert(UPGRADE, upgrade);
            headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
        }
        headers
    }

    /// Returns the predicate for request fields that the proxy changes, so an upstream sees another value than the
    /// client sent.
    pub(crate) fn overwritten(self) -> fn(&HeaderName) -> bool {
        if self.trust_forwarded {
            |name| *name == VIA || *name == X_FORWARDED_FOR
        } else {
            |name| *name == VIA || forwarded::describes_client(name)
        }
    }

    /// Sets the client information. Values from the client aren't trusted.
    fn set_forwarded(
        self,
        headers: &mut HeaderMap,
        client: Option<&ForwardedClient>,
        host: Option<&HeaderValue>,
    ) {
        if !self.trust_forwarded {
            let names: Vec<_> = headers
                .keys()
                .filter(|name| forwarded::describes_client(name))
                .cloned()
                .collect();
            for name in names {
                headers.remove(name);
            }
        }
        if let Some(client) = client {
            let address = client.address.ip().to_canonical().to_string();
            headers
                .extend(HeaderValue::from_str(&address).map(|address| (X_FORWARDED_FOR, address)));
            let protocol = HeaderValue::from_static(if client.secure { "https" } else { "http" });
            headers.entry(X_FORWARDED_PROTO).or_insert(protocol);
        }
        if let Some(host) = host {
            headers
                .entry(X_FORWARDED_HOST)
                .or_insert_with(|| host.clone());
        }
    }
}

/// Returns a request's host and port, from its URL rather than from `Host` (RFC 9112 §3.2.2).
pub(crate) fn host(head: &Parts) -> Option<&str> {
    let field = || head.headers.get(HOST)?.to_str().ok();
    head.uri.authority().map(Authority::as_str).or_else(field)
}

/// Rewrites the header fields of a response for the client. An upgrade keeps its own fields.
pub(crate) fn response(headers: &mut HeaderMap, version: Version, upgraded: bool) {
    let upgrade = headers.get(UPGRADE).filter(|_| upgraded).cloned();
    remove_connection_fields(headers);
    add_via(headers, version);
    if let Some(upgrade) = upgrade {
        headers.insert(UPGRADE, upgrade);
        headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
    }
}

/// Returns `Max-Forwards` of a TRACE or OPTIONS (RFC 9110 §7.6.2), if present.
pub(crate) fn max_forwards(head: &Parts) -> Option<u64> {
    let counted = matches!(head.method, Method::TRACE | Method::OPTIONS);
    let told = head.headers.get(MAX_FORWARDS).filter(|_| counted)?;
    told.to_str().ok()?.parse().ok()
}

/// Protocols that apply to a single hop: other versions of HTTP in clear text, and TLS.
const SINGLE_HOP: [&[u8]; 4] = [b"h2", b"h2c", b"http", b"tls"];

/// Returns the protocols that the client offers to switch to and that an upstream may accept. Only HTTP/1.1 has
/// upgrades (RFC 9110 §7.8).
pub(crate) fn requested_upgrade(version: Version, headers: &HeaderMap) -> Option<HeaderValue> {
    if version != Version::HTTP_11 || hop_by_hop::options(headers).all(|option| option != UPGRADE) {
        return None;
    }
    let wanted: Vec<&[u8]> = protocols(headers).collect();
    HeaderValue::from_bytes(&wanted.join(&b", "[..]))
        .ok()
        .filter(|_| !wanted.is_empty())
}

/// Returns `true` if an upstream switches to a requested protocol.
pub(crate) fn is_requested(answered: &HeaderMap, wanted: &HeaderValue) -> bool {
    let wanted = || {
        wanted
            .as_bytes()
            .split(|byte| *byte == b',')
            .map(<[u8]>::trim_ascii)
    };
    let mut answered = fields::members(answered, &UPGRADE).peekable();
    answered.peek().is_some()
        && answered.all(|protocol| wanted().any(|one| one.eq_ignore_ascii_case(protocol)))
}

fn protocols(headers: &HeaderMap) -> impl Iterator<Item = &[u8]> {
    fields::members(headers, &UPGRADE).filter(|protocol| {
        let name = protocol
            .split(|byte| *byte == b'/')
            .next()
            .unwrap_or_default()
            .trim_ascii();
        !name.is_empty()
            && !SINGLE_HOP
                .iter()
                .any(|other| other.eq_ignore_ascii_case(name))
    })
}

/// Removes hop-by-hop fields, except `TE: trailers`, since trailers are forwarded.
pub(crate) fn remove_connection_fields(headers: &mut HeaderMap) {
    let trailers =
        fields::members(headers, &TE).any(|token| token.eq_ignore_ascii_case(b"trailers"));
    hop_by_hop::remove(headers);
    if trailers {
        headers.insert(TE, HeaderValue::from_static("trailers"));
    }
}

/// The random name of one proxy. Other instances in front of it or behind it have other names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ProxyName(u64);

impl ProxyName {
    /// Creates a unique name.
    pub(crate) fn new() -> Self {
        // The hasher has random keys.
        Self(RandomState::new().hash_one(VIA))
    }

    /// Adds the name to a request.
    fn add_to(self, headers: &mut HeaderMap, version: Version) {
        add_to_via(headers, version, &self);
    }

    /// Returns `true` if these header fields contain the name.
    pub(crate) fn is_in(self, headers: &HeaderMap) -> bool {
        if !fields::has(headers, &VIA) {
            return false;
        }
        let name = self.to_string();
        fields::members(headers, &VIA)
            .filter_map(|member| {
                std::str::from_utf8(member)
                    .ok()?
                    .split_ascii_whitespace()
                    .nth(1)
            })
            .any(|found| found.eq_ignore_ascii_case(&name))
    }
}

impl fmt::Display for ProxyName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ifmatch-{:016x}", self.0)
    }
}

/// Adds `Via` to a response.
fn add_via(headers: &mut HeaderMap, version: Version) {
    add_to_via(headers, version, &"ifmatch");
}

fn add_to_via(headers: &mut HeaderMap, version: Version, name: &dyn fmt::Display) {
    headers.extend(
        HeaderValue::try_from(format!("{} {name}", protocol(version))).map(|value| (VIA, value)),
    );
}

fn protocol(version: Version) -> &'static str {
    match version {
        Version::HTTP_10 => "1.0",
        Version::HTTP_2 => "2.0",
        _ => "1.1",
    }
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;
    use crate::Upstream;

    fn forwarded(forwarding: ForwardingRules, request: http::request::Builder) -> HeaderMap {
        let upstream = Upstream::parse(&["http://inner:8000"]).expect("a server");
        let (mut head, ()) = request.body(()).expect("a request").into_parts();
        let client = ForwardedClient {
            address: ([192, 0, 2, 7], 4711).into(),
            secure: true,
            interim: None,
        };
        head.extensions.insert(client);
        forwarding.request(&head, &upstream.servers[0], ProxyName::new(), None)
    }

    fn text<'a>(headers: &'a HeaderMap, name: &str) -> Vec<&'a str> {
        headers
            .get_all(name)
            .iter()
            .map(|value| value.to_str().expect("text"))
            .collect()
    }

    #[test]
    fn client_information_comes_from_the_proxy_alone_unless_it_is_trusted() {
        let request = || {
            let request = Request::get("/")
                .header("host", "example.com")
                .header("forwarded", "for=1.2.3.4");
            let request = request
                .header("x-forwarded-for", "1.2.3.4")
                .header("x-forwarded-host", "evil");
            let request = request
                .header("x-forwarded-prefix", "/evil")
                .header("x_forwarded_host", "evil");
            request
                .header("x.forwarded.for", "1.2.3.4")
                .header("x-real-ip", "1.2.3.4")
        };
        let headers = forwarded(ForwardingRules::default(), request());
        assert_eq!(text(&headers, "x-forwarded-for"), ["192.0.2.7"]);
        assert_eq!(text(&headers, "x-forwarded-host"), ["example.com"]);
        assert_eq!(text(&headers, "x-forwarded-proto"), ["https"]);
        for name in [
            "forwarded",
            "x-forwarded-prefix",
            "x_forwarded_host",
            "x.forwarded.for",
            "x-real-ip",
        ] {
            assert_eq!(text(&headers, name), [""; 0], "{name}");
        }
        assert_eq!(text(&headers, "host"), ["example.com"]);
        assert!(text(&headers, "via").concat().starts_with("1.1 ifmatch-"));

        let trusting = ForwardingRules {
            rewrite_host: true,
            trust_forwarded: true,
        };
        let headers = forwarded(trusting, request());
        assert_eq!(text(&headers, "x-forwarded-for"), ["1.2.3.4", "192.0.2.7"]);
        assert_eq!(text(&headers, "x-forwarded-host"), ["evil"]);
        assert_eq!(text(&headers, "x-forwarded-prefix"), ["/evil"]);
        assert_eq!(text(&headers, "host"), ["inner:8000"]);
    }

    #[test]
    fn every_changed_field_is_declared() {
        let names = [
            "forwarded",
            "via",
            "x-forwarded-for",
            "x-forwarded-host",
            "x-forwarded-proto",
            "x-forwarded-x",
        ];
        for trust_forwarded in [false, true] {
            let forwarding = ForwardingRules {
                rewrite_host: false,
                trust_forwarded,
            };
            for name in
                names
                    .into_iter()
                    .chain(["accept", "accept-encoding", "cookie", "x-real-ip"])
            {
                // The two requests differ only in the address and version of the client.
                let upstream = Upstream::parse(&["http://inner:8000"]).expect("a server");
                let seen = |address: [u8; 4], version| {
                    let request = Request::get("/")
                        .version(version)
                        .header("host", "a")
                        .header(name, "b");
                    let (mut head, ()) = request.body(()).expect("a request").into_parts();
                    let address = (address, 4711).into();
                    head.extensions.insert(ForwardedClient {
                        address,
                        secure: true,
                        interim: None,
                    });
                    let headers =
                        forwarding.request(&head, &upstream.servers[0], ProxyName::new(), None);
                    headers.get_all(name).iter().cloned().collect::<Vec<_>>()
                };
                let lines = seen([192, 0, 2, 7], Version::HTTP_11);
                let differs = lines != seen([192, 0, 2, 8], Version::HTTP_2);
                let known = forwarding.overwritten()(&HeaderName::from_static(name));
                assert!(known || !differs, "{name}, {trust_forwarded}");
                assert!(
                    known || lines == ["b"],
                    "{name}, {trust_forwarded}: {lines:?}"
                );
            }
        }
    }

    #[test]
    fn max_forwards_is_decremented_for_trace_and_options() {
        let left = |method: Method| {
            let request = Request::builder()
                .method(method)
                .uri("/")
                .header("max-forwards", "3");
            text(
                &forwarded(ForwardingRules::default(), request),
                "max-forwards",
            )
            .concat()
        };
        assert_eq!(left(Method::OPTIONS), "2");
        assert_eq!(left(Method::TRACE), "2");
        assert_eq!(left(Method::GET), "3");
    }

    #[test]
    fn an_upgrade_is_forwarded_only_with_its_connection_option() {
        let request = || Request::get("/").header("upgrade", "websocket");
        let headers = forwarded(
            ForwardingRules::default(),
            request().header("connection", "keep-alive, Upgrade"),
        );
        assert_eq!(
            (text(&headers, "upgrade"), text(&headers, "connection")),
            (vec!["websocket"], vec!["upgrade"])
        );
        let headers = forwarded(ForwardingRules::default(), request());
        assert_eq!(text(&headers, "upgrade"), [""; 0]);
    }

    #[test]
    fn other_versions_of_http_are_not_forwarded_as_upgrades() {
        for (upgrade, expected) in [
            (&["h2c"][..], &[""; 0][..]),
            (&["websocket, h2c"], &["websocket"]),
            (&["H2C/1 ,, x/2", "h2c", "websocket"], &["x/2, websocket"]),
            (&["HTTP/2.0, TLS/1.0", "h2"], &[]),
            (&[" "], &[]),
        ] {
            let mut request = Request::get("/")
                .header("connection", "upgrade")
                .header("http2-settings", "AAMAAABk");
            for line in upgrade {
                request = request.header("upgrade", *line);
            }
            let headers = forwarded(ForwardingRules::default(), request);
            assert_eq!(text(&headers, "upgrade"), expected, "{upgrade:?}");
            assert_eq!(text(&headers, "http2-settings"), [""; 0], "{upgrade:?}");
        }
    }

    #[test]
    fn an_upstream_may_switch_only_to_requested_protocols() {
        let wanted = HeaderValue::from_static("websocket, x/2");
        for (answered, expected) in [
            (&["WebSocket"][..], true),
            (&["x/2"], true),
            (&["h2c"], false),
            (&["websocket, h2c"], false),
            (&[], false),
        ] {
            let answered = answered
                .iter()
                .map(|line| (UPGRADE, HeaderValue::from_static(line)))
                .collect();
            assert_eq!(is_requested(&answered, &wanted), expected, "{answered:?}");
        }
    }

    fn removed(lines: &[(&'static str, &'static str)]) -> Vec<String> {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            headers.append(*name, HeaderValue::from_static(value));
        }
        remove_connection_fields(&mut headers);
        headers
            .iter()
            .map(|(name, value)| format!("{name}: {}", value.to_str().expect("text")))
            .collect()
    }

    #[test]
    fn hop_by_hop_fields_are_removed() {
        let lines = [
            ("connection", "close, X-Private"),
            ("connection", "keep-alive"),
            ("keep-alive", "timeout=5"),
            ("x-private", "1"),
            ("te", "gzip, Trailers"),
            ("transfer-encoding", "chunked"),
            ("proxy-authorization", "Basic eDp5"),
            ("x-public", "2"),
        ];
        assert_eq!(removed(&lines), ["x-public: 2", "te: trailers"]);
    }

    #[test]
    fn connection_options_cannot_remove_the_host() {
        let lines = [
            ("connection", "host, content-length"),
            ("host", "a"),
            ("content-length", "0"),
        ];
        assert_eq!(removed(&lines).len(), 2);
    }

    #[test]
    fn a_proxy_recognises_only_its_own_name() {
        let (own, other) = (ProxyName::new(), ProxyName::new());
        let mut headers = HeaderMap::new();
        assert!(!own.is_in(&headers));
        headers.append(
            VIA,
            HeaderValue::from_static("1.1 ifmatch, 1.0 fred (a comment), 1.1,,"),
        );
        other.add_to(&mut headers, Version::HTTP_2);
        assert!(!own.is_in(&headers) && other.is_in(&headers));
        own.add_to(&mut headers, Version::HTTP_11);
        assert!(own.is_in(&headers) && other.is_in(&headers));
    }

    #[test]
    fn a_name_is_found_in_any_form_that_proxies_send() {
        let name = ProxyName::new();
        let upper = name.to_string().to_ascii_uppercase();
        for (line, expected) in [
            (format!("1.1 a,1.1 {name}"), true),
            (format!("1.1 a , HTTP/1.1\t{upper} (why not),1.1 b"), true),
            (format!("1.1 {name}0"), false),
            (format!("1.1 a ({name})"), false),
            (name.to_string(), false),
        ] {
            let value = HeaderValue::try_from(&line).expect("a value");
            assert_eq!(
                name.is_in(&HeaderMap::from_iter([(VIA, value)])),
                expected,
                "{line}"
            );
        }
    }
}
