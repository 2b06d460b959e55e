//! A command that `ifmatch lock` or `ifmatch elect` runs.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use crate::process::{TIMEOUT, kill, try_kill};
use crate::{Gateway, eventually};

/// `ifmatch` in the background, with the command that it runs. Dropping this ends both.
pub struct Guarded {
    child: Child,
    lines: Receiver<String>,
}

impl Guarded {
    /// Starts `ifmatch` with these arguments, and a script.
    pub fn start(arguments: &[&str], script: &str) -> Self {
        Self::of(Gateway::command(), arguments, script)
    }

    /// Starts a prepared command with these arguments, and a script.
    pub fn of(mut command: Command, arguments: &[&str], script: &str) -> Self {
        command
            .args(arguments)
            .args(["--", "sh", "-c", script])
            .stdin(Stdio::null())
            .stdout(Stdio::piped());
        let mut child = command.spawn().expect("ifmatch starts");
        let output = BufReader::new(child.stdout.take().expect("piped"));
        let (line, lines) = channel();
        std::thread::spawn(move || {
            output
                .lines()
                .map_while(Result::ok)
                .try_for_each(|read| line.send(read))
        });
        Self { child, lines }
    }

    /// Returns the next line of the command's output, or an empty one at the end.
    pub fn line(&self) -> String {
        match self.lines.recv_timeout(TIMEOUT) {
            Ok(line) => line.trim().to_owned(),
            Err(RecvTimeoutError::Disconnected) => String::new(),
            Err(RecvTimeoutError::Timeout) => {
                panic!("the next line of the command: not within {TIMEOUT:?}")
            }
        }
    }

    /// Returns the process of `ifmatch`.
    pub fn process(&mut self) -> &mut Child {
        &mut self.child
    }

    /// Sends a signal to `ifmatch`.
    pub fn signal(&self, name: &str) {
        kill(name, &self.child.id().to_string());
    }

    /// Waits until `ifmatch` has exited, and returns its exit code.
    pub fn code(&mut self) -> Option<i32> {
        let child = &mut self.child;
        eventually("the end of the command", || {
            child.try_wait().expect("a child")
        })
        .code()
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        // SIGTERM is passed on to the command, and repeated for two seconds. SIGKILL can't be, and would leave it running.
        for _ in 0..100 {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            try_kill("TERM", &self.child.id().to_string());
            std::thread::sleep(Duration::from_millis(20));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
