//! The operations of S3, each carried out by the module of its subject.

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
use crate::{buckets, copy, multipart, objects, settings, tagging};

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
    delete_object_tagging: DeleteObjectTaggingInput => DeleteObjectTaggingOutput, tagging::delete;
    get_object_tagging: GetObjectTaggingInput => GetObjectTaggingOutput, tagging::get;
    put_object_tagging: PutObjectTaggingInput => PutObjectTaggingOutput, tagging::put;
}
