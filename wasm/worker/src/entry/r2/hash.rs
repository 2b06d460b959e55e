//! Body hashing by the runtime, several times as fast as in WebAssembly above a few kilobytes.

use std::array;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use ifmatch_blob::store::BoxError;
use ifmatch_blob_objects::RunningHash;
use ifmatch_core::digest::ContentHash;
use js_sys::Uint8Array;
use wasm_bindgen::JsValue;
use worker::crypto::{DigestStream, DigestStreamAlgorithm};
use worker::send::{IntoSendFuture, SendWrapper};

use crate::entry::edge::reader::{Said, call, promised};

/// A hash in progress.
pub(in crate::entry) struct RuntimeHash {
    stream: SendWrapper<DigestStream>,
    /// Writer of the stream, or the error that stopped it.
    writer: SendWrapper<Said<JsValue>>,
}

impl RuntimeHash {
    /// Starts a hash.
    pub(in crate::entry) fn begin() -> Box<dyn RunningHash> {
        let stream = DigestStream::new(DigestStreamAlgorithm::Sha256);
        let writer = call(&stream.raw().into(), "getWriter", &[]);
        Box::new(Self { stream: SendWrapper::new(stream), writer: SendWrapper::new(writer) })
    }

    async fn end(self) -> Result<ContentHash, JsValue> {
        promised(call(&self.writer.0?, "close", &[])).await?;
        let hash = self.stream.0.digest().await?;
        Ok(ContentHash::from_bytes(array::from_fn(|at| hash.get_index(u32::try_from(at).unwrap_or(u32::MAX)))))
    }
}

impl RunningHash for RuntimeHash {
    fn update(&mut self, bytes: &Bytes) {
        let Ok(writer) = &self.writer.0 else { return };
        // The stream accepts writes without waiting. A failed write makes its end fail.
        if let Err(error) = call(writer, "write", &[Uint8Array::from(&bytes[..]).into()]) {
            self.writer = SendWrapper::new(Err(error));
        }
    }

    fn finish(self: Box<Self>) -> BoxFuture<'static, Result<ContentHash, BoxError>> {
        let hashed =
            async move { (*self).end().await.map_err(|error| BoxError::from(worker::Error::from(error).to_string())) };
        Box::pin(hashed.into_send())
    }
}
