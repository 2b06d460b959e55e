//! Buckets, which are containers, and the listings of their objects.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE;
use futures_util::TryStreamExt;
use ifmatch_blob::documents::{DocumentMemory, PAGE};
use ifmatch_blob::headers::BlobHeaders;
use ifmatch_blob::name::ContainerName;
use ifmatch_blob::store::{
    BlobEntry, ContainerInfo, Delete, Hierarchy, ListQuery, Listed, Listing, behind,
};
use ifmatch_core::date::Timestamp;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use s3s::auth::Credentials;
use s3s::dto::{
    Bucket, CommonPrefix, CreateBucketInput, CreateBucketOutput, DeleteBucketInput,
    DeleteBucketOutput, EncodingType, GetBucketLocationInput, GetBucketLocationOutput,
    HeadBucketInput, HeadBucketOutput, ListBucketsInput, ListBucketsOutput,
    ListObjectVersionsInput, ListObjectVersionsOutput, ListObjectsInput, ListObjectsOutput,
    ListObjectsV2Input, ListObjectsV2Output, Object, ObjectOwnership, ObjectStorageClass,
    ObjectVersion, ObjectVersionStorageClass, Owner,
};
use s3s::{S3Request, S3Response, S3Result, s3_error};

use crate::backend::{Backend, NULL_VERSION, refuse};
use crate::bodies::incoming::IncomingBody;
use crate::bodies::{document, memory};
use crate::{convert, error};

/// Maximum number of buckets of a page.
const MAX_BUCKETS: usize = 10_000;
/// Number of containers read from the store at a time.
const STEP: usize = 500;

/// `ListBuckets`.
pub(crate) async fn list(
    backend: &Backend,
    request: S3Request<ListBucketsInput>,
) -> S3Result<S3Response<ListBucketsOutput>> {
    let S3Request {
        input,
        credentials,
        extensions,
        ..
    } = request;
    let account = backend.account(credentials.as_ref())?;
    let mut memory = memory::of_response(backend, &extensions)?;
    let limit = match input.max_buckets.map(usize::try_from) {
        None => MAX_BUCKETS,
        Some(Ok(limit @ 1..=MAX_BUCKETS)) => limit,
        Some(_) => {
            return Err(s3_error!(
                InvalidArgument,
                "max-buckets must be from 1 to {MAX_BUCKETS}"
            ));
        }
    };
    let own = backend.accounts.prefix(account);
    let prefix = format!("{own}{}", input.prefix.as_deref().unwrap_or_default());
    let after = input
        .continuation_token
        .map(|token| format!("{own}{token}"));
    let query = ListQuery {
        prefix,
        after,
        ..ListQuery::first(STEP)
    };
    let mut containers = query.containers(&*backend.context.store);
    let mut buckets: Vec<Bucket> = Vec::new();
    while let Some(entry) = containers.try_next().await.map_err(error::plain)? {
        // Other names belong to the plain dialect, or to another account.
        let Some(name) = backend.accounts.name_of(account, &entry.name) else {
            continue;
        };
        if buckets.len() == limit {
            let continuation_token = buckets.last().and_then(|last| last.name.clone());
            let buckets = Some(buckets);
            return Ok(S3Response::new(ListBucketsOutput {
                buckets,
                continuation_token,
                ..Default::default()
            }));
        }
        memory
            .grow(name.len() + size_of::<Bucket>())
            .map_err(error::crowded)?;
        let created = entry
            .info
            .created
            .map(Timestamp::last_modified)
            .or(entry.info.last_modified);
        let creation_date = created.and_then(convert::timestamp);
        buckets.push(Bucket {
            name: Some(name.to_owned()),
            creation_date,
            ..Bucket::default()
        });
    }
    Ok(S3Response::new(ListBucketsOutput {
        buckets: Some(buckets),
        ..Default::default()
    }))
}

/// `CreateBucket`.
pub(crate) async fn create(
    backend: &Backend,
    request: S3Request<CreateBucketInput>,
) -> S3Result<S3Response<CreateBucketOutput>> {
    let S3Request {
        input,
        credentials,
        extensions,
        ..
    } = request;
    refuse(
        input.object_lock_enabled_for_bucket.unwrap_or_default(),
        "object lock",
    )?;
    let ownership = input.object_ownership.as_ref().map(ObjectOwnership::as_str);
    refuse(
        ownership.is_some_and(|kind| kind != ObjectOwnership::BUCKET_OWNER_ENFORCED),
        "another owner of objects",
    )?;
    let directory = input
        .create_bucket_configuration
        .is_some_and(|it| it.bucket.is_some() || it.location.is_some());
    refuse(directory, "a directory bucket")?;
    // `s3s` doesn't know them.
    let document = extensions
        .get::<IncomingBody>()
        .and_then(IncomingBody::document);
    refuse(
        document.is_some_and(|document| document::has_entries(document)),
        "a bucket with tags",
    )?;
    let container = backend.container(credentials.as_ref(), &input.bucket)?;
    let created = backend
        .context
        .store
        .create_container(&container, BlobHeaders::default())
        .await;
    created.map_err(error::plain)?;
    Ok(S3Response::new(CreateBucketOutput {
        location: Some(format!("/{}", input.bucket)),
    }))
}

/// `DeleteBucket`, which must be empty.
pub(crate) async fn delete(
    backend: &Backend,
    request: S3Request<DeleteBucketInput>,
) -> S3Result<S3Response<DeleteBucketOutput>> {
    let S3Request {
        input, credentials, ..
    } = request;
    let container = backend.container(credentials.as_ref(), &input.bucket)?;
    let deleted = backend
        .context
        .store
        .delete_empty_container(&container, Delete::default())
        .await;
    deleted.map_err(error::plain)?;
    Ok(S3Response::new(DeleteBucketOutput::default()))
}

/// `HeadBucket`.
pub(crate) async fn head(
    backend: &Backend,
    request: S3Request<HeadBucketInput>,
) -> S3Result<S3Response<HeadBucketOutput>> {
    find(backend, request.credentials.as_ref(), &request.input.bucket).await?;
    Ok(S3Response::new(HeadBucketOutput::default()))
}

/// `GetBucketLocation`.
pub(crate) async fn location(
    backend: &Backend,
    request: S3Request<GetBucketLocationInput>,
) -> S3Result<S3Response<GetBucketLocationOutput>> {
    find(backend, request.credentials.as_ref(), &request.input.bucket).await?;
    Ok(S3Response::new(GetBucketLocationOutput::default()))
}

/// Returns the container of a bucket, which must exist.
pub(crate) async fn find(
    backend: &Backend,
    credentials: Option<&Credentials>,
    bucket: &str,
) -> S3Result<(ContainerName, ContainerInfo)> {
    let container = backend.container(credentials, bucket)?;
    let found = backend
        .context
        .store
        .container(&container)
        .await
        .map_err(error::plain)?;
    let found = found.ok_or_else(error::no_such_bucket)?;
    Ok((container, found))
}

/// Maximum number of names per page.
const MAX_KEYS: i32 = 1000;
/// Characters that names keep in a listing with `encoding-type=url`.
const KEPT: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~')
    .remove(b'/');

/// `ListObjects`.
pub(crate) async fn list_objects(
    backend: &Backend,
    request: S3Request<ListObjectsInput>,
) -> S3Result<S3Response<ListObjectsOutput>> {
    let S3Request {
        input,
        credentials,
        extensions,
        ..
    } = request;
    let mut query = ListingQuery::new(
        input.prefix,
        input.delimiter,
        input.max_keys,
        input.encoding_type,
    )?;
    query.owner = Some(backend.owner(credentials.as_ref())?);
    let marker = input.marker.filter(|marker| !marker.is_empty());
    let after = marker.clone().map(|marker| query.after(marker));
    let ListingPage {
        contents,
        common_prefixes,
        next,
        last,
        memory: _memory,
        ..
    } = query
        .page(
            backend,
            credentials.as_ref(),
            &input.bucket,
            after,
            memory::of_response(backend, &extensions)?,
        )
        .await?;
    let is_truncated = Some(next.is_some());
    Ok(S3Response::new(ListObjectsOutput {
        name: Some(input.bucket),
        prefix: Some(query.encode(&query.prefix)),
        marker: Some(query.encode(marker.as_deref().unwrap_or_default())),
        max_keys: Some(query.max_keys),
        is_truncated,
        contents: Some(contents),
        common_prefixes: Some(common_prefixes),
        delimiter: query
            .delimiter
            .as_deref()
            .map(|delimiter| query.encode(delimiter)),
        next_marker: last
            .filter(|_| is_truncated == Some(true))
            .map(|last| query.encode(&last)),
        encoding_type: query.encoding_type.clone(),
        ..ListObjectsOutput::default()
    }))
}

/// `ListObjectsV2`.
pub(crate) async fn list_objects_v2(
    backend: &Backend,
    request: S3Request<ListObjectsV2Input>,
) -> S3Result<S3Response<ListObjectsV2Output>> {
    let S3Request {
        input,
        credentials,
        extensions,
        ..
    } = request;
    let mut query = ListingQuery::new(
        input.prefix,
        input.delimiter,
        input.max_keys,
        input.encoding_type,
    )?;
    query.owner = input
        .fetch_owner
        .unwrap_or_default()
        .then(|| backend.owner(credentials.as_ref()))
        .transpose()?;
    let start_after = input.start_after.filter(|start| !start.is_empty());
    let after = match &input.continuation_token {
        Some(token) => Some(decode(token)?),
        None => start_after.clone(),
    };
    let ListingPage {
        contents,
        common_prefixes,
        next,
        memory: _memory,
        ..
    } = query
        .page(
            backend,
            credentials.as_ref(),
            &input.bucket,
            after,
            memory::of_response(backend, &extensions)?,
        )
        .await?;
    let count = contents.len() + common_prefixes.len();
    Ok(S3Response::new(ListObjectsV2Output {
        name: Some(input.bucket),
        prefix: Some(query.encode(&query.prefix)),
        max_keys: Some(query.max_keys),
        key_count: i32::try_from(count).ok(),
        continuation_token: input.continuation_token,
        is_truncated: Some(next.is_some()),
        next_continuation_token: next.map(|next| URL_SAFE.encode(next)),
        contents: Some(contents),
        common_prefixes: Some(common_prefixes),
        delimiter: query
            .delimiter
            .as_deref()
            .map(|delimiter| query.encode(delimiter)),
        encoding_type: query.encoding_type.clone(),
        start_after: start_after.map(|start| query.encode(&start)),
        ..ListObjectsV2Output::default()
    }))
}

/// `ListObjectVersions` of a bucket that was never versioned: each object is the latest version of itself, with the id `null`.
pub(crate) async fn list_versions(
    backend: &Backend,
    request: S3Request<ListObjectVersionsInput>,
) -> S3Result<S3Response<ListObjectVersionsOutput>> {
    let S3Request {
        input,
        credentials,
        extensions,
        ..
    } = request;
    let mut query = ListingQuery::new(
        input.prefix,
        input.delimiter,
        input.max_keys,
        input.encoding_type,
    )?;
    query.owner = Some(backend.owner(credentials.as_ref())?);
    let key_marker = input.key_marker.filter(|marker| !marker.is_empty());
    let version_id_marker = input.version_id_marker.filter(|marker| !marker.is_empty());
    if version_id_marker.is_some() && key_marker.is_none() {
        return Err(s3_error!(
            InvalidArgument,
            "a version-id-marker needs a key-marker"
        ));
    }
    let after = key_marker.clone().map(|marker| query.after(marker));
    let ListingPage {
        contents,
        common_prefixes,
        next,
        last,
        ends_with_object,
        memory: _memory,
    } = query
        .page(
            backend,
            credentials.as_ref(),
            &input.bucket,
            after,
            memory::of_response(backend, &extensions)?,
        )
        .await?;
    let is_truncated = next.is_some();
    let version = |object: Object| ObjectVersion {
        key: object.key,
        e_tag: object.e_tag,
        last_modified: object.last_modified,
        size: object.size,
        owner: object.owner,
        is_latest: Some(true),
        version_id: Some(NULL_VERSION.to_owned()),
        storage_class: Some(ObjectVersionStorageClass::from_static(
            ObjectVersionStorageClass::STANDARD,
        )),
        ..ObjectVersion::default()
    };
    Ok(S3Response::new(ListObjectVersionsOutput {
        name: Some(input.bucket),
        // An empty one would follow the folders' in the document, where some readers look for the last.
        prefix: Some(query.encode(&query.prefix)).filter(|prefix| !prefix.is_empty()),
        key_marker: Some(query.encode(key_marker.as_deref().unwrap_or_default())),
        version_id_marker: Some(version_id_marker.unwrap_or_default()),
        max_keys: Some(query.max_keys),
        is_truncated: Some(is_truncated),
        versions: Some(contents.into_iter().map(version).collect()),
        common_prefixes: Some(common_prefixes),
        delimiter: query
            .delimiter
            .as_deref()
            .map(|delimiter| query.encode(delimiter)),
        next_key_marker: last
            .filter(|_| is_truncated)
            .map(|last| query.encode(&last)),
        next_version_id_marker: (is_truncated && ends_with_object).then(|| NULL_VERSION.to_owned()),
        encoding_type: query.encoding_type.clone(),
        ..ListObjectVersionsOutput::default()
    }))
}

/// Returns the position in a continuation token.
fn decode(token: &str) -> S3Result<String> {
    let text = URL_SAFE
        .decode(token)
        .ok()
        .and_then(|bytes| String::from_utf8(bytes).ok());
    text.ok_or_else(|| {
        s3_error!(
            InvalidArgument,
            "this service didn't issue the continuation token"
        )
    })
}

/// The parameters of all listings of objects.
struct ListingQuery {
    prefix: String,
    delimiter: Option<String>,
    max_keys: i32,
    encoding_type: Option<EncodingType>,
    /// The owner to tell with each object.
    owner: Option<Owner>,
}

/// A page of a listing.
#[derive(Default)]
struct ListingPage {
    contents: Vec<Object>,
    common_prefixes: Vec<CommonPrefix>,
    /// Position of the next page.
    next: Option<String>,
    /// The last name or folder of this page.
    last: Option<String>,
    /// The last one is a name.
    ends_with_object: bool,
    /// The memory that the items take until they are written.
    memory: Option<DocumentMemory>,
}

/// Number of bytes of an item in a listing, in addition to its name.
const ITEM: usize = 300;

/// Returns the number of bytes of a text in XML, where some characters take up to six.
fn written_length(text: &str) -> usize {
    text.len()
        + 5 * text
            .bytes()
            .filter(|byte| matches!(byte, b'&' | b'<' | b'>' | b'"' | b'\''))
            .count()
}

impl ListingQuery {
    /// Checks the parameters of a request.
    fn new(
        prefix: Option<String>,
        delimiter: Option<String>,
        max_keys: Option<i32>,
        encoding_type: Option<EncodingType>,
    ) -> S3Result<Self> {
        let max_keys = max_keys.unwrap_or(MAX_KEYS);
        if max_keys < 0 {
            return Err(s3_error!(InvalidArgument, "max-keys must be at least 0"));
        }
        check_encoding(encoding_type.as_ref())?;
        Ok(Self {
            prefix: prefix.unwrap_or_default(),
            delimiter: delimiter.filter(|delimiter| !delimiter.is_empty()),
            max_keys: max_keys.min(MAX_KEYS),
            encoding_type,
            owner: None,
        })
    }

    /// Returns the position behind a marker of a client. One that is a folder has shown all names in it.
    fn after(&self, marker: String) -> String {
        let is_folder = self
            .delimiter
            .as_deref()
            .is_some_and(|by| is_folder(&marker, &self.prefix, by));
        if is_folder { behind(&marker) } else { marker }
    }

    /// Returns a name in the encoding of the response.
    fn encode(&self, name: &str) -> String {
        encoded(name, self.encoding_type.as_ref())
    }

    /// Lists a page of a bucket after this position.
    async fn page(
        &self,
        backend: &Backend,
        credentials: Option<&Credentials>,
        bucket: &str,
        after: Option<String>,
        mut memory: DocumentMemory,
    ) -> S3Result<ListingPage> {
        let container = backend.container(credentials, bucket)?;
        let limit = usize::try_from(self.max_keys).unwrap_or_default();
        let hierarchy = Hierarchy {
            prefix: &self.prefix,
            delimiter: self.delimiter.as_deref(),
            after,
            start: None,
            limit: limit.max(1),
            leases: false,
        };
        let listing = hierarchy
            .list(&*backend.context.store, &container, &mut memory)
            .await
            .map_err(error::plain)?;
        let Listing { items, next } = listing.ok_or_else(error::no_such_bucket)?;
        if limit == 0 {
            return Ok(ListingPage::default());
        }
        let mut page = ListingPage {
            next,
            memory: Some(memory),
            ..ListingPage::default()
        };
        let mut bytes = 0;
        for item in items {
            if bytes >= PAGE {
                page.next = page.last.as_deref().map(|last| {
                    if page.ends_with_object {
                        last.to_owned()
                    } else {
                        behind(last)
                    }
                });
                break;
            }
            page.ends_with_object = matches!(item, Listed::Blob(_));
            let (name, written) = match item {
                Listed::Blob(entry) => {
                    page.contents.push(self.object(&entry));
                    (
                        entry.name.as_str().to_owned(),
                        page.contents
                            .last()
                            .and_then(|object| object.key.as_deref()),
                    )
                }
                Listed::Folder(folder) => {
                    page.common_prefixes.push(CommonPrefix {
                        prefix: Some(self.encode(&folder)),
                    });
                    (
                        folder,
                        page.common_prefixes
                            .last()
                            .and_then(|common| common.prefix.as_deref()),
                    )
                }
            };
            bytes += ITEM + written.map_or(0, written_length);
            page.last = Some(name);
        }
        Ok(page)
    }

    /// Returns an object as an item of the listing.
    fn object(&self, entry: &BlobEntry) -> Object {
        Object {
            key: Some(self.encode(entry.name.as_str())),
            e_tag: convert::e_tag(entry.info.tag.as_ref()),
            last_modified: convert::timestamp(entry.info.last_modified),
            size: i64::try_from(entry.info.length).ok(),
            storage_class: Some(ObjectStorageClass::from_static(
                ObjectStorageClass::STANDARD,
            )),
            owner: self.owner.clone(),
            ..Object::default()
        }
    }
}

/// Refuses an encoding of names that isn't known.
pub(crate) fn check_encoding(encoding: Option<&EncodingType>) -> S3Result<()> {
    match encoding {
        Some(kind) if kind.as_str() != EncodingType::URL => {
            Err(s3_error!(InvalidArgument, "encoding-type must be url"))
        }
        _ => Ok(()),
    }
}

/// Returns a name in the encoding of a response.
pub(crate) fn encoded(name: &str, encoding: Option<&EncodingType>) -> String {
    if encoding.is_some() {
        utf8_percent_encode(name, KEPT).to_string()
    } else {
        name.to_owned()
    }
}

/// Returns `true` if a marker is a folder of a listing: the first delimiter behind the prefix is at its end.
fn is_folder(marker: &str, prefix: &str, delimiter: &str) -> bool {
    let first = marker
        .strip_prefix(prefix)
        .and_then(|rest| rest.split_once(delimiter));
    first.is_some_and(|(_, rest)| rest.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_marker_is_a_folder_if_the_listing_shows_it_as_one() {
        for (marker, prefix, expected) in [
            ("b/", "", true),
            ("photos/2026/", "photos/", true),
            ("photos/", "photos/", false),
            ("a/", "a/b/", false),
            ("a/b/", "", false),
            ("a/b", "", false),
            ("z/", "photos/", false),
        ] {
            assert_eq!(
                is_folder(marker, prefix, "/"),
                expected,
                "{marker} {prefix}"
            );
        }
        assert!(is_folder("a--", "", "--"));
    }
}
