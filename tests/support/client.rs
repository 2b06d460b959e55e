//! An asynchronous HTTP/1.1 client with a pool of connections.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_util::client::legacy::{Client as Pool, connect::HttpConnector};
use hyper_util::rt::TokioExecutor;
use tokio::time::timeout;

use crate::Answer;

/// Timeout for a response, and for its content, far beyond the expected time.
const TIMEOUT: Duration = Duration::from_mins(2);

/// Request body of the client.
pub type Body = UnsyncBoxBody<Bytes, Box<dyn std::error::Error + Send + Sync>>;

/// A client of one server. Clones share the connections.
#[derive(Debug, Clone)]
pub struct Client {
    pool: Pool<HttpConnector, Body>,
    address: SocketAddr,
}

impl Client {
    /// A client of the server at this address.
    pub fn new(address: SocketAddr) -> Self {
        Self {
            pool: Pool::builder(TokioExecutor::new()).build_http(),
            address,
        }
    }

    /// Sends a request with a path as its URI, and reads the complete response.
    #[track_caller]
    pub fn send(&self, request: Request<Body>) -> impl Future<Output = Answer> + Send + 'static {
        let place = std::panic::Location::caller();
        let answer = self.try_send(request);
        async move {
            answer
                .await
                .unwrap_or_else(|error| panic!("{error:?}, at {place}"))
        }
    }

    /// Like [`Client::send`], for a server that may disconnect.
    ///
    /// # Errors
    /// Fails if there is no complete response. The request may still have been processed.
    pub fn try_send(
        &self,
        request: Request<Body>,
    ) -> impl Future<Output = Result<Answer, Box<dyn std::error::Error + Send + Sync>>> + Send + 'static
    {
        let response = self.stream(request);
        async move {
            let response = timeout(TIMEOUT, response).await??;
            Ok(timeout(TIMEOUT, Answer::read(response)).await??)
        }
    }

    /// Sends a request with a path as its URI, and returns after the head of the response.
    ///
    /// # Errors
    /// Fails if there is no response.
    pub fn stream(
        &self,
        request: Request<Body>,
    ) -> impl Future<Output = Result<Response<Incoming>, hyper_util::client::legacy::Error>>
    + Send
    + 'static {
        let (mut head, body) = request.into_parts();
        let path = head.uri.path_and_query().map_or("/", |path| path.as_str());
        head.uri = format!("http://{}{path}", self.address)
            .parse()
            .expect("an address and a path");
        self.pool.request(Request::from_parts(head, body))
    }

    /// Sends a request with these headers and this content.
    #[track_caller]
    pub fn request(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        content: impl Into<Bytes>,
    ) -> impl Future<Output = Answer> + Send + 'static {
        let mut request = Request::builder().method(method).uri(path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        self.send(request.body(full(content)).expect("valid names and values"))
    }

    /// GET.
    #[track_caller]
    pub fn get(
        &self,
        path: &str,
        headers: &[(&str, &str)],
    ) -> impl Future<Output = Answer> + Send + 'static {
        self.request(Method::GET, path, headers, Bytes::new())
    }

    /// HEAD.
    #[track_caller]
    pub fn head(
        &self,
        path: &str,
        headers: &[(&str, &str)],
    ) -> impl Future<Output = Answer> + Send + 'static {
        self.request(Method::HEAD, path, headers, Bytes::new())
    }

    /// PUT.
    #[track_caller]
    pub fn put(
        &self,
        path: &str,
        headers: &[(&str, &str)],
        content: impl Into<Bytes>,
    ) -> impl Future<Output = Answer> + Send + 'static {
        self.request(Method::PUT, path, headers, content)
    }

    /// DELETE.
    #[track_caller]
    pub fn delete(
        &self,
        path: &str,
        headers: &[(&str, &str)],
    ) -> impl Future<Output = Answer> + Send + 'static {
        self.request(Method::DELETE, path, headers, Bytes::new())
    }
}

/// Returns a body with this content.
pub fn full(content: impl Into<Bytes>) -> Body {
    Full::new(content.into())
        .map_err(|never| match never {})
        .boxed_unsync()
}
