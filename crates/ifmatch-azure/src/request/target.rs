//! The resource that a path names, `/{account}/{container}/{blob…}`.

use std::borrow::Cow;

use ifmatch_blob::accounts::{Account, Accounts};
use ifmatch_blob::name::{self, BlobName, BlobPath, ContainerName, NameErrorKind};

use crate::error::AzureError;

/// The resource that a path names, as named in the store.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum RequestTarget {
    /// The account: `/{account}`
    Service,
    /// `/{account}/{container}`, with or without a trailing slash.
    Container(ContainerName),
    /// `/{account}/{container}/{blob…}`
    Blob(BlobPath),
}

impl RequestTarget {
    /// Parses a raw path that begins with the account's name.
    pub(super) fn parse(
        path: &str,
        account: &Account,
        accounts: &Accounts,
    ) -> Result<Self, AzureError> {
        let inner = path.strip_prefix('/').unwrap_or(path);
        let inner = inner.split_once('/').map_or("", |(_, inner)| inner);
        let (container, blob) = inner.split_once('/').unwrap_or((inner, ""));
        if container.is_empty() && blob.is_empty() {
            return Ok(Self::Service);
        }
        let container = container_of(account, accounts, &decode(container)?)?;
        if blob.is_empty() {
            return Ok(Self::Container(container));
        }
        // The JavaScript SDK writes a slash in a name as %2F.
        Ok(Self::Blob(BlobPath {
            container,
            name: BlobName::new(&decode(blob)?)?,
        }))
    }
}

/// Returns the container of an account with this name.
fn container_of(
    account: &Account,
    accounts: &Accounts,
    name: &str,
) -> Result<ContainerName, AzureError> {
    if is_system_container(name) {
        return Err(AzureError::container_not_found());
    }
    accounts.container(account, name).ok_or_else(|| {
        let rule = "this container name isn't 3 to 63 characters from a-z and 0-9, with single hyphens between them";
        AzureError::bad_request("InvalidResourceName", rule)
    })
}

/// Returns `true` for the containers that only the real service itself creates. None of them exists here.
fn is_system_container(name: &str) -> bool {
    matches!(name, "$logs" | "$blobchangefeed")
}

/// Decodes a part of a path, unless it is too long for any name.
fn decode(text: &str) -> Result<Cow<'_, str>, AzureError> {
    if text.len() > BlobName::MAX_BYTES * 3 {
        return Err(AzureError::bad_request(
            "InvalidResourceName",
            NameErrorKind::BlobTooLong.to_string(),
        ));
    }
    name::decode(text).map_err(|error| AzureError::bad_request("InvalidUri", error.to_string()))
}
