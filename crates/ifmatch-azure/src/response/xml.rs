//! XML documents.

use std::borrow::Cow;

use quick_xml::Writer;
use quick_xml::escape::partial_escape;
use quick_xml::events::{BytesDecl, BytesEnd, BytesStart, BytesText, Event};

/// The content type of XML responses.
pub(crate) const MEDIA_TYPE: &str = "application/xml";

/// A document, written element by element.
pub(crate) struct Xml(Writer<Vec<u8>>);

impl Xml {
    /// Begins a document with this root.
    pub(crate) fn begin(root: &str) -> Self {
        Self::begin_with(root, &[])
    }

    /// Begins a document with this root and attributes.
    pub(crate) fn begin_with(root: &str, attributes: &[(&str, &str)]) -> Self {
        let mut xml = Self(Writer::new(Vec::new()));
        xml.write(Event::Decl(BytesDecl::new("1.0", Some("utf-8"), None)));
        let attributes: Vec<_> = attributes.iter().map(|(name, value)| (*name, writable(value))).collect();
        let attributes = attributes.iter().map(|(name, value)| (*name, value.as_ref()));
        xml.write(Event::Start(BytesStart::new(root).with_attributes(attributes)));
        xml
    }

    /// Writes an opening tag.
    pub(crate) fn open(&mut self, name: &str) {
        self.write(Event::Start(BytesStart::new(name)));
    }

    /// Writes a closing tag.
    pub(crate) fn close(&mut self, name: &str) {
        self.write(Event::End(BytesEnd::new(name)));
    }

    /// Writes an element with this text.
    pub(crate) fn text(&mut self, name: &str, text: &str) {
        self.open(name);
        self.write(Event::Text(BytesText::from_escaped(partial_escape(writable(text)))));
        self.close(name);
    }

    /// Writes an element with this text, or an empty one.
    pub(crate) fn maybe(&mut self, name: &str, text: Option<&str>) {
        self.text(name, text.unwrap_or_default());
    }

    /// Writes the name of a blob, percent-encoded if XML cannot represent it.
    pub(crate) fn blob_name(&mut self, name: &str) {
        if name.contains(['\u{fffe}', '\u{ffff}']) {
            let encoded = percent_encoding::utf8_percent_encode(name, percent_encoding::NON_ALPHANUMERIC).to_string();
            self.write(Event::Start(BytesStart::new("Name").with_attributes([("Encoded", "true")])));
            self.write(Event::Text(BytesText::from_escaped(encoded)));
            self.close("Name");
        } else {
            self.text("Name", name);
        }
    }

    /// Ends the document.
    pub(crate) fn end(mut self, root: &str) -> String {
        self.close(root);
        String::from_utf8(self.0.into_inner()).unwrap_or_default()
    }

    #[expect(clippy::expect_used, reason = "a write to memory cannot fail")]
    fn write(&mut self, event: Event<'_>) {
        self.0.write_event(event).expect("a write to memory");
    }
}

/// Replaces the characters that XML cannot represent.
fn writable(text: &str) -> Cow<'_, str> {
    let is_unwritable =
        |char: char| matches!(char, '\0'..='\u{8}' | '\u{b}' | '\u{c}' | '\u{e}'..='\u{1f}' | '\u{fffe}' | '\u{ffff}');
    if text.contains(is_unwritable) { text.replace(is_unwritable, "\u{fffd}").into() } else { text.into() }
}
