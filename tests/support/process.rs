//! A child process with captured output, which is killed on drop, and signals to any process.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// Timeout for output or the end of a process, far beyond the expected time.
pub(crate) const TIMEOUT: Duration = Duration::from_mins(10);
/// Interval at which the end of a process is polled.
const POLL: Duration = Duration::from_millis(10);

/// A process that has ended.
#[derive(Debug)]
pub struct Finished {
    /// Exit status.
    pub status: ExitStatus,
    /// Complete standard output.
    pub stdout: String,
    /// Complete standard error.
    pub stderr: String,
}

/// A running process. Killed when dropped.
pub struct Process {
    child: Child,
    lines: Receiver<String>,
    stdout: Captured,
    stderr: Captured,
}

impl Process {
    /// Starts the command.
    pub fn start(command: &mut Command) -> Self {
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("{command:?} does not start: {error}"));
        let (heard, lines) = channel();
        let stdout = Captured::read(child.stdout.take().expect("piped"), move |line| {
            drop(heard.send(line.to_owned()));
        });
        let stderr = Captured::read(child.stderr.take().expect("piped"), |_| ());
        Self {
            child,
            lines,
            stdout,
            stderr,
        }
    }

    /// Returns its number.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Returns the rest of the next line on standard output that starts with `prefix`.
    pub fn line_after(&mut self, prefix: &str) -> String {
        loop {
            match self.lines.recv_timeout(TIMEOUT) {
                Ok(line) => {
                    // With JSON logs, the banner is JSON, too.
                    let text = line
                        .trim_start_matches("{\"level\":\"INFO\",\"message\":\"")
                        .trim_end_matches("\"}");
                    if let Some(rest) = text.strip_prefix(prefix) {
                        return rest.trim().to_owned();
                    }
                }
                Err(RecvTimeoutError::Timeout) => {
                    panic!(
                        "no line `{prefix}…` within {TIMEOUT:?}; stderr:\n{}",
                        self.stderr()
                    )
                }
                Err(RecvTimeoutError::Disconnected) => {
                    let end = self.finished();
                    panic!("ended without a line `{prefix}…`: {end:#?}")
                }
            }
        }
    }

    /// Returns its standard error so far.
    pub(crate) fn stderr(&self) -> String {
        self.stderr.text().clone()
    }

    /// Sends SIGTERM.
    pub(crate) fn terminate(&self) {
        kill("TERM", &self.id().to_string());
    }

    /// Sends SIGHUP.
    pub(crate) fn hang_up(&self) {
        kill("HUP", &self.id().to_string());
    }

    /// Sends SIGKILL.
    pub(crate) fn kill(&mut self) -> Finished {
        // An error means that it has already exited.
        drop(self.child.kill());
        self.finished()
    }

    /// Waits until it has ended.
    pub fn finished(&mut self) -> Finished {
        let rounds = TIMEOUT.as_millis() / POLL.as_millis();
        for _ in 0..rounds {
            if let Some(status) = self.child.try_wait().expect("a child can be waited for") {
                return Finished {
                    status,
                    stdout: self.stdout.whole(),
                    stderr: self.stderr.whole(),
                };
            }
            std::thread::sleep(POLL);
        }
        panic!(
            "process {} does not end within {TIMEOUT:?}; stderr:\n{}",
            self.id(),
            self.stderr()
        )
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Errors mean that it has already exited.
        drop(self.child.kill());
        drop(self.child.wait());
        if std::thread::panicking() {
            eprintln!("stderr of process {}:\n{}", self.id(), self.stderr.whole());
        }
    }
}

/// Sends a signal to a process by its number.
pub fn kill(signal: &str, pid: &str) {
    assert!(try_kill(signal, pid), "kill -{signal} {pid}");
}

/// Sends a signal to a process, which may have ended. Returns `true` if it was sent.
pub(crate) fn try_kill(signal: &str, pid: &str) -> bool {
    // The shell's `kill` is portable, and needs neither unsafe code nor a dependency.
    let status = Command::new("sh")
        .args(["-c", &format!("kill -{signal} {pid}")])
        .status();
    status.is_ok_and(|status| status.success())
}

/// One output stream, collected by a thread.
struct Captured {
    text: Arc<Mutex<String>>,
    reader: Option<JoinHandle<()>>,
}

impl Captured {
    fn read(
        stream: impl Read + Send + 'static,
        mut on_line: impl FnMut(&str) + Send + 'static,
    ) -> Self {
        let text = Arc::new(Mutex::new(String::new()));
        let shared = Arc::clone(&text);
        let reader = std::thread::spawn(move || {
            for line in BufReader::new(stream).split(b'\n').map_while(Result::ok) {
                let line = String::from_utf8_lossy(&line);
                let mut text = shared.lock().unwrap_or_else(PoisonError::into_inner);
                text.push_str(&line);
                text.push('\n');
                on_line(&line);
            }
        });
        Self {
            text,
            reader: Some(reader),
        }
    }

    fn text(&self) -> MutexGuard<'_, String> {
        self.text.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the complete output after the end of the process.
    fn whole(&mut self) -> String {
        if let Some(reader) = self.reader.take() {
            drop(reader.join());
        }
        self.text().clone()
    }
}
