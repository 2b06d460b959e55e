//! What all services of one layer share.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{Either, select};
use http::{Request, Response};
use http_body::Body;
use ifmatch_core::date::Timestamp;
use ifmatch_runtime::Clock;
use tower_service::Service;

use crate::body::BodyError;
use crate::budget::Budget;
use crate::config::Config;
use crate::metrics::Counters;
use crate::recent::RecentHeads;
use crate::table::Table;

#[derive(Debug)]
pub(crate) struct Shared<C> {
    pub(crate) config: Config,
    pub(crate) table: Arc<Table>,
    pub(crate) budget: Budget,
    pub(crate) counters: Counters,
    pub(crate) recent: RecentHeads,
    clock: C,
}

impl<C: Clock> Shared<C> {
    pub(crate) fn new(clock: C, config: Config) -> Self {
        Self {
            table: Arc::new(Table::with_capacity(config.capacity, config.entry_limit)),
            budget: Budget::of(config.capacity / 4),
            counters: Counters::default(),
            recent: RecentHeads::default(),
            clock,
            config,
        }
    }

    /// Returns the time of day, which origins use.
    pub(crate) fn now(&self) -> Timestamp {
        self.clock.wall()
    }

    /// Returns the time by the interval clock, for pauses that no change of the time of day may lengthen.
    pub(crate) fn moment(&self) -> Timestamp {
        self.clock.now()
    }

    /// What comes within a time. None: nothing has.
    pub(crate) async fn within<T>(&self, time: Duration, work: impl Future<Output = T>) -> Option<T> {
        match select(pin!(work), pin!(self.clock.sleep(time))).await {
            Either::Left((done, _)) => Some(done),
            Either::Right(_) => None,
        }
    }
}

/// The inner service, as this crate needs it.
pub(crate) trait Inner<B>: Clone + Send + 'static {
    /// The body of its responses.
    type Body: Body<Data: Send, Error: Into<BodyError>> + Send + 'static;
    /// Its error.
    type Error: Send + 'static;

    /// Waits until the service is ready, and runs it.
    fn run(&mut self, request: Request<B>) -> impl Future<Output = Result<Response<Self::Body>, Self::Error>> + Send;
}

impl<S, B, T> Inner<B> for S
where
    S: Service<Request<B>, Response = Response<T>, Future: Send, Error: Send + 'static> + Clone + Send + 'static,
    T: Body<Data: Send, Error: Into<BodyError>> + Send + 'static,
    B: Send + 'static,
{
    type Body = T;
    type Error = S::Error;

    async fn run(&mut self, request: Request<B>) -> Result<Response<T>, S::Error> {
        std::future::poll_fn(|cx| self.poll_ready(cx)).await?;
        self.call(request).await
    }
}
