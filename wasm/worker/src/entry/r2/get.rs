//! Reads and listings of R2.

use std::collections::VecDeque;
use std::ops;

use futures_util::stream::{self, BoxStream};
use futures_util::{StreamExt, TryStreamExt};
use ifmatch_blob::body::BlobBody;
use ifmatch_blob_objects::DirectBody;
use object_store::path::Path;
use object_store::{
    Attributes, Error, GetOptions, GetRange, GetResult, GetResultPayload, ListResult, ObjectMeta,
    Result,
};
use worker::send::{IntoSendFuture, SendWrapper};
use worker::{
    Bucket, Conditional, GetOptionsBuilder, Include, Object, Objects, Range, ResponseBody, web_sys,
};

use super::tombstone::is_tombstone;
use super::{attributes, failure, within_limits};
use crate::entry::edge::body::{BrokenStream, ByteStream, EdgeBody};

/// Reads an object.
pub(super) async fn get(
    bucket: &Bucket,
    location: &Path,
    options: GetOptions,
) -> Result<GetResult> {
    let object = if options.head {
        within_limits(location, bucket.head(location.as_ref())).await?
    } else {
        within_limits(
            location,
            request(bucket.get(location.as_ref()), &options).execute(),
        )
        .await?
    };
    let object = object
        .filter(|object| !is_tombstone(object))
        .ok_or_else(|| absent(location))?;
    let (meta, attributes) = (
        attributes::meta(&object, location.clone())?,
        attributes::attributes(&object)?,
    );
    // R2 sends no body if a condition failed.
    options.check_preconditions(&meta)?;
    let range = sent(options.range.as_ref(), meta.size)?;
    let mut extensions = http::Extensions::default();
    let payload = if options.head {
        stream::empty().boxed()
    } else {
        let raw = body(&object)
            .map_err(|error| failure::of(location, &error))?
            .ok_or_else(|| failed("R2 sent no body"))?;
        // The body is passed on without being read.
        let whole = EdgeBody::new(
            ByteStream::new(raw.clone()),
            Some(range.end.saturating_sub(range.start)),
        );
        extensions.insert(DirectBody::new(BlobBody::stream(whole)));
        ByteStream::new(raw).map_err(broken).boxed()
    };
    Ok(GetResult {
        payload: GetResultPayload::Stream(payload),
        meta,
        range,
        attributes,
        extensions,
    })
}

/// Adds a condition and a range to a request.
fn request<'a>(request: GetOptionsBuilder<'a>, options: &GetOptions) -> GetOptionsBuilder<'a> {
    let request = match options.if_match.as_deref().and_then(attributes::raw_tag) {
        Some(raw) => request.only_if(Conditional {
            etag_matches: Some(raw.to_owned()),
            ..Conditional::default()
        }),
        None => request,
    };
    let range = match options.range {
        None => return request,
        Some(GetRange::Bounded(ref range)) => Range::OffsetWithLength {
            offset: range.start,
            length: range.end.saturating_sub(range.start),
        },
        Some(GetRange::Offset(offset)) => Range::OffsetToEnd { offset },
        Some(GetRange::Suffix(suffix)) => Range::Suffix { suffix },
    };
    request.range(range)
}

/// Returns the range that R2 sends. `GetRange::as_range` refuses more bytes than fit in this platform's memory.
fn sent(range: Option<&GetRange>, size: u64) -> Result<ops::Range<u64>> {
    let sent = match range {
        None => return Ok(0..size),
        Some(GetRange::Bounded(range)) => range.start..range.end.min(size),
        Some(GetRange::Offset(offset)) => *offset..size,
        Some(GetRange::Suffix(length)) => size.saturating_sub(*length)..size,
    };
    if sent.is_empty() {
        Err(failed("the object has no such bytes"))
    } else {
        Ok(sent)
    }
}

/// Returns the stream of an object's body.
fn body(object: &Object) -> worker::Result<Option<web_sys::ReadableStream>> {
    let Some(body) = object.body() else {
        return Ok(None);
    };
    Ok(match body.response_body()? {
        ResponseBody::Stream(stream) => Some(stream),
        ResponseBody::Empty | ResponseBody::Body(_) => None,
    })
}

fn failed(why: &str) -> Error {
    Error::Generic {
        store: "R2",
        source: why.into(),
    }
}

fn broken(error: BrokenStream) -> Error {
    Error::Generic {
        store: "R2",
        source: error.into(),
    }
}

fn absent(location: &Path) -> Error {
    Error::NotFound {
        path: location.to_string(),
        source: "there is no such object".into(),
    }
}

/// An object, with its attributes if they were requested.
type FoundObject = (ObjectMeta, Attributes);

/// A listing in progress.
struct Listing {
    bucket: SendWrapper<Bucket>,
    prefix: Option<String>,
    /// Start of the next page, or `None` after the last page.
    next: Option<Start>,
    is_described: bool,
    /// Objects received but not returned yet.
    page: VecDeque<FoundObject>,
}

/// Start of a page.
enum Start {
    First,
    After(String),
    Cursor(String),
}

/// Lists the objects whose names begin with a prefix, after a name.
pub(super) fn objects(
    bucket: &Bucket,
    prefix: Option<String>,
    after: Option<&Path>,
    is_described: bool,
) -> BoxStream<'static, Result<FoundObject>> {
    let bucket = SendWrapper::new(bucket.clone());
    let next = Some(after.map_or(Start::First, |after| Start::After(after.to_string())));
    let listing = Listing {
        bucket,
        prefix,
        next,
        is_described,
        page: VecDeque::new(),
    };
    stream::try_unfold(listing, |listing| listing.next().into_send()).boxed()
}

/// Lists the objects directly below a prefix, and the folders there.
pub(super) async fn folders(bucket: &Bucket, prefix: Option<&Path>) -> Result<ListResult> {
    let mut found = ListResult {
        common_prefixes: Vec::new(),
        objects: Vec::new(),
        extensions: http::Extensions::default(),
    };
    let prefix = folder(prefix);
    let mut start = Start::First;
    loop {
        let page = page(bucket, prefix.as_deref(), &start, Some("/"), false).await?;
        found.common_prefixes.extend(
            page.delimited_prefixes()
                .iter()
                .filter_map(|name| Path::parse(name).ok()),
        );
        found.objects.extend(
            read(&page.objects(), false)?
                .into_iter()
                .map(|(meta, _)| meta),
        );
        match cursor(&page) {
            Some(cursor) => start = cursor,
            None => return Ok(found),
        }
    }
}

impl Listing {
    async fn next(mut self) -> Result<Option<(FoundObject, Self)>> {
        loop {
            if let Some(found) = self.page.pop_front() {
                return Ok(Some((found, self)));
            }
            let Some(start) = self.next.take() else {
                return Ok(None);
            };
            let page = page(
                &self.bucket,
                self.prefix.as_deref(),
                &start,
                None,
                self.is_described,
            )
            .await?;
            self.page = read(&page.objects(), self.is_described)?;
            self.next = cursor(&page);
        }
    }
}

/// Returns the prefix of all names in a folder.
pub(super) fn folder(prefix: Option<&Path>) -> Option<String> {
    prefix
        .filter(|prefix| !prefix.as_ref().is_empty())
        .map(|prefix| format!("{prefix}/"))
}

async fn page(
    bucket: &Bucket,
    prefix: Option<&str>,
    start: &Start,
    delimiter: Option<&str>,
    is_described: bool,
) -> Result<Objects> {
    let mut request = bucket.list();
    if let Some(prefix) = prefix {
        request = request.prefix(prefix);
    }
    if let Some(delimiter) = delimiter {
        request = request.delimiter(delimiter);
    }
    if is_described {
        request = request.include(vec![Include::HttpMetadata, Include::CustomMetadata]);
    }
    let request = match start {
        Start::First => request,
        Start::After(name) => request.start_after(name),
        Start::Cursor(cursor) => request.cursor(cursor),
    };
    within_limits(&Path::default(), request.execute()).await
}

/// Returns the start of the next page.
fn cursor(page: &Objects) -> Option<Start> {
    page.cursor()
        .filter(|_| page.truncated())
        .map(Start::Cursor)
}

/// Reads a page, without tombstones if it is described, and without objects that have names that no blob can have.
fn read(objects: &[Object], is_described: bool) -> Result<VecDeque<FoundObject>> {
    let named = objects
        .iter()
        .filter(|object| !(is_described && is_tombstone(object)))
        .filter_map(|object| Some((object, Path::parse(object.key()).ok()?)));
    named
        .map(|(object, location)| {
            // Without a request for them, the object has no such properties.
            let attributes = if is_described {
                attributes::attributes(object)?
            } else {
                Attributes::default()
            };
            Ok((attributes::meta(object, location)?, attributes))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_may_be_longer_than_the_memory() {
        let size = 6 << 30;
        for (range, expected) in [
            (None, Some(0..size)),
            (Some(GetRange::Bounded(1..5 << 30)), Some(1..5 << 30)),
            (Some(GetRange::Bounded(1..u64::MAX)), Some(1..size)),
            (Some(GetRange::Offset(1)), Some(1..size)),
            (Some(GetRange::Suffix(5 << 30)), Some(1 << 30..size)),
            (Some(GetRange::Suffix(u64::MAX)), Some(0..size)),
            (Some(GetRange::Offset(size)), None),
            (Some(GetRange::Bounded(size..size + 1)), None),
            (Some(GetRange::Suffix(0)), None),
        ] {
            assert_eq!(sent(range.as_ref(), size).ok(), expected, "{range:?}");
        }
    }
}
