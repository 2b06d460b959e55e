//! The tags of objects, as `x-amz-tagging` and the operations on tags send them.

use ifmatch_blob::tags::{InvalidTags, Tags};
use s3s::{S3Error, S3ErrorCode, S3Result, s3_error};

/// Prefix of the names that S3 reserves.
const RESERVED: &str = "aws:";

/// Parses the value of `x-amz-tagging`.
pub(crate) fn parse(text: Option<&str>) -> S3Result<Tags> {
    let tags: Tags = text.unwrap_or_default().parse().map_err(|error| {
        // As S3 tells a malformed field from tags that are too long.
        let is_malformed = matches!(error, InvalidTags::Encoding | InvalidTags::Repeated);
        invalid(
            error,
            if is_malformed {
                S3ErrorCode::InvalidArgument
            } else {
                S3ErrorCode::InvalidTag
            },
        )
    })?;
    checked(tags)
}

/// Refuses tags with characters or names that S3 doesn't allow.
pub(crate) fn checked(tags: Tags) -> S3Result<Tags> {
    if !tags.consist_of(|char| char.is_alphanumeric() || " +-=._:/@".contains(char)) {
        return Err(s3_error!(
            InvalidTag,
            "tags consist of letters, digits, spaces, and + - = . _ : / @"
        ));
    }
    if tags.iter().any(|(name, _)| {
        name.get(..RESERVED.len())
            .is_some_and(|start| start.eq_ignore_ascii_case(RESERVED))
    }) {
        return Err(s3_error!(
            InvalidTag,
            "no tag's name may begin with {RESERVED}"
        ));
    }
    Ok(tags)
}

/// Returns the error for invalid tags.
pub(crate) fn invalid(error: InvalidTags, code: S3ErrorCode) -> S3Error {
    S3Error::with_message(code, error.to_string())
}

/// Returns the number of tags to report, which S3 leaves out if there are none.
pub(crate) fn count(tags: &Tags) -> Option<i32> {
    i32::try_from(tags.len()).ok().filter(|count| *count > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_has_the_characters_of_s3() {
        let code = |text: &str| {
            parse(Some(text))
                .map(|tags| tags.len())
                .map_err(|error| error.code().as_str().to_owned())
        };
        for (text, expected) in [
            ("", Ok(0)),
            ("a=1&b%20c=%2B-%3D._%3A%2F%40", Ok(2)),
            ("gr%C3%BCn=%E6%9D%B1", Ok(1)),
            ("a=b%26c", Err("InvalidTag")),
            ("a=%0A", Err("InvalidTag")),
            ("aws%3Aa=1", Err("InvalidTag")),
            ("AWS%3Aa=1", Err("InvalidTag")),
            ("=1", Err("InvalidTag")),
            ("a=1&a=2", Err("InvalidArgument")),
            ("a=%FF", Err("InvalidArgument")),
        ] {
            assert_eq!(code(text), expected.map_err(str::to_owned), "{text}");
        }
        assert_eq!(parse(None).unwrap(), Tags::default());
    }
}
