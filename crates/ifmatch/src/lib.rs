//! Strong entity tags, conditional requests and race-free conditional writes for any HTTP service.
//!
#![doc = include_str!("../README.md")]
//!
//! # What happens to a request
//!
//! **GET and HEAD.** The inner service runs without the client's conditions and answers in full. A response without an
//! entity tag gets the hash of its body as one, unless the body is longer than a limit: then it is passed on as it is.
//! The conditions, and ranges, are evaluated on this very response. The tag is recorded in the register, if no write
//! took place meanwhile. A client that has the current version is answered 304 from memory, without running the inner
//! service, where that is certain: the register is [authoritative](Builder::authoritative), or the response has said by
//! `Cache-Control` that it stays fresh. A register that fails stops no read.
//!
//! **Every other method** but the safe ones is a write, and gets a permit from the register first: one write at a time
//! per resource, in all processes that share the register. The conditions are evaluated when the permit is given. Where
//! the current version is not known for certain, the layer asks the inner service for it with GET. The handler then runs
//! with the [`Permit`] in the request's extensions and without the conditions, except for `*`.
//!
//! | The handler | The write | The next conditional write |
//! |---|---|---|
//! | answers 2xx | took effect | is compared with the new tag |
//! | answers 3xx | may have taken effect | asks first |
//! | answers 4xx, except 408 | did not take effect | is compared with the old tag |
//! | answers 5xx or 408, fails or panics | may have taken effect, or still do so | waits for a [grace](Builder::grace), and asks first |
//! | takes too long | is cancelled, and may have taken effect | the same |
//! | answers 202, or its process ends | may still take effect | waits for the [deadline](Builder::write_timeout), and asks first |
//!
//! A write runs to its end when its client leaves. A register that fails stops every write, before it begins.
//!
//! | The client gets | When |
//! |---|---|
//! | 412 | a condition is false; the response has the current tag |
//! | 409 with `Retry-After` | another write is in flight for longer than the [patience](Builder::patience) |
//! | 428 | a condition is [required](Builder::require_preconditions) |
//! | 501 `leases-not-kept` | the register [forgets](Builder::leases) leases |
//! | 503 `unavailable` | the register, or the question for the current version, failed; nothing was changed |
//! | 503 `outcome-unknown`, 500 `handler-failed` | the write, or the lease operation, may have taken effect: read before trying again |
//! | any other 4xx | the question for the current version was answered so |
//!
//! # Leases
//!
//! With [`Builder::leases`] a client can have a resource to itself for a while, in the form of Azure Blob Storage. The layer
//! itself answers `PUT …?comp=lease`, with `x-ms-lease-action` and no body:
//!
//! | `x-ms-lease-action` | with | is answered |
//! |---|---|---|
//! | `acquire` | `x-ms-lease-duration`: 15 to 60 seconds, or -1; `x-ms-proposed-lease-id`: a GUID, or the layer draws one | 201 with `x-ms-lease-id` |
//! | `renew` | `x-ms-lease-id` | 200 with `x-ms-lease-id` |
//! | `change` | `x-ms-lease-id`, `x-ms-proposed-lease-id` | 200 with the new `x-ms-lease-id` |
//! | `release` | `x-ms-lease-id` | 200 |
//! | `break` | `x-ms-lease-break-period`: 0 to 60 seconds, or none | 202 with `x-ms-lease-time`: the seconds left |
//!
//! What is not possible in the lease's state is 409; a missing or malformed field 400; a resource that is not there 404.
//! Conditions are evaluated as for a write. As long as the lease lasts, a guarded write without its `x-ms-lease-id` is 412, a
//! read needs none. Refusals have Azure's code in `x-ms-error-code`, so that a client can tell a lost lease from a stale tag.
//! `x-ms-client-request-id` identifies a request: a retry with the same id never sees a false conflict, and does not
//! affect a lease acquired since. Two different requests must not share an id.
//!
//! A resource has at most one lease holder, and no write takes effect beside a lease: a lease is not granted while a
//! write is in flight, and the handler of a write under a lease is cancelled before the lease ends. This holds as long
//! as the register remembers the leases; a register that forgets grants none unless [allowed
//! to](Builder::ephemeral_leases). [`Permit::lease_token`] is the fencing token for anything else that the lease
//! protects. A handler that deletes the resource leaves its lease in place until it is released or ends.
//! # Where to put the layer
//!
//! Around the service that answers **all** methods of a resource, since that is the one asked for the current version; not
//! into axum's `Router::layer`, which is refused at start-up. Behind authentication, so that nobody learns by a 412 what
//! they may not read. Outside of compression, so that each coding has the tag of its own bytes; where that cannot be, see
//! [`Builder::behind_compression`].
//!
//! A handler that stores what it was sent can say so, and save the next writer the question: it answers with
//! the `ETag` that a GET will have, [`ContentHash::of`](ifmatch_core::digest::ContentHash::of) the content.
//!
//! # A customised layer
//!
//! ```
//! use std::time::Duration;
//!
//! use ifmatch::key::PathKey;
//! use ifmatch::{ConditionalLayer, RequirePreconditions};
//! use ifmatch_register::MemoryRegister;
//!
//! let layer = ConditionalLayer::builder()
//!     .register(MemoryRegister::with_capacity(1_000_000)) // or one that processes share
//!     .authoritative() // all writes come through this layer: 304s need no handler
//!     .require_preconditions(RequirePreconditions::for_writes()) // 428 for blind writes
//!     .key(PathKey::new().with_parameters(["id"])) // `/notes?id=7` is a resource
//!     .write_timeout(Duration::from_secs(5))
//!     .build();
//! ```

pub mod key;

mod body;
mod builder;
mod config;
mod future;
mod layer;
mod lease;
mod memory;
mod permit;
mod read;
mod responses;
mod service;
mod shared;
mod write;

pub use body::ResponseBody;
pub use builder::Builder;
pub use future::ResponseFuture;
pub use ifmatch_core::digest::TagFormat;
pub use ifmatch_core::policy::RequirePreconditions;
pub use layer::ConditionalLayer;
pub use permit::Permit;
pub use service::ConditionalService;
pub use write::AlsoChanged;
