//! The fields of a request: its query, and the form in its body.

use std::collections::HashMap;
use std::convert::Infallible;
use std::future::ready;
use std::net::IpAddr;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::stream;
use http::StatusCode;
use http::header::CONTENT_TYPE;
use http::request::Parts;
use http_body::Body;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use ifmatch_blob::shares::{Share, Shares};
use ifmatch_http_server::{RequestBody, SlotLimit};
use multer::Multipart;
use url::form_urlencoded;

use super::inside::RequestFailure;

/// Maximum size of a form with a file, in bytes.
pub(super) const LONGEST_UPLOAD: usize = 16 << 20;
/// Maximum size of a form with a text and the version that it began as, in bytes. A character takes up to three times its size there.
pub(super) const LONGEST_TEXT: usize = 2 << 20;
/// Maximum size of other forms, in bytes.
pub(super) const LONGEST: usize = 16 << 10;

/// The fields of a request, and the file that it uploads. It has no `Debug`, so a token that is entered gets into no log.
#[derive(Default)]
pub(super) struct RequestForm {
    fields: HashMap<String, String>,
    pub(super) file: Option<UploadedFile>,
    /// The memory that the form takes.
    _share: Option<Share<IpAddr>>,
}

/// A file of a form.
pub(super) struct UploadedFile {
    /// The name at the operator's machine.
    pub(super) name: String,
    pub(super) media_type: Option<String>,
    pub(super) content: Bytes,
}

/// The memory of the forms that are read or in use, in KiB, in total and per client.
pub(super) type FormMemory = Arc<Shares<IpAddr>>;

/// Returns this number of MiB for forms.
pub(super) fn memory(mebibytes: u32) -> FormMemory {
    Shares::new(SlotLimit {
        total: mebibytes << 10,
        per_client: None,
    })
}

impl RequestForm {
    /// Returns the fields of a query.
    pub(super) fn of_query(head: &Parts) -> Self {
        Self::parse(head.uri.query().unwrap_or_default().as_bytes())
    }

    /// Reads the query of a read, or the body of a write, of at most `longest` bytes, which take memory from `memory`.
    ///
    /// # Errors
    /// 400 if the form is malformed, 413 if it is longer, or 503 without memory for it.
    pub(super) async fn read(
        head: &Parts,
        body: RequestBody,
        longest: usize,
        (memory, client): (&FormMemory, IpAddr),
    ) -> Result<Self, RequestFailure> {
        if head.method.is_safe() {
            return Ok(Self::of_query(head));
        }
        // The length, if it is known, or the longest one.
        let length = body.size_hint().upper().map_or(longest, |length| {
            longest.min(usize::try_from(length).unwrap_or(longest))
        });
        let kibibytes = u32::try_from(length.div_ceil(1024)).unwrap_or(u32::MAX);
        let share = memory.take(Some(client), kibibytes.max(1)).ok_or_else(|| {
            let detail = "The console is busy with other forms. Try again in a few seconds.";
            RequestFailure::new(StatusCode::SERVICE_UNAVAILABLE, detail)
        })?;
        let form = Self::read_body(head, body, longest).await?;
        Ok(Self {
            _share: Some(share),
            ..form
        })
    }

    /// Reads the form in a body, which browsers send URL-encoded, or in parts if it has a file.
    async fn read_body(
        head: &Parts,
        body: RequestBody,
        longest: usize,
    ) -> Result<Self, RequestFailure> {
        let failed = |error: &dyn std::fmt::Display| {
            RequestFailure::new(
                StatusCode::BAD_REQUEST,
                format!("The form can't be read ({error}). Load the page again."),
            )
        };
        let body = Limited::new(body, longest).collect().await;
        let body = body.map_err(|error| match error.downcast::<LengthLimitError>() {
            Ok(_) => {
                let detail =
                    format!("This is over {longest} bytes, the console's limit. Send it to the service with PUT.");
                RequestFailure::new(StatusCode::PAYLOAD_TOO_LARGE, detail)
            }
            Err(error) => failed(&error),
        });
        let body = body?.to_bytes();
        let media_type = head
            .headers
            .get(CONTENT_TYPE)
            .and_then(|value| value.to_str().ok())
            .unwrap_or_default();
        let Ok(boundary) = multer::parse_boundary(media_type) else {
            return Ok(Self::parse(&body));
        };
        let mut parts = Multipart::new(stream::once(ready(Ok::<_, Infallible>(body))), boundary);
        let mut form = Self::default();
        while let Some(part) = parts.next_field().await.map_err(|error| failed(&error))? {
            let name = part.name().unwrap_or_default().to_owned();
            if let Some(name) = part.file_name().map(ToOwned::to_owned) {
                let media_type = part.content_type().map(ToString::to_string);
                let content = part.bytes().await.map_err(|error| failed(&error))?;
                // Browsers send a part without a name if no file was chosen.
                form.file = (!name.is_empty()).then_some(UploadedFile {
                    name,
                    media_type,
                    content,
                });
            } else {
                form.fields
                    .insert(name, part.text().await.map_err(|error| failed(&error))?);
            }
        }
        Ok(form)
    }

    fn parse(text: &[u8]) -> Self {
        Self {
            fields: form_urlencoded::parse(text).into_owned().collect(),
            ..Self::default()
        }
    }

    /// Returns a field, which is empty if it is missing.
    pub(super) fn get(&self, name: &str) -> &str {
        self.fields
            .get(name)
            .map(String::as_str)
            .unwrap_or_default()
    }
}
