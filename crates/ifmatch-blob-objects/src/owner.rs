//! The register that owns a store, named in an object next to the blobs.
//!
//! The permits of two registers do not exclude each other. Two gateways with separate registers could both make a
//! change that no condition covers (a deletion, a creation, the end of a multipart upload, any write to a store without
//! conditions). Each therefore checks the store's mark at startup and before each such change.

use std::sync::Arc;

use http::Method;
use ifmatch_core::command::{Command, Content, Write};
use ifmatch_core::digest::ContentHash;
use ifmatch_core::lease::LeaseUse;
use ifmatch_core::precondition::Preconditions;
use ifmatch_core::record::{Record, Revision};
use ifmatch_register::{Key, Register, RegisterError, RegisterErrorKind, Swap};
use ifmatch_runtime::{Clock, SystemClock, nonce};
use object_store::path::Path;
use object_store::{Error, GetOptions, ObjectStore, PutMode, PutOptions, PutPayload, UpdateVersion};
use serde::{Deserialize, Serialize};

use super::backing::Backing;
use super::failure;
use super::open_error::{OpenError, OpenErrorKind};
use super::probe::{Capability, FOLDER, Support};

/// Name of the mark, in the folder of objects that are not blobs.
const NAME: &str = "owner";
/// Key of the record with a register's own name.
const KEY: &str = "i/register";
/// Maximum number of attempts at a contested mark.
const ATTEMPTS: usize = 16;

/// A register, as named in a store's mark.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Owner {
    /// Random name, drawn when the register was first used.
    pub(super) register: String,
    /// `true` if the register outlasts its process. Otherwise the next gateway may replace its mark.
    lasts: bool,
}

/// Result of an attempt to mark a store.
pub(super) enum Claim {
    Ours,
    /// The store belongs to this register.
    Taken(Owner),
}

impl Owner {
    /// Names the register and marks the store with that name.
    ///
    /// # Errors
    /// [`OpenErrorKind::Taken`] if the mark names another register that outlasts its process.
    pub(super) async fn claim(
        backing: &Backing,
        capability: Capability,
        register: &Arc<dyn Register>,
        lasts: bool,
    ) -> Result<Self, OpenError> {
        let unusable = || {
            let what = format!("{} cannot be marked as in use by this gateway", backing.objects);
            OpenError::new(OpenErrorKind::Unusable, what)
        };
        let named = if lasts { name_of(register).await } else { random() };
        let register = named.map_err(|error| unusable().because(error))?;
        let owner = Self { register, lasts };
        match owner.mark(backing, capability, true).await.map_err(|error| unusable().because(error))? {
            Claim::Ours => Ok(owner),
            Claim::Taken(other) => {
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

    /// Ensures that the mark names this register. With `replaces`, takes over the mark of a register that does not
    /// outlast its process.
    pub(super) async fn mark(&self, backing: &Backing, capability: Capability, replaces: bool) -> Result<Claim, Error> {
        let location = location(backing);
        for _ in 0..ATTEMPTS {
            let mode = match read(&*backing.objects, &location).await? {
                Some((owner, _)) if owner == *self => return Ok(Claim::Ours),
                Some((owner, _)) if owner.lasts || !replaces => return Ok(Claim::Taken(owner)),
                Some((_, version)) if capability.update == Support::Native => PutMode::Update(version),
                None if capability.create == Support::Native => PutMode::Create,
                _ => PutMode::Overwrite,
            };
            let text = serde_json::to_vec(self).map_err(|source| odd(source.into()))?;
            let options = PutOptions { mode, ..PutOptions::default() };
            match backing.objects.put_opts(&location, PutPayload::from(text), options).await {
                Ok(_) | Err(Error::AlreadyExists { .. } | Error::Precondition { .. } | Error::NotModified { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Err(odd("others keep changing it".into()))
    }
}

fn location(backing: &Backing) -> Path {
    backing.prefix.clone().join(FOLDER).join(NAME)
}

/// Reads the mark.
async fn read(objects: &dyn ObjectStore, location: &Path) -> Result<Option<(Owner, UpdateVersion)>, Error> {
    let result = match objects.get_opts(location, GetOptions::new()).await {
        Ok(result) => result,
        Err(error) if failure::is_absence(&error) => return Ok(None),
        Err(error) => return Err(error),
    };
    let version = UpdateVersion { e_tag: result.meta.e_tag.clone(), version: result.meta.version.clone() };
    let text = result.bytes().await?;
    match serde_json::from_slice(&text) {
        Ok(owner) => Ok(Some((owner, version))),
        Err(source) => {
            Err(odd(format!("the object {location} was not written by ifmatch: delete it ({source})").into()))
        }
    }
}

/// Returns the name of a register, assigning one at its first use.
async fn name_of(register: &Arc<dyn Register>) -> Result<String, RegisterError> {
    let key = Key::new(KEY).map_err(|error| RegisterError::new(RegisterErrorKind::Unreadable, error))?;
    let name = random()?;
    let nothing = Preconditions::default();
    let write = Write::new(
        &Method::PUT,
        &nothing,
        Content::Hashed { hash: ContentHash::of(b""), payload: name.clone().into() },
        nonce()?,
    )
    .with_lease(LeaseUse::Read(None));
    let first = Record::unknown().apply(&Command::Write(write), SystemClock.now()).next;
    for _ in 0..ATTEMPTS {
        if let Some(record) = register.load(&key).await? {
            let payload = record.state(SystemClock.now()).version().map(|version| version.payload().to_vec());
            let name = payload.and_then(|payload| String::from_utf8(payload).ok());
            return name.ok_or_else(|| RegisterErrorKind::Unreadable.into());
        }
        match register.compare_and_swap(&key, Revision::NONE, first.as_ref()).await {
            Ok(Swap::Done) => return Ok(name),
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

fn odd(source: Box<dyn std::error::Error + Send + Sync>) -> Error {
    Error::Generic { store: "owner's mark", source }
}
