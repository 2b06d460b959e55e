//! An ifmatch gateway of its own for each test.

use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdout, Command, Stdio};

use tempfile::TempDir;

/// A running gateway. Ends when it is dropped.
pub struct Gateway {
    process: Child,
    url: String,
    /// Open as long as the gateway may write to it.
    _output: BufReader<ChildStdout>,
    _data: TempDir,
}

impl Gateway {
    /// Starts a gateway on a free port.
    pub fn start() -> Self {
        let binary = std::env::var_os("IFMATCH_BIN").expect("IFMATCH_BIN: run `cargo xtask test --only component`");
        let data = tempfile::tempdir().expect("a temporary folder");
        let mut command = Command::new(binary);
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("IFMATCH_") {
                command.env_remove(name);
            }
        }
        for listener in ["IFMATCH_LISTEN_TABLES", "IFMATCH_LISTEN_S3", "IFMATCH_CONSOLE"] {
            command.env(listener, "off");
        }
        command.args(["serve", "--listen", "127.0.0.1:0", "--data"]).arg(data.path());
        let mut process = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("the gateway starts");
        let mut output = BufReader::new(process.stdout.take().expect("a pipe"));
        let mut said = String::new();
        let url = loop {
            let length = output.read_line(&mut said).expect("text");
            assert!(length > 0, "the gateway has ended: {said}");
            if let Some((_, url)) = said.trim_end().rsplit_once("listening on ") {
                break url.to_owned();
            }
        };
        Self { process, url, _output: output, _data: data }
    }

    /// Returns the URL of a folder for records.
    pub fn folder(&self) -> String {
        format!("{}/records/notes", self.url)
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
