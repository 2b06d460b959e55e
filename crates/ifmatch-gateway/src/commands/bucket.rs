//! A store in a bucket: opened, backed up into a folder, and restored from one.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use ifmatch_blob_indexed::{IndexedStore, Objects, OpenError, Progress, Total};
use ifmatch_blob_objects::claim_bodies;
use ifmatch_gateway_commands::runtime::block_on;
use ifmatch_gateway_commands::store_url;
use ifmatch_gateway_commands::terminal::{counted, print_line};
use ifmatch_gateway_config::check_index;
use ifmatch_gateway_config::error::Error;
use ifmatch_gateway_config::register_url::{Engine, RegisterUrl};
use ifmatch_gateway_config::shown_url::without_secrets;
use ifmatch_gateway_service::metrics::register::MeteredRegister;
use ifmatch_register::{Driver, MemoryRegister, Register};
use indicatif::HumanBytes;

use super::register;
use super::serve::folder_error;

/// `ifmatch restore …`
#[derive(Args)]
pub(crate) struct RestoreArgs {
    /// The backup: the data folder of a stopped gateway, or a copy of one.
    #[arg(long, value_name = "DIR")]
    from: PathBuf,

    /// Empty bucket to restore into, such as `s3://bucket/prefix`.
    #[arg(long, value_name = "URL")]
    data: String,

    /// Empty register for the index.
    #[arg(
        long,
        value_name = "URL",
        env = "IFMATCH_REGISTER",
        hide_env_values = true
    )]
    register: String,
}

/// The end of the help of `ifmatch restore`.
pub(crate) const RESTORE_EXAMPLES: &str = "\
Example:
  ifmatch restore --from /mnt/backup/ifmatch --data s3://bucket/blobs \\
    --register postgres://ifmatch@db.example/app

Blobs keep their tags, dates, leases, fencing tokens and snapshots. To restore a backup into a folder, copy it there.

Exit codes:
  0   restored
  1   failed
  2   invalid flags
  3   the folder's index is damaged
  11  another process uses the folder";

/// Opens the store in a bucket, with its index in a register. Returns the register, too.
///
/// # Errors
/// States why the bucket or the register can't be used, or that they don't belong together.
pub(crate) async fn open(
    url: &str,
    register: &RegisterUrl,
) -> Result<(IndexedStore, Arc<dyn Register>), Error> {
    check_index(url, register)?;
    let name = format!("--data {}", without_secrets(url));
    let backing = store_url::open(&name, url)?;
    let register = match register.engine() {
        // Beside a bucket in memory. The index must not evict records.
        Engine::Memory => Arc::new(MemoryRegister::unbounded()),
        _ => register::open(register).await?,
    };
    if register.engine().guarantee.may_lose_swaps() {
        return Err(Error::usage(
            "this --register may lose acknowledged changes in a failover, and with them blobs. Use PostgreSQL or etcd.",
        ));
    }
    claim_bodies(&backing, &register)
        .await
        .map_err(|error| store_url::failed(&name, &error))?;
    let objects = Objects::new(Arc::clone(backing.objects()), backing.prefix().clone());
    // Azure may still be copying when it answers, and files can't be copied.
    let copies = ["s3:", "gs:", "memory:"]
        .iter()
        .any(|scheme| url.starts_with(scheme));
    let objects = if copies {
        objects.copied_by_store()
    } else {
        objects
    };
    // The caller gets the unmeasured register, for checks, whose swaps always conflict.
    let metered = MeteredRegister::new(Arc::clone(&register));
    let store = IndexedStore::in_bucket(objects, Driver::new(metered));
    Ok((
        store.map_err(|error| Error::usage(error.to_string()))?,
        register,
    ))
}

/// Copies a folder into an empty bucket.
///
/// # Errors
/// States why one of them can't be used, or which blob is damaged.
pub(crate) fn restore(args: &RestoreArgs) -> Result<(), Error> {
    block_on(async {
        let folder = open_folder(&args.from, true).await?;
        let (bucket, _) = open(&args.data, &args.register.parse()?).await?;
        print_line(&format!(
            "restored {}",
            shown(copy(&folder, &bucket).await?)
        ))
    })
}

/// Copies a bucket into an empty folder, while its gateways go on.
///
/// # Errors
/// States why one of them can't be used, or which blob is damaged.
pub(crate) fn backup(url: &str, register: Option<&str>, to: &Path) -> Result<(), Error> {
    let register = register.ok_or_else(|| {
        Error::usage(
            "a bucket's index is in a register. Set --register to the one that its gateways use.",
        )
    })?;
    block_on(async {
        let (bucket, _) = open(url, &register.parse()?).await?;
        let folder = open_folder(to, false).await?;
        print_line(&format!(
            "backed up {}",
            shown(copy(&bucket, &folder).await?)
        ))
    })
}

async fn open_folder(folder: &Path, must_exist: bool) -> Result<IndexedStore, Error> {
    if must_exist && !folder.join("index.redb").exists() {
        return Err(Error::usage(format!(
            "{} is not a data folder: it has no index.redb. Check the path.",
            folder.display()
        )));
    }
    IndexedStore::open(folder)
        .await
        .map_err(|error| folder_error(folder, &error))
}

async fn copy(from: &IndexedStore, to: &IndexedStore) -> Result<Total, Error> {
    let failed = |error: OpenError| Error::runtime(format!("the copy is incomplete: {error}."));
    from.copy_into(to, &Progress::default())
        .await
        .map_err(failed)
}

fn shown(total: Total) -> String {
    format!(
        "{} ({})",
        counted(total.bodies, "blob", "blobs"),
        HumanBytes(total.bytes)
    )
}
