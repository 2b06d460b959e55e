//! Telling those who forward a request who sent it.

use std::task::{Context, Poll};

use http::Request;
use ifmatch_cache::Cache;
use ifmatch_proxy::Client;
use tower_service::Service;

use crate::interim::Turn;

/// A service that can be told who asks before it is called.
pub(crate) trait Introduce {
    /// The next request is this client's, which takes what is said in this turn before the answer.
    fn introduce(&mut self, client: Client, turn: Option<Turn>);
}

/// A service whose requests say by an extension who asks.
///
/// It stands behind the cache: what is answered from there needs no extension, which is made of four pieces of memory.
#[derive(Clone, Debug)]
pub(super) struct Acquainted<S> {
    inner: S,
    client: Option<(Client, Option<Turn>)>,
}

impl<S> Acquainted<S> {
    pub(super) fn new(inner: S) -> Self {
        Self { inner, client: None }
    }
}

impl<S> Introduce for Acquainted<S> {
    fn introduce(&mut self, client: Client, turn: Option<Turn>) {
        self.client = Some((client, turn));
    }
}

impl<S: Introduce> Introduce for Cache<S> {
    fn introduce(&mut self, client: Client, turn: Option<Turn>) {
        self.get_mut().introduce(client, turn);
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
        if let Some((client, turn)) = &self.client {
            let interim = turn.as_ref().map(Turn::interim);
            request.extensions_mut().insert(Client { interim, ..client.clone() });
        }
        self.inner.call(request)
    }
}
