//! A connection that opens again after failures.

use std::future::Future;
use std::time::Duration;

use ifmatch_runtime::{Clock, SystemClock, task};
use tokio::sync::oneshot::{self, error::TryRecvError};

use crate::register::{RegisterError, RegisterErrorKind};

/// Number of failures in a row after which calls fail at once.
const FAILURES: u32 = 3;
/// Mean interval between attempts to connect while calls fail at once, in milliseconds.
const PROBE_INTERVAL: u64 = 250;

/// A connection that opens when needed. After three failures in a row, calls fail at once, and a task tries to connect
/// every 250 ms until it succeeds.
///
/// [`take`](Self::take) the connection before a call, and [`keep`](Self::keep) it after an answer. A call that fails, or
/// is dropped halfway, does not keep it; the next one gets another.
///
/// ```
/// use ifmatch_register::lanes::Reconnecting;
/// use ifmatch_register::RegisterError;
///
/// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
/// let mut connection = Reconnecting::default();
/// let connect = || async { Ok::<_, RegisterError>("a connection") };
/// let taken = connection.take(connect).await?;
/// connection.keep(taken);
/// # Ok::<(), RegisterError>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Reconnecting<C> {
    open: Option<C>,
    /// Number of times that the connection was taken and not kept.
    failures: u32,
    last_error: Option<RegisterError>,
    probe: Option<oneshot::Receiver<C>>,
}

impl<C> Default for Reconnecting<C> {
    fn default() -> Self {
        Self { open: None, failures: 0, last_error: None, probe: None }
    }
}

impl<C: Send + 'static> Reconnecting<C> {
    /// Takes the connection, opening it if necessary.
    ///
    /// # Errors
    /// The error of `connect`: of this attempt, or of the last one if calls fail at once.
    pub async fn take<F, E>(&mut self, connect: impl Fn() -> F + Send + 'static) -> Result<C, RegisterError>
    where
        F: Future<Output = Result<C, E>> + Send + 'static,
        E: Into<RegisterError> + 'static,
    {
        if let Some(open) = self.open.take() {
            self.failures += 1;
            return Ok(open);
        }
        if self.failures >= FAILURES && self.probe.is_none() {
            let (answer, probe) = oneshot::channel();
            drop(task::detach(self::probe(connect, answer)));
            self.probe = Some(probe);
            return Err(self.error());
        }
        let opened = match &mut self.probe {
            Some(probe) => {
                let opened = probe.try_recv();
                // A probe that ended without a connection is started again by the next call.
                self.probe = self.probe.take().filter(|_| matches!(opened, Err(TryRecvError::Empty)));
                opened.map_err(|_| self.error())
            }
            None => connect().await.map_err(Into::into),
        };
        match opened {
            Ok(open) => {
                // A call that fails on a new connection begins to count again.
                self.failures = if self.failures >= FAILURES { 1 } else { self.failures + 1 };
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
    pub fn keep(&mut self, open: C) {
        self.open = Some(open);
        self.failures = 0;
        self.last_error = None;
    }

    fn error(&self) -> RegisterError {
        let unknown = || RegisterError::new(RegisterErrorKind::Unavailable, "the server does not answer");
        self.last_error.as_ref().map_or_else(unknown, RegisterError::duplicate)
    }
}

/// Tries to connect until it succeeds, or until there are no calls any more.
async fn probe<C, F, E>(connect: impl Fn() -> F, answer: oneshot::Sender<C>)
where
    F: Future<Output = Result<C, E>>,
{
    while !answer.is_closed() {
        // From half of the interval to one and a half, so that processes do not probe at the same time.
        let jitter = ifmatch_runtime::nonce().unwrap_or_default() % PROBE_INTERVAL;
        SystemClock.sleep(Duration::from_millis(PROBE_INTERVAL / 2 + jitter)).await;
        if let Ok(open) = connect().await {
            // There may be no calls any more.
            let _ = answer.send(open);
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    /// A server that is up from some attempt on.
    #[derive(Clone, Default)]
    struct Server {
        attempts: Arc<AtomicU32>,
        up_from: u32,
    }

    impl Server {
        fn connect(&self) -> impl Fn() -> std::future::Ready<Result<u32, RegisterError>> + Send + 'static {
            let server = self.clone();
            move || {
                let attempt = server.attempts.fetch_add(1, Ordering::SeqCst) + 1;
                let down = || RegisterError::new(RegisterErrorKind::Unavailable, format!("attempt {attempt}"));
                std::future::ready(if attempt >= server.up_from { Ok(attempt) } else { Err(down()) })
            }
        }

        fn attempts(&self) -> u32 {
            self.attempts.load(Ordering::SeqCst)
        }
    }

    #[tokio::test(start_paused = true)]
    async fn calls_fail_at_once_after_three_failures_until_a_probe_succeeds() {
        let (server, mut connection) = (Server { up_from: 6, ..Server::default() }, Reconnecting::default());
        for attempt in 1..=3 {
            connection.take(server.connect()).await.expect_err("it is down");
            assert_eq!(server.attempts(), attempt);
        }
        for _ in 0..10 {
            let error = connection.take(server.connect()).await.expect_err("it is probed");
            assert!(error.to_string().contains("attempt 3"), "the cause is still known: {error}");
        }
        assert_eq!(server.attempts(), 3, "calls do not connect");
        let open = loop {
            match connection.take(server.connect()).await {
                Ok(open) => break open,
                Err(_) => tokio::time::sleep(Duration::from_millis(1)).await,
            }
        };
        assert_eq!(open, 6);
        connection.keep(open);
        assert_eq!(connection.take(server.connect()).await.expect("it is kept"), 6);
    }

    #[tokio::test(start_paused = true)]
    async fn calls_that_do_not_keep_the_connection_count_as_failures() {
        let (server, mut connection) = (Server::default(), Reconnecting::default());
        for attempt in 1..=3 {
            assert_eq!(connection.take(server.connect()).await.expect("it is up"), attempt);
        }
        connection.take(server.connect()).await.expect_err("none of them was answered");
        tokio::time::sleep(Duration::from_secs(1)).await;
        let open = connection.take(server.connect()).await.expect("the probe has connected");
        connection.keep(open);
        for _ in 0..10 {
            let open = connection.take(server.connect()).await.expect("it works");
            connection.keep(open);
        }
        assert_eq!(server.attempts(), 4);
    }

    #[tokio::test(start_paused = true)]
    async fn a_probe_ends_with_its_connection() {
        let (server, mut connection) = (Server { up_from: u32::MAX, ..Server::default() }, Reconnecting::default());
        for _ in 0..4 {
            connection.take(server.connect()).await.expect_err("it is down");
        }
        tokio::time::sleep(Duration::from_secs(5)).await;
        assert!(server.attempts() > 10, "{} attempts", server.attempts());
        drop(connection);
        tokio::time::sleep(Duration::from_secs(1)).await;
        let attempts = server.attempts();
        tokio::time::sleep(Duration::from_secs(5)).await;
        assert_eq!(server.attempts(), attempts);
    }
}
