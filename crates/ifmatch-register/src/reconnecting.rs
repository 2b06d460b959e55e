//! A connection that opens again after failures.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use ifmatch_runtime::{Clock, SystemClock, task};
use tokio::sync::oneshot::{self, error::TryRecvError};

use crate::register::{RegisterError, RegisterErrorKind};

/// Number of failures in a row after which calls fail at once.
const FAILURES: u32 = 3;
/// Mean interval between attempts to connect while calls fail at once, in milliseconds.
const PROBE_INTERVAL: u64 = 250;

/// A server that can be connected to.
pub trait Connect: Send + Sync + 'static {
    /// A connection.
    type Connection: Send + 'static;
    /// The reason why connecting failed.
    type Error: Into<RegisterError>;

    /// Connects, or fails within a time limit.
    fn connect(&self) -> impl Future<Output = Result<Self::Connection, Self::Error>> + Send;

    /// Returns `true` if a connection has ended. Connections often end while they are idle: the server, or a firewall
    /// on the way, closes them. Returns `false` if that can't be known.
    fn has_ended(&self, connection: &Self::Connection) -> bool;
}

/// A connection that opens when needed. After three failures in a row, calls fail at once, and a task tries to connect
/// about every 250 ms until it succeeds.
///
/// [`take`](Self::take) the connection before a call, and [`keep`](Self::keep) it after a response. A call that fails,
/// or is dropped halfway, doesn't keep it, and the next call gets a new one. A kept connection that has ended since is
/// replaced, which doesn't count as a failure.
///
/// ```
/// use std::sync::Arc;
/// use ifmatch_register::lanes::{Connect, Reconnecting};
/// use ifmatch_register::RegisterError;
///
/// struct Server;
///
/// impl Connect for Server {
///     type Connection = &'static str;
///     type Error = RegisterError;
///
///     async fn connect(&self) -> Result<&'static str, RegisterError> {
///         Ok("a connection")
///     }
///
///     fn has_ended(&self, _connection: &&'static str) -> bool {
///         false
///     }
/// }
///
/// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
/// let mut connection = Reconnecting::new(Arc::new(Server));
/// let taken = connection.take().await?;
/// connection.keep(taken);
/// # Ok::<(), RegisterError>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Reconnecting<S: Connect> {
    server: Arc<S>,
    open: Option<S::Connection>,
    /// Number of times that the connection was taken and not kept.
    failures: u32,
    last_error: Option<RegisterError>,
    probe: Option<oneshot::Receiver<S::Connection>>,
}

impl<S: Connect> Reconnecting<S> {
    /// Creates a connection that opens at its first use.
    pub fn new(server: Arc<S>) -> Self {
        Self {
            server,
            open: None,
            failures: 0,
            last_error: None,
            probe: None,
        }
    }

    /// Returns the server.
    pub fn server(&self) -> &Arc<S> {
        &self.server
    }

    /// Takes the connection, opening it if necessary.
    ///
    /// # Errors
    /// The error of [`Connect::connect`]: of this attempt, or of the last one if calls fail at once.
    pub async fn take(&mut self) -> Result<S::Connection, RegisterError> {
        if let Some(open) = self.open.take().filter(|open| !self.server.has_ended(open)) {
            self.failures += 1;
            return Ok(open);
        }
        if self.failures >= FAILURES && self.probe.is_none() {
            let (answer, probe) = oneshot::channel();
            drop(task::detach(self::probe(Arc::clone(&self.server), answer)));
            self.probe = Some(probe);
            return Err(self.error());
        }
        let probed = self.probe.as_mut().map(oneshot::Receiver::try_recv);
        if let Some(Err(TryRecvError::Empty)) = probed {
            return Err(self.error());
        }
        self.probe = None;
        let opened = match probed {
            Some(Ok(open)) if !self.server.has_ended(&open) => Ok(open),
            // The next call starts another probe.
            Some(Err(_)) => Err(self.error()),
            Some(Ok(_)) | None => self.server.connect().await.map_err(Into::into),
        };
        match opened {
            Ok(open) => {
                // A call that fails on a new connection begins to count again.
                self.failures = if self.failures >= FAILURES {
                    1
                } else {
                    self.failures + 1
                };
                Ok(open)
            }
            Err(error) => {
                self.failures = self.failures.saturating_add(1);
                self.last_error = Some(error.duplicate());
                Err(error)
            }
        }
    }

    /// Keeps the connection for the next call.
    pub fn keep(&mut self, open: S::Connection) {
        self.open = Some(open);
        self.failures = 0;
        self.last_error = None;
    }

    fn error(&self) -> RegisterError {
        let unknown = || {
            RegisterError::new(
                RegisterErrorKind::Unavailable,
                "the register's server doesn't respond. Check that it is running.",
            )
        };
        self.last_error
            .as_ref()
            .map_or_else(unknown, RegisterError::duplicate)
    }
}

/// Tries to connect until it succeeds, or until no call waits.
async fn probe<S: Connect>(server: Arc<S>, answer: oneshot::Sender<S::Connection>) {
    while !answer.is_closed() {
        // From half of the interval to one and a half, so processes don't probe at the same time.
        let jitter = ifmatch_runtime::nonce().unwrap_or_default() % PROBE_INTERVAL;
        SystemClock
            .sleep(Duration::from_millis(PROBE_INTERVAL / 2 + jitter))
            .await;
        if let Ok(open) = server.connect().await {
            // There may be no calls any more.
            let _ = answer.send(open);
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    /// A server that is up from some attempt on. Its connections are the numbers of the attempts.
    #[derive(Default)]
    struct Server {
        attempts: AtomicU32,
        up_from: u32,
        /// Connections up to this one have ended.
        ended: AtomicU32,
    }

    impl Connect for Server {
        type Connection = u32;
        type Error = RegisterError;

        async fn connect(&self) -> Result<u32, RegisterError> {
            let attempt = self.attempts.fetch_add(1, Ordering::SeqCst) + 1;
            let down =
                || RegisterError::new(RegisterErrorKind::Unavailable, format!("attempt {attempt}"));
            if attempt >= self.up_from {
                Ok(attempt)
            } else {
                Err(down())
            }
        }

        fn has_ended(&self, connection: &u32) -> bool {
            *connection <= self.ended.load(Ordering::SeqCst)
        }
    }

    fn start(up_from: u32) -> Reconnecting<Server> {
        Reconnecting::new(Arc::new(Server {
            up_from,
            ..Server::default()
        }))
    }

    fn attempts(connection: &Reconnecting<Server>) -> u32 {
        connection.server().attempts.load(Ordering::SeqCst)
    }

    #[tokio::test(start_paused = true)]
    async fn calls_fail_at_once_after_three_failures_until_a_probe_succeeds() {
        let mut connection = start(6);
        for attempt in 1..=3 {
            connection.take().await.expect_err("it is down");
            assert_eq!(attempts(&connection), attempt);
        }
        for _ in 0..10 {
            let error = connection.take().await.expect_err("it is probed");
            assert!(
                error.to_string().contains("attempt 3"),
                "the cause is still known: {error}"
            );
        }
        assert_eq!(attempts(&connection), 3, "calls do not connect");
        let open = loop {
            match connection.take().await {
                Ok(open) => break open,
                Err(_) => tokio::time::sleep(Duration::from_millis(1)).await,
            }
        };
        assert_eq!(open, 6);
        connection.keep(open);
        assert_eq!(connection.take().await.expect("it is kept"), 6);
    }

    #[tokio::test(start_paused = true)]
    async fn calls_that_do_not_keep_the_connection_count_as_failures() {
        let mut connection = start(0);
        for attempt in 1..=3 {
            assert_eq!(connection.take().await.expect("it is up"), attempt);
        }
        connection
            .take()
            .await
            .expect_err("none of them was answered");
        tokio::time::sleep(Duration::from_secs(1)).await;
        let open = connection.take().await.expect("the probe has connected");
        connection.keep(open);
        for _ in 0..10 {
            let open = connection.take().await.expect("it works");
            connection.keep(open);
        }
        assert_eq!(attempts(&connection), 4);
    }

    /// No call fails, and none waits for a probe.
    #[tokio::test(start_paused = true)]
    async fn connections_that_ended_while_idle_are_replaced() {
        let mut connection = start(0);
        for attempt in 1..=10 {
            let open = connection.take().await.expect("it is up");
            assert_eq!(open, attempt);
            connection.keep(open);
            connection.server().ended.store(attempt, Ordering::SeqCst);
        }
    }

    /// The server responds again, and ends the probe's connection before there is a call.
    #[tokio::test(start_paused = true)]
    async fn a_probes_connection_that_has_ended_is_replaced() {
        let mut connection = start(5);
        for _ in 0..4 {
            connection.take().await.expect_err("it is down");
        }
        tokio::time::sleep(Duration::from_secs(5)).await;
        assert_eq!(attempts(&connection), 5, "the probe has connected");
        connection.server().ended.store(5, Ordering::SeqCst);
        assert_eq!(connection.take().await.expect("it is up"), 6);
    }

    #[tokio::test(start_paused = true)]
    async fn a_probe_ends_with_its_connection() {
        let mut connection = start(u32::MAX);
        for _ in 0..4 {
            connection.take().await.expect_err("it is down");
        }
        tokio::time::sleep(Duration::from_secs(5)).await;
        assert!(
            attempts(&connection) > 10,
            "{} attempts",
            attempts(&connection)
        );
        let server = Arc::clone(connection.server());
        drop(connection);
        tokio::time::sleep(Duration::from_secs(1)).await;
        let attempts = server.attempts.load(Ordering::SeqCst);
        tokio::time::sleep(Duration::from_secs(5)).await;
        assert_eq!(server.attempts.load(Ordering::SeqCst), attempts);
    }
}
