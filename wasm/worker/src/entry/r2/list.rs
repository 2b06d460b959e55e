//! Listings: R2 lists in the order of the names' bytes, and what was written is listed at once.

use std::collections::VecDeque;

use futures_util::StreamExt;
use futures_util::stream::{self, BoxStream};
use object_store::path::Path;
use object_store::{Attributes, Error, ListResult, ObjectMeta, Result};
use serde_json::{Map, Value, json};
use worker::Bucket;
use worker::send::{IntoSendFuture, SendWrapper};

use super::attributes::{Described, whole};
use super::{PATIENCE, failure};
use crate::glue;
use crate::tasks::allowance::Share;
use crate::tasks::answer::Answer;

/// Separator between two parts of a page. It cannot occur in a name or field.
const BREAK: &str = "\n\\-\n";

/// An object with its known attributes.
type Found = (ObjectMeta, Attributes);

/// A listing under way.
struct Listing {
    bucket: SendWrapper<Bucket>,
    /// Options for the next page, or `None` after the last one.
    next: Option<Map<String, Value>>,
    /// What came and was not given out yet.
    page: VecDeque<Found>,
}

/// One page of results.
struct Page {
    objects: Vec<Found>,
    folders: Vec<String>,
    cursor: Option<String>,
}

/// The objects below a prefix, after a name.
pub(super) fn objects(
    bucket: &Bucket,
    prefix: Option<&Path>,
    after: Option<&Path>,
    is_described: bool,
) -> BoxStream<'static, Result<Found>> {
    let mut asked = below(prefix);
    if let Some(after) = after {
        asked.insert("startAfter".to_owned(), after.as_ref().into());
    }
    if is_described {
        asked.insert("include".to_owned(), json!(["httpMetadata", "customMetadata"]));
    }
    let listing = Listing { bucket: SendWrapper::new(bucket.clone()), next: Some(asked), page: VecDeque::new() };
    stream::try_unfold(listing, |listing| listing.next().into_send()).boxed()
}

/// The objects right below a prefix, and the names of the folders there.
pub(super) async fn folders(bucket: &Bucket, prefix: Option<&Path>) -> Result<ListResult> {
    let mut found =
        ListResult { common_prefixes: Vec::new(), objects: Vec::new(), extensions: http::Extensions::default() };
    let mut asked = below(prefix);
    asked.insert("delimiter".to_owned(), "/".into());
    loop {
        let page = page(bucket, &asked).await?;
        found.common_prefixes.extend(page.folders.iter().filter_map(|name| Path::parse(name).ok()));
        found.objects.extend(page.objects.into_iter().map(|(meta, _)| meta));
        match page.cursor {
            Some(cursor) => asked.insert("cursor".to_owned(), cursor.into()),
            None => return Ok(found),
        };
    }
}

impl Listing {
    async fn next(mut self) -> Result<Option<(Found, Self)>> {
        loop {
            if let Some(found) = self.page.pop_front() {
                return Ok(Some((found, self)));
            }
            let Some(mut asked) = self.next.take() else { return Ok(None) };
            let page = page(&self.bucket, &asked).await?;
            self.page = page.objects.into();
            self.next = page.cursor.map(|cursor| {
                asked.remove("startAfter");
                asked.insert("cursor".to_owned(), cursor.into());
                asked
            });
        }
    }
}

/// Returns the options for listing the objects below a folder.
fn below(prefix: Option<&Path>) -> Map<String, Value> {
    let prefix = prefix.filter(|prefix| !prefix.as_ref().is_empty()).map(|prefix| format!("{prefix}/"));
    prefix.map(|prefix| ("prefix".to_owned(), prefix.into())).into_iter().collect()
}

async fn page(bucket: &Bucket, asked: &Map<String, Value>) -> Result<Page> {
    let options = Value::Object(asked.clone()).to_string();
    let answer = Answer::to(Share::Work, |number| glue::list(number, PATIENCE, bucket.as_ref(), &options));
    let failed = |error| failure::of(&Path::default(), worker::Error::from(error));
    let (text, _) = answer.await.map_err(failed)?;
    Page::read(&text.unwrap_or_default())
}

impl Page {
    /// Parses a page. Skips objects with names that are not valid for blobs.
    fn read(text: &str) -> Result<Self> {
        let mut parts = text.split(BREAK);
        let cursor = whole(parts.next().unwrap_or_default());
        let folders = parts.next().ok_or_else(odd)?;
        let folders =
            folders.split('\n').filter(|name| !name.is_empty()).map(|name| whole(name).into_owned()).collect();
        let mut objects = Vec::new();
        for object in parts {
            let (key, described) = object.split_once('\n').ok_or_else(odd)?;
            let described = Described::read(described)?;
            if let Ok(location) = Path::parse(whole(key)) {
                objects.push(described.into_parts(location)?);
            }
        }
        let cursor = Some(cursor.into_owned()).filter(|cursor| !cursor.is_empty());
        Ok(Self { objects, folders, cursor })
    }
}

fn odd() -> Error {
    Error::Generic { store: "R2", source: "R2 listed objects in other terms".into() }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test speaks by panicking")]

    use super::*;

    #[test]
    fn a_page_is_read_whatever_is_in_its_names() {
        let object = |key, note| format!("{key}\n0\n1\n\"5d41\"\nv\n\nnote\n{note}");
        let text =
            ["next\\\\", "a/\nb/", &object("c", "\\\\-"), &object("bad//name", "x"), &object("d", "y")].join(BREAK);
        let page = Page::read(&text).unwrap();
        assert_eq!((page.cursor.as_deref(), page.folders), (Some("next\\"), vec!["a/".to_owned(), "b/".to_owned()]));
        let names: Vec<_> = page.objects.iter().map(|(meta, _)| meta.location.as_ref()).collect();
        assert_eq!(names, ["c", "d"]);
        let note =
            |at: usize| page.objects[at].1.iter().map(|(_, value)| value.as_ref().to_owned()).collect::<Vec<_>>();
        assert_eq!((note(0), note(1)), (vec!["\\-".to_owned()], vec!["y".to_owned()]));
    }

    #[test]
    fn a_page_may_be_empty_and_must_be_whole() {
        let page = Page::read(BREAK).unwrap();
        assert!(page.objects.is_empty() && page.folders.is_empty() && page.cursor.is_none());
        for bad in ["", "next", &["", "", "c"].join(BREAK), &["", "", "c\n0"].join(BREAK)] {
            assert!(Page::read(bad).is_err(), "{bad}");
        }
    }
}
