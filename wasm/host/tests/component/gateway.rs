//! An ifmatch gateway of its own for each test, and the checks of the same program.

use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use component_host::LIMIT;
use serde_json::Value;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};
use tokio::time::timeout;

/// Longest time that all checks take together, far beyond the expected time.
const CHECKS: Duration = Duration::from_mins(10);

/// A gateway with data of its own. Ends when it is dropped.
pub struct Gateway {
    running: Running,
    data: TempDir,
}

struct Running {
    process: Child,
    address: String,
    /// Open as long as the gateway may write to it.
    _output: Lines<BufReader<ChildStdout>>,
}

impl Gateway {
    /// Starts a gateway on a free port.
    pub async fn start() -> Self {
        let data = tempfile::tempdir().expect("a temporary folder");
        let running = Running::start(data.path(), "127.0.0.1:0")
            .await
            .expect("the gateway listens");
        Self { running, data }
    }

    /// Kills it (SIGKILL).
    pub async fn kill(&mut self) {
        self.running.process.kill().await.expect("it is running");
    }

    /// Starts it again, on its data and its port.
    pub async fn start_again(&mut self) {
        let (begin, address) = (Instant::now(), self.running.address.clone());
        loop {
            match Running::start(self.data.path(), &address).await {
                Some(running) => {
                    self.running = running;
                    return;
                }
                // Another process has the port for a moment.
                None => assert!(
                    begin.elapsed() < LIMIT,
                    "the gateway doesn't listen on {address} within a minute"
                ),
            }
        }
    }

    /// Returns the URL of a folder for records.
    pub fn folder(&self) -> String {
        format!("http://{}/records/notes", self.running.address)
    }
}

impl Running {
    /// Returns `None` if the gateway ends before it listens.
    async fn start(data: &Path, address: &str) -> Option<Self> {
        let mut command = command();
        for listener in [
            "IFMATCH_LISTEN_TABLES",
            "IFMATCH_LISTEN_S3",
            "IFMATCH_CONSOLE",
        ] {
            command.env(listener, "off");
        }
        command
            .args(["serve", "--listen", address, "--data"])
            .arg(data);
        let mut process = command
            .stderr(Stdio::null())
            .spawn()
            .expect("the gateway starts");
        let mut output = BufReader::new(process.stdout.take().expect("a pipe")).lines();
        let listening = async {
            while let Some(line) = output.next_line().await.expect("text") {
                if let Some((_, url)) = line.rsplit_once("listening on http://") {
                    return Some(url.to_owned());
                }
            }
            None
        };
        let address = timeout(LIMIT, listening)
            .await
            .expect("the gateway listens within a minute")?;
        Some(Self {
            process,
            address,
            _output: output,
        })
    }
}

/// Returns the results of `ifmatch check --suite` for a folder at this URL.
pub async fn check(url: &str) -> Vec<Value> {
    let output = command()
        .args(["check", "--suite", "--json", url])
        .stderr(Stdio::piped())
        .output();
    let output = timeout(CHECKS, output)
        .await
        .expect("all checks within ten minutes")
        .expect("the checks start");
    let report: Value =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"));
    report["checks"]
        .as_array()
        .expect("a list of checks")
        .clone()
}

/// Returns the command without inherited settings. What it starts ends when it is dropped.
fn command() -> Command {
    let mut command = Command::new(
        std::env::var_os("IFMATCH_BIN")
            .expect("IFMATCH_BIN: run `cargo xtask ci --only component`"),
    );
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("IFMATCH_") {
            command.env_remove(name);
        }
    }
    command.stdout(Stdio::piped()).kill_on_drop(true);
    command
}
