//! Stores named by a URL.

use std::sync::Arc;

use object_store::ObjectStoreScheme;
use object_store::memory::InMemory;
use object_store::path::Path;
use url::Url;

use crate::attributes::MetadataNaming;
use crate::backing::BackingStore;
use crate::failure::{OpenError, OpenErrorKind};

#[cfg_attr(not(feature = "cloud"), path = "cloud_absent.rs")]
mod cloud;
#[cfg_attr(windows, path = "files_absent.rs")]
mod files;
#[cfg(not(windows))]
mod inside;

/// Maximum number of times that a request is sent again.
const RETRIES: usize = 4;

/// Maximum length of an object's name: in bytes on S3 and Google Cloud Storage, in characters on Azure.
const MAX_NAME: usize = 1_024;

/// Prefixes of the settings that stores read from the environment.
const SETTINGS: [&str; 3] = ["AWS_", "AZURE_", "GOOGLE_"];

impl BackingStore {
    /// Opens the store of a URL: `file:///folder`, `memory://`, `s3://bucket/prefix`, `az://container/prefix` or
    /// `gs://bucket/prefix`.
    ///
    /// `settings` are names and values as in the environment, such as `AWS_ENDPOINT`. Names of other than the
    /// three clouds' settings are ignored, so the whole environment can be passed. A missing folder is created.
    ///
    /// # Errors
    /// [`OpenErrorKind::Url`], [`OpenErrorKind::Folder`] or [`OpenErrorKind::Settings`]. The message says what to do.
    ///
    /// ```
    /// use ifmatch_blob_objects::BackingStore;
    ///
    /// let backing = BackingStore::from_url("s3://bucket/prefix", std::env::vars());
    /// # #[cfg(feature = "cloud")]
    /// assert!(backing.is_ok());
    /// ```
    pub fn from_url(
        url: &str,
        settings: impl IntoIterator<Item = (String, String)>,
    ) -> Result<Self, OpenError> {
        Self::with_retries(url, settings, RETRIES)
    }

    /// Opens the store of a URL with a client that sends no request twice, for callers that settle lost responses themselves.
    ///
    /// # Errors
    /// Same as [`from_url`](Self::from_url).
    pub fn from_url_once(
        url: &str,
        settings: impl IntoIterator<Item = (String, String)>,
    ) -> Result<Self, OpenError> {
        Self::with_retries(url, settings, 0)
    }

    fn with_retries(
        url: &str,
        settings: impl IntoIterator<Item = (String, String)>,
        retries: usize,
    ) -> Result<Self, OpenError> {
        let invalid = || {
            let what = "not the URL of a store. Use file:///folder, memory://, s3://bucket/prefix, az://container/prefix or \
                        gs://bucket/prefix";
            OpenError::new(OpenErrorKind::Url, what)
        };
        let parsed = Url::parse(url).map_err(|_| invalid())?;
        let (scheme, prefix) = ObjectStoreScheme::parse(&parsed).map_err(|_| invalid())?;
        let settings = settings
            .into_iter()
            .filter(|(name, _)| SETTINGS.iter().any(|start| name.starts_with(start)));
        match scheme {
            ObjectStoreScheme::Local => files::open(&parsed, invalid),
            ObjectStoreScheme::Memory => Ok(Self {
                prefix,
                ordered: true,
                ..Self::new(Arc::new(InMemory::new()))
            }),
            ObjectStoreScheme::AmazonS3 | ObjectStoreScheme::GoogleCloudStorage => {
                let objects = cloud::connect(&scheme, &parsed, settings, retries)?;
                let (advice, ordered) = (Some(credentials(&scheme)), !is_directory_bucket(&parsed));
                Ok(Self {
                    prefix,
                    ordered,
                    advice,
                    refusal: too_many_bytes,
                    ..Self::new(objects)
                })
            }
            ObjectStoreScheme::MicrosoftAzure => {
                let objects = cloud::connect(&scheme, &parsed, settings, retries)?;
                Ok(Self {
                    prefix,
                    ordered: true,
                    naming: MetadataNaming::Identifiers,
                    advice: Some(credentials(&scheme)),
                    refusal: too_many_characters,
                    ..Self::new(objects)
                })
            }
            _ => Err(invalid()),
        }
    }
}

/// Returns the credentials that a store needs, and how to provide them.
fn credentials(scheme: &ObjectStoreScheme) -> &'static str {
    match scheme {
        ObjectStoreScheme::MicrosoftAzure => {
            "no credentials, and this machine has no managed identity. Set AZURE_STORAGE_ACCOUNT_NAME and \
             AZURE_STORAGE_ACCOUNT_KEY (or AZURE_STORAGE_SAS_TOKEN)"
        }
        ObjectStoreScheme::GoogleCloudStorage => {
            "no credentials, and this machine has no service account. Set GOOGLE_SERVICE_ACCOUNT to the path of a service \
             account's key file"
        }
        _ => {
            "no credentials, and this machine has no instance role. Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (and \
             AWS_SESSION_TOKEN for temporary ones), or AWS_SKIP_SIGNATURE=true for a bucket that needs none"
        }
    }
}

/// Refuses a name that is too long for S3 and Google Cloud Storage.
fn too_many_bytes(path: &Path) -> Option<&'static str> {
    (path.as_ref().len() > MAX_NAME).then_some(
        "the name exceeds this store's 1,024 bytes, including the container and the store's prefix",
    )
}

/// Refuses a name that is too long for Azure.
fn too_many_characters(path: &Path) -> Option<&'static str> {
    (path.as_ref().chars().count() > MAX_NAME)
        .then_some("the name exceeds this store's 1,024 characters, including the container and the store's prefix")
}

/// Returns `true` for one of S3's directory buckets, whose names end in `--x-s3`. They list in no order.
fn is_directory_bucket(url: &Url) -> bool {
    url.host_str()
        .is_some_and(|bucket| bucket.ends_with("--x-s3"))
}
