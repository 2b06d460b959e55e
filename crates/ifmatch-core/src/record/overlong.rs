//! Deadlines written by a clock ahead of this one: the remaining time exceeds the granted time.
//!
//! Neither clock can be trusted in this case. The grant was certainly running when the deadline was first seen. A
//! process that sees it unchanged for the granted time, by an interval clock, knows that the grant has ended.

use std::time::Duration;

use crate::date::Timestamp;
use crate::record::{Record, Revision, Token};

/// A deadline further away than the granted time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Overlong {
    /// Deadline of the permit with this token.
    Permit(Token),
    /// Deadline of the lease with this token, and its end.
    Lease(Revision, Timestamp),
}

impl Record {
    /// Returns the deadlines in this record that exceed the granted time by more than a tenth, each with that time.
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

    /// Returns the record without a deadline that was seen unchanged for the whole granted time, and so has passed.
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
