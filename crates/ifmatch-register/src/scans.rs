//! Scans on a connection of their own, page after page.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use ifmatch_core::record::Record;
use ifmatch_runtime::{SystemClock, task};
use tokio::sync::{Mutex, oneshot};

use crate::key::Key;
use crate::register::{RegisterError, RegisterErrorKind, Scan};

/// Lists pages of records, usually on a connection of its own.
pub trait Pages: Send + 'static {
    /// Lists the first records of a scan, at most `scan.limit`. A shorter page is the last one.
    fn page(
        &mut self,
        scan: &Scan<'_>,
    ) -> impl Future<Output = Result<Vec<(Key, Record)>, RegisterError>> + Send;
}

/// Carries out the scans of many tasks, one after another. If a caller goes away, its scan ends between two pages, and
/// the connection stays usable.
///
/// ```
/// use std::time::Duration;
/// use ifmatch_core::record::Record;
/// use ifmatch_register::lanes::{Pages, Scans};
/// use ifmatch_register::{Key, MemoryRegister, Register, RegisterError, Scan};
///
/// struct Connection(MemoryRegister);
///
/// impl Pages for Connection {
///     async fn page(&mut self, scan: &Scan<'_>) -> Result<Vec<(Key, Record)>, RegisterError> {
///         self.0.scan(scan).await
///     }
/// }
///
/// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
/// let scans = Scans::new(Connection(MemoryRegister::unbounded()), 256, Duration::from_secs(5));
/// assert_eq!(scans.scan(&Scan { limit: 1_000, ..Scan::default() }).await?, []);
/// # Ok::<(), RegisterError>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Scans<P> {
    pages: Arc<Mutex<P>>,
    /// Maximum number of records in a page.
    page: usize,
    /// Time limit of a scan.
    limit: Duration,
}

impl<P: Pages> Scans<P> {
    /// Creates a queue of scans, in pages of at most `page` records. `limit` is the time limit of a scan.
    pub fn new(pages: P, page: usize, limit: Duration) -> Self {
        Self {
            pages: Arc::new(Mutex::new(pages)),
            page,
            limit,
        }
    }

    /// Lists records as [`Register::scan`](crate::Register::scan) does.
    ///
    /// # Errors
    /// The page's error, or [`RegisterErrorKind::Unavailable`] after the time limit.
    pub async fn scan(&self, scan: &Scan<'_>) -> Result<Vec<(Key, Record)>, RegisterError> {
        let (answer, answered) = oneshot::channel();
        let (pages, page) = (Arc::clone(&self.pages), self.page);
        let (prefix, after, limit) = (
            scan.prefix.to_owned(),
            scan.after.map(ToOwned::to_owned),
            scan.limit,
        );
        // As a task, since a request that is dropped halfway would cost its connection.
        drop(task::detach(async move {
            let scan = Scan {
                prefix: &prefix,
                after: after.as_deref(),
                limit,
            };
            let found = all(&mut *pages.lock().await, &scan, page, || answer.is_closed()).await;
            // The caller may be gone.
            let _ = answer.send(found);
        }));
        let found = match task::timeout(&SystemClock, self.limit, answered).await {
            Ok(answered) => answered.unwrap_or_else(|_| Err(RegisterErrorKind::Unavailable.into())),
            Err(elapsed) => Err(RegisterError::new(RegisterErrorKind::Unavailable, elapsed)),
        };
        found.map_err(RegisterError::of_read)
    }
}

/// Lists pages until one is short, or until no one waits for them.
async fn all<P: Pages>(
    pages: &mut P,
    scan: &Scan<'_>,
    most: usize,
    is_over: impl Fn() -> bool,
) -> Result<Vec<(Key, Record)>, RegisterError> {
    let mut found: Vec<(Key, Record)> = Vec::new();
    while found.len() < scan.limit && !is_over() {
        let after = found.last().map(|(key, _)| key.as_str().to_owned());
        let limit = most.min(scan.limit - found.len());
        let page = pages
            .page(&Scan {
                after: after.as_deref().or(scan.after),
                limit,
                ..*scan
            })
            .await?;
        let is_last = page.len() < limit;
        found.extend(page);
        if is_last {
            break;
        }
    }
    Ok(found)
}
