//! Names of containers and blobs: parsed once, always valid.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use thiserror::Error;

/// The name of a container: 1 to 88 of the characters `A-Z a-z 0-9 . _ -`, the first a letter or a digit.
///
/// A path that begins with `/-/` never names a container. Cheap to clone.
///
/// ```
/// use ifmatch_blob::name::ContainerName;
///
/// assert_eq!(ContainerName::new("photos")?.as_str(), "photos");
/// assert!(ContainerName::new("-").is_err());
/// # Ok::<(), ifmatch_blob::name::InvalidName>(())
/// ```
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ContainerName(Arc<str>);

impl ContainerName {
    /// Maximum length in characters: 24 for an account, a dot, and 63.
    pub const MAX_LEN: usize = 88;

    /// Parses a container's name.
    ///
    /// # Errors
    /// [`InvalidName`] states the rule that the text breaks.
    pub fn new(text: &str) -> Result<Self, InvalidName> {
        let inner = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
        if text.len() > Self::MAX_LEN {
            return Err(InvalidName(NameErrorKind::ContainerTooLong));
        }
        match text.as_bytes() {
            [first, rest @ ..]
                if first.is_ascii_alphanumeric() && rest.iter().copied().all(inner) =>
            {
                Ok(Self(text.into()))
            }
            _ => Err(InvalidName(NameErrorKind::Container)),
        }
    }

    /// Returns the name of an internal container, `-` and the text. Requests can't name it, listings omit it, and it
    /// always exists.
    ///
    /// # Errors
    /// [`InvalidName`] states the rule that the text breaks.
    pub fn internal(text: &str) -> Result<Self, InvalidName> {
        let name = Self([INTERNAL, Self::new(text)?.as_str()].concat().into());
        if name.0.len() > Self::MAX_LEN {
            Err(InvalidName(NameErrorKind::ContainerTooLong))
        } else {
            Ok(name)
        }
    }

    /// Returns `true` if the container is internal.
    pub fn is_internal(&self) -> bool {
        Self::is_internal_text(&self.0)
    }

    /// Returns `true` if this text is the name of an internal container.
    pub fn is_internal_text(name: &str) -> bool {
        name.starts_with(INTERNAL)
    }

    /// Returns the text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Returns `true` for `/-` and paths below it, which belong to the server's own endpoints.
///
/// ```
/// use ifmatch_blob::name::is_server_path;
///
/// assert!(is_server_path("/-") && is_server_path("/-/health"));
/// assert!(!is_server_path("/-x/y") && !is_server_path("/a/-/b"));
/// ```
pub fn is_server_path(path: &str) -> bool {
    path.strip_prefix("/-")
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Prefix of the names of internal containers.
const INTERNAL: &str = "-";

/// The name of a blob in its container: 1 to 1,024 characters, divided into segments by `/`.
///
/// No segment is `.` or `..`, which clients and intermediaries resolve before the server sees them, and control characters are
/// not allowed. Segments may be empty, as in Azure: `a//b` is another blob than `a/b`, and `a/` another than `a`. A store whose
/// names are paths, such as a folder, [refuses such a name](Self::is_plain_path). Cheap to clone; ordered by its UTF-8
/// bytes.
///
/// ```
/// use ifmatch_blob::name::BlobName;
///
/// assert_eq!(BlobName::new("2026/münchen.jpg")?.as_str(), "2026/münchen.jpg");
/// assert!(BlobName::new("a/../b").is_err());
/// # Ok::<(), ifmatch_blob::name::InvalidName>(())
/// ```
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlobName(Arc<str>);

impl BlobName {
    /// Maximum length in characters.
    pub const MAX_CHARS: usize = 1024;
    /// Maximum length in bytes of UTF-8. Together with a container's name it fits into a register's key.
    pub const MAX_BYTES: usize = 1940;

    /// Parses a blob's name, which isn't percent-encoded.
    ///
    /// # Errors
    /// [`InvalidName`] states the rule that the text breaks.
    pub fn new(text: &str) -> Result<Self, InvalidName> {
        let is_long = text.len() > Self::MAX_CHARS && text.chars().count() > Self::MAX_CHARS;
        if text.len() > Self::MAX_BYTES || is_long {
            return Err(InvalidName(NameErrorKind::BlobTooLong));
        }
        if text.chars().any(char::is_control) {
            return Err(InvalidName(NameErrorKind::Character));
        }
        if text.is_empty()
            || text
                .as_bytes()
                .split(|byte| *byte == b'/')
                .any(|part| matches!(part, b"." | b".."))
        {
            return Err(InvalidName(NameErrorKind::Segment));
        }
        Ok(Self(text.into()))
    }

    /// Returns `true` if the name has the same meaning in a file system and in any object store: it has no empty segments
    /// and no backslashes.
    ///
    /// ```
    /// # use ifmatch_blob::name::BlobName;
    /// assert!(BlobName::new("a/b")?.is_plain_path());
    /// assert!(!BlobName::new("a//b")?.is_plain_path() && !BlobName::new("a/")?.is_plain_path());
    /// # Ok::<(), ifmatch_blob::name::InvalidName>(())
    /// ```
    pub fn is_plain_path(&self) -> bool {
        self.0
            .split('/')
            .all(|segment| !segment.is_empty() && !segment.contains('\\'))
    }

    /// Returns the text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The path of a blob: its container and its name.
///
/// ```
/// use ifmatch_blob::name::BlobPath;
///
/// let path = BlobPath::parse("/photos/2026/caf%C3%A9.jpg")?;
/// assert_eq!(path.container.as_str(), "photos");
/// assert_eq!(path.name.as_str(), "2026/café.jpg");
/// assert_eq!(path.to_string(), "/photos/2026/caf%C3%A9.jpg");
/// # Ok::<(), ifmatch_blob::name::InvalidName>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlobPath {
    /// The container.
    pub container: ContainerName,
    /// The name within the container.
    pub name: BlobName,
}

impl BlobPath {
    /// Parses the raw path of a request, `/{container}/{blob…}`. Percent-decodes each segment once.
    ///
    /// # Errors
    /// [`InvalidName`] states the rule that the path breaks. An encoded slash (`%2F`) is rejected, since some
    /// intermediaries decode it and thereby name another blob.
    ///
    /// ```
    /// use ifmatch_blob::name::{BlobPath, NameErrorKind};
    /// let refused = BlobPath::parse("/photos/a%2Fb").unwrap_err();
    /// assert_eq!(refused.kind(), NameErrorKind::EncodedSlash);
    /// ```
    pub fn parse(path: &str) -> Result<Self, InvalidName> {
        let path = path.strip_prefix('/').unwrap_or(path);
        let (container, name) = path
            .split_once('/')
            .ok_or(InvalidName(NameErrorKind::Segment))?;
        Self::of_encoded(container, name)
    }

    /// Parses a path that is already divided.
    ///
    /// # Errors
    /// Same as [`parse`](Self::parse).
    pub fn of_encoded(container: &str, name: &str) -> Result<Self, InvalidName> {
        let container = ContainerName::new(&decode(container)?)?;
        if name.len() > BlobName::MAX_BYTES * ENCODED_LEN {
            return Err(InvalidName(NameErrorKind::BlobTooLong));
        }
        if !name.contains('%') {
            return Ok(Self {
                container,
                name: BlobName::new(name)?,
            });
        }
        let is_slash = |after: &str| {
            after
                .as_bytes()
                .get(..2)
                .is_some_and(|digits| digits.eq_ignore_ascii_case(b"2f"))
        };
        if name.split('%').skip(1).any(is_slash) {
            return Err(InvalidName(NameErrorKind::EncodedSlash));
        }
        Ok(Self {
            container,
            name: BlobName::new(&decode(name)?)?,
        })
    }
}

/// Returns the path for a URL: percent-encoded, with a leading slash.
impl fmt::Display for BlobPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "/{}/{}",
            self.container,
            utf8_percent_encode(self.name.as_str(), PATH)
        )
    }
}

/// Error returned for an invalid name. The message says what is wrong with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct InvalidName(NameErrorKind);

impl InvalidName {
    /// Returns the rule that the text breaks.
    pub fn kind(&self) -> NameErrorKind {
        self.0
    }
}

/// A rule for names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum NameErrorKind {
    /// A container's name contains an invalid character, or is empty.
    #[error(
        "this container name has characters other than A-Z a-z 0-9 . _ -, or doesn't begin with a letter or a digit"
    )]
    Container,
    /// A container's name is too long.
    #[error(
        "this container name is longer than {} characters",
        ContainerName::MAX_LEN
    )]
    ContainerTooLong,
    /// A blob's name is too long.
    #[error(
        "this blob name is longer than {} characters or {} bytes of UTF-8",
        BlobName::MAX_CHARS,
        BlobName::MAX_BYTES
    )]
    BlobTooLong,
    /// A blob's name is empty, or a segment of it is `.` or `..`.
    #[error("this blob name is empty, or a segment of it is '.' or '..'")]
    Segment,
    /// A blob's name contains a control character.
    #[error("this blob name contains a control character")]
    Character,
    /// The path contains a `%2F`.
    #[error("this path contains an encoded slash (%2F). Write a plain one")]
    EncodedSlash,
    /// The path contains a `%` without two hexadecimal digits after it.
    #[error("a % in this path isn't followed by two hexadecimal digits")]
    Escape,
    /// The path isn't UTF-8 after percent-decoding.
    #[error("this path isn't UTF-8 after percent-decoding")]
    Utf8,
}

/// Length of a percent-encoded byte.
const ENCODED_LEN: usize = 3;

/// Characters to percent-encode in a path: all except RFC 3986's `pchar` and the slash.
const PATH: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~')
    .remove(b'/')
    .remove(b'!')
    .remove(b'$')
    .remove(b'&')
    .remove(b'\'')
    .remove(b'(')
    .remove(b')')
    .remove(b'*')
    .remove(b'+')
    .remove(b',')
    .remove(b';')
    .remove(b'=')
    .remove(b':')
    .remove(b'@');

/// Percent-decodes text.
///
/// # Errors
/// [`NameErrorKind::Escape`] for a malformed escape, and [`NameErrorKind::Utf8`] if the result isn't UTF-8.
pub fn decode(text: &str) -> Result<Cow<'_, str>, InvalidName> {
    let is_escape = |after: &str| {
        let digits = after.as_bytes().get(..2);
        digits.is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit))
    };
    if !text.contains('%') {
        return Ok(text.into());
    }
    if !text.split('%').skip(1).all(is_escape) {
        return Err(InvalidName(NameErrorKind::Escape));
    }
    percent_decode_str(text)
        .decode_utf8()
        .map_err(|_| InvalidName(NameErrorKind::Utf8))
}

/// Returns the parameters of a query in their order, names and values decoded: a plus is a space, as in a form, and malformed
/// escapes are rejected. Empty parameters are skipped, and one without `=` has an empty value.
///
/// ```
/// use ifmatch_blob::name::parameters;
/// let found = parameters("a=a+b%2Bc&&%64").collect::<Result<Vec<_>, _>>()?;
/// assert_eq!(found, [("a".into(), "a b+c".into()), ("d".into(), "".into())]);
/// assert!(parameters("a=%zz").all(|parameter| parameter.is_err()));
/// # Ok::<(), ifmatch_blob::name::InvalidName>(())
/// ```
pub fn parameters(
    query: &str,
) -> impl Iterator<Item = Result<(Cow<'_, str>, Cow<'_, str>), InvalidName>> {
    query
        .split('&')
        .filter(|parameter| !parameter.is_empty())
        .map(|parameter| {
            let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
            Ok((decode_parameter(name)?, decode_parameter(value)?))
        })
}

fn decode_parameter(text: &str) -> Result<Cow<'_, str>, InvalidName> {
    if text.contains('+') {
        Ok(decode(&text.replace('+', " "))?.into_owned().into())
    } else {
        decode(text)
    }
}

macro_rules! shown_as_text {
    ($($name:ty),*) => {$(
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(&*self.0, f)
            }
        }
    )*};
}

shown_as_text!(ContainerName, BlobName);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{BlobName, BlobPath, ContainerName, NameErrorKind as Kind, is_server_path};

    fn kind_of(path: &str) -> Kind {
        BlobPath::parse(path).expect_err(path).kind()
    }

    #[test]
    fn invalid_names_are_refused_with_a_reason() {
        for (path, kind) in [
            ("/c", Kind::Segment),
            ("/c/", Kind::Segment),
            ("/c/../b", Kind::Segment),
            ("/c/%2e%2E/b", Kind::Segment),
            ("/c/.", Kind::Segment),
            ("/c/a%00b", Kind::Character),
            ("/c/a%0Ab", Kind::Character),
            ("/c/a%C2%85b", Kind::Character),
            ("/c/a%2fb", Kind::EncodedSlash),
            ("/c/a%2Fb", Kind::EncodedSlash),
            ("/c/a%", Kind::Escape),
            ("/c/a%4", Kind::Escape),
            ("/c/a%zz", Kind::Escape),
            ("/c/%ff", Kind::Utf8),
            ("/c/%C3%28", Kind::Utf8),
            ("/-/health", Kind::Container),
            ("/.c/b", Kind::Container),
            ("/ü/b", Kind::Container),
            ("//b", Kind::Container),
        ] {
            assert_eq!(kind_of(path), kind, "{path}");
        }
        assert_eq!(
            kind_of(&format!("/{}/b", "c".repeat(89))),
            Kind::ContainerTooLong
        );
        assert_eq!(
            kind_of(&format!("/c/{}", "b".repeat(1025))),
            Kind::BlobTooLong
        );
        assert_eq!(
            kind_of(&format!("/c/{}", "%F0%9F%98%80".repeat(486))),
            Kind::BlobTooLong
        );
        assert_eq!(
            kind_of(&format!("/c/{}", "b".repeat(10_240))),
            Kind::BlobTooLong
        );
    }

    #[test]
    fn a_path_is_decoded_once() {
        assert_eq!(
            BlobPath::parse("/c/a%252fb").expect("valid").name.as_str(),
            "a%2fb"
        );
        assert_eq!(
            BlobPath::parse("/c/a+b").expect("valid").name.as_str(),
            "a+b"
        );
        assert_eq!(
            BlobPath::parse("/c/...").expect("valid").name.as_str(),
            "..."
        );
    }

    #[test]
    fn names_that_differ_in_a_slash_differ() {
        for text in ["a//b", "a/", "a", "a/b", "/a", "//", "a\\b", "a."] {
            let path = BlobPath {
                container: ContainerName::new("c").expect("valid"),
                name: BlobName::new(text).expect(text),
            };
            assert_eq!(
                (path.name.as_str(), BlobPath::parse(&path.to_string())),
                (text, Ok(path.clone()))
            );
        }
    }

    #[test]
    fn the_longest_names_are_valid() {
        assert!(ContainerName::new(&"c".repeat(88)).is_ok());
        assert!(BlobName::new(&"b".repeat(1024)).is_ok());
        assert!(BlobName::new(&"ü".repeat(970)).is_ok());
        assert!(BlobName::new(&"😀".repeat(485)).is_ok());
        assert_eq!(
            BlobName::new(&"😀".repeat(486))
                .expect_err("too long")
                .kind(),
            Kind::BlobTooLong
        );
    }

    #[test]
    fn internal_names_cannot_be_parsed() {
        let name = ContainerName::internal("blocks").expect("valid");
        assert_eq!((name.as_str(), name.is_internal()), ("-blocks", true));
        assert_eq!(
            ContainerName::new(name.as_str())
                .expect_err("refused")
                .kind(),
            Kind::Container
        );
        assert!(!ContainerName::new("blocks").expect("valid").is_internal());
        for (text, kind) in [
            ("", Kind::Container),
            ("a/b", Kind::Container),
            ("ü", Kind::Container),
        ] {
            assert_eq!(ContainerName::internal(text).expect_err(text).kind(), kind);
        }
        assert_eq!(
            ContainerName::internal(&"c".repeat(88))
                .expect_err("too long")
                .kind(),
            Kind::ContainerTooLong
        );
    }

    proptest! {
        #[test]
        fn a_name_survives_its_address(name in "\\PC{1,40}") {
            if let Ok(name) = BlobName::new(&name) {
                let path = BlobPath { container: ContainerName::new("c").expect("valid"), name };
                prop_assert_eq!(BlobPath::parse(&path.to_string()), Ok(path));
            }
        }

        #[test]
        fn no_path_makes_the_parser_panic(path in "(/|%|[0-9a-fA-F]|\\PC){0,60}") {
            let _ = BlobPath::parse(&path);
        }
    }

    #[test]
    fn only_the_segment_of_a_single_hyphen_belongs_to_the_server() {
        for (path, expected) in [
            ("/-", true),
            ("/-/", true),
            ("/-/x/y", true),
            ("/", false),
            ("/-x/y", false),
            ("/a/-/b", false),
            ("*", false),
        ] {
            assert_eq!(is_server_path(path), expected, "{path}");
        }
    }
}
