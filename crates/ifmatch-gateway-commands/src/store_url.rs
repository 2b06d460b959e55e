//! Places that commands name: object stores by a URL, with the settings of the environment, and folders.

use std::path::Path;
use std::sync::Arc;

use ifmatch_blob_objects::{BackingStore, OpenError, OpenErrorKind};
use ifmatch_client::{Cause, Objects};
use ifmatch_gateway_config::error::Error;

/// An object, or a folder of objects, for the library of clients.
pub(crate) struct ObjectPlace {
    pub(crate) objects: Objects,
    /// Path of the object or the folder in its bucket, without a slash at either end.
    pub(crate) path: String,
}

impl ObjectPlace {
    /// Opens the place of a URL.
    ///
    /// # Errors
    /// Fails if the URL or a setting is invalid, or if there are no credentials.
    pub(crate) async fn open(url: &str) -> Result<Self, Error> {
        let backing =
            BackingStore::from_url_once(url, settings()).map_err(|error| failed(url, &error))?;
        match backing.reach(backing.prefix()).await {
            Err(error) if error.kind() == OpenErrorKind::Settings => {
                return Err(failed(url, &error));
            }
            // A store that is down may come back.
            _ => {}
        }
        Ok(Self {
            objects: Objects::new(Arc::clone(backing.objects())),
            path: backing.prefix().to_string(),
        })
    }
}

/// Returns `true` for the URL of a store that several machines share.
pub(crate) fn is_store(url: &str) -> bool {
    url.split_once("://")
        .is_some_and(|(scheme, _)| matches!(scheme, "s3" | "az" | "gs"))
}

/// Opens the store of a URL, which sends a request again if it fails. `name` names the URL in errors.
///
/// # Errors
/// Fails if the URL or a setting is invalid.
pub fn open(name: &str, url: &str) -> Result<BackingStore, Error> {
    BackingStore::from_url(url, settings()).map_err(|error| failed(name, &error))
}

/// Returns the error of a command for a store that can't be used.
pub fn failed(name: &str, error: &OpenError) -> Error {
    let mut message = format!("{name}: {error}");
    // The messages of HTTP clients name the request only.
    let cause = Cause::of(error).text;
    if !message.contains(&cause) {
        message = format!("{message} ({cause})");
    }
    match error.kind() {
        OpenErrorKind::Url | OpenErrorKind::Settings => Error::usage(message),
        _ => Error::runtime(message),
    }
}

/// Returns the environment, of which stores read the settings of their cloud.
pub fn settings() -> impl Iterator<Item = (String, String)> {
    std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
}

/// Rejects a path that is a file or a dangling link, or passes through one, since no permission would help.
///
/// # Errors
/// Names the flag and the file, and suggests a fix.
pub fn check_folder(flag: &str, path: &Path) -> Result<(), Error> {
    if let Some(link) = path
        .ancestors()
        .find(|above| above.is_symlink() && !above.exists())
    {
        let (path, link) = (path.display(), link.display());
        return Err(Error::usage(format!(
            "can't use {flag} {path}. The link {link} has no target: create the target, or remove the link."
        )));
    }
    let found = path.ancestors().find(|above| above.exists());
    let Some(file) = found.filter(|found| !found.is_dir()) else {
        return Ok(());
    };
    let (path, file) = (path.display(), file.display());
    Err(Error::usage(format!(
        "can't use {flag} {path}. {file} is a file: name a folder instead."
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_stores_that_machines_share_are_places() {
        for url in ["s3://bucket/a", "az://container/a", "gs://bucket/a"] {
            assert!(is_store(url), "{url}");
        }
        for url in ["http://a/b", "memory://a", "file:///a", "s3", ""] {
            assert!(!is_store(url), "{url}");
        }
    }
}
