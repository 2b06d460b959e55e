//! Transitions: how a command changes a record. Pure functions: time is an argument, and nothing is read or written.

mod lease;

use std::time::Duration;

use http::Method;

use crate::command::{
    Authority, Begin, Command, Commit, Content, Doubt, Grant, Observation, Observed, Outcome,
    Refusal, Renew, Transition, Write,
};
use crate::date::{HttpDate, Timestamp};
use crate::lease::{Lease, LeaseUse};
use crate::precondition::{Preconditions, Validators, Verdict};
use crate::record::{
    Permit, Receipt, Record, RememberedAnswer, Reply, RequestId, Revision, State, Token, Variant,
    Version,
};
use crate::tag::EntityTag;

impl Record {
    /// Applies a command at `now`.
    ///
    /// The result is a proposal: it takes effect only if `next` replaces this exact revision in the register. A command
    /// that is refused or changes nothing has no `next`.
    pub fn apply(&self, command: &Command<'_>, now: Timestamp) -> Transition {
        let result = match command {
            Command::Begin(begin) => self.begin(begin, now),
            Command::Commit(commit) => self.commit(commit, now),
            Command::Abort(token) => self.abort(*token, now),
            Command::Doubt(doubt) => self.doubt(*doubt, now),
            Command::Renew(renew) => self.renew(*renew, now),
            Command::Invalidate(nonce) => Ok(self.invalidate(*nonce, now)),
            Command::Observe(observed) => self.observe(observed, now),
            Command::Write(write) => self.write(write, now),
            Command::Lease(operation) => self.operate(operation, now),
        };
        match result {
            Ok((next, outcome)) => Transition { next, outcome },
            Err(refusal) => Transition::refused(refusal),
        }
    }

    fn begin(&self, begin: &Begin<'_>, now: Timestamp) -> Decision {
        // The lease is checked first: a writer without it needn't wait for the holder's write.
        self.check_lease(begin.lease, now).map_err(Refusal::Lease)?;
        self.refuse_in_flight(now)?;
        let revision = self.revision.next(now);
        let observed = self.still_true(begin.observed.as_ref());
        let state = self.seen(observed, revision, now);
        Known::of(&state, begin.authority, observed).check(begin.method, begin.preconditions)?;
        let token = Token {
            revision,
            nonce: begin.nonce,
        };
        let deadline = self.deadline(begin.ttl, begin.lease, now);
        let permit = Permit {
            token,
            deadline,
            ttl: now.until(deadline),
        };
        let lease = self.lease.filter(|_| begin.lease.is_holders_write());
        let grant = Grant {
            token,
            deadline: permit.deadline,
            current: state.clone(),
            lease,
        };
        let state = if observed.is_some() {
            unless_absent(state)
        } else {
            state
        };
        let next = Self {
            fence: self.fence_after(begin.lease),
            ..self.with(revision, begin.nonce, state, Some(permit), now)
        };
        Ok((Some(next), Outcome::Granted(grant)))
    }

    fn commit(&self, commit: &Commit, now: Timestamp) -> Decision {
        self.holds(commit.token)?;
        let lease = self.locking_lease(now);
        let is_lost = commit.unless_disturbed && self.is_disturbed(commit.token);
        let content = if is_lost {
            &Content::Unknown
        } else {
            &commit.content
        };
        let (next, receipt) = self.become_content(content, commit.token.nonce, lease, now);
        Ok((Some(next), Outcome::Written(receipt)))
    }

    fn abort(&self, token: Token, now: Timestamp) -> Decision {
        self.holds(token)?;
        let next = Self {
            revision: self.revision.next(now),
            permit: None,
            ..self.clone()
        };
        Ok((Some(next), Outcome::Released))
    }

    fn doubt(&self, doubt: Doubt, now: Timestamp) -> Decision {
        let permit = self.holds(doubt.token)?;
        let deadline = permit.deadline.min(now.saturating_add(doubt.grace));
        let mut next = Self {
            revision: self.revision.next(now),
            ..self.clone()
        };
        if deadline <= now {
            next.state = State::Unknown;
            next.permit = None;
            next.lease = self.locking_lease(now);
        } else {
            next.permit = Some(Permit {
                deadline,
                ..*permit
            });
        }
        Ok((Some(next), Outcome::Released))
    }

    /// A permit that has ended by the clock isn't renewed: a reader may have relied on its end already.
    fn renew(&self, renew: Renew, now: Timestamp) -> Decision {
        let permit = *self.holds(renew.token)?;
        if permit.deadline <= now {
            return Err(Refusal::Stale);
        }
        let deadline = self
            .deadline(renew.ttl, renew.lease, now)
            .max(permit.deadline);
        let ttl = permit.ttl.max(now.until(deadline));
        let next = Self {
            revision: self.revision.next(now),
            permit: Some(Permit {
                deadline,
                ttl,
                ..permit
            }),
            ..self.clone()
        };
        let grant = Grant {
            token: permit.token,
            deadline,
            current: self.state.clone(),
            lease: self.lease,
        };
        Ok((Some(next), Outcome::Granted(grant)))
    }

    /// The permit of a write in flight stays valid.
    fn invalidate(&self, nonce: u64, now: Timestamp) -> (Option<Self>, Outcome) {
        let permit = self.permit.filter(|permit| permit.deadline > now);
        let lease = if permit.is_some() {
            self.lease
        } else {
            self.locking_lease(now)
        };
        let revision = self.revision.next(now);
        let next = Self {
            revision,
            nonce,
            state: State::Unknown,
            permit,
            lease,
            ..self.clone()
        };
        (Some(next), Outcome::Observed)
    }

    fn observe(&self, observed: &Observed, now: Timestamp) -> Decision {
        if observed.snapshot.0 != self.revision || self.permit(now).is_some() {
            return Err(Refusal::Stale);
        }
        let revision = self.revision.next(now);
        let state = unless_absent(self.merge(observed, revision, now));
        let changed = state != self.state || self.permit.is_some();
        let next = changed.then(|| self.with(revision, self.nonce, state, None, now));
        Ok((next, Outcome::Observed))
    }

    fn write(&self, write: &Write<'_>, now: Timestamp) -> Decision {
        if let Some(RememberedAnswer::Written(receipt) | RememberedAnswer::Kept(receipt, _)) =
            self.answer(write.request)
        {
            return Ok((None, Outcome::Replayed(receipt.clone())));
        }
        self.refuse_in_flight(now)?;
        let state = self.state(now);
        let has_nothing = match write.content {
            Content::Absent => *state == State::Absent,
            Content::Kept { .. } => state.version().is_none(),
            _ => false,
        };
        if has_nothing {
            return Err(Refusal::NotFound);
        }
        self.check_lease(write.lease, now).map_err(Refusal::Lease)?;
        if write.based_on.is_some() && write.based_on != state.version().map(Version::generation) {
            return Err(Refusal::Stale);
        }
        Known::All(state).check(write.method, write.preconditions)?;
        let lease = match write.lease {
            LeaseUse::Write(_) | LeaseUse::Fenced { .. } => self.locking_lease(now),
            LeaseUse::Read(_) => self.lease_at(now).copied(),
        };
        let (mut next, receipt) = self.become_content(&write.content, write.nonce, lease, now);
        next.fence = self.fence_after(write.lease);
        next.remember(write.request, now, || match write.content {
            Content::Kept { .. } => RememberedAnswer::Kept(receipt.clone(), now),
            _ => RememberedAnswer::Written(receipt.clone()),
        });
        Ok((Some(next), Outcome::Written(receipt)))
    }

    /// Returns the result of a probe if the record hasn't changed since.
    fn still_true<'a>(&self, observed: Option<&'a Observed>) -> Option<&'a Observed> {
        observed.filter(|observed| observed.snapshot.0 == self.revision)
    }

    /// Returns the state at `now`, after the result of a probe if there is one.
    fn seen(&self, observed: Option<&Observed>, revision: Revision, now: Timestamp) -> State {
        match observed {
            Some(seen) => self.merge(seen, revision, now),
            None => self.state(now).clone(),
        }
    }

    /// Returns the end of a permit. A write under a lease ends with the lease at the latest.
    fn deadline(&self, ttl: Duration, lease: LeaseUse, now: Timestamp) -> Timestamp {
        let deadline = now.saturating_add(ttl);
        let lease = self.lease.filter(|_| lease.is_holders_write());
        lease
            .and_then(|lease| lease.end())
            .map_or(deadline, |end| end.min(deadline))
    }

    /// Returns the state after a read.
    ///
    /// The version stays the same if the read confirms the tag of its representation. The first tag of another
    /// representation joins the version; unless the register is the authority, it gets a new date, because the version may
    /// have changed. Any other tag is a new version with no other known representations.
    fn merge(&self, seen: &Observed, revision: Revision, now: Timestamp) -> State {
        let Observation::Present {
            variant,
            tag,
            last_modified,
        } = &seen.observation
        else {
            return State::Absent;
        };
        let state = self.state(now);
        if let Some(version) = state.version() {
            match (version.tag(variant), tag) {
                (Some(known), Some(tag)) if known == tag => return state.clone(),
                (None, None) if version.is_confirmed_untagged(seen.authority, *last_modified) => {
                    return state.clone();
                }
                (None, Some(tag)) if !version.tags.is_empty() => {
                    let joined = version.joined_by(variant.clone(), tag.clone());
                    return State::Present(match seen.authority {
                        Authority::Register => joined,
                        Authority::Resource => Version {
                            generation: revision,
                            dated: None,
                            modified: self.next_date(now),
                            ..joined
                        },
                    });
                }
                _ => {}
            }
        }
        // The resource's own date identifies one state only if its second has ended and it is later than every earlier
        // date.
        let dated = last_modified.filter(|date| date.has_ended(now) && self.latest < *date);
        let modified = dated.unwrap_or_else(|| self.next_date(now));
        State::Present(Version {
            dated,
            modified,
            ..Version::new(revision, variant.clone(), tag.clone())
        })
    }

    /// Returns the date of a version created at `now`. Dates never repeat, even if the clock is behind, was set back,
    /// or differs from the clock of another process.
    fn next_date(&self, now: Timestamp) -> HttpDate {
        now.last_modified().max(self.latest.next())
    }

    /// Returns the permit of a token. A permit is valid as long as it is in the record, even after its deadline: a
    /// command that relies on the deadline removes it.
    fn holds(&self, token: Token) -> Result<&Permit, Refusal> {
        self.permit
            .as_ref()
            .filter(|permit| permit.token == token)
            .ok_or(Refusal::Stale)
    }

    fn refuse_in_flight(&self, now: Timestamp) -> Result<(), Refusal> {
        match self.permit(now) {
            Some(permit) => Err(Refusal::InFlight {
                deadline: permit.deadline,
            }),
            None => Ok(()),
        }
    }

    /// Returns the record after a write of this content, and the write's receipt.
    fn become_content(
        &self,
        content: &Content,
        nonce: u64,
        lease: Option<Lease>,
        now: Timestamp,
    ) -> (Self, Receipt) {
        let revision = self.revision.next(now);
        let modified = self.next_date(now);
        let state = match content {
            Content::Tagged { variant, tag } => State::Present(Version {
                modified,
                ..Version::new(revision, variant.clone(), Some(tag.clone()))
            }),
            Content::Hashed { hash, payload } => {
                let tag = hash.versioned_tag(revision.get());
                let version = Version::new(revision, Variant::only(), Some(tag));
                State::Present(Version {
                    payload: payload.clone(),
                    modified,
                    ..version
                })
            }
            Content::Kept { payload } => match self.state(now) {
                State::Present(version) => State::Present(Version {
                    payload: payload.clone(),
                    ..version.clone()
                }),
                nothing => nothing.clone(),
            },
            Content::Unknown => State::Unknown,
            Content::Absent => State::Absent,
        };
        let receipt = Receipt {
            generation: state.version().map_or(revision, Version::generation),
            tag: state
                .version()
                .and_then(|version| version.tags.first().cloned()),
            created: *self.state(now) == State::Absent,
            modified: state.version().map(Version::last_modified),
        };
        // Deleting a resource drops its lease.
        let lease = lease.filter(|_| state != State::Absent);
        (
            Self {
                lease,
                ..self.with(revision, nonce, state, None, now)
            },
            receipt,
        )
    }

    /// Returns the record after a change of these parts. An ineffective lease is removed.
    fn with(
        &self,
        revision: Revision,
        nonce: u64,
        state: State,
        permit: Option<Permit>,
        now: Timestamp,
    ) -> Self {
        let lease = self.lease_at(now).copied();
        let latest = state
            .version()
            .map_or(self.latest, |version| self.latest.max(version.modified));
        Self {
            revision,
            nonce,
            state,
            permit,
            lease,
            replies: self.replies.clone(),
            latest,
            fence: self.fence,
        }
    }

    /// Returns the largest fencing token seen after a write.
    fn fence_after(&self, r#use: LeaseUse) -> Revision {
        r#use
            .token()
            .map_or(self.fence, |token| token.max(self.fence))
    }

    /// Returns the lease after a write, which removes a lease that has ended.
    fn locking_lease(&self, now: Timestamp) -> Option<Lease> {
        self.lease.filter(|lease| lease.state(now).is_locked())
    }

    /// Returns the remembered response to a request.
    fn answer(&self, request: Option<RequestId>) -> Option<&RememberedAnswer> {
        let request = request?;
        self.replies
            .iter()
            .find(|reply| reply.request == request)
            .map(|reply| &reply.answer)
    }

    /// Remembers the response to a request that has an identity.
    fn remember(
        &mut self,
        request: Option<RequestId>,
        now: Timestamp,
        answer: impl FnOnce() -> RememberedAnswer,
    ) {
        let Some(request) = request else { return };
        self.replies.retain(|reply| reply.request != request);
        self.replies.push(Reply {
            request,
            answer: answer(),
        });
        let is_old = |reply: &&Reply| reply.answer.at().until(now) >= Self::REPLY_TIME;
        let excess = |most: usize| self.replies.len().saturating_sub(most);
        let old = self
            .replies
            .iter()
            .take(excess(Self::MIN_REPLIES))
            .take_while(is_old)
            .count();
        self.replies.drain(..old.max(excess(Self::MAX_REPLIES)));
    }
}

/// The record that follows, if it changes, and the answer to the command.
type Decision = Result<(Option<Record>, Outcome), Refusal>;

/// The part of a state that preconditions may be evaluated against.
enum Known<'a> {
    /// All of it: every write goes through the register.
    All(&'a State),
    /// The probed representation: others may have changed unnoticed.
    Seen(&'a State, &'a Observation),
    /// Nothing.
    Nothing,
}

impl<'a> Known<'a> {
    fn of(state: &'a State, authority: Authority, observed: Option<&'a Observed>) -> Self {
        match (authority, observed) {
            (Authority::Register, _) => Self::All(state),
            (Authority::Resource, Some(seen)) => Self::Seen(state, &seen.observation),
            (Authority::Resource, None) => Self::Nothing,
        }
    }

    fn is_absent(&self) -> bool {
        matches!(
            self,
            Self::All(State::Absent) | Self::Seen(State::Absent, _)
        )
    }

    /// Refuses if it is unknown whether the resource exists.
    fn refuse_unknown(&self) -> Result<(), Refusal> {
        match self {
            Self::Nothing | Self::All(State::Unknown) | Self::Seen(State::Unknown, _) => {
                Err(Refusal::ProbeFirst)
            }
            _ => Ok(()),
        }
    }

    fn check(&self, method: &Method, preconditions: &Preconditions) -> Result<(), Refusal> {
        if preconditions.is_empty() {
            return Ok(());
        }
        match self {
            Self::Nothing | Self::All(State::Unknown) | Self::Seen(State::Unknown, _) => {
                Err(Refusal::ProbeFirst)
            }
            Self::All(State::Absent) | Self::Seen(State::Absent, _) => {
                evaluate(method, preconditions, None)
            }
            Self::All(State::Present(version)) => {
                evaluate(method, preconditions, Some(&version.validators()))
            }
            Self::Seen(State::Present(version), observation) => {
                let tags = match observation {
                    Observation::Present { tag: Some(tag), .. } => std::slice::from_ref(tag),
                    _ => &[],
                };
                let last_modified = Some(version.last_modified());
                evaluate(
                    method,
                    preconditions,
                    Some(&Validators {
                        tags,
                        last_modified,
                    }),
                )
            }
        }
    }
}

fn evaluate(
    method: &Method,
    preconditions: &Preconditions,
    current: Option<&Validators<'_>>,
) -> Result<(), Refusal> {
    match preconditions.evaluate(method, current) {
        Verdict::Proceed | Verdict::NotModified => Ok(()),
        Verdict::Failed(precondition) => Err(Refusal::PreconditionFailed {
            precondition,
            current: current.and_then(|validators| validators.tags.first().cloned()),
        }),
    }
}

/// An absence isn't recorded: a reader with other credentials may see the resource.
fn unless_absent(state: State) -> State {
    if state == State::Absent {
        State::Unknown
    } else {
        state
    }
}

impl Version {
    fn new(generation: Revision, variant: Variant, tag: Option<EntityTag>) -> Self {
        let variants = if tag.is_some() {
            vec![variant]
        } else {
            Vec::new()
        };
        let tags = tag.into_iter().collect();
        let modified = generation.timestamp().last_modified();
        Self {
            generation,
            tags,
            variants,
            dated: None,
            modified,
            payload: bytes::Bytes::new(),
        }
    }

    /// Returns `true` if a read without a tag confirms this version, which has no tags. If the resource may change without
    /// the register, only its own date confirms it.
    fn is_confirmed_untagged(&self, authority: Authority, seen: Option<HttpDate>) -> bool {
        let same_date = self.dated.is_some() && self.dated == seen;
        self.tags.is_empty() && (authority == Authority::Register || same_date)
    }

    fn joined_by(&self, variant: Variant, tag: EntityTag) -> Self {
        let mut version = self.clone();
        if version.tags.len() >= Self::MAX_VARIANTS {
            version.tags.remove(0);
            version.variants.remove(0);
        }
        version.tags.push(tag);
        version.variants.push(variant);
        version
    }
}
