//! An HTTP/1 and HTTP/2 server with limits per client, minimum transfer rates and interim responses.
//!
//! A [`Server`] accepts connections on its listeners and passes each request to a [`RequestHandler`]. [`ServerLimits`] bound
//! what clients can hold; an [`ServerObserver`] receives a [`ServerEvent`] for each connection and each limit that takes effect.
//! A handler should first call [`framing::reject`], which rejects requests that hyper and h2 accept although the RFCs
//! forbid them.
//!
//! On its way in, a connection takes a slot, negotiates TLS and the protocol, and is then driven together with a
//! watchdog that closes it once a timeout has expired.

pub use handler::{AnyBody, AnyError, AnyHandler, BoxError, RequestContext, RequestHandler};
pub use ifmatch_core::share::SlotLimit;
pub use interim::InterimSender;
pub use limits::{ServerEvent, ServerLimits, ServerObserver};
pub use request_body::{BodyError, BodyProgress, RequestBody};
pub use server::{Server, ServerListeners};
pub use slots::RequestSlot;

pub mod framing;

mod connection;
mod handler;
mod host;
mod http1;
mod http2;
mod interim;
mod limits;
mod progress_timeout;
mod request_body;
mod server;
mod slots;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
