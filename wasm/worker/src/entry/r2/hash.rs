//! Hashing by the runtime, several times as fast as in WebAssembly above a few kilobytes.

use bytes::Bytes;
use futures_util::future::BoxFuture;
use ifmatch_blob::store::BoxError;
use ifmatch_blob_objects::RunningHash;
use ifmatch_core::digest::ContentHash;
use js_sys::Uint8Array;
use wasm_bindgen::JsValue;
use wasm_bindgen_futures::JsFuture;
use worker::crypto::{DigestStream, DigestStreamAlgorithm};
use worker::send::{IntoSendFuture, SendWrapper};
use worker::web_sys::WritableStreamDefaultWriter;

use super::direct;

/// A hash in progress.
pub(in crate::entry) struct RuntimeHash {
    digest: SendWrapper<DigestStream>,
    writer: SendWrapper<Result<WritableStreamDefaultWriter, JsValue>>,
}

impl RuntimeHash {
    /// Starts a hash.
    pub(in crate::entry) fn begin() -> Box<dyn RunningHash> {
        let digest = DigestStream::new(DigestStreamAlgorithm::Sha256);
        let writer = direct::writable(&digest).get_writer();
        Box::new(Self { digest: SendWrapper::new(digest), writer: SendWrapper::new(writer) })
    }

    async fn end(self) -> Result<ContentHash, JsValue> {
        JsFuture::from(self.writer.0?.close()).await?;
        Ok(direct::content_hash(&self.digest.0.digest().await?))
    }
}

impl RunningHash for RuntimeHash {
    fn update(&mut self, bytes: &Bytes) {
        if let Ok(writer) = &self.writer.0 {
            // The stream accepts writes without waiting. After a failed write, closing it fails.
            drop(writer.write_with_chunk(&Uint8Array::from(&bytes[..])));
        }
    }

    fn finish(self: Box<Self>) -> BoxFuture<'static, Result<ContentHash, BoxError>> {
        let hashed =
            async move { (*self).end().await.map_err(|error| BoxError::from(worker::Error::from(error).to_string())) };
        Box::pin(hashed.into_send())
    }
}
