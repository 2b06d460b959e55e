//! `Content-MD5` of a request: checked while the body goes by, so that a damaged one is not stored.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use ::md5::{Digest, Md5};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue};
use http_body::{Body, Frame, SizeHint};

use super::error::AzureError;
use super::fields;
use crate::store::{BoxError, Upload};

pub(super) const CONTENT_MD5: HeaderName = HeaderName::from_static("content-md5");

/// The value of `Content-MD5` for these bytes.
pub(super) fn of(bytes: &[u8]) -> HeaderValue {
    HeaderValue::try_from(STANDARD.encode(Md5::digest(bytes))).unwrap_or(HeaderValue::from_static(""))
}

/// The MD5 that a request promises of its body.
pub(super) struct Promise {
    digest: [u8; 16],
    broken: Arc<AtomicBool>,
}

impl Promise {
    /// Reads `Content-MD5`, if there is one.
    pub(super) fn from_headers(headers: &HeaderMap) -> Result<Option<Self>, AzureError> {
        let Some(text) = fields::one(headers, &CONTENT_MD5)? else { return Ok(None) };
        let digest = STANDARD.decode(text).ok().and_then(|bytes| bytes.try_into().ok());
        let invalid = || AzureError::bad_request("InvalidMd5", "Content-MD5 is the base64 of 16 bytes");
        Ok(Some(Self { digest: digest.ok_or_else(invalid)?, broken: Arc::default() }))
    }

    /// The body, which ends with an error if it has another MD5.
    pub(super) fn check(&self, body: Upload) -> Upload {
        let broken = Arc::clone(&self.broken);
        Upload::new(Checked { body, hasher: Md5::new(), expected: self.digest, broken, ended: false })
    }

    /// Whether the body had another MD5.
    pub(super) fn is_broken(&self) -> bool {
        self.broken.load(Ordering::Acquire)
    }

    /// The value for the answer.
    pub(super) fn to_header(&self) -> HeaderValue {
        HeaderValue::try_from(STANDARD.encode(self.digest)).unwrap_or(HeaderValue::from_static(""))
    }
}

/// What the client is told of a body with another MD5.
pub(super) fn mismatch() -> AzureError {
    AzureError::bad_request("Md5Mismatch", "the body has not the MD5 of Content-MD5: send it again")
}

struct Checked {
    body: Upload,
    hasher: Md5,
    expected: [u8; 16],
    broken: Arc<AtomicBool>,
    ended: bool,
}

impl Body for Checked {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if self.ended {
            return Poll::Ready(None);
        }
        let frame = std::task::ready!(Pin::new(&mut self.body).poll_frame(context));
        match &frame {
            Some(Ok(frame)) => {
                if let Some(data) = frame.data_ref() {
                    self.hasher.update(data);
                }
            }
            Some(Err(_)) => {}
            None => {
                self.ended = true;
                let digest: [u8; 16] = std::mem::take(&mut self.hasher).finalize().into();
                if digest != self.expected {
                    self.broken.store(true, Ordering::Release);
                    return Poll::Ready(Some(Err("the body has another MD5".into())));
                }
            }
        }
        Poll::Ready(frame)
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
