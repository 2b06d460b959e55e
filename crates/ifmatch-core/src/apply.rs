//! The transitions: how a command changes a record. Pure: time is an argument, nothing is read or written.

mod lease;

use http::Method;

use crate::command::{
    Authority, Begin, Command, Commit, Content, Doubt, Grant, Observation, Observed, Outcome, Refusal, Transition,
    Write,
};
use crate::date::{HttpDate, Timestamp};
use crate::lease::{Lease, LeaseUse};
use crate::precondition::{Preconditions, Validators, Verdict};
use crate::record::{Answer, Permit, Receipt, Record, Reply, RequestId, Revision, State, Token, Variant, Version};
use crate::tag::EntityTag;

impl Record {
    /// Carries out a command at `now`.
    ///
    /// The result is a proposal: it holds only if `next` replaces this very revision in the register. A command
    /// that was refused, or that changes nothing, has no `next`.
    pub fn apply(&self, command: &Command<'_>, now: Timestamp) -> Transition {
        let result = match command {
            Command::Begin(begin) => self.begin(begin, now),
            Command::Commit(commit) => self.commit(commit, now),
            Command::Abort(token) => self.abort(*token, now),
            Command::Doubt(doubt) => self.doubt(*doubt, now),
            Command::Observe(observed) => self.observe(observed, now),
            Command::Write(write) => self.write(write, now),
            Command::Lease(operation) => self.operate(operation, now),
        };
        match result {
            Ok((next, outcome)) => Transition { next, outcome },
            Err(refusal) => Transition { next: None, outcome: Outcome::Refused(refusal) },
        }
    }

    fn begin(&self, begin: &Begin<'_>, now: Timestamp) -> Applied {
        // First the lease: who may not write at all need not wait for the one who may.
        self.check_lease(begin.lease, now).map_err(Refusal::Lease)?;
        self.refuse_in_flight(now)?;
        let revision = self.revision.next(now);
        let observed = self.still_true(begin.observed.as_ref());
        let state = self.seen(observed, revision, now);
        Known::of(&state, begin.authority, observed).check(begin.method, begin.preconditions)?;
        let token = Token { revision, nonce: begin.nonce };
        let deadline = self.deadline(begin, now);
        let permit = Permit { token, deadline, ttl: now.until(deadline) };
        let lease = self.lease.filter(|_| matches!(begin.lease, LeaseUse::Write(Some(_))));
        let grant = Grant { token, deadline: permit.deadline, current: state.clone(), lease };
        let state = if observed.is_some() { unless_absent(state) } else { state };
        let next = self.with(revision, begin.nonce, state, Some(permit), now);
        Ok((Some(next), Outcome::Granted(grant)))
    }

    fn commit(&self, commit: &Commit, now: Timestamp) -> Applied {
        self.holds(commit.token)?;
        let lease = self.locking_lease(now);
        let (next, receipt) = self.become_content(&commit.content, commit.token.nonce, lease, now);
        Ok((Some(next), Outcome::Written(receipt)))
    }

    fn abort(&self, token: Token, now: Timestamp) -> Applied {
        self.holds(token)?;
        let next = Self { revision: self.revision.next(now), permit: None, ..self.clone() };
        Ok((Some(next), Outcome::Released))
    }

    fn doubt(&self, doubt: Doubt, now: Timestamp) -> Applied {
        let permit = self.holds(doubt.token)?;
        let deadline = permit.deadline.min(now.saturating_add(doubt.grace));
        let mut next = Self { revision: self.revision.next(now), ..self.clone() };
        if deadline <= now {
            next.state = State::Unknown;
            next.permit = None;
            next.lease = self.locking_lease(now);
        } else {
            next.permit = Some(Permit { deadline, ..*permit });
        }
        Ok((Some(next), Outcome::Released))
    }

    fn observe(&self, observed: &Observed, now: Timestamp) -> Applied {
        if observed.snapshot.0 != self.revision || self.permit(now).is_some() {
            return Err(Refusal::Stale);
        }
        let revision = self.revision.next(now);
        let state = unless_absent(self.merge(observed, revision, now));
        let changed = state != self.state || self.permit.is_some();
        let next = changed.then(|| self.with(revision, self.nonce, state, None, now));
        Ok((next, Outcome::Observed))
    }

    fn write(&self, write: &Write<'_>, now: Timestamp) -> Applied {
        if let Some(Answer::Written(receipt)) = self.answer(write.request) {
            return Ok((None, Outcome::Replayed(receipt.clone())));
        }
        self.refuse_in_flight(now)?;
        let state = self.state(now);
        if write.content == Content::Absent && *state == State::Absent {
            return Err(Refusal::NotFound);
        }
        self.check_lease(write.lease, now).map_err(Refusal::Lease)?;
        if write.based_on.is_some() && write.based_on != state.version().map(Version::generation) {
            return Err(Refusal::Stale);
        }
        Known::All(state).check(write.method, write.preconditions)?;
        let lease = match write.lease {
            LeaseUse::Write(_) => self.locking_lease(now),
            LeaseUse::Read(_) => self.lease_at(now).copied(),
        };
        let (mut next, receipt) = self.become_content(&write.content, write.nonce, lease, now);
        next.remember(write.request, || Answer::Written(receipt.clone()));
        Ok((Some(next), Outcome::Written(receipt)))
    }

    /// What a probe saw, if nothing has changed since.
    fn still_true<'a>(&self, observed: Option<&'a Observed>) -> Option<&'a Observed> {
        observed.filter(|observed| observed.snapshot.0 == self.revision)
    }

    fn seen(&self, observed: Option<&Observed>, revision: Revision, now: Timestamp) -> State {
        match observed {
            Some(seen) => self.merge(seen, revision, now),
            None => self.state(now).clone(),
        }
    }

    /// The end of a permit: a write under a lease does not outlast it, so that its loss is the end of all it allowed.
    fn deadline(&self, begin: &Begin<'_>, now: Timestamp) -> Timestamp {
        let deadline = now.saturating_add(begin.ttl);
        let lease = self.lease.filter(|_| matches!(begin.lease, LeaseUse::Write(Some(_))));
        lease.and_then(|lease| lease.end()).map_or(deadline, |end| end.min(deadline))
    }

    /// The state after a read.
    ///
    /// The version stays the same if the read confirms the tag of its representation. The first tag of another
    /// representation joins it; whether the version is still the same is then known to the register only, so that
    /// without its authority the date moves on. Any other tag is a new version, whose other representations have not
    /// been seen yet.
    fn merge(&self, seen: &Observed, revision: Revision, now: Timestamp) -> State {
        let Observation::Present { variant, tag, last_modified } = &seen.observation else {
            return State::Absent;
        };
        let state = self.state(now);
        if let Some(version) = state.version() {
            match (version.tag(variant), tag) {
                (Some(known), Some(tag)) if known == tag => return state.clone(),
                (None, None) if version.is_confirmed_untagged(seen.authority, *last_modified) => return state.clone(),
                (None, Some(tag)) if !version.tags.is_empty() => {
                    let joined = version.joined_by(variant.clone(), tag.clone());
                    return State::Present(match seen.authority {
                        Authority::Register => joined,
                        Authority::Resource => {
                            Version { generation: revision, dated: None, modified: self.next_date(now), ..joined }
                        }
                    });
                }
                _ => {}
            }
        }
        // A date whose second is over can name no later state; any other might, and so might one that is not later than
        // every date given before.
        let over = |date: &HttpDate| date.unix() + 1 < now.last_modified().unix();
        let later = |date: &HttpDate| self.latest < *date;
        let dated = last_modified.filter(over).filter(later);
        let modified = dated.unwrap_or_else(|| self.next_date(now));
        State::Present(Version { dated, modified, ..Version::new(revision, variant.clone(), tag.clone()) })
    }

    /// Returns the date of a version created at `now`. Dates never repeat, even if the clock is behind, was set back,
    /// or differs from the clock of another process.
    fn next_date(&self, now: Timestamp) -> HttpDate {
        now.last_modified().max(self.latest.next())
    }

    /// A permit counts as long as it is in the record, even after its deadline: whoever relied on the
    /// deadline has changed the record and thereby removed it.
    fn holds(&self, token: Token) -> Result<&Permit, Refusal> {
        self.permit.as_ref().filter(|permit| permit.token == token).ok_or(Refusal::Stale)
    }

    fn refuse_in_flight(&self, now: Timestamp) -> Result<(), Refusal> {
        match self.permit(now) {
            Some(permit) => Err(Refusal::InFlight { deadline: permit.deadline }),
            None => Ok(()),
        }
    }

    fn become_content(&self, content: &Content, nonce: u64, lease: Option<Lease>, now: Timestamp) -> (Self, Receipt) {
        let revision = self.revision.next(now);
        let modified = self.next_date(now);
        let state = match content {
            Content::Tagged { variant, tag } => {
                State::Present(Version { modified, ..Version::new(revision, variant.clone(), Some(tag.clone())) })
            }
            Content::Hashed { hash, payload } => {
                let tag = hash.versioned_tag(revision.get());
                let version = Version::new(revision, Variant::only(), Some(tag));
                State::Present(Version { payload: payload.clone(), modified, ..version })
            }
            Content::Unknown => State::Unknown,
            Content::Absent => State::Absent,
        };
        let receipt = Receipt {
            generation: revision,
            tag: state.version().and_then(|version| version.tags.first().cloned()),
            created: *self.state(now) == State::Absent,
            modified: state.version().map(Version::last_modified),
        };
        // With what is gone, its lease is.
        let lease = lease.filter(|_| state != State::Absent);
        (Self { lease, ..self.with(revision, nonce, state, None, now) }, receipt)
    }

    fn with(&self, revision: Revision, nonce: u64, state: State, permit: Option<Permit>, now: Timestamp) -> Self {
        let lease = self.lease_at(now).copied();
        let latest = state.version().map_or(self.latest, |version| self.latest.max(version.modified));
        Self { revision, nonce, state, permit, lease, replies: self.replies.clone(), latest }
    }

    /// The lease after a write: one that is over is cleared away.
    fn locking_lease(&self, now: Timestamp) -> Option<Lease> {
        self.lease.filter(|lease| lease.state(now).is_locked())
    }

    fn answer(&self, request: Option<RequestId>) -> Option<&Answer> {
        let request = request?;
        self.replies.iter().find(|reply| reply.request == request).map(|reply| &reply.answer)
    }

    fn remember(&mut self, request: Option<RequestId>, answer: impl FnOnce() -> Answer) {
        let Some(request) = request else { return };
        self.replies.retain(|reply| reply.request != request);
        if self.replies.len() >= Self::MAX_REPLIES {
            self.replies.remove(0);
        }
        self.replies.push(Reply { request, answer: answer() });
    }
}

type Applied = Result<(Option<Record>, Outcome), Refusal>;

/// How much of a state conditions may be evaluated against.
enum Known<'a> {
    /// All of it: every write comes through the register.
    All(&'a State),
    /// Only the representation that a probe has just seen: the others may have changed unnoticed.
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
        matches!(self, Self::All(State::Absent) | Self::Seen(State::Absent, _))
    }

    /// Refuses what needs to be known to exist.
    fn refuse_unknown(&self) -> Result<(), Refusal> {
        match self {
            Self::Nothing | Self::All(State::Unknown) | Self::Seen(State::Unknown, _) => Err(Refusal::ProbeFirst),
            _ => Ok(()),
        }
    }

    fn check(&self, method: &Method, preconditions: &Preconditions) -> Result<(), Refusal> {
        if preconditions.is_empty() {
            return Ok(());
        }
        match self {
            Self::Nothing | Self::All(State::Unknown) | Self::Seen(State::Unknown, _) => Err(Refusal::ProbeFirst),
            Self::All(State::Absent) | Self::Seen(State::Absent, _) => evaluate(method, preconditions, None),
            Self::All(State::Present(version)) => evaluate(method, preconditions, Some(&version.validators())),
            Self::Seen(State::Present(version), observation) => {
                let tags = match observation {
                    Observation::Present { tag: Some(tag), .. } => std::slice::from_ref(tag),
                    _ => &[],
                };
                let last_modified = Some(version.last_modified());
                evaluate(method, preconditions, Some(&Validators { tags, last_modified }))
            }
        }
    }
}

fn evaluate(method: &Method, preconditions: &Preconditions, current: Option<&Validators<'_>>) -> Result<(), Refusal> {
    match preconditions.evaluate(method, current) {
        Verdict::Proceed | Verdict::NotModified => Ok(()),
        Verdict::Failed(precondition) => Err(Refusal::PreconditionFailed {
            precondition,
            current: current.and_then(|validators| validators.tags.first().cloned()),
        }),
    }
}

/// An absence is not recorded: it is what one reader saw, and another may see more.
fn unless_absent(state: State) -> State {
    if state == State::Absent { State::Unknown } else { state }
}

impl Version {
    fn new(generation: Revision, variant: Variant, tag: Option<EntityTag>) -> Self {
        let variants = if tag.is_some() { vec![variant] } else { Vec::new() };
        let tags = tag.into_iter().collect();
        let modified = generation.timestamp().last_modified();
        Self { generation, tags, variants, dated: None, modified, payload: bytes::Bytes::new() }
    }

    /// Whether a read without a tag tells that this version without tags is still the same. Where the resource may
    /// change unnoticed, only its own date can tell.
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
