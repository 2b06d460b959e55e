//! The interface between a server and the application: a handler, and the context of each request.

use std::fmt;
use std::future::Future;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use http_body_util::BodyExt;
use http_body_util::combinators::UnsyncBoxBody;

use crate::connection::activity::ConnectionActivity;
use crate::interim::InterimSender;
use crate::request_body::RequestBody;
use crate::slots::{RequestSlot, RequestSlots};

/// Any error of a body.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Responds to requests.
pub trait RequestHandler: Send + Sync + 'static {
    /// Body of the responses.
    type Body: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static;

    /// Returns the response to a request. The future is dropped when the client disconnects or resets the stream.
    fn handle(
        self: Arc<Self>,
        request: Request<RequestBody>,
        context: RequestContext,
    ) -> impl Future<Output = Response<Self::Body>> + Send + 'static;

    /// Returns `true` if the handler may use [`RequestContext::interim`], which is `None` otherwise.
    fn sends_interim(&self) -> bool {
        false
    }
}

/// Body of a response of any handler.
pub type AnyBody = UnsyncBoxBody<Bytes, AnyError>;

/// Error of the body of any handler.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct AnyError(pub BoxError);

/// A handler of any type. Clones share it.
///
/// Connections are served with this one type, so a program with many handlers contains their code once.
#[derive(Clone)]
pub struct AnyHandler(Arc<dyn Erased>);

impl AnyHandler {
    /// Returns the response to a request: see [`RequestHandler::handle`].
    pub fn handle(
        &self,
        request: Request<RequestBody>,
        context: RequestContext,
    ) -> impl Future<Output = Response<AnyBody>> + Send + use<> {
        Arc::clone(&self.0).handle_any(request, context)
    }

    /// Returns `true` if the handler may send interim responses.
    pub(crate) fn sends_interim(&self) -> bool {
        self.0.sends_any_interim()
    }
}

impl<H: RequestHandler> From<Arc<H>> for AnyHandler {
    fn from(handler: Arc<H>) -> Self {
        Self(handler)
    }
}

impl fmt::Debug for AnyHandler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AnyHandler").finish_non_exhaustive()
    }
}

/// [`RequestHandler`], as an object.
trait Erased: Send + Sync {
    fn handle_any(
        self: Arc<Self>,
        request: Request<RequestBody>,
        context: RequestContext,
    ) -> Pin<Box<dyn Future<Output = Response<AnyBody>> + Send>>;

    fn sends_any_interim(&self) -> bool;
}

impl<H: RequestHandler> Erased for H {
    fn handle_any(
        self: Arc<Self>,
        request: Request<RequestBody>,
        context: RequestContext,
    ) -> Pin<Box<dyn Future<Output = Response<AnyBody>> + Send>> {
        let response = self.handle(request, context);
        Box::pin(async {
            response
                .await
                .map(|body| body.map_err(|error| AnyError(error.into())).boxed_unsync())
        })
    }

    fn sends_any_interim(&self) -> bool {
        self.sends_interim()
    }
}

/// The client that sent a request, and the resources available to the request.
#[derive(Clone)]
pub struct RequestContext {
    activity: Arc<ConnectionActivity>,
    interim: Option<InterimSender>,
}

impl RequestContext {
    pub(crate) fn new(activity: Arc<ConnectionActivity>, interim: Option<InterimSender>) -> Self {
        Self { activity, interim }
    }

    /// Returns the client's address.
    pub fn remote_address(&self) -> SocketAddr {
        self.activity.client.address
    }

    /// Returns the address by which the limits count the client: an IPv4 address, or the start of an IPv6 network (/64).
    pub fn client(&self) -> IpAddr {
        self.activity.client.peer.network()
    }

    /// Returns `true` if the connection uses TLS.
    pub fn is_secure(&self) -> bool {
        self.activity.client.is_secure
    }

    /// Returns the sender for interim responses, if the handler sends any and the client supports them.
    pub fn interim(&self) -> Option<&InterimSender> {
        self.interim.as_ref()
    }

    /// Takes a slot for the request, which counts towards [`ServerLimits::requests`](crate::ServerLimits::requests) until dropped.
    /// Returns `None` if all slots are taken, or all of this client's.
    pub fn take_slot(&self) -> Option<RequestSlot> {
        RequestSlots::take(&self.activity.client.requests, &self.activity.client.peer)
    }
}

impl fmt::Debug for RequestContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RequestContext")
            .field("remote_address", &self.remote_address())
            .finish_non_exhaustive()
    }
}
