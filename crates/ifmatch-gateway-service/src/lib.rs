//! What the gateway serves around blobs and the proxy: its endpoints under `/-/`, the console, metrics, traces, and the order in which a
//! request passes them.
//!
//! A request passes, in this order: request id, framing and host checks, the gateway's own endpoints under `/-/`, and tokens. Then the
//! blob service takes a request slot and responds; a proxy takes the slot between its cache and the upstreams. [`gateway`] has this
//! order, and its reasons.
//!
//! - [`endpoints`] has what is under `/-/`, and [`console`] the pages for operators, which are clients of these endpoints.
//! - Conflicts: `gateway::tracker` notes them, `conflicts` remembers them, and `endpoints::conflicts` serves them as JSON.
//! - Leases: [`leases`] lists them from the store, `endpoints::leases` serves the list and breaks them, and [`metrics::leases`] counts them
//!   as they pass.
//! - [`state`] has what all requests share, such as `readiness` and [`certificate`]. [`purges`] makes a purge hold on all proxies.
//! - [`metrics`], [`traces`] and [`request_id`] show what happens, and `text` shows the text of others safely.

pub mod certificate;
pub mod console;
pub mod endpoints;
pub mod gateway;
pub mod leases;
pub mod metrics;
pub mod purges;
pub mod request_id;
pub mod state;
pub mod traces;

mod conflicts;
mod readiness;
mod text;
