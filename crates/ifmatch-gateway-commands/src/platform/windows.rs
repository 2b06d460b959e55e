//! Windows: console events, job objects, and no service manager.

use std::fs::{File, Metadata, OpenOptions, TryLockError};
use std::future::pending;
use std::io;
use std::net::SocketAddr;
use std::os::windows::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::process::ExitStatus;
use std::time::Duration;

use process_wrap::tokio::{ChildWrapper, CommandWrap, JobObject, KillOnDrop};
use rustix::net::sockopt::set_ipv6_v6only;
use tokio::net::TcpSocket;
use tokio::process::Command;
use tokio::signal::windows::{
    CtrlBreak, CtrlC, CtrlClose, CtrlLogoff, CtrlShutdown, ctrl_break, ctrl_c, ctrl_close,
    ctrl_logoff, ctrl_shutdown,
};

/// The console events that stop a process. They no longer end it on their own, but after those of the session's end,
/// the system does so within seconds.
pub struct StopSignals {
    interrupt: CtrlC,
    interrupt_too: CtrlBreak,
    close: CtrlClose,
    logoff: CtrlLogoff,
    shutdown: CtrlShutdown,
}

impl StopSignals {
    /// Handles the events.
    pub fn listen() -> io::Result<Self> {
        Ok(Self {
            interrupt: ctrl_c()?,
            interrupt_too: ctrl_break()?,
            close: ctrl_close()?,
            logoff: ctrl_logoff()?,
            shutdown: ctrl_shutdown()?,
        })
    }

    /// Waits for the next event, and returns its name.
    pub async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.interrupt.recv() => CTRL_C,
            _ = self.interrupt_too.recv() => "Ctrl-Break",
            _ = self.close.recv() => "close",
            _ = self.logoff.recv() => "logoff",
            _ = self.shutdown.recv() => "shutdown",
        }
    }
}

/// The name of the event that stands for SIGINT.
const CTRL_C: &str = "Ctrl-C";

/// A request that no event of Windows stands for: nothing reloads a configuration or prints a progress.
pub struct AskedSignal(());

impl AskedSignal {
    /// Handles nothing.
    pub fn to_reload() -> io::Result<Self> {
        Ok(Self(()))
    }

    /// Handles nothing.
    pub fn to_report() -> io::Result<Self> {
        Ok(Self(()))
    }

    /// Waits forever.
    pub async fn next(&mut self) {
        pending().await
    }
}

/// The console events that end the wait for a lock. A command in the same console gets them as well.
pub struct ForwardedSignals(StopSignals);

/// A console event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReceivedSignal(&'static str);

impl ForwardedSignals {
    /// Handles the events.
    pub fn listen() -> io::Result<Self> {
        StopSignals::listen().map(Self)
    }

    /// Waits for the next event.
    pub async fn next(&mut self) -> ReceivedSignal {
        ReceivedSignal(self.0.next().await)
    }
}

impl ReceivedSignal {
    /// Returns the exit code of a process that the event has ended: the one for SIGINT or SIGTERM.
    pub fn exit_code(self) -> u8 {
        if self.0 == CTRL_C { 130 } else { 143 }
    }
}

/// A running command, with all processes that it starts. They end with this process.
pub struct RunningCommand(Box<dyn ChildWrapper>);

impl RunningCommand {
    /// Starts a command.
    pub fn spawn(command: Command) -> io::Result<Self> {
        CommandWrap::from(command)
            .wrap(KillOnDrop)
            .wrap(JobObject)
            .spawn()
            .map(Self)
    }

    /// Waits until the command ends, but not for processes that it has started.
    pub async fn wait(&mut self) -> io::Result<ExitStatus> {
        self.0.inner_mut().wait().await
    }

    /// Does nothing: the console sends the event to the command, too.
    pub fn pass(&self, _: ReceivedSignal) {}

    /// Ends the command, with all processes that it has started. They get no warning: Windows has none for programs without a
    /// console.
    pub async fn stop(&mut self, _grace: Duration) -> io::Result<()> {
        self.0.start_kill()?;
        self.wait().await.map(drop)
    }
}

/// Returns the exit code of a process. Those above 255, such as an exception's, become 255.
pub fn code(status: ExitStatus) -> u8 {
    status
        .code()
        .and_then(|code| u8::try_from(code).ok())
        .unwrap_or(u8::MAX)
}

/// Tells nobody.
pub fn tell_ready() {}

/// Tells nobody.
pub fn tell_reloading() {}

/// Tells nobody.
pub fn tell_reloaded(_: &str) {}

/// Tells nobody.
pub fn tell_stopping() {}

/// There is no service manager that passes sockets.
pub fn is_listening(_: &std::net::TcpListener) -> io::Result<bool> {
    Ok(true)
}

/// Prepares a socket before it is bound. Here, `SO_REUSEADDR` would let two servers share a port, and a restart needs no such option;
/// and `[::]` includes the addresses of IPv4 only if told to.
pub fn prepare(socket: &TcpSocket, address: SocketAddr, only_ipv6: bool) -> io::Result<()> {
    if address.is_ipv6() {
        Ok(set_ipv6_v6only(socket, only_ipv6)?)
    } else {
        Ok(())
    }
}

/// Leaves a new file to the access rights of its folder.
pub fn group_readable(options: &mut OpenOptions) -> &mut OpenOptions {
    options
}

/// Locks a folder until the file is closed. A folder has no locks here, so the lock is a file that no other process can open. The
/// system removes it when it is closed, also after a crash.
pub fn lock_folder(folder: &Path) -> Result<File, TryLockError> {
    const FILE_FLAG_DELETE_ON_CLOSE: u32 = 0x0400_0000;
    const ERROR_SHARING_VIOLATION: i32 = 32;

    let mut options = OpenOptions::new();
    options
        .write(true)
        .create(true)
        .truncate(false)
        .share_mode(0)
        .custom_flags(FILE_FLAG_DELETE_ON_CLOSE);
    options
        .open(folder.join(".ifmatch-lock"))
        .map_err(|error| match error.raw_os_error() {
            Some(ERROR_SHARING_VIOLATION) => TryLockError::WouldBlock,
            _ => TryLockError::Error(error),
        })
}

/// Returns the times of a file's creation and of its last change: two indexes of snapshots have different ones.
pub fn identity(file: &Metadata) -> (u64, u64) {
    (file.creation_time(), file.last_write_time())
}
