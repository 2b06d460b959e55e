//! Recording the result of a read: the tag in the register, and the header fields of a 304 in memory.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use http::header::{AGE, CONTENT_ENCODING, ETAG, LAST_MODIFIED};
use http::{HeaderMap, HeaderName, HeaderValue};
use http_body::Body;
use ifmatch_core::EntityTag;
use ifmatch_core::command::{Command, Observation, Observed, Outcome};
use ifmatch_core::date::{HttpDate, Timestamp};
use ifmatch_core::fields;
use ifmatch_core::fields::compact;
use ifmatch_core::fields::not_modified::is_retained_by_304;
use ifmatch_core::record::{Record, Revision, State, Variant, Version};

use crate::memory::RememberedHead;
use crate::read::cache_control::AllowedReuse;
use crate::read::dates::DatedVersion;
use crate::read::request::{BaselineState, ReadContext};
use crate::read::revision_tag;
use crate::read::tag::TaggedResponse;
use crate::read::vary::VaryFields;

/// A representation that is in the record.
pub(crate) struct RecordedRepresentation {
    pub(crate) last_modified: HttpDate,
    /// The date as a header value, if it has been formatted already.
    date: Option<HeaderValue>,
    generation: Revision,
    /// A revision of the record with this version and no write in flight.
    settled: Revision,
    variant: Variant,
    vary: VaryFields,
    tag: EntityTag,
}

/// Records the tag of a response, unless it is in the record already.
///
/// Returns `None` if it couldn't be recorded: a write was in flight or has since taken place, the response has no tag,
/// or the register failed.
pub(crate) async fn observe(
    context: &ReadContext,
    headers: &HeaderMap,
    tag: Option<&EntityTag>,
) -> Option<RecordedRepresentation> {
    let vary = VaryFields::of(headers)?;
    let variant = context.request.select(&vary)?;
    if let BaselineState::Current(remembered, revision) = &context.baseline.state
        && remembered.variant == variant
        && Some(&remembered.tag) == tag
    {
        return Some(RecordedRepresentation::from_memory(
            remembered, *revision, vary,
        ));
    }
    if let BaselineState::Dated(dated) = &context.baseline.state {
        if dated.variant == variant && Some(&dated.tag) == tag {
            return Some(RecordedRepresentation::dated(dated, vary));
        }
        context.shared.dates.forget(&context.request.key);
        return Box::pin(current(context, variant, vary, tag?)).await;
    }
    // The rare path is boxed to keep the future small.
    let record = Box::pin(baseline_record(context)).await?;
    let known = record.settled(context.baseline.at);
    let recorded = known.and_then(|version| version.tag(&variant));
    let observation = match (tag, known, recorded) {
        (Some(tag), Some(version), Some(recorded)) if recorded == tag => {
            return Some(RecordedRepresentation::from_record(
                version,
                record.revision(),
                variant,
                vary,
                tag,
            ));
        }
        (None, _, None) => return None,
        _ => Observation::Present {
            variant: variant.clone(),
            tag: tag.cloned(),
            last_modified: HttpDate::from_headers(headers, LAST_MODIFIED),
        },
    };
    let record = Box::pin(apply(context, &record, observation)).await?;
    let version = record.settled(context.shared.now())?;
    let tag = tag.filter(|tag| version.tag(&variant) == Some(tag))?;
    Some(RecordedRepresentation::from_record(
        version,
        record.revision(),
        variant,
        vary,
        tag,
    ))
}

/// Returns the version that the register has now, if it has this tag. A writer has recorded it.
///
/// Nothing is recorded here: the register wasn't asked when the read began, so a write may have taken place since.
async fn current(
    context: &ReadContext,
    variant: Variant,
    vary: VaryFields,
    tag: &EntityTag,
) -> Option<RecordedRepresentation> {
    let record = context
        .shared
        .for_read(context.shared.driver.load(&context.request.key))
        .await?;
    let version = record
        .settled(context.shared.now())
        .filter(|version| version.tag(&variant) == Some(tag))?;
    Some(RecordedRepresentation::from_record(
        version,
        record.revision(),
        variant,
        vary,
        tag,
    ))
}

/// Takes note of the date of a response, for reads that need nothing else of the register, unless the register can be asked without
/// waiting.
pub(crate) fn note_date(context: &ReadContext, recorded: &RecordedRepresentation) {
    let ReadContext {
        shared,
        request,
        baseline,
    } = context;
    let has_loaded = matches!(baseline.state, BaselineState::Record(_));
    if has_loaded
        && !shared.is_authoritative()
        && shared.driver.revision_at_once(&request.key).is_none()
    {
        let RecordedRepresentation {
            vary,
            variant,
            tag,
            last_modified,
            ..
        } = recorded;
        let dated = DatedVersion::new(
            vary.clone(),
            variant.clone(),
            tag.clone(),
            *last_modified,
            baseline.at,
        );
        shared.dates.note(&request.key, dated);
    }
}

/// Returns the tag of a representation that is too long to hash: the recorded one if it fits, otherwise the one in the
/// record's revision at the beginning of the read.
pub(crate) fn tag_of_revision<T: Body>(
    context: &ReadContext,
    tagged: &TaggedResponse<T>,
) -> Option<EntityTag> {
    let variant = context
        .request
        .select(&VaryFields::of(&tagged.head.headers)?)?;
    let long = tagged.too_long(&variant)?;
    let (recorded, revision) = match &context.baseline.state {
        BaselineState::Unavailable | BaselineState::Dated(_) => return None,
        BaselineState::Current(remembered, revision) => (
            Some(&remembered.tag).filter(|_| remembered.variant == variant),
            *revision,
        ),
        BaselineState::Record(record) => {
            let version = record.settled(context.baseline.at);
            (
                version.and_then(|version| version.tag(&variant)),
                record.revision(),
            )
        }
    };
    long.recognize(recorded)
        .cloned()
        .or_else(|| long.tag(revision))
}

/// Returns `true` if the record still has the tag, and no write is in flight. A hash names its bytes at any time, but a tag of a
/// revision only those before the next write, which may have taken effect between the beginning of the read and its response.
pub(crate) async fn is_undisturbed(
    context: &ReadContext,
    recorded: &RecordedRepresentation,
) -> bool {
    let ReadContext {
        shared, request, ..
    } = context;
    // First: a write that ends in between has changed the record.
    if shared.unguarded.is_in_flight(&request.key) {
        return false;
    }
    let record = shared.for_read(shared.driver.load(&request.key)).await;
    let version = record
        .as_ref()
        .and_then(|record| record.settled(shared.now()));
    version.is_some_and(|version| version.tag(&recorded.variant) == Some(&recorded.tag))
}

/// Records that the resource is gone.
pub(crate) async fn observe_absence(context: &ReadContext) {
    context.shared.dates.forget(&context.request.key);
    if let Some(record) = baseline_record(context).await
        && matches!(record.state(context.baseline.at), State::Present(_))
    {
        apply(context, &record, Observation::Absent).await;
    }
}

/// Returns the record at the beginning of the read, or `None` if it has changed since or the register failed.
async fn baseline_record(context: &ReadContext) -> Option<Cow<'_, Record>> {
    match &context.baseline.state {
        BaselineState::Unavailable | BaselineState::Dated(_) => None,
        BaselineState::Record(record) => Some(Cow::Borrowed(record)),
        BaselineState::Current(_, revision) => {
            let record = context
                .shared
                .for_read(context.shared.driver.load(&context.request.key))
                .await?;
            (record.revision() == *revision).then_some(Cow::Owned(record))
        }
    }
}

/// Applies an observation and returns the record after it. A record that has changed since the read began stays as it
/// is, and is returned only if it may have the tag of the revision at which the read began: it has seen no write then.
async fn apply(context: &ReadContext, record: &Record, observation: Observation) -> Option<Record> {
    let ReadContext {
        shared,
        request,
        baseline,
    } = context;
    let snapshot = record.snapshot(baseline.at)?;
    let is_of_revision = match &observation {
        Observation::Present { tag: Some(tag), .. } => revision_tag::is_of(tag, record.revision()),
        _ => false,
    };
    let command = Command::Observe(Observed::new(
        snapshot,
        observation,
        shared.config.authority,
    ));
    let applied = shared
        .for_read(shared.driver.apply(&request.key, &command))
        .await?;
    (applied.outcome == Outcome::Observed || is_of_revision).then_some(applied.after)
}

/// Returns the remembered response, if a response with these header fields is the same: then there is nothing to record.
pub(crate) fn remembered<'a>(
    context: &'a ReadContext,
    headers: &HeaderMap,
) -> Option<&'a RememberedHead> {
    let BaselineState::Current(remembered, _) = &context.baseline.state else {
        return None;
    };
    let shared = &context.shared;
    if !shared.is_authoritative()
        || shared.config.behind_compression
        || fields::has(headers, &CONTENT_ENCODING)
    {
        return None;
    }
    let has_its_tag = fields::lines(headers, ETAG)
        .map(HeaderValue::as_bytes)
        .eq([remembered.tag.as_bytes()]);
    (has_its_tag && has_same_304(remembered, headers)).then_some(remembered)
}

/// Stores the header fields of a 304 for the next request that selects the same representation.
pub(crate) fn remember(
    context: &ReadContext,
    headers: &HeaderMap,
    reuse: &AllowedReuse,
    recorded: &RecordedRepresentation,
) {
    let ReadContext {
        shared,
        request,
        baseline,
    } = context;
    // For a 304 from memory, the register must have had the version when the response was made.
    if matches!(baseline.state, BaselineState::Dated(_)) {
        return;
    }
    if !reuse.may_be_stored || (!shared.is_authoritative() && reuse.lifetime <= reuse.age) {
        return;
    }
    let before = match &baseline.state {
        BaselineState::Current(remembered, _) => Some(Arc::clone(remembered)),
        _ => shared.memory.get(&request.key).and_then(|entry| {
            let remembered = entry.find(request.query.as_deref(), &request.headers);
            remembered.cloned()
        }),
    };
    // With an authoritative register nothing else counts, not even the age.
    if let Some(before) =
        before.filter(|before| shared.is_authoritative() && recorded.is_same(before, headers))
    {
        return before.confirm(baseline.at, recorded.settled);
    }
    let age = u64::try_from(reuse.age.as_micros()).unwrap_or(u64::MAX);
    let born = Timestamp::from_micros(baseline.at.micros().saturating_sub(age));
    let mut fields = HeaderMap::new();
    for (name, value) in fields_of_304(headers) {
        fields.append(name, value.clone());
    }
    fields.insert(ETAG, recorded.tag.to_header());
    let remembered = RememberedHead {
        variant: recorded.variant.clone(),
        generation: recorded.generation,
        tag: recorded.tag.clone(),
        last_modified: recorded.last_modified,
        date: recorded.date(),
        headers: compact(&fields, 0),
        born,
        fresh_until: born.saturating_add(reuse.lifetime),
        checked: AtomicU64::new(baseline.at.micros()),
        settled: AtomicU64::new(recorded.settled.get()),
    };
    shared
        .memory
        .remember(&request.key, recorded.vary.clone(), remembered);
}

impl RecordedRepresentation {
    fn from_memory(remembered: &RememberedHead, settled: Revision, vary: VaryFields) -> Self {
        Self {
            last_modified: remembered.last_modified,
            date: Some(remembered.date.clone()),
            generation: remembered.generation,
            settled,
            variant: remembered.variant.clone(),
            vary,
            tag: remembered.tag.clone(),
        }
    }

    /// A version with a date that the register has reported.
    fn dated(dated: &DatedVersion, vary: VaryFields) -> Self {
        Self {
            last_modified: dated.last_modified,
            date: Some(dated.value.clone()),
            generation: Revision::NONE,
            settled: Revision::NONE,
            variant: dated.variant.clone(),
            vary,
            tag: dated.tag.clone(),
        }
    }

    fn from_record(
        version: &Version,
        settled: Revision,
        variant: Variant,
        vary: VaryFields,
        tag: &EntityTag,
    ) -> Self {
        let (last_modified, generation) = (version.last_modified(), version.generation());
        Self {
            last_modified,
            date: None,
            generation,
            settled,
            variant,
            vary,
            tag: tag.clone(),
        }
    }

    /// Returns the value of `Last-Modified`.
    pub(crate) fn date(&self) -> HeaderValue {
        self.date
            .clone()
            .unwrap_or_else(|| self.last_modified.to_header())
    }

    /// Returns `true` if the remembered response makes the same 304 as a response with these header fields.
    fn is_same(&self, remembered: &RememberedHead, headers: &HeaderMap) -> bool {
        self.generation == remembered.generation
            && self.variant == remembered.variant
            && self.tag == remembered.tag
            && self.last_modified == remembered.last_modified
            && has_same_304(remembered, headers)
    }
}

/// Compares the header fields of the 304s, except for the tag.
fn has_same_304(remembered: &RememberedHead, headers: &HeaderMap) -> bool {
    fields_of_304(headers).eq(remembered.headers.iter().filter(|(name, _)| **name != ETAG))
}

/// Returns the header fields of a 304 in place of a response with these fields, except for the tag, in a stable order.
fn fields_of_304(headers: &HeaderMap) -> impl Iterator<Item = (&HeaderName, &HeaderValue)> {
    headers
        .iter()
        .filter(|(name, _)| **name != ETAG && **name != AGE && is_retained_by_304(name, true))
}
