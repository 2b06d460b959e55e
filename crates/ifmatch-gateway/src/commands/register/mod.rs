//! `ifmatch register`: prepares, inspects and copies registers.

mod copy;
mod open;

use clap::{Args, Subcommand};
use ifmatch_register::{Engine, Guarantee};
use serde_json::json;

pub(crate) use open::{AcceptLosses, in_folder, memory, memory_of, open};
use open::{migrate, open_existing, restored};

use crate::cli::terminal::{counted, print_line};
use crate::commands::runtime::block_on;
use crate::error::Error;

/// `ifmatch register …`
#[derive(Args)]
#[command(arg_required_else_help = true)]
pub(crate) struct RegisterArgs {
    #[command(subcommand)]
    command: RegisterCommand,
}

#[derive(Subcommand)]
enum RegisterCommand {
    /// Create or update the tables of a register in a database, as a user who may do so. Gateways need no such right.
    #[command(after_help = MIGRATE_EXAMPLES)]
    Migrate {
        #[command(flatten)]
        register: RegisterOption,
    },

    /// Show if a register can be used, and what it guarantees.
    #[command(after_help = STATUS_EXAMPLES)]
    Status {
        #[command(flatten)]
        register: RegisterOption,

        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Begin an epoch after a backup was restored, before gateways and services use the register again. They then treat the
    /// versions of the backup as unknown wherever they can look for the current one. The next gateway may use another
    /// store than the ones before: run the command, too, after a store was moved or emptied.
    #[command(after_help = RESTORED_EXAMPLES)]
    Restored {
        #[command(flatten)]
        register: RegisterOption,
    },
    /// Copy all records to another register, which must be empty, and verify the copy. Stop all gateways that use
    /// either register first. An interrupted copy continues when repeated.
    #[command(after_help = COPY_EXAMPLES)]
    Copy {
        /// Register to read.
        #[arg(long, value_name = "URL")]
        from: String,

        /// Register to write.
        #[arg(long, value_name = "URL")]
        to: String,
    },
}

/// The register of a command.
#[derive(Args)]
struct RegisterOption {
    /// URL of the register.
    #[arg(long, value_name = "URL", env = "IFMATCH_REGISTER", hide_env_values = true)]
    register: String,
}

const MIGRATE_EXAMPLES: &str = "\
Example:
  PGPASSWORD=… ifmatch register migrate --register postgres://owner@db.example/app";

const STATUS_EXAMPLES: &str = "\
Example:
  ifmatch register status --register redb:///var/lib/ifmatch/register.redb";

const RESTORED_EXAMPLES: &str = "\
Example, with all gateways stopped:
  pg_restore --clean --dbname app register.dump
  ifmatch register restored --register postgres://ifmatch@db.example/app";

const COPY_EXAMPLES: &str = "\
Example:
  ifmatch register copy --from redb:///var/lib/ifmatch/register.redb --to postgres://ifmatch@db.example/app";

/// Runs the command, and prints its result.
///
/// # Errors
/// States why a register cannot be used, or which records differ.
pub(crate) fn run(args: &RegisterArgs) -> Result<(), Error> {
    block_on(async {
        match &args.command {
            RegisterCommand::Migrate { register } => {
                migrate(&register.register.parse()?).await?;
                print_line("the register is up to date")
            }
            RegisterCommand::Status { register, json } => status(&register.register, *json).await,
            RegisterCommand::Restored { register } => restored(&register.register.parse()?).await,
            RegisterCommand::Copy { from, to } => {
                let from = open_existing(&from.parse()?).await?;
                let to = open(&to.parse()?).await?;
                let copied = copy::copy(&from, &to, |copied| print_line(&records(copied))).await?;
                print_line(&format!("copied and verified {}", records(copied)))
            }
        }
    })
}

fn records(number: u64) -> String {
    counted(number, "record", "records")
}

async fn status(url: &str, as_json: bool) -> Result<(), Error> {
    let register = open_existing(&url.parse()?).await?;
    let Engine { guarantee, epoch, .. } = register.engine();
    let name = match guarantee {
        Guarantee::Linearizable => "linearizable",
        Guarantee::UntilFailover => "until-failover",
        Guarantee::Process => "process",
    };
    if as_json {
        return print_line(&json!({ "status": "ready", "guarantee": name, "epoch": epoch.number }).to_string());
    }
    print_line(match guarantee {
        Guarantee::Linearizable => "ready: acknowledged changes are never lost",
        Guarantee::UntilFailover => "ready: a failover may lose acknowledged changes",
        Guarantee::Process => "ready: the records end with the process",
    })?;
    match epoch.number {
        0 => Ok(()),
        number => print_line(&format!(
            "epoch {number}: the number of failovers and restores that may have lost acknowledged changes"
        )),
    }
}
