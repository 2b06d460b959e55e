//! Large objects, uploaded in parts.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use ifmatch_blob_objects::DirectUpload;
use object_store::path::Path;
use object_store::{Error, MultipartUpload, PutMultipartOptions, PutPayload, PutResult, Result, UploadPart};
use worker::send::IntoSendFuture;
use worker::{Bucket, UploadedPart};

use super::upload::Upload;
use super::{attributes, direct, put, within_limits};
use crate::entry::edge::body::EdgeBody;

/// An upload in parts.
struct Parts {
    upload: Upload,
    /// Number of parts begun.
    begun: u16,
    /// Number and tag of each part that arrived.
    arrived: Arc<Mutex<Vec<(u16, String)>>>,
}

/// Begins an upload. A body passed along is uploaded as its only part.
pub(super) async fn begin(
    bucket: &Bucket,
    location: &Path,
    options: &PutMultipartOptions,
) -> Result<Box<dyn MultipartUpload>> {
    let (http, custom) = attributes::metadata(&options.attributes)?;
    let request = bucket.create_multipart_upload(location.as_ref()).http_metadata(http).custom_metadata(custom);
    let id = within_limits(location, request.execute()).await?.upload_id().await;
    let upload = Upload::new(bucket, location, id);
    let mut begun = Parts { upload, begun: 0, arrived: Arc::default() };
    let direct = options.extensions.get::<DirectUpload>();
    if let Some((direct, body)) = direct.and_then(|direct| Some((direct, direct.take::<EdgeBody>()?))) {
        let body = body.into_whole().ok_or_else(direct::unread)?;
        match direct::send(location, &begun.upload, body, direct).await {
            Ok(tag) => begun.arrived = Arc::new(Mutex::new(vec![(direct::PART, tag)])),
            Err(error) => {
                // R2 removes abandoned uploads after a week.
                let _ = begun.abort().await;
                return Err(error);
            }
        }
    }
    Ok(Box::new(begun))
}

impl fmt::Debug for Parts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let location = self.upload.location();
        f.debug_struct("Upload").field("location", location).field("begun", &self.begun).finish_non_exhaustive()
    }
}

#[async_trait]
impl MultipartUpload for Parts {
    fn put_part(&mut self, data: PutPayload) -> UploadPart {
        let number = self.begun.checked_add(1);
        self.begun = number.unwrap_or(self.begun);
        let (upload, arrived) = (self.upload.clone(), Arc::clone(&self.arrived));
        let sent = async move {
            let number = number.ok_or_else(|| too_many(upload.location()))?;
            let sent = async { upload.resume()?.upload_part(number, put::bytes(&data)).await };
            let part = within_limits(upload.location(), sent).await?;
            arrived.lock().unwrap_or_else(PoisonError::into_inner).push((number, part.etag()));
            Ok(())
        };
        Box::pin(sent.into_send())
    }

    async fn complete(&mut self) -> Result<PutResult> {
        // Kept for a retry in case R2's rate limit rejects this attempt.
        let mut parts = self.arrived.lock().unwrap_or_else(PoisonError::into_inner).clone();
        parts.sort_unstable();
        let upload = &self.upload;
        let completed = async {
            upload.resume()?.complete(parts.into_iter().map(|(number, tag)| UploadedPart::new(number, tag))).await
        };
        within_limits(upload.location(), completed).into_send().await.map(|object| put::result(&object))
    }

    async fn abort(&mut self) -> Result<()> {
        let upload = &self.upload;
        within_limits(upload.location(), async { upload.resume()?.abort().await }).into_send().await
    }
}

fn too_many(location: &Path) -> Error {
    Error::NotSupported { source: format!("{location} has more parts than an object may have").into() }
}
