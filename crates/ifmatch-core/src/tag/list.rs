//! Lists of entity tags: the values of `If-Match` and `If-None-Match`.

use http::{HeaderMap, HeaderName, HeaderValue};

use super::EntityTag;
use crate::fields;

/// What the field lines of `If-Match` or `If-None-Match` say.
///
/// Members that are no entity tags, unquoted ones for example, match nothing and are left out. `If-Match` then fails and
/// `If-None-Match` lets the request pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TagList {
    /// `*`: any current representation.
    Any,
    /// These tags; possibly none.
    Tags(Vec<EntityTag>),
    /// A `*` beside other members, or more than [`MAX_TAGS`](Self::MAX_TAGS) of them. Nobody can say what that
    /// is to match, so each condition takes it for what loses nothing: it lets a read pass with a full
    /// answer, but no write.
    Unreadable,
}

impl TagList {
    /// The most members read. Real clients send a handful.
    pub const MAX_TAGS: usize = 1_000;

    /// Reads all field lines of a header. `None`: there is no such header.
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

    /// Whether one of `current` is in the list by the strong comparison, as `If-Match` wants it.
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

    /// Whether one of `current` is in the list by the weak comparison, as `If-None-Match` wants it.
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
        // Nearly always the line is one tag, whose memory can be shared.
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

/// The elements between the commas, without the white space around them. A comma in quotes separates nothing.
///
/// After a stray quote the rest is taken for quoted, so that no member is found where the client meant none.
fn elements(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut quoted = false;
    let separates = move |byte: &u8| {
        quoted ^= *byte == b'"';
        *byte == b',' && !quoted
    };
    line.split(separates).map(<[u8]>::trim_ascii)
}
