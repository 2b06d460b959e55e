//! The purge log in a register: a head, and one record for each segment.
//!
//! To append is two swaps: one creates the segment after the newest, which only one process can do, and one advances the head
//! to it. A process that crashes in between leaves a segment that the next one finds in its way. It advances the head, and
//! appends its own after that. A process whose swap is ambiguous creates the segment again: the head never advances to one that
//! may not exist, since readers would take it for a gap, and purge all responses. A purge may thus be in the log twice, or
//! although it wasn't acknowledged, which is harmless.

use std::sync::Arc;

use http::Method;
use ifmatch_core::command::{Command, Content, Write};
use ifmatch_core::digest::ContentHash;
use ifmatch_core::lease::LeaseUse;
use ifmatch_core::precondition::Preconditions;
use ifmatch_core::purge_log::Head;
use ifmatch_core::record::{Record, Revision};
use ifmatch_register::{Key, Register, RegisterError, RegisterErrorKind, Scan, Swap};
use ifmatch_runtime::{Clock, SystemClock, nonce};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::PurgeOrder;

/// Number of segments that are kept. A node that has missed more purges every response that it has.
const RETAINED: u64 = 1 << 14;
/// Segments are removed each time that this many were appended.
const SWEEP: u64 = 64;
/// Number of segments in a page, also of those that are removed at once.
const PAGE: usize = 256;
/// Maximum number of swaps of a contested head.
const ATTEMPTS: usize = 64;
/// The key of the head. It has no slash, as the key of no resource behind a proxy.
const HEAD: &str = "purge-log";
/// Prefix of the keys of the segments.
const SEGMENTS: &str = "purge-log:";

/// The purge log in a register. Cheap to clone.
#[derive(Clone)]
pub(super) struct PurgeLog {
    register: Arc<dyn Register>,
}

/// The head, as loaded in one epoch of the register.
pub(super) struct LoadedHead {
    pub(super) head: Head,
    pub(super) epoch: u64,
    record: Record,
}

/// A segment.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct LogSegment {
    /// Random number of the process that has appended it.
    pub(super) by: u64,
    pub(super) orders: Vec<PurgeOrder>,
}

impl PurgeLog {
    pub(super) fn new(register: Arc<dyn Register>) -> Self {
        Self { register }
    }

    /// Loads the head, and creates it if there is none.
    ///
    /// # Errors
    /// If the register fails, or another server takes over in the meantime: the head would belong to neither epoch.
    pub(super) async fn head(&self) -> Result<LoadedHead, RegisterError> {
        let key = key(HEAD)?;
        for _ in 0..ATTEMPTS {
            let epoch = self.epoch();
            let record = self
                .register
                .load(&key)
                .await
                .map_err(RegisterError::of_read)?;
            if self.epoch() != epoch {
                return Err(RegisterError::new(
                    RegisterErrorKind::Unavailable,
                    "another server has taken over",
                ));
            }
            if let Some(record) = record {
                return Ok(LoadedHead {
                    head: read(&record)?,
                    epoch,
                    record,
                });
            }
            let first = record_of(&Head::new(nonce()?), None)?;
            drop(unless_ambiguous(
                self.register
                    .compare_and_swap(&key, Revision::NONE, Some(&first))
                    .await,
            )?);
        }
        Err(contended())
    }

    /// Appends a segment. When this returns, each later load of the head shows it.
    ///
    /// # Errors
    /// If the register fails. The segment may be in the log, or appear there later.
    pub(super) async fn append(&self, segment: &LogSegment) -> Result<Head, RegisterError> {
        let record = record_of(segment, None)?;
        for _ in 0..ATTEMPTS {
            let loaded = self.head().await?;
            let number = loaded.head.newest + 1;
            let created = self
                .register
                .compare_and_swap(&segment_key(number)?, Revision::NONE, Some(&record))
                .await;
            let is_ours = match unless_ambiguous(created)? {
                None => continue,
                Some(Swap::Done) => true,
                // An attempt without a response took place. Records of different writers differ by their nonces.
                Some(Swap::Conflict(found)) => found.as_ref() == Some(&record),
            };
            if let Some(head) = self.advance_to(number, loaded).await?.filter(|_| is_ours) {
                return Ok(head);
            }
        }
        Err(contended())
    }

    /// Advances the head to a segment that exists. Returns `None` if another server has taken over, perhaps without it.
    async fn advance_to(
        &self,
        number: u64,
        mut loaded: LoadedHead,
    ) -> Result<Option<Head>, RegisterError> {
        let (log, epoch) = (loaded.head.log, loaded.epoch);
        for _ in 0..ATTEMPTS {
            if loaded.head.log != log || loaded.epoch != epoch {
                return Ok(None);
            }
            if loaded.head.newest >= number {
                return Ok(Some(loaded.head));
            }
            let head = loaded.head.advanced(RETAINED);
            let next = record_of(&head, Some(&loaded.record))?;
            let swapped = self
                .register
                .compare_and_swap(&key(HEAD)?, loaded.record.revision(), Some(&next))
                .await;
            if unless_ambiguous(swapped)? == Some(Swap::Done) && self.epoch() == epoch {
                return Ok(Some(head));
            }
            loaded = self.head().await?;
        }
        Err(contended())
    }

    /// Reads the segments after a position, at least up to the newest. Returns `None` if one is missing, or can't be read.
    ///
    /// # Errors
    /// If the register fails.
    pub(super) async fn after(
        &self,
        position: u64,
        head: Head,
    ) -> Result<Option<Vec<LogSegment>>, RegisterError> {
        let mut segments = Vec::new();
        while position + (segments.len() as u64) < head.newest {
            let last = segment_key(position + segments.len() as u64)?;
            let scan = Scan {
                prefix: SEGMENTS,
                after: Some(last.as_str()),
                limit: PAGE,
            };
            let page = self
                .register
                .scan(&scan)
                .await
                .map_err(RegisterError::of_read)?;
            if page.is_empty() {
                return Ok(None);
            }
            for (key, record) in page {
                let next = segment_key(position + segments.len() as u64 + 1)?;
                match read(&record) {
                    Ok(segment) if key == next => segments.push(segment),
                    _ => return Ok(None),
                }
            }
        }
        Ok(Some(segments))
    }

    /// Removes segments that are no longer kept, some time after they have left the log.
    ///
    /// # Errors
    /// If the register fails. The next sweep removes what is left.
    pub(super) async fn sweep(&self, head: Head) -> Result<(), RegisterError> {
        if !head.newest.is_multiple_of(SWEEP) {
            return Ok(());
        }
        let (first, scan) = (
            segment_key(head.oldest)?,
            Scan {
                prefix: SEGMENTS,
                after: None,
                limit: PAGE,
            },
        );
        for (key, record) in self.register.scan(&scan).await? {
            if key < first {
                drop(unless_ambiguous(
                    self.register
                        .compare_and_swap(&key, record.revision(), None)
                        .await,
                )?);
            }
        }
        Ok(())
    }

    fn epoch(&self) -> u64 {
        self.register.engine().epoch.number
    }
}

/// Returns the result of a swap, or `None` if it may have taken place.
fn unless_ambiguous(swapped: Result<Swap, RegisterError>) -> Result<Option<Swap>, RegisterError> {
    match swapped {
        Ok(swap) => Ok(Some(swap)),
        Err(error) if error.kind() == RegisterErrorKind::Ambiguous => Ok(None),
        Err(error) => Err(error),
    }
}

/// Returns the error after too many swaps of a contested record.
fn contended() -> RegisterError {
    RegisterError::new(
        RegisterErrorKind::Unavailable,
        "others keep changing the purge log",
    )
}

fn key(key: &str) -> Result<Key, RegisterError> {
    Key::new(key).map_err(|error| RegisterError::new(RegisterErrorKind::Unreadable, error))
}

/// Returns the key of a segment. Keys sort as the numbers do: a `u64` has at most 20 digits.
fn segment_key(number: u64) -> Result<Key, RegisterError> {
    key(&format!("{SEGMENTS}{number:020}"))
}

/// Returns a record with this content, to replace another one.
fn record_of<T: Serialize>(content: &T, before: Option<&Record>) -> Result<Record, RegisterError> {
    let payload = serde_json::to_vec(content).map_err(unreadable)?;
    let nothing = Preconditions::default();
    let content = Content::Hashed {
        hash: ContentHash::of(&payload),
        payload: payload.into(),
    };
    let write =
        Write::new(&Method::PUT, &nothing, content, nonce()?).with_lease(LeaseUse::Read(None));
    let next = before
        .unwrap_or(&Record::unknown())
        .apply(&Command::Write(write), SystemClock.now())
        .next;
    next.ok_or_else(|| RegisterErrorKind::Unreadable.into())
}

/// Returns the content of a record.
fn read<T: DeserializeOwned>(record: &Record) -> Result<T, RegisterError> {
    let version = record.state(SystemClock.now()).version();
    serde_json::from_slice(version.map_or(&[], |version| version.payload())).map_err(unreadable)
}

fn unreadable(error: serde_json::Error) -> RegisterError {
    RegisterError::new(RegisterErrorKind::Unreadable, error)
}

#[cfg(test)]
mod tests {
    use std::iter;

    use ifmatch_register::MemoryRegister;
    use ifmatch_register::faulty::{Fault, FaultyRegister};

    use super::*;

    fn segment(by: u64) -> LogSegment {
        LogSegment {
            by,
            orders: Vec::new(),
        }
    }

    fn log() -> PurgeLog {
        PurgeLog::new(Arc::new(MemoryRegister::unbounded()))
    }

    #[tokio::test]
    async fn segments_are_read_in_order_from_any_position() {
        let log = log();
        for by in 1..=5 {
            assert_eq!(log.append(&segment(by)).await.unwrap().newest, by);
        }
        let head = log.head().await.unwrap().head;
        for position in 0..=5 {
            let read = log.after(position, head).await.unwrap().unwrap();
            assert_eq!(read, (position + 1..=5).map(segment).collect::<Vec<_>>());
        }
    }

    #[tokio::test]
    async fn concurrent_appends_are_all_in_the_log() {
        let log = log();
        let append = |by| {
            let log = log.clone();
            async move { log.append(&segment(by)).await.unwrap() }
        };
        futures_util::future::join_all((1..=20).map(append)).await;
        let head = log.head().await.unwrap().head;
        let mut by: Vec<_> = log
            .after(0, head)
            .await
            .unwrap()
            .unwrap()
            .iter()
            .map(|segment| segment.by)
            .collect();
        by.sort_unstable();
        assert_eq!(by, (1..=20).collect::<Vec<_>>());
    }

    #[tokio::test]
    async fn a_missing_or_unreadable_segment_is_a_gap() {
        let log = log();
        for by in 1..=3 {
            log.append(&segment(by)).await.unwrap();
        }
        let (head, second) = (log.head().await.unwrap().head, segment_key(2).unwrap());
        let record = log.register.load(&second).await.unwrap().unwrap();
        let newer = record_of(&"of a newer release", Some(&record)).unwrap();
        log.register
            .compare_and_swap(&second, record.revision(), Some(&newer))
            .await
            .unwrap();
        assert_eq!(log.after(0, head).await.unwrap(), None);
        log.register
            .compare_and_swap(&second, newer.revision(), None)
            .await
            .unwrap();
        assert_eq!(log.after(0, head).await.unwrap(), None);
        assert_eq!(log.after(2, head).await.unwrap(), Some(vec![segment(3)]));
    }

    #[tokio::test]
    async fn a_swap_without_an_answer_loses_no_segment_and_leaves_no_gap() {
        let (done, lost) = (
            Fault::Unanswered {
                done: true,
                then_cut: false,
            },
            Fault::Unanswered {
                done: false,
                then_cut: false,
            },
        );
        let faults = [Fault::None, done, lost];
        // Each order of three faults, repeated, with a response at its end. The swaps of an append meet all of them.
        for order in 0..27 {
            let [first, second, third] =
                [order % 3, order / 3 % 3, order / 9].map(|fault| faults[fault]);
            let register = FaultyRegister::default();
            register.schedule(iter::repeat_n([first, second, third, Fault::None], 100).flatten());
            let log = PurgeLog::new(Arc::new(register));
            for by in 1..=10 {
                let appended = log.append(&segment(by)).await.unwrap();
                let read = log
                    .after(0, appended)
                    .await
                    .unwrap()
                    .expect("there is no gap");
                assert!(
                    read.iter().any(|segment| segment.by == by),
                    "{order}, {by}: {read:?}"
                );
            }
        }
    }

    #[tokio::test]
    async fn old_segments_are_removed() {
        let log = log();
        for by in 1..=SWEEP {
            log.append(&segment(by)).await.unwrap();
        }
        let head = Head {
            oldest: SWEEP,
            ..log.head().await.unwrap().head
        };
        log.sweep(head).await.unwrap();
        assert_eq!(log.after(0, head).await.unwrap(), None);
        assert_eq!(
            log.after(SWEEP - 1, head).await.unwrap(),
            Some(vec![segment(SWEEP)])
        );
    }
}
