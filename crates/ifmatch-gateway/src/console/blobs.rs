//! The screen of blobs: listing, preview, and changes that lose nothing.
//!
//! A change names the version that was shown (`If-Match`). If another writer was faster, the answer is 412: the page then shows both
//! versions, and saves the operator's text of both under the condition of the new one.

use std::fmt::Display;
use std::time::Duration;

use askama::Template;
use bytes::Bytes;
use http::header::{
    CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_ENCODING, CONTENT_LANGUAGE, CONTENT_LENGTH, CONTENT_TYPE, ETAG,
    IF_MATCH, IF_NONE_MATCH, LAST_MODIFIED,
};
use http::{HeaderName, HeaderValue, Method, StatusCode};
use ifmatch_blob::name::ContainerName;
use ifmatch_core::EntityTag;
use serde::Deserialize;
use similar::DiffTag;
use similar::algorithms::{Capture, Replace, myers};
use tokio::time::Instant;

use super::inside::{Failure, Whole};
use super::text::{self, Text, encode, encode_path};
use super::{Answer, Frame, Visit, page, render};
use crate::leases::listing::LeaseTarget;

type Result = std::result::Result<Answer, Failure>;

/// Maximum number of lines of a text that is compared line by line.
const MOST_LINES: usize = 5000;
/// Maximum time of a comparison.
const COMPARING: Duration = Duration::from_millis(500);
/// Maximum size of a text that is shown and edited, in bytes.
const LONGEST_TEXT: u64 = 256 << 10;

#[derive(Template)]
#[template(path = "containers.html")]
struct Containers {
    frame: Frame,
    items: Vec<Container>,
    next: Option<Text>,
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
struct Blobs {
    frame: Frame,
    /// The container and the folder, with a slash at the end.
    path: Text,
    parents: Vec<Parent>,
    listed: BlobList,
}

#[derive(Deserialize)]
struct BlobList {
    blobs: Vec<Blob>,
    folders: Vec<Text>,
    next: Option<Text>,
}

#[derive(Deserialize)]
struct Blob {
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
    frame: Frame,
    path: Text,
    name: Text,
    parents: Vec<Parent>,
    version: Version,
    preview: Preview,
    lease: Lease,
}

#[derive(Deserialize)]
struct Lease {
    state: Text,
    holder: Option<Text>,
}

impl Lease {
    fn unknown(reason: &str) -> Self {
        Self { state: format!("unknown: {reason}").into(), holder: None }
    }
}

/// A version of a blob.
struct Version {
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
    frame: Frame,
    path: Text,
    tag: Text,
}

#[derive(Template)]
#[template(path = "merge.html")]
struct Merge {
    frame: Frame,
    path: Text,
    version: Version,
    theirs: Editable,
    ours: String,
    lines: Vec<Line>,
}

/// A line of both versions: the same in both, or only in one.
struct Line {
    kind: &'static str,
    theirs: Option<Text>,
    ours: Option<Text>,
}

impl Visit<'_> {
    /// Lists containers, or a folder.
    pub(super) async fn blobs(&self) -> Result {
        let path = self.form.get("path");
        let after = self.form.get("after");
        let after = if after.is_empty() { String::new() } else { format!("&after={}", encode(after)) };
        if path.is_empty() {
            let ContainerList { containers, next } = self.inside.json(&format!("/?limit=200{after}")).await?;
            return page(&Containers { frame: self.frame("blobs"), items: containers, next });
        }
        let (container, folder) = path.split_once('/').unwrap_or((path, ""));
        let path = format!("{container}/{folder}");
        ContainerName::new(container).map_err(|error| not_found(&error))?;
        let query = format!("?delimiter=%2F&limit=200&prefix={}{after}", encode(folder));
        let listed = self.inside.json(&format!("/{}{query}", encode(container))).await;
        let listed = match listed {
            // A container begins with its first blob.
            Err(failure) if failure.status == StatusCode::NOT_FOUND && folder.is_empty() && self.inside.has_blobs => {
                BlobList { blobs: Vec::new(), folders: Vec::new(), next: None }
            }
            listed => listed?,
        };
        let shown = Blobs { frame: self.frame("blobs"), parents: parents(&path), path: path.into(), listed };
        page(&shown)
    }

    /// Shows a blob.
    pub(super) async fn blob(&self) -> Result {
        let path = self.form.get("path");
        let (version, preview) = self.read(path).await?;
        let lease = self.inside.json(&format!("/-/leases/{}", encode_path(path))).await;
        let lease = lease.unwrap_or_else(|Failure { detail, .. }| Lease::unknown(&detail));
        let name = path.rsplit('/').next().unwrap_or_default().to_owned().into();
        let (path, parents) = (path.to_owned().into(), parents(path));
        page(&Shown { frame: self.frame("blobs"), path, name, parents, version, preview, lease })
    }

    /// Sends the content of a blob, confined.
    pub(super) async fn raw(&self) -> Result {
        let target = target(self.form.get("path"))?;
        let response = self.inside.send(Method::GET, &target, &[], Bytes::new()).await?;
        if response.status().is_success() {
            return Ok(Answer::Raw(response));
        }
        Err(Failure::new(response.status(), "the content cannot be read"))
    }

    /// Creates a blob that must not exist yet.
    pub(super) async fn create_blob(&self) -> Result {
        let (folder, mut name) = (self.form.get("folder"), self.form.get("name").trim().to_owned());
        let (media_type, content) = if let Some((file, media_type, content)) = &self.form.file {
            if name.is_empty() {
                name.clone_from(file);
            }
            (media_type.clone().unwrap_or_else(|| "application/octet-stream".to_owned()), content.clone())
        } else {
            let text = self.form.get("text").replace("\r\n", "\n");
            ("text/plain; charset=utf-8".to_owned(), text.into())
        };
        let path = format!("{folder}{name}");
        if name.is_empty() || !path.contains('/') {
            return Err(Failure::new(StatusCode::BAD_REQUEST, "enter a name: CONTAINER/NAME, or NAME in a container"));
        }
        let invalid = |failure: Failure| Failure { status: StatusCode::BAD_REQUEST, ..failure };
        let target = target(&path).map_err(invalid)?;
        let fields = [(IF_NONE_MATCH, HeaderValue::from_static("*")), (CONTENT_TYPE, value(&media_type)?)];
        let created = self.inside.whole(Method::PUT, &target, &fields, content).await;
        match created {
            Err(failure) if failure.status == StatusCode::PRECONDITION_FAILED => {
                let detail = format!("{} exists already, and was not changed: choose another name", Text(path));
                Err(Failure::new(StatusCode::PRECONDITION_FAILED, detail))
            }
            created => {
                created?;
                Ok(Answer::Redirect(format!("/blob?done=created&path={}", encode(&path))))
            }
        }
    }

    /// Saves a text as the next version of the one that was shown. Shows both if there is another one by now.
    pub(super) async fn save_blob(&self) -> Result {
        let text = self.form.get("text").replace("\r\n", "\n");
        let saved = self.save_text(text.clone()).await;
        saved.map_err(|failure| Failure { unsaved: Some(text), ..failure })
    }

    async fn save_text(&self, text: String) -> Result {
        let path = self.form.get("path");
        if text.len() as u64 > LONGEST_TEXT {
            let detail = "the console saves texts of up to 256 KiB: send longer ones to the service by PUT";
            return Err(Failure::new(StatusCode::PAYLOAD_TOO_LARGE, detail));
        }
        let target = target(path)?;
        let content = if self.form.get("newline") == "crlf" { text.replace('\n', "\r\n") } else { text.clone() };
        let head = self.inside.whole(Method::HEAD, &target, &[], Bytes::new()).await?;
        let mut fields = vec![(IF_MATCH, self.shown_tag()?)];
        // A PUT replaces them as well.
        let is_kept = |name: &HeaderName| {
            [CONTENT_TYPE, CONTENT_LANGUAGE, CONTENT_DISPOSITION, CACHE_CONTROL].contains(name)
                || name.as_str().starts_with("x-meta-")
        };
        let kept = head.headers.iter().filter(|(name, _)| is_kept(name));
        fields.extend(kept.map(|(name, value)| (name.clone(), value.clone())));
        match self.inside.whole(Method::PUT, &target, &fields, content.into()).await {
            Err(failure) if failure.status == StatusCode::PRECONDITION_FAILED => self.merge(path, text, failure).await,
            saved => {
                saved?;
                Ok(Answer::Redirect(format!("/blob?done=saved&path={}", encode(path))))
            }
        }
    }

    async fn merge(&self, path: &str, ours: String, failure: Failure) -> Result {
        let (version, preview) = self.read(path).await?;
        let (Preview::Text(theirs) | Preview::Document(theirs)) = preview else { return Err(failure) };
        if version.tag.0 == self.form.get("tag") {
            // Not another version, but a lease, is in the way.
            return Err(failure);
        }
        let both = (theirs.text.clone(), ours.clone());
        let compared = tokio::task::spawn_blocking(move || side_by_side(&both.0, &both.1)).await;
        let lines = compared
            .map_err(|error| Failure::new(StatusCode::INTERNAL_SERVER_ERROR, format!("can't compare: {error}")))?;
        let merge = Merge { frame: self.frame("blobs"), path: path.to_owned().into(), version, theirs, ours, lines };
        Ok(Answer::Page(StatusCode::PRECONDITION_FAILED, render(&merge)?))
    }

    /// Returns the tag of the version that was shown. `*` and lists would name others, too.
    fn shown_tag(&self) -> std::result::Result<HeaderValue, Failure> {
        let tag = EntityTag::parse(self.form.get("tag").as_bytes()).ok().filter(|tag| !tag.is_weak());
        let missing = || Failure::new(StatusCode::BAD_REQUEST, "the form has no tag: load the page again");
        tag.map(|tag| tag.to_header()).ok_or_else(missing)
    }

    /// Asks if the version that was shown is to be deleted.
    pub(super) fn ask_to_delete(&self) -> Result {
        self.shown_tag()?;
        let (path, tag) = (self.form.get("path").to_owned().into(), self.form.get("tag").to_owned().into());
        page(&Deletion { frame: self.frame("blobs"), path, tag })
    }

    /// Deletes the version that was shown.
    pub(super) async fn delete_blob(&self) -> Result {
        let path = self.form.get("path");
        let fields = [(IF_MATCH, self.shown_tag()?)];
        self.inside.whole(Method::DELETE, &target(path)?, &fields, Bytes::new()).await?;
        let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
        Ok(Answer::Redirect(format!("/blobs?done=deleted&path={}%2F", encode(folder))))
    }

    /// Reads a version of a blob, and its content if that can be shown. Both are of one version: a text comes with its tag.
    async fn read(&self, path: &str) -> std::result::Result<(Version, Preview), Failure> {
        let target = target(path)?;
        let head = self.inside.whole(Method::HEAD, &target, &[], Bytes::new()).await?;
        let version = Version::of(&head);
        if is_image(&version.media_type.0) {
            return Ok((version, Preview::Image));
        }
        if version.size > LONGEST_TEXT {
            return Ok((version, Preview::None("it is larger than 256 KiB")));
        }
        let whole = self.inside.get(&target).await?;
        let (version, encoded) = (Version::of(&whole), whole.headers.contains_key(CONTENT_ENCODING));
        let preview = match String::from_utf8(whole.body.into()) {
            _ if has_other_charset(&version.media_type.0) => Preview::None("it is not in UTF-8"),
            _ if encoded => Preview::None("it is encoded (Content-Encoding)"),
            Ok(text) if !text.contains('\0') => match Editable::of(text) {
                None => Preview::None("its lines end in different ways, which a form would change"),
                Some(text) if is_document(&version.media_type.0) => Preview::Document(text),
                Some(text) => Preview::Text(text),
            },
            _ => Preview::None("it is neither text nor an image"),
        };
        Ok((version, preview))
    }
}

/// Returns `true` if the type names an encoding other than UTF-8, which a form would not preserve.
fn has_other_charset(media_type: &str) -> bool {
    let lower = media_type.to_ascii_lowercase();
    let charset = lower.split_once("charset=").map(|(_, rest)| rest.split(';').next().unwrap_or_default());
    charset.is_some_and(|charset| !matches!(charset.trim().trim_matches('"'), "utf-8" | "utf8" | "us-ascii"))
}

impl Version {
    fn of(answer: &Whole) -> Self {
        let field = |name| answer.field(&name).map(Text);
        let size = field(CONTENT_LENGTH).and_then(|length| length.0.parse().ok()).unwrap_or(answer.body.len() as u64);
        Self {
            tag: field(ETAG).unwrap_or_default(),
            media_type: field(CONTENT_TYPE).unwrap_or_default(),
            size,
            digest: field(HeaderName::from_static("repr-digest")),
            modified: field(LAST_MODIFIED),
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
            0 => Some(Self { text, newline: "lf" }),
            _ if with_return == ends => Some(Self { text: text.replace("\r\n", "\n"), newline: "crlf" }),
            _ => None,
        }
    }
}

fn is_image(media_type: &str) -> bool {
    let known = ["image/png", "image/jpeg", "image/gif", "image/webp", "image/avif"];
    known.contains(&essence(media_type).as_str())
}

/// Returns `true` for a type that a browser shows as a document.
fn is_document(media_type: &str) -> bool {
    ["text/html", "application/xhtml+xml", "image/svg+xml"].contains(&essence(media_type).as_str())
}

fn essence(media_type: &str) -> String {
    media_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
}

/// Returns the path of a blob for a request. No name leads to the endpoints of the gateway, or to a listing.
fn target(path: &str) -> std::result::Result<String, Failure> {
    match LeaseTarget::new(path) {
        Ok(LeaseTarget { blob: Some(_), .. }) => Ok(format!("/{}", encode_path(path))),
        Ok(_) => Err(not_found(&"this is a container: name a blob in it, CONTAINER/NAME")),
        Err(error) => Err(not_found(&error)),
    }
}

fn not_found(reason: &dyn Display) -> Failure {
    Failure::new(StatusCode::NOT_FOUND, format!("there is no such blob: {reason}"))
}

fn value(text: &str) -> std::result::Result<HeaderValue, Failure> {
    let invalid = |_| Failure::new(StatusCode::BAD_REQUEST, "this form is out of date: load the page again");
    HeaderValue::try_from(text).map_err(invalid)
}

/// Returns the folders on the way to a path, the container first.
fn parents(path: &str) -> Vec<Parent> {
    let ends = path.match_indices('/').map(|(at, _)| at);
    let mut begin = 0;
    let parent = |end: usize| {
        let parent = Parent { name: path[begin..end].to_owned().into(), path: path[..=end].to_owned().into() };
        begin = end + 1;
        parent
    };
    ends.map(parent).collect()
}

/// Compares two texts line by line. Texts of very many lines are shown whole, and what is not compared in time counts as different.
fn side_by_side(theirs: &str, ours: &str) -> Vec<Line> {
    let text = |line: &str| Some(Text(line.trim_end_matches('\n').to_owned()));
    let [old, new] = [theirs, ours].map(|text| text.split_inclusive('\n').collect::<Vec<_>>());
    if old.len().max(new.len()) > MOST_LINES {
        return vec![Line { kind: "whole", theirs: text(theirs), ours: text(ours) }];
    }
    let deadline = Instant::now() + COMPARING;
    let mut found = Replace::new(Capture::new());
    let Ok(()) = myers::diff_deadline(&mut found, &old, 0..old.len(), &new, 0..new.len(), Some(deadline.into_std()));
    let lines = found.into_inner().into_ops().into_iter().flat_map(|op| {
        let (before, after) = (&old[op.old_range()], &new[op.new_range()]);
        if op.tag() == DiffTag::Equal {
            return before.iter().map(|line| Line { kind: "same", theirs: text(line), ours: text(line) }).collect();
        }
        let theirs = before.iter().map(|line| Line { kind: "theirs", theirs: text(line), ours: None });
        let ours = after.iter().map(|line| Line { kind: "ours", theirs: None, ours: text(line) });
        theirs.chain(ours).collect::<Vec<_>>()
    });
    lines.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_editable_if_a_form_keeps_its_lines() {
        let of = |text: &str| Editable::of(text.to_owned()).map(|editable| (editable.text, editable.newline));
        for (text, expected) in [
            ("a\nb", Some(("a\nb", "lf"))),
            ("a\r\nb\r\n", Some(("a\nb\n", "crlf"))),
            ("a\r\nb\n", None),
            ("a\rb", None),
        ] {
            assert_eq!(of(text), expected.map(|(text, newline)| (text.to_owned(), newline)), "{text:?}");
        }
    }

    #[test]
    fn a_comparison_loses_no_line() {
        let numbers =
            |numbers: &mut dyn Iterator<Item = usize>| numbers.map(|n| format!("{n}\n")).collect::<Vec<_>>().concat();
        // Every line differs from every other one, or is there many times.
        let scattered = numbers(&mut (0..MOST_LINES).map(|n| n * 7919 % MOST_LINES));
        let few = numbers(&mut (0..MOST_LINES).map(|n| n * n % 7));
        let many = numbers(&mut (0..=MOST_LINES));
        for (theirs, ours, is_whole) in [
            ("", "", false),
            ("a\nb\nc", "b\nc\n", false),
            (&*numbers(&mut (0..MOST_LINES)), &*scattered, false),
            (&*few, &*scattered, false),
            (&*many, "a", true),
            ("a", &*many, true),
        ] {
            let lines = side_by_side(theirs, ours);
            assert_eq!(lines.iter().any(|line| line.kind == "whole"), is_whole);
            let of = |side: fn(&Line) -> &Option<Text>| {
                lines
                    .iter()
                    .filter_map(|line| side(line).as_ref().map(|text| text.0.clone()))
                    .collect::<Vec<_>>()
                    .join("\n")
            };
            assert_eq!(of(|line| &line.theirs), theirs.trim_end_matches('\n'));
            assert_eq!(of(|line| &line.ours), ours.trim_end_matches('\n'));
        }
    }

    #[test]
    fn both_versions_are_shown_line_by_line() {
        let kinds: Vec<_> = side_by_side("a\nb\n", "a\nc\n").into_iter().map(|line| line.kind).collect();
        assert_eq!(kinds, ["same", "theirs", "ours"]);
        let folders: Vec<_> = parents("c/a b/x").into_iter().map(|parent| (parent.name.0, parent.path.0)).collect();
        assert_eq!(folders, [("c".to_owned(), "c/".to_owned()), ("a b".to_owned(), "c/a b/".to_owned())]);
    }
}
