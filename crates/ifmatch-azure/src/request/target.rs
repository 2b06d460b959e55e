//! The resource that a path names, `/{account}/{container}/{blob…}`, and the parameters of the query.

use std::borrow::Cow;

use ifmatch_blob::accounts::{Account, Accounts};
use ifmatch_blob::name::{self, BlobName, BlobPath, ContainerName, NameErrorKind};

use crate::error::AzureError;
use crate::snapshots::SnapshotTime;

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
}

/// Returns the container of an account with this name.
fn container_of(account: &Account, accounts: &Accounts, name: &str) -> Result<ContainerName, AzureError> {
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

fn decode(text: &str) -> Result<Cow<'_, str>, AzureError> {
    if text.len() > BlobName::MAX_BYTES * 3 {
        return Err(AzureError::bad_request("InvalidResourceName", NameErrorKind::BlobTooLong.to_string()));
    }
    name::decode(text).map_err(|error| AzureError::bad_request("InvalidUri", error.to_string()))
}

/// Query parameters: names in lower case, each at most once, values decoded.
#[derive(Clone, Debug, Default)]
pub(crate) struct QueryParameters(Vec<(String, String)>);

impl QueryParameters {
    /// Parses the part after the question mark. A plus is a space: Go's and Rust's clients write one so, and sign a space.
    pub(crate) fn parse(text: &str) -> Result<Self, AzureError> {
        let mut query = Self::default();
        for parameter in name::parameters(text) {
            let (name, value) = parameter.map_err(|error| AzureError::bad_request("InvalidUri", error.to_string()))?;
            let name = name.to_ascii_lowercase();
            if query.get(&name).is_some() {
                return Err(AzureError::invalid_parameter(&name, "must not be repeated"));
            }
            query.0.push((name, value.into_owned()));
        }
        Ok(query)
    }

    /// Removes parameters by name.
    pub(super) fn remove(&mut self, is_removed: impl Fn(&str) -> bool) {
        self.0.retain(|(name, _)| !is_removed(name));
    }

    /// Returns the value of a parameter.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(other, _)| other == name).map(|(_, value)| value.as_str())
    }

    /// Returns the snapshot that the query names.
    pub(crate) fn snapshot(&self) -> Result<Option<SnapshotTime>, AzureError> {
        let text = self.get("snapshot");
        let malformed = || AzureError::invalid_parameter("snapshot", "must be the x-ms-snapshot of a response");
        text.map(|text| SnapshotTime::parse(text).ok_or_else(malformed)).transpose()
    }

    /// Returns `true` if a name or a value has a control character.
    pub(crate) fn has_control(&self) -> bool {
        self.0.iter().any(|(name, value)| name.contains(char::is_control) || value.contains(char::is_control))
    }

    /// Returns the names of all parameters.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|(name, _)| name.as_str())
    }
}
