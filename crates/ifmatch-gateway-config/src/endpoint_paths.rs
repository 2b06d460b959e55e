//! The paths of the gateway's own endpoints, which its commands ask.

/// Whether the process is alive.
pub const HEALTH: &str = "/-/health";
/// Whether it can serve requests now.
pub const READY: &str = "/-/ready";
/// Metrics, in the format of Prometheus.
pub const METRICS: &str = "/-/metrics";
/// What the console shows first.
pub const OVERVIEW: &str = "/-/overview";
/// Refused writes.
pub const CONFLICTS: &str = "/-/conflicts";
/// Leases: a listing, and a path for each below it.
pub const LEASES: &str = "/-/leases";
/// Snapshots of a data folder, for backups.
pub const SNAPSHOT: &str = "/-/snapshot";
/// Purges of a cache.
pub const CACHE: &str = "/-/cache";
