//! An HTTP cache (RFC 9111) as a Tower layer, shared or private.
//!
#![doc = include_str!("../README.md")]
//!
//! # Handling of requests
//!
//! **GET and HEAD** requests are answered from the store while the stored response is fresh. The client's conditions are
//! answered with 304, its ranges with 206 or 416. Otherwise the request goes to the inner service, with the validators of
//! the stored response. A 304 updates the stored response; a new response is stored while it is passed on.
//!
//! | The client gets | If |
//! |---|---|
//! | 304 | its conditions show that it has the stored response. Never without a condition |
//! | 504 | it sent `only-if-cached`, and no stored response matches |
//! | 502 | the inner service returns 304 to a request without a condition, or panics |
//! | a stale response | it sent `max-stale`; the response allows `stale-while-revalidate` or `stale-if-error`; [the builder](Builder::stale_while_revalidate) does; or the inner service failed, [within bounds](Builder::stale_if_unreachable). Never against `must-revalidate`, `proxy-revalidate` or `no-cache` |
//!
//! **Concurrent requests for the same response** collapse into one request to the inner service. It runs in a task of
//! its own, so it continues when the first client leaves. The other clients get the body as it arrives, even if the
//! response is stale on arrival. Requests with the same conditions, or the same ranges, also wait for each other. If
//! the origin fails, one of the waiting requests asks again for all of them; if that fails as well, all get the
//! failure. If the origin takes too long, or its response is private, the other requests go to the origin concurrently.
//! For half a minute after that, requests don't wait for such a response.
//!
//! **A failed origin** isn't waited for if a stored response may be used stale: each request gets the stale response
//! immediately, and every few seconds a background request checks if the origin has recovered.
//!
//! **Every other method** is forwarded in a separate task, so its outcome is known even if the client leaves. If it's
//! unsafe and the response isn't an error, it invalidates the stored responses for the URI, for the URIs in `Location`
//! and `Content-Location`, and for the groups in `Cache-Group-Invalidation`. An error of the inner service has the same
//! effect, unless [the error means](Builder::unchanged_by) that nothing has changed. A response to a request that began
//! earlier isn't stored, and not given to later requests.
//!
//! **When in doubt, the cache doesn't store.** Malformed parts of `Cache-Control` only ever restrict. A response that
//! sets a cookie must be `public`. If the request has a [credential](policy::credential), the cache doesn't guess a
//! lifetime, and doesn't store a response without one.
//!
//! **[Rules](policy::resource_rules::ResourceRules) for some resources** are a request extension. They set lifetimes by
//! status, either as a default or in place of the origin's, set times for stale responses, or turn the cache off.
//!
//! **Forwarded without caching:** requests with `If-Match`, `If-Unmodified-Since`, `Upgrade` or content, and requests with
//! no host, several hosts, or a host that differs from the one in the URI.
//!
//! # Cache keys
//!
//! The key of a response is the request's URI, as the client wrote it, plus the normalized request fields that `Vary`
//! names. An invalidation or a purge covers all equivalent paths: `/a`, `/%61` and `/x/../a`.
//!
//! Unkeyed inputs are part of the key, too: `X-Forwarded-Host` and other fields that many services use without naming them
//! in `Vary`, and that override the host, path, scheme or method. A client that sends them gets separate responses, so it
//! can't poison the cache. `Forwarded` counts except for its addresses. Fields that only identify the client, such as
//! `X-Forwarded-For`, don't count: a service that varies by them must say so in `Vary`.
//!
//! # Requirements on the inner service
//!
//! The inner service receives the client's request, with the host in lower case and without the default port, and
//! requests of the cache itself. If it changes request fields before they reach the origin, [declare
//! them](Builder::overwritten). The cache neither stores nor uses hop-by-hop fields, but leaves it to the
//! [proxy](ifmatch_core::fields::hop_by_hop) to remove them. An error of the inner service counts as an unreachable
//! origin, so convert errors to 502 outside the cache. A truncated body must end with an error, or have a
//! `Content-Length`.
//!
//! # Memory
//!
//! The [capacity](Builder::capacity) bounds stored responses, including header fields. Bodies that are still arriving may
//! take another five sixteenths of it. Further bodies go to [disk](Builder::disk) if a folder is configured, and otherwise
//! pass through without being stored. A slow client doesn't hold up others: it reads from the file, or requests the rest
//! from the inner service with `Range` and `If-Range` if the response has a strong entity tag.
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
//!     .scheme("https") // regardless of the request's own
//!     .stale_if_unreachable(Duration::from_mins(10))
//!     .build();
//! let handle = layer.handle(); // for counters and purging
//! # let _ = handle;
//! ```

pub mod policy;

// A GET or HEAD passes through these modules. The decisions of RFC 9111 are in `policy`, as pure functions.
//
// 1. `service` is the entry. `request` reads the head: its handling, key, conditions and directives. Unsafe methods go to `write`.
// 2. `lookup` finds a stored response in `store`, and decides if it answers the request, or makes a plan to ask the origin.
// 3. `fetch` carries out the plan: it waits for another request, or asks the origin by `inner_service`, and stores the response: its
//    head in `store`, its bytes in `body`.
// 4. `respond` makes the client's response of a stored one.
//
// All clones share the `state`, which `layer` and `builder` make from a `config`. `handle` purges, and reads the counters of `metrics`.
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

pub use body::folder::Disk;
pub use builder::Builder;
pub use handle::{CacheHandle, LookedUp, Purge, StoredVariant};
pub use layer::CacheLayer;
pub use metrics::{Invalidation, Metrics, NotStored, Outcome};
pub use respond::response_body::ResponseBody;
pub use service::Cache;
