//! Opening of the configured register.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use ifmatch_blob::store::BoxError;
use ifmatch_blob_indexed as indexed;
use ifmatch_blob_objects::{self as objects, ObjectRegister};
use ifmatch_core::record::Revision;
use ifmatch_gateway_commands::store_url;
use ifmatch_gateway_commands::terminal::print_line;
use ifmatch_gateway_config::error::Error;
use ifmatch_gateway_config::register_url::{Engine, RegisterUrl};
use ifmatch_redb::RedbRegister;
use ifmatch_register::{
    self as registers, ConnectError, ConnectErrorKind, Guarantee, Key, MemoryRegister, Register,
    Wrapper,
};
use tokio::task::spawn_blocking;

use super::engines;

/// Maximum number of records of a register in memory. Evicted records are read from the object store, or from the
/// upstream, again when needed.
const MEMORY_RECORDS: usize = 1_000_000;

/// Opens a register that must exist. [`open`] would create a missing file, which then passes for an empty register.
///
/// # Errors
/// As for [`open`], and if there is no such file.
async fn open_existing(url: &RegisterUrl) -> Result<Arc<dyn Register>, Error> {
    match url.engine() {
        Engine::Redb(file) if !file.exists() => Err(Error::usage(format!(
            "no such file: {url}. Check the path."
        ))),
        _ => open(url).await,
    }
}

/// Opens a register that must exist, for reading. A file stays as it was found, even if a gateway's death left it in need of repair.
///
/// # Errors
/// As for [`open_existing`].
pub(super) async fn open_read_only(url: &RegisterUrl) -> Result<Arc<dyn Register>, Error> {
    match url.engine() {
        Engine::Redb(file) if file.exists() => {
            let file = file.clone();
            let open = move || {
                RedbRegister::open_read_only(file)
                    .map(|register| Arc::new(register) as Arc<dyn Register>)
            };
            let opened = spawn_blocking(open)
                .await
                .map_err(BoxError::from)
                .and_then(|opened| Ok(opened?));
            opened.map_err(|error| redb_error(&format!("--register {url}"), &error))
        }
        _ => open_existing(url).await,
    }
}

/// Opens a register by its URL. To add an engine, add it to [`Engine`] as well.
///
/// # Errors
/// States why the register can't be used, and what to do.
pub(crate) async fn open(url: &RegisterUrl) -> Result<Arc<dyn Register>, Error> {
    match url.engine() {
        Engine::Memory => Ok(memory()),
        Engine::Database(database) => {
            let opened = engines::of(*database).connect(url.with_password()).await;
            opened.map_err(|error| connect_error(url, &error))
        }
        Engine::Objects => {
            let opened = ObjectRegister::connect(url.with_password(), store_url::settings()).await;
            Ok(Arc::new(
                opened.map_err(|error| objects_error(url, &error))?,
            ))
        }
        Engine::Redb(file) => {
            let folder = file.parent().map(Path::to_owned).unwrap_or_default();
            let file = file.clone();
            redb(folder, file)
                .await
                .map_err(|error| redb_error(&format!("--register {url}"), &error))
        }
    }
}

/// Creates or updates the tables of a register in a database. The others need none.
///
/// # Errors
/// States why the register can't be changed, and what to do.
pub(super) async fn migrate(url: &RegisterUrl) -> Result<(), Error> {
    let Engine::Database(database) = url.engine() else {
        return Ok(());
    };
    engines::of(*database)
        .migrate(url.with_password())
        .await
        .map_err(|error| connect_error(url, &error))
}

/// Begins an epoch in a register that has epochs, after a backup was restored, and lets the next gateway choose the store.
///
/// # Errors
/// States why the register can't be changed, and what to do.
pub(super) async fn restored(url: &RegisterUrl) -> Result<(), Error> {
    let epoch = match url.engine() {
        Engine::Database(database) => {
            let begun = engines::of(*database).restored(url.with_password()).await;
            begun.map_err(|error| connect_error(url, &error))?
        }
        Engine::Memory | Engine::Redb(_) | Engine::Objects => None,
    };
    print_line(&match epoch {
        Some(epoch) => format!("{url}: epoch {epoch} started"),
        None => {
            format!(
                "{url} has no epochs. If services with the layer use it, delete their records instead of restoring them."
            )
        }
    })?;
    let forgotten = objects::forget_store(&*open_existing(url).await?).await;
    forgotten.map_err(|error| Error::runtime(format!("can't change the register: {error}")))
}

fn connect_error(url: &RegisterUrl, error: &ConnectError) -> Error {
    unusable(url, error, error.kind() == ConnectErrorKind::Unreachable)
}

fn objects_error(url: &RegisterUrl, error: &objects::OpenError) -> Error {
    unusable(url, error, error.kind() == objects::OpenErrorKind::Unusable)
}

/// A server that can't be reached isn't an error in the settings.
fn unusable(url: &RegisterUrl, error: &dyn std::error::Error, is_unreachable: bool) -> Error {
    let message = format!(
        "can't use the register {url}. {}",
        sentence(&error.to_string())
    );
    if is_unreachable {
        Error::runtime(message)
    } else {
        Error::usage(message)
    }
}

/// Returns a message as a sentence, with a capital and a full stop.
fn sentence(text: &str) -> String {
    let mut rest = text.chars();
    let first = rest
        .next()
        .map(|first| first.to_uppercase().collect::<String>())
        .unwrap_or_default();
    let end = if text.ends_with(['.', ')']) { "" } else { "." };
    format!("{first}{}{end}", rest.as_str())
}

/// Returns a register in memory.
pub(crate) fn memory() -> Arc<dyn Register> {
    Arc::new(MemoryRegister::with_capacity(MEMORY_RECORDS))
}

/// Returns a register in memory that takes this many bytes at most.
pub(crate) fn memory_of(bytes: u64) -> Arc<dyn Register> {
    Arc::new(MemoryRegister::with_memory(
        usize::try_from(bytes).unwrap_or(usize::MAX),
    ))
}

/// Opens the register of an object store in the folder given by `--data`.
///
/// # Errors
/// States why the folder can't be used.
pub(crate) async fn in_folder(folder: &Path) -> Result<Arc<dyn Register>, Error> {
    let opened = redb(folder.to_owned(), folder.join("register.redb")).await;
    opened.map_err(|error| redb_error(&format!("--data {}", folder.display()), &error))
}

fn redb_error(option: &str, error: &BoxError) -> Error {
    let message = format!("can't use {option}. {}", sentence(&error.to_string()));
    match error.downcast_ref().map(ifmatch_redb::OpenError::kind) {
        Some(ifmatch_redb::OpenErrorKind::InUse) => Error::in_use(message),
        Some(ifmatch_redb::OpenErrorKind::Damaged | ifmatch_redb::OpenErrorKind::LostCommit) => {
            Error::damaged(message)
        }
        _ => Error::runtime(message),
    }
}

async fn redb(folder: PathBuf, file: PathBuf) -> Result<Arc<dyn Register>, BoxError> {
    let open = move || -> Result<Arc<dyn Register>, BoxError> {
        indexed::create_folder(&folder)?;
        Ok(Arc::new(RedbRegister::open(file)?))
    };
    spawn_blocking(open).await?
}

/// A register with the guarantee that the operator assumes (`--register-may-lose`).
pub(crate) struct AcceptLosses(pub(crate) Arc<dyn Register>);

impl Wrapper for AcceptLosses {
    fn inner(&self) -> &dyn Register {
        &self.0
    }

    fn revision_at_once(&self, key: &Key) -> Option<Revision> {
        self.0.revision_at_once(key)
    }

    fn engine(&self) -> registers::Engine {
        let engine = self.0.engine();
        let guarantee = match engine.guarantee {
            Guarantee::UntilFailover => Guarantee::Linearizable,
            other => other,
        };
        registers::Engine {
            guarantee,
            ..engine
        }
    }
}
