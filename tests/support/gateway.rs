//! The real `ifmatch` process: started on a free port, stopped, killed and started again on the same data.

use std::ffi::OsStr;
use std::fs;
use std::net::SocketAddr;
use std::process::Command;

use crate::binary;
use crate::process::{Finished, Process};

/// A running `ifmatch`. It is killed when this is dropped, and its log is printed if the test fails.
///
/// Waiting blocks the thread, for as long as a process takes to start or to end.
pub struct Gateway {
    command: Command,
    process: Process,
    url: String,
}

/// What a process has needed of the machine's memory, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Memory {
    /// Resident now.
    pub resident: u64,
    /// The most that was ever resident.
    pub peak: u64,
}

/// Runs `ifmatch` with these arguments until it ends by itself: for what it must refuse.
pub fn run<A: AsRef<OsStr>>(args: impl IntoIterator<Item = A>) -> Finished {
    Process::start(Gateway::command().args(args)).finished()
}

impl Gateway {
    /// Runs `ifmatch` with these arguments, on a free port of this machine unless they say `--listen`, and waits until it
    /// listens.
    pub fn start<A: AsRef<OsStr>>(args: impl IntoIterator<Item = A>) -> Self {
        let mut command = Self::command();
        command.args(args);
        if !command.get_args().any(|arg| arg == "--listen") {
            command.args(["--listen", "127.0.0.1:0"]);
        }
        Self::launch(command)
    }

    /// The bare command, for tests that set the environment or the working directory; the settings of whoever runs the
    /// test do not reach it. No tables are served unless the arguments say so: their port is the same for all.
    pub fn command() -> Command {
        let mut command = Command::new(binary::path());
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("IFMATCH_")) {
            command.env_remove(name);
        }
        command.env("IFMATCH_LISTEN_TABLES", "off");
        command
    }

    /// Runs a prepared command and waits until it listens.
    pub fn launch(mut command: Command) -> Self {
        let mut process = Process::start(&mut command);
        let url = process.line_after("listening on ");
        Self { command, process, url }
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        let (_, address) = self.url.split_once("://").expect("a scheme");
        address.parse().expect("an address and a port")
    }

    /// Where it serves tables, if its arguments had it serve any. To be asked once.
    pub fn tables(&mut self) -> SocketAddr {
        let url = self.process.line_after("tables on ");
        let (_, address) = url.split_once("://").expect("a scheme");
        address.parse().expect("an address and a port")
    }

    /// The URL of a path that starts with a slash.
    pub fn url(&self, path: &str) -> String {
        format!("{}{path}", self.url)
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// What it has logged so far.
    pub fn stderr(&self) -> String {
        self.process.stderr()
    }

    /// Its memory, as Linux accounts for it.
    pub fn memory(&self) -> Memory {
        let file = format!("/proc/{}/status", self.pid());
        let status = fs::read_to_string(&file).unwrap_or_else(|error| panic!("{file}: {error}"));
        Memory { resident: bytes_of(&status, "VmRSS:"), peak: bytes_of(&status, "VmHWM:") }
    }

    /// Asks it to end (SIGTERM) without waiting: see [`Gateway::finished`].
    pub fn terminate(&self) {
        self.process.terminate();
    }

    /// Waits until it has ended by itself.
    pub fn finished(&mut self) -> Finished {
        self.process.finished()
    }

    /// Asks it to end and waits until it has.
    pub fn stop(&mut self) -> Finished {
        self.terminate();
        self.finished()
    }

    /// Ends it at once (SIGKILL), as a crash would.
    pub fn kill(&mut self) -> Finished {
        self.process.kill()
    }

    /// Starts it again with the same arguments. One that still runs is killed first. The port may be another one.
    pub fn restart(&mut self) {
        self.kill();
        self.process = Process::start(&mut self.command);
        self.url = self.process.line_after("listening on ");
    }
}

/// A line of `/proc/<pid>/status` that counts kibibytes.
fn bytes_of(status: &str, field: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix(field)).expect("Linux reports the field");
    let kibibytes: u64 = line.trim().trim_end_matches(" kB").parse().expect("a number");
    kibibytes * 1024
}
