//! `ifmatch register`: prepares, inspects and copies registers.

mod accept_losses;
mod copy;
mod open;

use clap::{Args, Subcommand};
use ifmatch_register::{Guarantee, Register as _};
use serde_json::json;

pub(crate) use accept_losses::AcceptLosses;
pub(crate) use open::{in_folder, memory, memory_of, open};
use open::{migrate, open_existing};

use crate::cli::terminal::{counted, print_line};
use crate::commands::runtime::block_on;
use crate::config::register_urls;
use crate::error::Error;
use crate::metrics::register::failovers;

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
        register: Urls,
    },

    /// Show if a register can be used, and what it guarantees.
    #[command(after_help = STATUS_EXAMPLES)]
    Status {
        #[command(flatten)]
        register: Urls,

        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Copy all records to another register, which must be empty, and verify the copy. Stop all gateways that use
    /// either register first. An interrupted copy continues when repeated.
    #[command(after_help = COPY_EXAMPLES)]
    Copy {
        /// Register to read. Repeat it for several registers that are used together.
        #[arg(long, value_name = "URL", required = true)]
        from: Vec<String>,

        /// Register to write. Repeat it to divide the records among several registers.
        #[arg(long, value_name = "URL", required = true)]
        to: Vec<String>,
    },
}

/// The register of a command.
#[derive(Args)]
struct Urls {
    /// URL of the register. Repeat it for several registers that are used together.
    #[arg(
        long,
        value_name = "URL",
        env = "IFMATCH_REGISTER",
        hide_env_values = true,
        value_delimiter = ' ',
        required = true
    )]
    register: Vec<String>,
}

const MIGRATE_EXAMPLES: &str = "\
Example:
  PGPASSWORD=… ifmatch register migrate --register postgres://owner@db.example/app";

const STATUS_EXAMPLES: &str = "\
Example:
  ifmatch register status --register redb:///var/lib/ifmatch/register.redb";

const COPY_EXAMPLES: &str = "\
Example, from one register to two:
  ifmatch register copy --from redb:///var/lib/ifmatch/register.redb \\
      --to redb:///var/lib/ifmatch/0.redb --to redb:///var/lib/ifmatch/1.redb";

/// Runs the command, and prints its result.
///
/// # Errors
/// States why a register cannot be used, or which records differ.
pub(crate) fn run(args: &RegisterArgs) -> Result<(), Error> {
    block_on(async {
        match &args.command {
            RegisterCommand::Migrate { register } => {
                migrate(&register_urls(&register.register)?).await?;
                print_line("the register is up to date")
            }
            RegisterCommand::Status { register, json } => status(&register.register, *json).await,
            RegisterCommand::Copy { from, to } => {
                let from = open_existing(&register_urls(from)?).await?;
                let to = open(&register_urls(to)?).await?;
                let copied = copy::copy(&from, &to, |copied| print_line(&records(copied))).await?;
                print_line(&format!("copied and verified {}", records(copied)))
            }
        }
    })
}

fn records(number: u64) -> String {
    counted(number, "record", "records")
}

async fn status(urls: &[String], as_json: bool) -> Result<(), Error> {
    let register = open_existing(&register_urls(urls)?).await?;
    let guarantee = match register.guarantee() {
        Guarantee::Linearizable => "linearizable",
        Guarantee::UntilFailover => "until-failover",
        Guarantee::Process => "process",
    };
    let epoch = failovers(&register);
    if as_json {
        return print_line(&json!({ "status": "ready", "guarantee": guarantee, "epoch": epoch }).to_string());
    }
    print_line(match register.guarantee() {
        Guarantee::Linearizable => "ready: acknowledged changes are never lost",
        Guarantee::UntilFailover => "ready: a failover may lose acknowledged changes",
        Guarantee::Process => "ready: the records end with the process",
    })?;
    match epoch {
        0 => Ok(()),
        _ => print_line(&format!("epoch {epoch}: the number of failovers that may have lost acknowledged changes")),
    }
}
