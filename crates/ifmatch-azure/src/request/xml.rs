//! XML documents in requests: elements and texts, without attributes, entities and document types, so a document never expands.

use quick_xml::Reader;
use quick_xml::events::Event;

use crate::error::AzureError;

/// Takes the parts of a document in order.
pub(crate) trait Visitor {
    /// An element begins.
    fn open(&mut self, name: &[u8]) -> Result<(), AzureError>;
    /// Text, or a part of it.
    fn text(&mut self, text: &str) -> Result<(), AzureError>;
    /// The innermost element ends.
    fn close(&mut self) -> Result<(), AzureError>;
}

/// Shows the parts of a document to a visitor.
pub(crate) fn visit(bytes: &[u8], visitor: &mut impl Visitor) -> Result<(), AzureError> {
    let text = std::str::from_utf8(bytes).map_err(|_| invalid("not UTF-8"))?;
    let mut reader = Reader::from_str(text.trim_start_matches('\u{feff}').trim());
    loop {
        match reader.read_event().map_err(|error| invalid(&error.to_string()))? {
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
            Event::Text(text) => visitor.text(&text.decode().map_err(|error| invalid(&error.to_string()))?)?,
            Event::Decl(_) | Event::Comment(_) => {}
            Event::Eof => return Ok(()),
            Event::CData(_) | Event::PI(_) | Event::DocType(_) | Event::GeneralRef(_) => {
                return Err(invalid("document types, entities and instructions are not allowed"));
            }
        }
    }
}

fn no_attributes(attributes: &[u8]) -> Result<(), AzureError> {
    if attributes.trim_ascii().is_empty() { Ok(()) } else { Err(invalid("attributes are not allowed")) }
}

/// The error for a malformed document.
pub(crate) fn invalid(why: &str) -> AzureError {
    AzureError::bad_request("InvalidXmlDocument", format!("the document in the body cannot be read: {why}"))
}
