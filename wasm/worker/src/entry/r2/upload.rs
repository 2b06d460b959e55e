//! An upload that R2 has begun.

use object_store::Result;
use object_store::path::Path;
use worker::send::SendWrapper;
use worker::{Bucket, web_sys};

use super::within_budget;

/// An upload at R2.
#[derive(Clone)]
pub(super) struct Upload {
    bucket: SendWrapper<Bucket>,
    location: Path,
    id: String,
}

impl Upload {
    pub(super) fn new(bucket: &Bucket, location: &Path, id: String) -> Self {
        Self { bucket: SendWrapper::new(bucket.clone()), location: location.clone(), id }
    }

    /// Returns the name of the object.
    pub(super) fn location(&self) -> &Path {
        &self.location
    }

    /// Returns R2's handle of the upload.
    pub(super) fn resume(&self) -> worker::Result<worker::MultipartUpload> {
        self.bucket.resume_multipart_upload(self.location.as_ref(), &self.id)
    }

    /// Uploads a stream as a part, and returns the part's tag. There is no time limit, since the client determines the time.
    pub(super) async fn send(&self, number: u16, body: web_sys::ReadableStream) -> Result<String> {
        let sent = async { self.resume()?.upload_part(number, body).await };
        within_budget(&self.location, sent).await.map(|part| part.etag())
    }
}
