//! Responses, and XML documents.

use std::borrow::Cow;

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE, ETAG, LAST_MODIFIED, WWW_AUTHENTICATE};
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Response, StatusCode};
use ifmatch_blob::body::BlobBody;
use ifmatch_blob::store::{BlobInfo, Leased};
use ifmatch_core::EntityTag;
use ifmatch_core::date::HttpDate;
use ifmatch_core::fields::not_modified::retain_304_headers;
use ifmatch_core::lease::azure::{self, CLIENT_REQUEST_ID};
use ifmatch_core::lease::{LeaseAction, fields};
use quick_xml::Writer;
use quick_xml::escape::partial_escape;
use quick_xml::events::{BytesDecl, BytesEnd, BytesStart, BytesText, Event};

use crate::error::AzureError;
use crate::random_guid;
use crate::request::headers::{MAX_CLIENT_REQUEST_ID, VERSION};

pub(crate) mod headers;

const REQUEST_ID: HeaderName = HeaderName::from_static("x-ms-request-id");
const REQUEST_ENCRYPTED: HeaderName = HeaderName::from_static("x-ms-request-server-encrypted");
/// Enough for the headers of nearly all responses without a body.
const USUAL_HEADERS: usize = 12;

/// The headers of a request that its response repeats.
pub(crate) struct RequestIds {
    version: Option<HeaderValue>,
    client_request_id: Option<HeaderValue>,
}

impl RequestIds {
    /// Takes the headers from a request.
    pub(crate) fn of(head: &Parts) -> Self {
        let field = |name| {
            head.headers
                .get(name)
                .filter(|value| value.len() <= MAX_CLIENT_REQUEST_ID)
                .cloned()
        };
        Self {
            version: field(VERSION),
            client_request_id: field(CLIENT_REQUEST_ID),
        }
    }

    /// Adds the headers, and a request id of the server's own, to a response.
    pub(crate) fn add_to(self, mut response: Response<BlobBody>) -> Response<BlobBody> {
        let id = random_guid().and_then(|id| HeaderValue::try_from(id.to_string()).ok());
        let own = [
            (VERSION, self.version),
            (CLIENT_REQUEST_ID, self.client_request_id),
            (REQUEST_ID, id),
        ];
        response.headers_mut().extend(
            own.into_iter()
                .filter_map(|(name, value)| Some((name, value?))),
        );
        response
    }
}

/// An empty response with the tag and date of the resource.
pub(crate) fn empty(
    status: StatusCode,
    tag: Option<&EntityTag>,
    date: Option<HttpDate>,
) -> Response<BlobBody> {
    let mut response = Response::new(BlobBody::empty());
    *response.status_mut() = status;
    *response.headers_mut() = HeaderMap::with_capacity(USUAL_HEADERS);
    let headers = response.headers_mut();
    headers.extend(tag.map(|tag| (ETAG, tag.to_header())));
    headers.extend(date.map(|date| (LAST_MODIFIED, date.to_header())));
    headers.insert(CONTENT_LENGTH, 0.into());
    response
}

/// States that the service doesn't encrypt what it stores.
pub(crate) fn set_not_encrypted(response: &mut Response<BlobBody>) {
    response
        .headers_mut()
        .insert(REQUEST_ENCRYPTED, HeaderValue::from_static("false"));
}

/// A response with an XML document.
pub(crate) fn document(text: impl Into<Bytes>) -> Response<BlobBody> {
    let text = text.into();
    let mut response = Response::new(BlobBody::empty());
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(MEDIA_TYPE));
    headers.insert(CONTENT_LENGTH, text.len().into());
    *response.body_mut() = text.into();
    response
}

/// The response to a conditional read of an unchanged blob.
pub(crate) fn not_modified(info: &BlobInfo) -> Response<BlobBody> {
    let mut response = empty(StatusCode::NOT_MODIFIED, info.tag.as_ref(), None);
    let headers = response.headers_mut();
    retain_304_headers(headers);
    // Azure sends the date even with a tag.
    headers.insert(LAST_MODIFIED, info.last_modified.to_header());
    headers.insert(
        azure::ERROR_CODE,
        HeaderValue::from_static("ConditionNotMet"),
    );
    response
}

/// The response to a lease operation.
pub(crate) fn leased(action: LeaseAction, leased: &Leased) -> Response<BlobBody> {
    let status = match action {
        LeaseAction::Acquire { .. } => StatusCode::CREATED,
        LeaseAction::Break { .. } => StatusCode::ACCEPTED,
        _ => StatusCode::OK,
    };
    let mut response = empty(status, leased.tag.as_ref(), Some(leased.last_modified));
    let headers = response.headers_mut();
    if matches!(action, LeaseAction::Break { .. }) {
        headers.insert(
            azure::TIME,
            leased.receipt.seconds_left().unwrap_or_default().into(),
        );
    } else if let Some(lease) = leased.receipt.lease {
        let id = HeaderValue::try_from(lease.id().to_string()).ok();
        headers.extend(id.map(|id| (azure::ID, id)));
        headers.extend([fields::token_of(&lease)]);
    }
    response
}

/// An error response. The response to HEAD has neither a body nor a content type.
pub(crate) fn error(error: AzureError, method: &Method) -> Response<BlobBody> {
    let mut xml = XmlWriter::begin("Error");
    xml.text("Code", error.code);
    xml.text("Message", &error.message);
    let text = xml.end("Error");
    let mut response = Response::new(BlobBody::empty());
    *response.status_mut() = error.status;
    let headers = response.headers_mut();
    headers.insert(azure::ERROR_CODE, HeaderValue::from_static(error.code));
    headers.extend(error.headers);
    if error.status == StatusCode::UNAUTHORIZED {
        headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("SharedKey"));
    }
    if *method != Method::HEAD {
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(MEDIA_TYPE));
        headers.insert(CONTENT_LENGTH, text.len().into());
        *response.body_mut() = text.into();
    }
    response
}

/// The content type of XML responses.
pub(crate) const MEDIA_TYPE: &str = "application/xml";

/// A document, written element by element.
pub(crate) struct XmlWriter(Writer<Vec<u8>>);

impl XmlWriter {
    /// Begins a document with this root.
    pub(crate) fn begin(root: &str) -> Self {
        Self::begin_with(root, &[])
    }

    /// Begins a document with this root and attributes.
    pub(crate) fn begin_with(root: &str, attributes: &[(&str, &str)]) -> Self {
        let mut xml = Self(Writer::new(Vec::new()));
        xml.write(Event::Decl(BytesDecl::new("1.0", Some("utf-8"), None)));
        let attributes: Vec<_> = attributes
            .iter()
            .map(|(name, value)| (*name, writable(value)))
            .collect();
        let attributes = attributes
            .iter()
            .map(|(name, value)| (*name, value.as_ref()));
        xml.write(Event::Start(
            BytesStart::new(root).with_attributes(attributes),
        ));
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
        self.write(Event::Text(BytesText::from_escaped(partial_escape(
            writable(text),
        ))));
        self.close(name);
    }

    /// Writes an element with this text, or an empty one.
    pub(crate) fn maybe(&mut self, name: &str, text: Option<&str>) {
        self.text(name, text.unwrap_or_default());
    }

    /// Writes the name of a blob, percent-encoded if XML can't represent it.
    pub(crate) fn blob_name(&mut self, name: &str) {
        if name.contains(['\u{fffe}', '\u{ffff}']) {
            let encoded =
                percent_encoding::utf8_percent_encode(name, percent_encoding::NON_ALPHANUMERIC)
                    .to_string();
            self.write(Event::Start(
                BytesStart::new("Name").with_attributes([("Encoded", "true")]),
            ));
            self.write(Event::Text(BytesText::from_escaped(encoded)));
            self.close("Name");
        } else {
            self.text("Name", name);
        }
    }

    /// Returns the number of bytes so far.
    pub(crate) fn len(&self) -> usize {
        self.0.get_ref().len()
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

/// Replaces the characters that XML can't represent.
fn writable(text: &str) -> Cow<'_, str> {
    let is_unwritable = |char: char| matches!(char, '\0'..='\u{8}' | '\u{b}' | '\u{c}' | '\u{e}'..='\u{1f}' | '\u{fffe}' | '\u{ffff}');
    if text.contains(is_unwritable) {
        text.replace(is_unwritable, "\u{fffd}").into()
    } else {
        text.into()
    }
}
