//! Running the handler with the permit and without the conditions, until shortly before the deadline.

use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures_util::FutureExt;
use http::header::{IF_MATCH, IF_NONE_MATCH};
use http::{HeaderMap, Request, Response};
use ifmatch_core::command::Grant;
use ifmatch_core::date::Timestamp;
use ifmatch_register::Register;
use ifmatch_runtime::{Clock, task};

use super::request::WriteContext;
use crate::inner::InnerService;
use crate::permit::Permit;
use crate::read::request::strip_conditions;

/// Maximum time between the deadlines of the handler and its permit; otherwise it is a tenth of the write timeout. The
/// clocks of processes that share a register may differ by this much.
const MARGIN: Duration = Duration::from_secs(3);

/// The way in which a handler ended.
pub(crate) enum End<T, E> {
    Answered(Response<T>),
    Failed(E),
    Panicked,
    Cancelled,
    /// It was not started, since the permit had expired already.
    TooLate,
}

impl<R: Register, C: Clock> WriteContext<R, C> {
    /// Runs the inner service until the deadline. After the deadline, by the clock that ends the permit, its future is
    /// dropped without another poll.
    pub(crate) async fn run<S, B>(&self, mut inner: S, grant: &Grant, body: B) -> End<S::Body, S::Error>
    where
        S: InnerService<B>,
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
    fn handler_deadline(&self, deadline: Timestamp) -> Timestamp {
        let margin = (self.shared.config.write_timeout / 10).min(MARGIN);
        Timestamp::from_micros(deadline.micros().saturating_sub(u64::try_from(margin.as_micros()).unwrap_or_default()))
    }
}

/// Removes the conditions, since the inner service does not know the tags. `*` names no tag, and stays for a second check
/// by the service.
fn strip_evaluated(headers: &mut HeaderMap) {
    let kept = [IF_MATCH, IF_NONE_MATCH].map(|name| {
        let value = headers.get(&name).filter(|value| value.as_bytes().trim_ascii() == b"*").cloned();
        value.map(|value| (name, value))
    });
    strip_conditions(headers);
    headers.extend(kept.into_iter().flatten());
}
