//! Metrics of the log of purges that several proxies share.

use std::time::Duration;

use metrics::{describe_gauge, gauge};

const POSITION: &str = "ifmatch_purge_log_position";
const AGE: &str = "ifmatch_purge_log_age_seconds";
const CUT_OFF: &str = "ifmatch_purge_log_cut_off";

/// Registers the descriptions.
pub(crate) fn describe() {
    describe_gauge!(POSITION, "Number of the last segment of the log of purges that was carried out.");
    describe_gauge!(AGE, "Seconds since the beginning of the last complete read of the log of purges.");
    describe_gauge!(
        CUT_OFF,
        "1 while the log of purges cannot be read, so that stored responses are validated; otherwise 0."
    );
}

/// Sets the current values.
pub(crate) fn update(position: u64, age: Duration, is_cut_off: bool) {
    #[expect(
        clippy::cast_precision_loss,
        reason = "a number to compare with those of other proxies, exact up to 2^53"
    )]
    gauge!(POSITION).set(position as f64);
    gauge!(AGE).set(age.as_secs_f64());
    gauge!(CUT_OFF).set(f64::from(u8::from(is_cut_off)));
}
