//! How much an answer says beside the values: `odata=…`.

use http::HeaderMap;
use http::header::ACCEPT;

use super::error::{Code, TableError};

/// How much an answer says beside the values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Metadata {
    /// Nothing.
    None,
    /// Tags, and the types that JSON does not say.
    Minimal,
    /// Also where each entity is.
    Full,
}

impl Metadata {
    /// What the client wants: the parameter `$format`, else `Accept`, else [`Metadata::Minimal`].
    ///
    /// # Errors
    /// It wants no JSON.
    pub(super) fn wanted(parameter: Option<&str>, headers: &HeaderMap) -> Result<Self, TableError> {
        let mut accept = String::new();
        for line in headers.get_all(ACCEPT) {
            accept.push_str(line.to_str().unwrap_or_default());
            accept.push(',');
        }
        let wanted = parameter.unwrap_or(&accept);
        let mut ranges = wanted.split(',').map(str::trim).filter(|range| !range.is_empty()).peekable();
        if ranges.peek().is_none() {
            return Ok(Self::Minimal);
        }
        ranges.find_map(Self::of_range).ok_or_else(|| TableError::new(Code::AtomFormatNotSupported))
    }

    fn of_range(range: &str) -> Option<Self> {
        let mut parts = range.split(';').map(str::trim);
        let json = parts.next().is_some_and(|media| {
            ["application/json", "application/*", "*/*", "json"].iter().any(|json| media.eq_ignore_ascii_case(json))
        });
        let level = parts.find_map(|part| part.to_ascii_lowercase().strip_prefix("odata=").map(ToOwned::to_owned));
        let level = match level.as_deref() {
            Some("nometadata") => Self::None,
            Some("fullmetadata") => Self::Full,
            _ => Self::Minimal,
        };
        json.then_some(level)
    }

    /// The type of the answer's content.
    pub(super) fn content_type(self) -> &'static str {
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
    fn the_parameter_wins_then_the_field() {
        let rows = [
            (None, &[][..], Some(Metadata::Minimal)),
            (None, &["application/json"], Some(Metadata::Minimal)),
            (None, &["*/*"], Some(Metadata::Minimal)),
            (None, &["application/json;odata=nometadata"], Some(Metadata::None)),
            (None, &["application/atom+xml", "application/json; odata=FullMetadata; q=0.5"], Some(Metadata::Full)),
            (Some("application/json;odata=fullmetadata"), &["application/atom+xml"], Some(Metadata::Full)),
            (None, &["application/atom+xml"], None),
            (Some("atom"), &["application/json"], None),
        ];
        for (parameter, accept, wanted) in rows {
            let headers = accept.iter().map(|line| (ACCEPT, line.parse().expect("a value"))).collect();
            assert_eq!(Metadata::wanted(parameter, &headers).ok(), wanted, "{parameter:?} {accept:?}");
        }
    }
}
