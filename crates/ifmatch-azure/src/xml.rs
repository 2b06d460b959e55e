//! Writing XML.

use std::borrow::Cow;

use quick_xml::escape::partial_escape;

/// The type of every XML answer.
pub(super) const MEDIA_TYPE: &str = "application/xml";

/// A document that grows element by element.
pub(super) struct Xml(String);

impl Xml {
    /// A document with this root.
    pub(super) fn begin(root: &str) -> Self {
        Self(format!("<?xml version=\"1.0\" encoding=\"utf-8\"?><{root}>"))
    }

    /// A document with this root, which has these attributes.
    pub(super) fn begin_with(root: &str, attributes: &[(&str, &str)]) -> Self {
        let attributes = attributes.iter().map(|(name, value)| format!(" {name}=\"{}\"", escaped(value)));
        Self::begin(&format!("{root}{}", attributes.collect::<String>()))
    }

    /// An opening tag.
    pub(super) fn open(&mut self, name: &str) {
        self.0.extend(["<", name, ">"]);
    }

    /// A closing tag.
    pub(super) fn close(&mut self, name: &str) {
        self.0.extend(["</", name, ">"]);
    }

    /// An element with this text.
    pub(super) fn text(&mut self, name: &str, text: &str) {
        self.open(name);
        self.0.push_str(&partial_escape(writable(text).as_ref()));
        self.close(name);
    }

    /// An element with this text; an empty one if there is none.
    pub(super) fn maybe(&mut self, name: &str, text: Option<&str>) {
        self.text(name, text.unwrap_or_default());
    }

    /// The name of a blob, percent-encoded where XML has no way to write it.
    pub(super) fn blob_name(&mut self, name: &str) {
        if name.contains(['\u{fffe}', '\u{ffff}']) {
            let encoded = percent_encoding::utf8_percent_encode(name, percent_encoding::NON_ALPHANUMERIC);
            self.0.extend(["<Name Encoded=\"true\">", &encoded.to_string(), "</Name>"]);
        } else {
            self.text("Name", name);
        }
    }

    /// The whole document.
    pub(super) fn end(mut self, root: &str) -> String {
        self.close(root);
        self.0
    }
}

fn escaped(text: &str) -> String {
    quick_xml::escape::escape(writable(text).as_ref()).into_owned()
}

/// The text without the characters that XML has no way to write.
fn writable(text: &str) -> Cow<'_, str> {
    let is_unwritable =
        |char: char| matches!(char, '\0'..='\u{8}' | '\u{b}' | '\u{c}' | '\u{e}'..='\u{1f}' | '\u{fffe}' | '\u{ffff}');
    if text.contains(is_unwritable) { text.replace(is_unwritable, "\u{fffd}").into() } else { text.into() }
}
