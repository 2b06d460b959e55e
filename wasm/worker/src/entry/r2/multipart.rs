//! Large objects: parts that become an object all at once.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use ifmatch_blob::objects::DirectUpload;
use object_store::path::Path;
use object_store::{Error, MultipartUpload, PutMultipartOptions, PutPayload, PutResult, Result, UploadPart};
use worker::send::{IntoSendFuture, SendWrapper};
use worker::{Bucket, UploadedPart};

use super::attributes::{self, Metadata};
use super::{direct, failure, in_time, put};
use crate::entry::edge::body::EdgeBody;

/// An upload in parts.
struct Upload {
    bucket: SendWrapper<Bucket>,
    location: Path,
    id: String,
    /// The parts begun.
    begun: u16,
    /// The number and the tag of each part that arrived.
    arrived: Arc<Mutex<Vec<(u16, String)>>>,
}

/// Begins an upload. A body that came along is sent, and is the whole of it.
pub(super) async fn begin(
    bucket: &Bucket,
    location: &Path,
    options: &PutMultipartOptions,
) -> Result<Box<dyn MultipartUpload>> {
    let Metadata { http, custom } = attributes::metadata(&options.attributes)?;
    let upload = bucket.create_multipart_upload(location.as_ref()).http_metadata(http).custom_metadata(custom);
    let upload = in_time(async { upload.execute().await.map_err(|error| failure::of(location, &error)) }).await?;
    let mut begun = Upload {
        bucket: SendWrapper::new(bucket.clone()),
        location: location.clone(),
        id: upload.upload_id().await,
        begun: 0,
        arrived: Arc::default(),
    };
    let direct = options.extensions.get::<DirectUpload>();
    if let Some((direct, body)) = direct.and_then(|direct| Some((direct, direct.take::<EdgeBody>()?))) {
        let body = body.into_whole().ok_or_else(direct::unread)?;
        match direct::send(location, &upload, body, direct).await {
            Ok(tag) => begun.arrived = Arc::new(Mutex::new(vec![(direct::PART, tag)])),
            Err(error) => {
                // R2 removes what is left of an upload within a week by itself.
                let _ = begun.abort().await;
                return Err(error);
            }
        }
    }
    Ok(Box::new(begun))
}

impl Upload {
    fn at_store(&self) -> Result<worker::MultipartUpload> {
        let upload = self.bucket.resume_multipart_upload(self.location.as_ref(), self.id.as_str());
        upload.map_err(|error| failure::of(&self.location, &error))
    }
}

impl fmt::Debug for Upload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Upload").field("location", &self.location).field("begun", &self.begun).finish_non_exhaustive()
    }
}

#[async_trait]
impl MultipartUpload for Upload {
    fn put_part(&mut self, data: PutPayload) -> UploadPart {
        let upload = self.at_store();
        let number = self.begun.checked_add(1);
        self.begun = number.unwrap_or(self.begun);
        let (location, arrived) = (self.location.clone(), Arc::clone(&self.arrived));
        let sent = async move {
            let number = number.ok_or_else(|| too_many(&location))?;
            let part = upload?.upload_part(number, put::bytes(&data)).await;
            let part = part.map_err(|error| failure::of(&location, &error))?;
            arrived.lock().unwrap_or_else(PoisonError::into_inner).push((number, part.etag()));
            Ok(())
        };
        Box::pin(in_time(sent).into_send())
    }

    async fn complete(&mut self) -> Result<PutResult> {
        let mut parts = std::mem::take(&mut *self.arrived.lock().unwrap_or_else(PoisonError::into_inner));
        parts.sort_unstable();
        let completed = async {
            let parts = parts.into_iter().map(|(number, tag)| UploadedPart::new(number, tag));
            let object = self.at_store()?.complete(parts).await;
            object.map(|object| put::result(&object)).map_err(|error| failure::of(&self.location, &error))
        };
        in_time(completed).into_send().await
    }

    async fn abort(&mut self) -> Result<()> {
        let aborted = async { self.at_store()?.abort().await.map_err(|error| failure::of(&self.location, &error)) };
        in_time(aborted).into_send().await
    }
}

fn too_many(location: &Path) -> Error {
    Error::NotSupported { source: format!("{location} has more parts than an object may have").into() }
}
