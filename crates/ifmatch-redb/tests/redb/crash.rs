//! `kill -9` during concurrent writes: every acknowledged swap survives.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use ifmatch_redb::RedbRegister;
use ifmatch_register::Driver;

use crate::{get, set};

/// Environment variable of the child process: the path of the database.
const DATABASE: &str = "IFMATCH_TEST_DATABASE";
/// Number of concurrent writers.
const WRITERS: usize = 16;

/// The child process of the test below. Does nothing without its environment variable.
#[tokio::test(flavor = "multi_thread")]
async fn writer_process() {
    let Some(path) = std::env::var_os(DATABASE) else {
        return;
    };
    let driver = Arc::new(Driver::new(RedbRegister::open(path).unwrap()).assume_absent());
    let writers: Vec<_> = (0..WRITERS)
        .map(|writer| {
            let driver = Arc::clone(&driver);
            tokio::spawn(async move {
                let name = format!("counter/{writer}");
                let start = get(&driver, &name).await.unwrap().unwrap_or(0);
                for number in start + 1.. {
                    set(&driver, &name, number).await.unwrap();
                    let mut out = std::io::stdout().lock();
                    writeln!(out, "\nack {name} {number}").unwrap();
                    out.flush().unwrap();
                }
            })
        })
        .collect();
    for writer in writers {
        writer.await.unwrap();
    }
}

/// Runs a child until it has acknowledged a number of swaps, then kills it.
fn write_and_kill(path: &Path, acknowledged: usize) -> HashMap<String, u64> {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["crash::writer_process", "--exact", "--nocapture"])
        .env(DATABASE, path)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    // Returns `None` at the end, where a line may be incomplete.
    let mut next = || {
        let mut line = String::new();
        out.read_line(&mut line).unwrap();
        line.strip_suffix('\n').map(str::to_owned)
    };
    let mut last = HashMap::new();
    let mut seen = 0;
    let mut note = |line: &str| {
        if let Some((name, number)) = line
            .strip_prefix("ack ")
            .and_then(|ack| ack.split_once(' '))
        {
            last.insert(name.to_owned(), number.parse().unwrap());
            seen += 1;
        }
        seen
    };
    while note(&next().expect("the child keeps writing")) < acknowledged {}
    child.kill().unwrap();
    // Lines written to the pipe before the kill were acknowledged as well.
    while let Some(line) = next() {
        note(&line);
    }
    child.wait().unwrap();
    last
}

#[tokio::test(flavor = "multi_thread")]
async fn acknowledged_swaps_survive_a_kill() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("index.redb");
    for acknowledged in [50, 1, 200] {
        let last = write_and_kill(&path, acknowledged);
        assert!(!last.is_empty());
        let driver = Driver::new(RedbRegister::open(&path).unwrap()).assume_absent();
        for (name, number) in last {
            let found = get(&driver, &name).await.unwrap();
            assert!(
                found >= Some(number),
                "{name}: acknowledged {number}, found {found:?}"
            );
            assert!(
                found <= Some(number + 1),
                "{name}: at most one write can be unacknowledged"
            );
        }
    }
}
