//! The CRC-64 of a body, as in `x-ms-content-crc64`: CRC-64/NVME, in little-endian order. It detects accidental damage.

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock};
use std::task::{Context, Poll, ready};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::HeaderValue;
use http_body::{Body, Frame, SizeHint};
use ifmatch_blob::store::{BoxError, StoreError, Upload};

use crate::error::AzureError;

/// The polynomial, lowest coefficient first.
const POLYNOMIAL: u64 = 0x9A6C_9329_AC4B_C9B5;
/// The CRC-64 of each byte. Computed at the first use, since the size of the WebAssembly module counts.
static TABLE: LazyLock<[u64; 256]> = LazyLock::new(table);

/// The CRC-64 of some bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Crc64(u64);

impl Crc64 {
    /// Computes the CRC-64 of these bytes.
    pub(crate) fn of(bytes: &[u8]) -> Self {
        Self::default().and(bytes)
    }

    /// Returns the CRC-64 of the bytes so far and these.
    fn and(self, bytes: &[u8]) -> Self {
        let table = &*TABLE;
        let step =
            |crc: u64, byte: &u8| table[usize::from(crc.to_le_bytes()[0] ^ byte)] ^ (crc >> 8);
        Self(!bytes.iter().fold(!self.0, step))
    }

    /// Parses the base64 form.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let bytes = STANDARD.decode(text).ok()?.try_into().ok()?;
        Some(Self(u64::from_le_bytes(bytes)))
    }

    /// Returns the value for a header field, in base64.
    pub(crate) fn to_header(self) -> HeaderValue {
        let text = STANDARD.encode(self.0.to_le_bytes());
        HeaderValue::try_from(text).unwrap_or(HeaderValue::from_static(""))
    }

    /// Wraps a body that must have this CRC-64. A complete body with another one ends with an error, so no store
    /// accepts it.
    pub(crate) fn watch(wanted: Option<Self>, body: Upload) -> (Upload, Crc64Watch) {
        let watch = Crc64Watch::default();
        let Some(wanted) = wanted else {
            return (body, watch);
        };
        let watched = WatchedBody {
            body,
            wanted,
            found: Self::default(),
            watch: watch.clone(),
        };
        (Upload::new(watched), watch)
    }
}

/// Tells if a body had another CRC-64 than declared.
#[derive(Clone, Default)]
pub(crate) struct Crc64Watch(Arc<AtomicBool>);

impl Crc64Watch {
    /// Translates the error of a write that read the body.
    pub(crate) fn explain(
        &self,
        error: StoreError,
        other: impl FnOnce(StoreError) -> AzureError,
    ) -> AzureError {
        if self.0.load(Ordering::Acquire) {
            AzureError::crc64_mismatch()
        } else {
            other(error)
        }
    }
}

/// A body that computes its CRC-64 as it is read.
struct WatchedBody {
    body: Upload,
    wanted: Crc64,
    found: Crc64,
    watch: Crc64Watch,
}

impl Body for WatchedBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(context));
        match &frame {
            Some(Ok(frame)) => {
                if let Some(data) = frame.data_ref() {
                    self.found = self.found.and(data);
                }
            }
            None if self.found != self.wanted => {
                self.watch.0.store(true, Ordering::Release);
                return Poll::Ready(Some(Err("the body has another CRC-64".into())));
            }
            _ => {}
        }
        Poll::Ready(frame)
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Computes [`TABLE`].
fn table() -> [u64; 256] {
    let shift = |crc: u64, _| {
        if crc & 1 == 1 {
            (crc >> 1) ^ POLYNOMIAL
        } else {
            crc >> 1
        }
    };
    std::array::from_fn(|byte| (0..8).fold(byte as u64, shift))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The check value of CRC-64/NVME.
    #[test]
    fn the_crc_has_the_check_value_of_the_catalogue() {
        assert_eq!(Crc64::of(b"123456789"), Crc64(0xAE8B_1486_0A79_9888));
        assert_eq!(Crc64::of(b"12345").and(b"6789"), Crc64::of(b"123456789"));
    }
}
