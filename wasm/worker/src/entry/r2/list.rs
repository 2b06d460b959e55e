//! Listings, in the order of the names' bytes. R2's listings are consistent with earlier writes.

use std::collections::VecDeque;

use futures_util::StreamExt;
use futures_util::stream::{self, BoxStream};
use object_store::path::Path;
use object_store::{Attributes, ListResult, ObjectMeta, Result};
use worker::send::{IntoSendFuture, SendWrapper};
use worker::{Bucket, Include, Object, Objects};

use super::tombstone::is_tombstone;
use super::{attributes, within_limits};

/// An object, with its attributes if they were requested.
type Found = (ObjectMeta, Attributes);

/// A listing in progress.
struct Listing {
    bucket: SendWrapper<Bucket>,
    prefix: Option<String>,
    /// Start of the next page, or `None` after the last page.
    next: Option<Start>,
    is_described: bool,
    /// Objects received but not returned yet.
    page: VecDeque<Found>,
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
) -> BoxStream<'static, Result<Found>> {
    let bucket = SendWrapper::new(bucket.clone());
    let next = Some(after.map_or(Start::First, |after| Start::After(after.to_string())));
    let listing = Listing { bucket, prefix, next, is_described, page: VecDeque::new() };
    stream::try_unfold(listing, |listing| listing.next().into_send()).boxed()
}

/// Lists the objects directly below a prefix, and the folders there.
pub(super) async fn folders(bucket: &Bucket, prefix: Option<&Path>) -> Result<ListResult> {
    let mut found =
        ListResult { common_prefixes: Vec::new(), objects: Vec::new(), extensions: http::Extensions::default() };
    let prefix = folder(prefix);
    let mut start = Start::First;
    loop {
        let page = page(bucket, prefix.as_deref(), &start, Some("/"), false).await?;
        found.common_prefixes.extend(page.delimited_prefixes().iter().filter_map(|name| Path::parse(name).ok()));
        found.objects.extend(read(&page.objects(), false)?.into_iter().map(|(meta, _)| meta));
        match cursor(&page) {
            Some(cursor) => start = cursor,
            None => return Ok(found),
        }
    }
}

impl Listing {
    async fn next(mut self) -> Result<Option<(Found, Self)>> {
        loop {
            if let Some(found) = self.page.pop_front() {
                return Ok(Some((found, self)));
            }
            let Some(start) = self.next.take() else { return Ok(None) };
            let page = page(&self.bucket, self.prefix.as_deref(), &start, None, self.is_described).await?;
            self.page = read(&page.objects(), self.is_described)?;
            self.next = cursor(&page);
        }
    }
}

/// Returns the prefix of all names in a folder.
pub(super) fn folder(prefix: Option<&Path>) -> Option<String> {
    prefix.filter(|prefix| !prefix.as_ref().is_empty()).map(|prefix| format!("{prefix}/"))
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
    page.cursor().filter(|_| page.truncated()).map(Start::Cursor)
}

/// Reads a page, without tombstones if it is described, and without objects that have names that no blob can have.
fn read(objects: &[Object], is_described: bool) -> Result<VecDeque<Found>> {
    let named = objects
        .iter()
        .filter(|object| !(is_described && is_tombstone(object)))
        .filter_map(|object| Some((object, Path::parse(object.key()).ok()?)));
    named
        .map(|(object, location)| {
            // Without a request for them, the object has no such properties.
            let attributes = if is_described { attributes::attributes(object)? } else { Attributes::default() };
            Ok((attributes::meta(object, location)?, attributes))
        })
        .collect()
}
