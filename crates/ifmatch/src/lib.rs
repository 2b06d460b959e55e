//! Strong entity tags, conditional requests and race-free conditional writes for any HTTP service.
//!
#![cfg_attr(all(feature = "axum", feature = "testing"), doc = include_str!("../README.md"))]
//!
//! # Request processing
//!
//! **GET and HEAD.** The inner service runs without the client's conditions and sends the whole representation. A
//! response without an entity tag gets the hash of its body as its tag, or a tag from its revision if the body exceeds
//! the [hash limit](Builder::hash_limit). The layer then evaluates conditions and ranges on this response, and records
//! the tag in the register, unless a write came in between. The client gets 304 from memory, without running the inner
//! service, if it certainly has the current version: because the register is [authoritative](Builder::authoritative),
//! or because the response is still fresh by its `Cache-Control`. Reads succeed even if the register fails.
//!
//! **Every unsafe method** is a write, and needs a permit from the register: one write at a time per resource, across
//! all processes that share the register. By default, POST needs one only with a condition, where a condition is
//! [required](Builder::require_preconditions), and where [leases](Builder::leases) are enabled; see [`Builder::guard_posts`] and
//! [`Builder::guard_where`]. The layer receives the request body before it asks for the permit, up to a
//! [limit](Builder::request_buffer_limit); while a longer body arrives, the permit is renewed. Granting the permit and
//! evaluating the conditions are one step. If the current version isn't certain, the layer first sends a GET to the
//! inner service, the *probe*. The handler gets the [`Permit`] as a request extension, and no conditions except `*`.
//!
//! | The handler | The write | The next conditional write |
//! |---|---|---|
//! | responds with 2xx | took effect | is compared with the new tag |
//! | responds with 3xx | may have taken effect | probes |
//! | responds with 4xx, except for 408 | had no effect | is compared with the old tag |
//! | responds with 5xx or 408, fails or panics | may have taken effect, or may still do so | waits for the [grace period](Builder::grace_period), and probes |
//! | exceeds its time limit | is cancelled, and may have taken effect | the same |
//! | responds with 202, or its process ends | may still take effect | waits for the [deadline](Builder::write_timeout), and probes |
//!
//! While the permit lasts, the response to a successful write gets its tag from the first of these that exists: the
//! handler's `ETag`; its [`NewVersion`]; the hash of the response body if `Content-Location` names the resource; a GET
//! to the inner service ([`Builder::get_after_writes`]). It has no tag if the resource is gone, or if an unguarded
//! write may have come in between. It has no `Last-Modified`, which would be up to a second in the future.
//!
//! A write finishes even if its client disconnects. If the register fails, writes fail before they begin.
//!
//! | Response | Reason |
//! |---|---|
//! | 400 | the body is incomplete, the resource's key is invalid, or a lease field is |
//! | 412 | a condition is false; the response carries the current tag |
//! | 408 `body-stalled` | the request's body stopped arriving; nothing was changed |
//! | 409 with `Retry-After` | another write has been in flight for longer than the [lock timeout](Builder::lock_timeout) |
//! | 428 | a condition is [required](Builder::require_preconditions) |
//! | 501 `leases-not-kept` | the register [may lose](Builder::leases) leases |
//! | 503 `unavailable` | the register or the probe failed; nothing was changed |
//! | 500 `version-unchecked` | a handler [should have compared](Builder::handlers_check_versions) the version, but didn't |
//! | 503 `outcome-unknown`, 500 `handler-failed` | the write or lease operation may have taken effect: read before retrying |
//! | any other 4xx | the response to the probe, or to a [lease operation](#leases) |
//!
//! # Leases
//!
//! With [`Builder::leases`], clients can reserve a resource for a while, using Azure Blob Storage's requests. The layer
//! itself handles `PUT …?comp=lease` with `x-ms-lease-action` and without a body:
//!
//! | `x-ms-lease-action` | Other fields | Response |
//! |---|---|---|
//! | `acquire` | `x-ms-lease-duration`: 15 to 60 seconds, or -1; `x-ms-proposed-lease-id`: a GUID, random by default | 201 with `x-ms-lease-id` |
//! | `renew` | `x-ms-lease-id` | 200 with `x-ms-lease-id` |
//! | `change` | `x-ms-lease-id`, `x-ms-proposed-lease-id` | 200 with the new `x-ms-lease-id` |
//! | `release` | `x-ms-lease-id` | 200 |
//! | `break` | `x-ms-lease-break-period`: 0 to 60 seconds, optional | 202 with `x-ms-lease-time`: the remaining seconds |
//!
//! An operation that the lease's state doesn't allow gets 409, a missing or malformed field 400, and a missing resource
//! 404. Conditions are evaluated as for a write. While the lease lasts, a guarded write without its `x-ms-lease-id`
//! gets 412; reads need no id. Reads and writes may also name it in `Lease-Id`, as in the gateway's plain dialect.
//! Refusals carry Azure's code in `x-ms-error-code`, so a client can tell a lost lease from a stale tag.
//! `x-ms-client-request-id` identifies a request: a retry with the same id never sees a false conflict, and doesn't
//! affect a lease acquired since. Different requests mustn't share an id.
//!
//! A resource has at most one lease holder, and writes never overlap a lease: a lease isn't granted while a write is in
//! flight, and the handler of a write under a lease is cancelled before the lease ends. This holds as long as the
//! register remembers the leases. A register that may lose them grants none, unless
//! [allowed](Builder::ephemeral_leases) to. If the lease protects anything else, check its fencing token there
//! ([`Permit::lease_token`]). A handler that deletes the resource leaves its lease in place until it's released or
//! expires.
//!
//! # Placement
//!
//! Wrap the service that handles **all** methods of a resource, since the layer probes it. axum's `Router::layer`,
//! `route_layer` and `MethodRouter::layer` wrap each method's handler separately, so the layer panics there: use
//! `guarded_by` of `ifmatch::axum::RouterExt`. With the feature `axum`, a nested router's keys include its prefix.
//!
//! - Put it behind authentication, so a 412 reveals nothing to clients that may not read.
//! - Compression goes inside the layer if tags come from the content, so each coding has the tag of its own bytes. If
//!   handlers state versions, it goes outside, with [`Builder::behind_compression`], so each tag still names a version.
//!
//! To avoid the GET after a write, return [`NewVersion`] or `ETag` from the handler. To avoid the GET before it,
//! compare the [`ExpectedVersion`] in your store ([`Builder::handlers_check_versions`]).
//!
//! # Features
//!
//! | Feature | Adds |
//! |---|---|
//! | `axum` | `guarded_by`, extractors, responses, and keys of nested routers |
//! | `tracing`, by default | an event for each decision of the layer |
//! | `testing` | a test kit, for `[dev-dependencies]` |
//! | `utoipa` | the conditions in OpenAPI documents |
//! | `headers` | [`EntityTag`] as a typed header |
//! | `blake3` | [tags](TagFormat) from BLAKE3 |
//!
//! # A customised layer
//!
//! ```
//! use std::time::Duration;
//!
//! use ifmatch::key::PathKey;
//! use ifmatch::{ConditionalLayer, MemoryRegister, RequirePreconditions};
//!
//! let layer = ConditionalLayer::builder()
//!     .register(MemoryRegister::with_capacity(1_000_000)) // or a shared one
//!     .authoritative() // all writes come through this layer: 304s need no handler
//!     .require_preconditions(RequirePreconditions::for_writes()) // 428 for blind writes
//!     .key(PathKey::new().with_parameters(["id"])) // `/notes?id=7` is a resource
//!     .write_timeout(Duration::from_secs(5))
//!     .build();
//! ```

// docs.rs shows the feature that an item needs.
#![cfg_attr(docsrs, feature(doc_cfg))]

// For other libraries, and for tests.
#[cfg(feature = "axum")]
pub mod axum;
#[cfg(feature = "utoipa")]
mod openapi;
#[cfg(feature = "testing")]
pub mod testing;

// Start at `service`, which dispatches each request to `read`, `write` or `lease`. The `builder` makes a `layer`, and that makes a
// service. `future` is its response, and `watched` what happens at the end.
mod builder;
mod future;
mod layer;
mod service;
mod watched;

// What becomes of a request. `memory` has the header fields of 304s that need no handler.
mod lease;
mod memory;
mod read;
mod write;

// What these share: the settings (`config`), the state (`shared`), which resource a request is about (`key`; `mount` for nested
// routers), the `inner` service, bodies, and the layer's own `responses` with the decisions in them (`events`).
mod body;
mod config;
mod events;
mod inner;
pub mod key;
mod mount;
mod responses;
mod shared;

// For the handler of a write: its `permit`. `paused` pauses it between its check and its write, for `testing` alone.
mod paused;
mod permit;

pub use body::{RequestBody, ResponseBody};
pub use builder::{BuildError, Builder};
pub use events::{Decision, Event, Observer};
pub use future::ResponseFuture;
pub use ifmatch_core::EntityTag;
pub use ifmatch_core::date::Timestamp;
pub use ifmatch_core::digest::{ContentHash, TagFormat};
pub use ifmatch_core::policy::RequirePreconditions;
pub use ifmatch_core::problem::Problem;
pub use ifmatch_core::record::State;
pub use ifmatch_register::{InvalidKey, Key, MemoryRegister, Register};
pub use ifmatch_runtime::{Clock, SystemClock};
pub use inner::InnerService;
pub use layer::ConditionalLayer;
pub use permit::{ExpectedVersion, Permit};
pub use responses::PreconditionFailed;
pub use service::ConditionalService;
pub use write::{Invalidates, NewVersion};
