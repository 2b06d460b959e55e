//! A shared HTTP cache (RFC 9111) as a Tower layer.
//!
#![doc = include_str!("../README.md")]
//!
//! # What happens to a request
//!
//! **GET and HEAD** are answered from the store while what is there is fresh; by the client's own conditions with 304, by its
//! ranges with 206 or 416. Otherwise the inner service is asked: with the stored response's validators if it has some. A 304
//! updates what is stored. A response that may be stored is kept while it is passed on.
//!
//! | The client gets | When |
//! |---|---|
//! | 304 | it sent a condition, and has what is stored. Never without a condition |
//! | 504 | it sent `only-if-cached`, and nothing stored will do |
//! | 502 | the inner service answers 304 to a request without a condition, or panics |
//! | a stale response | it said `max-stale`; the response said `stale-while-revalidate` or `stale-if-error`; or the inner service failed with an error, [within bounds](Builder::stale_if_unreachable). Never against `must-revalidate`, `proxy-revalidate`, `no-cache` |
//!
//! **Concurrent requests for the same response** collapse into one request to the inner service. It runs in a task of
//! its own, so it continues when the first client leaves. The other clients get the body as it arrives, even if the
//! response is stale on arrival. Requests with the same conditions, or the same ranges, also wait for each other. If
//! the origin fails, one of the waiting requests asks again for all of them; if that fails as well, all get the
//! failure. If the origin takes too long, or its response is private, the other requests go to the origin concurrently.
//! For half a minute after that, requests do not wait for such a response.
//!
//! **A failed origin** is not waited for if a stored response may be used stale: each request gets the stale response
//! immediately, and every few seconds a background request checks if the origin has recovered.
//!
//! **Every other method** is forwarded in a task of its own, so that its outcome is known even if the client leaves. If
//! it is unsafe and the response is not an error, it invalidates the stored responses for the URI, for the URIs in
//! `Location` and `Content-Location`, and for the groups in `Cache-Group-Invalidation`. An error of the inner service
//! has the same effect, unless [the error means](Builder::unchanged_by) that nothing has changed. A response to a
//! request that began earlier is not stored, and not given to later requests.
//!
//! **When in doubt, the cache does not store.** Malformed parts of `Cache-Control` only ever restrict. A response that
//! sets a cookie must be `public`. If the request has a [credential](policy::credential), no lifetime is guessed, and a
//! response without a lifetime is not stored.
//!
//! **Passed on, and never stored:** requests with `If-Match`, `If-Unmodified-Since`, `Upgrade` or content; with no
//! host, two, or another one than in the URI.
//!
//! # What selects a response
//!
//! The URI, as the request spells it, and what `Vary` names, in a normal form. An invalidation or a purge removes all
//! spellings of a path together: `/a`, `/%61` and `/x/../a`.
//!
//! Further `X-Forwarded-Host` and other fields that many services obey without saying so, and that name another host, path,
//! scheme or method than the request's own: who sends them gets responses of its own, and poisons nobody else's. `Forwarded`
//! is among them, but for the addresses in it. Fields that only name the client, as `X-Forwarded-For` does, select
//! nothing: a service that answers by them must say so in `Vary`.
//!
//! # What the inner service sees, and owes
//!
//! The request as the client sent it, with the host in lower case and without the default port, and the cache's own
//! requests. The cache must decide what is shared: an inner service that changes request fields on the way to the
//! origin [declares them](Builder::overwritten). Fields that concern one connection are not stored and select nothing;
//! removing them is the [proxy's responsibility](ifmatch_core::fields::hop_by_hop). An error of the inner service
//! counts as an unreachable origin: convert it to a 502 outside of the cache, not inside. A body that ends early must
//! end with an error, or have a `Content-Length`.
//!
//! # Memory
//!
//! The [capacity](Builder::capacity) bounds what is stored, header fields included. Bodies on their way may take five
//! sixteenths as much besides; those that find no room are passed on without being kept; or kept in files, where there is a
//! [folder](Builder::disk) for them. A client that reads slowly holds up no other: it reads from the file, or asks the inner
//! service for the rest by `Range` and `If-Range`, if the response has a strong entity tag.
//!
//! # A customised cache
//!
//! ```
//! use std::time::Duration;
//! use ifmatch_cache::CacheLayer;
//!
//! let layer = CacheLayer::builder()
//!     .capacity(2 << 30)
//!     .entry_limit(64 << 20)
//!     .scheme("https") // whatever the requests say
//!     .stale_if_unreachable(Duration::from_mins(10))
//!     .build();
//! let handle = layer.handle(); // counters, and purging
//! # let _ = handle;
//! ```

pub mod policy;

mod body;
mod builder;
mod config;
mod fetch;
mod handle;
mod inner_service;
mod layer;
mod lookup;
mod metrics;
mod request;
mod respond;
mod service;
mod state;
mod store;
mod write;

pub use body::disk::Disk;
pub use builder::Builder;
pub use handle::{CacheHandle, Purge};
pub use layer::CacheLayer;
pub use metrics::Metrics;
pub use respond::response_body::ResponseBody;
pub use service::Cache;
