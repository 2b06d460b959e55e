//! The pages that list containers and blobs, with the form for a new blob.

use askama::Template;
use http::header::{CONTENT_TYPE, IF_NONE_MATCH};
use http::{HeaderValue, Method, StatusCode};
use ifmatch_blob::name::ContainerName;
use serde::Deserialize;

use super::{PageResult, Parent, not_found, parents, target};
use crate::console::inside::RequestFailure;
use crate::console::screens::now;
use crate::console::{OperatorVisit, PageAnswer, PageFrame, render};
use crate::text::{self, Text, encode};

/// Maximum number of entries of a page.
const LISTED: usize = 200;

/// The page of all containers.
#[derive(Template)]
#[template(path = "containers.html")]
struct ContainersPage {
    frame: PageFrame,
    now: f64,
    items: Vec<Container>,
    next: Option<Text>,
    new: NewBlob,
}

/// A page of the listing of containers.
#[derive(Deserialize)]
struct ContainerList {
    containers: Vec<Container>,
    next: Option<Text>,
}

#[derive(Deserialize)]
struct Container {
    name: Text,
    last_modified: Option<Text>,
}

/// The page of a folder.
#[derive(Template)]
#[template(path = "blobs.html")]
struct BlobsPage {
    frame: PageFrame,
    /// The container and the folder, with a slash at the end.
    path: Text,
    parents: Vec<Parent>,
    /// What the names begin with.
    start: Text,
    now: f64,
    listed: BlobList,
    new: NewBlob,
}

impl BlobsPage {
    /// Returns a name without its folder.
    fn base(&self, name: &Text) -> Text {
        let folder = self.path.0.split_once('/').map_or("", |(_, folder)| folder);
        name.0.strip_prefix(folder).unwrap_or(&name.0).into()
    }
}

/// The form for a new blob, with what was entered if it was refused.
#[derive(Default)]
struct NewBlob {
    name: String,
    text: String,
    problem: Option<Text>,
}

/// A page of the listing of a folder.
#[derive(Default, Deserialize)]
struct BlobList {
    blobs: Vec<ListedBlob>,
    folders: Vec<Text>,
    next: Option<Text>,
}

#[derive(Deserialize)]
struct ListedBlob {
    name: Text,
    etag: Option<Text>,
    size: u64,
    content_type: Option<Text>,
    last_modified: Option<Text>,
}

impl OperatorVisit<'_> {
    /// Lists containers, or a folder.
    pub(in crate::console) async fn blobs(&self) -> PageResult {
        self.listing(self.form.get("path"), NewBlob::default(), StatusCode::OK)
            .await
    }

    /// Lists containers, or the folder at this path, with a form for a new blob.
    async fn listing(&self, path: &str, new: NewBlob, status: StatusCode) -> PageResult {
        let after = match self.form.get("after") {
            "" => String::new(),
            after => format!("&after={}", encode(after)),
        };
        let (frame, now) = (self.frame("blobs"), now());
        if path.is_empty() {
            let ContainerList { containers, next } = self
                .inside
                .json(&format!("/?limit={LISTED}{after}"))
                .await?;
            let shown = ContainersPage {
                frame,
                now,
                items: containers,
                next,
                new,
            };
            return Ok(PageAnswer::Page(status, render(&shown)?));
        }
        let (container, folder) = path.split_once('/').unwrap_or((path, ""));
        let path = format!("{container}/{folder}");
        ContainerName::new(container).map_err(|error| not_found(&error))?;
        let start = self.form.get("start");
        let prefix = encode(&format!("{folder}{start}"));
        let query = format!("?delimiter=%2F&limit={LISTED}&prefix={prefix}{after}");
        let target = format!("/{}{query}", encode(container));
        let listed = match self.inside.json(&target).await {
            // A container begins with its first blob.
            Err(failure)
                if failure.status == StatusCode::NOT_FOUND
                    && folder.is_empty()
                    && self.inside.has_blobs =>
            {
                BlobList::default()
            }
            listed => listed?,
        };
        let shown = BlobsPage {
            frame,
            parents: parents(&path),
            path: path.into(),
            start: start.into(),
            now,
            listed,
            new,
        };
        Ok(PageAnswer::Page(status, render(&shown)?))
    }

    /// Creates a blob that must not exist yet. If that fails, shows the form again.
    pub(in crate::console) async fn create_blob(&self) -> PageResult {
        match self.try_to_create().await {
            Err(failure)
                if failure.status.is_client_error()
                    && failure.status != StatusCode::UNAUTHORIZED =>
            {
                let new = NewBlob {
                    name: self.form.get("name").to_owned(),
                    text: self.form.get("text").to_owned(),
                    problem: Some(Text(failure.detail.clone())),
                };
                let folder = self.form.get("folder");
                let listing = self.listing(folder, new, failure.status).await;
                listing.map_err(|_| failure)
            }
            created => created,
        }
    }

    /// Creates the blob of the form, unless the form or the gateway forbids it.
    async fn try_to_create(&self) -> PageResult {
        let mut name = self.form.get("name").trim();
        let (media_type, content) = match &self.form.file {
            Some(file) => {
                if name.is_empty() {
                    name = &file.name;
                }
                let media_type = file.media_type.as_deref();
                let media_type = media_type.unwrap_or("application/octet-stream");
                (media_type, file.content.clone())
            }
            None => ("text/plain; charset=utf-8", self.field("text").into()),
        };
        let path = format!("{}{name}", self.form.get("folder"));
        if name.is_empty() || !path.contains('/') {
            let detail = "Enter a name: CONTAINER/NAME, or NAME in a container.";
            return Err(RequestFailure::new(StatusCode::BAD_REQUEST, detail));
        }
        let invalid = |failure: RequestFailure| RequestFailure {
            status: StatusCode::BAD_REQUEST,
            ..failure
        };
        let target = target(&path).map_err(invalid)?;
        let fields = [
            (IF_NONE_MATCH, HeaderValue::from_static("*")),
            (CONTENT_TYPE, field_value(media_type)?),
        ];
        let created = self.inside.whole(Method::PUT, &target, &fields, content);
        match created.await {
            Err(failure) if failure.status == StatusCode::PRECONDITION_FAILED => {
                let detail = format!("{} already exists. Choose another name.", Text(path));
                Err(RequestFailure::new(StatusCode::PRECONDITION_FAILED, detail))
            }
            created => {
                created?;
                let page = format!("/blob?done=created&path={}", encode(&path));
                Ok(PageAnswer::Redirect(page))
            }
        }
    }
}

/// Returns the value of a field that the form determines.
fn field_value(text: &str) -> Result<HeaderValue, RequestFailure> {
    let detail = "This form is out of date. Load the page again.";
    let invalid = |_| RequestFailure::new(StatusCode::BAD_REQUEST, detail);
    HeaderValue::try_from(text).map_err(invalid)
}
