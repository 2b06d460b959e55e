//! The tags of entities, `W/"datetime'…'"`, derived from the generation.

use ifmatch_core::EntityTag;
use ifmatch_core::record::Revision;

use crate::entity::datetime::DateTime;
use crate::error::{ErrorCode, TableError};

/// Returns the tag of a version. It is unique, since a generation is a time in microseconds that is never used twice.
pub(crate) fn of(generation: Revision) -> String {
    let moment = DateTime::of(generation.timestamp());
    let text = moment.map_or(generation.get().to_string(), |moment| format!("{moment:#}"));
    format!("W/\"datetime'{}'\"", text.replace(':', "%3A"))
}

/// The condition in `If-Match`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum IfMatch {
    /// No condition.
    None,
    /// The entity exists.
    Exists,
    /// The entity exists with this tag, compared as text.
    Tag(Box<str>),
}

impl IfMatch {
    /// Parses the value of `If-Match`. As in Azure, `w/` is another spelling of `W/`.
    ///
    /// # Errors
    /// The value isn't a tag.
    pub(crate) fn parse(value: &[u8]) -> Result<Self, TableError> {
        if value == b"*" {
            return Ok(Self::Exists);
        }
        let text = match value.strip_prefix(b"w/") {
            Some(opaque) => [b"W/", opaque].concat(),
            None => value.to_vec(),
        };
        let text = EntityTag::parse(&text)
            .ok()
            .and_then(|_| String::from_utf8(text).ok());
        let invalid =
            || TableError::invalid("If-Match must be * or a tag returned by this service");
        text.map(|text| Self::Tag(text.into())).ok_or_else(invalid)
    }

    /// Evaluates the condition against the current version.
    ///
    /// # Errors
    /// The entity doesn't exist, or has another tag.
    pub(crate) fn check(&self, current: Option<Revision>) -> Result<(), TableError> {
        match (self, current) {
            (Self::None, _) | (Self::Exists, Some(_)) => Ok(()),
            (Self::Tag(tag), Some(current)) if **tag == *of(current) => Ok(()),
            (Self::Tag(_), Some(_)) => Err(TableError::new(ErrorCode::UpdateConditionNotSatisfied)),
            (_, None) => Err(TableError::new(ErrorCode::ResourceNotFound)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_has_seven_digits_and_escaped_colons() {
        let tag = of(Revision::new(1_600_000_000_500_001));
        assert_eq!(tag, "W/\"datetime'2020-09-13T12%3A26%3A40.5000010Z'\"");
        assert_ne!(of(Revision::new(u64::MAX)), of(Revision::new(u64::MAX - 1)));
    }

    #[test]
    fn tags_are_compared_as_text() {
        let current = Some(Revision::new(1_600_000_000_500_000));
        let same = "W/\"datetime'2020-09-13T12%3A26%3A40.5000000Z'\"";
        assert!(IfMatch::parse(same.as_bytes()).is_ok_and(|guard| guard.check(current).is_ok()));
        let lower = same.replacen('W', "w", 1);
        assert!(IfMatch::parse(lower.as_bytes()).is_ok_and(|guard| guard.check(current).is_ok()));
        let others = [
            &same[2..],
            "W/\"datetime'2020-09-13T12:26:40.5000000Z'\"",
            "W/\"datetime'2020-09-13T12%3a26%3a40.5000000Z'\"",
            "W/\"datetime'2020-09-13T12%3A26%3A40.5Z'\"",
        ];
        for other in others {
            let refused = IfMatch::parse(other.as_bytes())
                .expect("a tag")
                .check(current);
            assert_eq!(
                refused.unwrap_err().code(),
                ErrorCode::UpdateConditionNotSatisfied,
                "{other}"
            );
        }
    }

    #[test]
    fn rejects_malformed_tags() {
        for text in [
            "",
            "abc",
            "W/",
            "w/",
            "w/w/\"a\"",
            "wW/\"a\"",
            "\"a",
            "W/\"a\", W/\"b\"",
            "**",
        ] {
            assert_eq!(
                IfMatch::parse(text.as_bytes()).unwrap_err().code(),
                ErrorCode::InvalidInput,
                "{text}"
            );
        }
    }
}
