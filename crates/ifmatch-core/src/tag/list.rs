//! Lists of entity tags: the values of `If-Match` and `If-None-Match`.

use http::{HeaderMap, HeaderName, HeaderValue};

use super::EntityTag;
use crate::fields;

/// The value of `If-Match` or `If-None-Match`.
///
/// Members that are not entity tags, for example unquoted ones, match nothing and are dropped. Without other members,
/// `If-Match` then fails and `If-None-Match` succeeds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TagList {
    /// `*`: any current representation.
    Any,
    /// These tags. The list may be empty.
    Tags(Vec<EntityTag>),
    /// A `*` with other members, or more than [`MAX_TAGS`](Self::MAX_TAGS) members. The meaning is unclear, so each
    /// precondition chooses the safe result: reads get a full response, and writes fail.
    Unreadable,
}

impl TagList {
    /// Maximum number of members. Real clients send a handful.
    pub const MAX_TAGS: usize = 1_000;

    /// Reads all lines of a header field. Returns `None` if there are none.
    ///
    /// ```
    /// use http::{header, HeaderMap, HeaderValue};
    /// use ifmatch_core::tag::{EntityTag, TagList};
    ///
    /// let mut headers = HeaderMap::new();
    /// assert_eq!(TagList::from_headers(&headers, header::IF_MATCH), None);
    /// headers.append(header::IF_MATCH, HeaderValue::from_static("\"a,b\", unquoted"));
    /// headers.append(header::IF_MATCH, HeaderValue::from_static("W/\"c\""));
    /// assert_eq!(
    ///     TagList::from_headers(&headers, header::IF_MATCH),
    ///     Some(TagList::Tags(vec![EntityTag::strong("a,b")?, EntityTag::weak("c")?])),
    /// );
    /// # Ok::<(), ifmatch_core::tag::InvalidTag>(())
    /// ```
    pub fn from_headers(headers: &HeaderMap, name: HeaderName) -> Option<Self> {
        let mut lines = fields::lines(headers, name);
        let first = lines.next()?;
        let mut reader = Reader { tags: Vec::with_capacity(1), ..Reader::default() };
        reader.read(first);
        lines.for_each(|line| reader.read(line));
        Some(reader.finish())
    }

    /// Returns `true` if the list contains one of `current` by strong comparison, as for `If-Match`.
    ///
    /// ```
    /// use ifmatch_core::tag::{EntityTag, TagList};
    ///
    /// let weak = [EntityTag::weak("1")?];
    /// assert!(!TagList::Tags(weak.to_vec()).matches_strong(&weak));
    /// assert!(TagList::Any.matches_strong(&[]));
    /// # Ok::<(), ifmatch_core::tag::InvalidTag>(())
    /// ```
    pub fn matches_strong(&self, current: &[EntityTag]) -> bool {
        self.matches(current, EntityTag::strong_eq)
    }

    /// Returns `true` if the list contains one of `current` by weak comparison, as for `If-None-Match`.
    ///
    /// ```
    /// use ifmatch_core::tag::{EntityTag, TagList};
    ///
    /// let list = TagList::Tags(vec![EntityTag::weak("1")?]);
    /// assert!(list.matches_weak(&[EntityTag::strong("1")?]));
    /// assert!(!TagList::Unreadable.matches_weak(&[EntityTag::strong("1")?]));
    /// # Ok::<(), ifmatch_core::tag::InvalidTag>(())
    /// ```
    pub fn matches_weak(&self, current: &[EntityTag]) -> bool {
        self.matches(current, EntityTag::weak_eq)
    }

    fn matches(&self, current: &[EntityTag], eq: fn(&EntityTag, &EntityTag) -> bool) -> bool {
        match self {
            Self::Any => true,
            Self::Tags(tags) => tags.iter().any(|tag| current.iter().any(|other| eq(tag, other))),
            Self::Unreadable => false,
        }
    }
}

#[derive(Default)]
struct Reader {
    tags: Vec<EntityTag>,
    elements: usize,
    star: bool,
}

impl Reader {
    fn read(&mut self, line: &HeaderValue) {
        // Nearly all lines are a single tag, which can share the memory of the line.
        if let Ok(tag) = EntityTag::from_header(line) {
            return self.add(Some(tag));
        }
        for element in elements(line.as_bytes()) {
            if self.elements > TagList::MAX_TAGS {
                return;
            }
            self.star |= element == b"*";
            self.add(EntityTag::parse(element).ok());
        }
    }

    fn add(&mut self, tag: Option<EntityTag>) {
        self.elements += 1;
        if self.elements <= TagList::MAX_TAGS {
            self.tags.extend(tag);
        }
    }

    fn finish(self) -> TagList {
        match (self.star, self.elements) {
            (true, 1) => TagList::Any,
            (false, ..=TagList::MAX_TAGS) => TagList::Tags(self.tags),
            _ => TagList::Unreadable,
        }
    }
}

/// Splits a line at commas outside quotes and trims the elements.
///
/// After a stray quote, the rest of the line counts as quoted, so that no unintended member is found.
fn elements(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut quoted = false;
    let separates = move |byte: &u8| {
        quoted ^= *byte == b'"';
        *byte == b',' && !quoted
    };
    line.split(separates).map(<[u8]>::trim_ascii)
}
