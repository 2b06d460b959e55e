//! The chunks of an `aws-chunked` body, before `s3s` reads them.
//!
//! `s3s` keeps a chunk in memory until its end, and verifies its signature then. Unsigned chunks are divided here as their bytes arrive, so
//! that it keeps no more than a piece. The signature of a chunk is one of all its bytes: longer ones than [`MAX_SIGNED`] are refused
//! before their bytes are read, those beyond [`USUAL`] take of the memory for documents, and short frames are joined. What passes has
//! the one form that S3 documents, since `s3s` reads `5x` as a length of 5, and a body that breaks off between two chunks as a complete
//! one:
//!
//! ```text
//! LENGTH [;chunk-signature=SIGNATURE] CRLF BYTES CRLF … 0 [;chunk-signature=SIGNATURE] CRLF [TRAILER CRLF …] CRLF
//! ```
//!
//! The trailers, and all signatures, are left to `s3s`.

use std::collections::VecDeque;

use bytes::Bytes;
use futures_util::stream;
use http::HeaderMap;
use http::header::{CONTENT_ENCODING, CONTENT_LENGTH};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use ifmatch_blob::documents::DocumentMemory;
use ifmatch_blob::store::BoxError;
use s3s::{S3Error, S3ErrorCode, S3Result, s3_error};

use super::memory::ClientMemory;
use super::upload_body::{BODY_HASH, BodyRefusal};
use crate::error;

/// Maximum length of a signed chunk, in bytes.
const MAX_SIGNED: u64 = 4 * 1024 * 1024;
/// Length up to which a signed chunk counts as a buffer of its connection, in bytes. The SDKs sign chunks of 64 to 128 KiB.
const USUAL: u64 = 128 * 1024;
/// Length of the pieces of a signed chunk, in bytes, of which `s3s` keeps a list. Frames may be as short as a byte.
const PIECE: usize = 8 * 1024;
/// Maximum length of the line before a chunk, in bytes.
const MAX_LINE: usize = 256;
/// The values of `x-amz-content-sha256` for a body in chunks.
pub(crate) const KINDS: [&[u8]; 3] = [
    UNSIGNED,
    b"STREAMING-AWS4-HMAC-SHA256-PAYLOAD",
    b"STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER",
];
/// Prefix of the values of `x-amz-content-sha256` for a body in chunks.
const STREAMING: &[u8] = b"STREAMING-";
/// The value for chunks without signatures.
const UNSIGNED: &[u8] = b"STREAMING-UNSIGNED-PAYLOAD-TRAILER";
const DECODED_LENGTH: &str = "x-amz-decoded-content-length";
const SIGNATURE: &[u8] = b";chunk-signature=";
/// Number of digits of a signature.
const SIGNATURE_DIGITS: usize = 64;
const LINE_END: &[u8] = b"\r\n";

/// Returns `true` if a body is sent in chunks.
pub(crate) fn are_in(headers: &HeaderMap) -> bool {
    headers
        .get(BODY_HASH)
        .is_some_and(|kind| kind.as_bytes().starts_with(STREAMING))
}

/// Refuses bytes of an object that are said to be in chunks, or to have another length than the body, by a request whose hash says that
/// they aren't in chunks. The framing would be stored with them.
pub(crate) fn refuse_unannounced(headers: &HeaderMap) -> S3Result<()> {
    let is_coding = |coding: &str| coding.trim().eq_ignore_ascii_case("aws-chunked");
    let codings = headers
        .get_all(CONTENT_ENCODING)
        .iter()
        .filter_map(|line| line.to_str().ok());
    let is_coded = codings.flat_map(|line| line.split(',')).any(is_coding);
    let decoded = headers.get(DECODED_LENGTH);
    let is_decoded = decoded.is_some_and(|length| headers.get(CONTENT_LENGTH) != Some(length));
    if (is_coded || is_decoded) && !are_in(headers) {
        return Err(s3_error!(
            InvalidArgument,
            "a body in chunks (aws-chunked, {DECODED_LENGTH}) needs an {BODY_HASH} that begins with STREAMING-"
        ));
    }
    Ok(())
}

/// Returns a body in chunks as `s3s` may read it, and any other one as it is.
pub(crate) fn limited(headers: &HeaderMap, memory: &ClientMemory, body: s3s::Body) -> s3s::Body {
    let Some(kind) = headers
        .get(BODY_HASH)
        .filter(|kind| kind.as_bytes().starts_with(STREAMING))
    else {
        return body;
    };
    let is_signed = kind.as_bytes() != UNSIGNED;
    let promised = headers
        .get(DECODED_LENGTH)
        .and_then(|length| length.to_str().ok()?.parse().ok());
    let reader = ChunkReader {
        body,
        memory: memory.clone(),
        held: None,
        is_signed,
        promised,
        taken: 0,
        read: Bytes::new(),
        begun: Vec::new(),
        ready: VecDeque::new(),
        position: ChunkPosition::Line,
    };
    s3s::Body::http_body_unsync(StreamBody::new(stream::try_unfold(
        reader,
        ChunkReader::next,
    )))
}

/// Reads a body in chunks, and passes on what `s3s` may read.
struct ChunkReader {
    body: s3s::Body,
    memory: ClientMemory,
    /// The memory of a long signed chunk, which `s3s` holds until it asks for the next one.
    held: Option<DocumentMemory>,
    is_signed: bool,
    /// The length of all chunks that the client has announced.
    promised: Option<u64>,
    /// The length of the chunks so far.
    taken: u64,
    /// Bytes that have arrived.
    read: Bytes,
    /// The beginning of the next piece of a signed chunk.
    begun: Vec<u8>,
    /// Pieces to pass on.
    ready: VecDeque<Bytes>,
    position: ChunkPosition,
}

/// The position in a body in chunks.
#[derive(Clone, Copy)]
enum ChunkPosition {
    /// Before the line of a chunk.
    Line,
    /// In a chunk of which this many bytes are left.
    Chunk(u64),
    /// After the bytes of a chunk.
    End,
    /// After the line of the last chunk.
    Trailers,
}

impl ChunkReader {
    /// Returns the next piece to pass on.
    async fn next(mut self) -> Result<Option<(Frame<Bytes>, Self)>, BoxError> {
        loop {
            if let Some(piece) = self.ready.pop_front() {
                return Ok(Some((Frame::data(piece), self)));
            }
            match self.position {
                ChunkPosition::Line => self.line().await?,
                ChunkPosition::Chunk(left) => self.piece(left).await?,
                ChunkPosition::End => {
                    let end = self
                        .take_until(|read| (read.len() >= LINE_END.len()).then_some(LINE_END.len()))
                        .await?;
                    if end != LINE_END {
                        return Err(malformed("a chunk must end in CR LF after its bytes"));
                    }
                    // The pieces of an unsigned chunk have ends of their own.
                    self.ready.extend(self.is_signed.then_some(end));
                    self.position = ChunkPosition::Line;
                }
                ChunkPosition::Trailers => {
                    let rest = std::mem::take(&mut self.read);
                    match if rest.is_empty() {
                        self.arrived().await?
                    } else {
                        Some(rest)
                    } {
                        Some(piece) => self.ready.push_back(piece),
                        None => return Ok(None),
                    }
                }
            }
        }
    }

    /// Reads the line before a chunk.
    async fn line(&mut self) -> Result<(), BoxError> {
        let line = self
            .take_until(|read| read.iter().position(|byte| *byte == b'\n').map(|at| at + 1))
            .await?;
        let length = self
            .length(&line)
            .ok_or_else(|| malformed("the line before a chunk is malformed"))?;
        self.taken = self.taken.saturating_add(length);
        if self.is_signed && length > MAX_SIGNED {
            let message = format!(
                "a signed chunk exceeds {MAX_SIGNED} bytes: send shorter ones, or unsigned ones"
            );
            return Err(refused(&S3Error::with_message(
                S3ErrorCode::InvalidRequest,
                message,
            )));
        }
        let (is_last, is_less) = (
            length == 0,
            self.promised.is_some_and(|promised| self.taken < promised),
        );
        if self.promised.is_some_and(|promised| self.taken > promised) || (is_last && is_less) {
            return Err(malformed(
                "the chunks do not have the length in x-amz-decoded-content-length",
            ));
        }
        let is_long = self.is_signed && length > USUAL;
        self.held = is_long.then(|| self.memory.documents.begin(self.memory.client));
        if self.is_signed || is_last {
            self.ready.push_back(line);
        }
        self.position = if is_last {
            ChunkPosition::Trailers
        } else {
            ChunkPosition::Chunk(length)
        };
        Ok(())
    }

    /// Returns the length of a chunk from the line before it.
    fn length(&self, line: &[u8]) -> Option<u64> {
        let line = line.strip_suffix(LINE_END)?;
        let digits = line
            .iter()
            .take_while(|byte| byte.is_ascii_hexdigit())
            .count();
        let (digits, signature) = line.split_at_checked(digits)?;
        let is_right = match signature.strip_prefix(SIGNATURE) {
            Some(signature) => {
                self.is_signed
                    && signature.len() == SIGNATURE_DIGITS
                    && signature.iter().all(u8::is_ascii_hexdigit)
            }
            None => !self.is_signed && signature.is_empty(),
        };
        let digits = std::str::from_utf8(digits).ok().filter(|_| is_right)?;
        u64::from_str_radix(digits, 16).ok()
    }

    /// Passes a piece of a chunk on.
    async fn piece(&mut self, left: u64) -> Result<(), BoxError> {
        if self.read.is_empty() {
            self.read = self.arrived().await?.ok_or_else(incomplete)?;
        }
        let length = usize::try_from(left)
            .unwrap_or(usize::MAX)
            .min(self.read.len());
        let piece = self.read.split_to(length);
        if let Some(held) = &mut self.held {
            held.grow(length)
                .map_err(|crowded| refused(&error::crowded(crowded)))?;
        }
        let left = left.saturating_sub(length as u64);
        self.position = if left == 0 {
            ChunkPosition::End
        } else {
            ChunkPosition::Chunk(left)
        };
        if self.is_signed {
            self.begun.extend_from_slice(&piece);
            if self.begun.len() >= PIECE || left == 0 {
                self.ready.push_back(std::mem::take(&mut self.begun).into());
            }
        } else if !piece.is_empty() {
            let line = format!("{length:x}\r\n").into();
            self.ready
                .extend([line, piece, Bytes::from_static(LINE_END)]);
        }
        Ok(())
    }

    /// Takes bytes up to an end, which must come soon.
    async fn take_until(
        &mut self,
        end: impl Fn(&[u8]) -> Option<usize>,
    ) -> Result<Bytes, BoxError> {
        loop {
            match end(&self.read) {
                Some(end) if end <= MAX_LINE => return Ok(self.read.split_to(end)),
                None if self.read.len() <= MAX_LINE => {}
                _ => return Err(malformed("the line before a chunk is too long")),
            }
            let more = self.arrived().await?.ok_or_else(incomplete)?;
            self.read = [std::mem::take(&mut self.read), more].concat().into();
        }
    }

    /// Returns the next bytes to arrive.
    async fn arrived(&mut self) -> Result<Option<Bytes>, BoxError> {
        while let Some(frame) = self.body.frame().await.transpose()? {
            if let Ok(data) = frame.into_data()
                && !data.is_empty()
            {
                return Ok(Some(data));
            }
        }
        Ok(None)
    }
}

/// The error for a body that breaks off.
fn incomplete() -> BoxError {
    malformed("the body ends before its last chunk")
}

/// The error for a body in another form.
fn malformed(what: &str) -> BoxError {
    refused(&s3_error!(IncompleteBody, "{what}"))
}

/// Returns a refusal as the error of the body.
fn refused(error: &S3Error) -> BoxError {
    BodyRefusal::new(error).into()
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use ifmatch_blob::documents::Documents;

    use super::*;

    /// The memory for documents.
    const MEMORY: u32 = 6 * 1024 * 1024;

    const SIGNED: &str = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD";

    /// Sends a body in pieces of this length. Returns what `s3s` reads, or S3's code.
    async fn passed(
        kind: &'static str,
        promised: u64,
        body: &[u8],
        pieces: usize,
    ) -> Result<Vec<Bytes>, String> {
        let headers = [
            (
                http::HeaderName::from_static(BODY_HASH),
                HeaderValue::from_static(kind),
            ),
            (
                http::HeaderName::from_static(DECODED_LENGTH),
                promised.into(),
            ),
        ];
        let pieces: Vec<_> = body
            .chunks(pieces)
            .map(|piece| Ok::<_, BoxError>(Frame::data(piece.to_vec().into())))
            .collect();
        let body = s3s::Body::http_body_unsync(StreamBody::new(stream::iter(pieces)));
        let memory = ClientMemory {
            documents: Documents::new(MEMORY),
            client: None,
        };
        let mut body = limited(&headers.into_iter().collect(), &memory, body);
        let mut passed = Vec::new();
        while let Some(frame) = body.frame().await {
            match frame {
                Ok(frame) => passed.extend(frame.into_data()),
                Err(error) => {
                    let refused = error.downcast::<BodyRefusal>().expect("a reason");
                    return Err(refused.to_error().code().as_str().to_owned());
                }
            }
        }
        Ok(passed)
    }

    fn signed(length: usize) -> String {
        format!(
            "{length:x};chunk-signature={}\r\n",
            "0".repeat(SIGNATURE_DIGITS)
        )
    }

    #[tokio::test]
    async fn an_unsigned_chunk_is_divided_into_what_has_arrived() {
        let unsigned = std::str::from_utf8(UNSIGNED).unwrap();
        let body = b"a\r\n0123456789\r\n0\r\nx-amz-checksum-crc32:AAAAAA==\r\n\r\n";
        for pieces in 1..=body.len() {
            let passed = passed(unsigned, 10, body, pieces).await.unwrap();
            assert!(
                passed
                    .iter()
                    .all(|piece| piece.len() <= pieces.max(MAX_LINE)),
                "{passed:?}"
            );
            let text = String::from_utf8(passed.concat()).unwrap();
            let (mut rest, mut bytes) = (text.as_str(), String::new());
            while let Some((line, more)) = rest.split_once("\r\n").filter(|(line, _)| *line != "0")
            {
                let (chunk, more) = more.split_at(usize::from_str_radix(line, 16).unwrap());
                bytes.push_str(chunk);
                rest = more.strip_prefix("\r\n").expect("the end of a chunk");
            }
            assert_eq!(
                (&*bytes, rest),
                ("0123456789", "0\r\nx-amz-checksum-crc32:AAAAAA==\r\n\r\n")
            );
        }
    }

    #[tokio::test]
    async fn signed_chunks_pass_as_they_are_up_to_a_length() {
        let body = format!("{}0123456789\r\n{}\r\n", signed(10), signed(0));
        for pieces in 1..=body.len() {
            assert_eq!(
                passed(SIGNED, 10, body.as_bytes(), pieces)
                    .await
                    .unwrap()
                    .concat(),
                body.as_bytes()
            );
        }
        let of_length = async |length: usize| {
            let bytes = "x".repeat(length);
            let body = format!("{}{bytes}\r\n{}\r\n", signed(length), signed(0));
            passed(SIGNED, length as u64, body.as_bytes(), 1 << 16)
                .await
                .map(|pieces| pieces.concat().len() == body.len())
        };
        let max = usize::try_from(MAX_SIGNED).unwrap();
        assert_eq!(of_length(max).await, Ok(true));
        assert_eq!(of_length(max + 1).await, Err("InvalidRequest".to_owned()));
    }

    /// `s3s` keeps a list of the frames of a signed chunk, and an entry takes more than a byte.
    #[tokio::test]
    async fn short_frames_of_a_signed_chunk_are_joined() {
        let length = 100_000;
        let body = format!(
            "{}{}\r\n{}\r\n",
            signed(length),
            "x".repeat(length),
            signed(0)
        );
        let passed = passed(SIGNED, length as u64, body.as_bytes(), 1)
            .await
            .unwrap();
        assert_eq!(passed.concat(), body.as_bytes());
        assert!(passed.len() < 100, "{} pieces", passed.len());
    }

    #[tokio::test]
    async fn long_signed_chunks_share_the_memory_for_documents() {
        let memory = ClientMemory {
            documents: Documents::new(MEMORY),
            client: None,
        };
        let begun = async |length: usize| {
            let headers = [(
                http::HeaderName::from_static(BODY_HASH),
                HeaderValue::from_static(SIGNED),
            )];
            let (line, bytes) = (signed(length), "x".repeat(length));
            let pieces = [
                Ok(Frame::data(line.into())),
                Ok::<_, BoxError>(Frame::data(bytes.into())),
            ];
            let body = s3s::Body::http_body_unsync(StreamBody::new(stream::iter(pieces)));
            let mut body = limited(&headers.into_iter().collect(), &memory, body);
            body.frame().await.unwrap().unwrap();
            let chunk = body.frame().await.unwrap();
            chunk.map(|_| body).map_err(|error| {
                error
                    .downcast::<BodyRefusal>()
                    .unwrap()
                    .to_error()
                    .code()
                    .clone()
            })
        };
        let max = usize::try_from(MAX_SIGNED).unwrap();
        let held = begun(max).await.unwrap();
        assert_eq!(begun(max).await.err(), Some(S3ErrorCode::SlowDown));
        assert!(begun(usize::try_from(USUAL).unwrap()).await.is_ok());
        assert_eq!(
            u64::from(memory.documents.taken()),
            MAX_SIGNED,
            "of short chunks, nothing is taken"
        );
        drop(held);
        assert!(begun(max).await.is_ok());
    }

    #[tokio::test]
    async fn a_body_that_is_no_list_of_chunks_is_refused() {
        let unsigned = std::str::from_utf8(UNSIGNED).unwrap();
        let other = format!(
            "3;chunk-signature={}\r\nabc\r\n",
            "x".repeat(SIGNATURE_DIGITS)
        );
        for (kind, body) in [
            (unsigned, ""),
            (unsigned, "3\r\nabc\r\n"),
            (unsigned, "3\r\nabc"),
            (unsigned, "3\r\nab"),
            (unsigned, "3x\r\nabc\r\n0\r\n\r\n"),
            (unsigned, "+3\r\nabc\r\n0\r\n\r\n"),
            (unsigned, "3\nabc\r\n0\r\n\r\n"),
            (unsigned, "3\r\nabcd\r\n0\r\n\r\n"),
            (unsigned, "2\r\nab\r\n0\r\n\r\n"),
            (unsigned, "4\r\nabcd\r\n0\r\n\r\n"),
            (unsigned, &format!("{}abc\r\n0\r\n\r\n", signed(3))),
            (unsigned, &"0".repeat(2 * MAX_LINE)),
            (SIGNED, "3\r\nabc\r\n0\r\n\r\n"),
            (SIGNED, &format!("{}abc\r\n", signed(3))),
            (SIGNED, &other),
        ] {
            for pieces in [1, 2, 1000] {
                let refused = passed(kind, 3, body.as_bytes(), pieces).await;
                assert_eq!(refused, Err("IncompleteBody".to_owned()), "{kind}: {body}");
            }
        }
        let whole = format!("{}abc\r\n{}\r\n", signed(3), signed(0));
        assert!(passed(SIGNED, 3, whole.as_bytes(), 1).await.is_ok());
    }
}
