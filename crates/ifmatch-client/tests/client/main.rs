//! Updates, locks, elections, queues and watches on a store in memory, with lost responses, cuts and stopped clocks.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking"
)]

mod cancelled;
mod election;
mod listing;
mod lock;
#[cfg(feature = "object-store")]
mod objects;
mod queue;
mod scenarios;
mod stopped;
mod store;
mod updates;
mod watch;
