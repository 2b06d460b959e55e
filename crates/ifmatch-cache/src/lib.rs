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
//! **Requests for the same response** are one request to the inner service. It runs in a task of its own, so that it goes on
//! when the client that came first leaves. The others get the body while it comes, also if the response is no longer fresh
//! when it comes. Requests with the same conditions, or the same ranges, wait for each other too. If the origin fails,
//! one of those who wait asks again for all of them; when that fails as well, all get the failure. If it takes too long, or
//! its response is for one client only, the others ask at the same time, each for itself; and for half a minute nobody
//! waits for such a response again.
//!
//! **An origin that has failed** for a stored response that may be used stale then is not waited for again: each request gets the
//! stale response at once, and every few seconds one in the background asks the origin whether it has recovered.
//!
//! **Every other method** is passed on, in a task of its own, so that its outcome is learned also when the client leaves. If it
//! is unsafe, and the answer no error, what is stored for the URI is invalid, and for those in `Location` and
//! `Content-Location`, and for the groups in `Cache-Group-Invalidation`. So it is if the inner service fails with an error, unless
//! [the error says](Builder::unchanged_by) that nothing has changed. A response to a request that began before that is not
//! stored, nor given to anyone who asks after it.
//!
//! **In doubt nothing is stored.** What is malformed in `Cache-Control` restricts, and permits nothing. A response that sets
//! a cookie must be `public`. No lifetime is guessed where the request has a [credential](policy::credential), and a
//! response that states none is not stored then.
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
//! The request as the client sent it, with the host in lower case and without the default port, and requests of the cache's
//! own. It must be the cache that decides what is shared: an inner service that changes fields of requests on the way to the
//! origin [says which](Builder::overwritten). Fields that concern one connection are kept out of the
//! store, and select nothing; removing them is the [proxy's business](ifmatch_core::fields::hop_by_hop). An error of the inner service
//! counts as an origin that cannot be reached: make it a 502 outside of the cache, not inside. A body that ends
//! early must end with an error, or have a `Content-Length`.
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

mod answer;
mod asked;
mod block;
mod blocks;
mod body;
mod broadcast;
mod budget;
mod builder;
mod config;
mod content;
mod disk;
mod fetch;
mod file;
mod file_reader;
mod fill;
mod flight;
mod group_stamps;
mod handle;
mod head;
mod invalidations;
mod key;
mod layer;
mod length;
mod memory;
mod metrics;
mod obeyed;
mod prefix_stamps;
#[cfg_attr(unix, path = "private_unix.rs")]
mod private;
mod question;
mod read;
#[cfg_attr(unix, path = "read_at_unix.rs")]
mod read_at;
mod recent;
mod rest;
mod service;
mod shared;
mod signs;
mod spelling;
mod stored;
mod table;
mod write;

pub use body::ResponseBody;
pub use builder::Builder;
pub use disk::Disk;
pub use handle::{CacheHandle, Purge};
pub use layer::CacheLayer;
pub use metrics::Metrics;
pub use service::Cache;
