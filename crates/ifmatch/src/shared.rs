//! What all services of one layer share.

use std::future::{Future, poll_fn};
use std::pin::pin;

use futures_util::future::{Either, select};
use http::{Request, Response};
use http_body::Body;
use ifmatch_core::command::Authority;
use ifmatch_core::date::Timestamp;
use ifmatch_register::{Driver, DriverError, Key, Register};
use ifmatch_runtime::{Clock, KeyedQueue};
use tower_service::Service;

use crate::config::Config;
use crate::memory::Memory;

pub(crate) struct Shared<R, C> {
    pub(crate) driver: Driver<R, C>,
    pub(crate) memory: Memory,
    /// Lets one writer of each key probe and ask for the permit at a time, because a competing writer would make the
    /// probes of the others worthless.
    pub(crate) probing: KeyedQueue<Key>,
    pub(crate) config: Config,
}

impl<R: Register, C: Clock> Shared<R, C> {
    pub(crate) fn now(&self) -> Timestamp {
        self.driver.now()
    }

    /// Returns the time of day, to which the dates of responses are compared.
    pub(crate) fn wall(&self) -> Timestamp {
        self.driver.clock().wall()
    }

    /// What the register answers to a reader; none if it fails, or does not answer in time.
    pub(crate) async fn answer<T>(&self, asked: impl Future<Output = Result<T, DriverError>>) -> Option<T> {
        match select(pin!(asked), pin!(self.driver.clock().sleep(self.config.patience))).await {
            Either::Left((answer, _)) => answer.ok(),
            Either::Right(_) => None,
        }
    }

    pub(crate) fn is_authoritative(&self) -> bool {
        self.config.authority == Authority::Register
    }
}

/// The inner service, as this crate needs it.
pub(crate) trait Inner<B>: Clone + Send + 'static {
    /// The body of its responses.
    type Body: Body<Data: Send, Error: Send> + Send + 'static;
    /// Its error.
    type Error: Send + 'static;

    /// Waits until the service is ready.
    fn ready(&mut self) -> impl Future<Output = Result<(), Self::Error>> + Send;

    /// Runs the service, which is ready.
    fn answer(&mut self, request: Request<B>)
    -> impl Future<Output = Result<Response<Self::Body>, Self::Error>> + Send;

    /// Waits until the service is ready, and runs it.
    fn run(&mut self, request: Request<B>) -> impl Future<Output = Result<Response<Self::Body>, Self::Error>> + Send;
}

impl<S, B, T> Inner<B> for S
where
    S: Service<Request<B>, Response = Response<T>, Future: Send, Error: Send + 'static> + Clone + Send + 'static,
    T: Body<Data: Send, Error: Send> + Send + 'static,
    B: Send + 'static,
{
    type Body = T;
    type Error = S::Error;

    async fn ready(&mut self) -> Result<(), S::Error> {
        poll_fn(|cx| self.poll_ready(cx)).await
    }

    fn answer(&mut self, request: Request<B>) -> impl Future<Output = Result<Response<T>, S::Error>> + Send {
        self.call(request)
    }

    async fn run(&mut self, request: Request<B>) -> Result<Response<T>, S::Error> {
        self.ready().await?;
        self.answer(request).await
    }
}
