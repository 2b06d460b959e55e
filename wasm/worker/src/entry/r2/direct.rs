//! Streams a client's body to R2 without copying its bytes into WebAssembly.

use std::array;
use std::pin::pin;

use bytes::Bytes;
use futures_util::future::{BoxFuture, Either, select, try_join_all};
use ifmatch_blob::store::BoxError;
use ifmatch_blob_objects::{DirectUpload, RunningHash};
use ifmatch_core::digest::ContentHash;
use js_sys::{Promise, Uint8Array};
use object_store::path::Path;
use object_store::{Error, Result};
use wasm_bindgen::JsValue;
use wasm_bindgen_futures::JsFuture;
use worker::crypto::{DigestStream, DigestStreamAlgorithm};
use worker::send::{IntoSendFuture, SendWrapper};
use worker::web_sys::{ReadableStream, WritableStream, WritableStreamDefaultWriter};
use worker::worker_sys::FixedLengthStream;

use super::put::R2Upload;
use super::{TIMEOUT, failure, in_time};
use crate::entry::edge::body::StreamReader;

/// Number of the only part.
pub(super) const PART: u16 = 1;

/// Uploads a body as the only part of an upload, and returns the part's tag.
///
/// The runtime computes the hash. Each chunk is written to both before the next one is read: a slow store slows down the
/// client and takes up no memory.
pub(super) async fn send(
    location: &Path,
    upload: &R2Upload,
    body: ReadableStream,
    direct: &DirectUpload,
) -> Result<String> {
    let failed = |error: JsValue| failure::of(location, &error.into());
    let digest = DigestStream::new(DigestStreamAlgorithm::Sha256);
    let pipe = FixedLengthStream::new_big_int(direct.length().into()).map_err(failed)?;
    let writers = [&pipe.writable(), writable(&digest)].map(WritableStream::get_writer);
    let writers = writers
        .into_iter()
        .collect::<Result<Vec<_>, _>>()
        .map_err(failed)?;
    let moved = async {
        let moved = pump(location, &body, &writers).await;
        if moved.is_err() {
            // Otherwise R2 would wait for the rest of the body.
            for writer in &writers {
                let _ = writer.abort();
            }
        }
        moved
    };
    let tag = match select(pin!(upload.send(PART, pipe.readable())), pin!(moved)).await {
        Either::Left((sent, moved)) => {
            let tag = sent?;
            moved.await?;
            tag
        }
        Either::Right((moved, sent)) => {
            moved?;
            in_time("R2 to answer the upload of a body", TIMEOUT, sent).await?
        }
    };
    let hash = async {
        digest
            .digest()
            .await
            .map_err(|error| failure::of(location, &error))
    };
    let hash = in_time("the hash of a body", TIMEOUT, hash).await?;
    direct.arrived(content_hash(&hash));
    Ok(tag)
}

/// Returns the writable side of a hash.
pub(super) fn writable(digest: &DigestStream) -> &WritableStream {
    digest.raw()
}

/// Converts a hash of the runtime.
pub(super) fn content_hash(hash: &Uint8Array) -> ContentHash {
    ContentHash::from_bytes(array::from_fn(|at| {
        hash.get_index(u32::try_from(at).unwrap_or(u32::MAX))
    }))
}

/// Writes all bytes of a stream to each of the writers.
async fn pump(
    location: &Path,
    from: &ReadableStream,
    to: &[WritableStreamDefaultWriter],
) -> Result<()> {
    let failed = |error: JsValue| failure::of(location, &error.into());
    let all = |promises: Vec<Promise>| {
        let done = async {
            try_join_all(promises.into_iter().map(JsFuture::from))
                .await
                .map_err(failed)
        };
        in_time(
            "R2 and the hash to take the next bytes of a body",
            TIMEOUT,
            done,
        )
    };
    let mut reader = StreamReader::new(from).map_err(failed)?;
    while let Some(chunk) = reader.next().await.map_err(failed)? {
        all(to
            .iter()
            .map(|writer| writer.write_with_chunk(&chunk))
            .collect())
        .await?;
    }
    all(to.iter().map(WritableStreamDefaultWriter::close).collect())
        .await
        .map(drop)
}

/// Error for a body that was read before.
pub(super) fn unread() -> Error {
    Error::Generic {
        store: "R2",
        source: "the body was read before it could be streamed to R2".into(),
    }
}

/// A hash in progress.
pub(in crate::entry) struct RuntimeHash {
    digest: SendWrapper<DigestStream>,
    writer: SendWrapper<Result<WritableStreamDefaultWriter, JsValue>>,
}

impl RuntimeHash {
    /// Starts a hash.
    pub(in crate::entry) fn begin() -> Box<dyn RunningHash> {
        let digest = DigestStream::new(DigestStreamAlgorithm::Sha256);
        let writer = writable(&digest).get_writer();
        Box::new(Self {
            digest: SendWrapper::new(digest),
            writer: SendWrapper::new(writer),
        })
    }

    async fn end(self) -> Result<ContentHash, JsValue> {
        JsFuture::from(self.writer.0?.close()).await?;
        Ok(content_hash(&self.digest.0.digest().await?))
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
        let hashed = async move {
            (*self)
                .end()
                .await
                .map_err(|error| BoxError::from(worker::Error::from(error).to_string()))
        };
        Box::pin(hashed.into_send())
    }
}
