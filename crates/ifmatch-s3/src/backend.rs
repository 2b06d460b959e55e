//! The operations of S3, each carried out by the module of its subject.

use ifmatch_blob::accounts::{Account, Accounts};
use ifmatch_blob::dialect::Context;
use ifmatch_blob::name::{BlobName, BlobPath, ContainerName};
use s3s::auth::Credentials;
use s3s::dto::{
    AbortMultipartUploadInput, AbortMultipartUploadOutput, CompleteMultipartUploadInput, CompleteMultipartUploadOutput,
    CopyObjectInput, CopyObjectOutput, CreateBucketInput, CreateBucketOutput, CreateMultipartUploadInput,
    CreateMultipartUploadOutput, DeleteBucketInput, DeleteBucketOutput, DeleteObjectInput, DeleteObjectOutput,
    DeleteObjectsInput, DeleteObjectsOutput, GetBucketLocationInput, GetBucketLocationOutput, GetBucketVersioningInput,
    GetBucketVersioningOutput, GetObjectAttributesInput, GetObjectAttributesOutput, GetObjectInput, GetObjectOutput,
    HeadBucketInput, HeadBucketOutput, HeadObjectInput, HeadObjectOutput, ListBucketsInput, ListBucketsOutput,
    ListMultipartUploadsInput, ListMultipartUploadsOutput, ListObjectsInput, ListObjectsOutput, ListObjectsV2Input,
    ListObjectsV2Output, ListPartsInput, ListPartsOutput, PutObjectInput, PutObjectOutput, UploadPartCopyInput,
    UploadPartCopyOutput, UploadPartInput, UploadPartOutput,
};
use s3s::{S3, S3Request, S3Response, S3Result, s3_error};

use crate::{authorization, buckets, copy, error, multipart, objects};

/// The store, and the accounts that may use it.
#[derive(Clone)]
pub(crate) struct Backend {
    pub(crate) context: Context,
    pub(crate) accounts: Accounts,
}

impl Backend {
    /// Returns the account that signed a request. A request without a signature, which [`access`](crate::access) has admitted, reads
    /// the buckets of the default account.
    pub(crate) fn account(&self, credentials: Option<&Credentials>) -> S3Result<&Account> {
        let account = match credentials {
            Some(credentials) => self.accounts.get(&credentials.access_key),
            None => self.accounts.iter().next(),
        };
        account.ok_or_else(authorization::unsigned)
    }

    /// Returns the container of a bucket.
    pub(crate) fn container(&self, credentials: Option<&Credentials>, bucket: &str) -> S3Result<ContainerName> {
        let account = self.account(credentials)?;
        self.accounts.container(account, bucket).ok_or_else(|| {
            let rule = "a bucket's name has 3 to 63 characters: a-z, 0-9, and single hyphens between them";
            s3_error!(InvalidBucketName, "{rule}")
        })
    }

    /// Returns the blob of an object.
    pub(crate) fn blob(&self, credentials: Option<&Credentials>, bucket: &str, key: &str) -> S3Result<BlobPath> {
        let container = self.container(credentials, bucket)?;
        Ok(BlobPath { container, name: BlobName::new(key).map_err(error::of_name)? })
    }
}

/// Refuses a request for something that is not implemented, rather than to ignore it.
pub(crate) fn refuse(requested: bool, what: &str) -> S3Result<()> {
    if requested { Err(s3_error!(NotImplemented, "{what} is not implemented: omit it")) } else { Ok(()) }
}

/// Refuses versions of objects, which this service does not keep.
pub(crate) fn refuse_version(version: Option<&str>) -> S3Result<()> {
    match version {
        None | Some("null") => Ok(()),
        Some(_) => Err(s3_error!(NoSuchVersion, "buckets are not versioned: omit the version id")),
    }
}

type Answer<T> = S3Result<S3Response<T>>;

#[async_trait::async_trait]
impl S3 for Backend {
    async fn list_buckets(&self, request: S3Request<ListBucketsInput>) -> Answer<ListBucketsOutput> {
        buckets::list(self, request).await
    }

    async fn create_bucket(&self, request: S3Request<CreateBucketInput>) -> Answer<CreateBucketOutput> {
        buckets::create(self, request).await
    }

    async fn head_bucket(&self, request: S3Request<HeadBucketInput>) -> Answer<HeadBucketOutput> {
        buckets::find(self, request.credentials.as_ref(), &request.input.bucket).await?;
        Ok(S3Response::new(HeadBucketOutput::default()))
    }

    async fn get_bucket_location(&self, request: S3Request<GetBucketLocationInput>) -> Answer<GetBucketLocationOutput> {
        buckets::find(self, request.credentials.as_ref(), &request.input.bucket).await?;
        Ok(S3Response::new(GetBucketLocationOutput::default()))
    }

    async fn get_bucket_versioning(
        &self,
        request: S3Request<GetBucketVersioningInput>,
    ) -> Answer<GetBucketVersioningOutput> {
        buckets::find(self, request.credentials.as_ref(), &request.input.bucket).await?;
        Ok(S3Response::new(GetBucketVersioningOutput::default()))
    }

    async fn delete_bucket(&self, request: S3Request<DeleteBucketInput>) -> Answer<DeleteBucketOutput> {
        buckets::delete(self, request).await
    }

    async fn list_objects(&self, request: S3Request<ListObjectsInput>) -> Answer<ListObjectsOutput> {
        buckets::version_1(self, request).await
    }

    async fn list_objects_v2(&self, request: S3Request<ListObjectsV2Input>) -> Answer<ListObjectsV2Output> {
        buckets::version_2(self, request).await
    }

    async fn put_object(&self, request: S3Request<PutObjectInput>) -> Answer<PutObjectOutput> {
        objects::put(self, request).await
    }

    async fn get_object(&self, request: S3Request<GetObjectInput>) -> Answer<GetObjectOutput> {
        objects::get(self, authorization::verified(request)).await
    }

    async fn head_object(&self, request: S3Request<HeadObjectInput>) -> Answer<HeadObjectOutput> {
        objects::head(self, authorization::verified(request)).await
    }

    async fn get_object_attributes(
        &self,
        request: S3Request<GetObjectAttributesInput>,
    ) -> Answer<GetObjectAttributesOutput> {
        objects::attributes(self, request).await
    }

    async fn delete_object(&self, request: S3Request<DeleteObjectInput>) -> Answer<DeleteObjectOutput> {
        objects::delete(self, request).await
    }

    async fn delete_objects(&self, request: S3Request<DeleteObjectsInput>) -> Answer<DeleteObjectsOutput> {
        objects::delete_several(self, request).await
    }

    async fn copy_object(&self, request: S3Request<CopyObjectInput>) -> Answer<CopyObjectOutput> {
        copy::copy(self, request).await
    }

    async fn create_multipart_upload(
        &self,
        request: S3Request<CreateMultipartUploadInput>,
    ) -> Answer<CreateMultipartUploadOutput> {
        multipart::create(self, request).await
    }

    async fn upload_part(&self, request: S3Request<UploadPartInput>) -> Answer<UploadPartOutput> {
        multipart::put_part(self, request).await
    }

    async fn upload_part_copy(&self, request: S3Request<UploadPartCopyInput>) -> Answer<UploadPartCopyOutput> {
        multipart::copy_part(self, request).await
    }

    async fn complete_multipart_upload(
        &self,
        request: S3Request<CompleteMultipartUploadInput>,
    ) -> Answer<CompleteMultipartUploadOutput> {
        multipart::complete(self, request).await
    }

    async fn abort_multipart_upload(
        &self,
        request: S3Request<AbortMultipartUploadInput>,
    ) -> Answer<AbortMultipartUploadOutput> {
        multipart::abort(self, request).await
    }

    async fn list_parts(&self, request: S3Request<ListPartsInput>) -> Answer<ListPartsOutput> {
        multipart::list_parts(self, request).await
    }

    async fn list_multipart_uploads(
        &self,
        request: S3Request<ListMultipartUploadsInput>,
    ) -> Answer<ListMultipartUploadsOutput> {
        multipart::list(self, request).await
    }
}
