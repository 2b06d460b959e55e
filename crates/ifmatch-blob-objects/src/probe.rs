//! Tests of a store's conditions. Some stores accept a condition and ignore it.

use std::error::Error as StdError;
use std::fmt;

use ifmatch_blob::store::BoxError;
use ifmatch_runtime::nonce;
use object_store::path::Path;
use object_store::{
    Attribute, Attributes, Error, GetOptions, ObjectStore, ObjectStoreExt, PutMode, PutOptions,
    PutPayload, PutResult,
};

use crate::backing::BackingStore;
use crate::failure::{OpenError, OpenErrorKind};

/// Folder of objects that aren't blobs. Container names can't begin like this.
pub(super) const FOLDER: &str = "-ifmatch";
/// The name and value of the metadata for the test.
const MARK: &str = "ifmatchprobe";

/// Addresses of the clouds' metadata services, which provide credentials to machines.
const METADATA_SERVICES: [&str; 2] = ["169.254.169.254", "metadata.google.internal"];

/// The tested capabilities of a store.
///
/// ```
/// use ifmatch_blob_objects::{StoreCapabilities, ConditionSupport};
///
/// let folder =
///     StoreCapabilities { create: ConditionSupport::Native, update: ConditionSupport::Unsupported, metadata: false, unique_tags: false };
/// assert!(!folder.is_native());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreCapabilities {
    /// Writing an object only if it doesn't exist.
    pub create: ConditionSupport,
    /// Writing an object only if its version is unchanged.
    pub update: ConditionSupport,
    /// `true` if the store keeps header fields and metadata with an object.
    pub metadata: bool,
    /// `true` if each version has its own tag even with the same bytes. Hashes don't qualify.
    pub unique_tags: bool,
}

/// Treatment of a condition by a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConditionSupport {
    /// The store honours the condition.
    Native,
    /// The store accepts the condition and ignores it.
    Ignored,
    /// The store rejects conditional writes.
    Unsupported,
}

impl fmt::Display for StoreCapabilities {
    /// Says how the store treats each condition.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "it {} If-None-Match and {} If-Match",
            self.create.verb(),
            self.update.verb()
        )
    }
}

impl ConditionSupport {
    fn verb(self) -> &'static str {
        match self {
            Self::Native => "honours",
            Self::Ignored => "ignores",
            Self::Unsupported => "rejects",
        }
    }
}

impl StoreCapabilities {
    /// All conditions and metadata. Tags may be hashes.
    pub const FULL: Self = Self {
        create: ConditionSupport::Native,
        update: ConditionSupport::Native,
        metadata: true,
        unique_tags: false,
    };

    /// Returns `true` if the store protects updates from writers that bypass this server.
    pub fn is_native(&self) -> bool {
        self.create == ConditionSupport::Native && self.update == ConditionSupport::Native
    }
}

/// Tests the store with a probe object, which is deleted afterwards.
pub(super) async fn probe(backing: &BackingStore) -> Result<StoreCapabilities, OpenError> {
    let number = nonce().map_err(|error| unusable(backing, error))?;
    let location = backing
        .prefix
        .clone()
        .join(FOLDER)
        .join(format!("probe-{number:016x}"));
    let trial = Trial {
        objects: &*backing.objects,
        location: &location,
    };
    let result = trial.run().await;
    let cleared = backing.objects.delete(&location).await;
    let capability = result.map_err(|error| unusable(backing, error))?;
    cleared.map_err(|error| unusable(backing, error))?;
    Ok(capability)
}

impl BackingStore {
    /// Checks the settings against the capabilities of the store.
    pub(super) fn check(&self, capability: StoreCapabilities) -> Result<(), OpenError> {
        if capability.metadata || self.container_memory.is_zero() {
            return Ok(());
        }
        let what = "the store keeps no metadata, so that late writes in deleted containers would become blobs: do without a memory of \
                    containers there";
        Err(OpenError::new(OpenErrorKind::Settings, what))
    }

    /// Asks the store for the head of an object, which needn't exist, to see that the store can be reached.
    ///
    /// # Errors
    /// [`OpenErrorKind::Settings`] without credentials, and otherwise [`OpenErrorKind::Unusable`].
    pub async fn reach(&self, location: &Path) -> Result<(), OpenError> {
        match self.objects.head(location).await {
            Ok(_) | Err(Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(unusable(self, error)),
        }
    }
}

fn unusable(backing: &BackingStore, source: impl Into<BoxError>) -> OpenError {
    let source = source.into();
    if let Some(advice) = backing.advice.filter(|_| asks_for_metadata(&*source)) {
        tracing::debug!(error = %source, "the store cannot be used");
        return OpenError::new(
            OpenErrorKind::Settings,
            format!("{} cannot be used: {advice}", backing.objects),
        );
    }
    let hint = "check that it exists, is reachable and is writable";
    OpenError::new(
        OpenErrorKind::Unusable,
        format!("{} cannot be used: {hint}", backing.objects),
    )
    .because(source)
}

/// Returns `true` if the error comes from a machine's metadata service, which is asked if there are no other
/// credentials.
fn asks_for_metadata(error: &(dyn StdError + 'static)) -> bool {
    let text = error.to_string();
    let is_named = METADATA_SERVICES
        .iter()
        .any(|address| text.contains(address));
    is_named || error.source().is_some_and(asks_for_metadata)
}

/// The tests, on one probe object.
struct Trial<'a> {
    objects: &'a dyn ObjectStore,
    location: &'a Path,
}

impl Trial<'_> {
    async fn run(&self) -> Result<StoreCapabilities, Error> {
        let create = self.create().await?;
        let metadata = self.metadata().await?;
        let update = self.update().await?;
        let unique_tags = self.unique_tags().await?;
        Ok(StoreCapabilities {
            create,
            update,
            metadata,
            unique_tags,
        })
    }

    /// Of two creations, the second must fail.
    async fn create(&self) -> Result<ConditionSupport, Error> {
        match self.put("1", PutMode::Create).await {
            Ok(_) => refusal(self.put("2", PutMode::Create).await),
            Err(error) if is_unsupported(&error) => Ok(ConditionSupport::Unsupported),
            Err(error) => Err(error),
        }
    }

    /// Attributes stored with an object must be returned with it.
    async fn metadata(&self) -> Result<bool, Error> {
        let mut attributes = Attributes::new();
        attributes.insert(Attribute::Metadata(MARK.into()), MARK.into());
        let options = PutOptions {
            attributes,
            ..PutOptions::default()
        };
        match self
            .objects
            .put_opts(self.location, PutPayload::from_static(b"3"), options)
            .await
        {
            Ok(_) => {}
            Err(error) if is_unsupported(&error) => return Ok(false),
            Err(error) => return Err(error),
        }
        let found = self
            .objects
            .get_opts(self.location, GetOptions::new().with_head(true))
            .await?;
        Ok(found
            .attributes
            .get(&Attribute::Metadata(MARK.into()))
            .is_some_and(|value| &**value == MARK))
    }

    /// An update of a replaced version must fail, and one of the current version must succeed.
    async fn update(&self) -> Result<ConditionSupport, Error> {
        let replaced = self.put("4", PutMode::Overwrite).await?;
        let current = self.put("five", PutMode::Overwrite).await?;
        let stale = refusal(self.put("6", PutMode::Update(replaced.into())).await)?;
        if stale != ConditionSupport::Native {
            return Ok(stale);
        }
        match refusal(self.put("7", PutMode::Update(current.into())).await)? {
            ConditionSupport::Ignored => Ok(ConditionSupport::Native),
            // The store rejects every update.
            ConditionSupport::Native | ConditionSupport::Unsupported => {
                Ok(ConditionSupport::Unsupported)
            }
        }
    }

    /// Two versions of the same bytes must have different tags.
    async fn unique_tags(&self) -> Result<bool, Error> {
        let first = self.put("8", PutMode::Overwrite).await?.e_tag;
        let second = self.put("8", PutMode::Overwrite).await?.e_tag;
        Ok(first.is_some() && first != second)
    }

    async fn put(&self, bytes: &'static str, mode: PutMode) -> Result<PutResult, Error> {
        let options = PutOptions {
            mode,
            ..PutOptions::default()
        };
        self.objects
            .put_opts(
                self.location,
                PutPayload::from_static(bytes.as_bytes()),
                options,
            )
            .await
    }
}

/// Returns how a store treats a false condition.
fn refusal(result: Result<PutResult, Error>) -> Result<ConditionSupport, Error> {
    match result {
        Ok(_) => Ok(ConditionSupport::Ignored),
        Err(
            Error::AlreadyExists { .. } | Error::Precondition { .. } | Error::NotModified { .. },
        ) => Ok(ConditionSupport::Native),
        Err(error) if is_unsupported(&error) => Ok(ConditionSupport::Unsupported),
        Err(error) => Err(error),
    }
}

fn is_unsupported(error: &Error) -> bool {
    matches!(
        error,
        Error::NotImplemented { .. } | Error::NotSupported { .. }
    )
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use object_store::memory::InMemory;

    use super::*;

    #[test]
    fn missing_credentials_are_named() {
        let backing = BackingStore {
            advice: Some("set AWS_ACCESS_KEY_ID"),
            ..BackingStore::new(Arc::new(InMemory::new()))
        };
        let asked = |url: &str| Error::Generic {
            store: "S3",
            source: format!("error sending request for {url}").into(),
        };
        let error = unusable(&backing, asked("http://169.254.169.254/latest/api/token"));
        assert_eq!(error.kind(), OpenErrorKind::Settings);
        assert_eq!(
            error.to_string(),
            "InMemory cannot be used: set AWS_ACCESS_KEY_ID"
        );
        let error = unusable(&backing, asked("https://bucket.example/"));
        assert_eq!(error.kind(), OpenErrorKind::Unusable);
        assert!(error.to_string().contains("bucket.example"), "{error}");
        let nested = OpenError::new(OpenErrorKind::Unusable, "x")
            .because(asked("http://metadata.google.internal/"));
        assert!(asks_for_metadata(&nested));
    }
}
