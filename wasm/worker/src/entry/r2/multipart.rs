//! Large objects: parts that become an object all at once.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use ifmatch_blob_objects::DirectUpload;
use object_store::path::Path;
use object_store::{Error, MultipartUpload, PutMultipartOptions, PutPayload, PutResult, Result, UploadPart};
use serde_json::{Value, json};
use wasm_bindgen::JsValue;
use worker::Bucket;
use worker::send::{IntoSendFuture, SendWrapper};

use super::{PATIENCE, attributes, direct, failure, put};
use crate::entry::edge::body::EdgeBody;
use crate::glue;
use crate::tasks::allowance::Share;
use crate::tasks::answer::Answer;

/// An upload under way, as the store knows it.
#[derive(Clone)]
pub(super) struct Upload {
    bucket: SendWrapper<Bucket>,
    location: Path,
    id: String,
}

/// An upload in parts.
struct Parts {
    upload: Upload,
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
    let asked = Value::Object(attributes::metadata(&options.attributes)?).to_string();
    let answer = Answer::to(Share::Work, |number| {
        glue::begin_upload(number, PATIENCE, bucket.as_ref(), location.as_ref(), &asked);
    });
    let (id, _) = answer.await.map_err(|error| failure::of(location, error))?;
    let id = id.unwrap_or_default();
    let upload = Upload { bucket: SendWrapper::new(bucket.clone()), location: location.clone(), id };
    let mut begun = Parts { upload, begun: 0, arrived: Arc::default() };
    let direct = options.extensions.get::<DirectUpload>();
    if let Some((direct, body)) = direct.and_then(|direct| Some((direct, direct.take::<EdgeBody>()?))) {
        let body = body.into_whole().ok_or_else(direct::unread)?;
        match direct::send(location, &begun.upload, body, direct).await {
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
    /// Sends a part within so many milliseconds, or without a limit if they are 0, and returns its tag.
    pub(super) async fn send(&self, number: u16, body: &JsValue, patience: u32) -> Result<String> {
        let sent = self.ask(|question, bucket, key, id| {
            glue::send_part(question, patience, bucket, key, id, number, body);
        });
        sent.await
    }

    /// The text that is the answer, to a question with its number, about this upload at the bucket, under the key.
    async fn ask(&self, ask: impl FnOnce(u32, &JsValue, &str, &str)) -> Result<String> {
        let answer =
            Answer::to(Share::Work, |number| ask(number, self.bucket.as_ref(), self.location.as_ref(), &self.id));
        let (text, _) = answer.await.map_err(|error| failure::of(&self.location, error))?;
        Ok(text.unwrap_or_default())
    }
}

impl fmt::Debug for Parts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let location = &self.upload.location;
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
            let number = number.ok_or_else(|| too_many(&upload.location))?;
            let body = put::bytes(&data);
            let tag = upload.send(number, &body, PATIENCE).await?;
            arrived.lock().unwrap_or_else(PoisonError::into_inner).push((number, tag));
            Ok(())
        };
        Box::pin(sent.into_send())
    }

    async fn complete(&mut self) -> Result<PutResult> {
        // Kept for a retry in case R2 refuses because of its rate limit.
        let mut parts = self.arrived.lock().unwrap_or_else(PoisonError::into_inner).clone();
        parts.sort_unstable();
        let parts: Value =
            parts.into_iter().map(|(number, tag)| json!({ "partNumber": number, "etag": tag })).collect();
        let parts = parts.to_string();
        let completed = self.upload.ask(|number, bucket, key, id| {
            glue::end_upload(number, PATIENCE, bucket, key, id, &parts);
        });
        completed.into_send().await.map(|version| put::result(&version))
    }

    async fn abort(&mut self) -> Result<()> {
        let aborted = self.upload.ask(|number, bucket, key, id| {
            glue::leave_upload(number, PATIENCE, bucket, key, id);
        });
        aborted.into_send().await.map(drop)
    }
}

fn too_many(location: &Path) -> Error {
    Error::NotSupported { source: format!("{location} has more parts than an object may have").into() }
}
