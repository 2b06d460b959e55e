//! Listings: R2 lists in the order of the names' bytes, and what was written is listed at once.

use std::collections::VecDeque;

use futures_util::StreamExt;
use futures_util::stream::{self, BoxStream};
use object_store::path::Path;
use object_store::{ListResult, ObjectMeta, Result};
use worker::send::{IntoSendFuture, SendWrapper};
use worker::{Bucket, Objects};

use super::attributes::Described;
use super::{failure, in_time};

/// A listing under way.
struct Listing {
    bucket: SendWrapper<Bucket>,
    prefix: String,
    after: Option<String>,
    next: Next,
    /// What came and was not given out yet.
    page: VecDeque<ObjectMeta>,
}

/// Where the next page is.
enum Next {
    First,
    At(String),
    None,
}

/// The objects below a prefix, after a name.
pub(super) fn objects(
    bucket: &Bucket,
    prefix: Option<&Path>,
    after: Option<&Path>,
) -> BoxStream<'static, Result<ObjectMeta>> {
    let listing = Listing {
        bucket: SendWrapper::new(bucket.clone()),
        prefix: below(prefix),
        after: after.map(ToString::to_string),
        next: Next::First,
        page: VecDeque::new(),
    };
    stream::try_unfold(listing, |listing| listing.next().into_send()).boxed()
}

/// The objects right below a prefix, and the names of the folders there.
pub(super) async fn folders(bucket: &Bucket, prefix: Option<&Path>) -> Result<ListResult> {
    let prefix = below(prefix);
    let mut found =
        ListResult { common_prefixes: Vec::new(), objects: Vec::new(), extensions: http::Extensions::default() };
    let mut cursor: Option<String> = None;
    loop {
        let list = bucket.list().prefix(prefix.as_str()).delimiter("/");
        let list = if let Some(cursor) = cursor { list.cursor(cursor) } else { list };
        let listed = in_time(async { list.execute().await.map_err(|error| failed(&prefix, error)) }).await?;
        found.common_prefixes.extend(listed.delimited_prefixes().iter().filter_map(|name| Path::parse(name).ok()));
        found.objects.extend(metas(&listed)?);
        cursor = next(&listed);
        if cursor.is_none() {
            return Ok(found);
        }
    }
}

impl Listing {
    async fn next(mut self) -> Result<Option<(ObjectMeta, Self)>> {
        loop {
            if let Some(object) = self.page.pop_front() {
                return Ok(Some((object, self)));
            }
            let list = self.bucket.list().prefix(self.prefix.as_str());
            let list = match (&self.next, &self.after) {
                (Next::None, _) => return Ok(None),
                (Next::At(cursor), _) => list.cursor(cursor.as_str()),
                (Next::First, Some(after)) => list.start_after(after.as_str()),
                (Next::First, None) => list,
            };
            let listed = in_time(async { list.execute().await.map_err(|error| failed(&self.prefix, error)) }).await?;
            self.page = metas(&listed)?.into();
            self.next = next(&listed).map_or(Next::None, Next::At);
        }
    }
}

/// What names below a folder begin with.
fn below(prefix: Option<&Path>) -> String {
    match prefix {
        Some(prefix) if !prefix.as_ref().is_empty() => format!("{prefix}/"),
        _ => String::new(),
    }
}

/// What is known of the objects; those with names that no blob can have are left out.
fn metas(listed: &Objects) -> Result<Vec<ObjectMeta>> {
    let objects = listed.objects();
    let named = objects.iter().filter_map(|object| Some((Path::parse(object.key()).ok()?, object)));
    named.map(|(location, object)| Ok(Described::from(object).into_parts(location)?.0)).collect()
}

fn next(listed: &Objects) -> Option<String> {
    listed.cursor().filter(|_| listed.truncated())
}

fn failed(prefix: &str, error: worker::Error) -> object_store::Error {
    failure::of(&Path::from(prefix), error)
}
