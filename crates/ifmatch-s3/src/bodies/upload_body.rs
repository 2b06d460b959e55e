//! The body of an upload, whose checksums are verified as it is read.

use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use http_body::{Body, Frame, SizeHint};
use ifmatch_blob::headers::FieldText;
use ifmatch_blob::store::{BoxError, LateChecksum, StoreError, StoreErrorKind, Upload};
use s3s::checksum::ChecksumHasher;
use s3s::dto::Checksum;
use s3s::{S3Error, S3ErrorCode, S3Result, TrailingHeaders, s3_error};

use super::checksum::{self, CHECKSUM, DigestAlgorithm};
use crate::error;

/// The hash of a body, or the way in which it is sent.
pub(crate) const BODY_HASH: &str = "x-amz-content-sha256";

/// Names the checksums that follow a body.
const TRAILER: &str = "x-amz-trailer";
/// The algorithm that a client computes, with or without a value.
const ALGORITHMS: [&str; 2] = ["x-amz-sdk-checksum-algorithm", "x-amz-checksum-algorithm"];

/// The result of reading a body.
#[derive(Clone, Default)]
pub(crate) struct BodyOutcome {
    read: Arc<OnceLock<Result<Checksum, BodyRefusal>>>,
    kept: LateChecksum,
}

/// The reason why a body was refused.
#[derive(Clone, Debug)]
pub(crate) struct BodyRefusal {
    code: S3ErrorCode,
    message: String,
}

impl BodyRefusal {
    /// Takes the code and the message of an error.
    pub(crate) fn new(error: &S3Error) -> Self {
        Self {
            code: error.code().clone(),
            message: error.message().unwrap_or_default().to_owned(),
        }
    }

    /// Returns the error for the response.
    pub(crate) fn to_error(&self) -> S3Error {
        let mut error = S3Error::with_message(self.code.clone(), self.message.clone());
        if self.code == S3ErrorCode::SlowDown {
            return error::retry(error, 1);
        }
        if error.status_code().is_none() {
            error.set_status_code(StatusCode::BAD_REQUEST);
        }
        error
    }
}

impl fmt::Display for BodyRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for BodyRefusal {}

impl BodyOutcome {
    /// Returns the checksums of a body that was read to its end.
    pub(crate) fn checksum(&self) -> Checksum {
        self.read
            .get()
            .and_then(|outcome| outcome.as_ref().ok())
            .cloned()
            .unwrap_or_default()
    }

    /// Returns the place of the checksum to keep with the bytes.
    pub(crate) fn kept(&self) -> LateChecksum {
        self.kept.clone()
    }

    /// Translates an error of the store. If the body was refused, that is the reason.
    pub(crate) fn explain(&self, failed: &StoreError, is_conditional: bool) -> S3Error {
        match self.read.get() {
            Some(Err(refused)) if *failed.kind() == StoreErrorKind::Interrupted => {
                refused.to_error()
            }
            _ => error::of_store(failed, is_conditional),
        }
    }
}

/// Returns the body as the store reads it. It fails unless the bytes have all the checksums that come with them. The checksum to keep is
/// of the given algorithm, or else one of those that come with the bytes.
pub(crate) fn verified(
    body: Upload,
    headers: &HeaderMap,
    trailers: Option<TrailingHeaders>,
    keeps: Option<DigestAlgorithm>,
) -> (Upload, BodyOutcome) {
    let announced = list(headers, TRAILER)
        .filter(|name| name.starts_with(CHECKSUM))
        .collect();
    let mut hasher = ChecksumHasher::default();
    for name in headers.keys().map(http::HeaderName::as_str) {
        enable(&mut hasher, name);
    }
    for name in list(headers, TRAILER).chain(
        ALGORITHMS
            .iter()
            .flat_map(|name| list(headers, name).map(|algorithm| format!("{CHECKSUM}{algorithm}"))),
    ) {
        enable(&mut hasher, &name);
    }
    if let Some(algorithm) = keeps {
        algorithm.enable(&mut hasher);
    }
    let outcome = BodyOutcome::default();
    let given = headers.clone();
    let verified = VerifiedBody {
        body,
        hasher: Some(hasher),
        given,
        announced,
        trailers,
        keeps,
        outcome: outcome.clone(),
    };
    (Upload::new(verified), outcome)
}

/// Returns the checksum to keep if it is in a header. The bytes are stored only if they have it.
pub(crate) fn announced(headers: &HeaderMap, keeps: Option<DigestAlgorithm>) -> Option<FieldText> {
    let value = |algorithm: DigestAlgorithm| {
        Some(headers.get(algorithm.field())?.to_str().ok()?.to_owned())
    };
    checksum::kept(&checksum::each(value), keeps)
}

/// Returns the elements of a list, in lower case.
fn list<'a>(headers: &'a HeaderMap, name: &'a str) -> impl Iterator<Item = String> + 'a {
    let lines = headers
        .get_all(name)
        .iter()
        .filter_map(|line| line.to_str().ok());
    lines
        .flat_map(|line| line.split(','))
        .map(|element| element.trim().to_ascii_lowercase())
}

/// Computes the checksum with this name.
fn enable(hasher: &mut ChecksumHasher, name: &str) {
    if let Some(algorithm) = name.strip_prefix(CHECKSUM).and_then(DigestAlgorithm::named) {
        algorithm.enable(hasher);
    }
}

/// A body whose checksums are computed as it is read.
struct VerifiedBody {
    body: Upload,
    /// `None` after the end.
    hasher: Option<ChecksumHasher>,
    /// The request's headers.
    given: HeaderMap,
    /// The names of the checksums that must follow the body.
    announced: Vec<String>,
    trailers: Option<TrailingHeaders>,
    keeps: Option<DigestAlgorithm>,
    outcome: BodyOutcome,
}

impl VerifiedBody {
    /// Compares the checksums.
    fn end(&self, computed: Checksum) -> S3Result<Checksum> {
        let trailers = self
            .trailers
            .as_ref()
            .and_then(TrailingHeaders::take)
            .unwrap_or_default();
        if let Some(name) = self
            .announced
            .iter()
            .find(|name| !trailers.contains_key(name.as_str()))
        {
            return Err(s3_error!(
                InvalidRequest,
                "the trailer {name} is missing: send it after the body"
            ));
        }
        for algorithm in DigestAlgorithm::ALL {
            let name = algorithm.field();
            for given in self
                .given
                .get_all(&name)
                .iter()
                .chain(trailers.get_all(&name))
            {
                if Some(given.as_bytes()) != algorithm.of(&computed).map(str::as_bytes) {
                    return Err(s3_error!(
                        BadDigest,
                        "{name} doesn't match the bytes: send them again"
                    ));
                }
            }
        }
        Ok(computed)
    }

    /// Keeps the reason, and returns it as the error of the body.
    fn refuse(&self, refused: BodyRefusal) -> BoxError {
        drop(self.outcome.read.set(Err(refused.clone())));
        refused.into()
    }
}

impl Body for VerifiedBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let frame = std::task::ready!(Pin::new(&mut self.body).poll_frame(context));
        let this = &mut *self;
        Poll::Ready(match frame {
            Some(Ok(frame)) => {
                if let (Some(hasher), Some(data)) = (&mut this.hasher, frame.data_ref()) {
                    hasher.update(data);
                }
                Some(Ok(frame))
            }
            // The body is read from another object, and its store broke off: not the client's fault.
            Some(Err(error)) if error.is::<StoreError>() => Some(Err(error)),
            Some(Err(error)) => Some(Err(this.refuse(of_body(&error)))),
            None => match this
                .hasher
                .take()
                .map(ChecksumHasher::finalize)
                .map(|computed| this.end(computed))
            {
                Some(Ok(checksum)) => {
                    if let Some(kept) = checksum::kept(&checksum, this.keeps) {
                        this.outcome.kept.set(kept);
                    }
                    drop(this.outcome.read.set(Ok(checksum)));
                    None
                }
                Some(Err(error)) => Some(Err(this.refuse(BodyRefusal::new(&error)))),
                None => None,
            },
        })
    }

    fn is_end_stream(&self) -> bool {
        // The checksums are compared at the end.
        self.hasher.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Translates an error of a body. The types of `s3s` are private, so their text distinguishes them.
pub(crate) fn of_body(error: &BoxError) -> BodyRefusal {
    if let Some(refused) = error.downcast_ref::<BodyRefusal>() {
        return refused.clone();
    }
    let text = error.to_string();
    BodyRefusal::new(&if text.contains("Sha256Mismatch") {
        other_hash()
    } else if text.contains("SignatureMismatch") {
        s3_error!(
            SignatureDoesNotMatch,
            "the signature of a chunk of the body does not match"
        )
    } else {
        s3_error!(
            IncompleteBody,
            "the body is incomplete or malformed: {text}"
        )
    })
}

/// Returns `true` for the hash of a body: its SHA-256 in hexadecimal digits.
pub(crate) fn is_hash(value: &[u8]) -> bool {
    value.len() == 64 && value.iter().all(u8::is_ascii_hexdigit)
}

/// Returns the error for a body with a different hash from its request's.
pub(crate) fn other_hash() -> S3Error {
    let message = "x-amz-content-sha256 is not the hash of the bytes: send them again";
    S3Error::with_message(
        S3ErrorCode::Custom("XAmzContentSHA256Mismatch".into()),
        message,
    )
}

#[cfg(test)]
mod tests {
    use futures_util::stream;
    use http_body_util::{BodyExt, StreamBody};

    use super::*;

    /// A completion reads its parts, and a copy its source, from the store. A client repeats a 503, and no 400.
    #[tokio::test]
    async fn a_store_that_breaks_off_is_not_blamed_on_the_client() {
        let cut = || {
            StoreError::new(
                StoreErrorKind::Unavailable,
                "the store has closed the connection",
            )
        };
        let frames = [
            Ok(Frame::data(Bytes::from_static(b"half"))),
            Err(BoxError::from(cut())),
        ];
        let source = Upload::new(StreamBody::new(stream::iter(frames)));
        let (upload, outcome) = verified(source, &HeaderMap::new(), None, None);
        let error = upload.collect().await.map(|_| ()).unwrap_err();
        let failed = StoreError::of_body(error);
        assert_eq!(*failed.kind(), StoreErrorKind::Unavailable);
        assert_eq!(
            outcome.explain(&failed, false).status_code(),
            Some(StatusCode::SERVICE_UNAVAILABLE)
        );
    }
}
