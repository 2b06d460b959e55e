//! A command that runs while a lock is held: its start, its signals and its end.

use std::ffi::OsString;
use std::io::{self, IsTerminal, stdin};
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::Duration;

use futures_util::future::select_all;
use ifmatch_client::Grant;
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use tokio::process::{Child, Command};
use tokio::signal::unix::{self, SignalKind, signal};
use tokio::time::timeout;

use crate::error::Error;

/// The end of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// It ended by itself, or by a signal from elsewhere.
    Exited(u8),
    /// The lock was lost, and the command was ended.
    Lost,
}

/// A signal that this process got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Received(Signal);

/// The signals that are passed on to the command.
pub(super) struct Signals(Vec<(Signal, unix::Signal)>);

/// Runs a command until it ends, or until the lock is lost. Then it gets SIGTERM, and SIGKILL after `grace`.
///
/// # Errors
/// Fails if the command can't be started.
pub(super) async fn run(command: &[OsString], held: &Grant, grace: Duration, signals: &mut Signals) -> io::Result<End> {
    let (program, arguments) = command.split_first().ok_or(io::ErrorKind::InvalidInput)?;
    // The terminal signals the whole group of the process in the foreground. Elsewhere, a group of its own lets signals
    // reach all processes that the command has started.
    let shares_terminal = stdin().is_terminal();
    let mut command = Command::new(program);
    command.args(arguments).env("IFMATCH_FENCE", held.fence().to_string()).env("IFMATCH_LEASE_ID", held.id());
    if !shares_terminal {
        command.process_group(0);
    }
    let mut child = command.spawn()?;
    let target = Target { pid: pid(&child), is_group: !shares_terminal };
    loop {
        tokio::select! {
            // The loss comes first: after a pause of this process, the command may have ended while another holder ran.
            biased;
            () = held.lost() => {
                target.send(Signal::TERM);
                let has_ended = timeout(grace, child.wait()).await.is_ok();
                // Processes that it has started may still work.
                if target.is_group || !has_ended {
                    target.send(Signal::KILL);
                }
                child.wait().await?;
                return Ok(End::Lost);
            }
            status = child.wait() => return Ok(if held.is_lost() { End::Lost } else { End::Exited(code(status?)) }),
            Received(signal) = signals.next() => {
                if !(shares_terminal && matches!(signal, Signal::INT | Signal::QUIT)) {
                    target.send(signal);
                }
            }
        }
    }
}

/// The process of a command, or its group.
#[derive(Clone, Copy)]
struct Target {
    pid: Option<Pid>,
    is_group: bool,
}

impl Target {
    fn send(self, signal: Signal) {
        let Some(pid) = self.pid else { return };
        // An error means that it has ended.
        let _ = if self.is_group { kill_process_group(pid, signal) } else { kill_process(pid, signal) };
    }
}

fn pid(child: &Child) -> Option<Pid> {
    Pid::from_raw(i32::try_from(child.id()?).ok()?)
}

/// Returns the exit code of a process, as shells do.
fn code(status: ExitStatus) -> u8 {
    let code = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or_default());
    u8::try_from(code).unwrap_or(u8::MAX)
}

impl Signals {
    /// Handles the signals, which no longer end this process by themselves.
    ///
    /// # Errors
    /// Fails if the system refuses.
    pub(super) fn listen() -> Result<Self, Error> {
        let kinds = [
            (Signal::TERM, SignalKind::terminate()),
            (Signal::INT, SignalKind::interrupt()),
            (Signal::HUP, SignalKind::hangup()),
            (Signal::QUIT, SignalKind::quit()),
            (Signal::USR1, SignalKind::user_defined1()),
            (Signal::USR2, SignalKind::user_defined2()),
        ];
        let listen = |(name, kind)| signal(kind).map(|stream| (name, stream));
        let streams: io::Result<Vec<_>> = kinds.into_iter().map(listen).collect();
        streams.map(Self).map_err(|error| Error::runtime(format!("can't handle signals: {error}")))
    }

    /// Waits for the next signal.
    pub(super) async fn next(&mut self) -> Received {
        let each = self.0.iter_mut().map(|(name, stream)| {
            Box::pin(async move {
                stream.recv().await;
                Received(*name)
            })
        });
        select_all(each).await.0
    }
}

impl Received {
    /// Returns the exit code of a process that the signal has ended.
    pub(super) fn exit_code(self) -> u8 {
        u8::try_from(128 + self.0.as_raw()).unwrap_or(u8::MAX)
    }
}
