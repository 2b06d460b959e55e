//! Messages to the service manager, such as systemd with `Type=notify`. Without `NOTIFY_SOCKET`, they are not sent.

use sd_notify::{NotifyState, notify};

use crate::error::Error;

/// Tells that the server listens.
pub(crate) fn ready() {
    send(&[NotifyState::Ready, NotifyState::Status("serving")]);
}

/// Tells that a reload has begun.
pub(crate) fn reloading() {
    match NotifyState::monotonic_usec_now() {
        Ok(now) => send(&[NotifyState::Reloading, now]),
        Err(error) => tracing::warn!(%error, "cannot read the time for the service manager"),
    }
}

/// Tells that a reload has ended. The server is ready again, whether or not it succeeded.
pub(crate) fn reloaded(result: &Result<(), Error>) {
    let status = match result {
        Ok(()) => "serving".to_owned(),
        // A message has a line for each of its fields.
        Err(error) => format!("serving; the last reload failed: {}", error.to_string().replace('\n', " ")),
    };
    send(&[NotifyState::Ready, NotifyState::Status(&status)]);
}

/// Tells that the server completes its last requests.
pub(crate) fn stopping() {
    send(&[NotifyState::Stopping]);
}

fn send(states: &[NotifyState<'_>]) {
    if let Err(error) = notify(states) {
        tracing::warn!(%error, "cannot reach the service manager at NOTIFY_SOCKET");
    }
}
