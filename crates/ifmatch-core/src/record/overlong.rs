//! Deadlines that a clock ahead of this one wrote: the time that is left is longer than the time that was given.
//!
//! Neither clock can be trusted then. What is certain is that the time given was running when the deadline was first seen:
//! whoever sees it unchanged for that long, by a clock that measures intervals, knows that it is over.

use std::time::Duration;

use crate::date::Timestamp;
use crate::record::{Record, Revision, Token};

/// A deadline further away than the time that was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Overlong {
    /// That of the permit with this token.
    Permit(Token),
    /// That of the lease with this token, which ends then.
    Lease(Revision, Timestamp),
}

impl Record {
    /// The deadlines in this record that are further away than the time that was given, by more than a tenth of it; and
    /// that time.
    pub fn overlong(&self, now: Timestamp) -> impl Iterator<Item = (Overlong, Duration)> {
        let permit = self.permit.map(|permit| (Overlong::Permit(permit.token), permit.deadline, permit.ttl));
        let lease = self.lease.and_then(|lease| {
            let end = lease.end()?;
            Some((Overlong::Lease(lease.token(), end), end, lease.longest()?))
        });
        let is_overlong = move |deadline, given: Duration| now.until(deadline) > given.saturating_add(given / 10);
        let found = [permit, lease].into_iter().flatten();
        found.filter(move |(_, deadline, given)| is_overlong(*deadline, *given)).map(|(what, _, given)| (what, given))
    }

    /// The record as it is for one who has seen this deadline unchanged for the whole time that was given: it is over.
    #[must_use]
    pub fn without_overlong(mut self, overlong: Overlong, now: Timestamp) -> Self {
        match overlong {
            Overlong::Permit(token) => {
                self.permit.iter_mut().filter(|permit| permit.token == token).for_each(|permit| permit.deadline = now);
            }
            Overlong::Lease(token, end) => {
                let same = self.lease.iter_mut().filter(|lease| lease.token() == token && lease.end() == Some(end));
                same.for_each(|lease| lease.end_at(now));
            }
        }
        self
    }
}
