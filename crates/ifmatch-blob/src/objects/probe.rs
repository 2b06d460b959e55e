//! Tries out whether a store honours conditions. Some accept a condition and ignore it.

use ifmatch_store::nonce;
use object_store::path::Path;
use object_store::{
    Attribute, Attributes, Error, GetOptions, ObjectStore, ObjectStoreExt, PutMode, PutOptions, PutPayload, PutResult,
};

use super::backing::Backing;
use super::open_error::{OpenError, OpenErrorKind};

/// Where the object to try with is: no container's name begins so.
const FOLDER: &str = "-ifmatch";
/// The name and the value of the metadata to try with.
const MARK: &str = "ifmatchprobe";

/// What a store was found to do.
///
/// ```
/// use ifmatch_blob::objects::{Capability, Support};
///
/// let folder = Capability { create: Support::Native, update: Support::Unsupported, metadata: false };
/// assert!(!folder.is_native());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capability {
    /// Writing an object only if there is none.
    pub create: Support,
    /// Writing an object only if it is still the same version.
    pub update: Support,
    /// Keeping header fields and metadata with an object.
    pub metadata: bool,
}

/// How a store deals with a condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Support {
    /// It honours the condition.
    Native,
    /// It accepts the condition and writes all the same.
    Ignored,
    /// It refuses conditional writes.
    Unsupported,
}

impl Capability {
    /// That of a store which honours all conditions and keeps metadata.
    pub const FULL: Self = Self { create: Support::Native, update: Support::Native, metadata: true };

    /// Whether the store protects updates from writers who bypass us.
    pub fn is_native(&self) -> bool {
        self.create == Support::Native && self.update == Support::Native
    }
}

/// Tries the store out with an object of its own, which is deleted afterwards.
pub(super) async fn probe(backing: &Backing) -> Result<Capability, OpenError> {
    let unusable = || {
        let what =
            format!("{} cannot be used: check that it exists, can be reached and may be written to", backing.objects);
        OpenError::new(OpenErrorKind::Unusable, what)
    };
    let number = nonce().map_err(|error| unusable().because(error))?;
    let location = backing.prefix.clone().join(FOLDER).join(format!("probe-{number:016x}"));
    let trial = Trial { objects: &*backing.objects, location: &location };
    let result = trial.run().await;
    let cleared = backing.objects.delete(&location).await;
    let capability = result.map_err(|error| unusable().because(error))?;
    cleared.map_err(|error| unusable().because(error))?;
    Ok(capability)
}

struct Trial<'a> {
    objects: &'a dyn ObjectStore,
    location: &'a Path,
}

impl Trial<'_> {
    async fn run(&self) -> Result<Capability, Error> {
        let create = self.create().await?;
        let metadata = self.metadata().await?;
        let update = self.update().await?;
        Ok(Capability { create, update, metadata })
    }

    /// Of two creations, the second must fail.
    async fn create(&self) -> Result<Support, Error> {
        match self.put("1", PutMode::Create).await {
            Ok(_) => refusal(self.put("2", PutMode::Create).await),
            Err(error) if is_unsupported(&error) => Ok(Support::Unsupported),
            Err(error) => Err(error),
        }
    }

    /// What is stored with an object must come back with it.
    async fn metadata(&self) -> Result<bool, Error> {
        let mut attributes = Attributes::new();
        attributes.insert(Attribute::Metadata(MARK.into()), MARK.into());
        let options = PutOptions { attributes, ..PutOptions::default() };
        match self.objects.put_opts(self.location, PutPayload::from_static(b"3"), options).await {
            Ok(_) => {}
            Err(error) if is_unsupported(&error) => return Ok(false),
            Err(error) => return Err(error),
        }
        let found = self.objects.get_opts(self.location, GetOptions::new().with_head(true)).await?;
        Ok(found.attributes.get(&Attribute::Metadata(MARK.into())).is_some_and(|value| &**value == MARK))
    }

    /// An update of a version that was replaced must fail, that of the current one must succeed.
    async fn update(&self) -> Result<Support, Error> {
        let replaced = self.put("4", PutMode::Overwrite).await?;
        let current = self.put("five", PutMode::Overwrite).await?;
        let stale = refusal(self.put("6", PutMode::Update(replaced.into())).await)?;
        if stale != Support::Native {
            return Ok(stale);
        }
        match refusal(self.put("7", PutMode::Update(current.into())).await)? {
            Support::Ignored => Ok(Support::Native),
            // It refuses every update.
            Support::Native | Support::Unsupported => Ok(Support::Unsupported),
        }
    }

    async fn put(&self, bytes: &'static str, mode: PutMode) -> Result<PutResult, Error> {
        let options = PutOptions { mode, ..PutOptions::default() };
        self.objects.put_opts(self.location, PutPayload::from_static(bytes.as_bytes()), options).await
    }
}

/// How a store deals with a condition that is false.
fn refusal(result: Result<PutResult, Error>) -> Result<Support, Error> {
    match result {
        Ok(_) => Ok(Support::Ignored),
        Err(Error::AlreadyExists { .. } | Error::Precondition { .. } | Error::NotModified { .. }) => {
            Ok(Support::Native)
        }
        Err(error) if is_unsupported(&error) => Ok(Support::Unsupported),
        Err(error) => Err(error),
    }
}

fn is_unsupported(error: &Error) -> bool {
    matches!(error, Error::NotImplemented { .. } | Error::NotSupported { .. })
}
