//! Documents in requests: lists of objects to delete, of parts and of tags, and the settings of a bucket.
//!
//! A document is read in full, and compared with its checksums, before anything is done. All documents are read here, into memory that they
//! share with the other dialects'.

use bytes::Bytes;
use http::HeaderMap;
use ifmatch_blob::documents::DocumentError;
use ifmatch_blob::headers::ContentMd5;
use ifmatch_core::digest::ContentHash;
use s3s::{S3Result, s3_error};

use super::checksum::DigestAlgorithm;
use super::chunks;
use super::memory::ClientMemory;
use super::upload_body::{self, BODY_HASH, BodyRefusal};
use crate::{convert, error};

/// Maximum length of a document, in bytes: a list of 10,000 parts with a checksum each, or of 1,000 long names.
pub(crate) const MAX: usize = 4 * 1024 * 1024;

/// Maximum number of a part.
pub(crate) const MAX_PARTS: u16 = 10_000;

/// The beginning of a section whose text isn't markup.
const CDATA: &[u8] = b"<![CDATA[";

/// The checksums of the document in a request's body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DocumentDigests {
    /// All that the request has.
    All,
    /// `Content-MD5` only: the others belong to an object.
    Md5,
}

/// The checksums that a document must have.
#[derive(Clone, Debug)]
pub(crate) struct ExpectedDigests {
    md5: Option<ContentMd5>,
    /// SHA-256 in hexadecimal digits.
    hash: Option<String>,
    checksums: Vec<(DigestAlgorithm, String)>,
}

impl ExpectedDigests {
    /// Reads the fields of a request with a document.
    pub(crate) fn of(headers: &HeaderMap, digests: DocumentDigests) -> S3Result<Self> {
        if chunks::are_in(headers) {
            return Err(s3_error!(
                NotImplemented,
                "a document in chunks is not implemented: send it as it is"
            ));
        }
        let text =
            |value: &http::HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
        let checksums = DigestAlgorithm::ALL
            .iter()
            .filter(|_| digests == DocumentDigests::All);
        let checksums = checksums.flat_map(|algorithm| {
            headers
                .get_all(algorithm.field())
                .iter()
                .map(|value| (*algorithm, text(value)))
        });
        let hash = headers
            .get(BODY_HASH)
            .filter(|hash| upload_body::is_hash(hash.as_bytes()))
            .map(text);
        Ok(Self {
            md5: convert::md5(headers)?,
            hash,
            checksums: checksums.collect(),
        })
    }

    /// Reads a document. It takes no more memory than the bytes.
    pub(crate) async fn read(
        self,
        memory: ClientMemory,
        body: s3s::Body,
    ) -> Result<Bytes, BodyRefusal> {
        let bytes = memory
            .documents
            .read(memory.client, body, MAX as u64)
            .await
            .map_err(|error| match error {
                DocumentError::TooLong(max) => BodyRefusal::new(&s3_error!(
                    MaxMessageLengthExceeded,
                    "the document exceeds {max} bytes"
                )),
                DocumentError::Crowded(error) => BodyRefusal::new(&error::crowded(error)),
                DocumentError::Broken(error) => upload_body::of_body(&error),
            })?;
        self.compare(&bytes)
            .map_err(|error| BodyRefusal::new(&error))?;
        // `s3s` skips them, as if the text were not there.
        if bytes.windows(CDATA.len()).any(|window| window == CDATA) {
            return Err(BodyRefusal::new(&s3_error!(
                MalformedXML,
                "a document must have no CDATA: write the text as it is"
            )));
        }
        // `s3s` keeps some hundred bytes for each, however short it is.
        if entries(&bytes) > usize::from(MAX_PARTS) {
            let rule = format!("the document lists more than {MAX_PARTS} parts, objects or tags");
            return Err(BodyRefusal::new(&s3_error!(MalformedXML, "{rule}")));
        }
        Ok(bytes)
    }

    /// Compares a document with its checksums.
    fn compare(&self, bytes: &[u8]) -> S3Result<()> {
        if self
            .hash
            .as_ref()
            .is_some_and(|hash| !hash.eq_ignore_ascii_case(&ContentHash::of(bytes).hex()))
        {
            return Err(upload_body::other_hash());
        }
        if self.md5.is_some_and(|md5| md5 != ContentMd5::of(bytes)) {
            return Err(s3_error!(
                BadDigest,
                "Content-MD5 doesn't match the document: send it again"
            ));
        }
        let differs = |(algorithm, value): &&(DigestAlgorithm, String)| {
            algorithm.digest(bytes).as_ref() != Some(value)
        };
        match self.checksums.iter().find(differs) {
            Some((algorithm, _)) => Err(s3_error!(
                BadDigest,
                "{} doesn't match the document: send it again",
                algorithm.field()
            )),
            None => Ok(()),
        }
    }
}

/// Returns `true` if a document has an element `Part`, `Object` or `Tag`.
pub(crate) fn has_entries(document: &[u8]) -> bool {
    entries(document) > 0
}

/// Returns the number of elements `Part`, `Object` and `Tag`, whatever their namespace's prefix, in a document that needn't be XML.
fn entries(document: &[u8]) -> usize {
    let is_entry = |rest: &&[u8]| {
        let end = rest
            .iter()
            .position(|byte| b"> \t\r\n/".contains(byte))
            .unwrap_or(rest.len());
        matches!(
            rest[..end].rsplit(|byte| *byte == b':').next(),
            Some(b"Part" | b"Object" | b"Tag")
        )
    };
    // What precedes the first `<` begins no element.
    document
        .split(|byte| *byte == b'<')
        .skip(1)
        .filter(is_entry)
        .count()
}

#[cfg(test)]
mod tests {
    use http::header::RETRY_AFTER;
    use http::{HeaderName, HeaderValue, StatusCode};
    use ifmatch_blob::documents::Documents;
    use s3s::S3ErrorCode;

    use super::*;

    fn memory() -> ClientMemory {
        ClientMemory {
            documents: Documents::default(),
            client: None,
        }
    }

    const MISMATCH: &str = "XAmzContentSHA256Mismatch";

    async fn read(
        digests: DocumentDigests,
        header: (&'static str, &str),
        document: &'static str,
    ) -> Result<Bytes, String> {
        let headers = [(
            HeaderName::from_static(header.0),
            HeaderValue::from_str(header.1).unwrap(),
        )]
        .into_iter()
        .collect();
        let code = |code: &S3ErrorCode| code.as_str().to_owned();
        let expected =
            ExpectedDigests::of(&headers, digests).map_err(|error| code(error.code()))?;
        expected
            .read(memory(), Bytes::from(document).into())
            .await
            .map_err(|refused| code(refused.to_error().code()))
    }

    /// "123456789" is the input for which the catalogues of checksums state their values.
    #[tokio::test]
    async fn a_document_has_the_checksums_of_its_request() {
        for (name, value, code) in [
            ("content-md5", "JfnnlDI7RTiF9RgfG2JNCw==", "BadDigest"),
            ("x-amz-checksum-crc32", "y/Q5Jg==", "BadDigest"),
            ("x-amz-checksum-crc64nvme", "rosUhgp5mIg=", "BadDigest"),
            (
                "x-amz-checksum-sha256",
                "FeKw08M4keuw8e9gnsQZQgwg4yDOlMZfvIwzEkSOsiU=",
                "BadDigest",
            ),
            (
                BODY_HASH,
                "15e2b0d3c33891ebb0f1ef609ec419420c20e320ce94c65fbc8c3312448eb225",
                MISMATCH,
            ),
        ] {
            assert_eq!(
                read(DocumentDigests::All, (name, value), "123456789")
                    .await
                    .unwrap(),
                "123456789",
                "{name}"
            );
            assert_eq!(
                read(DocumentDigests::All, (name, value), "12345678X").await,
                Err(code.to_owned()),
                "{name}"
            );
            let is_of_object = name.starts_with("x-amz-checksum");
            assert_eq!(
                read(DocumentDigests::Md5, (name, value), "12345678X")
                    .await
                    .is_ok(),
                is_of_object,
                "{name}"
            );
        }
        assert_eq!(
            read(DocumentDigests::All, (BODY_HASH, "UNSIGNED-PAYLOAD"), "a")
                .await
                .unwrap(),
            "a"
        );
        for md5 in ["", "abc"] {
            assert_eq!(
                read(DocumentDigests::All, ("content-md5", md5), "a").await,
                Err("InvalidDigest".to_owned())
            );
        }
        let chunked = read(
            DocumentDigests::All,
            (BODY_HASH, "STREAMING-UNSIGNED-PAYLOAD-TRAILER"),
            "a",
        )
        .await;
        assert_eq!(chunked, Err("NotImplemented".to_owned()));
    }

    #[tokio::test]
    async fn a_document_has_no_cdata_which_would_be_skipped() {
        for document in ["<Key>a<![CDATA[b]]></Key>", "<Tag><![CDATA[v]]></Tag>"] {
            assert_eq!(
                read(DocumentDigests::All, ("x-a", "b"), document).await,
                Err("MalformedXML".to_owned()),
                "{document}"
            );
        }
        assert!(
            read(
                DocumentDigests::All,
                ("x-a", "b"),
                "<Key>a<!-- [CDATA[ -->b</Key>"
            )
            .await
            .is_ok()
        );
    }

    #[tokio::test]
    async fn a_document_has_a_limit() {
        let headers = HeaderMap::new();
        let read = async |length| {
            let expected = ExpectedDigests::of(&headers, DocumentDigests::All).unwrap();
            expected
                .read(memory(), s3s::Body::from(vec![b' '; length]))
                .await
                .map_err(|refused| refused.to_error().code().clone())
        };
        assert_eq!(read(MAX).await.map(|bytes| bytes.len()), Ok(MAX));
        assert_eq!(
            read(MAX + 1).await,
            Err(S3ErrorCode::MaxMessageLengthExceeded)
        );
    }

    #[tokio::test]
    async fn a_list_has_a_number_of_entries() {
        assert_eq!(
            entries(
                b"<a><Part><PartNumber>1</PartNumber></Part><s:Part/><Object >\n<Objects/></a>Part"
            ),
            3
        );
        let read = async |count| {
            let expected = ExpectedDigests::of(&HeaderMap::new(), DocumentDigests::All).unwrap();
            let read = expected
                .read(memory(), s3s::Body::from("<Part/>".repeat(count)))
                .await;
            read.map(drop)
                .map_err(|refused| refused.to_error().code().clone())
        };
        assert_eq!(read(usize::from(MAX_PARTS)).await, Ok(()));
        assert_eq!(
            read(usize::from(MAX_PARTS) + 1).await,
            Err(S3ErrorCode::MalformedXML)
        );
    }

    #[tokio::test]
    async fn documents_share_memory_and_what_is_held_is_refused_to_others() {
        let memory = ClientMemory {
            documents: Documents::new(10),
            client: None,
        };
        let read = async |text: &'static str| {
            let expected = ExpectedDigests::of(&HeaderMap::new(), DocumentDigests::All).unwrap();
            expected
                .read(memory.clone(), Bytes::from(text).into())
                .await
        };
        let held = read("12345678").await.unwrap();
        let refused = read("123").await.unwrap_err().to_error();
        assert_eq!(
            (refused.code(), refused.status_code()),
            (
                &S3ErrorCode::SlowDown,
                Some(StatusCode::SERVICE_UNAVAILABLE)
            )
        );
        assert!(
            refused
                .headers()
                .is_some_and(|headers| headers.contains_key(RETRY_AFTER))
        );
        drop(held);
        assert_eq!(read("123").await.unwrap(), "123");
    }
}
