//! Unix: signals, process groups, systemd and modes of files.

use std::fs::{File, Metadata, OpenOptions, TryLockError};
use std::io::{self, IsTerminal, stdin};
use std::net::SocketAddr;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::ExitStatus;
use std::time::Duration;

use futures_util::future::select_all;
use rustix::net::sockopt::set_ipv6_v6only;
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use sd_notify::{NotifyState, notify};
use tokio::net::TcpSocket;
use tokio::process::{Child, Command};
use tokio::signal::unix::{self, SignalKind, signal};
use tokio::time::timeout;

/// The signals that stop a process: SIGINT (Ctrl-C) and SIGTERM. They no longer end it by themselves.
pub struct StopSignals {
    interrupt: unix::Signal,
    terminate: unix::Signal,
}

impl StopSignals {
    /// Handles the signals.
    pub fn listen() -> io::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
        })
    }

    /// Waits for the next signal, and returns its name.
    pub async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.interrupt.recv() => "SIGINT",
            _ = self.terminate.recv() => "SIGTERM",
        }
    }
}

/// A signal that asks for something and ends nothing.
pub struct AskedSignal(unix::Signal);

impl AskedSignal {
    /// Handles SIGHUP, which reloads the configuration.
    pub fn to_reload() -> io::Result<Self> {
        signal(SignalKind::hangup()).map(Self)
    }

    /// Handles SIGUSR1, which prints the progress.
    pub fn to_report() -> io::Result<Self> {
        signal(SignalKind::user_defined1()).map(Self)
    }

    /// Waits for the next signal.
    pub async fn next(&mut self) {
        self.0.recv().await;
    }
}

/// The signals that are passed on to a command.
pub struct ForwardedSignals(Vec<(Signal, unix::Signal)>);

/// A signal that this process got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReceivedSignal(Signal);

impl ForwardedSignals {
    /// Handles the signals, which no longer end this process by themselves.
    pub fn listen() -> io::Result<Self> {
        let kinds = [
            (Signal::TERM, SignalKind::terminate()),
            (Signal::INT, SignalKind::interrupt()),
            (Signal::HUP, SignalKind::hangup()),
            (Signal::QUIT, SignalKind::quit()),
            (Signal::USR1, SignalKind::user_defined1()),
            (Signal::USR2, SignalKind::user_defined2()),
        ];
        kinds
            .into_iter()
            .map(|(name, kind)| signal(kind).map(|stream| (name, stream)))
            .collect::<io::Result<_>>()
            .map(Self)
    }

    /// Waits for the next signal.
    pub async fn next(&mut self) -> ReceivedSignal {
        let each = self.0.iter_mut().map(|(name, stream)| {
            Box::pin(async move {
                stream.recv().await;
                ReceivedSignal(*name)
            })
        });
        select_all(each).await.0
    }
}

impl ReceivedSignal {
    /// Returns the exit code of a process that the signal has ended.
    pub fn exit_code(self) -> u8 {
        u8::try_from(128 + self.0.as_raw()).unwrap_or(u8::MAX)
    }
}

/// A running command.
pub struct RunningCommand {
    child: Child,
    /// Its process, which is also the group unless it shares the terminal.
    pid: Option<Pid>,
    /// The terminal signals the whole group of the process in the foreground. Elsewhere, a group of its own lets signals reach all
    /// processes that the command has started.
    shares_terminal: bool,
}

impl RunningCommand {
    /// Starts a command.
    pub fn spawn(mut command: Command) -> io::Result<Self> {
        let shares_terminal = stdin().is_terminal();
        if !shares_terminal {
            command.process_group(0);
        }
        let child = command.spawn()?;
        let pid = child
            .id()
            .and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
        Ok(Self {
            child,
            pid,
            shares_terminal,
        })
    }

    /// Waits until the command ends.
    pub async fn wait(&mut self) -> io::Result<ExitStatus> {
        self.child.wait().await
    }

    /// Passes a signal on.
    pub fn pass(&self, ReceivedSignal(signal): ReceivedSignal) {
        if !(self.shares_terminal && matches!(signal, Signal::INT | Signal::QUIT)) {
            self.send(signal);
        }
    }

    /// Stops the command with SIGTERM, and with SIGKILL after `grace`.
    pub async fn stop(&mut self, grace: Duration) -> io::Result<()> {
        self.send(Signal::TERM);
        let has_ended = timeout(grace, self.child.wait()).await.is_ok();
        // Processes that it has started may still work.
        if !self.shares_terminal || !has_ended {
            self.send(Signal::KILL);
        }
        self.child.wait().await.map(drop)
    }

    /// Sends a signal to the command, and to all processes of its group.
    fn send(&self, signal: Signal) {
        let Some(pid) = self.pid else { return };
        // An error means that it has ended.
        let _ = if self.shares_terminal {
            kill_process(pid, signal)
        } else {
            kill_process_group(pid, signal)
        };
    }
}

/// Returns the exit code of a process, as shells do.
pub fn code(status: ExitStatus) -> u8 {
    let code = status
        .code()
        .unwrap_or_else(|| 128 + status.signal().unwrap_or_default());
    u8::try_from(code).unwrap_or(u8::MAX)
}

/// Tells the service manager, such as systemd with `Type=notify`, that the server listens. Without `NOTIFY_SOCKET`, nothing is sent.
pub fn tell_ready() {
    send(&[NotifyState::Ready, NotifyState::Status("serving")]);
}

/// Tells that a reload has begun.
pub fn tell_reloading() {
    match NotifyState::monotonic_usec_now() {
        Ok(now) => send(&[NotifyState::Reloading, now]),
        Err(error) => tracing::warn!(%error, "cannot read the time for the service manager"),
    }
}

/// Tells that a reload has ended. The server is ready again, whether or not it succeeded.
pub fn tell_reloaded(status: &str) {
    send(&[NotifyState::Ready, NotifyState::Status(status)]);
}

/// Tells that the server completes its last requests.
pub fn tell_stopping() {
    send(&[NotifyState::Stopping]);
}

/// Sends states to the service manager, if there is one.
fn send(states: &[NotifyState<'_>]) {
    if let Err(error) = notify(states) {
        tracing::warn!(%error, "cannot reach the service manager at NOTIFY_SOCKET");
    }
}

/// Returns `true` for a socket that accepts connections: one that the service manager passes may be a connection.
#[cfg(not(target_vendor = "apple"))]
pub fn is_listening(socket: &std::net::TcpListener) -> io::Result<bool> {
    Ok(rustix::net::sockopt::socket_acceptconn(socket)?)
}

/// macOS has no service manager that passes sockets in this way, and doesn't tell.
#[cfg(target_vendor = "apple")]
pub fn is_listening(_: &std::net::TcpListener) -> io::Result<bool> {
    Ok(true)
}

/// Prepares a socket before it is bound: a server that restarts may bind its port at once.
pub fn prepare(socket: &TcpSocket, address: SocketAddr, only_ipv6: bool) -> io::Result<()> {
    if address.is_ipv6() && only_ipv6 {
        set_ipv6_v6only(socket, true)?;
    }
    socket.set_reuseaddr(true)
}

/// Makes a new file readable for the group, for programs that collect logs.
pub fn group_readable(options: &mut OpenOptions) -> &mut OpenOptions {
    options.mode(0o640)
}

/// Locks a folder until the file is closed.
pub fn lock_folder(folder: &Path) -> Result<File, TryLockError> {
    let file = File::open(folder).map_err(TryLockError::Error)?;
    file.try_lock().map(|()| file)
}

/// Returns what distinguishes a file from all others that exist at the same time.
pub fn identity(file: &Metadata) -> (u64, u64) {
    (file.dev(), file.ino())
}
