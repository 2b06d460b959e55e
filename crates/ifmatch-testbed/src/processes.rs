//! The processes of a server, from /proc.

use std::fs;
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

/// Pause between two lists of processes.
const PAUSE: Duration = Duration::from_millis(1);
/// Number of lists in which processes may run on, at least two minutes.
const LISTS: usize = 120_000;

/// A process in /proc.
struct ProcessEntry {
    id: u32,
    parent: u32,
    /// It is neither suspended nor ended.
    is_running: bool,
    /// CPU time in the system's ticks, with its ended children's.
    ticks: u64,
}

/// Returns a process and its descendants, parents first.
fn tree(root: u32) -> Vec<ProcessEntry> {
    let processes = fs::read_dir("/proc")
        .expect("a system with /proc")
        .flatten();
    let mut others: Vec<ProcessEntry> = processes
        .filter_map(|process| entry(process.file_name().to_str()?.parse().ok()?))
        .collect();
    let mut found = Vec::new();
    let mut parents = vec![root];
    while let Some(parent) = parents.pop() {
        found.extend(others.extract_if(.., |process| process.id == parent));
        parents.extend(
            others
                .iter()
                .filter(|process| process.parent == parent)
                .map(|process| process.id),
        );
    }
    found
}

/// Parses `stat` of proc(5). The second field is a name in parentheses, which may contain spaces.
fn entry(id: u32) -> Option<ProcessEntry> {
    let text = fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    let fields: Vec<&str> = text.rsplit(')').next()?.split_whitespace().collect();
    let number = |field: usize| fields.get(field - 3)?.parse::<u64>().ok();
    let ticks = number(14)? + number(15)? + number(16)? + number(17)?;
    let is_running = !matches!(*fields.first()?, "T" | "Z" | "X");
    Some(ProcessEntry {
        id,
        parent: number(4)?.try_into().ok()?,
        is_running,
        ticks,
    })
}

/// Returns the ids of a process and its descendants.
pub(crate) fn ids(root: u32) -> Vec<u32> {
    tree(root).into_iter().map(|process| process.id).collect()
}

/// Sends a signal to a process.
pub(crate) fn signal(id: u32, signal: Signal) {
    let id = i32::try_from(id)
        .ok()
        .and_then(Pid::from_raw)
        .expect("the id of a process");
    // It may have ended.
    let _ = kill_process(id, signal);
}

/// Suspends a process and its descendants. A process may start another one after it was listed, so this lists them again
/// until all are suspended.
///
/// # Panics
/// Panics if one still runs after two minutes.
pub(crate) fn suspend(root: u32) {
    let mut without_running = 0;
    for _ in 0..LISTS {
        let mut running = tree(root);
        running.retain(|process| process.is_running);
        // A process may also have started another one while the first such list was made.
        without_running = if running.is_empty() {
            without_running + 1
        } else {
            0
        };
        if without_running == 2 {
            return;
        }
        for process in running {
            signal(process.id, Signal::STOP);
        }
        thread::sleep(PAUSE);
    }
    panic!("process {root} and its descendants are not suspended within two minutes");
}

/// Returns the CPU time of a process and its descendants in seconds.
pub(crate) fn cpu(root: u32) -> f64 {
    let ticks: u64 = tree(root).iter().map(|process| process.ticks).sum();
    let per_second =
        u32::try_from(rustix::param::clock_ticks_per_second()).expect("a hundred or so");
    f64::from(u32::try_from(ticks).expect("less than a year")) / f64::from(per_second)
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn a_process_that_starts_others_is_suspended_with_all_of_them() {
        let mut parent = Command::new("sh")
            .args(["-c", "for n in $(seq 500); do sleep 60 & done; wait"])
            .spawn()
            .expect("a shell");
        let has_started = (0..LISTS).any(|_| {
            thread::sleep(PAUSE);
            tree(parent.id()).len() >= 10
        });
        suspend(parent.id());
        let found = tree(parent.id());
        for process in &found {
            signal(process.id, Signal::KILL);
        }
        parent.wait().expect("the process is ours");
        assert!(has_started, "the shell started fewer than 10 processes");
        let running = found.iter().filter(|process| process.is_running).count();
        assert_eq!(running, 0, "of {} processes", found.len());
    }
}
