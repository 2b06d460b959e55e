//! The operations of S3, each carried out by the module of its subject.
//!
//! - `buckets` are containers, and lists their objects.
//! - `objects` writes, reads and deletes objects, and `copy` copies them. `multipart` writes them in parts.
//! - `tagging` reads and changes the tags of an object alone.
//! - `absent_settings` tells what a bucket or an object doesn't have here, as S3 does.

use s3s::dto::{
    AbortMultipartUploadInput, AbortMultipartUploadOutput, CompleteMultipartUploadInput,
    CompleteMultipartUploadOutput, CopyObjectInput, CopyObjectOutput, CreateBucketInput,
    CreateBucketOutput, CreateMultipartUploadInput, CreateMultipartUploadOutput,
    DeleteBucketCorsInput, DeleteBucketCorsOutput, DeleteBucketEncryptionInput,
    DeleteBucketEncryptionOutput, DeleteBucketInput, DeleteBucketLifecycleInput,
    DeleteBucketLifecycleOutput, DeleteBucketOutput, DeleteBucketOwnershipControlsInput,
    DeleteBucketOwnershipControlsOutput, DeleteBucketPolicyInput, DeleteBucketPolicyOutput,
    DeleteBucketReplicationInput, DeleteBucketReplicationOutput, DeleteBucketTaggingInput,
    DeleteBucketTaggingOutput, DeleteBucketWebsiteInput, DeleteBucketWebsiteOutput,
    DeleteObjectInput, DeleteObjectOutput, DeleteObjectTaggingInput, DeleteObjectTaggingOutput,
    DeleteObjectsInput, DeleteObjectsOutput, DeletePublicAccessBlockInput,
    DeletePublicAccessBlockOutput, GetBucketAccelerateConfigurationInput,
    GetBucketAccelerateConfigurationOutput, GetBucketAclInput, GetBucketAclOutput,
    GetBucketCorsInput, GetBucketCorsOutput, GetBucketEncryptionInput, GetBucketEncryptionOutput,
    GetBucketLifecycleConfigurationInput, GetBucketLifecycleConfigurationOutput,
    GetBucketLocationInput, GetBucketLocationOutput, GetBucketLoggingInput, GetBucketLoggingOutput,
    GetBucketNotificationConfigurationInput, GetBucketNotificationConfigurationOutput,
    GetBucketOwnershipControlsInput, GetBucketOwnershipControlsOutput, GetBucketPolicyInput,
    GetBucketPolicyOutput, GetBucketPolicyStatusInput, GetBucketPolicyStatusOutput,
    GetBucketReplicationInput, GetBucketReplicationOutput, GetBucketRequestPaymentInput,
    GetBucketRequestPaymentOutput, GetBucketTaggingInput, GetBucketTaggingOutput,
    GetBucketVersioningInput, GetBucketVersioningOutput, GetBucketWebsiteInput,
    GetBucketWebsiteOutput, GetObjectAclInput, GetObjectAclOutput, GetObjectAttributesInput,
    GetObjectAttributesOutput, GetObjectInput, GetObjectLegalHoldInput, GetObjectLegalHoldOutput,
    GetObjectLockConfigurationInput, GetObjectLockConfigurationOutput, GetObjectOutput,
    GetObjectRetentionInput, GetObjectRetentionOutput, GetObjectTaggingInput,
    GetObjectTaggingOutput, GetPublicAccessBlockInput, GetPublicAccessBlockOutput, HeadBucketInput,
    HeadBucketOutput, HeadObjectInput, HeadObjectOutput, ListBucketsInput, ListBucketsOutput,
    ListMultipartUploadsInput, ListMultipartUploadsOutput, ListObjectVersionsInput,
    ListObjectVersionsOutput, ListObjectsInput, ListObjectsOutput, ListObjectsV2Input,
    ListObjectsV2Output, ListPartsInput, ListPartsOutput, PutObjectInput, PutObjectOutput,
    PutObjectTaggingInput, PutObjectTaggingOutput, UploadPartCopyInput, UploadPartCopyOutput,
    UploadPartInput, UploadPartOutput,
};
use s3s::{S3, S3Request, S3Response, S3Result};

use crate::backend::Backend;

mod absent_settings;
mod buckets;
mod copy;
pub(crate) mod multipart;
mod objects;
mod tagging;

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
    list_objects: ListObjectsInput => ListObjectsOutput, buckets::list_objects;
    list_objects_v2: ListObjectsV2Input => ListObjectsV2Output, buckets::list_objects_v2;
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
    list_object_versions: ListObjectVersionsInput => ListObjectVersionsOutput, buckets::list_versions;
    delete_bucket_policy: DeleteBucketPolicyInput => DeleteBucketPolicyOutput, absent_settings::no_policy;
    delete_bucket_tagging: DeleteBucketTaggingInput => DeleteBucketTaggingOutput, absent_settings::no_tagging;
    delete_bucket_cors: DeleteBucketCorsInput => DeleteBucketCorsOutput, absent_settings::no_cors;
    delete_bucket_encryption: DeleteBucketEncryptionInput => DeleteBucketEncryptionOutput, absent_settings::no_encryption;
    delete_bucket_lifecycle: DeleteBucketLifecycleInput => DeleteBucketLifecycleOutput, absent_settings::no_lifecycle;
    delete_bucket_ownership_controls: DeleteBucketOwnershipControlsInput => DeleteBucketOwnershipControlsOutput,
        absent_settings::no_ownership_controls;
    delete_bucket_replication: DeleteBucketReplicationInput => DeleteBucketReplicationOutput, absent_settings::no_replication;
    delete_bucket_website: DeleteBucketWebsiteInput => DeleteBucketWebsiteOutput, absent_settings::no_website;
    delete_public_access_block: DeletePublicAccessBlockInput => DeletePublicAccessBlockOutput, absent_settings::no_public_access_block;
    get_bucket_accelerate_configuration: GetBucketAccelerateConfigurationInput => GetBucketAccelerateConfigurationOutput,
        absent_settings::accelerate;
    get_bucket_acl: GetBucketAclInput => GetBucketAclOutput, absent_settings::bucket_acl;
    get_bucket_cors: GetBucketCorsInput => GetBucketCorsOutput, absent_settings::cors;
    get_bucket_encryption: GetBucketEncryptionInput => GetBucketEncryptionOutput, absent_settings::encryption;
    get_bucket_lifecycle_configuration: GetBucketLifecycleConfigurationInput => GetBucketLifecycleConfigurationOutput,
        absent_settings::lifecycle;
    get_bucket_logging: GetBucketLoggingInput => GetBucketLoggingOutput, absent_settings::logging;
    get_bucket_notification_configuration: GetBucketNotificationConfigurationInput =>
        GetBucketNotificationConfigurationOutput, absent_settings::notification;
    get_bucket_ownership_controls: GetBucketOwnershipControlsInput => GetBucketOwnershipControlsOutput,
        absent_settings::ownership;
    get_bucket_policy: GetBucketPolicyInput => GetBucketPolicyOutput, absent_settings::policy;
    get_bucket_policy_status: GetBucketPolicyStatusInput => GetBucketPolicyStatusOutput, absent_settings::policy_status;
    get_bucket_replication: GetBucketReplicationInput => GetBucketReplicationOutput, absent_settings::replication;
    get_bucket_request_payment: GetBucketRequestPaymentInput => GetBucketRequestPaymentOutput,
        absent_settings::request_payment;
    get_bucket_tagging: GetBucketTaggingInput => GetBucketTaggingOutput, absent_settings::tagging;
    get_bucket_versioning: GetBucketVersioningInput => GetBucketVersioningOutput, absent_settings::versioning;
    get_bucket_website: GetBucketWebsiteInput => GetBucketWebsiteOutput, absent_settings::website;
    get_object_acl: GetObjectAclInput => GetObjectAclOutput, absent_settings::object_acl;
    get_object_legal_hold: GetObjectLegalHoldInput => GetObjectLegalHoldOutput, absent_settings::legal_hold;
    get_object_lock_configuration: GetObjectLockConfigurationInput => GetObjectLockConfigurationOutput,
        absent_settings::object_lock;
    get_object_retention: GetObjectRetentionInput => GetObjectRetentionOutput, absent_settings::retention;
    get_public_access_block: GetPublicAccessBlockInput => GetPublicAccessBlockOutput, absent_settings::public_access_block;
    delete_object_tagging: DeleteObjectTaggingInput => DeleteObjectTaggingOutput, tagging::delete;
    get_object_tagging: GetObjectTaggingInput => GetObjectTaggingOutput, tagging::get;
    put_object_tagging: PutObjectTaggingInput => PutObjectTaggingOutput, tagging::put;
}
