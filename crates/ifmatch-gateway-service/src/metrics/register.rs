//! Metrics of a register of `--register` or `--data` beside an object store.

use std::future::Future;
use std::sync::Arc;

use ifmatch_core::record::{Record, Revision};
use ifmatch_register::{
    Engine, Key, Register, RegisterError, RegisterErrorKind, Scan, Swap, Wrapper, async_trait,
};
use ifmatch_runtime::{Clock, SystemClock};
use metrics::{Gauge, gauge, histogram};
use tokio::time::Instant;

use super::seconds;
use super::table::register::{CLOCK_ERROR, EPOCH, LAST_SWAP, SECONDS};

/// Operations and outcomes of a register: labels of [`SECONDS`].
const LOAD: &str = "load";
const SWAP: &str = "swap";
const SCAN: &str = "scan";
const DONE: &str = "done";
const CONFLICT: &str = "conflict";

/// A register that measures its calls.
pub struct MeteredRegister {
    register: Arc<dyn Register>,
    clock_error: Gauge,
    epoch: Gauge,
    last_swap: Gauge,
}

impl MeteredRegister {
    /// Measures the calls of a register with the current recorder.
    pub fn new(register: Arc<dyn Register>) -> Self {
        let (clock_error, epoch, last_swap) =
            (gauge!(CLOCK_ERROR), gauge!(EPOCH), gauge!(LAST_SWAP));
        let metered = Self {
            register,
            clock_error,
            epoch,
            last_swap,
        };
        metered.update_engine();
        metered
    }

    /// Sets the gauges of the engine. Infinity stands for a clock whose error is unknown.
    fn update_engine(&self) {
        let Engine { epoch, time, .. } = self.register.engine();
        self.epoch
            .set(u32::try_from(epoch.number).map_or(f64::INFINITY, f64::from));
        self.clock_error
            .set(time.map_or(f64::INFINITY, |time| time.error().as_secs_f64()));
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
        let outcome = result
            .as_ref()
            .map_or_else(|error| outcome_label(error.kind()), outcome);
        histogram!(SECONDS, "operation" => operation, "outcome" => outcome).record(start.elapsed());
        self.update_engine();
        result
    }
}

#[async_trait]
impl Wrapper for MeteredRegister {
    fn inner(&self) -> &dyn Register {
        &self.register
    }

    fn revision_at_once(&self, key: &Key) -> Option<Revision> {
        self.register.revision_at_once(key)
    }

    async fn load(&self, key: &Key) -> Result<Option<Record>, RegisterError> {
        self.measured(LOAD, self.register.load(key), |_| DONE).await
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
            Swap::Conflict(_) => CONFLICT,
        });
        let swapped = swapped.await;
        if matches!(swapped, Ok(Swap::Done)) {
            self.last_swap.set(seconds(SystemClock.wall()));
        }
        swapped
    }

    async fn scan(&self, scan: &Scan<'_>) -> Result<Vec<(Key, Record)>, RegisterError> {
        self.measured(SCAN, self.register.scan(scan), |_| DONE)
            .await
    }
}

/// Returns all operations with all their outcomes.
pub(super) fn labels() -> impl Iterator<Item = (&'static str, &'static str)> {
    use RegisterErrorKind::{Ambiguous, Full, Unavailable, Unreadable};
    let failures = [Unavailable, Ambiguous, Full, Unreadable].map(outcome_label);
    let outcomes = [DONE, CONFLICT].into_iter().chain(failures);
    outcomes.flat_map(|outcome| [LOAD, SWAP, SCAN].map(|operation| (operation, outcome)))
}

/// Returns the outcome of a call that failed.
fn outcome_label(kind: RegisterErrorKind) -> &'static str {
    match kind {
        RegisterErrorKind::Ambiguous => "ambiguous",
        RegisterErrorKind::Full => "full",
        RegisterErrorKind::Unreadable => "unreadable",
        // A kind that isn't known yet is an outage to an operator.
        RegisterErrorKind::Unavailable | _ => "unavailable",
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures_util::future::join_all;
    use http::Method;
    use ifmatch_core::command::{Command, Content, Write};
    use ifmatch_core::digest::ContentHash;
    use ifmatch_core::precondition::Preconditions;
    use ifmatch_register::faulty::{Fault, FaultyRegister};
    use ifmatch_register::lanes::{Batches, Lanes, QueuedSwap};
    use ifmatch_register::{Driver, Epoch, MemoryRegister};

    use super::*;
    use crate::metrics::Metrics;

    /// A register that gathers calls, after two failovers.
    struct Gathered(Lanes);

    struct Batch(MemoryRegister);

    impl Batches for Batch {
        async fn swap(&mut self, batch: &[QueuedSwap]) -> Vec<Result<Swap, RegisterError>> {
            let mut results = Vec::new();
            for swap in batch {
                results.push(
                    self.0
                        .compare_and_swap(&swap.key, swap.expected, swap.next.as_ref())
                        .await,
                );
            }
            results
        }

        async fn load(&mut self, keys: &[Key]) -> Result<Vec<Option<Record>>, RegisterError> {
            Ok(vec![None; keys.len()])
        }
    }

    #[async_trait]
    impl Register for Gathered {
        fn engine(&self) -> Engine {
            Engine {
                epoch: Epoch {
                    number: 2,
                    lost: Revision::NONE,
                },
                ..Engine::default()
            }
        }

        async fn load(&self, key: &Key) -> Result<Option<Record>, RegisterError> {
            self.0.load(key).await
        }

        async fn compare_and_swap(
            &self,
            key: &Key,
            expected: Revision,
            next: Option<&Record>,
        ) -> Result<Swap, RegisterError> {
            self.0.swap(key, expected, next).await
        }

        async fn scan(&self, _: &Scan<'_>) -> Result<Vec<(Key, Record)>, RegisterError> {
            Ok(Vec::new())
        }
    }

    /// Returns the metrics as text after some work.
    fn after(work: impl Future<Output = ()>) -> String {
        let (metrics, recorder) = Metrics::new().unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .unwrap();
        ::metrics::with_local_recorder(&recorder, || runtime.block_on(work));
        metrics.render()
    }

    #[track_caller]
    fn assert_line(text: &str, line: &str) {
        assert!(
            text.lines().any(|found| found == line),
            "{line} is missing in\n{text}"
        );
    }

    #[test]
    fn batches_and_the_epoch_are_measured() {
        let text = after(async {
            let memory = || Batch(MemoryRegister::unbounded());
            let lanes = Lanes::start([memory()], [memory()], Duration::from_mins(1));
            let register: &dyn Register = &MeteredRegister::new(Arc::new(Gathered(lanes)));
            let keys = ["a", "b", "c"].map(|name| Key::new(name).unwrap());
            let record = Record::forgotten(Revision::new(7));
            let swaps = keys
                .each_ref()
                .map(|key| register.compare_and_swap(key, Revision::NONE, Some(&record)));
            join_all(swaps).await;
            register.load(&keys[0]).await.unwrap();
        });
        for line in [
            "ifmatch_register_epoch 2",
            "ifmatch_register_batch_size_sum{operation=\"swap\"} 3",
            "ifmatch_register_batch_size_count{operation=\"swap\"} 1",
            "ifmatch_register_batch_size_bucket{operation=\"swap\",le=\"4\"} 1",
            "ifmatch_register_batch_size_sum{operation=\"load\"} 1",
        ] {
            assert_line(&text, line);
        }
    }

    /// Returns a register whose first swaps have no response, and take place or not.
    fn unanswered(done: impl IntoIterator<Item = bool>) -> FaultyRegister {
        let register = FaultyRegister::default();
        register.schedule(done.into_iter().map(|done| Fault::Unanswered {
            done,
            then_cut: false,
        }));
        register
    }

    #[test]
    fn swaps_without_an_answer_are_counted_by_their_outcome() {
        let text = after(async {
            let write = |nonce| {
                let content = Content::Hashed {
                    hash: ContentHash::of(b"x"),
                    payload: b"x".to_vec().into(),
                };
                Command::Write(Write::new(
                    &Method::PUT,
                    &Preconditions::NONE,
                    content,
                    nonce,
                ))
            };
            let key = Key::new("k").unwrap();
            let driver = Driver::new(unanswered([true, false]));
            driver.apply(&key, &write(1)).await.unwrap();
            driver.apply(&key, &write(2)).await.unwrap();
            let mute = Driver::new(unanswered([false; 100]));
            assert!(mute.apply(&key, &write(3)).await.is_err());
        });
        for (outcome, count) in [("done", 1), ("not-done", 1), ("unknown", 3)] {
            let line = format!("ifmatch_register_ambiguous_total{{outcome=\"{outcome}\"}} {count}");
            assert_line(&text, &line);
        }
    }

    #[test]
    fn each_call_is_measured_by_its_outcome() {
        let text = after(async {
            let key = Key::new("k").unwrap();
            let record = Record::forgotten(Revision::new(7));
            let register: &dyn Register =
                &MeteredRegister::new(Arc::new(MemoryRegister::unbounded()));
            assert_eq!(register.load(&key).await.unwrap(), None);
            for _ in 0..3 {
                let swapped = register
                    .compare_and_swap(&key, Revision::NONE, Some(&record))
                    .await;
                assert!(swapped.is_ok());
            }
            let faulty = unanswered([false]);
            let mute: &dyn Register = &MeteredRegister::new(Arc::new(faulty.clone()));
            assert!(
                mute.compare_and_swap(&key, Revision::NONE, None)
                    .await
                    .is_err()
            );
            faulty.cut(true);
            assert!(
                mute.scan(&Scan {
                    prefix: "",
                    after: None,
                    limit: 1
                })
                .await
                .is_err()
            );
        });
        for (operation, outcome, count) in [
            ("load", "done", 1),
            ("swap", "done", 1),
            ("swap", "conflict", 2),
            ("swap", "ambiguous", 1),
            ("scan", "unavailable", 1),
        ] {
            let line = format!(
                "ifmatch_register_seconds_count{{operation=\"{operation}\",outcome=\"{outcome}\"}} {count}"
            );
            assert_line(&text, &line);
        }
        assert!(
            text.contains("ifmatch_register_last_swap_timestamp_seconds 1"),
            "{text}"
        );
        assert!(
            text.contains("ifmatch_register_clock_error_seconds +Inf")
                || text.contains("ifmatch_register_clock_error_seconds inf"),
            "{text}"
        );
    }
}
