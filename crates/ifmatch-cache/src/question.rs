//! What the origin is asked about a stored response.

use http::header::{IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE, RANGE};
use http::{HeaderMap, HeaderValue};
use ifmatch_core::range::ByteRange;

use crate::asked::Asked;
use crate::policy::update::ask_whether_changed;
use crate::stored::{Body, Stored};

/// What the origin is asked.
pub(crate) enum Question {
    /// What the client asked.
    Client,
    /// Whether the stored response is still the current one.
    Changed(Stored),
    /// The range that is missing.
    Missing(Stored, ByteRange),
}

impl Question {
    pub(crate) fn about(stored: &Stored, asked: &Asked) -> Self {
        match &stored.body {
            _ if !stored.exists() => Self::Client,
            Body::Whole(_) | Body::File(_) if ask_whether_changed(&mut HeaderMap::new(), &stored.meta.headers) => {
                Self::Changed(stored.clone())
            }
            Body::Part(part) if !asked.has_range() && stored.meta.strong_tag().is_some() => match part.missing() {
                Some(range) => Self::Missing(stored.clone(), range),
                None => Self::Client,
            },
            _ => Self::Client,
        }
    }

    /// Returns `true` if the origin evaluates the client's own conditions and ranges.
    pub(crate) fn is_of_client(&self) -> bool {
        matches!(self, Self::Client)
    }

    /// Puts the question into the header fields of the client's request.
    pub(crate) fn put(&self, headers: &mut HeaderMap) {
        match self {
            Self::Client => {}
            Self::Changed(stored) => drop(ask_whether_changed(headers, &stored.meta.headers)),
            Self::Missing(stored, range) => {
                headers.remove(IF_NONE_MATCH);
                headers.remove(IF_MODIFIED_SINCE);
                // A rest is asked for as such, however long it proves to be.
                let is_rest = matches!(&stored.body, Body::Part(part) if range.end() + 1 == part.total);
                let end = if is_rest { String::new() } else { range.end().to_string() };
                let value = HeaderValue::try_from(format!("bytes={}-{end}", range.start()));
                if let (Ok(value), Some(tag)) = (value, &stored.meta.tag) {
                    headers.insert(RANGE, value);
                    headers.insert(IF_RANGE, tag.to_header());
                }
            }
        }
    }
}
