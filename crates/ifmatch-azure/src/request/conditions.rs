//! Conditional headers by Azure's rules, translated into preconditions.

use http::header::{IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_UNMODIFIED_SINCE};
use http::{HeaderMap, HeaderName, Method, StatusCode};
use ifmatch_blob::store::BlobInfo;
use ifmatch_blob::tags::TagCondition;
use ifmatch_core::EntityTag;
use ifmatch_core::date::HttpDate;
use ifmatch_core::lease::{LeaseUse, SeenLease};
use ifmatch_core::policy::RequirePreconditions;
use ifmatch_core::precondition::{Preconditions, Verdict};
use ifmatch_core::tag::TagList;

use super::headers::one;
use crate::error::AzureError;

/// Parses the conditions of a read, which allows any combination.
pub(super) fn of_read(headers: &HeaderMap) -> Result<Preconditions, AzureError> {
    Ok(Preconditions {
        if_match: tags(headers, IF_MATCH, Many::Allowed)?,
        if_unmodified_since: date(headers, &IF_UNMODIFIED_SINCE)?,
        if_none_match: tags(headers, IF_NONE_MATCH, Many::Allowed)?,
        if_modified_since: date(headers, &IF_MODIFIED_SINCE)?,
    })
}

/// Evaluates the conditions of a read: `If-Match && If-Unmodified-Since && (If-None-Match || If-Modified-Since)`.
///
/// Core evaluates each header separately: in Azure's rules no header overrides another, unlike in RFC 9110.
pub(crate) fn evaluate_read(
    conditions: &Preconditions,
    info: &BlobInfo,
) -> Result<Verdict, AzureError> {
    if conditions.if_none_match == Some(TagList::Any) {
        let message = "If-None-Match: * is never true for a blob that exists";
        return Err(AzureError::bad_request("UnsatisfiableCondition", message));
    }
    let none = Preconditions::default;
    let verdict = |alone: Preconditions| alone.evaluate(&Method::GET, Some(&info.validators()));
    let guards = [
        Preconditions {
            if_match: conditions.if_match.clone(),
            ..none()
        },
        Preconditions {
            if_unmodified_since: conditions.if_unmodified_since,
            ..none()
        },
    ];
    let guards = guards.map(verdict);
    if let Some(failed) = guards
        .into_iter()
        .find(|verdict| *verdict != Verdict::Proceed)
    {
        return Ok(failed);
    }
    let changes = [
        Preconditions {
            if_none_match: conditions.if_none_match.clone(),
            ..none()
        },
        Preconditions {
            if_modified_since: conditions.if_modified_since,
            ..none()
        },
    ];
    let mut changes = changes
        .into_iter()
        .filter(|alone| !alone.is_empty())
        .map(verdict)
        .peekable();
    let unchanged = changes.peek().is_some() && changes.all(|verdict| verdict != Verdict::Proceed);
    Ok(if unchanged {
        Verdict::NotModified
    } else {
        Verdict::Proceed
    })
}

/// The conditions of a write.
#[derive(Clone, Debug)]
pub(crate) struct WriteConditions {
    /// Evaluated by the store, in the same step as the write.
    pub(crate) preconditions: Preconditions,
    /// `If-Modified-Since`, which HTTP doesn't define for writes. Modification dates never go back, so a blob modified
    /// after the date stays so, and checking before the write is as good as checking in the same step.
    modified_since: Option<HttpDate>,
    /// Evaluated by the store, too.
    pub(crate) if_tags: Option<TagCondition>,
}

/// Parses the conditions of a write: a single one, or a tag and a date of the same kind, of which the tag decides.
pub(super) fn of_write(headers: &HeaderMap) -> Result<WriteConditions, AzureError> {
    let if_match = tags(headers, IF_MATCH, Many::Refused)?;
    let if_none_match = tags(headers, IF_NONE_MATCH, Many::Refused)?;
    let unmodified_since = date(headers, &IF_UNMODIFIED_SINCE)?;
    let modified_since = date(headers, &IF_MODIFIED_SINCE)?;
    let keeps = if_match.is_some() || unmodified_since.is_some();
    let changes = if_none_match.is_some() || modified_since.is_some();
    if keeps && changes {
        return Err(multiple());
    }
    let if_unmodified_since = unmodified_since.filter(|_| if_match.is_none());
    let modified_since = modified_since.filter(|_| if_none_match.is_none());
    let preconditions = Preconditions {
        if_match,
        if_unmodified_since,
        if_none_match,
        ..Preconditions::NONE
    };
    Ok(WriteConditions {
        preconditions,
        modified_since,
        if_tags: super::headers::if_tags(headers)?,
    })
}

impl WriteConditions {
    /// Returns `true` if the same request can't succeed twice in a row: it requires a tag that the write
    /// replaces, or that there is no blob. `If-Match: *` is as true after the write as before.
    pub(super) fn hold_once(&self) -> bool {
        let Preconditions {
            if_match,
            if_none_match,
            ..
        } = &self.preconditions;
        matches!(if_match, Some(TagList::Tags(_))) || *if_none_match == Some(TagList::Any)
    }

    /// Returns `true` if a condition must be checked before the store is asked to write.
    pub(crate) fn need_check(&self) -> bool {
        self.modified_since.is_some()
    }

    /// Rejects a write of a resource not modified since the date. A lease that forbids the write takes precedence: the
    /// store then reports it.
    pub(crate) fn check(
        &self,
        last_modified: Option<HttpDate>,
        seen: Option<&SeenLease>,
        r#use: LeaseUse,
    ) -> Result<(), AzureError> {
        let unmodified = self
            .modified_since
            .is_some_and(|date| last_modified.is_some_and(|last| last <= date));
        if unmodified && SeenLease::check(seen, r#use).is_ok() {
            Err(AzureError::condition_not_met())
        } else {
            Ok(())
        }
    }

    /// Rejects an unconditional write where the operator requires a condition.
    pub(super) fn check_policy(
        &self,
        required: &RequirePreconditions,
        method: &Method,
    ) -> Result<(), AzureError> {
        if !required.refuses(method, &self.preconditions) {
            return Ok(());
        }
        let message = "this service requires a condition on every write: send If-Match, If-None-Match or If-Unmodified-Since";
        Err(AzureError::new(
            StatusCode::PRECONDITION_REQUIRED,
            "ConditionHeadersRequired",
            message,
        ))
    }
}

/// States if a header may have several tags.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Many {
    Allowed,
    Refused,
}

/// Parses the tags of a header. Azure's listings show tags without quotes, so clients send them unquoted, too.
fn tags(headers: &HeaderMap, name: HeaderName, many: Many) -> Result<Option<TagList>, AzureError> {
    let lines: Vec<_> = headers.get_all(&name).iter().collect();
    let [line] = lines.as_slice() else {
        return match (lines.is_empty(), many) {
            (true, _) => Ok(None),
            (false, Many::Allowed) => Ok(TagList::from_headers(headers, name)),
            (false, Many::Refused) => Err(multiple()),
        };
    };
    let invalid = || AzureError::invalid_header(name.as_str(), "must be an entity tag or *");
    let text = line.to_str().map_err(|_| invalid())?.trim();
    if text == "*" {
        return Ok(Some(TagList::Any));
    }
    if let Ok(tag) = EntityTag::parse(text.as_bytes()) {
        return Ok(Some(TagList::Tags(vec![tag])));
    }
    match (text.contains('"'), text.contains(','), many) {
        (true, true, Many::Allowed) => Ok(TagList::from_headers(headers, name)),
        (_, true, Many::Refused) => Err(multiple()),
        (false, false, _) if !text.is_empty() => EntityTag::strong(text)
            .map(|tag| Some(TagList::Tags(vec![tag])))
            .map_err(|_| invalid()),
        _ => Err(invalid()),
    }
}

/// Parses a date. A malformed one is an error: ignoring it would drop a condition.
fn date(headers: &HeaderMap, name: &HeaderName) -> Result<Option<HttpDate>, AzureError> {
    let Some(text) = one(headers, name)? else {
        return Ok(None);
    };
    let invalid = || {
        AzureError::invalid_header(
            name.as_str(),
            "must be a date such as Sun, 06 Nov 1994 08:49:37 GMT",
        )
    };
    HttpDate::parse(text.as_bytes())
        .map(Some)
        .ok_or_else(invalid)
}

/// The error for several conditions of a write.
fn multiple() -> AzureError {
    let message = "a write takes a single condition: a tag or a date";
    AzureError::bad_request("MultipleConditionHeadersNotSupported", message)
}
