//! The HTTP client: sends a request to a server over a pooled or a new connection.

use std::error::Error;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response, Version};
use hyper::body::Incoming;
use ifmatch_runtime::Cause;
use tokio::time::error::Elapsed;
use tokio::time::timeout;

use super::connect::{ConnectionProtocol, Connector, OpenedConnection, TlsCertificates};
use super::pool::{ConnectionPool, Http1, Http2};
use super::resolver::NameResolver;
use super::server::UpstreamServer;
use crate::forward::request_body::{BoxError, LentBody, RequestBody};

/// Number of pooled connections that may turn out to be closed before a new one is opened.
const STALE: u32 = 2;

/// An HTTP client. Cheap to clone.
#[derive(Clone)]
pub(crate) struct HttpClient(Arc<ClientState>);

struct ClientState {
    connector: Connector,
    resolver: NameResolver,
    timeout: Duration,
    /// Offer HTTP/2 to servers with TLS.
    http2: bool,
}

/// Error of a request.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SendError {
    /// There is no connection, so nothing was sent.
    #[error(transparent)]
    Connect(BoxError),
    /// The connection failed.
    #[error(transparent)]
    Exchange(hyper::Error),
    /// The content can't be sent again.
    #[error("the connection closed after it had read a part of the content")]
    Consumed,
}

/// A connection, and if it was used before.
struct LeasedConnection {
    connection: OpenedConnection,
    reused: bool,
}

impl HttpClient {
    /// Creates a client that waits this long for a connection, including the lookup of the name and the handshakes.
    ///
    /// # Errors
    /// Fails if the authorities of the system are needed, and it has none.
    pub(crate) fn new(
        timeout: Duration,
        certificates: TlsCertificates,
        http2: bool,
    ) -> io::Result<Self> {
        Self::with_resolver(NameResolver::system(), timeout, certificates, http2)
    }

    fn with_resolver(
        resolver: NameResolver,
        timeout: Duration,
        certificates: TlsCertificates,
        http2: bool,
    ) -> io::Result<Self> {
        let connector = Connector::new(resolver.clone(), timeout, certificates)?;
        Ok(Self(Arc::new(ClientState {
            connector,
            resolver,
            timeout,
            http2,
        })))
    }

    /// Sends the request that `request` creates for a version of HTTP, with `body`. It is created again for another connection if a
    /// pooled one has closed before the server could process it. If `request` then returns `None`, that fails.
    ///
    /// An `upgrade` needs HTTP/1.1.
    pub(crate) async fn send(
        &self,
        server: &UpstreamServer,
        upgrade: bool,
        body: &RequestBody,
        request: impl Fn(Version) -> Option<Request<LentBody>>,
    ) -> Result<Response<Incoming>, SendError> {
        let protocol = self.0.protocol(server, upgrade);
        let mut stale = 0;
        loop {
            body.await_connection();
            let LeasedConnection { connection, reused } =
                self.0.connection(server, protocol, stale < STALE).await?;
            let error = match connection {
                OpenedConnection::Http1(connection) => {
                    let request = request(Version::HTTP_11).ok_or(SendError::Consumed)?;
                    exchange_http1(server, connection, request).await
                }
                OpenedConnection::Http2(connection) => {
                    let request = request(Version::HTTP_2).ok_or(SendError::Consumed)?;
                    exchange_http2(server, &connection, request).await
                }
            };
            match error {
                Err(error) if reused && is_unprocessed(&error) => {
                    stale += 1;
                    body.wait_for_return().await;
                }
                result => return result.map_err(SendError::Exchange),
            }
        }
    }
}

impl ClientState {
    fn protocol(&self, server: &UpstreamServer, upgrade: bool) -> ConnectionProtocol {
        if server.speaks_http2 {
            ConnectionProtocol::Http2
        } else if self.http2 && server.is_secure() && !upgrade {
            ConnectionProtocol::Negotiated
        } else {
            ConnectionProtocol::Http1
        }
    }

    /// Returns a connection, a pooled one only if `may_reuse` is set.
    async fn connection(
        &self,
        server: &UpstreamServer,
        protocol: ConnectionProtocol,
        may_reuse: bool,
    ) -> Result<LeasedConnection, SendError> {
        let reuse = || {
            if may_reuse {
                self.reuse(server, protocol)
            } else {
                None
            }
        };
        if let Some(connection) = reuse() {
            return Ok(LeasedConnection {
                connection,
                reused: true,
            });
        }
        let url = server
            .origin()
            .ok_or_else(|| SendError::Connect("the server has no valid URL".into()))?;
        let open = async {
            let is_exclusive =
                || protocol == ConnectionProtocol::Http1 || server.pool.declines_http2();
            let mut turn = if is_exclusive() {
                None
            } else {
                Some(server.pool.opening.lock().await)
            };
            // Another request may have opened a connection for both.
            if let Some(connection) = reuse() {
                return Ok(LeasedConnection {
                    connection,
                    reused: true,
                });
            }
            // If the server has declined HTTP/2 meanwhile, no other request can share this connection.
            turn.take_if(|_| is_exclusive());
            let connection = self.connector.open(url, protocol).await?;
            if protocol == ConnectionProtocol::Negotiated {
                server
                    .pool
                    .negotiated(matches!(connection, OpenedConnection::Http2(_)));
            }
            if let OpenedConnection::Http2(connection) = &connection {
                server.pool.share(connection);
            }
            Ok(LeasedConnection {
                connection,
                reused: false,
            })
        };
        match timeout(self.timeout, open).await {
            Ok(leased) => leased.map_err(|error: BoxError| {
                SendError::Connect(Cause::explain(error, "http://", "--upstream-ca FILE"))
            }),
            Err(elapsed) => Err(SendError::Connect(elapsed.into())),
        }
    }

    fn reuse(
        &self,
        server: &UpstreamServer,
        protocol: ConnectionProtocol,
    ) -> Option<OpenedConnection> {
        let current = |address| self.resolver.is_current(server.authority.host(), address);
        let shared = || server.pool.shared(current).map(OpenedConnection::Http2);
        let single = || server.pool.take(current).map(OpenedConnection::Http1);
        match protocol {
            ConnectionProtocol::Http1 => single(),
            ConnectionProtocol::Http2 => shared(),
            ConnectionProtocol::Negotiated => shared().or_else(single),
        }
    }
}

async fn exchange_http1(
    server: &UpstreamServer,
    mut connection: Http1,
    request: Request<LentBody>,
) -> hyper::Result<Response<Incoming>> {
    let result = connection.sender.try_send_request(request).await;
    match result {
        Ok(response) => {
            server.pool.put(connection);
            Ok(response)
        }
        Err(error) => Err(error.into_error()),
    }
}

/// Tells the pool when a request is cancelled before its response.
struct Unanswered<'a>(Option<(&'a ConnectionPool, &'a Arc<Http2>)>);

impl Drop for Unanswered<'_> {
    fn drop(&mut self) {
        if let Some((pool, connection)) = self.0 {
            pool.cancelled(connection);
        }
    }
}

async fn exchange_http2(
    server: &UpstreamServer,
    connection: &Arc<Http2>,
    request: Request<LentBody>,
) -> hyper::Result<Response<Incoming>> {
    let mut unanswered = Unanswered(Some((&server.pool, connection)));
    let result = connection.sender.clone().try_send_request(request).await;
    unanswered.0 = None;
    result.map_err(|error| {
        let error = error.into_error();
        // A server that refuses a stream, or is about to close the connection, may accept another connection.
        if is_unprocessed(&error) {
            server.pool.retire(connection);
        }
        error
    })
}

/// Returns `true` if the server hasn't processed the request: it wasn't sent, or the server says so. HTTP/2 has two
/// ways to say so (RFC 9113 §8.7): `REFUSED_STREAM`, and GOAWAY with the last stream that may have been processed, which
/// only fails later ones.
pub(crate) fn is_unprocessed(error: &(dyn Error + 'static)) -> bool {
    causes(error).any(|cause| {
        let is_unsent = cause.downcast_ref().is_some_and(hyper::Error::is_canceled);
        is_unsent || cause.downcast_ref().is_some_and(is_refusal)
    })
}

fn is_refusal(error: &h2::Error) -> bool {
    error.is_remote() && (error.is_go_away() || error.reason() == Some(h2::Reason::REFUSED_STREAM))
}

/// Returns `true` if a connection wasn't made in time.
pub(crate) fn is_timeout(error: &(dyn Error + 'static)) -> bool {
    let is_slow = |error: &io::Error| error.kind() == io::ErrorKind::TimedOut;
    causes(error).any(|cause| cause.is::<Elapsed>() || cause.downcast_ref().is_some_and(is_slow))
}

/// Returns an error and its causes.
pub(crate) fn causes<'a>(
    error: &'a (dyn Error + 'static),
) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(Some(error), |error| (*error).source())
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, SocketAddr};
    use std::sync::Mutex;

    use http::{HeaderMap, Method};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;
    use crate::Upstream;
    use crate::forward::outgoing;

    const HOUR: Duration = Duration::from_hours(1);

    /// Answers requests with this status, over connections that stay open.
    async fn serve(address: SocketAddr, status: u16) -> SocketAddr {
        let listener = TcpListener::bind(address).await.expect("a free port");
        let address = listener.local_addr().expect("a bound address");
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                tokio::spawn(async move {
                    let mut head = [0; 1024];
                    while stream.read(&mut head).await.is_ok_and(|count| count > 0) {
                        let answer = format!("HTTP/1.1 {status} Any\r\ncontent-length: 0\r\n\r\n");
                        stream
                            .write_all(answer.as_bytes())
                            .await
                            .expect("an open connection");
                    }
                });
            }
        });
        address
    }

    #[tokio::test]
    async fn a_connection_to_a_former_address_is_not_used_again() {
        let (first, second) = (IpAddr::from([127, 0, 0, 1]), IpAddr::from([127, 0, 0, 2]));
        let port = serve((first, 0).into(), 201).await.port();
        serve((second, port).into(), 202).await;
        let current = Arc::new(Mutex::new(first));
        let answer = Arc::clone(&current);
        let resolver = NameResolver::new(Duration::ZERO, move |_| {
            let address = SocketAddr::from((*answer.lock().expect("no panic"), 0));
            Box::pin(async move { Ok(vec![address]) })
        });
        let client = HttpClient::with_resolver(resolver, HOUR, TlsCertificates::unused(), false)
            .expect("a client");
        let upstream =
            Upstream::parse(&[format!("http://upstream.example:{port}")]).expect("a server");
        let ask = || async {
            let (server, body) = (&upstream.servers[0], RequestBody::empty());
            let path = server.path("/").expect("a path");
            let request = |version| {
                outgoing::request(
                    version,
                    Method::GET,
                    (server, &path),
                    HeaderMap::new(),
                    body.lend(false),
                )
            };
            client
                .send(server, false, &body, request)
                .await
                .expect("a response")
                .status()
                .as_u16()
        };
        assert_eq!(ask().await, 201);
        assert_eq!(ask().await, 201);
        *current.lock().expect("no panic") = second;
        // A lookup in the background precedes the change.
        while ask().await == 201 {
            tokio::task::yield_now().await;
        }
        assert_eq!(ask().await, 202);
    }
}
