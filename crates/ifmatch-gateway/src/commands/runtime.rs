//! The run of a server: its log and threads, the signals that reload and stop it, and messages to the service manager.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use ifmatch_gateway_commands::platform::{self, AskedSignal, StopSignals};
use ifmatch_gateway_commands::runtime::runtime;
use ifmatch_gateway_config::ServerConfig;
use ifmatch_gateway_config::error::Error;
use ifmatch_gateway_service::state::AppState;
use ifmatch_http_server::Server;
use tokio::time::sleep;
use tracing::{error, info, warn};

use super::log;

/// Time for pending file operations to finish after the last request.
const FILE_GRACE: Duration = Duration::from_secs(2);
/// Interval at which recorded durations are folded into their buckets.
const METRICS_UPKEEP: Duration = Duration::from_secs(5);

/// Starts the log and the threads, and runs a server until a signal stops it.
///
/// # Errors
/// Fails if the server can't start, or had to cut off requests in flight.
pub(crate) fn run(
    config: &ServerConfig,
    serving: impl Future<Output = Result<GatewayEnd, Error>>,
) -> Result<(), Error> {
    log::start(&config.settings)?;
    let runtime = runtime()?;
    let end = runtime.block_on(serving);
    runtime.shutdown_timeout(FILE_GRACE);
    match end? {
        GatewayEnd::Graceful => Ok(()),
        GatewayEnd::Forced => Err(Error::runtime(
            "stopped before all requests in flight were complete",
        )),
    }
}

/// The signals that stop the gateway, and the one that reloads its configuration.
pub(crate) struct ServerSignals {
    reload: AskedSignal,
    stop: StopSignals,
}

/// How a server has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GatewayEnd {
    /// All requests in flight were completed.
    Graceful,
    /// Some were cut off, after the grace period or by a second signal.
    Forced,
}

impl ServerSignals {
    /// Handles the signals, which no longer end the process by themselves.
    ///
    /// # Errors
    /// Fails if the system refuses.
    pub(crate) fn listen() -> Result<Self, Error> {
        let failed = |error| Error::runtime(format!("can't handle signals: {error}"));
        Ok(Self {
            reload: AskedSignal::to_reload().map_err(failed)?,
            stop: StopSignals::listen().map_err(failed)?,
        })
    }

    /// Waits for a step of the start, such as the connection to a register, which may not respond. Returns `None` if a signal stops
    /// the gateway first.
    pub(crate) async fn unless_stopped<T>(
        &mut self,
        step: impl Future<Output = Result<T, Error>>,
    ) -> Result<Option<T>, Error> {
        tokio::select! {
            result = step => result.map(Some),
            signal = self.stop.next() => {
                info!(signal, "stopped before the start was complete");
                Ok(None)
            }
        }
    }

    /// Waits for the next signal that stops the gateway, and returns its name. Until then, calls `reload` for each signal that
    /// asks for it.
    async fn next(&mut self, mut reload: impl FnMut()) -> &'static str {
        loop {
            tokio::select! {
                () = self.reload.next() => reload(),
                signal = self.stop.next() => return signal,
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
    mut signals: ServerSignals,
    reload: impl Fn() -> Result<(), Error>,
) -> GatewayEnd {
    let upkeep = tokio::spawn(upkeep(Arc::clone(state)));
    let reload = || {
        platform::tell_reloading();
        let result = log::reopen_access().and_then(|()| reload());
        tell_reloaded(&result);
        match result {
            Ok(()) => info!("reloaded the configuration"),
            Err(error) => {
                error!(%error, "cannot reload the configuration: the previous one stays in use");
            }
        }
    };
    platform::tell_ready();
    let signal = signals.next(reload).await;
    info!(signal, grace = ?config.settings.shutdown_grace.duration(), "stopping once the requests in flight are complete. A second signal stops immediately");
    platform::tell_stopping();
    state.stop();
    let stopped = async {
        server.drain();
        sleep(config.settings.shutdown_delay.duration()).await;
        server
            .shut_down(config.settings.shutdown_grace.duration())
            .await;
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
            GatewayEnd::Graceful
        }
        connections => {
            warn!(connections, "stopped with open connections");
            GatewayEnd::Forced
        }
    }
}

/// Keeps the metrics small, until the task is aborted.
async fn upkeep(state: Arc<AppState>) {
    loop {
        sleep(METRICS_UPKEEP).await;
        state.metrics.upkeep();
    }
}

/// Tells the service manager that a reload has ended.
fn tell_reloaded(result: &Result<(), Error>) {
    platform::tell_reloaded(&match result {
        Ok(()) => "serving".to_owned(),
        // A message has a line for each of its fields.
        Err(error) => format!(
            "serving; the last reload failed: {}",
            error.to_string().replace('\n', " ")
        ),
    });
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use super::*;

    #[tokio::test]
    async fn a_signal_ends_a_step_of_the_start() {
        let mut signals = ServerSignals::listen().unwrap();
        let done = signals.unless_stopped(ready(Ok(7))).await.unwrap();
        assert_eq!(done, Some(7));
        support::kill("TERM", &std::process::id().to_string());
        let step = pending::<Result<(), Error>>();
        assert!(signals.unless_stopped(step).await.unwrap().is_none());
    }
}
