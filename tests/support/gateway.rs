//! An `ifmatch` process on a free port, which can be stopped, killed and restarted on the same data. `IFMATCH_BIN` is its path. In the
//! tests of its package, cargo names it.

use std::ffi::OsStr;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use tempfile::TempDir;

use crate::process::{Finished, Process};

/// A running `ifmatch`. Dropping this kills it, and prints its log if the test has failed.
///
/// All waits block the thread.
pub struct Gateway {
    command: Command,
    process: Process,
    url: String,
    /// Its data, removed after its end.
    _folder: Option<TempDir>,
}

/// Memory of a process, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Memory {
    /// Current resident memory.
    pub resident: u64,
    /// Peak resident memory.
    pub peak: u64,
}

/// Runs `ifmatch` with these arguments until it exits. A server that starts nevertheless takes a free port.
pub fn run<A: AsRef<OsStr>>(args: impl IntoIterator<Item = A>) -> Finished {
    run_command(
        Gateway::command()
            .env("IFMATCH_LISTEN", "127.0.0.1:0")
            .args(args),
    )
}

/// Runs a prepared command until it exits.
pub fn run_command(command: &mut Command) -> Finished {
    Process::start(command).finished()
}

impl Gateway {
    /// Starts `ifmatch` with these arguments, on a free loopback port unless they include `--listen`, and waits until
    /// it listens.
    pub fn start<A: AsRef<OsStr>>(args: impl IntoIterator<Item = A>) -> Self {
        let mut command = Self::command();
        command.args(args);
        if !command.get_args().any(|arg| arg == "--listen") {
            command.args(["--listen", "127.0.0.1:0"]);
        }
        Self::launch(command)
    }

    /// Starts `ifmatch serve` on a folder of its own.
    pub fn on_folder(flags: &[&str]) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let data = folder.path().to_str().expect("a path of text").to_owned();
        let gateway = Self::start(["serve", "--data", &data].iter().chain(flags));
        Self {
            _folder: Some(folder),
            ..gateway
        }
    }

    /// Returns the command without arguments and without inherited settings, for tests that set the environment or the
    /// working directory. Tables, S3 and the console are disabled by default, since their ports are fixed.
    pub fn command() -> Command {
        let mut command = Command::new(path());
        for (name, _) in std::env::vars_os() {
            if ["IFMATCH_", "OTEL_"]
                .iter()
                .any(|prefix| name.to_string_lossy().starts_with(prefix))
            {
                command.env_remove(name);
            }
        }
        command.stdin(Stdio::null());
        command.env("IFMATCH_LISTEN_TABLES", "off");
        command.env("IFMATCH_LISTEN_S3", "off");
        command.env("IFMATCH_CONSOLE", "off");
        command
    }

    /// Runs a prepared command and waits until it listens.
    pub fn launch(mut command: Command) -> Self {
        let mut process = Process::start(&mut command);
        let url = process.line_after("listening on ");
        Self {
            command,
            process,
            url,
            _folder: None,
        }
    }

    /// Returns its address.
    pub fn address(&self) -> SocketAddr {
        address_in(&self.url)
    }

    /// Returns the rest of the next line of its banner that starts with `prefix`.
    pub fn line_after(&mut self, prefix: &str) -> String {
        self.process.line_after(prefix)
    }

    /// Returns the address of its tables. Can be called once.
    pub fn tables(&mut self) -> SocketAddr {
        address_in(&self.process.line_after("tables on "))
    }

    /// Returns the address for S3 clients. Can be called once.
    pub fn s3(&mut self) -> SocketAddr {
        address_in(&self.process.line_after("S3 on "))
    }

    /// Returns the URL of a path that starts with a slash.
    pub fn url(&self, path: &str) -> String {
        format!("{}{path}", self.url)
    }

    /// Returns its process id.
    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Returns its log so far.
    pub fn stderr(&self) -> String {
        self.process.stderr()
    }

    /// Returns its memory according to Linux.
    pub fn memory(&self) -> Memory {
        let file = format!("/proc/{}/status", self.pid());
        let status = fs::read_to_string(&file).unwrap_or_else(|error| panic!("{file}: {error}"));
        Memory {
            resident: bytes_of(&status, "VmRSS:"),
            peak: bytes_of(&status, "VmHWM:"),
        }
    }

    /// Sends SIGTERM without waiting: see [`Gateway::finished`].
    pub fn terminate(&self) {
        self.process.terminate();
    }

    /// Sends SIGHUP, which reloads its configuration.
    pub fn hang_up(&self) {
        self.process.hang_up();
    }

    /// Waits until it has exited.
    pub fn finished(&mut self) -> Finished {
        self.process.finished()
    }

    /// Sends SIGTERM and waits until it has exited.
    pub fn stop(&mut self) -> Finished {
        self.terminate();
        self.finished()
    }

    /// Kills it (SIGKILL), like a crash.
    pub fn kill(&mut self) -> Finished {
        self.process.kill()
    }

    /// Restarts it with the same arguments, possibly on another port. Kills it first if it is running.
    pub fn restart(&mut self) {
        self.kill();
        self.process = Process::start(&mut self.command);
        self.url = self.process.line_after("listening on ");
    }
}

/// Returns the address in a URL without a path.
fn address_in(url: &str) -> SocketAddr {
    let (_, address) = url.split_once("://").expect("a scheme");
    address.parse().expect("an address and a port")
}

/// Returns the bytes of a line of `/proc/<pid>/status`, which counts kibibytes.
fn bytes_of(status: &str, field: &str) -> u64 {
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix(field))
        .expect("Linux reports the field");
    let kibibytes: u64 = line
        .trim()
        .trim_end_matches(" kB")
        .parse()
        .expect("a number");
    kibibytes * 1024
}

/// Returns the path of the `ifmatch` binary.
pub(crate) fn path() -> &'static Path {
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    PATH.get_or_init(|| {
        // cargo sets the second one for the tests of the gateway's package.
        let named = ["IFMATCH_BIN", "CARGO_BIN_EXE_ifmatch"]
            .into_iter()
            .find_map(std::env::var_os);
        named
            .map(PathBuf::from)
            .expect("the path of a built `ifmatch` in IFMATCH_BIN, as `cargo xtask ci` sets it")
    })
}
