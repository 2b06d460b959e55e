//! What a read records: the tag that it saw, in the register; and what makes a 304 of it, in the memory.

use std::sync::atomic::AtomicU64;

use http::header::{AGE, ETAG, LAST_MODIFIED};
use http::{HeaderMap, HeaderName, HeaderValue};
use ifmatch_core::EntityTag;
use ifmatch_core::command::{Command, Observation, Observed, Outcome};
use ifmatch_core::date::{HttpDate, Timestamp};
use ifmatch_core::not_modified::is_retained_by_304;
use ifmatch_core::record::{Record, Revision, State, Variant, Version};
use ifmatch_store::{Clock, Register};

use crate::freshness::Allowed;
use crate::memory::Known;
use crate::read::Reading;
use crate::variant::Vary;

/// A representation that the record has.
pub(crate) struct Seen {
    pub(crate) last_modified: HttpDate,
    generation: Revision,
    /// The revision of the record that has it, with no write in flight.
    settled: Revision,
    variant: Variant,
    vary: Vary,
    tag: EntityTag,
}

/// Records the tag of a response, unless the record has it. None: it is not recorded, since a write was in flight, or
/// took place meanwhile, or the response has no tag, or the register failed.
pub(crate) async fn note<R: Register, C: Clock>(
    reading: &Reading<'_, R, C>,
    headers: &HeaderMap,
    tag: Option<&EntityTag>,
) -> Option<Seen> {
    let vary = Vary::of(headers)?;
    let variant = vary.select(&reading.asked.head)?;
    let record = reading.looked.record.as_ref()?;
    let known = record.settled(reading.looked.at);
    let seen = |settled: Revision, version: &Version, tag: &EntityTag| Seen {
        last_modified: version.last_modified(),
        generation: version.generation(),
        settled,
        variant: variant.clone(),
        vary: vary.clone(),
        tag: tag.clone(),
    };
    let recorded = known.and_then(|version| version.tag(&variant));
    let news = match (tag, known, recorded) {
        (Some(tag), Some(version), Some(recorded)) if recorded == tag => {
            return Some(seen(record.revision(), version, tag));
        }
        (None, _, None) => return None,
        _ => Observation::Present {
            variant: variant.clone(),
            tag: tag.cloned(),
            last_modified: HttpDate::from_headers(headers, LAST_MODIFIED),
        },
    };
    let record = observe(reading, record, news).await?;
    let version = record.settled(reading.shared.now())?;
    tag.filter(|tag| version.tag(&variant) == Some(tag)).map(|tag| seen(record.revision(), version, tag))
}

/// Corrects a record of something that is no longer there.
pub(crate) async fn note_absence<R: Register, C: Clock>(reading: &Reading<'_, R, C>) {
    if let Some(record) = &reading.looked.record
        && matches!(record.state(reading.looked.at), State::Present(_))
    {
        observe(reading, record, Observation::Absent).await;
    }
}

/// The record after the observation. A record that has changed since the read began stays as it is.
async fn observe<R: Register, C: Clock>(
    reading: &Reading<'_, R, C>,
    record: &Record,
    observation: Observation,
) -> Option<Record> {
    let snapshot = record.snapshot(reading.looked.at)?;
    let observed = Observed { snapshot, observation, authority: reading.shared.config.authority };
    let command = Command::Observe(observed);
    let applied = reading.shared.answer(reading.shared.driver.apply(&reading.asked.key, &command)).await?;
    (applied.outcome == Outcome::Observed).then_some(applied.after)
}

/// Remembers what makes a 304 of the next request for the same.
pub(crate) fn remember<R: Register, C: Clock>(
    reading: &Reading<'_, R, C>,
    headers: &HeaderMap,
    allowed: &Allowed,
    seen: &Seen,
) {
    let (shared, looked) = (reading.shared, &reading.looked);
    if !allowed.stored || (!shared.is_authoritative() && allowed.lifetime <= allowed.age) {
        return;
    }
    let entry = shared.memory.get(&reading.asked.key);
    let before = entry.as_deref().and_then(|entry| entry.find(&reading.asked.head));
    // With the register's authority nothing else matters, not even the age.
    if let Some(before) = before.filter(|before| shared.is_authoritative() && seen.is_answered_by(before, headers)) {
        return before.confirm(looked.at, seen.settled);
    }
    let age = u64::try_from(allowed.age.as_micros()).unwrap_or(u64::MAX);
    let born = Timestamp::from_micros(looked.at.micros().saturating_sub(age));
    let mut fields = HeaderMap::new();
    for (name, value) in fields_of_304(headers) {
        fields.append(name, value.clone());
    }
    fields.insert(ETAG, seen.tag.to_header());
    let known = Known {
        variant: seen.variant.clone(),
        generation: seen.generation,
        tag: seen.tag.clone(),
        last_modified: seen.last_modified,
        headers: fields,
        born,
        fresh_until: born.saturating_add(allowed.lifetime),
        checked: AtomicU64::new(looked.at.micros()),
        settled: AtomicU64::new(seen.settled.get()),
    };
    shared.memory.remember(&reading.asked.key, seen.vary.clone(), known);
}

impl Seen {
    /// Whether what is remembered makes the same 304 as a response with these header fields.
    fn is_answered_by(&self, known: &Known, headers: &HeaderMap) -> bool {
        self.generation == known.generation
            && self.variant == known.variant
            && self.tag == known.tag
            && self.last_modified == known.last_modified
            && fields_of_304(headers).eq(known.headers.iter().filter(|(name, _)| **name != ETAG))
    }
}

/// The fields of a 304 in the place of a response with these fields, but for the tag: always in the same order.
fn fields_of_304(headers: &HeaderMap) -> impl Iterator<Item = (&HeaderName, &HeaderValue)> {
    headers.iter().filter(|(name, _)| is_retained_by_304(name, true) && ![ETAG, AGE].contains(name))
}
