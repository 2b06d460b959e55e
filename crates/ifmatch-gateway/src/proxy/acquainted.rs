//! Telling those who forward a request who sent it.

use std::task::{Context, Poll};

use http::Request;
use ifmatch_cache::Cache;
use ifmatch_proxy::Client;
use tower_service::Service;

/// A service that can be told who asks before it is called.
pub(crate) trait Introduce {
    /// The next request is this client's.
    fn introduce(&mut self, client: Client);
}

/// A service whose requests say by an extension who asks.
///
/// It stands behind the cache: what is answered from there needs no extension, which is made of four pieces of memory.
#[derive(Clone, Debug)]
pub(super) struct Acquainted<S> {
    inner: S,
    client: Option<Client>,
}

impl<S> Acquainted<S> {
    pub(super) fn new(inner: S) -> Self {
        Self { inner, client: None }
    }
}

impl<S> Introduce for Acquainted<S> {
    fn introduce(&mut self, client: Client) {
        self.client = Some(client);
    }
}

impl<S: Introduce> Introduce for Cache<S> {
    fn introduce(&mut self, client: Client) {
        self.get_mut().introduce(client);
    }
}

impl<S: Service<Request<B>>, B> Service<Request<B>> for Acquainted<S> {
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, mut request: Request<B>) -> Self::Future {
        if let Some(client) = &self.client {
            request.extensions_mut().insert(client.clone());
        }
        self.inner.call(request)
    }
}
