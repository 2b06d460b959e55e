//! The conditions of requests.
//!
//! They are read from the header fields, since `s3s` knows only those that S3 had when it was generated. S3 also accepts a tag
//! without quotes.

use http::header::{IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_UNMODIFIED_SINCE};
use http::request::Parts;
use http::{Extensions, HeaderMap, HeaderName, HeaderValue, Method};
use ifmatch_blob::dialect::Context;
use ifmatch_blob::store::RequestKey;
use ifmatch_core::EntityTag;
use ifmatch_core::date::HttpDate;
use ifmatch_core::precondition::Preconditions;
use ifmatch_core::tag::TagList;
use s3s::dto::{ETag, ETagCondition};
use s3s::{S3Result, s3_error};

/// The SDKs' name for a call, the same for all attempts.
const INVOCATION: HeaderName = HeaderName::from_static("amz-sdk-invocation-id");

/// The condition of a write, and the client's name for it.
#[derive(Debug)]
pub(crate) struct WriteConditions {
    pub(crate) preconditions: Preconditions,
    pub(crate) request: Option<RequestKey>,
}

impl WriteConditions {
    /// Reads the conditions of a request that writes. As in S3, `If-None-Match` can only be `*`.
    pub(crate) fn of(
        context: &Context,
        method: &Method,
        target: &str,
        headers: &HeaderMap,
    ) -> S3Result<Self> {
        let preconditions = Preconditions {
            if_modified_since: None,
            ..of_target(headers)?
        };
        if preconditions
            .if_none_match
            .as_ref()
            .is_some_and(|tags| *tags != TagList::Any)
        {
            return Err(s3_error!(
                NotImplemented,
                "If-None-Match of a write must be *: name a version with If-Match"
            ));
        }
        let conditions = [IF_MATCH, IF_NONE_MATCH]
            .map(|name| headers.get(name).map_or(&b""[..], HeaderValue::as_bytes));
        let request = headers.get(INVOCATION).map(|id| {
            let [if_match, if_none_match] = conditions;
            let (method, target) = (method.as_str().as_bytes(), target.as_bytes());
            RequestKey::of(&[
                b"s3",
                id.as_bytes(),
                method,
                target,
                if_match,
                if_none_match,
            ])
        });
        let write = Self {
            preconditions,
            request,
        };
        write.check_policy(context, method)?;
        Ok(write)
    }

    /// Refuses a write without a condition if the service requires one.
    pub(crate) fn check_policy(&self, context: &Context, method: &Method) -> S3Result<()> {
        if context.required.refuses(method, &self.preconditions) {
            return Err(s3_error!(
                AccessDenied,
                "this gateway requires a condition: send If-Match, or If-None-Match: *"
            ));
        }
        Ok(())
    }

    /// Returns `true` if there is a condition.
    pub(crate) fn is_conditional(&self) -> bool {
        self.preconditions.has_write_condition()
    }

    /// Returns `true` if the write names a version, so there must be an object.
    pub(crate) fn updates(&self) -> bool {
        self.preconditions.if_match.is_some()
    }
}

/// Reads the conditions on the object that a request writes.
fn of_target(headers: &HeaderMap) -> S3Result<Preconditions> {
    parse(
        headers,
        [
            IF_MATCH,
            IF_UNMODIFIED_SINCE,
            IF_NONE_MATCH,
            IF_MODIFIED_SINCE,
        ],
    )
}

/// The lists of tags of a read, which `s3s` would refuse.
#[derive(Clone, Default)]
struct TagLists([Option<TagList>; 2]);

/// Takes the lists of several tags from a read. Returns `true` if there are any. They are no longer in the header then, so a
/// signature must be verified before.
pub(crate) fn take_lists(head: &mut Parts) -> S3Result<bool> {
    if !matches!(head.method, Method::GET | Method::HEAD) {
        return Ok(false);
    }
    let mut lists = TagLists::default();
    for (name, taken) in [IF_MATCH, IF_NONE_MATCH].into_iter().zip(&mut lists.0) {
        let mut lines = head.headers.get_all(&name).iter();
        let is_list = lines
            .next()
            .is_some_and(|line| line.as_bytes().contains(&b','))
            || lines.next().is_some();
        if !is_list {
            continue;
        }
        *taken = match TagList::from_headers(&head.headers, name.clone()) {
            Some(TagList::Tags(tags)) if tags.is_empty() => None,
            Some(TagList::Unreadable) | None => None,
            list => list,
        };
        if taken.is_none() {
            return Err(s3_error!(
                InvalidArgument,
                "{name} must be tags in quotes, or *"
            ));
        }
        head.headers.remove(name);
    }
    let has_any = lists.0.iter().any(Option::is_some);
    if has_any {
        head.extensions.insert(lists);
    }
    Ok(has_any)
}

/// Reads the conditions on the object that a request reads, with the [lists](take_lists) that were taken from it.
pub(crate) fn of_read(headers: &HeaderMap, extensions: &Extensions) -> S3Result<Preconditions> {
    let preconditions = of_target(headers)?;
    let TagLists([if_match, if_none_match]) = extensions.get().cloned().unwrap_or_default();
    Ok(Preconditions {
        if_match: if_match.or(preconditions.if_match),
        if_none_match: if_none_match.or(preconditions.if_none_match),
        ..preconditions
    })
}

/// Reads the conditions on the source of a copy.
pub(crate) fn of_source(headers: &HeaderMap) -> S3Result<Preconditions> {
    let names = [
        "x-amz-copy-source-if-match",
        "x-amz-copy-source-if-unmodified-since",
        "x-amz-copy-source-if-none-match",
        "x-amz-copy-source-if-modified-since",
    ];
    parse(headers, names.map(HeaderName::from_static))
}

/// Returns the condition that an object has this tag, as in an entry of a list.
pub(crate) fn has_tag(tag: &ETag) -> S3Result<Preconditions> {
    let if_match = Some(TagList::Tags(vec![entity_tag(tag)?]));
    Ok(Preconditions {
        if_match,
        ..Preconditions::NONE
    })
}

/// Reads the header fields with these names, in the order of [`Preconditions::HEADERS`].
fn parse(headers: &HeaderMap, names: [HeaderName; 4]) -> S3Result<Preconditions> {
    let [
        if_match,
        if_unmodified_since,
        if_none_match,
        if_modified_since,
    ] = names;
    Ok(Preconditions {
        if_match: tags(headers, &if_match)?,
        if_unmodified_since: HttpDate::from_headers(headers, if_unmodified_since),
        if_none_match: tags(headers, &if_none_match)?,
        if_modified_since: HttpDate::from_headers(headers, if_modified_since),
    })
}

/// Reads a header field with one tag or `*`.
fn tags(headers: &HeaderMap, name: &HeaderName) -> S3Result<Option<TagList>> {
    let mut lines = headers.get_all(name).iter();
    let Some(line) = lines.next() else {
        return Ok(None);
    };
    let condition = ETagCondition::parse_http_header(line.as_bytes());
    match (condition, lines.next()) {
        (Ok(ETagCondition::Any), None) => Ok(Some(TagList::Any)),
        (Ok(ETagCondition::ETag(tag)), None) => Ok(Some(TagList::Tags(vec![entity_tag(&tag)?]))),
        _ => Err(s3_error!(InvalidArgument, "{name} must be one tag or *")),
    }
}

/// Returns a tag in the form of the store.
pub(crate) fn entity_tag(tag: &ETag) -> S3Result<EntityTag> {
    let parsed = match tag {
        ETag::Strong(text) => EntityTag::strong(text),
        ETag::Weak(text) => EntityTag::weak(text),
    };
    parsed.map_err(|error| s3_error!(InvalidArgument, "{error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_condition_is_one_tag_with_or_without_quotes() {
        let parse = |lines: &[&'static str]| {
            let lines = lines
                .iter()
                .map(|line| (IF_MATCH, HeaderValue::from_static(line)));
            of_target(&lines.collect())
                .map(|conditions| conditions.if_match)
                .ok()
        };
        let tag = Some(TagList::Tags(vec![EntityTag::strong("ab-1").unwrap()]));
        assert_eq!(parse(&[]), Some(None));
        assert_eq!(parse(&["\"ab-1\""]), Some(tag.clone()));
        assert_eq!(parse(&["ab-1"]), Some(tag));
        assert_eq!(parse(&["*"]), Some(Some(TagList::Any)));
        assert_eq!(parse(&["\"a\"", "\"b\""]), None);
        assert_eq!(parse(&["a, b"]), None);
    }

    #[test]
    fn a_read_may_list_several_tags() {
        let read = |method: Method, lines: &[&str]| {
            let request = lines
                .iter()
                .fold(http::Request::builder().method(method), |request, line| {
                    request.header(IF_NONE_MATCH, *line)
                });
            let mut head = request.body(()).unwrap().into_parts().0;
            let is_taken = take_lists(&mut head).ok()?;
            assert_eq!(
                is_taken,
                !lines.is_empty() && !head.headers.contains_key(IF_NONE_MATCH)
            );
            of_read(&head.headers, &head.extensions).ok()?.if_none_match
        };
        let tags = |tags: &[&str]| {
            Some(TagList::Tags(
                tags.iter()
                    .map(|tag| EntityTag::strong(tag).unwrap())
                    .collect(),
            ))
        };
        assert_eq!(read(Method::GET, &[]), None);
        assert_eq!(read(Method::GET, &["bare"]), tags(&["bare"]));
        assert_eq!(read(Method::HEAD, &["\"a\",\"b\""]), tags(&["a", "b"]));
        assert_eq!(
            read(Method::GET, &["\"a\"", "\"b\", \"c\""]),
            tags(&["a", "b", "c"])
        );
        for malformed in [&["a, b"][..], &["*, \"a\""], &[",,"]] {
            assert_eq!(read(Method::GET, malformed), None, "{malformed:?}");
        }
        assert_eq!(read(Method::PUT, &["\"a\", \"b\""]), None);
    }
}
