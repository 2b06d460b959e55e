//! What the path of a request names: `/{account}/{container}/{blob…}`.

use std::borrow::Cow;

use super::error::AzureError;
use crate::accounts::{Account, Accounts};
use ifmatch_blob::name::{self, BlobName, BlobPath, ContainerName, NameErrorKind};

/// What separates an account's name from a container's in the plain dialect. No container of Azure's has one.
pub(super) const SEPARATOR: char = '.';

/// What the path of a request names, where it lies in the store.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Target {
    /// The account: `/{account}`
    Service,
    /// `/{account}/{container}`, with or without a slash behind it.
    Container(ContainerName),
    /// `/{account}/{container}/{blob…}`
    Blob(BlobPath),
}

/// A target without its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Service,
    Container,
    Blob,
}

impl Target {
    /// Reads a raw path that begins with the account's name.
    pub(super) fn parse(path: &str, account: &Account, accounts: &Accounts) -> Result<Self, AzureError> {
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
        Ok(Self::Blob(BlobPath { container, name: BlobName::new(&decode(blob)?)? }))
    }

    pub(super) fn kind(&self) -> Kind {
        match self {
            Self::Service => Kind::Service,
            Self::Container(_) => Kind::Container,
            Self::Blob(_) => Kind::Blob,
        }
    }
}

/// Where an account's container lies in the store: the default account's under its own name, another's behind the
/// account's name.
fn container_of(account: &Account, accounts: &Accounts, name: &str) -> Result<ContainerName, AzureError> {
    if !is_container_name(name) {
        let rule = "a container's name has 3 to 63 characters: a-z, 0-9, and single hyphens between them";
        return Err(AzureError::bad_request("InvalidResourceName", rule));
    }
    Ok(ContainerName::new(&format!("{}{name}", prefix(account, accounts)))?)
}

/// What the names of an account's containers begin with in the store.
pub(super) fn prefix(account: &Account, accounts: &Accounts) -> String {
    if accounts.is_default(account) { String::new() } else { format!("{}{SEPARATOR}", account.name()) }
}

/// Azure's rule for the names of containers.
pub(super) fn is_container_name(name: &str) -> bool {
    let part = |part: &str| {
        let valid = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
        !part.is_empty() && part.bytes().all(valid)
    };
    (3..=63).contains(&name.len()) && name.split('-').all(part)
}

fn decode(text: &str) -> Result<Cow<'_, str>, AzureError> {
    if text.len() > BlobName::MAX_BYTES * 3 {
        return Err(AzureError::bad_request("InvalidResourceName", NameErrorKind::BlobTooLong.to_string()));
    }
    name::decode(text).map_err(|error| AzureError::bad_request("InvalidUri", error.to_string()))
}
