//! The operations of S3, each carried out by the module of its subject.

use ifmatch_blob::accounts::{Account, Accounts};
use ifmatch_blob::dialect::Context;
use ifmatch_blob::name::{BlobName, BlobPath, ContainerName};
use s3s::auth::Credentials;
use s3s::dto::{
    AbortMultipartUploadInput, AbortMultipartUploadOutput, CompleteMultipartUploadInput, CompleteMultipartUploadOutput,
    CopyObjectInput, CopyObjectOutput, CreateBucketInput, CreateBucketOutput, CreateMultipartUploadInput,
    CreateMultipartUploadOutput, DeleteBucketCorsInput, DeleteBucketCorsOutput, DeleteBucketEncryptionInput,
    DeleteBucketEncryptionOutput, DeleteBucketInput, DeleteBucketLifecycleInput, DeleteBucketLifecycleOutput,
    DeleteBucketOutput, DeleteBucketOwnershipControlsInput, DeleteBucketOwnershipControlsOutput,
    DeleteBucketPolicyInput, DeleteBucketPolicyOutput, DeleteBucketReplicationInput, DeleteBucketReplicationOutput,
    DeleteBucketTaggingInput, DeleteBucketTaggingOutput, DeleteBucketWebsiteInput, DeleteBucketWebsiteOutput,
    DeleteObjectInput, DeleteObjectOutput, DeleteObjectTaggingInput, DeleteObjectTaggingOutput, DeleteObjectsInput,
    DeleteObjectsOutput, DeletePublicAccessBlockInput, DeletePublicAccessBlockOutput,
    GetBucketAccelerateConfigurationInput, GetBucketAccelerateConfigurationOutput, GetBucketAclInput,
    GetBucketAclOutput, GetBucketCorsInput, GetBucketCorsOutput, GetBucketEncryptionInput, GetBucketEncryptionOutput,
    GetBucketLifecycleConfigurationInput, GetBucketLifecycleConfigurationOutput, GetBucketLocationInput,
    GetBucketLocationOutput, GetBucketLoggingInput, GetBucketLoggingOutput, GetBucketNotificationConfigurationInput,
    GetBucketNotificationConfigurationOutput, GetBucketOwnershipControlsInput, GetBucketOwnershipControlsOutput,
    GetBucketPolicyInput, GetBucketPolicyOutput, GetBucketPolicyStatusInput, GetBucketPolicyStatusOutput,
    GetBucketReplicationInput, GetBucketReplicationOutput, GetBucketRequestPaymentInput, GetBucketRequestPaymentOutput,
    GetBucketTaggingInput, GetBucketTaggingOutput, GetBucketVersioningInput, GetBucketVersioningOutput,
    GetBucketWebsiteInput, GetBucketWebsiteOutput, GetObjectAclInput, GetObjectAclOutput, GetObjectAttributesInput,
    GetObjectAttributesOutput, GetObjectInput, GetObjectLegalHoldInput, GetObjectLegalHoldOutput,
    GetObjectLockConfigurationInput, GetObjectLockConfigurationOutput, GetObjectOutput, GetObjectRetentionInput,
    GetObjectRetentionOutput, GetObjectTaggingInput, GetObjectTaggingOutput, GetPublicAccessBlockInput,
    GetPublicAccessBlockOutput, HeadBucketInput, HeadBucketOutput, HeadObjectInput, HeadObjectOutput, ListBucketsInput,
    ListBucketsOutput, ListMultipartUploadsInput, ListMultipartUploadsOutput, ListObjectVersionsInput,
    ListObjectVersionsOutput, ListObjectsInput, ListObjectsOutput, ListObjectsV2Input, ListObjectsV2Output,
    ListPartsInput, ListPartsOutput, Owner, PutObjectInput, PutObjectOutput, PutObjectTaggingInput,
    PutObjectTaggingOutput, ServerSideEncryption, UploadPartCopyInput, UploadPartCopyOutput, UploadPartInput,
    UploadPartOutput,
};
use s3s::{S3, S3Request, S3Response, S3Result, s3_error};

use crate::{authorization, buckets, copy, error, multipart, objects, settings, tags};

/// The store, and the accounts that may use it.
#[derive(Clone)]
pub(crate) struct Backend {
    pub(crate) context: Context,
    pub(crate) accounts: Accounts,
    /// The disk or the store encrypts, according to the operator.
    pub(crate) is_encrypted: bool,
}

impl Backend {
    /// Returns the account that signed a request. A request without a signature, which [`AccessCheck`](crate::authorization::AccessCheck) has admitted, reads
    /// the buckets of the default account.
    pub(crate) fn account(&self, credentials: Option<&Credentials>) -> S3Result<&Account> {
        let account = match credentials {
            Some(credentials) => self.accounts.get(&credentials.access_key),
            None => self.accounts.iter().next(),
        };
        account.ok_or_else(authorization::unsigned)
    }

    /// Returns the owner of all buckets of the account that signed a request.
    pub(crate) fn owner(&self, credentials: Option<&Credentials>) -> S3Result<Owner> {
        let name = Some(self.account(credentials)?.name().to_owned());
        Ok(Owner { display_name: name.clone(), id: name })
    }

    /// Returns the encryption of all objects, if the operator has said that there is one.
    pub(crate) fn encryption(&self) -> Option<ServerSideEncryption> {
        self.is_encrypted.then(|| ServerSideEncryption::from_static(ServerSideEncryption::AES256))
    }

    /// Returns the container of a bucket.
    pub(crate) fn container(&self, credentials: Option<&Credentials>, bucket: &str) -> S3Result<ContainerName> {
        let account = self.account(credentials)?;
        self.accounts.container(account, bucket).ok_or_else(|| {
            let rule = "this bucket name isn't 3 to 63 characters from a-z and 0-9, with single hyphens between them";
            s3_error!(InvalidBucketName, "{rule}")
        })
    }

    /// Returns an object's blob.
    pub(crate) fn blob(&self, credentials: Option<&Credentials>, bucket: &str, key: &str) -> S3Result<BlobPath> {
        let container = self.container(credentials, bucket)?;
        Ok(BlobPath { container, name: BlobName::new(key).map_err(error::of_name)? })
    }
}

/// Refuses a request for something that isn't implemented, rather than to ignore it.
pub(crate) fn refuse(requested: bool, what: &str) -> S3Result<()> {
    if requested { Err(s3_error!(NotImplemented, "{what} is not implemented: omit it")) } else { Ok(()) }
}

/// The id of the only version of an object in a bucket that was never versioned.
pub(crate) const NULL_VERSION: &str = "null";

/// Refuses versions of objects, which this service doesn't keep.
pub(crate) fn refuse_version(version: Option<&str>) -> S3Result<()> {
    match version {
        None | Some(NULL_VERSION) => Ok(()),
        Some("") => Err(s3_error!(InvalidArgument, "the version id is empty: omit it")),
        // An id is opaque, so none is malformed.
        Some(_) => Err(s3_error!(NoSuchVersion, "buckets are not versioned: omit the version id")),
    }
}

/// Carries out each operation by the function of its subject.
macro_rules! operations {
    ($($operation:ident: $input:ty => $output:ty, $function:path;)*) => {
        #[async_trait::async_trait]
        impl S3 for Backend {
            $(
                async fn $operation(&self, request: S3Request<$input>) -> S3Result<S3Response<$output>> {
                    $function(self, request).await
                }
            )*
        }
    };
}

operations! {
    list_buckets: ListBucketsInput => ListBucketsOutput, buckets::list;
    create_bucket: CreateBucketInput => CreateBucketOutput, buckets::create;
    head_bucket: HeadBucketInput => HeadBucketOutput, buckets::head;
    get_bucket_location: GetBucketLocationInput => GetBucketLocationOutput, buckets::location;
    delete_bucket: DeleteBucketInput => DeleteBucketOutput, buckets::delete;
    list_objects: ListObjectsInput => ListObjectsOutput, buckets::version_1;
    list_objects_v2: ListObjectsV2Input => ListObjectsV2Output, buckets::version_2;
    put_object: PutObjectInput => PutObjectOutput, objects::put;
    get_object: GetObjectInput => GetObjectOutput, objects::get;
    head_object: HeadObjectInput => HeadObjectOutput, objects::head;
    get_object_attributes: GetObjectAttributesInput => GetObjectAttributesOutput, objects::attributes;
    delete_object: DeleteObjectInput => DeleteObjectOutput, objects::delete;
    delete_objects: DeleteObjectsInput => DeleteObjectsOutput, objects::delete_several;
    copy_object: CopyObjectInput => CopyObjectOutput, copy::copy;
    create_multipart_upload: CreateMultipartUploadInput => CreateMultipartUploadOutput, multipart::create;
    upload_part: UploadPartInput => UploadPartOutput, multipart::put_part;
    upload_part_copy: UploadPartCopyInput => UploadPartCopyOutput, multipart::copy_part;
    complete_multipart_upload: CompleteMultipartUploadInput => CompleteMultipartUploadOutput, multipart::complete;
    abort_multipart_upload: AbortMultipartUploadInput => AbortMultipartUploadOutput, multipart::abort;
    list_parts: ListPartsInput => ListPartsOutput, multipart::list_parts;
    list_multipart_uploads: ListMultipartUploadsInput => ListMultipartUploadsOutput, multipart::list;
    list_object_versions: ListObjectVersionsInput => ListObjectVersionsOutput, buckets::versions;
    delete_bucket_policy: DeleteBucketPolicyInput => DeleteBucketPolicyOutput, settings::no_policy;
    delete_bucket_tagging: DeleteBucketTaggingInput => DeleteBucketTaggingOutput, settings::no_tagging;
    delete_bucket_cors: DeleteBucketCorsInput => DeleteBucketCorsOutput, settings::no_cors;
    delete_bucket_encryption: DeleteBucketEncryptionInput => DeleteBucketEncryptionOutput, settings::no_encryption;
    delete_bucket_lifecycle: DeleteBucketLifecycleInput => DeleteBucketLifecycleOutput, settings::no_lifecycle;
    delete_bucket_ownership_controls: DeleteBucketOwnershipControlsInput => DeleteBucketOwnershipControlsOutput, settings::no_ownership_controls;
    delete_bucket_replication: DeleteBucketReplicationInput => DeleteBucketReplicationOutput, settings::no_replication;
    delete_bucket_website: DeleteBucketWebsiteInput => DeleteBucketWebsiteOutput, settings::no_website;
    delete_public_access_block: DeletePublicAccessBlockInput => DeletePublicAccessBlockOutput, settings::no_public_access_block;
    get_bucket_accelerate_configuration: GetBucketAccelerateConfigurationInput => GetBucketAccelerateConfigurationOutput,
        settings::accelerate;
    get_bucket_acl: GetBucketAclInput => GetBucketAclOutput, settings::bucket_acl;
    get_bucket_cors: GetBucketCorsInput => GetBucketCorsOutput, settings::cors;
    get_bucket_encryption: GetBucketEncryptionInput => GetBucketEncryptionOutput, settings::encryption;
    get_bucket_lifecycle_configuration: GetBucketLifecycleConfigurationInput => GetBucketLifecycleConfigurationOutput,
        settings::lifecycle;
    get_bucket_logging: GetBucketLoggingInput => GetBucketLoggingOutput, settings::logging;
    get_bucket_notification_configuration: GetBucketNotificationConfigurationInput =>
        GetBucketNotificationConfigurationOutput, settings::notification;
    get_bucket_ownership_controls: GetBucketOwnershipControlsInput => GetBucketOwnershipControlsOutput,
        settings::ownership;
    get_bucket_policy: GetBucketPolicyInput => GetBucketPolicyOutput, settings::policy;
    get_bucket_policy_status: GetBucketPolicyStatusInput => GetBucketPolicyStatusOutput, settings::policy_status;
    get_bucket_replication: GetBucketReplicationInput => GetBucketReplicationOutput, settings::replication;
    get_bucket_request_payment: GetBucketRequestPaymentInput => GetBucketRequestPaymentOutput,
        settings::request_payment;
    get_bucket_tagging: GetBucketTaggingInput => GetBucketTaggingOutput, settings::tagging;
    get_bucket_versioning: GetBucketVersioningInput => GetBucketVersioningOutput, settings::versioning;
    get_bucket_website: GetBucketWebsiteInput => GetBucketWebsiteOutput, settings::website;
    get_object_acl: GetObjectAclInput => GetObjectAclOutput, settings::object_acl;
    get_object_legal_hold: GetObjectLegalHoldInput => GetObjectLegalHoldOutput, settings::legal_hold;
    get_object_lock_configuration: GetObjectLockConfigurationInput => GetObjectLockConfigurationOutput,
        settings::object_lock;
    get_object_retention: GetObjectRetentionInput => GetObjectRetentionOutput, settings::retention;
    get_public_access_block: GetPublicAccessBlockInput => GetPublicAccessBlockOutput, settings::public_access_block;
    delete_object_tagging: DeleteObjectTaggingInput => DeleteObjectTaggingOutput, tags::delete;
    get_object_tagging: GetObjectTaggingInput => GetObjectTaggingOutput, tags::get;
    put_object_tagging: PutObjectTaggingInput => PutObjectTaggingOutput, tags::put;
}
