//! The store behind the operations of S3, and what they refuse.

use ifmatch_blob::accounts::{Account, Accounts};
use ifmatch_blob::dialect::Context;
use ifmatch_blob::name::{BlobName, BlobPath, ContainerName};
use s3s::auth::Credentials;
use s3s::dto::{Owner, ServerSideEncryption};
use s3s::{S3Result, s3_error};

use crate::error;

/// The store, and the accounts that may use it.
#[derive(Clone)]
pub(crate) struct Backend {
    pub(crate) context: Context,
    pub(crate) accounts: Accounts,
    /// The disk or the store encrypts, according to the operator.
    pub(crate) is_encrypted: bool,
}

impl Backend {
    /// Returns the account that signed a request. A request without a signature, which
    /// [`AccessCheck`](crate::authorization::AccessCheck) has admitted, reads the buckets of the default account.
    pub(crate) fn account(&self, credentials: Option<&Credentials>) -> S3Result<&Account> {
        let account = match credentials {
            Some(credentials) => self.accounts.get(&credentials.access_key),
            None => self.accounts.iter().next(),
        };
        account.ok_or_else(error::unsigned)
    }

    /// Returns the owner of all buckets of the account that signed a request.
    pub(crate) fn owner(&self, credentials: Option<&Credentials>) -> S3Result<Owner> {
        let name = Some(self.account(credentials)?.name().to_owned());
        Ok(Owner {
            display_name: name.clone(),
            id: name,
        })
    }

    /// Returns the encryption of all objects, if the operator has said that there is one.
    pub(crate) fn encryption(&self) -> Option<ServerSideEncryption> {
        self.is_encrypted
            .then(|| ServerSideEncryption::from_static(ServerSideEncryption::AES256))
    }

    /// Returns the container of a bucket.
    pub(crate) fn container(
        &self,
        credentials: Option<&Credentials>,
        bucket: &str,
    ) -> S3Result<ContainerName> {
        let account = self.account(credentials)?;
        self.accounts.container(account, bucket).ok_or_else(|| {
            let rule = "this bucket name isn't 3 to 63 characters from a-z and 0-9, with single hyphens between them";
            s3_error!(InvalidBucketName, "{rule}")
        })
    }

    /// Returns an object's blob.
    pub(crate) fn blob(
        &self,
        credentials: Option<&Credentials>,
        bucket: &str,
        key: &str,
    ) -> S3Result<BlobPath> {
        let container = self.container(credentials, bucket)?;
        Ok(BlobPath {
            container,
            name: BlobName::new(key).map_err(error::of_name)?,
        })
    }
}

/// Refuses a request for something that isn't implemented, rather than to ignore it.
pub(crate) fn refuse(requested: bool, what: &str) -> S3Result<()> {
    if requested {
        Err(s3_error!(
            NotImplemented,
            "{what} is not implemented: omit it"
        ))
    } else {
        Ok(())
    }
}

/// The id of the only version of an object in a bucket that was never versioned.
pub(crate) const NULL_VERSION: &str = "null";

/// Refuses versions of objects, which this service doesn't keep.
pub(crate) fn refuse_version(version: Option<&str>) -> S3Result<()> {
    match version {
        None | Some(NULL_VERSION) => Ok(()),
        Some("") => Err(s3_error!(
            InvalidArgument,
            "the version id is empty: omit it"
        )),
        // An id is opaque, so none is malformed.
        Some(_) => Err(s3_error!(
            NoSuchVersion,
            "buckets are not versioned: omit the version id"
        )),
    }
}
