//! Helpers for tests of stores and dialects: a manual clock, hooks before a store's steps, limited invocations, reopening.

use std::fmt::Debug;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::BoxFuture;
use tokio::sync::Notify;

use crate::BlobStore;
use crate::name::{BlobName, BlobPath, ContainerName};
use crate::store::{
    AppendBlock, Appended, BlobEntry, Delete, ListQuery, Opened, Page, Put, Reading, StoreError,
    Update, Updated, Wrapper, Written,
};

pub use ifmatch_runtime::ManualClock;

/// Maximum number of attempts to open a store.
const ATTEMPTS: usize = 6_000;
/// Pause after an attempt.
const PAUSE: Duration = Duration::from_millis(10);
/// Time for a request to reach a step.
const LIMIT: Duration = Duration::from_mins(1);

/// Opens a store once the tasks of the previous one, which was dropped, have released it.
///
/// # Panics
/// The store doesn't open within a minute.
pub async fn reopen<S, E: Debug>(open: impl AsyncFn() -> Result<S, E>) -> S {
    let mut last = None;
    for _ in 0..ATTEMPTS {
        match open().await {
            Ok(store) => return store,
            Err(error) => last = Some(error),
        }
        tokio::time::sleep(PAUSE).await;
    }
    panic!("the store does not open: {last:?}")
}

/// A step with a hook.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// [`BlobStore::open`]
    Open,
    /// [`BlobStore::put`], [`BlobStore::append`] and [`BlobStore::update`]
    Put,
    /// [`BlobStore::delete`]
    Delete,
    /// [`BlobStore::list`]
    List,
}

/// A test's code between the steps of a request.
#[async_trait]
pub trait Hook: Send + Sync + 'static {
    /// Runs right before a step in this container.
    async fn before(&self, step: Step, container: &ContainerName);

    /// Returns `false` to omit a blob from its page of a listing, as if it had been deleted since.
    fn lists(&self, _: &BlobName) -> bool {
        true
    }
}

/// A store with a hook before its steps.
#[derive(Clone)]
pub struct Hooked<H> {
    /// The store.
    pub inner: Arc<dyn BlobStore>,
    /// The hook.
    pub hook: H,
}

#[async_trait]
impl<H: Hook> Wrapper for Hooked<H> {
    fn inner(&self) -> &dyn BlobStore {
        &*self.inner
    }

    async fn open(&self, blob: &BlobPath, reading: Reading) -> Result<Option<Opened>, StoreError> {
        self.hook.before(Step::Open, &blob.container).await;
        self.inner.open(blob, reading).await
    }

    async fn put(&self, blob: &BlobPath, put: Put) -> Result<Written, StoreError> {
        self.hook.before(Step::Put, &blob.container).await;
        self.inner.put(blob, put).await
    }

    async fn append(&self, blob: &BlobPath, append: AppendBlock) -> Result<Appended, StoreError> {
        self.hook.before(Step::Put, &blob.container).await;
        self.inner.append(blob, append).await
    }

    async fn update(&self, blob: &BlobPath, update: Update) -> Result<Updated, StoreError> {
        self.hook.before(Step::Put, &blob.container).await;
        self.inner.update(blob, update).await
    }

    async fn delete(&self, blob: &BlobPath, delete: Delete) -> Result<(), StoreError> {
        self.hook.before(Step::Delete, &blob.container).await;
        self.inner.delete(blob, delete).await
    }

    async fn list(
        &self,
        container: &ContainerName,
        query: &ListQuery,
    ) -> Result<Option<Page<BlobEntry>>, StoreError> {
        self.hook.before(Step::List, container).await;
        let mut page = self.inner.list(container, query).await?;
        if let Some(page) = &mut page {
            page.items.retain(|entry| self.hook.lists(&entry.name));
        }
        Ok(page)
    }
}

/// Tells which steps a [`Stop`] or an [`Act`] counts.
type Counted = fn(Step, &ContainerName) -> bool;

/// Runs an action right before some of the steps that it counts.
#[derive(Clone)]
pub struct Act {
    counted: Counted,
    steps: Arc<AtomicUsize>,
    before: Range<usize>,
    run: Arc<dyn Fn() -> BoxFuture<'static, ()> + Send + Sync>,
}

impl Act {
    /// Acts before the steps with these numbers.
    pub fn new<F: Future<Output = ()> + Send + 'static>(
        counted: Counted,
        before: Range<usize>,
        act: impl Fn() -> F + Send + Sync + 'static,
    ) -> Self {
        Self {
            counted,
            steps: Arc::default(),
            before,
            run: Arc::new(move || Box::pin(act())),
        }
    }
}

#[async_trait]
impl Hook for Act {
    async fn before(&self, step: Step, container: &ContainerName) {
        if (self.counted)(step, container)
            && self
                .before
                .contains(&self.steps.fetch_add(1, Ordering::SeqCst))
        {
            (self.run)().await;
        }
    }
}

/// Stops a request before one of the steps that it counts: until the test lets it go on, or forever.
#[derive(Clone, Debug)]
pub struct Stop {
    counted: Counted,
    passing: Arc<AtomicUsize>,
    reached: Arc<Notify>,
    go_on: Arc<Notify>,
}

impl Stop {
    /// Lets some steps pass, and stops the next one.
    pub fn new(counted: Counted, passing: usize) -> Self {
        let passing = Arc::new(AtomicUsize::new(passing));
        Self {
            counted,
            passing,
            reached: Arc::default(),
            go_on: Arc::default(),
        }
    }

    /// Stops as a platform does that ends an invocation after a number of listings.
    pub fn of_listings() -> Self {
        Self::new(|step, _| step == Step::List, 0)
    }

    /// Lets this number of further steps pass.
    pub fn allow(&self, steps: usize) {
        self.passing.store(steps, Ordering::SeqCst);
    }

    /// Returns the number of steps that may still pass.
    pub fn left(&self) -> usize {
        self.passing.load(Ordering::SeqCst)
    }

    /// Waits until a step is stopped.
    ///
    /// # Panics
    /// No step is stopped within a minute.
    pub async fn reached(&self) {
        let reached = tokio::time::timeout(LIMIT, self.reached.notified()).await;
        assert!(
            reached.is_ok(),
            "a request reaches the step to stop at within a minute"
        );
    }

    /// Lets the stopped step go on.
    pub fn go_on(&self) {
        self.go_on.notify_one();
    }
}

#[async_trait]
impl Hook for Stop {
    async fn before(&self, step: Step, container: &ContainerName) {
        if (self.counted)(step, container) && self.passing.fetch_sub(1, Ordering::SeqCst) == 0 {
            self.reached.notify_one();
            self.go_on.notified().await;
        }
    }
}
