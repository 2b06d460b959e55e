//! The record of one resource: its state, its lease, the write in flight, and a revision that only grows.

#[cfg(feature = "encoding")]
mod encoding;

use std::time::Duration;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::date::{HttpDate, Timestamp};
use crate::digest::ContentHash;
use crate::lease::{Lease, LeaseFailure, LeaseReceipt, LeaseState, LeaseUse, SeenLease};
use crate::precondition::Validators;
use crate::tag::EntityTag;

#[cfg(feature = "encoding")]
pub use encoding::{DecodeError, DecodeErrorKind};

pub use crate::revision::Revision;

/// Size in memory of an allocation beyond its content, in bytes.
const ALLOCATION: usize = 32;

/// Identifies a grant. `Renew`, `Commit`, `Abort` and `Doubt` must present it.
///
/// The revision is the fencing token: it is larger than in every earlier grant for the resource. The nonce
/// distinguishes grants that two processes computed from the same record in the same microsecond.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Token {
    /// The revision of the grant. Pass it to a store that fences late writers.
    pub revision: Revision,
    /// The random number of this grant.
    pub nonce: u64,
}

/// The write in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Permit {
    /// The token of the grant.
    pub token: Token,
    /// When the permit expires. The state is [`State::Unknown`] from then on.
    pub deadline: Timestamp,
    /// Duration of the grant.
    pub ttl: Duration,
}

/// The request header fields that select one representation of a resource. Empty if the response has no `Vary`.
///
/// The text consists of header lines (`accept-encoding: gzip`), so a probe can request the same representation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Variant(pub Box<str>);

impl Variant {
    /// Returns the variant of a resource with a single representation.
    pub fn only() -> Self {
        Self::default()
    }
}

/// A version of a resource.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Version {
    /// The revision that created this version.
    pub(crate) generation: Revision,
    /// The tags of its representations, parallel to `variants`.
    pub(crate) tags: Vec<EntityTag>,
    pub(crate) variants: Vec<Variant>,
    /// The date given by the resource itself, if it is strong.
    pub(crate) dated: Option<HttpDate>,
    /// Modification date, unique among the versions of the resource.
    pub(crate) modified: HttpDate,
    pub(crate) payload: Bytes,
}

impl Version {
    /// Maximum number of representations remembered for one version. The oldest is dropped first.
    pub const MAX_VARIANTS: usize = 16;

    /// Returns the revision that created this version. It differs for every write, even of the same bytes.
    pub fn generation(&self) -> Revision {
        self.generation
    }

    /// Returns the tags of all known representations.
    pub fn tags(&self) -> &[EntityTag] {
        &self.tags
    }

    /// Returns the tag of one representation.
    pub fn tag(&self, variant: &Variant) -> Option<&EntityTag> {
        self.variants
            .iter()
            .position(|known| known == variant)
            .map(|at| &self.tags[at])
    }

    /// Returns the variant with this tag.
    pub fn variant_of(&self, tag: &EntityTag) -> Option<&Variant> {
        self.tags
            .iter()
            .position(|known| known == tag)
            .map(|at| &self.variants[at])
    }

    /// Returns the modification date: the time rounded up to the next second (see [`Timestamp::last_modified`]), or the
    /// resource's own date if that was already past when it was observed. It is at least a second later than the date
    /// of every earlier version. So a date identifies one version despite its one-second resolution, even if
    /// clocks go back.
    ///
    /// Don't send it before that second has come.
    pub fn last_modified(&self) -> HttpDate {
        self.modified
    }

    /// Returns the application data stored with this version, for example a body's name and headers.
    pub fn payload(&self) -> &Bytes {
        &self.payload
    }

    /// Returns the validators that preconditions are evaluated against.
    pub fn validators(&self) -> Validators<'_> {
        Validators {
            tags: &self.tags,
            last_modified: Some(self.last_modified()),
        }
    }
}

/// The known state of a resource.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum State {
    /// Unknown: never seen, or a write ended without a response. A probe of the resource determines it.
    Unknown,
    /// The resource doesn't exist.
    Absent,
    /// The resource exists, in this version.
    Present(Version),
}

impl State {
    /// Returns the version, if one is known to exist.
    pub fn version(&self) -> Option<&Version> {
        match self {
            Self::Present(version) => Some(version),
            Self::Unknown | Self::Absent => None,
        }
    }
}

/// The identity of a request, shared by its retries only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct RequestId([u8; 16]);

impl RequestId {
    /// Creates the identity of a request from everything that distinguishes it, for example the client's request id, the
    /// method and the content hash.
    ///
    /// ```
    /// use ifmatch_core::record::RequestId;
    /// assert_eq!(RequestId::of(&[b"id", b"PUT"]), RequestId::of(&[b"id", b"PUT"]));
    /// assert_ne!(RequestId::of(&[b"id", b"PUT"]), RequestId::of(&[b"idP", b"UT"]));
    /// ```
    pub fn of(parts: &[&[u8]]) -> Self {
        let mut text = Vec::new();
        for part in parts {
            text.extend_from_slice(&(part.len() as u64).to_be_bytes());
            text.extend_from_slice(part);
        }
        let mut id = [0; 16];
        id.copy_from_slice(&ContentHash::of(&text).as_bytes()[..16]);
        Self(id)
    }

    /// Returns the bytes of the identity, for a store that keeps it with the written data.
    pub const fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }
}

/// The result of a successful write, kept so that retries get the same response.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Receipt {
    /// The revision of the write.
    pub generation: Revision,
    /// The new tag, or `None` for a deletion.
    pub tag: Option<EntityTag>,
    /// `true` if the resource was absent before.
    pub created: bool,
    /// Modification date of the version, `None` for a deletion.
    pub modified: Option<HttpDate>,
}

/// The response to a request, remembered for its retries.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Reply {
    pub(crate) request: RequestId,
    pub(crate) answer: RememberedAnswer,
}

/// The result that the first attempt of a request had.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) enum RememberedAnswer {
    Written(Receipt),
    Leased(LeaseReceipt),
    /// A write at this time that kept the version, so the receipt tells the version's time. Last, so earlier records stay readable.
    Kept(Receipt, Timestamp),
}

impl RememberedAnswer {
    /// Returns when the change was made.
    pub(crate) const fn at(&self) -> Timestamp {
        match self {
            Self::Written(receipt) => receipt.generation.timestamp(),
            Self::Leased(receipt) => receipt.at,
            Self::Kept(_, at) => *at,
        }
    }
}

/// The record of one resource.
///
/// A record never changes in place: [`Record::apply`] computes the next one, and a register swaps it
/// in if the revision is still the expected one.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Record {
    pub(crate) revision: Revision,
    /// The random number of the last writer. It distinguishes otherwise equal records of racing writers, so a writer
    /// with an ambiguous swap can recognise its own record.
    pub(crate) nonce: u64,
    pub(crate) state: State,
    pub(crate) permit: Option<Permit>,
    pub(crate) lease: Option<Lease>,
    pub(crate) replies: Vec<Reply>,
    /// Latest date of any version.
    pub(crate) latest: HttpDate,
    /// Largest fencing token of any lease of this resource, and of any write that named one.
    pub(crate) fence: Revision,
}

/// Marks the beginning of a read while no write was in flight. The result of the read may be recorded as long as the
/// record hasn't changed since.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Snapshot(pub(crate) Revision);

impl Record {
    /// Number of responses that are remembered for retries, whatever their age. The oldest is dropped first.
    pub const MIN_REPLIES: usize = 4;
    /// Maximum number of responses remembered for retries, about 130 bytes each.
    pub const MAX_REPLIES: usize = 128;
    /// Time during which a response is remembered, unless [`MAX_REPLIES`](Self::MAX_REPLIES) later ones replace it.
    pub const REPLY_TIME: Duration = Duration::from_secs(10);

    /// Creates the record of a resource that was never requested.
    pub const fn unknown() -> Self {
        Self::initial(State::Unknown)
    }

    /// Creates the record of a resource in a store where no record means no resource.
    pub const fn absent() -> Self {
        Self::initial(State::Absent)
    }

    /// Creates the record of a resource that a register evicted at `revision` or earlier. Use [`dated`](Self::dated) to
    /// set the latest date of its versions.
    ///
    /// A register that evicts records which still matter returns this one. A read that began before the eviction then
    /// can't pass for a later one, and dates never repeat.
    pub fn forgotten(revision: Revision) -> Self {
        Self {
            revision,
            ..Self::unknown()
        }
    }

    /// Returns the record as it must be read if later ones may have been lost, up to revision `lost`: the version is
    /// unknown, and whatever was derived from the record's revision no longer applies. A write in flight keeps its
    /// permit, and a lease remains.
    ///
    /// ```
    /// use ifmatch_core::record::{Record, Revision, State};
    /// let doubted = Record::absent().doubted(Revision::new(7));
    /// assert_eq!((doubted.state(doubted.revision().timestamp()), doubted.revision()), (&State::Unknown, Revision::new(7)));
    /// ```
    #[must_use]
    pub fn doubted(mut self, lost: Revision) -> Self {
        self.state = State::Unknown;
        self.revision = self.revision.max(lost);
        self
    }

    /// Sets the latest date of the resource's versions (see [`Record::latest_date`]) unless it is later already.
    #[must_use]
    pub fn dated(mut self, latest: HttpDate) -> Self {
        self.latest = self.latest.max(latest);
        self
    }

    const fn initial(state: State) -> Self {
        Self {
            revision: Revision::NONE,
            nonce: 0,
            state,
            permit: None,
            lease: None,
            replies: Vec::new(),
            latest: HttpDate::MIN,
            fence: Revision::NONE,
        }
    }

    /// Returns the latest modification date of any version, or [`HttpDate::MIN`] if there was none.
    pub fn latest_date(&self) -> HttpDate {
        self.latest
    }

    /// Returns the largest fencing token of any lease of this resource, and of any write that named one. A write that names a
    /// smaller one is refused.
    pub fn fence(&self) -> Revision {
        self.fence
    }

    /// Returns the revision, which a register compares.
    pub fn revision(&self) -> Revision {
        self.revision
    }

    /// Returns the state at `now`. It is unknown once a permit has expired.
    pub fn state(&self, now: Timestamp) -> &State {
        match &self.permit {
            Some(permit) if permit.deadline <= now => &State::Unknown,
            _ => &self.state,
        }
    }

    /// Returns the write in flight at `now`. Its remaining time never exceeds the granted duration, even if a clock that is
    /// ahead granted it.
    pub fn permit(&self, now: Timestamp) -> Option<Permit> {
        let permit = self.permit.filter(|permit| permit.deadline > now)?;
        Some(Permit {
            deadline: permit.deadline.min(now.saturating_add(permit.ttl)),
            ..permit
        })
    }

    /// Returns `true` if a command other than the permit's own has changed the record since the permit was granted.
    pub fn is_disturbed(&self, permit: Token) -> bool {
        self.nonce != permit.nonce
    }

    /// Returns the version that a reader may rely on at `now`, or `None` while a write is in flight, which may already have
    /// taken effect.
    pub fn settled(&self, now: Timestamp) -> Option<&Version> {
        if self.permit.is_some() {
            None
        } else {
            self.state(now).version()
        }
    }

    /// Marks the beginning of a read. Returns `None` while a write is in flight, because the read may see its effect or
    /// miss it.
    pub fn snapshot(&self, now: Timestamp) -> Option<Snapshot> {
        self.permit(now)
            .is_none()
            .then_some(Snapshot(self.revision))
    }

    /// Returns the lease, even if it has ended and wasn't yet removed. See [`Record::lease_state`].
    pub fn lease(&self) -> Option<&Lease> {
        self.lease.as_ref()
    }

    /// Returns the lease along with `now`, the time at which this record was read, by the clock that ends the lease.
    /// Like [`Record::lease`], it may have ended.
    pub fn seen_lease(&self, now: Timestamp) -> Option<SeenLease> {
        self.lease.map(|lease| SeenLease { lease, at: now })
    }

    /// Returns the state of the lease at `now`.
    pub fn lease_state(&self, now: Timestamp) -> LeaseState {
        crate::lease::state(self.lease_at(now), now)
    }

    /// Returns the effective lease at `now`. A write that ran out of time may have changed the resource after the lease
    /// stopped locking it: a lease that has ended is then gone and can't be renewed.
    pub(crate) fn lease_at(&self, now: Timestamp) -> Option<&Lease> {
        let overdue = self.permit.is_some_and(|permit| permit.deadline <= now);
        self.lease
            .as_ref()
            .filter(|lease| !overdue || lease.state(now).is_locked())
    }

    /// Checks a request against the lease at `now`, and its fencing token, if it names one, against the largest one seen.
    /// Writes are checked again in one step with their preconditions; reads are checked only here.
    ///
    /// # Errors
    /// [`LeaseFailure`]: 412.
    pub fn check_lease(&self, r#use: LeaseUse, now: Timestamp) -> Result<(), LeaseFailure> {
        crate::lease::check(self.lease_at(now), r#use, now)?;
        match r#use.token() {
            Some(token) if token < self.fence => Err(LeaseFailure::Superseded),
            _ => Ok(()),
        }
    }

    /// Returns `true` if a register may evict this record once it is older than the retention for tombstones: it
    /// records only that the resource is absent or unknown, and all its dates are past.
    pub fn is_forgettable(&self, now: Timestamp) -> bool {
        self.is_idle(now) && self.state(now).version().is_none() && self.latest.has_come(now)
    }

    /// Returns `true` if a register that only caches state that a probe would find again may evict this record: no write is
    /// in flight, and no lease locks the resource. Such a register keeps the latest date, see [`Record::forgotten`].
    pub fn is_idle(&self, now: Timestamp) -> bool {
        self.permit(now).is_none() && !self.lease_state(now).is_locked()
    }

    /// Returns the approximate size in memory, in bytes.
    pub fn size(&self) -> usize {
        let tag = |tag: &EntityTag| tag.as_bytes().len() + ALLOCATION;
        let version = self.state.version().map_or(0, |version| {
            let variants: usize = version
                .variants
                .iter()
                .map(|variant| size_of_val(variant) + variant.0.len())
                .sum();
            let tags: usize = version
                .tags
                .iter()
                .map(|each| size_of_val(each) + tag(each))
                .sum();
            variants + tags + version.payload.len()
        });
        let replies = self.replies.iter().map(|reply| match &reply.answer {
            RememberedAnswer::Written(receipt) | RememberedAnswer::Kept(receipt, _) => {
                size_of_val(reply) + receipt.tag.as_ref().map_or(0, tag)
            }
            RememberedAnswer::Leased(_) => size_of_val(reply),
        });
        size_of::<Self>() + version + replies.sum::<usize>()
    }
}

/// A deadline further away than the granted time, written by a clock ahead of this one.
///
/// Neither clock can be trusted in this case. The grant was certainly running when the deadline was first seen. A
/// process that sees it unchanged for the granted time, by an interval clock, knows that the grant has ended.
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
        let permit = self
            .permit
            .map(|permit| (Overlong::Permit(permit.token), permit.deadline, permit.ttl));
        let lease = self.lease.and_then(|lease| {
            let end = lease.end()?;
            Some((Overlong::Lease(lease.token(), end), end, lease.longest()?))
        });
        let is_overlong =
            move |deadline, given: Duration| now.until(deadline) > given.saturating_add(given / 10);
        let found = [permit, lease].into_iter().flatten();
        found
            .filter(move |(_, deadline, given)| is_overlong(*deadline, *given))
            .map(|(what, _, given)| (what, given))
    }

    /// Returns the record without a deadline that was seen unchanged for the whole granted time, and so has passed.
    #[must_use]
    pub fn without_overlong(mut self, overlong: Overlong, now: Timestamp) -> Self {
        match overlong {
            Overlong::Permit(token) => {
                self.permit
                    .iter_mut()
                    .filter(|permit| permit.token == token)
                    .for_each(|permit| permit.deadline = now);
            }
            Overlong::Lease(token, end) => {
                let same = self
                    .lease
                    .iter_mut()
                    .filter(|lease| lease.token() == token && lease.end() == Some(end));
                same.for_each(|lease| lease.end_at(now));
            }
        }
        self
    }
}
