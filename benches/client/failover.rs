//! The time between the end of a lock's holder and its next holder: `ifmatch lock` beside `etcdctl lock`.
#![expect(clippy::disallowed_methods, reason = "it measures time")]

use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use statistics::{ratio, row, spread};

use crate::Site;

/// Time to live of both locks in seconds; the least that `ifmatch lock` allows.
const TTL: u32 = 3;
/// Trials that run at the same time, with locks of their own.
const AT_ONCE: u32 = 10;

/// A program that holds a lock until it is told to end.
#[derive(Clone, Copy)]
enum Kind {
    Ifmatch,
    Etcd,
}

/// The end of a holder.
#[derive(Clone, Copy)]
enum End {
    /// SIGKILL: nothing is released.
    Killed,
    /// SIGTERM: the lock is released.
    Released,
}

/// A process that holds a lock, or waits for it. Ended when dropped.
struct Holder {
    child: Child,
    output: BufReader<ChildStdout>,
}

/// Measures a number of failovers of each kind, and prints the table.
pub(crate) fn run(site: &Site, trials: u32) {
    println!(
        "\n| seconds until the next holder | ifmatch lock | etcdctl lock | ratio |\n|---|---|---|---|"
    );
    for end in [End::Killed, End::Released] {
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        for first in (0..trials).step_by(AT_ONCE as usize) {
            let numbers = first..trials.min(first + AT_ONCE);
            eprintln!("{}: {numbers:?} of {trials}", end.name());
            std::thread::scope(|scope| {
                let start =
                    |kind, number| scope.spawn(move || trial(site, kind, end, number, trials));
                let both: Vec<_> = numbers
                    .map(|number| (start(Kind::Ifmatch, number), start(Kind::Etcd, number)))
                    .collect();
                for (one, other) in both {
                    ours.push(one.join().unwrap());
                    theirs.push(other.join().unwrap());
                }
            });
        }
        let cells = [
            spread(ours.iter().copied(), 3),
            spread(theirs.iter().copied(), 3),
            spread(ratio(&ours, &theirs), 2),
        ];
        println!("{}", row(end.name(), &cells));
    }
}

/// Returns the seconds between the end of a holder and its successor's beginning. The ends of all trials are spread evenly
/// over the time to live, and so over the time since the last renewal.
fn trial(site: &Site, kind: Kind, end: End, number: u32, trials: u32) -> f64 {
    let key = format!("{}-{number}", end.name().replace(' ', "-"));
    let mut holder = Holder::start(site, kind, &key);
    holder.holds();
    let mut next = Holder::start(site, kind, &key);
    // Long enough for the next one to see the lock held.
    std::thread::sleep(
        Duration::from_secs(TTL.into()) + Duration::from_secs(TTL.into()) * number / trials,
    );
    let ended = Instant::now();
    holder.end(end);
    next.holds();
    let took = ended.elapsed().as_secs_f64();
    next.end(End::Released);
    took
}

impl End {
    fn name(self) -> &'static str {
        match self {
            Self::Killed => "holder killed",
            Self::Released => "holder releases",
        }
    }
}

impl Holder {
    fn start(site: &Site, kind: Kind, key: &str) -> Self {
        let (gateway, etcd) = (site.gateway.address(), site.etcd.address());
        let mut command = match kind {
            Kind::Ifmatch => {
                let mut command = Command::new(&site.binary);
                command.args([
                    "lock",
                    &format!("http://{gateway}/locks/{key}"),
                    "--ttl",
                    &format!("{TTL}s"),
                ]);
                // Ends with its input, even if the program that has started it was killed.
                command.args(["--", "sh", "-c", "echo held; read _"]);
                command
            }
            Kind::Etcd => {
                let mut command = Command::new("etcdctl");
                command
                    .env("ETCDCTL_API", "3")
                    .args([&format!("--endpoints={etcd}"), "lock", key]);
                command.arg(format!("--ttl={TTL}"));
                command
            }
        };
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        Self { child, output }
    }

    /// Waits until it holds the lock.
    fn holds(&mut self) {
        let mut line = String::new();
        assert_ne!(
            self.output.read_line(&mut line).unwrap(),
            0,
            "it ended without the lock"
        );
    }

    fn end(&mut self, end: End) {
        match end {
            End::Killed => self.child.kill().unwrap(),
            End::Released => {
                let sent = Command::new("kill")
                    .arg(self.child.id().to_string())
                    .status()
                    .unwrap();
                assert!(sent.success());
            }
        }
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        // After a panic, no one has told it to end.
        if std::thread::panicking() {
            let _ = self.child.kill();
        }
        let _ = self.child.wait();
    }
}
