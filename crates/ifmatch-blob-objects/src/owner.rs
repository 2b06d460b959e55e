//! The register that owns a store, named in an object next to the blobs, and the store that a register describes, named in
//! a record.
//!
//! The permits of two registers don't exclude each other. Two gateways with separate registers could both make a
//! change that no condition covers (a deletion, a creation, the end of a multipart upload, any write to a store without
//! conditions). So each checks the store's mark at startup and before each such change.
//!
//! Permits of one register don't protect the objects of two stores either. A register that outlasts its process therefore
//! serves the store whose name it has, from the mark of its first one:
//!
//! ```text
//!   gateway 1, bucket/a              register                        gateway 2, bucket/b by mistake
//!   marks a as "store 7"             no store
//!   claims the register ──────────▶  store 7 ◀────────────────────── there is no mark: would be "store 8", refuses to start
//! ```
//!
//! The mark comes first: a gateway that ends in between finds the name again.
//!
//! A bucket whose objects are the bodies of an index has the same marks, and a name that says so. It serves no objects by their names,
//! and a store of objects has no index.

use http::Method;
use ifmatch_blob::store::BoxError;
use ifmatch_core::command::{Command, Content, Write};
use ifmatch_core::digest::ContentHash;
use ifmatch_core::lease::LeaseUse;
use ifmatch_core::precondition::Preconditions;
use ifmatch_core::record::{Record, Revision};
use ifmatch_register::{Key, Register, RegisterError, RegisterErrorKind, Swap};
use ifmatch_runtime::{Clock, SystemClock, nonce};
use object_store::path::Path;
use object_store::{
    Error, GetOptions, ObjectStore, PutMode, PutOptions, PutPayload, UpdateVersion,
};
use serde::{Deserialize, Serialize};

use crate::backing::BackingStore;
use crate::failure::{self, OpenError, OpenErrorKind};
use crate::probe::{ConditionSupport, FOLDER, StoreCapabilities, probe};

/// Name of the mark, in the folder of objects that aren't blobs.
const NAME: &str = "owner";
/// Key of the record with a register's own name.
const REGISTER: &str = "i/register";
/// Key of the record with the name of the store that a register describes.
const STORE: &str = "i/store";
/// Beginning of the name of a store whose objects are the bodies of an index.
const BODIES: &str = "bodies-";
/// Maximum number of attempts at a contested mark.
const ATTEMPTS: usize = 16;

/// A register, as named in a store's mark.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct StoreOwner {
    /// Random name, drawn when the register was first used.
    pub(super) register: String,
    /// `true` if the register outlasts its process. Otherwise the next gateway may replace its mark.
    lasts: bool,
    /// Random name of the store, drawn when it was first marked.
    store: String,
}

/// Result of an attempt to mark a store.
pub(super) enum StoreClaim {
    /// The store belongs to this register. Contains the mark.
    Ours(StoreOwner),
    /// The store belongs to another register. Contains its mark.
    Taken(StoreOwner),
}

impl StoreOwner {
    /// Names the register and the store, and marks each with the other's name.
    ///
    /// # Errors
    /// [`OpenErrorKind::Taken`] if the mark names another register that outlasts its process, or the register another store.
    pub(super) async fn claim(
        backing: &BackingStore,
        capability: StoreCapabilities,
        register: &dyn Register,
        lasts: bool,
    ) -> Result<Self, OpenError> {
        Self::claim_named(backing, capability, register, lasts, "").await
    }

    /// Claims a store whose name begins like this, or one without a beginning.
    async fn claim_named(
        backing: &BackingStore,
        capability: StoreCapabilities,
        register: &dyn Register,
        lasts: bool,
        beginning: &str,
    ) -> Result<Self, OpenError> {
        let failed = |error: RegisterError| unusable(backing, error);
        let marked = read(&*backing.objects, &location(backing))
            .await
            .map_err(|error| unusable(backing, error))?;
        let store = match marked {
            Some((mark, _)) if mark.store.starts_with(BODIES) != (beginning == BODIES) => {
                return Err(of_another_kind(backing, beginning));
            }
            Some((mark, _)) => mark.store,
            None => format!("{beginning}{}", random().map_err(failed)?),
        };
        if !lasts {
            let owner = Self {
                register: random().map_err(failed)?,
                lasts,
                store,
            };
            return owner.own(backing, capability).await;
        }
        let described = name(register, STORE).await.map_err(failed)?;
        if described.is_some_and(|described| described != store) {
            return Err(describes_another(backing));
        }
        let named = claim_name(register, REGISTER, random().map_err(failed)?).await;
        let owner = Self {
            register: named.map_err(failed)?,
            lasts,
            store,
        }
        .own(backing, capability)
        .await?;
        if claim_name(register, STORE, owner.store.clone())
            .await
            .map_err(failed)?
            != owner.store
        {
            return Err(describes_another(backing));
        }
        Ok(owner)
    }

    /// Marks the store, and returns the mark.
    async fn own(
        &self,
        backing: &BackingStore,
        capability: StoreCapabilities,
    ) -> Result<Self, OpenError> {
        match self
            .mark(backing, capability, true)
            .await
            .map_err(|error| unusable(backing, error))?
        {
            StoreClaim::Ours(mark) => Ok(mark),
            StoreClaim::Taken(other) => {
                let what = format!(
                    "{} belongs to a gateway with another register ({}): start this one with that register (the folder \
                     given by --data), or, if that gateway is gone for good, delete the object {} and start again",
                    backing.objects,
                    other.register,
                    location(backing)
                );
                Err(OpenError::new(OpenErrorKind::Taken, what))
            }
        }
    }

    /// Ensures that the mark names this register. With `replaces`, takes over the mark of a register that doesn't
    /// outlast its process.
    pub(super) async fn mark(
        &self,
        backing: &BackingStore,
        capability: StoreCapabilities,
        replaces: bool,
    ) -> Result<StoreClaim, Error> {
        let location = location(backing);
        for _ in 0..ATTEMPTS {
            let mode = match read(&*backing.objects, &location).await? {
                Some((owner, _)) if owner.register == self.register => {
                    return Ok(StoreClaim::Ours(owner));
                }
                Some((owner, _)) if owner.lasts || !replaces => {
                    return Ok(StoreClaim::Taken(owner));
                }
                Some((_, version)) if capability.update == ConditionSupport::Native => {
                    PutMode::Update(version)
                }
                None if capability.create == ConditionSupport::Native => PutMode::Create,
                _ => PutMode::Overwrite,
            };
            let text = serde_json::to_vec(self).map_err(|source| odd(source.into()))?;
            let options = PutOptions {
                mode,
                ..PutOptions::default()
            };
            match backing
                .objects
                .put_opts(&location, PutPayload::from(text), options)
                .await
            {
                Ok(_)
                | Err(
                    Error::AlreadyExists { .. }
                    | Error::Precondition { .. }
                    | Error::NotModified { .. },
                ) => {}
                Err(error) => return Err(error),
            }
        }
        Err(odd("other processes keep changing it".into()))
    }
}

/// Marks a bucket and a register as those of one another: the bucket's objects are the bodies of an index in the register.
///
/// # Errors
/// [`OpenErrorKind::Unusable`] if the bucket is unreachable or not writable, [`OpenErrorKind::Taken`] if the bucket has another register
/// or serves objects by their names, or if the register has another bucket (see [`forget_store`]).
pub async fn claim_bodies(
    backing: &BackingStore,
    register: &dyn Register,
) -> Result<(), OpenError> {
    let capability = probe(backing).await?;
    StoreOwner::claim_named(backing, capability, register, true, BODIES)
        .await
        .map(drop)
}

fn of_another_kind(backing: &BackingStore, beginning: &str) -> OpenError {
    let what = if beginning == BODIES {
        format!(
            "{} belongs to a gateway with --store: use it with --store, or choose another prefix for --data",
            backing.objects
        )
    } else {
        format!(
            "{} belongs to gateways with --data: use it with --data, or choose another prefix for --store",
            backing.objects
        )
    };
    OpenError::new(OpenErrorKind::Taken, what)
}

fn location(backing: &BackingStore) -> Path {
    backing.prefix.clone().join(FOLDER).join(NAME)
}

/// Reads the mark.
async fn read(
    objects: &dyn ObjectStore,
    location: &Path,
) -> Result<Option<(StoreOwner, UpdateVersion)>, Error> {
    let result = match objects.get_opts(location, GetOptions::new()).await {
        Ok(result) => result,
        Err(error) if failure::is_absence(&error) => return Ok(None),
        Err(error) => return Err(error),
    };
    let version = UpdateVersion {
        e_tag: result.meta.e_tag.clone(),
        version: result.meta.version.clone(),
    };
    let text = result.bytes().await?;
    match serde_json::from_slice(&text) {
        Ok(owner) => Ok(Some((owner, version))),
        Err(source) => Err(odd(format!(
            "the object {location} was not written by ifmatch: delete it ({source})"
        )
        .into())),
    }
}

fn unusable(backing: &BackingStore, cause: impl Into<BoxError>) -> OpenError {
    let what = format!(
        "{} cannot be marked as in use by this gateway",
        backing.objects
    );
    OpenError::new(OpenErrorKind::Unusable, what).because(cause)
}

fn describes_another(backing: &BackingStore) -> OpenError {
    let what = format!(
        "the register describes another store than {}: start the gateway with that store, or give this one a register of its \
         own. If this store was moved, restored or emptied, stop all gateways and run ifmatch register restored",
        backing.objects
    );
    OpenError::new(OpenErrorKind::Taken, what)
}

/// Lets the next gateway choose the store that a register describes, after the store was moved, restored or emptied. No
/// gateway may be running: it would go on using the former store.
///
/// # Errors
/// Fails if the register fails, or if a gateway has just chosen a store.
pub async fn forget_store(register: &dyn Register) -> Result<(), RegisterError> {
    let key = key(STORE)?;
    let Some(record) = register.load(&key).await? else {
        return Ok(());
    };
    match register
        .compare_and_swap(&key, record.revision(), None)
        .await?
    {
        Swap::Done | Swap::Conflict(None) => Ok(()),
        Swap::Conflict(Some(_)) => Err(RegisterErrorKind::Unavailable.into()),
    }
}

fn key(key: &str) -> Result<Key, RegisterError> {
    Key::new(key).map_err(|error| RegisterError::new(RegisterErrorKind::Unreadable, error))
}

/// Returns the name that a register has under a key.
async fn name(register: &dyn Register, key: &str) -> Result<Option<String>, RegisterError> {
    let Some(record) = register.load(&self::key(key)?).await? else {
        return Ok(None);
    };
    let payload = record
        .state(SystemClock.now())
        .version()
        .map(|version| version.payload().to_vec());
    let name = payload.and_then(|payload| String::from_utf8(payload).ok());
    name.map(Some)
        .ok_or_else(|| RegisterErrorKind::Unreadable.into())
}

/// Returns the name that a register has under a key, assigning this one if there is none.
async fn claim_name(
    register: &dyn Register,
    key: &str,
    new: String,
) -> Result<String, RegisterError> {
    let nothing = Preconditions::default();
    let content = Content::Hashed {
        hash: ContentHash::of(b""),
        payload: new.clone().into(),
    };
    let write =
        Write::new(&Method::PUT, &nothing, content, nonce()?).with_lease(LeaseUse::Read(None));
    let first = Record::unknown()
        .apply(&Command::Write(write), SystemClock.now())
        .next;
    for _ in 0..ATTEMPTS {
        if let Some(name) = name(register, key).await? {
            return Ok(name);
        }
        match register
            .compare_and_swap(&self::key(key)?, Revision::NONE, first.as_ref())
            .await
        {
            Ok(Swap::Done) => return Ok(new),
            Ok(Swap::Conflict(_)) => {}
            Err(error) if error.kind() == RegisterErrorKind::Ambiguous => {}
            Err(error) => return Err(error),
        }
    }
    Err(RegisterErrorKind::Unavailable.into())
}

fn random() -> Result<String, RegisterError> {
    Ok(format!("{:016x}{:016x}", nonce()?, nonce()?))
}

fn odd(source: BoxError) -> Error {
    Error::Generic {
        store: "owner's mark",
        source,
    }
}
