//! Running the handler with the permit and without the conditions, until shortly before the deadline, which moves while
//! the request's body arrives.

use std::any::Any;
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{Either, select};
use http::header::{IF_MATCH, IF_NONE_MATCH};
use http::{HeaderMap, Request, Response, StatusCode};
use ifmatch_core::command::{Command, Grant, Outcome, Renew};
use ifmatch_core::date::Timestamp;
use ifmatch_core::record::Token;

use super::request::WriteContext;
use crate::body::ReceivedBody;
use crate::inner::{self, InnerService, RequestContent};
use crate::paused::paused;
use crate::permit::{ExpectedVersion, Permit};
use crate::read::request::strip_conditions;

/// Maximum time between the deadlines of the handler and its permit; otherwise it is a tenth of the write timeout. The
/// clocks of processes that share a register may differ by this much.
const MARGIN: Duration = Duration::from_secs(3);

/// Number of bytes of the request's body that must arrive between two renewals of the permit. A client that sends less
/// keeps the resource for one write timeout.
const MIN_PROGRESS: u64 = 16 * 1024;

/// The way in which a handler ended.
pub(crate) enum HandlerEnd<T, E> {
    Answered(Response<T>),
    Failed(E),
    Panicked,
    Cancelled,
    /// It wasn't started, since the permit had expired already.
    TooLate,
    /// It has written without asking for the version that it should compare.
    Unchecked,
}

impl WriteContext {
    /// Runs the inner service until the deadline, which moves as long as the request's body arrives. After the deadline,
    /// by the clock that ends the permit, its future is dropped without another poll. The grant gets the last deadline.
    pub(crate) async fn run<S, B>(
        &self,
        inner: &mut S,
        grant: &mut Grant,
        received: ReceivedBody<B>,
    ) -> HandlerEnd<S::Body, S::Error>
    where
        S: InnerService<B>,
        B: RequestContent,
    {
        let deadline = self.handler_deadline(grant.deadline);
        if deadline <= self.shared.now() {
            return HandlerEnd::TooLate;
        }
        let compared = || ExpectedVersion::compared(&self.conditions, &grant.current);
        let permit = Permit::new(
            grant,
            deadline,
            self.unchecked.clone().unwrap_or_else(compared),
        );
        match self
            .run_until(deadline, inner, grant, received, permit.clone())
            .await
        {
            HandlerEnd::Answered(response)
                if self.unchecked.is_some() && !permit.is_version_taken() =>
            {
                let status = response.status();
                // These two ask to send the request again elsewhere: nothing was written.
                let is_passed_on = [
                    StatusCode::TEMPORARY_REDIRECT,
                    StatusCode::PERMANENT_REDIRECT,
                ]
                .contains(&status);
                let may_have_written =
                    status.is_success() || status.is_redirection() && !is_passed_on;
                if may_have_written {
                    HandlerEnd::Unchecked
                } else {
                    HandlerEnd::Answered(response)
                }
            }
            end => end,
        }
    }

    async fn run_until<S, B>(
        &self,
        mut deadline: Timestamp,
        inner: &mut S,
        grant: &mut Grant,
        received: ReceivedBody<B>,
        permit: Permit,
    ) -> HandlerEnd<S::Body, S::Error>
    where
        S: InnerService<B>,
        B: RequestContent,
    {
        let mut head = self.head.clone();
        strip_evaluated(&mut head.headers);
        head.extensions.insert(permit);
        let request = Request::from_parts(head, received.body);
        let handler = AssertUnwindSafe(inner::run(inner, request)).catch_unwind();
        let mut handler = pin!(paused(&self.head.extensions, handler));
        let driver = &self.shared.driver;
        while let Some(progress) = &received.progress {
            if let Ok(ended) = driver
                .until(self.renewal_due(deadline), handler.as_mut())
                .await
            {
                return HandlerEnd::of(ended);
            }
            if progress.take() < MIN_PROGRESS {
                break;
            }
            let renewal = pin!(self.renew(grant.token));
            match driver
                .until(deadline, select(handler.as_mut(), renewal))
                .await
            {
                Ok(Either::Left((ended, _))) => return HandlerEnd::of(ended),
                Ok(Either::Right((Some(renewed), _))) => {
                    grant.deadline = renewed;
                    deadline = self.handler_deadline(renewed);
                }
                Ok(Either::Right((None, _))) => break,
                Err(_) => return HandlerEnd::Cancelled,
            }
        }
        match driver.until(deadline, handler).await {
            Ok(ended) => HandlerEnd::of(ended),
            Err(_) => HandlerEnd::Cancelled,
        }
    }

    /// Returns the time at which the progress of the body decides about a renewal: after three quarters of what is left.
    fn renewal_due(&self, deadline: Timestamp) -> Timestamp {
        let now = self.shared.now();
        now.saturating_add(now.until(deadline) / 4 * 3)
    }

    /// Extends the permit. Returns its new deadline, or `None` if it ends as granted.
    async fn renew(&self, token: Token) -> Option<Timestamp> {
        let renew = Renew {
            token,
            ttl: self.shared.config.write_timeout,
            lease: self.lease,
        };
        let applied = self
            .shared
            .driver
            .apply(&self.key, &Command::Renew(renew))
            .await
            .ok()?;
        match applied.outcome {
            Outcome::Granted(grant) => Some(grant.deadline),
            _ => None,
        }
    }

    /// Returns the handler's deadline, which precedes the permit's. A process with a clock ahead by less than the
    /// difference grants no permit while the handler runs.
    pub(super) fn handler_deadline(&self, deadline: Timestamp) -> Timestamp {
        let margin = (self.shared.config.write_timeout / 10).min(MARGIN);
        Timestamp::from_micros(
            deadline
                .micros()
                .saturating_sub(u64::try_from(margin.as_micros()).unwrap_or_default()),
        )
    }
}

impl<T, E> HandlerEnd<T, E> {
    fn of(ended: Result<Result<Response<T>, E>, Box<dyn Any + Send>>) -> Self {
        match ended {
            Ok(Ok(response)) => Self::Answered(response),
            Ok(Err(error)) => Self::Failed(error),
            Err(_) => Self::Panicked,
        }
    }
}

/// Removes the conditions, since the inner service doesn't know the tags. `*` names no tag, and stays for a second check
/// by the service.
fn strip_evaluated(headers: &mut HeaderMap) {
    let kept = [IF_MATCH, IF_NONE_MATCH].map(|name| {
        let value = headers
            .get(&name)
            .filter(|value| value.as_bytes().trim_ascii() == b"*")
            .cloned();
        value.map(|value| (name, value))
    });
    strip_conditions(headers);
    headers.extend(kept.into_iter().flatten());
}
