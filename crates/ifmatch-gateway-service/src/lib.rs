//! What the gateway serves around blobs and the proxy: its endpoints under `/-/`, the console, metrics, traces, and the order in which a
//! request passes them.
//!
//! A request passes, in this order: request id, framing and host checks, the gateway's own endpoints (`/-/health`, `/-/metrics`,
//! `/-/leases`, `/-/conflicts`, `/-/cache`), and tokens. Then the blob service takes a request slot and responds; a proxy takes the
//! slot between its cache and the upstreams.

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
