//! A version of a blob, and the part of its content that a page can show.

use http::HeaderName;
use http::header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, ETAG, LAST_MODIFIED};

use super::target;
use crate::console::OperatorVisit;
use crate::console::inside::{RequestFailure, WholeResponse};
use crate::text::Text;

/// Maximum size of a text that is shown and edited, in bytes.
pub(super) const LONGEST_TEXT: u64 = 256 << 10;

/// A version of a blob.
pub(super) struct BlobVersion {
    pub(super) tag: Text,
    pub(super) media_type: Text,
    pub(super) size: u64,
    pub(super) digest: Option<Text>,
    pub(super) modified: Option<Text>,
}

/// The part of a page that shows the content.
pub(super) enum Preview {
    Text(Editable),
    Image,
    /// A document, which is confined.
    Document(Editable),
    /// Why there is none.
    None(&'static str),
}

/// A text that a form can change without changing anything else of it.
pub(super) struct Editable {
    /// The text with lines that end in LF.
    pub(super) text: String,
    /// How they end in the blob: `lf` or `crlf`.
    pub(super) newline: &'static str,
}

impl OperatorVisit<'_> {
    /// Reads a version of a blob, and its content if that can be shown. Both are of one version: a text comes with its tag.
    pub(super) async fn read(&self, path: &str) -> Result<(BlobVersion, Preview), RequestFailure> {
        let target = target(path)?;
        let version = BlobVersion::of(&self.inside.look(&target).await?);
        if is_image(&version.media_type.0) {
            return Ok((version, Preview::Image));
        }
        if version.size > LONGEST_TEXT {
            return Ok((version, Preview::None("it's larger than 256 KiB")));
        }
        let whole = self.inside.get(&target).await?;
        let version = BlobVersion::of(&whole);
        let encoded = whole.headers.contains_key(CONTENT_ENCODING);
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

impl BlobVersion {
    /// Returns the version that a response is about.
    pub(super) fn of(answer: &WholeResponse) -> Self {
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
    pub(super) fn text(&self) -> Option<&Editable> {
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

/// Returns `true` for a type that all browsers show as an image, which can't run scripts.
fn is_image(media_type: &str) -> bool {
    let essence = essence(media_type);
    let format = essence.strip_prefix("image/");
    format.is_some_and(|format| matches!(format, "png" | "jpeg" | "gif" | "webp" | "avif"))
}

/// Returns `true` for a type that a browser shows as a document.
fn is_document(media_type: &str) -> bool {
    ["text/html", "application/xhtml+xml", "image/svg+xml"].contains(&essence(media_type).as_str())
}

/// Returns a type without its parameters, in lower case.
fn essence(media_type: &str) -> String {
    let essence = media_type.split(';').next().unwrap_or_default();
    essence.trim().to_ascii_lowercase()
}

/// Returns `true` if the type names an encoding other than UTF-8, which a form wouldn't preserve.
fn has_other_charset(media_type: &str) -> bool {
    let lower = media_type.to_ascii_lowercase();
    let Some((_, rest)) = lower.split_once("charset=") else {
        return false;
    };
    let charset = rest.split(';').next().unwrap_or_default();
    let charset = charset.trim().trim_matches('"');
    !matches!(charset, "utf-8" | "utf8" | "us-ascii")
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
}
