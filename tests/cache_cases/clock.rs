//! The wall clock of a process, which a test can advance. Timers run in real time.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use ifmatch_core::date::Timestamp;
use ifmatch_runtime::{Clock as _, SystemClock};
use ifmatch_testbed::faketime;
use tempfile::TempDir;

use crate::case::START;

/// Maximum duration of a case. Longer ones cannot be judged by whole seconds.
const MOST: Duration = Duration::from_millis(900);

/// A clock for one process.
pub(crate) struct Clock {
    began: Timestamp,
    /// Offset from the system's clock in seconds.
    offset: f64,
    advanced: u64,
    folder: TempDir,
}

impl Clock {
    /// Creates a clock an hour before [`START`], for a process to start by.
    pub(crate) fn new() -> Self {
        let mut clock =
            Self { began: Timestamp::default(), offset: 0.0, advanced: 0, folder: tempfile::tempdir().unwrap() };
        clock.begin(START.unsigned_abs() - 3600);
        clock
    }

    /// Advances to [`START`], once the process has started.
    pub(crate) fn start(&mut self) {
        self.begin(START.unsigned_abs());
    }

    fn begin(&mut self, at: u64) {
        self.began = SystemClock.now();
        self.offset = Duration::from_secs(at).as_secs_f64() - Timestamp::default().until(self.began).as_secs_f64();
        self.set();
    }

    /// Makes a new process use this clock.
    pub(crate) fn rules(&self, command: &mut Command) {
        command
            .env("LD_PRELOAD", faketime())
            .env("FAKETIME_TIMESTAMP_FILE", self.file())
            .envs([("FAKETIME_NO_CACHE", "1"), ("FAKETIME_DONT_FAKE_MONOTONIC", "1")]);
    }

    pub(crate) fn advance(&mut self, seconds: u64) {
        if seconds > 0 {
            self.advanced += seconds;
            self.set();
        }
    }

    /// Returns whole seconds since the Unix epoch.
    pub(crate) fn unix(&self) -> i64 {
        START + self.advanced.cast_signed()
    }

    /// Returns `true` if less than a second of real time has passed.
    pub(crate) fn is_exact(&self) -> bool {
        self.began.until(SystemClock.now()) < MOST
    }

    /// Writes the offset atomically.
    #[expect(clippy::cast_precision_loss, reason = "far fewer seconds than fifteen digits")]
    fn set(&self) {
        let new = self.folder.path().join("new");
        fs::write(&new, format!("{:+.6}", self.offset + self.advanced as f64)).unwrap();
        fs::rename(new, self.file()).unwrap();
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("now")
    }
}
