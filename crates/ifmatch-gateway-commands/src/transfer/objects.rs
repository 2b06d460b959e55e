//! Objects in S3, Azure or Google Cloud Storage as the source of an import. Each is first copied into a temporary file, since its
//! hash must be known before it is sent.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use futures_util::TryStreamExt;
use http::header::{CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_ENCODING, CONTENT_LANGUAGE, CONTENT_TYPE};
use http::{HeaderMap, HeaderName, HeaderValue};
use ifmatch_blob::name::ContainerName;
use ifmatch_blob_objects::metadata_name;
use ifmatch_core::digest::Hasher;
use ifmatch_gateway_config::error::Error;
use object_store::path::Path;
use object_store::{Attribute, Attributes, ObjectMeta, ObjectStore, ObjectStoreExt};
use tempfile::TempDir;
use tokio::io::AsyncWriteExt;

use super::location::Upload;
use super::remote::METADATA;
use super::{Fault, Progress};
use crate::store_url;

/// Folder that each gateway creates in its store.
const OWN: &str = "-ifmatch";

/// A source of objects.
pub(super) struct Objects {
    store: Arc<dyn ObjectStore>,
    prefix: Path,
    temporary: TempDir,
    files: AtomicU64,
}

/// An object of a source.
pub(super) struct Object {
    /// The name below the prefix.
    pub(super) name: String,
    path: Path,
}

/// A temporary file, which is removed when it is dropped.
pub(super) struct Copied {
    pub(super) file: Upload,
}

impl Drop for Copied {
    fn drop(&mut self) {
        // What can't be removed now is removed with the folder.
        drop(std::fs::remove_file(&self.file.path));
    }
}

impl Objects {
    /// Opens the store of a URL, with the settings of the environment.
    ///
    /// # Errors
    /// Fails if the URL or a setting is invalid, or if there is no place for temporary files.
    pub(super) fn open(url: &str) -> Result<Self, Error> {
        let backing = store_url::open(url, url)?;
        let temporary = tempfile::tempdir().map_err(|error| {
            Error::runtime(format!("can't create a temporary folder. Set TMPDIR to a folder with space ({error})."))
        })?;
        let (store, prefix) = (Arc::clone(backing.objects()), backing.prefix().clone());
        Ok(Self { store, prefix, temporary, files: AtomicU64::new(0) })
    }

    /// Returns all objects below the prefix, and the sum of their lengths. In the store of a gateway, these are its blobs, and
    /// neither blocks nor tables.
    ///
    /// # Errors
    /// Fails if the store can't be listed.
    pub(super) async fn list(&self) -> Result<(Vec<Object>, u64), Error> {
        let all = self.store.list(Some(&self.prefix)).try_collect::<Vec<ObjectMeta>>();
        let all = all.await.map_err(|error| Error::runtime(format!("can't list the source: {error}")))?;
        let parts = |object: &ObjectMeta| -> Vec<String> {
            let parts = object.location.prefix_match(&self.prefix).into_iter().flatten();
            parts.map(|part| part.as_ref().to_owned()).collect()
        };
        let is_gateways = all.iter().any(|object| parts(object).first().is_some_and(|first| first == OWN));
        let mut bytes = 0;
        let mut objects = Vec::with_capacity(all.len());
        for object in all {
            let parts = parts(&object);
            let is_blob = |first: &String| !is_gateways || !ContainerName::is_internal_text(first);
            if parts.first().is_some_and(is_blob) {
                bytes += object.size;
                objects.push(Object { name: parts.join("/"), path: object.location });
            }
        }
        Ok((objects, bytes))
    }

    /// Copies an object into a temporary file. Returns `None` if it was deleted.
    pub(super) async fn copy(&self, object: &Object, progress: &Arc<Progress>) -> Result<Option<Copied>, Fault> {
        let failed = |error: object_store::Error| Fault::failed(error.to_string());
        let found = match self.store.get(&object.path).await {
            Err(object_store::Error::NotFound { .. }) => return Ok(None),
            found => found.map_err(failed)?,
        };
        let fields = fields(&found.attributes)?;
        let path = self.temporary.path().join(self.files.fetch_add(1, Relaxed).to_string());
        let (mut hasher, mut length) = (Hasher::default(), 0);
        let mut file = tokio::fs::File::create(&path).await.map_err(|error| in_temporary(&path, &error))?;
        let mut parts = found.into_stream();
        while let Some(part) = parts.try_next().await.map_err(failed)? {
            hasher.update(&part);
            length += part.len() as u64;
            file.write_all(&part).await.map_err(|error| in_temporary(&path, &error))?;
        }
        file.flush().await.map_err(|error| in_temporary(&path, &error))?;
        let file = Upload { path, hash: hasher.finish(), length, fields, progress: Arc::clone(progress) };
        Ok(Some(Copied { file }))
    }
}

/// Returns the header fields of an object.
fn fields(attributes: &Attributes) -> Result<HeaderMap, Fault> {
    let mut fields = HeaderMap::new();
    for (attribute, value) in attributes {
        let name = match attribute {
            Attribute::CacheControl => CACHE_CONTROL,
            Attribute::ContentDisposition => CONTENT_DISPOSITION,
            Attribute::ContentEncoding => CONTENT_ENCODING,
            Attribute::ContentLanguage => CONTENT_LANGUAGE,
            Attribute::ContentType => CONTENT_TYPE,
            Attribute::Metadata(stored) => match metadata_name(stored) {
                Some(name) => HeaderName::try_from(format!("{METADATA}{name}"))
                    .map_err(|_| Fault::failed(format!("the metadata name {name} can't be an HTTP header")))?,
                None => continue,
            },
            _ => continue,
        };
        let value = HeaderValue::from_str(value)
            .map_err(|_| Fault::failed(format!("the value of {name} can't be sent in an HTTP header")))?;
        fields.insert(name, value);
    }
    Ok(fields)
}

fn in_temporary(path: &std::path::Path, error: &std::io::Error) -> Fault {
    Fault::last(format!("{}: {error}. Set TMPDIR to another folder.", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_and_metadata_are_kept_if_they_can_be_header_fields() {
        let attributes = |name: &str, value: &str| {
            Attributes::from_iter([
                (Attribute::ContentType, "text/html".to_owned()),
                (Attribute::Metadata(name.to_owned().into()), value.to_owned()),
            ])
        };
        let kept = fields(&attributes("made_by", "me")).unwrap();
        assert_eq!(
            (kept.len(), &kept["content-type"], &kept["x-meta-made_by"]),
            (2, &"text/html".parse().unwrap(), &"me".parse().unwrap())
        );
        let own = fields(&attributes("ifmatchwrite", "0a")).unwrap();
        assert_eq!(own.len(), 1, "the identity of another store's write: {own:?}");
        let escaped = fields(&attributes("made_2dby", "me")).unwrap();
        assert_eq!(&escaped["x-meta-made-by"], &"me".parse::<HeaderValue>().unwrap(), "as a store of Azure has it");
        for (name, value) in [("made by", "me"), ("by", "line\nbreak")] {
            assert!(fields(&attributes(name, value)).is_err(), "{name}: {value}");
        }
    }
}
