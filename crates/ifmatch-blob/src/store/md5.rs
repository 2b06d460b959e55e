//! Handling of the MD5 of a body being written.

use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};

use ::md5::{Digest, Md5};
use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

use crate::body::Upload;
use crate::error::{BoxError, StoreError, StoreErrorKind};
use crate::headers::{BlobHeaders, ContentMd5};

/// The handling of the MD5 of written bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Md5Use {
    /// Keep the MD5 in the headers, if any, without checking it.
    #[default]
    AsGiven,
    /// Compute the MD5 and keep it with the blob. Bytes that don't match the MD5 in the headers are refused with
    /// [`StoreErrorKind::DigestMismatch`]. A store that must send the headers before the bytes keeps only an MD5 given
    /// in the headers.
    Computed,
}

impl Md5Use {
    /// Wraps a body if its MD5 is to be computed. Stores read the returned body, then call [`Md5Watch::settle`].
    pub fn watch(self, body: Upload) -> (Upload, Md5Watch) {
        if self == Self::AsGiven {
            return (body, Md5Watch(None));
        }
        let found = Arc::default();
        let watched = Watched {
            body,
            hasher: Md5::new(),
            found: Arc::clone(&found),
        };
        (Upload::new(watched), Md5Watch(Some(found)))
    }
}

/// The MD5 of a body being read.
#[derive(Debug)]
pub struct Md5Watch(Option<Arc<OnceLock<ContentMd5>>>);

impl Md5Watch {
    /// Stores the MD5 of a completely received body in its headers.
    ///
    /// # Errors
    /// [`StoreErrorKind::DigestMismatch`] if the headers contain a different MD5.
    pub fn settle(&self, headers: &mut BlobHeaders) -> Result<(), StoreError> {
        let Some(found) = self.0.as_ref().and_then(|found| found.get()) else {
            return Ok(());
        };
        if headers.content_md5.get_or_insert(*found) == found {
            return Ok(());
        }
        Err(StoreErrorKind::DigestMismatch.into())
    }
}

/// A body that computes its MD5 as it is read.
struct Watched {
    body: Upload,
    hasher: Md5,
    found: Arc<OnceLock<ContentMd5>>,
}

impl Body for Watched {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let frame = std::task::ready!(Pin::new(&mut self.body).poll_frame(context));
        match &frame {
            Some(Ok(frame)) => {
                if let Some(data) = frame.data_ref() {
                    self.hasher.update(data);
                }
            }
            Some(Err(_)) => {}
            None => {
                let digest = std::mem::take(&mut self.hasher).finalize();
                self.found
                    .get_or_init(|| ContentMd5::from_bytes(digest.into()));
            }
        }
        Poll::Ready(frame)
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use http_body_util::{BodyExt, Full};

    use super::*;

    fn given(md5: Option<&[u8]>) -> BlobHeaders {
        BlobHeaders {
            content_md5: md5.map(ContentMd5::of),
            ..BlobHeaders::default()
        }
    }

    /// Returns the headers kept with the body "hello" and these headers.
    fn kept(r#use: Md5Use, mut headers: BlobHeaders) -> Result<Option<ContentMd5>, StoreErrorKind> {
        let (body, watch) = r#use.watch(Upload::new(Full::<Bytes>::from("hello")));
        assert_eq!(
            body.collect().now_or_never().unwrap().unwrap().to_bytes(),
            "hello"
        );
        watch
            .settle(&mut headers)
            .map_err(|error| error.kind().clone())?;
        Ok(headers.content_md5)
    }

    #[test]
    fn a_computed_md5_is_that_of_the_bytes() {
        let of_bytes = Some(ContentMd5::of(b"hello"));
        assert_eq!(kept(Md5Use::Computed, given(None)), Ok(of_bytes));
        assert_eq!(kept(Md5Use::Computed, given(Some(b"hello"))), Ok(of_bytes));
        assert_eq!(
            kept(Md5Use::Computed, given(Some(b"hallo"))),
            Err(StoreErrorKind::DigestMismatch)
        );
    }

    #[test]
    fn a_given_md5_is_stored_unchecked() {
        assert_eq!(kept(Md5Use::AsGiven, given(None)), Ok(None));
        assert_eq!(
            kept(Md5Use::AsGiven, given(Some(b"hallo"))),
            Ok(Some(ContentMd5::of(b"hallo")))
        );
    }
}
