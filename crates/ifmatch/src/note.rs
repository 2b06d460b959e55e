//! What a read records: the tag that it saw, in the register; and what makes a 304 of it, in the memory.

use std::sync::atomic::AtomicU64;

use http::HeaderMap;
use http::header::{AGE, ETAG, LAST_MODIFIED};
use ifmatch_core::EntityTag;
use ifmatch_core::command::{Command, Observation, Observed, Outcome};
use ifmatch_core::date::{HttpDate, Timestamp};
use ifmatch_core::not_modified::retain_304_headers;
use ifmatch_core::record::{Record, Revision, State, Variant, Version};
use ifmatch_store::{Clock, Register};

use crate::coding;
use crate::freshness::Allowed;
use crate::memory::Known;
use crate::read::Reading;
use crate::variant::Vary;

/// A representation that the record has.
pub(crate) struct Seen {
    pub(crate) last_modified: HttpDate,
    generation: Revision,
    variant: Variant,
    vary: Vary,
    tag: EntityTag,
}

/// Records the tag of a response, unless the record has it. None: it is not recorded, since a write was in flight, or
/// took place meanwhile, or the response is not for everybody, or has no tag, or the register failed.
pub(crate) async fn note<R: Register, C: Clock>(
    reading: &Reading<'_, R, C>,
    headers: &HeaderMap,
    tag: Option<&EntityTag>,
) -> Option<Seen> {
    if !Allowed::by(headers).shared {
        return None;
    }
    let vary = Vary::of(headers)?;
    let variant = vary.select(&reading.asked.head)?;
    let record = reading.looked.record.as_ref()?;
    let known = record.settled(reading.looked.at);
    let seen = |version: &Version, tag: &EntityTag| Seen {
        last_modified: version.last_modified(),
        generation: version.generation(),
        variant: variant.clone(),
        vary: vary.clone(),
        tag: tag.clone(),
    };
    let recorded = known.and_then(|version| version.tag(&variant));
    let news = match (tag, known, recorded) {
        (Some(tag), Some(version), Some(recorded)) if recorded == tag => return Some(seen(version, tag)),
        (None, _, None) => return None,
        _ => Observation::Present {
            variant: variant.clone(),
            tag: tag.cloned(),
            last_modified: HttpDate::from_headers(headers, LAST_MODIFIED),
        },
    };
    let record = observe(reading, record, news).await?;
    let version = record.settled(reading.shared.now())?;
    tag.filter(|tag| version.tag(&variant) == Some(tag)).map(|tag| seen(version, tag))
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
pub(crate) fn remember<R: Register, C: Clock>(reading: &Reading<'_, R, C>, headers: &HeaderMap, seen: &Seen) {
    let allowed = Allowed::by(headers);
    let shared = reading.shared;
    if !allowed.stored || (!shared.is_authoritative() && allowed.lifetime <= allowed.age) {
        return;
    }
    let mut headers = headers.clone();
    headers.insert(ETAG, seen.tag.to_header());
    headers.remove(AGE);
    if shared.config.behind_compression {
        coding::add_vary(&mut headers);
    }
    retain_304_headers(&mut headers);
    let age = u64::try_from(allowed.age.as_micros()).unwrap_or(u64::MAX);
    let born = Timestamp::from_micros(reading.looked.at.micros().saturating_sub(age));
    let known = Known {
        variant: seen.variant.clone(),
        generation: seen.generation,
        tag: seen.tag.clone(),
        last_modified: seen.last_modified,
        headers,
        born,
        fresh_until: born.saturating_add(allowed.lifetime),
        checked: AtomicU64::new(reading.looked.at.micros()),
    };
    let before = shared.memory.get(&reading.asked.key);
    let before = before.as_deref().and_then(|entry| entry.find(&reading.asked.head));
    match before {
        // With the register's authority nothing else matters, not even the age.
        Some(before) if shared.is_authoritative() && before.answers_like(&known) => {
            before.confirm(reading.looked.at);
        }
        _ => shared.memory.remember(&reading.asked.key, seen.vary.clone(), known),
    }
}
