//! Metrics of batches, of unacknowledged swaps and of contention, through the recorder of the [`metrics`] crate (feature `metrics`).
//!
//! [`metrics`]: https://docs.rs/metrics

use ::metrics::{Unit, counter, describe_counter, describe_histogram, histogram};

use crate::ambiguous::Resolution;

/// Histogram of the calls in a batch that went to a server, by `operation`: `load` or `swap`.
pub const BATCH_SIZE: &str = "ifmatch_register_batch_size";

/// Counter of unacknowledged swaps, by the `outcome` that the driver found: `done`, `not-done`, or `unknown`, as
/// reported to the caller.
pub const AMBIGUOUS: &str = "ifmatch_register_ambiguous_total";

/// Counter of commands that gave up because other writers kept changing the same record, or had a write in flight for too long.
pub const CONTENTION: &str = "ifmatch_register_contention_total";

/// Describes the metrics to the current recorder.
pub fn describe() {
    describe_histogram!(
        BATCH_SIZE,
        Unit::Count,
        "Calls in a batch that went to the register's server, by operation."
    );
    describe_counter!(
        AMBIGUOUS,
        Unit::Count,
        "Unacknowledged swaps, by the outcome found afterwards: done, not-done, or unknown."
    );
    describe_counter!(
        CONTENTION,
        Unit::Count,
        "Writes and lease operations refused because other writers of the same resource were in the way for too long."
    );
}

pub(crate) fn batch(operation: &'static str, calls: usize) {
    // At most `lanes::BATCH`.
    histogram!(BATCH_SIZE, "operation" => operation)
        .record(u32::try_from(calls).unwrap_or(u32::MAX));
}

pub(crate) fn ambiguous(resolution: Resolution) {
    let outcome = match resolution {
        Resolution::Done => "done",
        Resolution::NotDone => "not-done",
        Resolution::Unknown => "unknown",
    };
    counter!(AMBIGUOUS, "outcome" => outcome).increment(1);
}

pub(crate) fn contention() {
    counter!(CONTENTION).increment(1);
}
