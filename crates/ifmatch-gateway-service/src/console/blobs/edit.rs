//! Saving a text, and merging it with a version that another writer saved meanwhile.

use askama::Template;
use http::header::{CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_LANGUAGE, CONTENT_TYPE, IF_MATCH};
use http::{HeaderName, Method, StatusCode};
use tokio::task::spawn_blocking;

use super::preview::{BlobVersion, Editable, LONGEST_TEXT};
use super::{Editor, PageResult, name_of, target};
use crate::console::inside::RequestFailure;
use crate::console::merging::{self, ChangeKind, MergeRegion};
use crate::console::screens::now;
use crate::console::{OperatorVisit, PageAnswer, PageFrame, page, render};
use crate::text::{self, Text, encode};

/// The page that merges a text with a newer version.
#[derive(Template)]
#[template(path = "merge.html")]
struct MergePage {
    frame: PageFrame,
    path: Text,
    name: Text,
    now: f64,
    /// The newer version.
    version: BlobVersion,
    newline: &'static str,
    /// The text that the operator began with.
    base: String,
    /// The operator's text.
    ours: String,
    /// Each part, with the number and the choice of a conflict.
    regions: Vec<(MergeRegion, usize, String)>,
    problem: Option<&'static str>,
}

impl MergePage {
    /// Returns the number of conflicts.
    fn conflicts(&self) -> u32 {
        self.regions
            .iter()
            .map(|(region, ..)| u32::from(region.is_conflict()))
            .sum()
    }
}

impl OperatorVisit<'_> {
    /// Saves a text as the next version of the one that was shown. Merges both if there is another one by now. If that fails, shows
    /// the text again.
    pub(in crate::console) async fn save_blob(&self) -> PageResult {
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
    pub(super) fn field(&self, name: &str) -> String {
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
        let head = self.inside.look(&target).await?;
        let mut fields = vec![(IF_MATCH, self.shown_tag()?)];
        let kept = head.headers.iter().filter(|(name, _)| is_kept(name));
        fields.extend(kept.map(|(name, value)| (name.clone(), value.clone())));
        let saved = self
            .inside
            .whole(Method::PUT, &target, &fields, content.into());
        match saved.await {
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
                let page = format!("/blob?done=saved&path={}", encode(path));
                Ok(PageAnswer::Redirect(page))
            }
        }
    }

    /// Saves both versions as they were merged, or opens them in the editor.
    async fn save_merged(&self, ours: &str) -> PageResult {
        let (version, preview) = self.read(self.form.get("path")).await?;
        let Some(theirs) = preview.text() else {
            let detail = "The newer version isn't text that can be merged. Copy yours, then open the newer one.";
            return Err(RequestFailure::new(StatusCode::PRECONDITION_FAILED, detail));
        };
        let regions = self.regions(ours, &theirs.text).await?;
        if version.tag.0 != self.form.get("tag") {
            let problem = Some("While you were merging, someone saved again.");
            return self.merge_page(version, theirs, ours, regions, problem);
        }
        let is_edit = self.form.get("then") == "edit";
        let names: Vec<_> = (0..regions.len()).map(choice_name).collect();
        let choice = |nr: usize| match names.get(nr).map_or("", |name| self.form.get(name)) {
            "" if is_edit => Some("both"),
            choice => Some(choice),
        };
        match merging::apply(&regions, choice) {
            None => {
                let problem = Some("Choose a version for each conflict.");
                self.merge_page(version, theirs, ours, regions, problem)
            }
            Some(text) if is_edit => {
                let editor = Editor {
                    text,
                    base: theirs.text.clone(),
                    tag: version.tag.clone(),
                    newline: theirs.newline.into(),
                    is_merged: true,
                };
                page(&self.shown(Some(editor)).await?)
            }
            Some(text) => self.save_text(&text, ours).await,
        }
    }

    /// Merges the text of an operator with the newer one, line by line.
    async fn regions(&self, ours: &str, theirs: &str) -> Result<Vec<MergeRegion>, RequestFailure> {
        let [base, ours, theirs] = [&self.field("base"), ours, theirs].map(ToOwned::to_owned);
        let merged = spawn_blocking(move || merging::merge(&base, &ours, &theirs)).await;
        merged.map_err(|error| {
            let detail = format!("can't merge: {error}");
            RequestFailure::new(StatusCode::INTERNAL_SERVER_ERROR, detail)
        })
    }

    /// Returns the page that asks how to merge, with the choices that were made before.
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
            let choice = self.form.get(&choice_name(number)).to_owned();
            (region, number, choice)
        };
        let path = self.form.get("path");
        let merge = MergePage {
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
        let status = StatusCode::PRECONDITION_FAILED;
        Ok(PageAnswer::Page(status, render(&merge)?))
    }
}

/// Returns `true` for a field that a PUT replaces together with the content.
fn is_kept(name: &HeaderName) -> bool {
    let fields = [
        CONTENT_TYPE,
        CONTENT_LANGUAGE,
        CONTENT_DISPOSITION,
        CACHE_CONTROL,
    ];
    fields.contains(name) || name.as_str().starts_with("x-meta-")
}

/// Returns the name of the field with the choice of a conflict.
fn choice_name(number: usize) -> String {
    format!("choice-{number}")
}
