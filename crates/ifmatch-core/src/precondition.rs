//! Preconditions and their evaluation, in the order of RFC 9110 §13.2.2.

use http::header::{IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE, IF_UNMODIFIED_SINCE};
use http::{HeaderMap, HeaderName, HeaderValue, Method};

use crate::date::HttpDate;
use crate::tag::{EntityTag, TagList};

/// All conditional header fields (RFC 9110 §13.1): the preconditions and `If-Range`.
pub const CONDITIONAL_HEADERS: [HeaderName; 5] = [
    IF_MATCH,
    IF_UNMODIFIED_SINCE,
    IF_NONE_MATCH,
    IF_MODIFIED_SINCE,
    IF_RANGE,
];

/// A request's preconditions.
///
/// ```
/// use http::{header, HeaderMap, HeaderValue, Method};
/// use ifmatch_core::EntityTag;
/// use ifmatch_core::precondition::{Precondition, Preconditions, Validators, Verdict};
///
/// let mut headers = HeaderMap::new();
/// headers.insert(header::IF_MATCH, HeaderValue::from_static("\"v1\""));
/// let conditions = Preconditions::from_headers(&headers);
///
/// let current = [EntityTag::strong("v2")?];
/// let current = Validators { tags: &current, last_modified: None };
/// assert_eq!(
///     conditions.evaluate(&Method::PUT, Some(&current)),
///     Verdict::Failed(Precondition::IfMatch),
/// );
/// # Ok::<(), ifmatch_core::tag::InvalidTag>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Preconditions {
    /// `If-Match` (§13.1.1).
    pub if_match: Option<TagList>,
    /// `If-Unmodified-Since` (§13.1.4). Malformed values are ignored.
    pub if_unmodified_since: Option<HttpDate>,
    /// `If-None-Match` (§13.1.2).
    pub if_none_match: Option<TagList>,
    /// `If-Modified-Since` (§13.1.3). Malformed values are ignored.
    pub if_modified_since: Option<HttpDate>,
}

impl Preconditions {
    /// No preconditions.
    pub const NONE: Self = Self {
        if_match: None,
        if_unmodified_since: None,
        if_none_match: None,
        if_modified_since: None,
    };

    /// Requires that there is no representation: `If-None-Match: *`.
    pub fn absent() -> Self {
        Self {
            if_none_match: Some(TagList::Any),
            ..Self::NONE
        }
    }

    /// Requires that the representation still has this tag: `If-Match`. Never true without a tag.
    pub fn unchanged(tag: Option<&EntityTag>) -> Self {
        Self {
            if_match: Some(TagList::Tags(tag.into_iter().cloned().collect())),
            ..Self::NONE
        }
    }

    /// The header fields of preconditions, in the order in which they are evaluated. `If-Range` isn't one of them: see
    /// [`CONDITIONAL_HEADERS`].
    pub const HEADERS: [HeaderName; 4] = [
        IF_MATCH,
        IF_UNMODIFIED_SINCE,
        IF_NONE_MATCH,
        IF_MODIFIED_SINCE,
    ];

    /// The header fields of preconditions that can fail a write.
    pub const WRITE_HEADERS: [HeaderName; 3] = [IF_MATCH, IF_NONE_MATCH, IF_UNMODIFIED_SINCE];

    /// Reads the preconditions of a request. Doesn't allocate if there are none.
    pub fn from_headers(headers: &HeaderMap) -> Self {
        let mut found = Self::default();
        for name in headers.keys() {
            match name {
                name if *name == IF_MATCH => {
                    found.if_match = TagList::from_headers(headers, IF_MATCH);
                }
                name if *name == IF_UNMODIFIED_SINCE => {
                    found.if_unmodified_since =
                        HttpDate::from_headers(headers, IF_UNMODIFIED_SINCE);
                }
                name if *name == IF_NONE_MATCH => {
                    found.if_none_match = TagList::from_headers(headers, IF_NONE_MATCH);
                }
                name if *name == IF_MODIFIED_SINCE => {
                    found.if_modified_since = HttpDate::from_headers(headers, IF_MODIFIED_SINCE);
                }
                _ => {}
            }
        }
        found
    }

    /// Returns `true` if there is no precondition.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Returns `true` if a write with these preconditions is conditional, as a 428 response requires (RFC 6585 §3).
    ///
    /// A precondition that can't fail doesn't count: an `If-None-Match` without a well-formed tag, or a malformed date.
    /// `If-Modified-Since` doesn't apply to writes.
    ///
    /// ```
    /// # use ifmatch_core::precondition::Preconditions;
    /// # use ifmatch_core::tag::TagList;
    /// let mut conditions = Preconditions::default();
    /// assert!(!conditions.has_write_condition());
    /// conditions.if_none_match = Some(TagList::Any);
    /// assert!(conditions.has_write_condition());
    /// conditions.if_none_match = Some(TagList::Tags(vec![]));
    /// assert!(!conditions.has_write_condition());
    /// ```
    pub fn has_write_condition(&self) -> bool {
        let none_match = match &self.if_none_match {
            Some(TagList::Tags(tags)) => !tags.is_empty(),
            other => other.is_some(),
        };
        self.if_match.is_some() || self.if_unmodified_since.is_some() || none_match
    }

    /// Evaluates the preconditions against the current representation, if there is one.
    ///
    /// Evaluate them only if the response would otherwise be 2xx or 412, that is after authentication and after checks
    /// that lead to 404 or 405 (§13.2.1). `If-Range` is evaluated afterwards: see [`range::select`](crate::range::select).
    ///
    /// ```
    /// # use http::Method;
    /// # use ifmatch_core::precondition::{Precondition, Preconditions, Verdict};
    /// # use ifmatch_core::tag::TagList;
    /// let create = Preconditions { if_none_match: Some(TagList::Any), ..Preconditions::default() };
    /// assert_eq!(create.evaluate(&Method::PUT, None), Verdict::Proceed);
    /// let update = Preconditions { if_match: Some(TagList::Any), ..Preconditions::default() };
    /// assert_eq!(update.evaluate(&Method::PUT, None), Verdict::Failed(Precondition::IfMatch));
    /// ```
    pub fn evaluate(&self, method: &Method, current: Option<&Validators<'_>>) -> Verdict {
        // §13.2.1: methods that select no representation ignore preconditions.
        if matches!(*method, Method::CONNECT | Method::OPTIONS | Method::TRACE) {
            return Verdict::Proceed;
        }
        // Steps 1 and 2: If-Match, and If-Unmodified-Since only without it.
        let (guard, name) = match self.if_match(current) {
            Some(result) => {
                let readable = if self.lists_weak_tags_only() {
                    Precondition::WeakIfMatch
                } else {
                    Precondition::IfMatch
                };
                (
                    Some(result),
                    name_of(
                        self.if_match.as_ref(),
                        readable,
                        Precondition::UnreadableIfMatch,
                    ),
                )
            }
            None => (
                self.if_unmodified_since(method, current),
                Precondition::IfUnmodifiedSince,
            ),
        };
        if guard == Some(false) {
            return Verdict::Failed(name);
        }
        // Steps 3 and 4: If-None-Match, and If-Modified-Since only without it.
        let (change, name) = match self.if_none_match(method, current) {
            Some(result) => (
                Some(result),
                name_of(
                    self.if_none_match.as_ref(),
                    Precondition::IfNoneMatch,
                    Precondition::UnreadableIfNoneMatch,
                ),
            ),
            None => (
                self.if_modified_since(method, current),
                Precondition::IfModifiedSince,
            ),
        };
        match change {
            Some(false) if is_retrieval(method) => Verdict::NotModified,
            Some(false) => Verdict::Failed(name),
            Some(true) | None => Verdict::Proceed,
        }
    }

    fn lists_weak_tags_only(&self) -> bool {
        matches!(&self.if_match, Some(TagList::Tags(tags)) if tags.iter().all(EntityTag::is_weak))
    }

    /// Step 1, §13.1.1: false if there is no current representation, or no tag matches by strong comparison.
    fn if_match(&self, current: Option<&Validators<'_>>) -> Option<bool> {
        let list = self.if_match.as_ref()?;
        Some(current.is_some_and(|current| list.matches_strong(current.tags)))
    }

    /// Step 2, §13.1.4: false if the representation was modified after the date.
    ///
    /// Without a modification date, or without a representation, the RFC ignores the header. Reads do so here as well.
    /// Writes fail: they would otherwise overwrite a change they haven't seen, or restore a deleted resource.
    fn if_unmodified_since(
        &self,
        method: &Method,
        current: Option<&Validators<'_>>,
    ) -> Option<bool> {
        let date = self.if_unmodified_since?;
        match current.and_then(|current| current.last_modified) {
            Some(last_modified) => Some(last_modified <= date),
            None => is_write(method).then_some(false),
        }
    }

    /// Step 3, §13.1.2: false if a tag matches by weak comparison, or for `*` if there is a representation.
    fn if_none_match(&self, method: &Method, current: Option<&Validators<'_>>) -> Option<bool> {
        match self.if_none_match.as_ref()? {
            TagList::Unreadable => Some(!is_write(method)),
            list => Some(!current.is_some_and(|current| list.matches_weak(current.tags))),
        }
    }

    /// Step 4, §13.1.3: false if the representation wasn't modified after the date. Only for GET and HEAD.
    fn if_modified_since(&self, method: &Method, current: Option<&Validators<'_>>) -> Option<bool> {
        let date = self.if_modified_since.filter(|_| is_retrieval(method))?;
        Some(current?.last_modified? > date)
    }
}

/// Evaluates the preconditions of a request like [`Preconditions::evaluate`].
///
/// Doesn't parse them in the common cases: no precondition, or a single tag that equals the current one.
///
/// ```
/// use http::{header, HeaderMap, HeaderValue, Method};
/// use ifmatch_core::EntityTag;
/// use ifmatch_core::precondition::{Validators, Verdict, evaluate};
///
/// let headers = HeaderMap::from_iter([(header::IF_NONE_MATCH, HeaderValue::from_static("\"v1\""))]);
/// let tags = [EntityTag::strong("v1")?];
/// let current = Validators { tags: &tags, last_modified: None };
/// assert_eq!(evaluate(&headers, &Method::GET, Some(&current)), Verdict::NotModified);
/// # Ok::<(), ifmatch_core::tag::InvalidTag>(())
/// ```
pub fn evaluate(headers: &HeaderMap, method: &Method, current: Option<&Validators<'_>>) -> Verdict {
    let repeats =
        |line, current: &Validators<'_>| current.tags.iter().any(|tag| line == tag.as_bytes());
    match Carried::of(headers) {
        Carried::Nothing => Verdict::Proceed,
        Carried::NoneMatch(line)
            if is_retrieval(method) && current.is_some_and(|current| repeats(line, current)) =>
        {
            Verdict::NotModified
        }
        _ => Preconditions::from_headers(headers).evaluate(method, current),
    }
}

/// The preconditions of a request by the names of its header fields.
enum Carried<'a> {
    Nothing,
    /// One line of `If-None-Match` and no precondition with a higher precedence.
    NoneMatch(&'a HeaderValue),
    Others,
}

impl<'a> Carried<'a> {
    fn of(headers: &'a HeaderMap) -> Self {
        let (mut line, mut is_dated) = (None, false);
        for (name, value) in headers {
            match *name {
                IF_NONE_MATCH if line.is_none() => line = Some(value),
                IF_NONE_MATCH | IF_MATCH | IF_UNMODIFIED_SINCE => return Self::Others,
                IF_MODIFIED_SINCE => is_dated = true,
                _ => {}
            }
        }
        match line {
            Some(line) => Self::NoneMatch(line),
            None if is_dated => Self::Others,
            None => Self::Nothing,
        }
    }
}

/// The validators of the current representation. A resource with several content codings has a tag for each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Validators<'a> {
    /// The tags of all representations. A list matches if any of them matches.
    pub tags: &'a [EntityTag],
    /// The modification date, if known.
    pub last_modified: Option<HttpDate>,
}

/// The result of evaluating preconditions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Perform the method.
    Proceed,
    /// Respond with 304: the client has the current representation. Only for GET and HEAD.
    NotModified,
    /// Respond with 412: this precondition is false.
    Failed(Precondition),
}

/// The name of a precondition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Precondition {
    /// `If-Match`
    IfMatch,
    /// `If-Unmodified-Since`
    IfUnmodifiedSince,
    /// `If-None-Match`
    IfNoneMatch,
    /// `If-Modified-Since`
    IfModifiedSince,
    /// `If-Match` without a tag that can be read, which matches nothing.
    UnreadableIfMatch,
    /// `If-Match` with weak tags only, which match nothing.
    WeakIfMatch,
    /// `If-None-Match` of a write with a list that can't be read.
    UnreadableIfNoneMatch,
}

impl Precondition {
    /// Returns the name of the header field.
    pub fn header(self) -> HeaderName {
        match self {
            Self::IfMatch | Self::UnreadableIfMatch | Self::WeakIfMatch => IF_MATCH,
            Self::IfUnmodifiedSince => IF_UNMODIFIED_SINCE,
            Self::IfNoneMatch | Self::UnreadableIfNoneMatch => IF_NONE_MATCH,
            Self::IfModifiedSince => IF_MODIFIED_SINCE,
        }
    }
}

/// Returns the name of a precondition, by its list of tags.
fn name_of(
    list: Option<&TagList>,
    readable: Precondition,
    unreadable: Precondition,
) -> Precondition {
    match list {
        Some(TagList::Tags(tags)) if tags.is_empty() => unreadable,
        Some(TagList::Unreadable) => unreadable,
        _ => readable,
    }
}

/// Returns `true` for methods that allow a 304 response.
fn is_retrieval(method: &Method) -> bool {
    matches!(*method, Method::GET | Method::HEAD)
}

/// Returns `true` for methods that may change the resource. QUERY is safe.
fn is_write(method: &Method) -> bool {
    !method.is_safe()
}
