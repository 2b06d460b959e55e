//! The interface of a dialect: a protocol that some requests speak, over the same store as all others.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use http::Response;
use http::request::Parts;
use ifmatch_core::date::{HttpDate, Timestamp};
use ifmatch_core::policy::RequirePreconditions;
use ifmatch_runtime::Clock;

use crate::body::BlobBody;
use crate::documents::Documents;
use crate::store::{BlobStore, Upload};
use crate::waits::Waits;

/// A protocol in which requests ask for blobs. [`BlobService::dialect`](crate::BlobService::dialect) adds one.
///
/// The service passes a request to the first dialect that recognizes it, and to the plain dialect otherwise. All dialects
/// see the same blobs.
///
/// ```
/// use std::sync::Arc;
///
/// use futures_util::future::BoxFuture;
/// use http::{Response, request::Parts};
/// use ifmatch_blob::BlobService;
/// use ifmatch_blob::body::BlobBody;
/// use ifmatch_blob::dialect::{Context, Dialect};
/// use ifmatch_blob::store::{BlobStore, Upload};
///
/// /// Answers `/ping`.
/// struct Ping;
///
/// impl Dialect for Ping {
///     fn speaks(&self, head: &Parts) -> bool {
///         head.uri.path() == "/ping"
///     }
///
///     fn answer(&self, _: Arc<Context>, _: Parts, _: Upload) -> BoxFuture<'static, Response<BlobBody>> {
///         Box::pin(async { Response::new(BlobBody::empty()) })
///     }
/// }
///
/// # fn with(store: Arc<dyn BlobStore>) {
/// let service = BlobService::new(store).dialect(Ping);
/// # }
/// ```
pub trait Dialect: Send + Sync + 'static {
    /// Returns `true` if a request is in this dialect.
    fn speaks(&self, head: &Parts) -> bool;

    /// Answers a request. Reads its body only in order to store it.
    fn answer(
        &self,
        context: Arc<Context>,
        head: Parts,
        body: Upload,
    ) -> BoxFuture<'static, Response<BlobBody>>;
}

/// The other end of a request's connection, in the request's extensions, for dialects whose signatures name addresses or
/// protocols.
///
/// ```
/// use ifmatch_blob::dialect::Peer;
///
/// let mut request = http::Request::get("/c/b").body(())?;
/// request.extensions_mut().insert(Peer { address: [192, 0, 2, 7].into(), is_secure: true });
/// # Ok::<(), http::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Address of the client, or of a proxy in front of the server.
    pub address: IpAddr,
    /// The connection uses TLS.
    pub is_secure: bool,
}

/// The client of a request, in the request's extensions, for what clients [share](crate::shares): waits, and the memory for documents.
///
/// ```
/// use ifmatch_blob::dialect::Client;
///
/// let mut request = http::Request::get("/c/b").header("prefer", "wait=30").body(())?;
/// request.extensions_mut().insert(Client([192, 0, 2, 7].into()));
/// # Ok::<(), http::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Client(pub IpAddr);

/// The store, and the settings that apply to every dialect.
#[derive(Clone)]
pub struct Context {
    /// The store.
    pub store: Arc<dyn BlobStore>,
    /// The clock of this process, for waits and dates. Leases end by the time of the engine that keeps their records:
    /// see [`SeenLease`](ifmatch_core::lease::SeenLease).
    pub clock: Arc<dyn Clock>,
    /// Maximum number of bytes in a blob.
    pub max_body: u64,
    /// The methods that need a condition.
    pub required: RequirePreconditions,
    /// The long polls.
    pub waits: Arc<Waits>,
    /// The memory for bodies that an operation holds in full.
    pub documents: Documents,
}

impl Context {
    /// Returns the time of day, to which dates and signatures are compared.
    pub fn wall(&self) -> Timestamp {
        self.clock.wall()
    }

    /// Returns `true` if a date is further back than this.
    pub fn is_older(&self, date: HttpDate, age: Duration) -> bool {
        let seconds = self
            .wall()
            .last_modified()
            .unix()
            .saturating_sub(date.unix());
        u64::try_from(seconds).is_ok_and(|seconds| seconds > age.as_secs())
    }
}
