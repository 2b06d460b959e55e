//! Reads of what a bucket or an object can have on S3, and can't have here: each says so as S3 does.
//!
//! Clean-up tools, Terraform and S3 browsers read all settings before they do their work, and take a 501 for a failure. The codes and
//! statuses come from S3's [error responses](https://docs.aws.amazon.com/AmazonS3/latest/API/ErrorResponses.html), where it lists
//! them, and otherwise those that the tests of [ceph/s3-tests](https://github.com/ceph/s3-tests) expect, which were made against
//! Amazon. Writes of these settings stay refused: see [`request_rules`](crate::request_rules). Deletions succeed: there is
//! nothing to delete.

use http::StatusCode;
use s3s::auth::Credentials;
use s3s::dto::{
    DeleteBucketCorsInput, DeleteBucketCorsOutput, DeleteBucketEncryptionInput,
    DeleteBucketEncryptionOutput, DeleteBucketLifecycleInput, DeleteBucketLifecycleOutput,
    DeleteBucketOwnershipControlsInput, DeleteBucketOwnershipControlsOutput,
    DeleteBucketPolicyInput, DeleteBucketPolicyOutput, DeleteBucketReplicationInput,
    DeleteBucketReplicationOutput, DeleteBucketTaggingInput, DeleteBucketTaggingOutput,
    DeleteBucketWebsiteInput, DeleteBucketWebsiteOutput, DeletePublicAccessBlockInput,
    DeletePublicAccessBlockOutput, GetBucketAccelerateConfigurationInput,
    GetBucketAccelerateConfigurationOutput, GetBucketAclInput, GetBucketAclOutput,
    GetBucketCorsInput, GetBucketCorsOutput, GetBucketEncryptionInput, GetBucketEncryptionOutput,
    GetBucketLifecycleConfigurationInput, GetBucketLifecycleConfigurationOutput,
    GetBucketLoggingInput, GetBucketLoggingOutput, GetBucketNotificationConfigurationInput,
    GetBucketNotificationConfigurationOutput, GetBucketOwnershipControlsInput,
    GetBucketOwnershipControlsOutput, GetBucketPolicyInput, GetBucketPolicyOutput,
    GetBucketPolicyStatusInput, GetBucketPolicyStatusOutput, GetBucketReplicationInput,
    GetBucketReplicationOutput, GetBucketRequestPaymentInput, GetBucketRequestPaymentOutput,
    GetBucketTaggingInput, GetBucketTaggingOutput, GetBucketVersioningInput,
    GetBucketVersioningOutput, GetBucketWebsiteInput, GetBucketWebsiteOutput, GetObjectAclInput,
    GetObjectAclOutput, GetObjectLegalHoldInput, GetObjectLegalHoldOutput,
    GetObjectLockConfigurationInput, GetObjectLockConfigurationOutput, GetObjectRetentionInput,
    GetObjectRetentionOutput, GetPublicAccessBlockInput, GetPublicAccessBlockOutput, Grant,
    Grantee, Owner, Payer, Permission, ServerSideEncryptionByDefault,
    ServerSideEncryptionConfiguration, ServerSideEncryptionRule, Type,
};
use s3s::{S3Error, S3ErrorCode, S3Request, S3Response, S3Result};

use super::{buckets, objects};
use crate::backend::{Backend, refuse_version};

/// The settings that a bucket doesn't have: the status and the code with which S3 says so.
macro_rules! missing {
    ($($function:ident: $input:ty => $output:ty, $status:literal $code:literal, $what:literal;)*) => {
        $(
            pub(crate) async fn $function(
                backend: &Backend,
                request: S3Request<$input>,
            ) -> S3Result<S3Response<$output>> {
                buckets::find(backend, request.credentials.as_ref(), &request.input.bucket).await?;
                Err(not_configured($status, $code, $what))
            }
        )*
    };
}

missing! {
    policy: GetBucketPolicyInput => GetBucketPolicyOutput, 404 "NoSuchBucketPolicy", "policy";
    policy_status: GetBucketPolicyStatusInput => GetBucketPolicyStatusOutput, 404 "NoSuchBucketPolicy", "policy";
    tagging: GetBucketTaggingInput => GetBucketTaggingOutput, 404 "NoSuchTagSet", "tags";
    lifecycle: GetBucketLifecycleConfigurationInput => GetBucketLifecycleConfigurationOutput,
        404 "NoSuchLifecycleConfiguration", "lifecycle rules";
    cors: GetBucketCorsInput => GetBucketCorsOutput, 404 "NoSuchCORSConfiguration", "CORS rules of its own";
    website: GetBucketWebsiteInput => GetBucketWebsiteOutput, 404 "NoSuchWebsiteConfiguration", "website";
    replication: GetBucketReplicationInput => GetBucketReplicationOutput,
        404 "ReplicationConfigurationNotFoundError", "replication";
    object_lock: GetObjectLockConfigurationInput => GetObjectLockConfigurationOutput,
        404 "ObjectLockConfigurationNotFoundError", "object lock";
    public_access_block: GetPublicAccessBlockInput => GetPublicAccessBlockOutput,
        404 "NoSuchPublicAccessBlockConfiguration", "block of public access";
    ownership: GetBucketOwnershipControlsInput => GetBucketOwnershipControlsOutput,
        404 "OwnershipControlsNotFoundError", "ownership controls";
    // Settings of an object, but S3 looks at its bucket first.
    legal_hold: GetObjectLegalHoldInput => GetObjectLegalHoldOutput, 400 "InvalidRequest", "object lock";
    retention: GetObjectRetentionInput => GetObjectRetentionOutput, 400 "InvalidRequest", "object lock";
}

/// Deletions of settings that a bucket doesn't have. S3 takes them, and so do programs that clean up.
macro_rules! deletions {
    ($($function:ident: $input:ty => $output:ty;)*) => {
        $(
            pub(crate) async fn $function(
                backend: &Backend,
                request: S3Request<$input>,
            ) -> S3Result<S3Response<$output>> {
                buckets::find(backend, request.credentials.as_ref(), &request.input.bucket).await?;
                Ok(S3Response::new(<$output>::default()))
            }
        )*
    };
}

deletions! {
    no_policy: DeleteBucketPolicyInput => DeleteBucketPolicyOutput;
    no_tagging: DeleteBucketTaggingInput => DeleteBucketTaggingOutput;
    no_cors: DeleteBucketCorsInput => DeleteBucketCorsOutput;
    no_encryption: DeleteBucketEncryptionInput => DeleteBucketEncryptionOutput;
    no_lifecycle: DeleteBucketLifecycleInput => DeleteBucketLifecycleOutput;
    no_ownership_controls: DeleteBucketOwnershipControlsInput => DeleteBucketOwnershipControlsOutput;
    no_replication: DeleteBucketReplicationInput => DeleteBucketReplicationOutput;
    no_website: DeleteBucketWebsiteInput => DeleteBucketWebsiteOutput;
    no_public_access_block: DeletePublicAccessBlockInput => DeletePublicAccessBlockOutput;
}

/// The settings that a bucket always has, in the form that says that nothing is set.
macro_rules! empty {
    ($($function:ident: $input:ty => $output:ty, $answer:expr;)*) => {
        $(
            pub(crate) async fn $function(
                backend: &Backend,
                request: S3Request<$input>,
            ) -> S3Result<S3Response<$output>> {
                buckets::find(backend, request.credentials.as_ref(), &request.input.bucket).await?;
                Ok(S3Response::new($answer))
            }
        )*
    };
}

empty! {
    versioning: GetBucketVersioningInput => GetBucketVersioningOutput, GetBucketVersioningOutput::default();
    logging: GetBucketLoggingInput => GetBucketLoggingOutput, GetBucketLoggingOutput::default();
    accelerate: GetBucketAccelerateConfigurationInput => GetBucketAccelerateConfigurationOutput,
        GetBucketAccelerateConfigurationOutput::default();
    notification: GetBucketNotificationConfigurationInput => GetBucketNotificationConfigurationOutput,
        GetBucketNotificationConfigurationOutput::default();
    request_payment: GetBucketRequestPaymentInput => GetBucketRequestPaymentOutput,
        GetBucketRequestPaymentOutput { payer: Some(Payer::from_static(Payer::BUCKET_OWNER)) };
}

/// Returns the error for a setting that the bucket doesn't have.
fn not_configured(status: u16, code: &str, what: &str) -> S3Error {
    let code = S3ErrorCode::from_bytes(code.as_bytes())
        .unwrap_or_else(|| S3ErrorCode::Custom(code.into()));
    let mut error = S3Error::with_message(code, format!("the bucket has no {what}"));
    // The library has another status for some, and none for those that it doesn't know.
    error.set_status_code(StatusCode::from_u16(status).unwrap_or(StatusCode::NOT_FOUND));
    error
}

/// `GetBucketEncryption`: what the operator has said of the disk or the store.
pub(crate) async fn encryption(
    backend: &Backend,
    request: S3Request<GetBucketEncryptionInput>,
) -> S3Result<S3Response<GetBucketEncryptionOutput>> {
    buckets::find(backend, request.credentials.as_ref(), &request.input.bucket).await?;
    let Some(sse_algorithm) = backend.encryption() else {
        return Err(not_configured(
            404,
            "ServerSideEncryptionConfigurationNotFoundError",
            "encryption",
        ));
    };
    let default = ServerSideEncryptionByDefault {
        kms_master_key_id: None,
        sse_algorithm,
    };
    let rule = ServerSideEncryptionRule {
        apply_server_side_encryption_by_default: Some(default),
        ..ServerSideEncryptionRule::default()
    };
    let configuration = ServerSideEncryptionConfiguration { rules: vec![rule] };
    Ok(S3Response::new(GetBucketEncryptionOutput {
        server_side_encryption_configuration: Some(configuration),
    }))
}

/// `GetBucketAcl`: the account may do everything, and no one else anything.
pub(crate) async fn bucket_acl(
    backend: &Backend,
    request: S3Request<GetBucketAclInput>,
) -> S3Result<S3Response<GetBucketAclOutput>> {
    buckets::find(backend, request.credentials.as_ref(), &request.input.bucket).await?;
    let (owner, grants) = access(backend, request.credentials.as_ref())?;
    Ok(S3Response::new(GetBucketAclOutput {
        owner: Some(owner),
        grants: Some(grants),
    }))
}

/// `GetObjectAcl`, which is the bucket's.
pub(crate) async fn object_acl(
    backend: &Backend,
    request: S3Request<GetObjectAclInput>,
) -> S3Result<S3Response<GetObjectAclOutput>> {
    let S3Request {
        input, credentials, ..
    } = request;
    refuse_version(input.version_id.as_deref())?;
    let blob = backend.blob(credentials.as_ref(), &input.bucket, &input.key)?;
    objects::find(backend, &blob).await?;
    let (owner, grants) = access(backend, credentials.as_ref())?;
    Ok(S3Response::new(GetObjectAclOutput {
        owner: Some(owner),
        grants: Some(grants),
        request_charged: None,
    }))
}

/// Returns the owner, and the only grant.
fn access(backend: &Backend, credentials: Option<&Credentials>) -> S3Result<(Owner, Vec<Grant>)> {
    let owner = backend.owner(credentials)?;
    let grantee = Grantee {
        display_name: owner.display_name.clone(),
        email_address: None,
        id: owner.id.clone(),
        type_: Type::from_static(Type::CANONICAL_USER),
        uri: None,
    };
    let permission = Some(Permission::from_static(Permission::FULL_CONTROL));
    Ok((
        owner,
        vec![Grant {
            grantee: Some(grantee),
            permission,
        }],
    ))
}
