//! Running the handler: with the permit, without the conditions, until shortly before the deadline.

use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures_util::FutureExt;
use http::header::{IF_MATCH, IF_NONE_MATCH};
use http::{HeaderMap, Request, Response};
use ifmatch_core::command::Grant;
use ifmatch_core::date::Timestamp;
use ifmatch_register::Register;
use ifmatch_runtime::{Clock, task};

use super::Writing;
use crate::permit::Permit;
use crate::read::request;
use crate::shared::Inner;

/// Longest time between the ends of the handler and its permit, which is otherwise a tenth of the write timeout. The
/// clocks of processes that share a register may differ by this much.
const MARGIN: Duration = Duration::from_secs(3);

/// How a handler ended.
pub(crate) enum End<T, E> {
    Answered(Response<T>),
    Failed(E),
    Panicked,
    Cancelled,
    /// It did not begin: the permit came when its time was over.
    TooLate,
}

impl<R: Register, C: Clock> Writing<R, C> {
    /// Runs the inner service and drops its future at the deadline. The future is not polled after the deadline by the
    /// clock that ends the permit.
    pub(crate) async fn run<S, B>(&self, mut inner: S, grant: &Grant, body: B) -> End<S::Body, S::Error>
    where
        S: Inner<B>,
    {
        let deadline = self.handler_deadline(grant.deadline);
        if deadline <= self.shared.now() {
            return End::TooLate;
        }
        let mut head = self.head.clone();
        strip_evaluated(&mut head.headers);
        head.extensions.insert(Permit::new(grant, deadline));
        let handler = AssertUnwindSafe(inner.run(Request::from_parts(head, body))).catch_unwind();
        match task::until(self.shared.driver.clock(), deadline, handler).await {
            Ok(Ok(Ok(response))) => End::Answered(response),
            Ok(Ok(Err(error))) => End::Failed(error),
            Ok(Err(_)) => End::Panicked,
            Err(_) => End::Cancelled,
        }
    }

    /// Returns the handler's deadline, which precedes the permit's. A process with a clock ahead by less than the
    /// difference grants no permit while the handler runs.
    fn handler_deadline(&self, end: Timestamp) -> Timestamp {
        let margin = (self.shared.config.write_timeout / 10).min(MARGIN);
        Timestamp::from_micros(end.micros().saturating_sub(u64::try_from(margin.as_micros()).unwrap_or_default()))
    }
}

/// Takes out the conditions, which the inner service might read differently: it does not know the tags. `*` speaks of
/// no tag, and stays as a second check by a service that has one.
fn strip_evaluated(headers: &mut HeaderMap) {
    let kept = [IF_MATCH, IF_NONE_MATCH].map(|name| {
        let value = headers.get(&name).filter(|value| value.as_bytes().trim_ascii() == b"*").cloned();
        value.map(|value| (name, value))
    });
    request::strip_conditions(headers);
    headers.extend(kept.into_iter().flatten());
}
