//! The ifmatch blob service as a Cloudflare Worker: bodies in R2, records in Durable Objects.

pub use ifmatch_worker::Records;
