//! Bodies that go between a client and R2 as the runtime has them: nothing copies their bytes into WebAssembly.

use std::array;

use futures_util::future::{try_join, try_join_all};
use ifmatch_blob_objects::DirectUpload;
use ifmatch_core::digest::ContentHash;
use object_store::path::Path;
use object_store::{Error, Result};
use wasm_bindgen::JsValue;
use worker::crypto::{DigestStream, DigestStreamAlgorithm};
use worker::web_sys;
use worker::worker_sys::FixedLengthStream;

use super::multipart::Upload;
use super::{failure, in_time};
use crate::entry::edge::reader::{Reader, call, promised};

/// The part that a whole body is.
pub(super) const PART: u16 = 1;

/// Sends a body as the only part of an upload, and returns the part's tag.
///
/// The hash is the runtime's. The body is given to it and to R2 step by step: a slow store slows the client down, and
/// fills no memory.
pub(super) async fn send(
    location: &Path,
    upload: &Upload,
    body: web_sys::ReadableStream,
    direct: &DirectUpload,
) -> Result<String> {
    let failed = |error: JsValue| failure::of(location, error);
    let digest = DigestStream::new(DigestStreamAlgorithm::Sha256);
    let pipe = FixedLengthStream::new_big_int(direct.length().into()).map_err(failed)?;
    let to: [JsValue; 2] = [pipe.writable().into(), digest.raw().into()];
    let sent = async { upload.send(PART, &pipe.readable(), 0).await };
    let moved = async {
        let writers = to.map(|stream| call(&stream, "getWriter", &[]));
        let writers = writers.into_iter().collect::<std::result::Result<Vec<_>, _>>().map_err(failed)?;
        let moved = pump(location, &body, &writers).await;
        if moved.is_err() {
            // R2 waits for the rest of the body otherwise.
            for writer in &writers {
                let _ = call(writer, "abort", &[]);
            }
        }
        moved
    };
    let (tag, ()) = try_join(sent, moved).await?;
    let hash = digest.digest().await.map_err(|error| failure::of(location, error))?;
    direct.arrived(ContentHash::from_bytes(array::from_fn(|at| hash.get_index(u32::try_from(at).unwrap_or(u32::MAX)))));
    Ok(tag)
}

/// Moves all bytes of a stream to the writers.
async fn pump(location: &Path, from: &web_sys::ReadableStream, to: &[JsValue]) -> Result<()> {
    let failed = |error: JsValue| failure::of(location, error);
    let mut reader = Reader::new(from).map_err(failed)?;
    while let Some(chunk) = reader.next().await.map_err(failed)? {
        let chunk = JsValue::from(chunk);
        let writes = to.iter().map(|writer| promised(call(writer, "write", std::slice::from_ref(&chunk))));
        in_time(async { try_join_all(writes).await.map_err(failed) }).await?;
    }
    let closed = to.iter().map(|writer| promised(call(writer, "close", &[])));
    in_time(async { try_join_all(closed).await.map_err(failed) }).await.map(drop)
}

/// A body that cannot be sent.
pub(super) fn unread() -> Error {
    Error::Generic { store: "R2", source: "a body that was read before cannot be sent as it is".into() }
}
