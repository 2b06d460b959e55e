//! Groups: changes that wait for one record at the same time are applied in order, and stored by one swap.
//!
//! ```text
//!   stored       in memory, in order of arrival                          stored
//!   version 1 ─▶ PUT: version 2 ─▶ PUT If-Match "1": 412 ─▶ PUT: version 3
//!                └──────────── all are answered once version 3 is stored ┘
//! ```
//!
//! No response may go out before the swap, not even a refusal: the 412 depends on version 2, which a failed swap
//! undoes. Version 2 is never stored, so no one reads it.
//!
//! A record may only name its content, for example a file. So changes that compute content, such as appends, share a
//! [context](Change::Context): the content that the previous change left.

use crate::command::{Applied, Command, Outcome, Transition};
use crate::date::{HttpDate, Timestamp};
use crate::record::{Receipt, Record, RememberedAnswer, Revision, State};

/// A change to a record, stated as a command once the record that it applies to is known. Its content may depend on the
/// version that it replaces.
pub trait Change {
    /// The reason why there is no command for a record.
    type Error;
    /// What the changes of a group pass on besides the record, or `()`.
    type Context;

    /// Returns the command that makes this change to a record. Called again if another process was faster.
    ///
    /// # Errors
    /// Fails if the change doesn't fit the record. The record stays as it is.
    fn command(
        &self,
        before: &Record,
        now: Timestamp,
        context: &mut Self::Context,
    ) -> Result<Command<'_>, Self::Error>;

    /// Returns `false` if the change can't be decided in the context that the one before has left: the group ends before it. The first
    /// change of a group is always decided. Defaults to `true`.
    fn joins(&self, _context: &Self::Context) -> bool {
        true
    }

    /// Called once the outcome of the command is known, before the next change of the group. Without an effect by default.
    fn applied(&self, _applied: &Applied, _context: &mut Self::Context) {}
}

/// The effect of a group.
#[derive(Debug)]
#[non_exhaustive]
pub struct Group<E, X = ()> {
    /// The effect of each change, in the same order, up to the first that doesn't [join](Change::joins). Only the last record is stored.
    pub applied: Vec<Result<Applied, E>>,
    /// The record to swap in, or `None` if nothing changes.
    pub next: Option<Record>,
    /// The context after the last change.
    pub context: X,
}

impl Record {
    /// Applies changes in order, each to the record that the one before it left.
    ///
    /// The result is a proposal, as for [`Record::apply`]: it takes effect only if `next` replaces this exact revision,
    /// and no response may be sent before then.
    ///
    /// A group of at most [`MAX_REPLIES`](Self::MAX_REPLIES) changes forgets none of its own responses.
    ///
    /// Of the versions that are created, only the last is stored, so only its date must differ from all others. The skipped
    /// ones share a date, one second earlier: `Last-Modified` runs ahead of the time by at most two seconds with each group,
    /// not by one with each version.
    pub fn apply_group<'c, C: Change + 'c>(
        &self,
        changes: impl IntoIterator<Item = &'c C>,
        now: Timestamp,
        mut context: C::Context,
    ) -> Group<C::Error, C::Context> {
        let (mut record, mut applied) = (self.clone(), Vec::new());
        let (mut latest, mut versions) = (self.latest, 0_usize);
        for change in changes {
            if !applied.is_empty() && !change.joins(&context) {
                break;
            }
            let result = change.command(&record, now, &mut context).map(|command| {
                let Transition { next, outcome } = record.apply(&command, now);
                let after = next.unwrap_or_else(|| record.clone());
                Applied {
                    before: record.clone(),
                    after,
                    outcome,
                }
            });
            if let Ok(done @ Applied { after, .. }) = &result {
                change.applied(done, &mut context);
                let is_new = after.revision != record.revision;
                versions += usize::from(is_new && after.generation() == Some(after.revision));
                latest = latest.max(after.latest);
                record = Self {
                    latest: self.latest,
                    ..after.clone()
                };
            }
            applied.push(result);
        }
        let newest = record.generation().filter(|_| versions > 1);
        let latest = if newest.is_some() {
            latest.next()
        } else {
            latest
        };
        record.redate(newest, latest);
        for Applied {
            before,
            after,
            outcome,
        } in applied.iter_mut().flatten()
        {
            before.redate(newest, latest);
            after.redate(newest, latest);
            if let Outcome::Written(receipt) | Outcome::Replayed(receipt) = outcome {
                receipt.redate(newest, latest);
            }
        }
        Group {
            applied,
            next: Some(record).filter(|record| record.revision != self.revision),
            context,
        }
    }

    fn generation(&self) -> Option<Revision> {
        self.state.version().map(|version| version.generation)
    }

    /// Sets the latest date, which becomes the newest version's, also in the responses remembered.
    fn redate(&mut self, newest: Option<Revision>, latest: HttpDate) {
        self.latest = latest;
        if let State::Present(version) = &mut self.state
            && Some(version.generation) == newest
        {
            version.modified = latest;
        }
        for reply in &mut self.replies {
            if let RememberedAnswer::Written(receipt) | RememberedAnswer::Kept(receipt, _) =
                &mut reply.answer
            {
                receipt.redate(newest, latest);
            }
        }
    }
}

impl Receipt {
    fn redate(&mut self, newest: Option<Revision>, latest: HttpDate) {
        if Some(self.generation) == newest {
            self.modified = self.modified.map(|_| latest);
        }
    }
}
