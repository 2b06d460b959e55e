//! The metadata level of a response: `odata=…`.

use http::HeaderMap;
use http::header::ACCEPT;

use crate::error::{ErrorCode, TableError};

/// The metadata level of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum MetadataLevel {
    /// Values only.
    None,
    /// Adds tags, and types that JSON doesn't imply.
    Minimal,
    /// Adds the URL of each entity.
    Full,
}

impl MetadataLevel {
    /// Returns the level that a request asks for by `$format`, or else by `Accept`; [`MetadataLevel::Minimal`] by default.
    ///
    /// # Errors
    /// The request doesn't accept JSON.
    pub(crate) fn requested(
        parameter: Option<&str>,
        headers: &HeaderMap,
    ) -> Result<Self, TableError> {
        let mut accept = String::new();
        for line in headers.get_all(ACCEPT) {
            accept.push_str(line.to_str().unwrap_or_default());
            accept.push(',');
        }
        let wanted = parameter.unwrap_or(&accept);
        let mut ranges = wanted
            .split(',')
            .map(str::trim)
            .filter(|range| !range.is_empty())
            .peekable();
        if ranges.peek().is_none() {
            return Ok(Self::Minimal);
        }
        ranges
            .find_map(Self::of_range)
            .ok_or_else(|| TableError::new(ErrorCode::AtomFormatNotSupported))
    }

    /// Returns the level that a media range asks for, if it includes JSON.
    fn of_range(range: &str) -> Option<Self> {
        let mut parts = range.split(';').map(str::trim);
        let json = parts.next().is_some_and(|media| {
            ["application/json", "application/*", "*/*", "json"]
                .iter()
                .any(|json| media.eq_ignore_ascii_case(json))
        });
        let level = parts.find_map(|part| {
            part.to_ascii_lowercase()
                .strip_prefix("odata=")
                .map(ToOwned::to_owned)
        });
        let level = match level.as_deref() {
            Some("nometadata") => Self::None,
            Some("fullmetadata") => Self::Full,
            _ => Self::Minimal,
        };
        json.then_some(level)
    }

    /// Returns the content type of the response.
    pub(crate) fn content_type(self) -> &'static str {
        match self {
            Self::None => "application/json;odata=nometadata;streaming=true;charset=utf-8",
            Self::Minimal => "application/json;odata=minimalmetadata;streaming=true;charset=utf-8",
            Self::Full => "application/json;odata=fullmetadata;streaming=true;charset=utf-8",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn format_overrides_accept() {
        let rows = [
            (None, &[][..], Some(MetadataLevel::Minimal)),
            (None, &["application/json"], Some(MetadataLevel::Minimal)),
            (None, &["*/*"], Some(MetadataLevel::Minimal)),
            (
                None,
                &["application/json;odata=nometadata"],
                Some(MetadataLevel::None),
            ),
            (
                None,
                &[
                    "application/atom+xml",
                    "application/json; odata=FullMetadata; q=0.5",
                ],
                Some(MetadataLevel::Full),
            ),
            (
                Some("application/json;odata=fullmetadata"),
                &["application/atom+xml"],
                Some(MetadataLevel::Full),
            ),
            (None, &["application/atom+xml"], None),
            (Some("atom"), &["application/json"], None),
        ];
        for (parameter, accept, wanted) in rows {
            let headers = accept
                .iter()
                .map(|line| (ACCEPT, line.parse().expect("a value")))
                .collect();
            assert_eq!(
                MetadataLevel::requested(parameter, &headers).ok(),
                wanted,
                "{parameter:?} {accept:?}"
            );
        }
    }
}
