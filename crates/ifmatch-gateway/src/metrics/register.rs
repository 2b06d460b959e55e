//! Metrics of a register of `--register` or `--data` beside an object store.

use std::future::Future;

use ifmatch_core::date::Timestamp;
use ifmatch_core::record::{Record, Revision};
use ifmatch_register::{
    AnyRegister, EngineTime, Epoch, Guarantee, Key, Register, RegisterError, RegisterErrorKind, Scan, Swap,
};
use ifmatch_runtime::{Clock, SystemClock};
use metrics::{Gauge, describe_gauge, describe_histogram, gauge, histogram};
use tokio::time::Instant;

/// Seconds that a call took.
pub(super) const SECONDS: &str = "ifmatch_register_seconds";
const CLOCK_ERROR: &str = "ifmatch_register_clock_error_seconds";
const LAST_SWAP: &str = "ifmatch_register_last_swap_timestamp_seconds";

/// Operations and outcomes of a register: labels of [`SECONDS`].
const LOAD: &str = "load";
const SWAP: &str = "swap";
const SCAN: &str = "scan";
const DONE: &str = "done";

/// A register that measures its calls.
pub(crate) struct MeteredRegister {
    register: AnyRegister,
    clock_error: Gauge,
    last_swap: Gauge,
}

impl MeteredRegister {
    /// Measures the calls of a register with the current recorder.
    pub(crate) fn new(register: AnyRegister) -> Self {
        describe_histogram!(
            SECONDS,
            "Seconds of the register's calls by operation and outcome: done, conflict, unavailable (nothing changed), \
             ambiguous (a swap without an answer), full, unreadable."
        );
        describe_gauge!(
            CLOCK_ERROR,
            "Uncertainty about the time of the register's engine; infinite if the engine keeps no time, or it is unknown."
        );
        describe_gauge!(LAST_SWAP, "Unix time of the last successful swap of this process.");
        Self { register, clock_error: gauge!(CLOCK_ERROR), last_swap: gauge!(LAST_SWAP) }
    }

    /// Carries out a call, and records its time unless it is dropped.
    async fn measured<T>(
        &self,
        operation: &'static str,
        call: impl Future<Output = Result<T, RegisterError>>,
        outcome: fn(&T) -> &'static str,
    ) -> Result<T, RegisterError> {
        let start = Instant::now();
        let result = call.await;
        let outcome = result.as_ref().map_or_else(|error| failure(error.kind()), outcome);
        histogram!(SECONDS, "operation" => operation, "outcome" => outcome).record(start.elapsed());
        self.clock_error.set(self.register.time().map_or(f64::INFINITY, |time| time.error().as_secs_f64()));
        result
    }
}

#[deny(clippy::missing_trait_methods)]
impl Register for MeteredRegister {
    fn guarantee(&self) -> Guarantee {
        self.register.guarantee()
    }

    fn epoch(&self, key: &Key) -> Epoch {
        self.register.epoch(key)
    }

    fn time(&self) -> Option<EngineTime> {
        self.register.time()
    }

    async fn load(&self, key: &Key) -> Result<Option<Record>, RegisterError> {
        self.measured(LOAD, self.register.load(key), |_| DONE).await
    }

    fn revision_at_once(&self, key: &Key) -> Option<Revision> {
        self.register.revision_at_once(key)
    }

    async fn compare_and_swap(
        &self,
        key: &Key,
        expected: Revision,
        next: Option<&Record>,
    ) -> Result<Swap, RegisterError> {
        let swap = self.register.compare_and_swap(key, expected, next);
        let swapped = self.measured(SWAP, swap, |swap| match swap {
            Swap::Done => DONE,
            Swap::Conflict(_) => "conflict",
        });
        let swapped = swapped.await;
        if matches!(swapped, Ok(Swap::Done)) {
            self.last_swap.set(seconds_of(SystemClock.wall()));
        }
        swapped
    }

    async fn scan(&self, scan: &Scan<'_>) -> Result<Vec<(Key, Record)>, RegisterError> {
        self.measured(SCAN, self.register.scan(scan), |_| DONE).await
    }
}

#[expect(clippy::cast_precision_loss, reason = "microseconds since 1970 are below 2^53")]
fn seconds_of(time: Timestamp) -> f64 {
    time.micros() as f64 / 1e6
}

fn failure(kind: RegisterErrorKind) -> &'static str {
    match kind {
        RegisterErrorKind::Ambiguous => "ambiguous",
        RegisterErrorKind::Full => "full",
        RegisterErrorKind::Unreadable => "unreadable",
        _ => "unavailable",
    }
}

#[cfg(test)]
mod tests {
    use ifmatch_register::MemoryRegister;

    use super::*;
    use crate::metrics::Metrics;

    /// A register without answers to swaps.
    struct Mute;

    impl Register for Mute {
        async fn load(&self, _: &Key) -> Result<Option<Record>, RegisterError> {
            Ok(None)
        }

        async fn compare_and_swap(&self, _: &Key, _: Revision, _: Option<&Record>) -> Result<Swap, RegisterError> {
            Err(RegisterError::new(RegisterErrorKind::Ambiguous, "no answer"))
        }

        async fn scan(&self, _: &Scan<'_>) -> Result<Vec<(Key, Record)>, RegisterError> {
            Err(RegisterErrorKind::Unavailable.into())
        }
    }

    #[test]
    fn each_call_is_measured_by_its_outcome() {
        let (metrics, recorder) = Metrics::new().unwrap();
        ::metrics::with_local_recorder(&recorder, || {
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            runtime.block_on(async {
                let key = Key::new("k").unwrap();
                let record = Record::forgotten(Revision::new(7));
                let register = MeteredRegister::new(AnyRegister::new(MemoryRegister::unbounded()));
                assert_eq!(register.load(&key).await.unwrap(), None);
                for _ in 0..3 {
                    let swapped = register.compare_and_swap(&key, Revision::NONE, Some(&record)).await;
                    assert!(swapped.is_ok());
                }
                let mute = MeteredRegister::new(AnyRegister::new(Mute));
                assert!(mute.compare_and_swap(&key, Revision::NONE, None).await.is_err());
                assert!(mute.scan(&Scan { prefix: "", after: None, limit: 1 }).await.is_err());
            });
        });
        let text = metrics.render();
        for (operation, outcome, count) in [
            ("load", "done", 1),
            ("swap", "done", 1),
            ("swap", "conflict", 2),
            ("swap", "ambiguous", 1),
            ("scan", "unavailable", 1),
        ] {
            let line =
                format!("ifmatch_register_seconds_count{{operation=\"{operation}\",outcome=\"{outcome}\"}} {count}");
            assert!(text.lines().any(|found| found == line), "{line} is missing in\n{text}");
        }
        assert!(text.contains("ifmatch_register_last_swap_timestamp_seconds 1"), "{text}");
        assert!(
            text.contains("ifmatch_register_clock_error_seconds +Inf")
                || text.contains("ifmatch_register_clock_error_seconds inf"),
            "{text}"
        );
    }
}
