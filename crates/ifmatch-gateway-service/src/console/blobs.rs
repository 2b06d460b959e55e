//! The screen of blobs: listing, preview, and changes that lose nothing.
//!
//! A change names the version that was shown (`If-Match`). If another writer was faster, the response is 412: the page then merges both
//! versions with the one that the operator began with, and saves the result under the condition of the newer one.

use std::fmt::Display;

use askama::Template;
use bytes::Bytes;
use http::header::{
    CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_ENCODING, CONTENT_LANGUAGE, CONTENT_LENGTH,
    CONTENT_TYPE, ETAG, IF_MATCH, IF_NONE_MATCH, LAST_MODIFIED,
};
use http::{HeaderName, HeaderValue, Method, StatusCode};
use ifmatch_blob::leases::LeaseTarget;
use ifmatch_blob::name::ContainerName;
use ifmatch_core::EntityTag;
use serde::Deserialize;

use super::inside::{RequestFailure, WholeResponse};
use super::merging::{self, ChangeKind, MergeRegion};
use super::screens::{lease_target, now};
use super::{OperatorVisit, PageAnswer, PageFrame, live, page, render};
use crate::text::{self, Text, encode, encode_path};

type PageResult = std::result::Result<PageAnswer, RequestFailure>;

/// Maximum size of a text that is shown and edited, in bytes.
const LONGEST_TEXT: u64 = 256 << 10;

#[derive(Template)]
#[template(path = "containers.html")]
struct ContainersPage {
    frame: PageFrame,
    now: f64,
    items: Vec<Container>,
    next: Option<Text>,
    new: New,
}

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
    new: New,
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
struct New {
    name: String,
    text: String,
    problem: Option<Text>,
}

#[derive(Deserialize)]
struct BlobList {
    blobs: Vec<BlobPage>,
    folders: Vec<Text>,
    next: Option<Text>,
}

#[derive(Deserialize)]
struct BlobPage {
    name: Text,
    etag: Option<Text>,
    size: u64,
    content_type: Option<Text>,
    last_modified: Option<Text>,
}

/// A folder on the way to a path.
struct Parent {
    name: Text,
    path: Text,
}

#[derive(Template)]
#[template(path = "blob.html")]
struct Shown {
    frame: PageFrame,
    path: Text,
    name: Text,
    parents: Vec<Parent>,
    now: f64,
    version: BlobVersion,
    preview: Preview,
    lease: BlobLease,
    editor: Option<Editor>,
    problem: Option<Text>,
}

/// The part of a blob's page that says that there is a newer version.
#[derive(Template)]
#[template(path = "newer.html")]
struct Newer {
    path: Text,
    version: BlobVersion,
    now: f64,
}

/// The form that changes a text.
struct Editor {
    text: String,
    /// The text of the version that the operator began with.
    base: String,
    tag: Text,
    newline: Text,
    is_merged: bool,
}

#[derive(Deserialize)]
struct BlobLease {
    state: Text,
    holder: Option<Text>,
    ends: Option<f64>,
}

impl BlobLease {
    fn unknown(reason: &str) -> Self {
        Self {
            state: format!("unknown: {reason}").into(),
            holder: None,
            ends: None,
        }
    }

    /// Returns `true` if the lease keeps others from changes.
    fn is_locked(&self) -> bool {
        matches!(&*self.state.0, "leased" | "breaking")
    }

    fn name(&self) -> Text {
        self.holder
            .clone()
            .unwrap_or_else(|| "An unnamed holder".into())
    }
}

/// A version of a blob.
struct BlobVersion {
    tag: Text,
    media_type: Text,
    size: u64,
    digest: Option<Text>,
    modified: Option<Text>,
}

/// The part of a page that shows the content.
enum Preview {
    Text(Editable),
    Image,
    /// A document, which is confined.
    Document(Editable),
    /// Why there is none.
    None(&'static str),
}

/// A text that a form can change without changing anything else of it.
struct Editable {
    text: String,
    newline: &'static str,
}

#[derive(Template)]
#[template(path = "delete.html")]
struct Deletion {
    frame: PageFrame,
    path: Text,
    tag: Text,
    lease: BlobLease,
}

#[derive(Template)]
#[template(path = "merge.html")]
struct Merge {
    frame: PageFrame,
    path: Text,
    name: Text,
    now: f64,
    version: BlobVersion,
    newline: &'static str,
    base: String,
    ours: String,
    /// Each part, with the number and the choice of a conflict.
    regions: Vec<(MergeRegion, usize, String)>,
    problem: Option<&'static str>,
}

impl Merge {
    fn conflicts(&self) -> u32 {
        self.regions
            .iter()
            .map(|(region, ..)| u32::from(region.is_conflict()))
            .sum()
    }
}

impl OperatorVisit<'_> {
    /// Lists containers, or a folder.
    pub(super) async fn blobs(&self) -> PageResult {
        self.listing(self.form.get("path"), New::default(), StatusCode::OK)
            .await
    }

    async fn listing(&self, path: &str, new: New, status: StatusCode) -> PageResult {
        let after = self.form.get("after");
        let after = if after.is_empty() {
            String::new()
        } else {
            format!("&after={}", encode(after))
        };
        let (frame, now) = (self.frame("blobs"), now());
        if path.is_empty() {
            let ContainerList { containers, next } =
                self.inside.json(&format!("/?limit=200{after}")).await?;
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
        let query = format!("?delimiter=%2F&limit=200&prefix={prefix}{after}");
        let listed = self
            .inside
            .json(&format!("/{}{query}", encode(container)))
            .await;
        let listed = match listed {
            // A container begins with its first blob.
            Err(failure)
                if failure.status == StatusCode::NOT_FOUND
                    && folder.is_empty()
                    && self.inside.has_blobs =>
            {
                BlobList {
                    blobs: Vec::new(),
                    folders: Vec::new(),
                    next: None,
                }
            }
            listed => listed?,
        };
        let (parents, start) = (parents(&path), start.into());
        let shown = BlobsPage {
            frame,
            parents,
            path: path.into(),
            start,
            now,
            listed,
            new,
        };
        Ok(PageAnswer::Page(status, render(&shown)?))
    }

    /// Shows a blob. While the page is open, only whether there is a newer version is read.
    pub(super) async fn blob(&self) -> PageResult {
        if live::is_wanted(&self.head) {
            let version = self.inside.look(&target(self.form.get("path"))?).await?;
            return page(&Newer {
                path: self.form.get("path").into(),
                version: BlobVersion::of(&version),
                now: now(),
            });
        }
        page(&self.shown(None, None).await?)
    }

    /// Returns the page of a blob: with a text that wasn't saved, and with the problem of a change.
    async fn shown(
        &self,
        draft: Option<Editor>,
        problem: Option<Text>,
    ) -> std::result::Result<Shown, RequestFailure> {
        let path = self.form.get("path");
        let (version, preview) = self.read(path).await?;
        let editor = draft.or_else(|| {
            let Editable { text, newline } = preview.text()?;
            let (text, base, newline) = (text.clone(), text.clone(), (*newline).into());
            Some(Editor {
                text,
                base,
                tag: version.tag.clone(),
                newline,
                is_merged: false,
            })
        });
        let lease = self.lease(path).await;
        let name = name_of(path);
        let (frame, path, parents) = (self.frame("blobs"), path.to_owned().into(), parents(path));
        Ok(Shown {
            frame,
            path,
            name,
            parents,
            now: now(),
            version,
            preview,
            lease,
            editor,
            problem,
        })
    }

    async fn lease(&self, path: &str) -> BlobLease {
        let lease = async { self.inside.json(&lease_target(path)?).await };
        lease
            .await
            .unwrap_or_else(|RequestFailure { detail, .. }| BlobLease::unknown(&detail))
    }

    /// Shows the page of a blob with the reason why it wasn't changed.
    async fn refused(&self, failure: RequestFailure, draft: Option<Editor>) -> PageResult {
        let RequestFailure {
            status,
            detail,
            unsaved,
            outage,
            about,
        } = failure;
        let failed = |detail| RequestFailure {
            status,
            detail,
            unsaved: unsaved.clone(),
            outage: outage.clone(),
            about: about.clone(),
        };
        if status == StatusCode::UNAUTHORIZED || status == StatusCode::FORBIDDEN {
            return Err(failed(detail));
        }
        let verb = if draft.is_some() { "save" } else { "delete" };
        match self.shown(draft, Some(Text::default())).await {
            Ok(shown) => {
                let problem = if shown.lease.is_locked() {
                    let name = shown.lease.name();
                    format!(
                        "Couldn't {verb}: {name} holds a lease on this blob. Wait until it ends, or break it."
                    )
                } else if status == StatusCode::PRECONDITION_FAILED {
                    format!(
                        "Couldn't {verb}: someone saved a newer version, which is shown here. Check it, then try again."
                    )
                } else {
                    format!("Couldn't {verb}: {detail}")
                };
                let shown = Shown {
                    problem: Some(problem.into()),
                    ..shown
                };
                Ok(PageAnswer::Page(status, render(&shown)?))
            }
            Err(_) => Err(failed(detail)),
        }
    }

    /// Sends the content of a blob, confined.
    pub(super) async fn raw(&self) -> PageResult {
        let target = target(self.form.get("path"))?;
        let response = self
            .inside
            .send(Method::GET, &target, &[], Bytes::new())
            .await?;
        if response.status().is_success() {
            return Ok(PageAnswer::Raw(response));
        }
        Err(RequestFailure::new(
            response.status(),
            "The content can't be read.",
        ))
    }

    /// Creates a blob that must not exist yet. If that fails, shows the form again.
    pub(super) async fn create_blob(&self) -> PageResult {
        match self.try_to_create().await {
            Err(failure)
                if failure.status.is_client_error()
                    && failure.status != StatusCode::UNAUTHORIZED =>
            {
                let field = |name: &str| self.form.get(name).to_owned();
                let problem = Some(Text(failure.detail.clone()));
                let new = New {
                    name: field("name"),
                    text: field("text"),
                    problem,
                };
                let listing = self
                    .listing(self.form.get("folder"), new, failure.status)
                    .await;
                listing.map_err(|_| failure)
            }
            created => created,
        }
    }

    async fn try_to_create(&self) -> PageResult {
        let (folder, mut name) = (
            self.form.get("folder"),
            self.form.get("name").trim().to_owned(),
        );
        let (media_type, content) = if let Some((file, media_type, content)) = &self.form.file {
            if name.is_empty() {
                name.clone_from(file);
            }
            (
                media_type
                    .clone()
                    .unwrap_or_else(|| "application/octet-stream".to_owned()),
                content.clone(),
            )
        } else {
            let text = self.form.get("text").replace("\r\n", "\n");
            ("text/plain; charset=utf-8".to_owned(), text.into())
        };
        let path = format!("{folder}{name}");
        if name.is_empty() || !path.contains('/') {
            return Err(RequestFailure::new(
                StatusCode::BAD_REQUEST,
                "Enter a name: CONTAINER/NAME, or NAME in a container.",
            ));
        }
        let invalid = |failure: RequestFailure| RequestFailure {
            status: StatusCode::BAD_REQUEST,
            ..failure
        };
        let target = target(&path).map_err(invalid)?;
        let fields = [
            (IF_NONE_MATCH, HeaderValue::from_static("*")),
            (CONTENT_TYPE, value(&media_type)?),
        ];
        let created = self
            .inside
            .whole(Method::PUT, &target, &fields, content)
            .await;
        match created {
            Err(failure) if failure.status == StatusCode::PRECONDITION_FAILED => {
                let detail = format!("{} already exists. Choose another name.", Text(path));
                Err(RequestFailure::new(StatusCode::PRECONDITION_FAILED, detail))
            }
            created => {
                created?;
                Ok(PageAnswer::Redirect(format!(
                    "/blob?done=created&path={}",
                    encode(&path)
                )))
            }
        }
    }

    /// Saves a text as the next version of the one that was shown. Merges both if there is another one by now. If that fails, shows
    /// the text again.
    pub(super) async fn save_blob(&self) -> PageResult {
        let text = self.field("text");
        let saved = if self.form.get("step") == "merge" {
            self.save_merged(&text).await
        } else {
            self.save_text(&text, &text).await
        };
        match saved {
            Err(failure) => {
                let (tag, newline) = (self.form.get("tag").into(), self.form.get("newline").into());
                let draft = Editor {
                    text: text.clone(),
                    base: self.field("base"),
                    tag,
                    newline,
                    is_merged: false,
                };
                self.refused(
                    RequestFailure {
                        unsaved: Some(text),
                        ..failure
                    },
                    Some(draft),
                )
                .await
            }
            saved => saved,
        }
    }

    /// Returns a text of the form. Browsers send all lines with CR LF.
    fn field(&self, name: &str) -> String {
        self.form.get(name).replace("\r\n", "\n")
    }

    /// Saves `text`, which contains the changes of `ours`.
    async fn save_text(&self, text: &str, ours: &str) -> PageResult {
        let path = self.form.get("path");
        if text.len() as u64 > LONGEST_TEXT {
            let detail =
                "This text is over 256 KiB, the console's limit. Send it to the service with PUT.";
            return Err(RequestFailure::new(StatusCode::PAYLOAD_TOO_LARGE, detail));
        }
        let target = target(path)?;
        let content = if self.form.get("newline") == "crlf" {
            text.replace('\n', "\r\n")
        } else {
            text.to_owned()
        };
        let head = self
            .inside
            .whole(Method::HEAD, &target, &[], Bytes::new())
            .await?;
        let mut fields = vec![(IF_MATCH, self.shown_tag()?)];
        // A PUT replaces them as well.
        let is_kept = |name: &HeaderName| {
            [
                CONTENT_TYPE,
                CONTENT_LANGUAGE,
                CONTENT_DISPOSITION,
                CACHE_CONTROL,
            ]
            .contains(name)
                || name.as_str().starts_with("x-meta-")
        };
        let kept = head.headers.iter().filter(|(name, _)| is_kept(name));
        fields.extend(kept.map(|(name, value)| (name.clone(), value.clone())));
        match self
            .inside
            .whole(Method::PUT, &target, &fields, content.into())
            .await
        {
            Err(failure) if failure.status == StatusCode::PRECONDITION_FAILED => {
                let (version, preview) = self.read(path).await?;
                match preview.text() {
                    // Not another version, but a lease, is in the way.
                    _ if version.tag.0 == self.form.get("tag") => Err(failure),
                    None => Err(failure),
                    Some(theirs) => {
                        let regions = self.regions(ours, &theirs.text).await?;
                        self.merge_page(version, theirs, ours, regions, None)
                    }
                }
            }
            saved => {
                saved?;
                Ok(PageAnswer::Redirect(format!(
                    "/blob?done=saved&path={}",
                    encode(path)
                )))
            }
        }
    }

    /// Saves both versions as they were merged, or opens them in the editor.
    async fn save_merged(&self, ours: &str) -> PageResult {
        let (version, preview) = self.read(self.form.get("path")).await?;
        let Some(theirs) = preview.text() else {
            return Err(RequestFailure::new(
                StatusCode::PRECONDITION_FAILED,
                "The newer version isn't text that can be merged. Copy yours, then open the newer one.",
            ));
        };
        let regions = self.regions(ours, &theirs.text).await?;
        if version.tag.0 != self.form.get("tag") {
            return self.merge_page(
                version,
                theirs,
                ours,
                regions,
                Some("While you were merging, someone saved again."),
            );
        }
        let is_edit = self.form.get("then") == "edit";
        let names: Vec<_> = (0..regions.len()).map(choice_name).collect();
        let choice = |nr: usize| match names.get(nr).map_or("", |name| self.form.get(name)) {
            "" if is_edit => Some("both"),
            choice => Some(choice),
        };
        match merging::apply(&regions, choice) {
            None => self.merge_page(
                version,
                theirs,
                ours,
                regions,
                Some("Choose a version for each conflict."),
            ),
            Some(text) if is_edit => {
                let (base, tag, newline) = (
                    theirs.text.clone(),
                    version.tag.clone(),
                    theirs.newline.into(),
                );
                let editor = Editor {
                    text,
                    base,
                    tag,
                    newline,
                    is_merged: true,
                };
                page(&self.shown(Some(editor), None).await?)
            }
            Some(text) => self.save_text(&text, ours).await,
        }
    }

    /// Merges the text of an operator with the newer one, line by line.
    async fn regions(
        &self,
        ours: &str,
        theirs: &str,
    ) -> std::result::Result<Vec<MergeRegion>, RequestFailure> {
        let [base, ours, theirs] = [&self.field("base"), ours, theirs].map(ToOwned::to_owned);
        let merged =
            tokio::task::spawn_blocking(move || merging::merge(&base, &ours, &theirs)).await;
        merged.map_err(|error| {
            RequestFailure::new(
                StatusCode::INTERNAL_SERVER_ERROR,
                format!("can't merge: {error}"),
            )
        })
    }

    fn merge_page(
        &self,
        version: BlobVersion,
        theirs: &Editable,
        ours: &str,
        regions: Vec<MergeRegion>,
        problem: Option<&'static str>,
    ) -> PageResult {
        let mut conflicts = 0;
        let numbered = |region: MergeRegion| {
            let number = conflicts;
            conflicts += usize::from(region.is_conflict());
            (
                region,
                number,
                self.form.get(&choice_name(number)).to_owned(),
            )
        };
        let path = self.form.get("path");
        let merge = Merge {
            frame: self.frame("blobs"),
            path: path.to_owned().into(),
            name: name_of(path),
            now: now(),
            version,
            newline: theirs.newline,
            base: self.field("base"),
            ours: ours.to_owned(),
            regions: regions.into_iter().map(numbered).collect(),
            problem,
        };
        Ok(PageAnswer::Page(
            StatusCode::PRECONDITION_FAILED,
            render(&merge)?,
        ))
    }

    /// Returns the tag of the version that was shown. `*` and lists would name others, too.
    fn shown_tag(&self) -> std::result::Result<HeaderValue, RequestFailure> {
        let tag = EntityTag::parse(self.form.get("tag").as_bytes())
            .ok()
            .filter(|tag| !tag.is_weak());
        let missing = || {
            RequestFailure::new(
                StatusCode::BAD_REQUEST,
                "The form has no tag. Load the page again.",
            )
        };
        tag.map(|tag| tag.to_header()).ok_or_else(missing)
    }

    /// Asks whether to delete the version that was shown.
    pub(super) async fn ask_to_delete(&self) -> PageResult {
        self.shown_tag()?;
        let path = self.form.get("path");
        let lease = self.lease(path).await;
        let (path, tag) = (
            path.to_owned().into(),
            self.form.get("tag").to_owned().into(),
        );
        page(&Deletion {
            frame: self.frame("blobs"),
            path,
            tag,
            lease,
        })
    }

    /// Deletes the version that was shown.
    pub(super) async fn delete_blob(&self) -> PageResult {
        let path = self.form.get("path");
        let fields = [(IF_MATCH, self.shown_tag()?)];
        let deleted = self
            .inside
            .whole(Method::DELETE, &target(path)?, &fields, Bytes::new())
            .await;
        if let Err(failure) = deleted {
            return self.refused(failure, None).await;
        }
        let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
        Ok(PageAnswer::Redirect(format!(
            "/blobs?done=deleted&path={}%2F",
            encode(folder)
        )))
    }

    /// Reads a version of a blob, and its content if that can be shown. Both are of one version: a text comes with its tag.
    async fn read(
        &self,
        path: &str,
    ) -> std::result::Result<(BlobVersion, Preview), RequestFailure> {
        let target = target(path)?;
        let head = self
            .inside
            .whole(Method::HEAD, &target, &[], Bytes::new())
            .await?;
        let version = BlobVersion::of(&head);
        if is_image(&version.media_type.0) {
            return Ok((version, Preview::Image));
        }
        if version.size > LONGEST_TEXT {
            return Ok((version, Preview::None("it's larger than 256 KiB")));
        }
        let whole = self.inside.get(&target).await?;
        let (version, encoded) = (
            BlobVersion::of(&whole),
            whole.headers.contains_key(CONTENT_ENCODING),
        );
        let preview = match String::from_utf8(whole.body.into()) {
            _ if has_other_charset(&version.media_type.0) => Preview::None("it isn't in UTF-8"),
            _ if encoded => Preview::None("it's encoded (Content-Encoding)"),
            Ok(text) if !text.contains('\0') => match Editable::of(text) {
                None => Preview::None("its line endings are mixed, and a form would change them"),
                Some(text) if is_document(&version.media_type.0) => Preview::Document(text),
                Some(text) => Preview::Text(text),
            },
            _ => Preview::None("it's neither text nor an image"),
        };
        Ok((version, preview))
    }
}

/// Returns `true` if the type names an encoding other than UTF-8, which a form wouldn't preserve.
fn has_other_charset(media_type: &str) -> bool {
    let lower = media_type.to_ascii_lowercase();
    let charset = lower
        .split_once("charset=")
        .map(|(_, rest)| rest.split(';').next().unwrap_or_default());
    charset.is_some_and(|charset| {
        !matches!(
            charset.trim().trim_matches('"'),
            "utf-8" | "utf8" | "us-ascii"
        )
    })
}

impl BlobVersion {
    fn of(answer: &WholeResponse) -> Self {
        let field = |name| answer.field(&name).map(Text);
        let size = field(CONTENT_LENGTH)
            .and_then(|length| length.0.parse().ok())
            .unwrap_or(answer.body.len() as u64);
        Self {
            tag: field(ETAG).unwrap_or_default(),
            media_type: field(CONTENT_TYPE).unwrap_or_default(),
            size,
            digest: field(HeaderName::from_static("repr-digest")),
            modified: field(LAST_MODIFIED),
        }
    }
}

impl Preview {
    /// Returns the text, if there is one to edit.
    fn text(&self) -> Option<&Editable> {
        match self {
            Self::Text(text) | Self::Document(text) => Some(text),
            Self::Image | Self::None(_) => None,
        }
    }
}

impl Editable {
    /// Returns a text with lines that end in one way. A form sends all of them as CR LF.
    fn of(text: String) -> Option<Self> {
        let (ends, with_return) = (text.matches('\n').count(), text.matches("\r\n").count());
        if text.matches('\r').count() > with_return {
            return None;
        }
        match with_return {
            0 => Some(Self {
                text,
                newline: "lf",
            }),
            _ if with_return == ends => Some(Self {
                text: text.replace("\r\n", "\n"),
                newline: "crlf",
            }),
            _ => None,
        }
    }
}

fn is_image(media_type: &str) -> bool {
    let known = [
        "image/png",
        "image/jpeg",
        "image/gif",
        "image/webp",
        "image/avif",
    ];
    known.contains(&essence(media_type).as_str())
}

/// Returns `true` for a type that a browser shows as a document.
fn is_document(media_type: &str) -> bool {
    ["text/html", "application/xhtml+xml", "image/svg+xml"].contains(&essence(media_type).as_str())
}

fn essence(media_type: &str) -> String {
    media_type
        .split(';')
        .next()
        .unwrap_or_default()
        .trim()
        .to_ascii_lowercase()
}

/// Returns the path of a blob for a request. No name leads to the endpoints of the gateway, or to a listing.
fn target(path: &str) -> std::result::Result<String, RequestFailure> {
    match LeaseTarget::new(path) {
        Ok(LeaseTarget { blob: Some(_), .. }) => Ok(format!("/{}", encode_path(path))),
        Ok(_) => Err(not_found(
            &"this is a container. Add a blob's name, as in CONTAINER/NAME.",
        )),
        Err(error) => Err(not_found(&error)),
    }
}

fn not_found(reason: &dyn Display) -> RequestFailure {
    RequestFailure::new(StatusCode::NOT_FOUND, format!("No such blob: {reason}"))
}

fn value(text: &str) -> std::result::Result<HeaderValue, RequestFailure> {
    let invalid = |_| {
        RequestFailure::new(
            StatusCode::BAD_REQUEST,
            "This form is out of date. Load the page again.",
        )
    };
    HeaderValue::try_from(text).map_err(invalid)
}

/// Returns the folders on the way to a path, the container first.
fn parents(path: &str) -> Vec<Parent> {
    let ends = path.match_indices('/').map(|(at, _)| at);
    let mut begin = 0;
    let parent = |end: usize| {
        let parent = Parent {
            name: path[begin..end].to_owned().into(),
            path: path[..=end].to_owned().into(),
        };
        begin = end + 1;
        parent
    };
    ends.map(parent).collect()
}

/// Returns the last part of a path.
fn name_of(path: &str) -> Text {
    path.rsplit('/').next().unwrap_or_default().into()
}

/// Returns the name of the field with the choice of a conflict.
fn choice_name(number: usize) -> String {
    format!("choice-{number}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_editable_if_a_form_keeps_its_lines() {
        let of = |text: &str| {
            Editable::of(text.to_owned()).map(|editable| (editable.text, editable.newline))
        };
        for (text, expected) in [
            ("a\nb", Some(("a\nb", "lf"))),
            ("a\r\nb\r\n", Some(("a\nb\n", "crlf"))),
            ("a\r\nb\n", None),
            ("a\rb", None),
        ] {
            assert_eq!(
                of(text),
                expected.map(|(text, newline)| (text.to_owned(), newline)),
                "{text:?}"
            );
        }
    }

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
