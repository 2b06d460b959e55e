//! Client for conditional requests: documents that never lose an update, locks that report their loss, elections,
//! queues and counters. Works with the ifmatch gateway, and any HTTP API or store with strong entity tags.
//!
//! ```
//! use ifmatch_client::{Client, Memory};
//!
//! # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
//! let client = Client::new(Memory::default());
//! let visits = client.json::<u64>("visits.json");
//! // Reads, changes, and writes on the condition that the version is still the one that was read. After a conflict, the
//! // closure runs again on the new version.
//! assert_eq!(visits.update(|count| *count += 1).await?, 1);
//! # Ok::<(), ifmatch_client::Error>(())
//! # }).unwrap();
//! ```
//!
//! For a gateway or another server, create the client with [`Client::http`].
//!
//! # Features
//!
//! - `azure`: `Azure`, containers of Azure Blob Storage, with an account's key or a shared access signature.
//! - `object-store`: `Objects`, for the stores of the crate `object_store`: S3, Google Cloud Storage, R2 and others.
//!
//! # Guarantees
//!
//! - A write names the version that it replaces. Without a strong tag, nothing is written; `*` and weak tags never
//!   stand in for one.
//! - A lost response counts as neither failure nor success. The client reads the document, in which each write leaves a
//!   random number. If that doesn't settle it, the client resends the request with the same condition.
//! - A holder's [`Grant`] ends on the holder's own clock before another holder can take over, even if the network is cut or
//!   the machine was suspended. Writes of [`Document::update_fenced`] are rejected once a later holder has written.

// docs.rs shows the feature that an item needs.
#![cfg_attr(docsrs, feature(doc_cfg))]

// Start at `document/raw.rs`.
//
// - A server or store: `backend`. A `version` is its name for a content.
// - A document: `document`, over a backend. In it, `raw` writes, `stamp` settles what a lost response leaves open, and `watch` polls.
// - A lock: `lock`, over a document. Its holder works under a `grant`, which fenced updates of documents check. An `election` is a lock
//   for each term.
// - A `queue` and a `counter`, over documents of their own.
// - All of them: the `client`, to which each of these modules adds its constructor; `error`; and `pause`, between attempts.
mod backend;
mod client;
mod counter;
mod document;
mod election;
mod error;
mod grant;
mod lock;
mod pause;
mod queue;
mod version;

#[cfg(feature = "azure")]
pub use backend::Azure;
#[cfg(feature = "object-store")]
pub use backend::Objects;
pub use backend::{Backend, Found, Http, HttpError, Memory, Put, Read, When};
pub use client::Client;
pub use counter::Counter;
pub use document::{Document, UpdateError, Versioned};
pub use election::{Election, Leader};
pub use error::{Error, ErrorKind};
pub use grant::Grant;
pub use ifmatch_runtime::Cause;
pub use lock::{Held, Lock};
pub use queue::{Job, Queue};
pub use version::Version;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
