//! A backend in an object store, by the crate `object_store`.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::{FutureExt, TryStreamExt};
use ifmatch_runtime::nonce;
use object_store::path::Path;
use object_store::{
    GetOptions, ObjectMeta, ObjectStore, ObjectStoreExt, PutMode, PutOptions, PutPayload,
    UpdateVersion,
};

use super::{Backend, Found, Put, Read, When};
use crate::error::{Error, ErrorKind};
use crate::version::Version;

/// An object store: S3, Azure, Google Cloud Storage, R2, or one in memory. The store must support conditional updates,
/// which local files don't.
///
/// Turn off the store's own retries (`RetryConfig { max_retries: 0, .. }`): it would repeat an unacknowledged write,
/// and report a conflict with itself.
///
/// ```
/// use ifmatch_client::{Client, Objects};
/// use object_store::memory::InMemory;
///
/// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
/// let client = Client::new(Objects::new(InMemory::new()));
/// assert_eq!(client.json::<u64>("conf/hits").update(|count| *count += 1).await?, 1);
/// # Ok::<(), ifmatch_client::Error>(())
/// # }).unwrap();
/// ```
#[derive(Clone, Debug)]
pub struct Objects(Arc<dyn ObjectStore>);

impl Objects {
    /// Creates a backend for a store. Keys are its paths.
    pub fn new(store: impl ObjectStore) -> Self {
        Self(Arc::new(store))
    }

    async fn read(&self, key: &str, known: Option<&Version>) -> Result<Read, Error> {
        let if_none_match = known.and_then(|known| named(known).ok()?.e_tag);
        let options = GetOptions {
            if_none_match,
            ..GetOptions::default()
        };
        let result = match self.0.get_opts(&path(key)?, options).await {
            Ok(result) => result,
            Err(object_store::Error::NotFound { .. }) => return Ok(Read::Absent),
            Err(object_store::Error::NotModified { .. }) => {
                return Ok(Read::Unchanged { waited: false });
            }
            Err(error) => return Err(failure(&error)),
        };
        let version = version(result.meta.e_tag.clone(), result.meta.version.clone());
        if version.is_some() && version.as_ref() == known {
            return Ok(Read::Unchanged { waited: false });
        }
        let modified = Some(result.meta.last_modified.into());
        let body = result.bytes().await.map_err(|error| failure(&error))?;
        Ok(Read::Found(Found {
            body,
            version,
            modified,
            waited: false,
        }))
    }
}

impl Backend for Objects {
    fn get<'a>(
        &'a self,
        key: &'a str,
        known: Option<&'a Version>,
        _wait: Option<Duration>,
    ) -> BoxFuture<'a, Result<Read, Error>> {
        self.read(key, known).boxed()
    }

    fn put<'a>(
        &'a self,
        key: &'a str,
        put: &'a Put,
    ) -> BoxFuture<'a, Result<Option<Version>, Error>> {
        async move {
            let mode = match &put.when {
                When::Absent => PutMode::Create,
                When::Is(version) => PutMode::Update(named(version)?),
            };
            let options = PutOptions {
                mode,
                ..PutOptions::default()
            };
            let written = self
                .0
                .put_opts(&path(key)?, PutPayload::from(put.body.clone()), options)
                .await;
            let written = written.map_err(|error| match (&put.when, error) {
                // Reading again wouldn't change that there is no bucket.
                (When::Absent, error @ object_store::Error::NotFound { .. }) => {
                    Error::refused(error.to_string())
                }
                (_, error) => failure(&error),
            })?;
            Ok(version(written.e_tag, written.version))
        }
        .boxed()
    }

    fn delete<'a>(
        &'a self,
        key: &'a str,
        version: &'a Version,
    ) -> BoxFuture<'a, Result<(), Error>> {
        async move {
            let path = path(key)?;
            let current = self.0.head(&path).await.map_err(|error| failure(&error))?;
            let current = self::version(current.e_tag, current.version);
            if current.as_ref() != Some(version) {
                return Err(Error::new(
                    ErrorKind::Conflict { current },
                    format!("{key} has changed"),
                ));
            }
            self.0.delete(&path).await.map_err(|error| failure(&error))
        }
        .boxed()
    }

    fn probe<'a>(
        &'a self,
        key: &'a str,
        body: &'a Bytes,
        _version: &'a Version,
    ) -> BoxFuture<'a, Result<(), Error>> {
        async move {
            let random = nonce().map_err(|error| Error::refused(error.to_string()))?;
            // Google's generations are times in microseconds.
            let never = UpdateVersion {
                e_tag: Some(format!("\"{random:016x}\"")),
                version: Some("1".to_owned()),
            };
            let options = PutOptions {
                mode: PutMode::Update(never),
                ..PutOptions::default()
            };
            match self
                .0
                .put_opts(&path(key)?, PutPayload::from(body.clone()), options)
                .await
            {
                Ok(_) => Err(Error::ignores("If-Match")),
                // Another rejection doesn't concern the condition: the write that follows gets it, too.
                Err(error) => Some(failure(&error))
                    .filter(Error::is_unknown)
                    .map_or(Ok(()), Err),
            }
        }
        .boxed()
    }

    fn discard<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<(), Error>> {
        async move {
            self.0
                .delete(&path(key)?)
                .await
                .map_err(|error| failure(&error))
        }
        .boxed()
    }

    fn list<'a>(&'a self, prefix: &'a str) -> BoxFuture<'a, Result<Vec<String>, Error>> {
        async move {
            // The store lists whole segments only.
            let folder = prefix
                .rsplit_once('/')
                .map(|(folder, _)| path(folder))
                .transpose()?;
            let found: Vec<ObjectMeta> = self
                .0
                .list(folder.as_ref())
                .try_collect()
                .await
                .map_err(|error| failure(&error))?;
            let mut keys: Vec<String> = found
                .into_iter()
                .map(|meta| meta.location.to_string())
                .collect();
            keys.retain(|key| key.starts_with(prefix));
            keys.sort_unstable();
            Ok(keys)
        }
        .boxed()
    }
}

fn path(key: &str) -> Result<Path, Error> {
    Path::parse(key).map_err(|error| Error::refused(error.to_string()))
}

/// Returns the version that a store names by a strong tag, a version, or both.
fn version(e_tag: Option<String>, version: Option<String>) -> Option<Version> {
    let e_tag = e_tag.filter(|tag| !tag.starts_with("W/"));
    if e_tag.is_none() && version.is_none() {
        return None;
    }
    serde_json::to_string(&(e_tag, version))
        .ok()
        .map(Version::new)
}

/// Returns the store's names for a version.
fn named(version: &Version) -> Result<UpdateVersion, Error> {
    let parsed = serde_json::from_str(version.as_str());
    let (e_tag, version) = parsed
        .map_err(|_| Error::refused(format!("{version} is not a version of an object store")))?;
    Ok(UpdateVersion { e_tag, version })
}

fn failure(error: &object_store::Error) -> Error {
    use object_store::Error as Of;
    let kind = match error {
        // S3 answers a replacement of an absent object with 404.
        Of::AlreadyExists { .. } | Of::Precondition { .. } | Of::NotFound { .. } => {
            ErrorKind::Conflict { current: None }
        }
        Of::NotSupported { .. } | Of::NotImplemented { .. } | Of::InvalidPath { .. } => {
            ErrorKind::Refused
        }
        Of::PermissionDenied { .. }
        | Of::Unauthenticated { .. }
        | Of::UnknownConfigurationKey { .. } => ErrorKind::Refused,
        _ => ErrorKind::Unknown,
    };
    Error::new(kind, error.to_string())
}
