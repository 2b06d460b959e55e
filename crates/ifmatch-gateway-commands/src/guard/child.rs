//! A command that runs while a lock is held, until it ends or the lock is lost.

use std::ffi::OsString;
use std::io;
use std::time::Duration;

use ifmatch_client::Grant;
use tokio::process::Command;

use crate::platform::{ForwardedSignals, RunningCommand, code};

/// The end of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CommandEnd {
    /// It ended on its own, or by a signal from elsewhere.
    Exited(u8),
    /// The lock was lost, and the command was ended.
    Lost,
}

/// Runs a command until it ends, or until the lock is lost. Then it is [stopped](RunningCommand::stop).
///
/// # Errors
/// Fails if the command can't be started.
pub(super) async fn run(
    command: &[OsString],
    held: &Grant,
    grace: Duration,
    signals: &mut ForwardedSignals,
) -> io::Result<CommandEnd> {
    let (program, arguments) = command.split_first().ok_or(io::ErrorKind::InvalidInput)?;
    let mut command = Command::new(program);
    command
        .args(arguments)
        .env("IFMATCH_FENCE", held.fence().to_string())
        .env("IFMATCH_LEASE_ID", held.id());
    let mut running = RunningCommand::spawn(command)?;
    loop {
        tokio::select! {
            // The loss comes first: after a pause of this process, the command may have ended while another holder ran.
            biased;
            () = held.lost() => return running.stop(grace).await.map(|()| CommandEnd::Lost),
            status = running.wait() => return Ok(if held.is_lost() { CommandEnd::Lost } else { CommandEnd::Exited(code(status?)) }),
            received = signals.next() => running.pass(received),
        }
    }
}
