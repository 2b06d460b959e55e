//! The tags of entities: `W/"datetime'…'"`, made of the number of the write.

use ifmatch_core::EntityTag;
use ifmatch_core::record::Revision;

use super::datetime::DateTime;
use super::error::{Code, TableError};

/// The tag of a version, other than that of any version before: a version's number is a time in microseconds, though
/// never that of another.
pub(super) fn of(generation: Revision) -> String {
    let moment = DateTime::of(generation.timestamp());
    let text = moment.map_or(generation.get().to_string(), |moment| format!("{moment:#}"));
    format!("W/\"datetime'{}'\"", text.replace(':', "%3A"))
}

/// What a request with `If-Match` asks of the entity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Guard {
    /// Nothing: it need not be there.
    None,
    /// It is there.
    Exists,
    /// It is there with this very tag.
    Tag(Box<str>),
}

impl Guard {
    /// The guard that a field's value is.
    ///
    /// # Errors
    /// It is no tag.
    pub(super) fn parse(value: &[u8]) -> Result<Self, TableError> {
        if value == b"*" {
            return Ok(Self::Exists);
        }
        let text = EntityTag::parse(value).ok().and_then(|_| str::from_utf8(value).ok());
        let invalid = || TableError::invalid("the tag in If-Match is not in the form that the service gives tags");
        text.map(|text| Self::Tag(text.into())).ok_or_else(invalid)
    }

    /// Whether an entity in this version, or none, satisfies it.
    ///
    /// # Errors
    /// What the client is told: there is no such entity, or it is in another version.
    pub(super) fn check(&self, current: Option<Revision>) -> Result<(), TableError> {
        match (self, current) {
            (Self::None, _) | (Self::Exists, Some(_)) => Ok(()),
            (Self::Tag(tag), Some(current)) if **tag == *of(current) => Ok(()),
            (Self::Tag(_), Some(_)) => Err(TableError::new(Code::UpdateConditionNotSatisfied)),
            (_, None) => Err(TableError::new(Code::ResourceNotFound)),
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
    fn a_tag_is_compared_as_the_very_text() {
        let current = Some(Revision::new(1_600_000_000_500_000));
        let same = "W/\"datetime'2020-09-13T12%3A26%3A40.5000000Z'\"";
        assert!(Guard::parse(same.as_bytes()).is_ok_and(|guard| guard.check(current).is_ok()));
        let others = [
            &same[2..],
            "W/\"datetime'2020-09-13T12:26:40.5000000Z'\"",
            "W/\"datetime'2020-09-13T12%3a26%3a40.5000000Z'\"",
            "W/\"datetime'2020-09-13T12%3A26%3A40.5Z'\"",
        ];
        for other in others {
            let refused = Guard::parse(other.as_bytes()).expect("a tag").check(current);
            assert_eq!(refused.unwrap_err().code(), Code::UpdateConditionNotSatisfied, "{other}");
        }
    }

    #[test]
    fn what_is_no_tag_is_refused() {
        for text in ["", "abc", "W/", "\"a", "W/\"a\", W/\"b\"", "**"] {
            assert_eq!(Guard::parse(text.as_bytes()).unwrap_err().code(), Code::InvalidInput, "{text}");
        }
    }
}
