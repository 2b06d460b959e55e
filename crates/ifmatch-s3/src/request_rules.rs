//! The operations that are served, and what a request for one may carry.
//!
//! `s3s` selects an operation by the names in the query that it knows. It ignores any other name, and selects the plain operation:
//! `PUT /bucket/key?renameObject` would be a `PutObject` without bytes, and `DELETE /bucket/key?annotation` would delete the object. So
//! each name is compared with the parameters of the operation that `s3s` has selected, before it reads the body:
//!
//! - Parameters of the operation are taken.
//! - The [names by which S3 selects an operation](SELECTORS) are refused, with or without a value.
//! - A name that S3 adds tomorrow is in no list. The selectors of S3 have no value, so any other name without a value is refused,
//!   too, unless it is a parameter of another operation. Names of less than four characters, such as `v`, and those that begin with no
//!   letter are no selectors: S3 has none of them but `acl`.
//! - A name with a value is ignored, as S3 does, unless it begins with `x-amz-`: S3 takes such parameters of a presigned URL for header
//!   fields, which would be lost.
//! - `x-id`, by which some SDKs name the operation that they call, must name the selected one, unless the request only reads.
//!
//! Header fields for what an object wouldn't have are refused as well, even if they are incomplete, and so are conditions of writes that
//! evaluate none.

use http::{HeaderMap, HeaderValue, Method};
use ifmatch_core::precondition::Preconditions;
use s3s::dto::ServerSideEncryption;
use s3s::{S3Result, s3_error};

use crate::backend::refuse;
use crate::bodies::checksum::{CHECKSUM, DigestAlgorithm};
use crate::bodies::document::DocumentDigests;
use crate::bodies::upload_body::{BODY_HASH, is_hash};

/// The parameters of a read of an object.
const READ: &[&str] = &[
    "partNumber",
    "response-cache-control",
    "response-content-disposition",
    "response-content-encoding",
    "response-content-language",
    "response-content-type",
    "response-expires",
    "versionId",
];

/// The operations that are served, and their parameters.
const SERVED: &[(&str, &[&str])] = &[
    ("AbortMultipartUpload", &["uploadId"]),
    ("CompleteMultipartUpload", &["uploadId"]),
    ("CopyObject", &[]),
    ("CreateBucket", &[]),
    ("CreateMultipartUpload", &["uploads"]),
    ("DeleteBucket", &[]),
    ("DeleteBucketCors", &["cors"]),
    ("DeleteBucketEncryption", &["encryption"]),
    ("DeleteBucketLifecycle", &["lifecycle"]),
    ("DeleteBucketOwnershipControls", &["ownershipControls"]),
    ("DeleteBucketPolicy", &["policy"]),
    ("DeleteBucketReplication", &["replication"]),
    ("DeleteBucketTagging", &["tagging"]),
    ("DeleteBucketWebsite", &["website"]),
    ("DeleteObject", &["versionId"]),
    ("DeleteObjects", &["delete"]),
    ("DeleteObjectTagging", &["tagging", "versionId"]),
    ("DeletePublicAccessBlock", &["publicAccessBlock"]),
    ("GetBucketAccelerateConfiguration", &["accelerate"]),
    ("GetBucketAcl", &["acl"]),
    ("GetBucketCors", &["cors"]),
    ("GetBucketEncryption", &["encryption"]),
    ("GetBucketLifecycleConfiguration", &["lifecycle"]),
    ("GetBucketLocation", &["location"]),
    ("GetBucketLogging", &["logging"]),
    ("GetBucketNotificationConfiguration", &["notification"]),
    ("GetBucketOwnershipControls", &["ownershipControls"]),
    ("GetBucketPolicy", &["policy"]),
    ("GetBucketPolicyStatus", &["policyStatus"]),
    ("GetBucketReplication", &["replication"]),
    ("GetBucketRequestPayment", &["requestPayment"]),
    ("GetBucketTagging", &["tagging"]),
    ("GetBucketVersioning", &["versioning"]),
    ("GetBucketWebsite", &["website"]),
    ("GetObject", READ),
    ("GetObjectAcl", &["acl", "versionId"]),
    ("GetObjectAttributes", &["attributes", "versionId"]),
    ("GetObjectLegalHold", &["legal-hold", "versionId"]),
    ("GetObjectLockConfiguration", &["object-lock"]),
    ("GetObjectRetention", &["retention", "versionId"]),
    ("GetObjectTagging", &["tagging", "versionId"]),
    ("GetPublicAccessBlock", &["publicAccessBlock"]),
    ("HeadBucket", &[]),
    ("HeadObject", READ),
    (
        "ListBuckets",
        &[
            "bucket-region",
            "continuation-token",
            "max-buckets",
            "prefix",
        ],
    ),
    (
        "ListMultipartUploads",
        &[
            "delimiter",
            "encoding-type",
            "key-marker",
            "max-uploads",
            "prefix",
            "upload-id-marker",
            "uploads",
        ],
    ),
    (
        "ListObjectVersions",
        &[
            "delimiter",
            "encoding-type",
            "key-marker",
            "max-keys",
            "prefix",
            "version-id-marker",
            "versions",
        ],
    ),
    (
        "ListObjects",
        &["delimiter", "encoding-type", "marker", "max-keys", "prefix"],
    ),
    (
        "ListObjectsV2",
        &[
            "continuation-token",
            "delimiter",
            "encoding-type",
            "fetch-owner",
            "list-type",
            "max-keys",
            "prefix",
            "start-after",
        ],
    ),
    (
        "ListParts",
        &["max-parts", "part-number-marker", "uploadId"],
    ),
    ("PutObject", &[]),
    ("PutObjectTagging", &["tagging", "versionId"]),
    ("UploadPart", &["partNumber", "uploadId"]),
    ("UploadPartCopy", &["partNumber", "uploadId"]),
];

/// The names by which S3 selects an operation, or which only some operations take, in its order of bytes.
const SELECTORS: &[&str] = &[
    "abac",
    "accelerate",
    "acl",
    "analytics",
    "annotation",
    "attributes",
    "cors",
    "delete",
    "encryption",
    "intelligent-tiering",
    "inventory",
    "legal-hold",
    "lifecycle",
    "location",
    "logging",
    "metadataAnnotationTable",
    "metadataConfiguration",
    "metadataInventoryTable",
    "metadataJournalTable",
    "metadataTable",
    "metrics",
    "notification",
    "object-lock",
    "ownershipControls",
    "partNumber",
    "policy",
    "policyStatus",
    "publicAccessBlock",
    "renameObject",
    "replication",
    "requestPayment",
    "restore",
    "retention",
    "select",
    "session",
    "tagging",
    "torrent",
    "uploadId",
    "uploads",
    "versionId",
    "versioning",
    "versions",
    "website",
];
/// Minimum length of a selector that is in no list.
const MIN_SELECTOR: usize = 4;

/// Prefix of the names of Amazon's own header fields.
const AMAZON: &str = "x-amz-";
/// Parameters that begin like Amazon's header fields, and belong to a signature, or change nothing here.
const HARMLESS: [&str; 15] = [
    "x-amz-acl",
    "x-amz-algorithm",
    "x-amz-content-sha256",
    "x-amz-credential",
    "x-amz-date",
    "x-amz-expected-bucket-owner",
    "x-amz-expires",
    "x-amz-request-payer",
    "x-amz-sdk-checksum-algorithm",
    "x-amz-security-token",
    "x-amz-signature",
    "x-amz-signedheaders",
    "x-amz-source-expected-bucket-owner",
    "x-amz-storage-class",
    "x-amz-user-agent",
];
/// The SDKs' name of the operation that they call.
const SDK_NAME: &str = "x-id";

/// Asks for encryption of the object that is written.
const ENCRYPTION: &str = "x-amz-server-side-encryption";
/// The operations that write an object with what its header fields say.
const WRITING: [&str; 3] = ["CopyObject", "CreateMultipartUpload", "PutObject"];
const UNENCRYPTED: &str = "this gateway does not encrypt. If its disk or its store does, start it with --encrypted-at-rest; \
                           otherwise, omit x-amz-server-side-encryption";

/// Prefixes of the header fields for what an object wouldn't have, or for conditions that aren't evaluated.
const REFUSED: [(&str, &str); 7] = [
    ("x-amz-server-side-encryption", "server-side encryption"),
    (
        "x-amz-copy-source-server-side-encryption",
        "server-side encryption",
    ),
    ("x-amz-object-lock-", "object lock"),
    ("x-amz-website-redirect-location", "a redirect"),
    ("x-amz-write-offset-bytes", "an append"),
    ("x-amz-rename-source", "a rename"),
    ("x-amz-if-match-", "a condition on size or date"),
];
/// The operations that write, and evaluate the conditions of their requests. Others would ignore them.
const CONDITIONAL: [&str; 6] = [
    "CompleteMultipartUpload",
    "CopyObject",
    "DeleteObject",
    "DeleteObjectTagging",
    "PutObject",
    "PutObjectTagging",
];
const TAGGING: &str = "x-amz-tagging";
const TRAILER: &str = "x-amz-trailer";
const SDK_ALGORITHM: &str = "x-amz-sdk-checksum-algorithm";
/// The fields that begin like checksums', and aren't checksums.
const ABOUT_CHECKSUMS: [&str; 3] = ["algorithm", "mode", "type"];

/// The header fields with the owner that a client expects.
const OWNERS: [&str; 2] = [
    "x-amz-expected-bucket-owner",
    "x-amz-source-expected-bucket-owner",
];

/// Returns the checksums of an operation's document, or `None` if its body is none.
pub(crate) fn document(operation: &str) -> Option<DocumentDigests> {
    match operation {
        "CreateBucket" | "DeleteObjects" | "PutObjectTagging" => Some(DocumentDigests::All),
        "CompleteMultipartUpload" => Some(DocumentDigests::Md5),
        _ => None,
    }
}

/// What a request asks for, apart from its operation.
pub(crate) struct RequestOptions<'a> {
    pub(crate) method: &'a Method,
    pub(crate) query: &'a [(String, String)],
    pub(crate) headers: &'a HeaderMap,
}

impl RequestOptions<'_> {
    /// Refuses a request unless it is for this operation, which is served, and asks for nothing that would be ignored.
    pub(crate) fn check(&self, operation: &str, is_encrypted: bool) -> S3Result<()> {
        let Some((_, own)) = SERVED.iter().find(|(name, _)| *name == operation) else {
            return Err(s3_error!(NotImplemented, "{operation} is not implemented"));
        };
        for (name, value) in self
            .query
            .iter()
            .filter(|(name, _)| !own.contains(&name.as_str()))
        {
            let is_other_operation =
                || !self.method.is_safe() && !value.is_empty() && value != operation;
            if name == SDK_NAME {
                refuse(is_other_operation(), &format!("the operation {value}"))?;
            } else if is_of_amazon(name) {
                let what = format!("{name} in the URL");
                refuse(!is_harmless(&name.to_ascii_lowercase()), &what)?;
            } else {
                refuse(
                    is_selector(name, value),
                    &format!("?{name} of this request"),
                )?;
            }
        }
        if !self.method.is_safe() && !CONDITIONAL.contains(&operation) {
            let ignored = Preconditions::WRITE_HEADERS
                .into_iter()
                .find(|name| self.headers.contains_key(name));
            if let Some(name) = ignored {
                refuse(true, &format!("{name} of {operation}"))?;
            }
        }
        self.check_headers(WRITING.contains(&operation), is_encrypted)
    }

    /// Refuses header fields for what an object wouldn't have.
    fn check_headers(&self, writes: bool, is_encrypted: bool) -> S3Result<()> {
        for (name, value) in self.headers {
            let name = name.as_str();
            if !name.starts_with(AMAZON) {
                continue;
            }
            if name == ENCRYPTION && value == ServerSideEncryption::AES256 && writes {
                if !is_encrypted {
                    return Err(s3_error!(NotImplemented, "{UNENCRYPTED}"));
                }
                continue;
            }
            let refused = REFUSED.iter().find(|(prefix, _)| name.starts_with(prefix));
            refuse(refused.is_some(), refused.map_or("", |(_, what)| what))?;
            if name == SDK_ALGORITHM
                && !self
                    .headers
                    .keys()
                    .any(|name| is_checksum(name.as_str()) || name == TRAILER)
            {
                let message = "x-amz-sdk-checksum-algorithm needs a checksum: send it in a header or in a trailer";
                return Err(s3_error!(InvalidRequest, "{message}"));
            }
            refuse(name == TAGGING && !writes && !value.is_empty(), "tagging")?;
            refuse(is_unknown_checksum(name), name)?;
            if name == TRAILER {
                let names = value
                    .to_str()
                    .unwrap_or_default()
                    .split(',')
                    .map(|name| name.trim().to_ascii_lowercase());
                for name in names {
                    refuse(is_unknown_checksum(&name), &name)?;
                }
            }
        }
        Ok(())
    }
}

/// Refuses a request whose client expects another owner of a bucket than this account.
pub(crate) fn check_owner(
    account: &str,
    query: &[(String, String)],
    headers: &HeaderMap,
) -> S3Result<()> {
    let in_headers = OWNERS
        .iter()
        .flat_map(|name| headers.get_all(*name))
        .map(HeaderValue::as_bytes);
    let in_query = query
        .iter()
        .filter(|(name, _)| OWNERS.iter().any(|owner| name.eq_ignore_ascii_case(owner)));
    let mut expected = in_headers.chain(in_query.map(|(_, owner)| owner.as_bytes()));
    if expected.any(|owner| owner != account.as_bytes()) {
        return Err(s3_error!(
            AccessDenied,
            "the bucket has another owner: its owner is the account {account}"
        ));
    }
    Ok(())
}

/// Returns `true` for the name of one of Amazon's own header fields, in any case.
fn is_of_amazon(name: &str) -> bool {
    name.get(..AMAZON.len())
        .is_some_and(|prefix| prefix.eq_ignore_ascii_case(AMAZON))
}

/// Returns `true` for a parameter, in lower case, that is one of a signature, or changes nothing here.
fn is_harmless(name: &str) -> bool {
    HARMLESS.contains(&name) || name.starts_with(CHECKSUM)
}

/// Returns `true` for a checksum of an algorithm that isn't computed.
fn is_unknown_checksum(name: &str) -> bool {
    let algorithm = name.strip_prefix(CHECKSUM);
    algorithm.is_some_and(|name| {
        !ABOUT_CHECKSUMS.contains(&name) && DigestAlgorithm::named(name).is_none()
    })
}

/// Returns `true` for a header field with a checksum, or with another digest of the body.
fn is_checksum(name: &str) -> bool {
    name == "content-md5"
        || name
            .strip_prefix(CHECKSUM)
            .is_some_and(|name| !ABOUT_CHECKSUMS.contains(&name))
}

/// Refuses a list of objects to delete that has neither a checksum nor a hash: its bytes may have changed on their way.
pub(crate) fn require_checksum(headers: &HeaderMap) -> S3Result<()> {
    let has_hash = headers
        .get(BODY_HASH)
        .is_some_and(|hash| is_hash(hash.as_bytes()));
    if has_hash || headers.keys().any(|name| is_checksum(name.as_str())) {
        return Ok(());
    }
    Err(s3_error!(
        InvalidRequest,
        "a list of objects to delete needs a checksum: send Content-MD5 or x-amz-checksum-crc32"
    ))
}

/// Returns `true` if a name selects another operation.
fn is_selector(name: &str, value: &str) -> bool {
    if SELECTORS.binary_search(&name).is_ok() {
        return true;
    }
    let is_parameter = SERVED
        .iter()
        .any(|(_, parameters)| parameters.contains(&name));
    let is_word = name.len() >= MIN_SELECTOR
        && name
            .bytes()
            .next()
            .is_some_and(|byte| byte.is_ascii_alphabetic());
    value.is_empty() && is_word && !is_parameter
}

#[cfg(test)]
mod tests {
    use http::HeaderName;
    use s3s::S3ErrorCode;

    use super::*;
    use crate::signature;

    fn code(
        operation: &str,
        method: &Method,
        query: &str,
        headers: &[(&'static str, &str)],
    ) -> Option<S3ErrorCode> {
        let field = |(name, value): &(&'static str, &str)| {
            (
                HeaderName::from_static(name),
                HeaderValue::from_str(value).unwrap(),
            )
        };
        let headers = headers.iter().map(field).collect();
        let asked = RequestOptions {
            method,
            query: &signature::parameters(query),
            headers: &headers,
        };
        asked
            .check(operation, false)
            .err()
            .map(|error| error.code().clone())
    }

    #[test]
    fn a_name_that_may_select_another_operation_is_refused() {
        assert!(SELECTORS.is_sorted(), "they are found by binary search");
        let put = |query: &str| code("PutObject", &Method::PUT, query, &[]);
        for ignored in [
            "",
            "foo",
            "v",
            "1700000000",
            "x-id",
            "x-id=PutObject",
            "version=2",
            "prefix=a",
            "start-after=",
            "X-Amz-Signature=0",
            "x-amz-acl=private",
            "x-amz-checksum-crc32=AAAAAA%3D%3D",
        ] {
            assert_eq!(put(ignored), None, "?{ignored}");
        }
        for refused in [
            "renameObject",
            "renameObject=",
            "%72enameObject",
            "acl",
            "acl=1",
            "tomorrow",
            "x-id=CopyObject",
            "uploadId=1",
            "partNumber=1",
            "versionId=null",
            "x-amz-copy-source=%2Fa%2Fb",
            "X-Amz-Meta-A=b",
            "foo&tomorrow",
        ] {
            assert_eq!(
                put(refused),
                Some(S3ErrorCode::NotImplemented),
                "?{refused}"
            );
        }
        assert_eq!(
            code("UploadPart", &Method::PUT, "partNumber=1&uploadId=1", &[]),
            None
        );
        assert_eq!(
            code(
                "HeadObject",
                &Method::HEAD,
                "x-id=GetObject&versionId=null",
                &[]
            ),
            None
        );
        assert_eq!(
            code("PutObjectAcl", &Method::PUT, "acl", &[]),
            Some(S3ErrorCode::NotImplemented)
        );
    }

    #[test]
    fn a_part_of_a_request_for_what_an_object_would_not_have_is_refused() {
        let put = |name, value| code("PutObject", &Method::PUT, "", &[(name, value)]);
        for (name, value) in [
            ("x-amz-server-side-encryption-customer-key", "a"),
            ("x-amz-server-side-encryption-aws-kms-key-id", "a"),
            ("x-amz-copy-source-server-side-encryption-customer-key", "a"),
            (
                "x-amz-object-lock-retain-until-date",
                "2030-01-01T00:00:00Z",
            ),
            ("x-amz-website-redirect-location", "/b"),
            ("x-amz-rename-source", "/a/b"),
            ("x-amz-write-offset-bytes", "0"),
            ("x-amz-if-match-size", "0"),
            ("x-amz-checksum-sha512", "a"),
            (
                "x-amz-trailer",
                "x-amz-checksum-crc32, X-Amz-Checksum-Xxhash64",
            ),
        ] {
            assert_eq!(
                put(name, value),
                Some(S3ErrorCode::NotImplemented),
                "{name}"
            );
        }
        for (name, value) in [
            ("x-amz-tagging", "a=b"),
            ("x-amz-tagging-directive", "COPY"),
            ("x-amz-checksum-sha256", "a"),
            ("x-amz-checksum-mode", "ENABLED"),
            ("x-amz-trailer", "x-amz-checksum-crc32"),
            ("x-amz-storage-class", "GLACIER"),
            ("x-amz-meta-a", "b"),
        ] {
            assert_eq!(put(name, value), None, "{name}");
        }
    }

    #[test]
    fn only_a_write_of_an_object_has_tags_and_encryption() {
        let tags = [("x-amz-tagging", "a=b")];
        for operation in ["PutObject", "CopyObject", "CreateMultipartUpload"] {
            let query = if operation == "CreateMultipartUpload" {
                "uploads"
            } else {
                ""
            };
            assert_eq!(
                code(operation, &Method::PUT, query, &tags),
                None,
                "{operation}"
            );
            for (encryption, is_taken) in [
                ("AES256", true),
                ("aws:kms", false),
                ("AES256, aws:kms", false),
            ] {
                let value = HeaderValue::from_static(encryption);
                let headers = [(HeaderName::from_static(ENCRYPTION), value)]
                    .into_iter()
                    .collect();
                let asked = RequestOptions {
                    method: &Method::PUT,
                    query: &[],
                    headers: &headers,
                };
                assert_eq!(
                    asked.check(operation, true).is_ok(),
                    is_taken,
                    "{operation} {encryption}"
                );
                assert!(
                    asked.check(operation, false).is_err(),
                    "{operation} {encryption}"
                );
                assert!(asked.check("UploadPart", true).is_err(), "{encryption}");
            }
        }
        for operation in [
            "UploadPart",
            "CompleteMultipartUpload",
            "PutObjectTagging",
            "DeleteObject",
            "GetObject",
        ] {
            assert_eq!(
                code(operation, &Method::PUT, "", &tags),
                Some(S3ErrorCode::NotImplemented),
                "{operation}"
            );
        }
    }

    #[test]
    fn an_owner_that_is_not_the_account_is_refused() {
        let check = |query: &str, headers: &[(&'static str, &str)]| {
            let field = |(name, value): &(&'static str, &str)| {
                (
                    HeaderName::from_static(name),
                    HeaderValue::from_str(value).unwrap(),
                )
            };
            let headers = headers.iter().map(field).collect();
            check_owner("photos", &signature::parameters(query), &headers).is_ok()
        };
        assert!(check("", &[]) && check("", &[(OWNERS[0], "photos"), (OWNERS[1], "photos")]));
        assert!(
            !check("", &[(OWNERS[0], "999999999999")]) && !check("", &[(OWNERS[1], "reports")])
        );
        assert!(
            !check("", &[(OWNERS[0], "photos"), (OWNERS[0], "reports")])
                && !check("", &[(OWNERS[0], "")])
        );
        assert!(
            check("X-Amz-Expected-Bucket-Owner=photos", &[])
                && !check("x-amz-expected-bucket-owner=reports", &[])
        );
    }
}
