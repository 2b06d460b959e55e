//! The fields of a request: its query, and the form in its body.

use std::collections::HashMap;
use std::convert::Infallible;
use std::future::ready;

use bytes::Bytes;
use futures_util::stream;
use http::header::CONTENT_TYPE;
use http::request::Parts;
use http::{Method, StatusCode};
use http_body_util::{BodyExt, Limited};
use ifmatch_http_server::RequestBody;
use multer::Multipart;
use url::form_urlencoded;

use super::inside::Failure;

/// Maximum size of a form, in bytes.
const LONGEST: usize = 16 << 20;

/// The fields of a request, and the file that it uploads.
#[derive(Debug, Default)]
pub(super) struct Form {
    fields: HashMap<String, String>,
    /// The name, type and content of the file.
    pub(super) file: Option<(String, Option<String>, Bytes)>,
}

impl Form {
    /// Reads the query of a read, or the body of a write.
    pub(super) async fn read(head: &Parts, body: RequestBody) -> Result<Self, Failure> {
        if head.method != Method::POST {
            return Ok(Self::parse(head.uri.query().unwrap_or_default().as_bytes()));
        }
        let failed =
            |error: &dyn std::fmt::Display| Failure::new(StatusCode::BAD_REQUEST, format!("the form: {error}"));
        let body = Limited::new(body, LONGEST).collect().await;
        let body = body.map_err(|_| {
            let detail = format!("the console takes up to {} MiB: send more by PUT", LONGEST >> 20);
            Failure::new(StatusCode::PAYLOAD_TOO_LARGE, detail)
        });
        let body = body?.to_bytes();
        let media_type = head.headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let Ok(boundary) = multer::parse_boundary(media_type) else { return Ok(Self::parse(&body)) };
        let mut parts = Multipart::new(stream::once(ready(Ok::<_, Infallible>(body))), boundary);
        let mut form = Self::default();
        while let Some(part) = parts.next_field().await.map_err(|error| failed(&error))? {
            let name = part.name().unwrap_or_default().to_owned();
            if let Some(file) = part.file_name().map(ToOwned::to_owned) {
                let media_type = part.content_type().map(ToString::to_string);
                let content = part.bytes().await.map_err(|error| failed(&error))?;
                form.file = Some((file, media_type, content)).filter(|(name, ..)| !name.is_empty());
            } else {
                form.fields.insert(name, part.text().await.map_err(|error| failed(&error))?);
            }
        }
        Ok(form)
    }

    fn parse(text: &[u8]) -> Self {
        Self { fields: form_urlencoded::parse(text).into_owned().collect(), file: None }
    }

    /// Returns a field, which is empty if it is missing.
    pub(super) fn get(&self, name: &str) -> &str {
        self.fields.get(name).map(String::as_str).unwrap_or_default()
    }
}
