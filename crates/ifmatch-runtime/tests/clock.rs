//! The system clocks in a process with a time of day set by libfaketime. The process is this program itself.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking"
)]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use std::{env, fs};

use ifmatch_core::date::Timestamp;
use ifmatch_runtime::{Clock, SystemClock};

/// Environment variable with the path of the clock step file, set only in the child process.
const STEP: &str = "FAKETIME_TIMESTAMP_FILE";
/// Longer than the test takes.
const HOUR: Duration = Duration::from_secs(3600);

fn main() {
    match env::var_os(STEP) {
        Some(file) => the_interval_clock_ignores_changes_of_the_system_time(Path::new(&file)),
        None => begin(),
    }
}

/// Runs this program again, with a time of day under its own control.
fn begin() {
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("step-{}", std::process::id()));
    fs::write(&file, "+0").unwrap();
    let mut command = Command::new(env::current_exe().unwrap());
    command.env("LD_PRELOAD", library()).env(STEP, &file);
    command.envs([
        ("FAKETIME_NO_CACHE", "1"),
        ("FAKETIME_DONT_FAKE_MONOTONIC", "1"),
    ]);
    let status = command.status().unwrap();
    fs::remove_file(file).unwrap();
    assert!(status.success(), "{status}");
}

fn the_interval_clock_ignores_changes_of_the_system_time(file: &Path) {
    let clocks = || (SystemClock.wall(), SystemClock.now());
    let (wall, mut now) = clocks();
    for (step, is_there) in [
        ("+86400", is_later as fn(Timestamp, Timestamp) -> bool),
        ("-86400", |before, after| is_later(after, before)),
        ("+0", |before, after| {
            before.until(after) < HOUR && after.until(before).is_zero()
        }),
    ] {
        fs::write(file, step).unwrap();
        let (stepped, after) = clocks();
        assert!(
            is_there(wall, stepped),
            "the time of day was not set by {step}: {wall:?} {stepped:?}"
        );
        assert!(
            after >= now && now.until(after) < HOUR,
            "the interval clock followed {step}: {now:?} {after:?}"
        );
        now = after;
    }
}

fn is_later(before: Timestamp, after: Timestamp) -> bool {
    before.until(after) > HOUR
}

/// Returns the path of libfaketime: `IFMATCH_FAKETIME`, or the location used by Linux distributions.
fn library() -> PathBuf {
    if let Some(path) = env::var_os("IFMATCH_FAKETIME") {
        return path.into();
    }
    let folders = [
        "lib/x86_64-linux-gnu/faketime",
        "lib/aarch64-linux-gnu/faketime",
        "lib64/faketime",
        "lib/faketime",
    ];
    let found = folders.map(|folder| Path::new("/usr").join(folder).join("libfaketime.so.1"));
    let found = found.into_iter().find(|path| path.exists());
    found.expect(
        "libfaketime is missing: apt-get install libfaketime, or set IFMATCH_FAKETIME to its path",
    )
}
