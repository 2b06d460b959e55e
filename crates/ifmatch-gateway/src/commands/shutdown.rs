//! Signals: the shutdown that they start, and the reload of the configuration.

use std::sync::Arc;
use std::time::Duration;

use ifmatch_http_server::Server;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::sleep;
use tracing::{error, info, warn};

use super::{access_file, service_manager};
use crate::config::ServerConfig;
use crate::error::Error;
use crate::gateway::state::AppState;

/// Interval at which recorded durations are folded into their buckets.
const METRICS_UPKEEP: Duration = Duration::from_secs(5);

/// The signals that stop the gateway, SIGINT (Ctrl-C) and SIGTERM, and SIGHUP, which reloads its configuration.
pub(crate) struct Signals {
    hangup: Signal,
    interrupt: Signal,
    terminate: Signal,
}

/// The end of a gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// All requests in flight were completed.
    Graceful,
    /// Some were cut off, after the grace period or by a second signal.
    Forced,
}

impl Signals {
    /// Handles the signals, which no longer end the process by themselves.
    ///
    /// # Errors
    /// Fails if the system refuses.
    pub(crate) fn listen() -> Result<Self, Error> {
        let listen = |kind| signal(kind).map_err(|error| Error::runtime(format!("cannot handle signals: {error}")));
        Ok(Self {
            hangup: listen(SignalKind::hangup())?,
            interrupt: listen(SignalKind::interrupt())?,
            terminate: listen(SignalKind::terminate())?,
        })
    }

    /// Waits for the next signal that stops the gateway, and returns its name. Calls `reload` for each SIGHUP until
    /// then.
    async fn next(&mut self, mut reload: impl FnMut()) -> &'static str {
        loop {
            tokio::select! {
                _ = self.hangup.recv() => reload(),
                _ = self.interrupt.recv() => return "SIGINT",
                _ = self.terminate.recv() => return "SIGTERM",
            }
        }
    }
}

/// Serves until a signal arrives, then completes the requests in flight. A second signal ends it immediately. If
/// `reload` fails, it must have changed nothing.
pub(crate) async fn serve_until_stopped(
    mut server: Server,
    state: &Arc<AppState>,
    config: &ServerConfig,
    mut signals: Signals,
    reload: impl Fn() -> Result<(), Error>,
) -> End {
    let upkeep = tokio::spawn(upkeep(Arc::clone(state)));
    let reload = || {
        service_manager::reloading();
        let result = access_file::reopen().and_then(|()| reload());
        service_manager::reloaded(&result);
        match result {
            Ok(()) => info!("reloaded the configuration"),
            Err(error) => error!(%error, "cannot reload the configuration: the previous one stays in use"),
        }
    };
    service_manager::ready();
    let signal = signals.next(reload).await;
    info!(signal, grace = ?config.shutdown_grace, "stopping: requests in flight may finish, a second signal stops immediately");
    service_manager::stopping();
    state.stop();
    let stopped = async {
        server.drain();
        sleep(config.shutdown_delay).await;
        server.shut_down(config.shutdown_grace).await;
    };
    tokio::select! {
        () = stopped => {}
        _ = signals.next(|| ()) => server.close_ports().await,
    }
    upkeep.abort();
    if let Some(traces) = &state.traces {
        traces.stop().await;
    }
    match server.connections() {
        0 => {
            info!("stopped");
            End::Graceful
        }
        connections => {
            warn!(connections, "stopped with open connections");
            End::Forced
        }
    }
}

async fn upkeep(state: Arc<AppState>) {
    loop {
        sleep(METRICS_UPKEEP).await;
        state.metrics.upkeep();
    }
}
