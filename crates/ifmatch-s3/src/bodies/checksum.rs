//! Checksums of objects and of their parts.
//!
//! An object that was uploaded in parts has the checksum of its bytes (`FULL_OBJECT`), or a checksum of its parts' checksums
//! (`COMPOSITE`), which ends in a hyphen and their number. The client chooses when it begins the upload.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use crc_fast::CrcAlgorithm::{Crc32Iscsi, Crc32IsoHdlc, Crc64Nvme as CrcNvme};
use ifmatch_blob::headers::FieldText;
use ifmatch_blob::store::BlobInfo;
use s3s::checksum::ChecksumHasher;
use s3s::dto::{Checksum, ChecksumAlgorithm, ChecksumType};
use s3s::{S3Result, s3_error};
use serde::{Deserialize, Serialize};

/// Prefix of the names of header fields with checksums.
pub(crate) const CHECKSUM: &str = "x-amz-checksum-";

/// Fills the checksums of a response.
macro_rules! with_checksums {
    ($checksum:expr, $output:ident { $($rest:tt)* }) => {{
        let checksum: s3s::dto::Checksum = $checksum;
        $output {
            checksum_crc32: checksum.checksum_crc32,
            checksum_crc32c: checksum.checksum_crc32c,
            checksum_crc64nvme: checksum.checksum_crc64nvme,
            checksum_sha1: checksum.checksum_sha1,
            checksum_sha256: checksum.checksum_sha256,
            $($rest)*
        }
    }};
}
pub(crate) use with_checksums;

/// Returns the checksums with these values.
pub(crate) fn each(value: impl Fn(DigestAlgorithm) -> Option<String>) -> Checksum {
    Checksum {
        checksum_crc32: value(DigestAlgorithm::Crc32),
        checksum_crc32c: value(DigestAlgorithm::Crc32c),
        checksum_crc64nvme: value(DigestAlgorithm::Crc64Nvme),
        checksum_sha1: value(DigestAlgorithm::Sha1),
        checksum_sha256: value(DigestAlgorithm::Sha256),
        checksum_type: None,
    }
}

/// An algorithm of checksums.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum DigestAlgorithm {
    Crc64Nvme,
    Crc32c,
    Crc32,
    Sha256,
    Sha1,
}

impl DigestAlgorithm {
    /// All algorithms. Of several checksums of an object, the first one is kept.
    pub(crate) const ALL: [Self; 5] = [
        Self::Crc64Nvme,
        Self::Crc32c,
        Self::Crc32,
        Self::Sha256,
        Self::Sha1,
    ];

    /// Returns the name in header fields, which is XML's in lower case.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Crc64Nvme => "crc64nvme",
            Self::Crc32c => "crc32c",
            Self::Crc32 => "crc32",
            Self::Sha256 => "sha256",
            Self::Sha1 => "sha1",
        }
    }

    /// Returns the name of the header field with a checksum.
    pub(crate) fn field(self) -> String {
        format!("{CHECKSUM}{}", self.name())
    }

    /// Returns the algorithm with this name, in upper or lower case.
    pub(crate) fn named(name: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|algorithm| algorithm.name().eq_ignore_ascii_case(name))
    }

    /// Returns the name in XML.
    pub(crate) fn dto(self) -> ChecksumAlgorithm {
        self.name().to_ascii_uppercase().into()
    }

    /// Computes checksums of this algorithm, too.
    pub(crate) fn enable(self, hasher: &mut ChecksumHasher) {
        match self {
            Self::Crc64Nvme => hasher.crc64nvme = Some(s3s::crypto::Crc64Nvme::default()),
            Self::Crc32c => hasher.crc32c = Some(s3s::crypto::Crc32c::default()),
            Self::Crc32 => hasher.crc32 = Some(s3s::crypto::Crc32::default()),
            Self::Sha256 => hasher.sha256 = Some(s3s::crypto::Sha256::default()),
            Self::Sha1 => hasher.sha1 = Some(s3s::crypto::Sha1::default()),
        }
    }

    /// Returns the checksum of this algorithm.
    pub(crate) fn of(self, checksum: &Checksum) -> Option<&str> {
        let value = match self {
            Self::Crc64Nvme => &checksum.checksum_crc64nvme,
            Self::Crc32c => &checksum.checksum_crc32c,
            Self::Crc32 => &checksum.checksum_crc32,
            Self::Sha256 => &checksum.checksum_sha256,
            Self::Sha1 => &checksum.checksum_sha1,
        };
        value.as_deref()
    }

    /// Returns the checksum of an object with this value.
    fn told(self, value: &str) -> Checksum {
        let kind = if value.contains('-') {
            ChecksumType::COMPOSITE
        } else {
            ChecksumType::FULL_OBJECT
        };
        let checksum_type = Some(ChecksumType::from_static(kind));
        Checksum {
            checksum_type,
            ..each(|algorithm| (algorithm == self).then(|| value.to_owned()))
        }
    }

    /// Returns the checksum with this value, or none.
    pub(crate) fn told_if_known(self, value: Option<&str>) -> Checksum {
        value.map(|value| self.told(value)).unwrap_or_default()
    }

    /// Returns the checksum of some bytes.
    pub(crate) fn digest(self, bytes: &[u8]) -> Option<String> {
        let mut hasher = ChecksumHasher::default();
        self.enable(&mut hasher);
        hasher.update(bytes);
        self.of(&hasher.finalize()).map(str::to_owned)
    }
}

/// The checksum of an object that is uploaded in parts. S3's default, if the client doesn't choose.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ChecksumPlan {
    pub(crate) algorithm: DigestAlgorithm,
    pub(crate) is_composite: bool,
}

impl Default for ChecksumPlan {
    fn default() -> Self {
        Self {
            algorithm: DigestAlgorithm::Crc64Nvme,
            is_composite: false,
        }
    }
}

impl ChecksumPlan {
    /// Reads the choice of a client.
    pub(crate) fn new(
        algorithm: Option<&ChecksumAlgorithm>,
        kind: Option<&ChecksumType>,
    ) -> S3Result<Self> {
        let unknown = || {
            s3_error!(
                InvalidRequest,
                "the checksum algorithm must be CRC64NVME, CRC32C, CRC32, SHA256 or SHA1"
            )
        };
        let algorithm = algorithm
            .map(|name| DigestAlgorithm::named(name.as_str()).ok_or_else(unknown))
            .transpose()?;
        let algorithm = algorithm.unwrap_or(Self::default().algorithm);
        let is_composite = match kind.map(ChecksumType::as_str) {
            None => algorithm != DigestAlgorithm::Crc64Nvme,
            Some(ChecksumType::COMPOSITE) => true,
            Some(ChecksumType::FULL_OBJECT) => false,
            Some(_) => {
                return Err(s3_error!(
                    InvalidRequest,
                    "the checksum type must be COMPOSITE or FULL_OBJECT"
                ));
            }
        };
        match algorithm {
            DigestAlgorithm::Crc64Nvme if is_composite => Err(s3_error!(
                InvalidRequest,
                "CRC64NVME is a checksum of the whole object: use the type FULL_OBJECT"
            )),
            DigestAlgorithm::Sha1 | DigestAlgorithm::Sha256 if !is_composite => Err(s3_error!(
                InvalidRequest,
                "SHA-1 and SHA-256 are checksums of the parts: use the type COMPOSITE"
            )),
            _ => Ok(Self {
                algorithm,
                is_composite,
            }),
        }
    }

    /// Returns the type of the checksum.
    pub(crate) fn kind(self) -> ChecksumType {
        ChecksumType::from_static(if self.is_composite {
            ChecksumType::COMPOSITE
        } else {
            ChecksumType::FULL_OBJECT
        })
    }

    /// Returns an object's checksum from its parts' checksums and lengths, or `None` if a part has none.
    pub(crate) fn combine(self, parts: &[(String, u64)]) -> Option<String> {
        let decode =
            |(value, length): &(String, u64)| Some((STANDARD.decode(value).ok()?, *length));
        let parts = parts.iter().map(decode).collect::<Option<Vec<_>>>()?;
        if self.is_composite {
            let all: Vec<u8> = parts.iter().flat_map(|(value, _)| value).copied().collect();
            return Some(format!("{}-{}", self.algorithm.digest(&all)?, parts.len()));
        }
        let crc = match self.algorithm {
            DigestAlgorithm::Crc64Nvme => CrcNvme,
            DigestAlgorithm::Crc32c => Crc32Iscsi,
            DigestAlgorithm::Crc32 => Crc32IsoHdlc,
            DigestAlgorithm::Sha256 | DigestAlgorithm::Sha1 => return None,
        };
        let number = |value: &[u8]| {
            value
                .iter()
                .fold(0_u64, |number, byte| number << 8 | u64::from(*byte))
        };
        let width = parts.first()?.0.len();
        let combined = parts
            .iter()
            .map(|(value, length)| (number(value), *length))
            .reduce(|(first, _), (second, length)| {
                (crc_fast::checksum_combine(crc, first, second, length), 0)
            });
        let bytes = combined?.0.to_be_bytes();
        Some(STANDARD.encode(bytes.get(bytes.len().checked_sub(width)?..)?))
    }
}

/// Returns the checksum to keep with bytes, of the verified ones: the one of the preferred algorithm, or the first if none is preferred.
pub(crate) fn kept(checksum: &Checksum, preferred: Option<DigestAlgorithm>) -> Option<FieldText> {
    let kept = |algorithm: DigestAlgorithm| field(algorithm, algorithm.of(checksum)?);
    match preferred {
        Some(algorithm) => kept(algorithm),
        None => DigestAlgorithm::ALL.into_iter().find_map(kept),
    }
}

/// Returns a checksum in the form in which it is kept.
pub(crate) fn field(algorithm: DigestAlgorithm, value: &str) -> Option<FieldText> {
    FieldText::new(&format!("{}:{value}", algorithm.name())).ok()
}

/// Reads a checksum that was kept.
fn parse(kept: &FieldText) -> Option<(DigestAlgorithm, String)> {
    let (name, value) = kept.as_str().split_once(':')?;
    Some((DigestAlgorithm::named(name)?, value.to_owned()))
}

/// Returns the checksum of this algorithm, if it was kept.
pub(crate) fn kept_of(info: &BlobInfo, algorithm: DigestAlgorithm) -> Option<String> {
    let (kept, value) = parse(info.headers.checksum.as_ref()?)?;
    Some(value).filter(|_| kept == algorithm)
}

/// Returns the checksum of a whole object: the one that was kept, or else the hash of its bytes.
pub(crate) fn of_object(info: &BlobInfo) -> Checksum {
    let hash = || {
        Some((
            DigestAlgorithm::Sha256,
            STANDARD.encode(info.hash.as_ref()?.as_bytes()),
        ))
    };
    let kept = info.headers.checksum.as_ref().and_then(parse).or_else(hash);
    kept.map(|(algorithm, value)| algorithm.told(&value))
        .unwrap_or_default()
}

/// Returns the number of parts of an object, if its checksum tells.
pub(crate) fn number_of_parts(checksum: &Checksum) -> Option<i32> {
    let value = DigestAlgorithm::ALL
        .into_iter()
        .find_map(|algorithm| algorithm.of(checksum))?;
    value.rsplit_once('-')?.1.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The catalogues of checksums state their values for "123456789".
    #[test]
    fn the_crcs_of_parts_give_the_crc_of_the_whole() {
        for (algorithm, whole) in [
            (DigestAlgorithm::Crc32, "y/Q5Jg=="),
            (DigestAlgorithm::Crc32c, "4waSgw=="),
            (DigestAlgorithm::Crc64Nvme, "rosUhgp5mIg="),
        ] {
            let plan = ChecksumPlan {
                algorithm,
                is_composite: false,
            };
            for parts in [
                &["123456789"][..],
                &["1234", "56789"],
                &["1", "23456", "789"],
                &["123456789", ""],
            ] {
                let parts = parts.iter().map(|part| {
                    (
                        algorithm.digest(part.as_bytes()).unwrap(),
                        part.len() as u64,
                    )
                });
                assert_eq!(
                    plan.combine(&parts.collect::<Vec<_>>()).as_deref(),
                    Some(whole),
                    "{algorithm:?}"
                );
            }
        }
    }

    #[test]
    fn a_composite_checksum_is_the_checksum_of_the_checksums() {
        for algorithm in [
            DigestAlgorithm::Crc32,
            DigestAlgorithm::Crc32c,
            DigestAlgorithm::Sha1,
            DigestAlgorithm::Sha256,
        ] {
            let parts = [("1234", 4), ("56789", 5)]
                .map(|(part, len)| (algorithm.digest(part.as_bytes()).unwrap(), len));
            let bytes: Vec<u8> = parts
                .iter()
                .flat_map(|(value, _)| STANDARD.decode(value).unwrap())
                .collect();
            let expected = format!("{}-2", algorithm.digest(&bytes).unwrap());
            let plan = ChecksumPlan {
                algorithm,
                is_composite: true,
            };
            assert_eq!(plan.combine(&parts), Some(expected.clone()));
            let told = algorithm.told(&expected);
            assert_eq!(
                told.checksum_type,
                Some(ChecksumType::from_static(ChecksumType::COMPOSITE))
            );
            assert_eq!(number_of_parts(&told), Some(2));
        }
        assert_eq!(
            ChecksumPlan::default().combine(&[("no base64".into(), 1)]),
            None
        );
    }

    #[test]
    fn a_client_chooses_what_its_algorithm_has() {
        let plan = |algorithm: Option<&'static str>, kind: Option<&'static str>| {
            let (algorithm, kind) = (
                algorithm.map(ChecksumAlgorithm::from_static),
                kind.map(ChecksumType::from_static),
            );
            ChecksumPlan::new(algorithm.as_ref(), kind.as_ref())
                .map(|plan| plan.is_composite)
                .ok()
        };
        for (algorithm, kind, expected) in [
            (None, None, Some(false)),
            (None, Some("COMPOSITE"), None),
            (Some("CRC64NVME"), None, Some(false)),
            (Some("CRC64NVME"), Some("COMPOSITE"), None),
            (Some("CRC32"), None, Some(true)),
            (Some("CRC32C"), Some("FULL_OBJECT"), Some(false)),
            (Some("SHA256"), None, Some(true)),
            (Some("SHA1"), Some("FULL_OBJECT"), None),
            (Some("MD4"), None, None),
            (Some("CRC32"), Some("OTHER"), None),
        ] {
            assert_eq!(plan(algorithm, kind), expected, "{algorithm:?} {kind:?}");
        }
    }
}
