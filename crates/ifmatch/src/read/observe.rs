//! What a read records: the tag that it saw, in the register; and what makes a 304 of it, in the memory.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use http::header::{AGE, CONTENT_ENCODING, ETAG, LAST_MODIFIED};
use http::{HeaderMap, HeaderName, HeaderValue};
use ifmatch_core::EntityTag;
use ifmatch_core::command::{Command, Observation, Observed, Outcome};
use ifmatch_core::date::{HttpDate, Timestamp};
use ifmatch_core::fields;
use ifmatch_core::fields::not_modified::is_retained_by_304;
use ifmatch_core::record::{Record, Revision, State, Variant, Version};
use ifmatch_register::Register;
use ifmatch_runtime::Clock;

use crate::memory::Known;
use crate::read::cache_control::Allowed;
use crate::read::vary::Vary;
use crate::read::{Confirmed, Found, Reading};

/// A representation that the record has.
pub(crate) struct Seen {
    pub(crate) last_modified: HttpDate,
    /// The date as a header field, where that is at hand.
    date: Option<HeaderValue>,
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
    reading: &Reading<R, C>,
    headers: &HeaderMap,
    tag: Option<&EntityTag>,
) -> Option<Seen> {
    let vary = Vary::of(headers)?;
    let variant = reading.asked.select(&vary)?;
    if let Found::Confirmed(Confirmed { known, revision }) = &reading.looked.found
        && known.variant == variant
        && Some(&known.tag) == tag
    {
        return Some(Seen::remembered(known, *revision, vary));
    }
    // Boxed, as all that a read does seldom: what is not in its future needs not be moved with it.
    let record = Box::pin(reading.record()).await?;
    let known = record.settled(reading.looked.at);
    let recorded = known.and_then(|version| version.tag(&variant));
    let news = match (tag, known, recorded) {
        (Some(tag), Some(version), Some(recorded)) if recorded == tag => {
            return Some(Seen::recorded(version, record.revision(), variant, vary, tag));
        }
        (None, _, None) => return None,
        _ => Observation::Present {
            variant: variant.clone(),
            tag: tag.cloned(),
            last_modified: HttpDate::from_headers(headers, LAST_MODIFIED),
        },
    };
    let record = Box::pin(observe(reading, &record, news)).await?;
    let version = record.settled(reading.shared.now())?;
    let tag = tag.filter(|tag| version.tag(&variant) == Some(tag))?;
    Some(Seen::recorded(version, record.revision(), variant, vary, tag))
}

/// What is remembered of the representation, if a response with these header fields says nothing else: there is nothing to
/// record then.
pub(crate) fn remembered<'a, R: Register, C: Clock>(
    reading: &'a Reading<R, C>,
    headers: &HeaderMap,
) -> Option<&'a Known> {
    let Found::Confirmed(Confirmed { known, .. }) = &reading.looked.found else { return None };
    let shared = &reading.shared;
    let counts = shared.is_authoritative() && !shared.config.behind_compression;
    (counts && is_of(known, headers)).then_some(known)
}

/// Corrects a record of something that is no longer there.
pub(crate) async fn note_absence<R: Register, C: Clock>(reading: &Reading<R, C>) {
    if let Some(record) = reading.record().await
        && matches!(record.state(reading.looked.at), State::Present(_))
    {
        observe(reading, &record, Observation::Absent).await;
    }
}

impl<R: Register, C: Clock> Reading<R, C> {
    /// The record as it was when the read began. None: it has changed since, or the register failed.
    async fn record(&self) -> Option<Cow<'_, Record>> {
        match &self.looked.found {
            Found::Nothing => None,
            Found::Record(record) => Some(Cow::Borrowed(record)),
            Found::Confirmed(Confirmed { revision, .. }) => {
                let record = self.shared.answer(self.shared.driver.load(&self.asked.key)).await?;
                (record.revision() == *revision).then_some(Cow::Owned(record))
            }
        }
    }
}

/// The record after the observation. A record that has changed since the read began stays as it is.
async fn observe<R: Register, C: Clock>(
    reading: &Reading<R, C>,
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
    reading: &Reading<R, C>,
    headers: &HeaderMap,
    allowed: &Allowed,
    seen: &Seen,
) {
    let Reading { shared, asked, looked } = reading;
    if !allowed.stored || (!shared.is_authoritative() && allowed.lifetime <= allowed.age) {
        return;
    }
    let before = match &looked.found {
        Found::Confirmed(Confirmed { known, .. }) => Some(Arc::clone(known)),
        _ => shared.memory.get(&asked.key).and_then(|entry| {
            let known = entry.find(asked.query.as_deref(), &asked.headers);
            known.cloned()
        }),
    };
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
        date: seen.date(),
        headers: fields,
        born,
        fresh_until: born.saturating_add(allowed.lifetime),
        checked: AtomicU64::new(looked.at.micros()),
        settled: AtomicU64::new(seen.settled.get()),
    };
    shared.memory.remember(&asked.key, seen.vary.clone(), known);
}

impl Seen {
    fn remembered(known: &Known, settled: Revision, vary: Vary) -> Self {
        Self {
            last_modified: known.last_modified,
            date: Some(known.date.clone()),
            generation: known.generation,
            settled,
            variant: known.variant.clone(),
            vary,
            tag: known.tag.clone(),
        }
    }

    fn recorded(version: &Version, settled: Revision, variant: Variant, vary: Vary, tag: &EntityTag) -> Self {
        let (last_modified, generation) = (version.last_modified(), version.generation());
        Self { last_modified, date: None, generation, settled, variant, vary, tag: tag.clone() }
    }

    /// The modification date as a header field has it.
    pub(crate) fn date(&self) -> HeaderValue {
        self.date.clone().unwrap_or_else(|| self.last_modified.to_header())
    }

    /// Whether what is remembered makes the same 304 as a response with these header fields.
    fn is_answered_by(&self, known: &Known, headers: &HeaderMap) -> bool {
        self.generation == known.generation
            && self.variant == known.variant
            && self.tag == known.tag
            && self.last_modified == known.last_modified
            && is_304_of(known, headers)
    }
}

/// Whether what is remembered is of a response with these header fields, which has its own tag.
fn is_of(known: &Known, headers: &HeaderMap) -> bool {
    let tags = fields::lines(headers, ETAG).map(HeaderValue::as_bytes);
    tags.eq([known.tag.as_bytes()]) && !fields::has(headers, &CONTENT_ENCODING) && is_304_of(known, headers)
}

/// Whether what is remembered makes the same 304 as a response with these header fields, but for the tag.
fn is_304_of(known: &Known, headers: &HeaderMap) -> bool {
    fields_of_304(headers).eq(known.headers.iter().filter(|(name, _)| **name != ETAG))
}

/// The fields of a 304 in the place of a response with these fields, but for the tag: always in the same order.
fn fields_of_304(headers: &HeaderMap) -> impl Iterator<Item = (&HeaderName, &HeaderValue)> {
    headers.iter().filter(|(name, _)| **name != ETAG && **name != AGE && is_retained_by_304(name, true))
}
