//! Writes to R2: whole objects, and uploads of several parts.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use ifmatch_blob_objects::{DirectBody, DirectUpload};
use object_store::path::Path;
use object_store::{
    Error, MultipartUpload, PutMode, PutMultipartOptions, PutOptions, PutPayload, PutResult,
    Result, UpdateVersion, UploadPart,
};
use worker::send::{IntoSendFuture, SendWrapper};
use worker::{Bucket, Conditional, Data, Date, DateInit, Object, UploadedPart, web_sys};

use super::{attributes, direct, failure, tombstone, within_budget, within_limits};
use crate::entry::edge::body::EdgeBody;

/// Writes an object.
pub(super) async fn put(
    bucket: &Bucket,
    location: &Path,
    payload: &PutPayload,
    options: PutOptions,
    by_date: bool,
) -> Result<PutResult> {
    let (http, custom) = attributes::metadata(&options.attributes)?;
    let data = match options.extensions.get::<DirectBody>() {
        Some(direct) => {
            let body = direct.take::<EdgeBody>().and_then(EdgeBody::into_whole);
            Data::ReadableStream(body.ok_or_else(direct::unread)?)
        }
        None => Data::Bytes(bytes(payload)),
    };
    let request = |data| {
        bucket
            .put(location.as_ref(), data)
            .http_metadata(http.clone())
            .custom_metadata(custom.clone())
    };
    let send = async |data, condition| {
        within_limits(location, request(data).only_if(condition).execute()).await
    };
    let (object, expected) = match options.mode {
        PutMode::Overwrite => (
            within_limits(location, request(data).execute()).await?,
            None,
        ),
        PutMode::Update(version) => (
            send(data, unchanged(&version, by_date)?).await?,
            Some(version),
        ),
        PutMode::Create => {
            let nothing = Conditional {
                etag_does_not_match: Some("*".to_owned()),
                ..Conditional::default()
            };
            let created = send(data, nothing).await?;
            // The whole body is in memory: a body of the runtime is sent only if it replaces an object.
            let left = if created.is_none() {
                tombstone::replaceable(bucket, location).await?
            } else {
                None
            };
            match left {
                Some(left) => (
                    send(Data::Bytes(bytes(payload)), unchanged(&left, true)?).await?,
                    None,
                ),
                None => (created, None),
            }
        }
    };
    object
        .map(|object| result(&object))
        .ok_or_else(|| failure::changed(location, expected.as_ref()))
}

/// Returns the condition that an object is still this version.
///
/// With a tag, R2 would ignore the latest date (RFC 9110 §13.2.2), so the dates stand alone. They are in whole milliseconds.
pub(super) fn unchanged(version: &UpdateVersion, by_date: bool) -> Result<Conditional> {
    if !by_date {
        return Ok(Conditional {
            etag_matches: Some(raw_tag(version)?),
            ..Conditional::default()
        });
    }
    let uploaded = version
        .version
        .as_deref()
        .and_then(|millis| millis.parse::<u64>().ok());
    let uploaded = uploaded.ok_or_else(|| Error::NotSupported {
        source: "R2 compares with the date of a version".into(),
    })?;
    let date = |millis| Some(Date::new(DateInit::Millis(millis)));
    let (uploaded_after, uploaded_before) = (date(uploaded.saturating_sub(1)), date(uploaded + 1));
    Ok(Conditional {
        uploaded_after,
        uploaded_before,
        ..Conditional::default()
    })
}

/// Returns the tag and version of a written object.
pub(super) fn result(object: &Object) -> PutResult {
    let (e_tag, version) = (
        Some(object.http_etag()),
        Some(object.uploaded().as_millis().to_string()),
    );
    PutResult {
        e_tag,
        version,
        extensions: http::Extensions::default(),
    }
}

/// Joins the chunks of a payload.
pub(super) fn bytes(payload: &PutPayload) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(payload.content_length());
    payload
        .iter()
        .for_each(|chunk| bytes.extend_from_slice(chunk));
    bytes
}

fn raw_tag(version: &UpdateVersion) -> Result<String> {
    let raw = version.e_tag.as_deref().and_then(attributes::raw_tag);
    raw.map(ToOwned::to_owned)
        .ok_or_else(|| Error::NotSupported {
            source: "R2 compares with one strong tag of its own".into(),
        })
}

/// An upload at R2.
#[derive(Clone)]
pub(super) struct R2Upload {
    bucket: SendWrapper<Bucket>,
    location: Path,
    id: String,
}

impl R2Upload {
    pub(super) fn new(bucket: &Bucket, location: &Path, id: String) -> Self {
        Self {
            bucket: SendWrapper::new(bucket.clone()),
            location: location.clone(),
            id,
        }
    }

    /// Returns the name of the object.
    pub(super) fn location(&self) -> &Path {
        &self.location
    }

    /// Returns R2's handle of the upload.
    pub(super) fn resume(&self) -> worker::Result<worker::MultipartUpload> {
        self.bucket
            .resume_multipart_upload(self.location.as_ref(), &self.id)
    }

    /// Uploads a stream as a part, and returns the part's tag. There is no time limit, since the client determines the time.
    pub(super) async fn send(&self, number: u16, body: web_sys::ReadableStream) -> Result<String> {
        let sent = async { self.resume()?.upload_part(number, body).await };
        within_budget(&self.location, sent)
            .await
            .map(|part| part.etag())
    }
}

/// An upload in parts.
struct Parts {
    upload: R2Upload,
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
    let request = bucket
        .create_multipart_upload(location.as_ref())
        .http_metadata(http)
        .custom_metadata(custom);
    let id = within_limits(location, request.execute())
        .await?
        .upload_id()
        .await;
    let upload = R2Upload::new(bucket, location, id);
    let mut begun = Parts {
        upload,
        begun: 0,
        arrived: Arc::default(),
    };
    let direct = options.extensions.get::<DirectUpload>();
    if let Some((direct, body)) =
        direct.and_then(|direct| Some((direct, direct.take::<EdgeBody>()?)))
    {
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
        f.debug_struct("Parts")
            .field("location", location)
            .field("begun", &self.begun)
            .finish_non_exhaustive()
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
            let sent = async { upload.resume()?.upload_part(number, bytes(&data)).await };
            let part = within_limits(upload.location(), sent).await?;
            arrived
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .push((number, part.etag()));
            Ok(())
        };
        Box::pin(sent.into_send())
    }

    async fn complete(&mut self) -> Result<PutResult> {
        // Kept for a retry in case R2's rate limit rejects this attempt.
        let mut parts = self
            .arrived
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        parts.sort_unstable();
        let upload = &self.upload;
        let completed = async {
            upload
                .resume()?
                .complete(
                    parts
                        .into_iter()
                        .map(|(number, tag)| UploadedPart::new(number, tag)),
                )
                .await
        };
        within_limits(upload.location(), completed)
            .into_send()
            .await
            .map(|object| result(&object))
    }

    async fn abort(&mut self) -> Result<()> {
        let upload = &self.upload;
        within_limits(upload.location(), async { upload.resume()?.abort().await })
            .into_send()
            .await
    }
}

fn too_many(location: &Path) -> Error {
    Error::NotSupported {
        source: format!("{location} has more parts than an object may have").into(),
    }
}
