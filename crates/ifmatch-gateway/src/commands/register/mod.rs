//! `ifmatch register`: prepares, inspects and copies registers.

use std::sync::Arc;

use clap::{Args, Subcommand};
use ifmatch_core::record::{Record, Revision};
use ifmatch_register::{Engine, Guarantee, Key, Register, RegisterError, Scan, Swap};
use open::{migrate, open_read_only, restored};
use serde_json::json;

use ifmatch_gateway_commands::runtime::block_on;
use ifmatch_gateway_commands::terminal::{counted, print_line};
use ifmatch_gateway_config::error::Error;

mod engines;
mod open;

pub(crate) use open::{AcceptLosses, in_folder, memory, memory_of, open};

/// `ifmatch register …`
#[derive(Args)]
#[command(arg_required_else_help = true)]
pub(crate) struct RegisterArgs {
    #[command(subcommand)]
    command: RegisterCommand,
}

#[derive(Subcommand)]
enum RegisterCommand {
    /// Create or update a register's tables, as a user with CREATE on the schema.
    #[command(after_help = MIGRATE_EXAMPLES)]
    Migrate {
        #[command(flatten)]
        register: RegisterOption,
    },

    /// Show whether a register is usable, and what it guarantees.
    #[command(after_help = STATUS_EXAMPLES)]
    Status {
        #[command(flatten)]
        register: RegisterOption,

        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Release a register after a backup was restored, or a store was moved or emptied.
    ///
    /// The register then accepts a different store. On PostgreSQL and Redis, this also starts an epoch: gateways and services
    /// treat the versions in the register as unknown wherever they can look up the current one. Run this command before they
    /// use the register again.
    #[command(after_help = RESTORED_EXAMPLES)]
    Restored {
        #[command(flatten)]
        register: RegisterOption,
    },
    /// Copy all records to an empty register, and verify the copy.
    ///
    /// Stop all gateways that use either register first. To continue an interrupted copy, run it again.
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
    #[arg(
        long,
        value_name = "URL",
        env = "IFMATCH_REGISTER",
        hide_env_values = true
    )]
    register: String,
}

const MIGRATE_EXAMPLES: &str = "\
Example:
  PGPASSWORD=\"$OWNER_PASSWORD\" ifmatch register migrate \\
    --register postgres://owner@db.example/app";

const STATUS_EXAMPLES: &str = "\
Example:
  ifmatch register status --register redb:///var/lib/ifmatch/register.redb";

const RESTORED_EXAMPLES: &str = "\
Example, with all gateways stopped:
  pg_restore --clean --dbname app register.dump
  ifmatch register restored --register postgres://ifmatch@db.example/app";

const COPY_EXAMPLES: &str = "\
Example:
  ifmatch register copy --from redb:///var/lib/ifmatch/register.redb \\
    --to postgres://ifmatch@db.example/app";

/// Runs the command, and prints its result.
///
/// # Errors
/// States why a register can't be used, or which records differ.
pub(crate) fn run(args: &RegisterArgs) -> Result<(), Error> {
    block_on(async {
        match &args.command {
            RegisterCommand::Migrate { register } => {
                migrate(&register.register.parse()?).await?;
                print_line("register up to date")
            }
            RegisterCommand::Status { register, json } => status(&register.register, *json).await,
            RegisterCommand::Restored { register } => restored(&register.register.parse()?).await,
            RegisterCommand::Copy { from, to } => {
                let from = open_read_only(&from.parse()?).await?;
                let to = open(&to.parse()?).await?;
                let copied = copy(&from, &to, |copied| print_line(&records(copied))).await?;
                print_line(&format!("copied and verified {}", records(copied)))
            }
        }
    })
}

fn records(number: u64) -> String {
    counted(number, "record", "records")
}

async fn status(url: &str, as_json: bool) -> Result<(), Error> {
    let register = open_read_only(&url.parse()?).await?;
    let Engine {
        guarantee, epoch, ..
    } = register.engine();
    let name = match guarantee {
        Guarantee::Linearizable => "linearizable",
        Guarantee::UntilFailover => "until-failover",
        Guarantee::Process => "process",
    };
    if as_json {
        return print_line(
            &json!({ "status": "ready", "guarantee": name, "epoch": epoch.number }).to_string(),
        );
    }
    print_line(match guarantee {
        Guarantee::Linearizable => "ready: acknowledged changes are never lost",
        Guarantee::UntilFailover => "ready: a failover may lose acknowledged changes",
        Guarantee::Process => "ready: the records are lost when the process ends",
    })?;
    match epoch.number {
        0 => Ok(()),
        number => print_line(&format!(
            "epoch {number}, the number of failovers and restores that may have lost acknowledged changes"
        )),
    }
}

/// Number of records in a page.
const PAGE: usize = 500;
/// Number of records between two reports.
const REPORT: u64 = 20_000;

/// Copies all records, verifies the copy, and returns their number. Calls `report` from time to time.
///
/// # Errors
/// Fails if either register does, if the target has another version of a record or other records, or if the source
/// changes in the meantime. Repeat the copy to continue.
async fn copy(
    from: &Arc<dyn Register>,
    to: &Arc<dyn Register>,
    report: impl Fn(u64) -> Result<(), Error>,
) -> Result<u64, Error> {
    let mut copied = 0;
    let mut pages = RecordPages::of(from);
    while let Some(page) = pages.next().await? {
        for (key, record) in page {
            write(to, &key, &record).await?;
            copied += 1;
            if copied % REPORT == 0 {
                report(copied)?;
            }
        }
    }
    verify(from, to).await?;
    Ok(copied)
}

async fn write(to: &Arc<dyn Register>, key: &Key, record: &Record) -> Result<(), Error> {
    match to
        .compare_and_swap(key, Revision::NONE, Some(record))
        .await
        .map_err(|error| failed(&error))?
    {
        Swap::Done => Ok(()),
        // By an earlier, interrupted copy.
        Swap::Conflict(Some(found)) if found == *record => Ok(()),
        Swap::Conflict(_) => Err(Error::runtime(format!(
            "the target has another version of the record {key}. Copy to an empty register."
        ))),
    }
}

/// Compares both registers, page by page.
async fn verify(from: &Arc<dyn Register>, to: &Arc<dyn Register>) -> Result<(), Error> {
    let (mut source, mut target) = (RecordPages::of(from), RecordPages::of(to));
    loop {
        let (expected, found) = (source.next().await?, target.next().await?);
        if expected != found {
            return Err(Error::runtime(
                "the registers differ after the copy: a gateway changed one, or the target wasn't empty. Stop all gateways, \
                 and copy to an empty register.",
            ));
        }
        if expected.is_none() {
            return Ok(());
        }
    }
}

/// The records of a register, page by page.
struct RecordPages<'a> {
    register: &'a Arc<dyn Register>,
    after: Option<Key>,
}

impl<'a> RecordPages<'a> {
    fn of(register: &'a Arc<dyn Register>) -> Self {
        Self {
            register,
            after: None,
        }
    }

    async fn next(&mut self) -> Result<Option<Vec<(Key, Record)>>, Error> {
        let scan = Scan {
            prefix: "",
            after: self.after.as_ref().map(Key::as_str),
            limit: PAGE,
        };
        let page = self
            .register
            .scan(&scan)
            .await
            .map_err(|error| failed(&error))?;
        self.after = page.last().map(|(key, _)| key.clone());
        Ok((!page.is_empty()).then_some(page))
    }
}

fn failed(error: &RegisterError) -> Error {
    Error::runtime(format!(
        "the copy is incomplete. Run it again to continue ({error})."
    ))
}

#[cfg(test)]
mod tests {
    use ifmatch_core::command::{Command, Content, Write};
    use ifmatch_core::digest::ContentHash;
    use ifmatch_core::precondition::Preconditions;
    use ifmatch_register::MemoryRegister;
    use ifmatch_runtime::{Clock, SystemClock, nonce};

    use super::*;

    fn empty() -> Arc<dyn Register> {
        Arc::new(MemoryRegister::unbounded())
    }

    fn after(record: &Record) -> Record {
        let content = Content::Hashed {
            hash: ContentHash::of(b""),
            payload: b"payload".to_vec().into(),
        };
        let write = Write::new(
            &http::Method::PUT,
            &Preconditions::NONE,
            content,
            nonce().unwrap(),
        );
        record
            .apply(&Command::Write(write), SystemClock.now())
            .next
            .unwrap()
    }

    async fn filled(records: usize) -> Arc<dyn Register> {
        let register = empty();
        for number in 0..records {
            let key = Key::new(format!("key/{number}")).unwrap();
            write(&register, &key, &after(&Record::unknown()))
                .await
                .unwrap();
        }
        register
    }

    #[tokio::test]
    async fn all_records_arrive_unchanged() {
        let (source, target) = (filled(1_234).await, empty());
        assert_eq!(copy(&source, &target, |_| Ok(())).await.unwrap(), 1_234);
        verify(&source, &target).await.unwrap();
    }

    #[tokio::test]
    async fn an_interrupted_copy_continues_and_a_used_target_is_refused() {
        let source = filled(100).await;
        let target = empty();
        let key = Key::new("key/50").unwrap();
        let record = source.load(&key).await.unwrap().unwrap();
        write(&target, &key, &record).await.unwrap();
        assert_eq!(copy(&source, &target, |_| Ok(())).await.unwrap(), 100);

        let newer = after(&record);
        assert_eq!(
            target
                .compare_and_swap(&key, record.revision(), Some(&newer))
                .await
                .unwrap(),
            Swap::Done
        );
        let error = copy(&source, &target, |_| Ok(())).await.unwrap_err();
        assert!(
            error
                .to_string()
                .contains("another version of the record key/50"),
            "{error}"
        );
        let other = filled(101).await;
        let error = copy(&empty(), &other, |_| Ok(())).await.unwrap_err();
        assert!(
            error.to_string().contains("differ after the copy"),
            "{error}"
        );
    }
}
