//! Set Blob Tags, and the document of tags.

use http::Response;
use ifmatch_blob::body::BlobBody;
use ifmatch_blob::dialect::Context;
use ifmatch_blob::name::BlobPath;
use ifmatch_blob::store::{HeaderChange, Upload};
use ifmatch_blob::tags::{InvalidTags, Tags};
use quick_xml::Reader;
use quick_xml::events::Event;

use super::set_blob_headers;
use crate::blocks;
use crate::error::AzureError;
use crate::request::{SetTags, Write, headers};
use crate::response::{self, Xml};

pub(crate) async fn set_tags(
    context: &Context,
    blob: &BlobPath,
    set: SetTags,
    body: Upload,
) -> Result<Response<BlobBody>, AzureError> {
    let SetTags { write, document } = set;
    let tags = parse(&blocks::read(context, document, body).await?)?;
    // The tags are no part of the key by which a repeated request would be recognised.
    set_blob_headers(context, blob, Write { request: None, ..write }, HeaderChange::Tags(tags)).await
}

/// Returns the document of Get Blob Tags.
pub(crate) fn document(tags: &Tags) -> Response<BlobBody> {
    let mut xml = Xml::begin("Tags");
    add(&mut xml, tags);
    response::document(xml.end("Tags"))
}

/// Adds tags to a document.
pub(crate) fn add(xml: &mut Xml, tags: &Tags) {
    xml.open("TagSet");
    for (name, value) in tags.iter() {
        xml.open("Tag");
        xml.text("Key", &name);
        xml.text("Value", &value);
        xml.close("Tag");
    }
    xml.close("TagSet");
}

/// Parses a document. Rejects entities and document types, so a document never expands.
fn parse(bytes: &[u8]) -> Result<Tags, AzureError> {
    let text = std::str::from_utf8(bytes).map_err(|_| invalid("not UTF-8"))?;
    let mut reader = Reader::from_str(text.trim_start_matches('\u{feff}').trim());
    let (mut depth, mut tags) = (0, Vec::new());
    let (mut is_value, mut is_complete) = (false, false);
    loop {
        match reader.read_event().map_err(|error| invalid(&error.to_string()))? {
            Event::Start(tag) => {
                match (depth, tag.name().as_ref()) {
                    (0, b"Tags") if !is_complete => {}
                    (1, b"TagSet") => {}
                    (2, b"Tag") => tags.push((String::new(), String::new())),
                    (3, b"Key") => is_value = false,
                    (3, b"Value") => is_value = true,
                    _ => return Err(invalid("expected Tags with a TagSet of Tags, each with a Key and a Value")),
                }
                depth += 1;
            }
            Event::Empty(tag) if matches!((depth, tag.name().as_ref()), (1, b"TagSet") | (3, b"Value")) => {}
            Event::End(_) => {
                depth -= 1;
                is_complete = depth == 0;
            }
            Event::Text(text) => {
                let text = text.decode().map_err(|error| invalid(&error.to_string()))?;
                match tags.last_mut().filter(|_| depth == 4) {
                    Some((_, value)) if is_value => value.push_str(&text),
                    Some((name, _)) => name.push_str(&text),
                    None if text.trim().is_empty() => {}
                    None => return Err(invalid("unexpected text between elements")),
                }
            }
            Event::Decl(_) | Event::Comment(_) => {}
            Event::Eof if is_complete => {
                return headers::checked_tags(Tags::new(tags).map_err(refused)?).map_err(invalid);
            }
            _ => return Err(invalid("document types, entities and instructions are not allowed")),
        }
    }
}

fn refused(error: InvalidTags) -> AzureError {
    match error {
        InvalidTags::Name | InvalidTags::Value | InvalidTags::TooMany => {
            AzureError::bad_request("TagsTooLarge", error.to_string())
        }
        InvalidTags::Repeated | InvalidTags::Encoding => invalid(&error.to_string()),
    }
}

fn invalid(why: &str) -> AzureError {
    AzureError::bad_request("InvalidXmlDocument", format!("the tags cannot be read: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_of_the_sdks_are_read() {
        let tag = |name: &str, value: &str| format!("<Tag><Key>{name}</Key><Value>{value}</Value></Tag>");
        let document =
            |tags: &str| format!("<?xml version='1.0' encoding='utf-8'?>\n<Tags><TagSet>{tags}</TagSet></Tags>");
        let read = |text: &str| parse(text.as_bytes()).map(|tags| tags.to_string()).map_err(|error| error.code);
        assert_eq!(read(&document(&(tag("b", "x y") + &tag("a", "")))).as_deref(), Ok("a=&b=x%20y"));
        assert_eq!(read("<Tags><TagSet /></Tags>").as_deref(), Ok(""));
        assert_eq!(read("<Tags><TagSet><Tag><Key>a</Key><Value/></Tag></TagSet></Tags>").as_deref(), Ok("a="));
        let eleven: String = (0..11).map(|at| tag(&at.to_string(), "1")).collect();
        assert_eq!(read(&document(&eleven)), Err("TagsTooLarge"));
        for wrong in [
            document(&(tag("a", "1") + &tag("a", "2"))),
            document(&tag("a", "b@c")),
            document("<Tag><Key>a</Key><Value>&amp;</Value></Tag>"),
            document("<Key>a</Key>"),
            "<Tags><TagSet>".to_owned(),
            "<!DOCTYPE a><Tags/>".to_owned(),
            "<BlockList/>".to_owned(),
            String::new(),
            "<TagSet/>".to_owned(),
            "<Tags></Tags><Tags></Tags>".to_owned(),
            "a".to_owned(),
        ] {
            assert_eq!(read(&wrong), Err("InvalidXmlDocument"), "{wrong}");
        }
    }
}
