//! XML documents in requests: elements and texts, without attributes, document types and their entities, so a document never expands.

use quick_xml::Reader;
use quick_xml::escape::resolve_predefined_entity;
use quick_xml::events::{BytesRef, Event};

use crate::error::AzureError;

/// Takes the parts of a document in order.
pub(crate) trait XmlVisitor {
    /// An element begins.
    fn open(&mut self, name: &[u8]) -> Result<(), AzureError>;
    /// Text, or a part of it: a reference is a part of its own.
    fn text(&mut self, text: &str) -> Result<(), AzureError>;
    /// The innermost element ends.
    fn close(&mut self) -> Result<(), AzureError>;
}

/// Shows the parts of a document to a visitor.
pub(crate) fn visit(bytes: &[u8], visitor: &mut impl XmlVisitor) -> Result<(), AzureError> {
    let text = std::str::from_utf8(bytes).map_err(|_| invalid("not UTF-8"))?;
    let mut reader = Reader::from_str(text.trim_start_matches('\u{feff}').trim());
    loop {
        match reader
            .read_event()
            .map_err(|error| invalid(&error.to_string()))?
        {
            Event::Start(tag) => {
                no_attributes(tag.attributes_raw())?;
                visitor.open(tag.name().as_ref())?;
            }
            Event::Empty(tag) => {
                no_attributes(tag.attributes_raw())?;
                visitor.open(tag.name().as_ref())?;
                visitor.close()?;
            }
            Event::End(_) => visitor.close()?,
            Event::Text(text) => {
                visitor.text(&text.decode().map_err(|error| invalid(&error.to_string()))?)?;
            }
            Event::Decl(_) | Event::Comment(_) => {}
            Event::Eof => return Ok(()),
            Event::GeneralRef(reference) => visitor.text(&resolved(&reference)?)?,
            Event::CData(_) | Event::PI(_) | Event::DocType(_) => {
                return Err(invalid(
                    "document types, CDATA and instructions are not allowed",
                ));
            }
        }
    }
}

/// Returns the text of a reference to a character, or to an entity that every document has (XML 1.0 §4.1, §4.6).
fn resolved(reference: &BytesRef<'_>) -> Result<String, AzureError> {
    let unknown =
        || invalid("a reference must be to a character or to one of amp, lt, gt, quot and apos");
    if let Some(character) = reference
        .resolve_char_ref()
        .map_err(|error| invalid(&error.to_string()))?
    {
        let is_text = !character.is_control() || matches!(character, '\t' | '\n' | '\r');
        return if is_text {
            Ok(character.to_string())
        } else {
            Err(unknown())
        };
    }
    let name = reference
        .decode()
        .map_err(|error| invalid(&error.to_string()))?;
    resolve_predefined_entity(&name)
        .map(str::to_owned)
        .ok_or_else(unknown)
}

/// Rejects attributes.
fn no_attributes(attributes: &[u8]) -> Result<(), AzureError> {
    if attributes.trim_ascii().is_empty() {
        Ok(())
    } else {
        Err(invalid("attributes are not allowed"))
    }
}

/// The error for a malformed document.
pub(crate) fn invalid(why: &str) -> AzureError {
    AzureError::bad_request(
        "InvalidXmlDocument",
        format!("the document in the body cannot be read: {why}"),
    )
}
