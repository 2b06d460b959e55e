//! Incoming bodies: small ones in memory, others on their way to their place, within a fixed amount of memory.

use std::sync::Arc;

use bytes::{Buf, Bytes};
use http_body_util::BodyExt;
use ifmatch_core::digest::ContentHash;

use super::bodies::{Bodies, Incoming, Staged};
use super::body_files::BodyName;
use super::payload::Place;
use ifmatch_blob::store::{StoreError, StoreErrorKind, Upload};

/// Maximum length of a body in the record itself, in bytes.
pub(super) const INLINE: usize = 4096;
/// Number of bytes written at a time. An upload uses at most twice as much memory.
const CHUNK: usize = 256 * 1024;

/// The client's declarations about the body, and the size limit.
#[derive(Clone, Debug)]
pub(super) struct Expected {
    pub(super) length: Option<u64>,
    pub(super) digest: Option<ContentHash>,
    pub(super) limit: u64,
}

/// A complete body that matches the declarations.
#[derive(Debug)]
pub(super) struct Received {
    pub(super) hash: ContentHash,
    pub(super) length: u64,
    body: Body,
}

#[derive(Debug)]
enum Body {
    Inline(Bytes),
    File(Staged),
}

impl Received {
    /// Returns the location of the body, and keeps its file.
    pub(super) fn keep(self) -> (Place, Option<BodyName>) {
        match self.body {
            Body::Inline(bytes) => (Place::Inline(bytes), None),
            Body::File(staged) => {
                let name = staged.keep();
                (Place::File(name.nonce), Some(name))
            }
        }
    }
}

/// Receives a body.
pub(super) async fn receive(
    bodies: &Arc<dyn Bodies>,
    mut body: Upload,
    expected: &Expected,
) -> Result<Received, StoreError> {
    expected.check_promise()?;
    bodies.check_space()?;
    let mut buffer = Vec::new();
    let mut incoming: Option<Box<dyn Incoming>> = None;
    let mut length = 0_u64;
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(StoreError::of_body)?;
        let Ok(mut data) = frame.into_data() else {
            continue;
        };
        length = length.saturating_add(data.len() as u64);
        expected.check_so_far(length)?;
        while data.has_remaining() {
            let piece = data.split_to(data.len().min(CHUNK - buffer.len()));
            buffer.extend_from_slice(&piece);
            if buffer.len() == CHUNK {
                let incoming = match &mut incoming {
                    Some(incoming) => incoming,
                    none => none.insert(Arc::clone(bodies).begin(None)?),
                };
                incoming.write(std::mem::take(&mut buffer)).await?;
                buffer.reserve_exact(CHUNK);
            }
        }
    }
    expected.check_end(length)?;
    if incoming.is_none() && buffer.len() <= INLINE {
        return inline(buffer, expected);
    }
    let mut incoming = incoming.map_or_else(|| Arc::clone(bodies).begin(None), Ok)?;
    incoming.write(buffer).await?;
    let staged = incoming.finish(expected.digest).await?;
    Ok(Received {
        hash: staged.hash(),
        length,
        body: Body::File(staged),
    })
}

/// Gives a body that is in the store a second name, which is durable. Returns `None` if the body is gone, or if there are no
/// second names.
pub(super) async fn share(
    bodies: &Arc<dyn Bodies>,
    body: BodyName,
    expected: &Expected,
) -> Result<Option<Received>, StoreError> {
    let Some(length) = expected.length else {
        return Ok(None);
    };
    expected.check_promise()?;
    bodies.check_space()?;
    let staged = Arc::clone(bodies).duplicate(body).await?;
    Ok(staged.map(|staged| Received {
        hash: body.hash,
        length,
        body: Body::File(staged),
    }))
}

fn inline(mut bytes: Vec<u8>, expected: &Expected) -> Result<Received, StoreError> {
    let hash = ContentHash::of(&bytes);
    if expected.digest.is_some_and(|digest| digest != hash) {
        return Err(StoreErrorKind::DigestMismatch.into());
    }
    bytes.shrink_to_fit();
    let length = bytes.len() as u64;
    Ok(Received {
        hash,
        length,
        body: Body::Inline(bytes.into()),
    })
}

impl Expected {
    fn check_promise(&self) -> Result<(), StoreError> {
        self.length
            .map_or(Ok(()), |length| self.check_limit(length))
    }

    fn check_so_far(&self, length: u64) -> Result<(), StoreError> {
        self.check_limit(length)?;
        match self.length {
            Some(promised) if length > promised => Err(StoreErrorKind::LengthMismatch.into()),
            _ => Ok(()),
        }
    }

    fn check_end(&self, length: u64) -> Result<(), StoreError> {
        match self.length {
            Some(promised) if length != promised => Err(StoreErrorKind::LengthMismatch.into()),
            _ => Ok(()),
        }
    }

    fn check_limit(&self, length: u64) -> Result<(), StoreError> {
        if length > self.limit {
            Err(StoreErrorKind::TooLarge { limit: self.limit }.into())
        } else {
            Ok(())
        }
    }
}
