//! The builder of a proxy.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use rustls::RootCertStore;
use rustls::sign::CertifiedKey;

use crate::forward::headers::{ForwardingRules, ProxyName};
use crate::observer::{ProxyObserver, UpstreamState};
use crate::proxy::Proxy;
use crate::route::{Route, Routes};
use crate::state::{ProxyState, UpstreamTimeouts};
use crate::upstream::client::HttpClient;
use crate::upstream::connect::TlsCertificates;
use crate::upstream::health::HealthCheck;
use crate::upstream::{InvalidUpstream, Upstream};

/// Configures a [`Proxy`].
///
/// ```
/// use std::time::Duration;
/// use ifmatch_proxy::{Proxy, Upstream};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let proxy = Proxy::builder()
///     .route("/", Upstream::parse(&["http://127.0.0.1:8000"])?)?
///     .answer_timeout(Duration::from_secs(10))
///     .build()?;
/// # drop(proxy);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Default)]
pub struct ProxyBuilder {
    routes: Routes,
    forwarding: ForwardingRules,
    timeouts: UpstreamTimeouts,
    health: Option<HealthCheck>,
    certificates: TlsCertificates,
    http2: bool,
    observer: Option<Arc<dyn ProxyObserver>>,
}

impl Proxy {
    /// Returns a builder.
    pub fn builder() -> ProxyBuilder {
        ProxyBuilder::default()
    }
}

impl ProxyBuilder {
    /// Routes requests for a host, a path or both to an upstream, or to a [`Route`] with more rules:
    /// `example.com/images/`, `example.com` or `/`. `*.example.com` matches all hosts below `example.com`, at any
    /// depth, but not `example.com` itself. The most specific route wins: the host counts first, then the path. A route
    /// matches its path and every path below.
    ///
    /// If routes or upstreams have paths, every reading of a request's path by a server must lead to the same route.
    /// Paths with dot segments are rejected, as are paths that lead elsewhere because of empty segments, parameters,
    /// backslashes or escapes. Accepted paths are forwarded in their normal form (RFC 3986 §6.2.2).
    ///
    /// # Errors
    /// Fails if the host is invalid, if servers could read the path in several ways, if it has no prefix to strip, or if there is a
    /// route with the same host and path.
    pub fn route(
        mut self,
        pattern: &str,
        route: impl Into<Route>,
    ) -> Result<Self, InvalidUpstream> {
        self.routes.add(pattern, route.into())?;
        Ok(self)
    }

    /// Sends the upstream's own name as `Host` instead of the client's.
    #[must_use]
    pub fn rewrite_host(mut self, rewrite: bool) -> Self {
        self.forwarding.rewrite_host = rewrite;
        self
    }

    /// Keeps requests' `Forwarded` and `X-Forwarded-…` fields, which any client can send. Set this only if all requests
    /// come through another proxy of yours. By default, they're removed or replaced.
    #[must_use]
    pub fn trust_forwarded(mut self, trust: bool) -> Self {
        self.forwarding.trust_forwarded = trust;
        self
    }

    /// Offers HTTP/2 to servers with TLS, which choose during the handshake (ALPN). By default, only HTTP/1.1 is
    /// offered: requests over one HTTP/2 connection share its fate, and its packet loss.
    #[must_use]
    pub fn http2(mut self, offer: bool) -> Self {
        self.http2 = offer;
        self
    }

    /// Sets the maximum time to open a connection, including the handshakes, and the maximum time that a request waits in a server's queue.
    /// Defaults to 5 seconds.
    #[must_use]
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.timeouts.connect = timeout;
        self
    }

    /// Sets the maximum time until an upstream begins its response after it received the whole request, and the maximum
    /// pause within a response, or in taking the content of a request. Defaults to 60 seconds.
    #[must_use]
    pub fn answer_timeout(mut self, timeout: Duration) -> Self {
        self.timeouts.answer = timeout;
        self
    }

    /// Trusts these certificate authorities for upstreams with TLS, instead of the system's.
    ///
    /// ```
    /// use ifmatch_proxy::{Proxy, Upstream};
    /// use rustls::RootCertStore;
    ///
    /// let roots = RootCertStore::empty();
    /// let upstream = Upstream::parse(&["https://example.com"])?;
    /// // Trusts no server at all. The system may lack authorities of its own.
    /// assert!(Proxy::builder().route("/", upstream)?.trust(roots).build().is_ok());
    /// # Ok::<(), ifmatch_proxy::InvalidUpstream>(())
    /// ```
    #[must_use]
    pub fn trust(mut self, roots: RootCertStore) -> Self {
        self.certificates.roots = Some(roots);
        self
    }

    /// Sends this certificate to servers that ask for one (mutual TLS). None by default.
    #[must_use]
    pub fn client_certificate(mut self, certificate: Arc<CertifiedKey>) -> Self {
        self.certificates.own = Some(certificate);
        self
    }

    /// Checks the health of every server. An unhealthy server gets requests only if every other server is unhealthy, or has
    /// failed for the same request: see [`Proxy::watch_health`].
    #[must_use]
    pub fn health_check(mut self, check: HealthCheck) -> Self {
        self.health = Some(check);
        self
    }

    /// Returns the initial state of all upstreams, for metrics.
    ///
    /// ```
    /// use ifmatch_proxy::{Proxy, Upstream};
    ///
    /// let builder = Proxy::builder().route("example.com", Upstream::parse(&["http://10.0.0.7:8080"])?)?;
    /// assert_eq!(builder.upstreams()[0].route, "example.com");
    /// # Ok::<(), ifmatch_proxy::InvalidUpstream>(())
    /// ```
    pub fn upstreams(&self) -> Vec<UpstreamState> {
        self.routes.states()
    }

    /// Reports upstream events to `observer`.
    #[must_use]
    pub fn observer(mut self, observer: Arc<dyn ProxyObserver>) -> Self {
        self.observer = Some(observer);
        self
    }

    /// Builds the proxy.
    ///
    /// # Errors
    /// Fails if an upstream uses TLS, the system has no root certificates, and there are [no others](Self::trust).
    pub fn build(mut self) -> io::Result<Proxy> {
        let secure = self.routes.upstreams().any(Upstream::is_secure);
        let certificates = if secure {
            self.certificates
        } else {
            TlsCertificates::unused()
        };
        for route in self.routes.all_mut() {
            let client = |timeout| HttpClient::new(timeout, certificates.clone(), self.http2);
            route.client = route.connect_timeout.map(client).transpose()?;
        }
        let client = HttpClient::new(self.timeouts.connect, certificates, self.http2)?;
        Ok(Proxy::new(ProxyState {
            client,
            routes: self.routes,
            name: ProxyName::new(),
            forwarding: self.forwarding,
            timeouts: self.timeouts,
            health: self.health,
            observer: self.observer,
        }))
    }
}

impl fmt::Debug for ProxyBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProxyBuilder")
            .field("routes", &self.routes)
            .finish_non_exhaustive()
    }
}
