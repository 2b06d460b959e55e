//! Set Blob Tags, and the document of tags.

use http::Response;
use ifmatch_blob::body::BlobBody;
use ifmatch_blob::dialect::Context;
use ifmatch_blob::name::BlobPath;
use ifmatch_blob::store::{HeaderChange, Upload};
use ifmatch_blob::tags::{InvalidTags, Tags};

use super::set_blob_headers;
use crate::body;
use crate::error::AzureError;
use crate::request::xml::{self, XmlVisitor, invalid};
use crate::request::{SetTags, WriteHeaders, headers};
use crate::response::{self, XmlWriter};

/// Set Blob Tags.
pub(crate) async fn set_tags(
    context: &Context,
    blob: &BlobPath,
    set: SetTags,
    body: Upload,
) -> Result<Response<BlobBody>, AzureError> {
    let SetTags { write, document } = set;
    let tags = parse(&body::read(context, document, body).await?)?;
    // A retry can't be recognized: its key would have to include the tags.
    set_blob_headers(
        context,
        blob,
        WriteHeaders {
            request: None,
            ..write
        },
        HeaderChange::Tags(tags),
    )
    .await
}

/// Returns the document of Get Blob Tags.
pub(crate) fn document(tags: &Tags) -> Response<BlobBody> {
    let mut xml = XmlWriter::begin("Tags");
    add(&mut xml, tags);
    response::document(xml.end("Tags"))
}

/// Adds tags to a document.
pub(crate) fn add(xml: &mut XmlWriter, tags: &Tags) {
    xml.open("TagSet");
    for (name, value) in tags.iter() {
        xml.open("Tag");
        xml.text("Key", &name);
        xml.text("Value", &value);
        xml.close("Tag");
    }
    xml.close("TagSet");
}

/// Parses the document of Set Blob Tags.
fn parse(bytes: &[u8]) -> Result<Tags, AzureError> {
    let mut document = TagsParser::default();
    xml::visit(bytes, &mut document)?;
    if !document.is_complete {
        return Err(invalid(RULE));
    }
    let tags = document
        .tags
        .into_iter()
        .map(|tag| tag.map(Option::unwrap_or_default).into())
        .collect();
    headers::checked_tags(Tags::new(tags).map_err(refused)?).map_err(invalid)
}

const RULE: &str = "expected Tags with a TagSet of Tags, each with a Key and a Value";

/// The state of parsing a document.
#[derive(Default)]
struct TagsParser {
    depth: usize,
    has_set: bool,
    /// Names and values.
    tags: Vec<[Option<String>; 2]>,
    /// Index into the last tag: 0 in a name, 1 in a value.
    at: usize,
    is_complete: bool,
}

impl XmlVisitor for TagsParser {
    fn open(&mut self, name: &[u8]) -> Result<(), AzureError> {
        match (self.depth, name) {
            (0, b"Tags") if !self.is_complete => {}
            (1, b"TagSet") if !self.has_set => self.has_set = true,
            // One too many, so the refusal says so.
            (2, b"Tag") if self.tags.len() <= Tags::MAX => self.tags.push([None, None]),
            (3, b"Key" | b"Value") => {
                self.at = usize::from(name == b"Value");
                let text = self
                    .tags
                    .last_mut()
                    .map(|tag| &mut tag[self.at])
                    .filter(|text| text.is_none());
                *text.ok_or_else(|| invalid(RULE))? = Some(String::new());
            }
            _ => return Err(invalid(RULE)),
        }
        self.depth += 1;
        Ok(())
    }

    fn text(&mut self, text: &str) -> Result<(), AzureError> {
        match self.tags.last_mut().and_then(|tag| tag[self.at].as_mut()) {
            Some(whole) if self.depth == 4 => whole.push_str(text),
            _ if text.trim().is_empty() => {}
            _ => return Err(invalid("unexpected text between elements")),
        }
        Ok(())
    }

    fn close(&mut self) -> Result<(), AzureError> {
        self.depth = self
            .depth
            .checked_sub(1)
            .ok_or_else(|| invalid("unbalanced elements"))?;
        let is_whole = self
            .tags
            .last()
            .is_none_or(|tag| tag.iter().all(Option::is_some));
        if self.depth == 2 && !is_whole {
            return Err(invalid(RULE));
        }
        self.is_complete = self.depth == 0 && self.has_set;
        Ok(())
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_of_the_sdks_are_read() {
        let tag =
            |name: &str, value: &str| format!("<Tag><Key>{name}</Key><Value>{value}</Value></Tag>");
        let document = |tags: &str| {
            format!("<?xml version='1.0' encoding='utf-8'?>\n<Tags><TagSet>{tags}</TagSet></Tags>")
        };
        let read = |text: &str| {
            parse(text.as_bytes())
                .map(|tags| tags.to_string())
                .map_err(|error| error.code)
        };
        assert_eq!(
            read(&document(&(tag("b", "x y") + &tag("a", "")))).as_deref(),
            Ok("a=&b=x%20y")
        );
        assert_eq!(read("<Tags><TagSet /></Tags>").as_deref(), Ok(""));
        assert_eq!(
            read("<Tags><TagSet><Tag><Key>a</Key><Value/></Tag></TagSet></Tags>").as_deref(),
            Ok("a=")
        );
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
            "<Tags/>".to_owned(),
            "<Tags><TagSet/><TagSet/></Tags>".to_owned(),
            document("<Tag><Key>a</Key></Tag>"),
            document("<Tag><Value>a</Value></Tag>"),
            document("<Tag><Key>a</Key><Key>b</Key><Value>1</Value></Tag>"),
            document("<Tag><Key>a</Key><Value>1</Value><Value>2</Value></Tag>"),
            document("<Tag><Key a='b'>a</Key><Value>1</Value></Tag>"),
            String::new(),
            "<TagSet/>".to_owned(),
            "<Tags></Tags><Tags></Tags>".to_owned(),
            "a".to_owned(),
        ] {
            assert_eq!(read(&wrong), Err("InvalidXmlDocument"), "{wrong}");
        }
    }
}
