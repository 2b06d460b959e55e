//! Conditional requests to the origin about a stored response.

use http::header::{IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE, RANGE};
use http::{HeaderMap, HeaderValue};
use ifmatch_core::range::ByteRange;

use crate::policy::update::make_conditional;
use crate::request::CacheRequest;
use crate::store::stored_response::{StoredBody, StoredResponse};

/// The condition or range that the cache puts in place of the client's own.
pub(crate) enum Revalidation {
    /// None: the request goes to the origin as the client sent it.
    None,
    /// Validates the stored response.
    Validate(StoredResponse),
    /// Requests the range that the stored response lacks.
    Complete(StoredResponse, ByteRange),
}

impl Revalidation {
    /// Chooses the revalidation of a stored response for a request.
    pub(crate) fn of(stored: &StoredResponse, request: &CacheRequest) -> Self {
        match &stored.body {
            _ if !stored.exists() => Self::None,
            StoredBody::Whole(_) | StoredBody::File(_)
                if make_conditional(&mut HeaderMap::new(), &stored.meta.headers) =>
            {
                Self::Validate(stored.clone())
            }
            StoredBody::Parts(parts)
                if !request.has_range() && stored.meta.strong_tag().is_some() =>
            {
                parts
                    .missing()
                    .map_or(Self::None, |range| Self::Complete(stored.clone(), range))
            }
            _ => Self::None,
        }
    }

    /// Returns `true` if the origin evaluates the client's own conditions and ranges.
    pub(crate) fn is_none(&self) -> bool {
        matches!(self, Self::None)
    }

    /// Adds the condition or range to the header fields of the client's request.
    pub(crate) fn apply_to(&self, headers: &mut HeaderMap) {
        match self {
            Self::None => {}
            Self::Validate(stored) => drop(make_conditional(headers, &stored.meta.headers)),
            Self::Complete(stored, range) => {
                headers.remove(IF_NONE_MATCH);
                headers.remove(IF_MODIFIED_SINCE);
                // A missing end is requested without an end position.
                let is_end = matches!(&stored.body, StoredBody::Parts(parts) if range.end() + 1 == parts.total);
                let end = if is_end {
                    String::new()
                } else {
                    range.end().to_string()
                };
                let value = HeaderValue::try_from(format!("bytes={}-{end}", range.start()));
                if let (Ok(value), Some(tag)) = (value, &stored.meta.tag) {
                    headers.insert(RANGE, value);
                    headers.insert(IF_RANGE, tag.to_header());
                }
            }
        }
    }
}
