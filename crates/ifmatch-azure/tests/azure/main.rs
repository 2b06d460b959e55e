//! The Azure dialect of the blob service over the embedded store, called as a tower service with signed requests.
#![expect(clippy::expect_used, reason = "a test ends at what it did not expect")]

mod accounts;
mod blobs;
mod blocks;
mod collected;
mod conditions;
mod containers;
mod interposed;
mod leases;
mod listing;
mod md5;
mod ranges;
mod refusals;
mod retries;
mod support;
mod unhashed;
