//! The screen of blobs: listing, preview, and changes that lose nothing.
//!
//! A change names the version that was shown (`If-Match`). If another writer was faster, the response is 412: the page then merges both
//! versions with the one that the operator began with, and saves the result under the condition of the newer one.

mod edit;
mod listing;
mod preview;

use std::fmt::Display;
use std::mem;

use askama::Template;
use bytes::Bytes;
use http::header::IF_MATCH;
use http::{HeaderValue, Method, StatusCode};
use ifmatch_blob::leases::LeaseTarget;
use ifmatch_core::EntityTag;
use serde::Deserialize;

use super::inside::RequestFailure;
use super::screens::{is_locked, lease_target, now};
use super::{OperatorVisit, PageAnswer, PageFrame, PageResult, live, page, render};
use crate::text::{self, Text, encode, encode_path};
use preview::{BlobVersion, Editable, Preview};

/// The page of a blob.
#[derive(Template)]
#[template(path = "blob.html")]
struct ShownBlob {
    frame: PageFrame,
    path: Text,
    name: Text,
    parents: Vec<Parent>,
    now: f64,
    version: BlobVersion,
    preview: Preview,
    lease: BlobLease,
    editor: Option<Editor>,
    /// Why the blob wasn't changed.
    problem: Option<Text>,
}

/// The part of a blob's page that says that there is a newer version.
#[derive(Template)]
#[template(path = "newer.html")]
struct NewerVersion {
    path: Text,
    version: BlobVersion,
    now: f64,
}

/// The page that asks whether to delete a blob.
#[derive(Template)]
#[template(path = "delete.html")]
struct DeletionPage {
    frame: PageFrame,
    path: Text,
    tag: Text,
    lease: BlobLease,
}

/// The form that changes a text.
struct Editor {
    text: String,
    /// The text of the version that the operator began with.
    base: String,
    /// The tag of the version that the text is to replace.
    tag: Text,
    /// How its lines end in the blob: `lf` or `crlf`.
    newline: Text,
    is_merged: bool,
}

/// The lease of a blob, as `/-/leases/…` describes it.
#[derive(Deserialize)]
struct BlobLease {
    state: Text,
    holder: Option<Text>,
    ends: Option<f64>,
}

impl BlobLease {
    /// Stands for a lease that can't be read.
    fn unknown(reason: &str) -> Self {
        Self {
            state: format!("unknown: {reason}").into(),
            holder: None,
            ends: None,
        }
    }

    /// Returns `true` if the lease keeps others from changes.
    fn is_locked(&self) -> bool {
        is_locked(&self.state)
    }

    /// Returns what this lease says about its holder, at the beginning of a sentence.
    fn name(&self) -> Text {
        self.holder
            .clone()
            .unwrap_or_else(|| "An unnamed holder".into())
    }
}

/// A folder on the way to a path.
struct Parent {
    name: Text,
    path: Text,
}

impl OperatorVisit<'_> {
    /// Shows a blob. While the page is open, only whether there is a newer version is read.
    pub(in crate::console) async fn blob(&self) -> PageResult {
        if live::is_wanted(&self.head) {
            let version = self.inside.look(&target(self.form.get("path"))?).await?;
            return page(&NewerVersion {
                path: self.form.get("path").into(),
                version: BlobVersion::of(&version),
                now: now(),
            });
        }
        page(&self.shown(None).await?)
    }

    /// Returns the page of a blob, with a text that wasn't saved, if any.
    async fn shown(&self, draft: Option<Editor>) -> Result<ShownBlob, RequestFailure> {
        let path = self.form.get("path");
        let (version, preview) = self.read(path).await?;
        let editor = draft.or_else(|| {
            let Editable { text, newline } = preview.text()?;
            Some(Editor {
                text: text.clone(),
                base: text.clone(),
                tag: version.tag.clone(),
                newline: (*newline).into(),
                is_merged: false,
            })
        });
        Ok(ShownBlob {
            frame: self.frame("blobs"),
            path: path.into(),
            name: name_of(path),
            parents: parents(path),
            now: now(),
            version,
            preview,
            lease: self.lease(path).await,
            editor,
            problem: None,
        })
    }

    /// Reads the lease of a blob. The page is shown without it if that fails.
    async fn lease(&self, path: &str) -> BlobLease {
        let lease = async { self.inside.json(&lease_target(path)?).await };
        lease
            .await
            .unwrap_or_else(|RequestFailure { detail, .. }| BlobLease::unknown(&detail))
    }

    /// Shows the page of a blob with the reason why it wasn't changed.
    async fn refused(&self, failure: RequestFailure, draft: Option<Editor>) -> PageResult {
        let status = failure.status;
        if status == StatusCode::UNAUTHORIZED || status == StatusCode::FORBIDDEN {
            return Err(failure);
        }
        let verb = if draft.is_some() { "save" } else { "delete" };
        let Ok(mut shown) = self.shown(draft).await else {
            return Err(failure);
        };
        let reason = if shown.lease.is_locked() {
            let name = shown.lease.name();
            format!("{name} holds a lease on this blob. Wait until it ends, or break it.")
        } else if status == StatusCode::PRECONDITION_FAILED {
            "someone saved a newer version, which is shown here. Check it, then try again.".into()
        } else {
            failure.detail
        };
        shown.problem = Some(format!("Couldn't {verb}: {reason}").into());
        Ok(PageAnswer::Page(status, render(&shown)?))
    }

    /// Sends the content of a blob, confined.
    pub(in crate::console) async fn raw(&self) -> PageResult {
        let target = target(self.form.get("path"))?;
        let response = self.inside.send(Method::GET, &target, &[], Bytes::new());
        let response = response.await?;
        if response.status().is_success() {
            return Ok(PageAnswer::Raw(response));
        }
        let detail = "The content can't be read.";
        Err(RequestFailure::new(response.status(), detail))
    }

    /// Returns the tag of the version that was shown. `*` and lists would name others, too.
    fn shown_tag(&self) -> Result<HeaderValue, RequestFailure> {
        let tag = EntityTag::parse(self.form.get("tag").as_bytes()).ok();
        let tag = tag.filter(|tag| !tag.is_weak());
        let detail = "The form has no tag. Load the page again.";
        let missing = || RequestFailure::new(StatusCode::BAD_REQUEST, detail);
        tag.map(|tag| tag.to_header()).ok_or_else(missing)
    }

    /// Asks whether to delete the version that was shown.
    pub(in crate::console) async fn ask_to_delete(&self) -> PageResult {
        self.shown_tag()?;
        let path = self.form.get("path");
        page(&DeletionPage {
            frame: self.frame("blobs"),
            path: path.into(),
            tag: self.form.get("tag").into(),
            lease: self.lease(path).await,
        })
    }

    /// Deletes the version that was shown.
    pub(in crate::console) async fn delete_blob(&self) -> PageResult {
        let path = self.form.get("path");
        let fields = [(IF_MATCH, self.shown_tag()?)];
        let target = target(path)?;
        let deleted = self
            .inside
            .whole(Method::DELETE, &target, &fields, Bytes::new());
        if let Err(failure) = deleted.await {
            return self.refused(failure, None).await;
        }
        let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
        let page = format!("/blobs?done=deleted&path={}%2F", encode(folder));
        Ok(PageAnswer::Redirect(page))
    }
}

/// Returns the path of a blob for a request. No name leads to the endpoints of the gateway, or to a listing.
fn target(path: &str) -> Result<String, RequestFailure> {
    match LeaseTarget::new(path) {
        Ok(LeaseTarget { blob: Some(_), .. }) => Ok(format!("/{}", encode_path(path))),
        Ok(_) => {
            let reason = "this is a container. Add a blob's name, as in CONTAINER/NAME.";
            Err(not_found(&reason))
        }
        Err(error) => Err(not_found(&error)),
    }
}

/// Returns 404 for a blob, with the reason.
fn not_found(reason: &dyn Display) -> RequestFailure {
    RequestFailure::new(StatusCode::NOT_FOUND, format!("No such blob: {reason}"))
}

/// Returns the folders on the way to a path, the container first.
fn parents(path: &str) -> Vec<Parent> {
    let mut begin = 0;
    let parent = |(end, _)| Parent {
        name: path[mem::replace(&mut begin, end + 1)..end].into(),
        path: path[..=end].into(),
    };
    path.match_indices('/').map(parent).collect()
}

/// Returns the last part of a path.
fn name_of(path: &str) -> Text {
    path.rsplit('/').next().unwrap_or_default().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_lead_to_a_path() {
        let folders: Vec<_> = parents("c/a b/x")
            .into_iter()
            .map(|parent| (parent.name.0, parent.path.0))
            .collect();
        assert_eq!(
            folders,
            [
                ("c".to_owned(), "c/".to_owned()),
                ("a b".to_owned(), "c/a b/".to_owned())
            ]
        );
    }
}
