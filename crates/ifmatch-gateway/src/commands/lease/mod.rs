//! `ifmatch lease`: lists, shows and breaks leases of a running gateway.

mod client;
mod table;

use clap::{Args, Subcommand};
use serde_json::json;
use url::Url;

use crate::cli::terminal::print_line;
use crate::commands::http_client::Connection;
use crate::commands::runtime::block_on;
use crate::config::settings::Settings;
use crate::error::Error;
use crate::leases::listing::LeaseTarget;
use client::Client;

/// `ifmatch lease …`
#[derive(Args)]
#[command(arg_required_else_help = true)]
pub(crate) struct Lease {
    #[command(subcommand)]
    command: LeaseCommand,
}

#[derive(Subcommand)]
enum LeaseCommand {
    /// List leases, including ended ones until the next write or acquisition.
    #[command(after_help = LIST_EXAMPLES)]
    List {
        /// Prefix of the paths, such as `docs` or `docs/2026-`. All leases by default.
        #[arg(default_value = "", hide_default_value = true)]
        prefix: String,

        #[command(flatten)]
        gateway: Gateway,
    },
    /// Show the lease of one blob or container.
    #[command(after_help = SHOW_EXAMPLES)]
    Show {
        /// CONTAINER or CONTAINER/BLOB.
        path: String,

        #[command(flatten)]
        gateway: Gateway,
    },
    /// Break the lease of a blob or container without its id, for example if its holder has crashed.
    #[command(after_help = BREAK_EXAMPLES)]
    Break {
        /// CONTAINER or CONTAINER/BLOB.
        path: String,

        /// Seconds until the lease ends, 0 to 60, so that its holder can finish. By default, a fixed lease ends at its
        /// normal end, and an infinite one immediately.
        #[arg(long, value_name = "SECONDS")]
        period: Option<u8>,

        #[command(flatten)]
        gateway: Gateway,
    },
}

/// Options for the connection to the gateway.
#[derive(Args)]
struct Gateway {
    /// URL of the gateway.
    #[arg(long, env = "IFMATCH_URL", default_value_t = default_url())]
    url: String,

    #[command(flatten)]
    connection: Connection,

    /// Print JSON, one object per line.
    #[arg(long)]
    json: bool,
}

const LIST_EXAMPLES: &str = "\
Examples:
  List all leases of the gateway on this machine:
    ifmatch lease list

  List the leases of one container of another gateway, as JSON:
    IFMATCH_TOKEN=$(cat token) ifmatch lease list docs/ --url https://blobs.example.com --json";

const SHOW_EXAMPLES: &str = "\
Examples:
  ifmatch lease show docs/leader.lock
  ifmatch lease show docs --json";

const BREAK_EXAMPLES: &str = "\
Examples:
  Immediately:
    ifmatch lease break docs/leader.lock --period 0

  In ten seconds, so that the holder can finish:
    ifmatch lease break docs/leader.lock --period 10 --token $(cat write.token)

A gateway with tokens requires a write token. Afterwards, writes with the id of the lease get 412.";

/// Runs the command, and prints its result.
///
/// # Errors
/// Fails if the gateway cannot be reached, or rejects the request.
pub(crate) fn run(lease: &Lease) -> Result<(), Error> {
    block_on(async {
        match &lease.command {
            LeaseCommand::List { prefix, gateway } => list(gateway, prefix.trim_start_matches('/')).await,
            LeaseCommand::Show { path, gateway } => {
                let lease = gateway.client()?.get(&target(path)?).await?;
                gateway.print(&table::one(&lease), &lease)
            }
            LeaseCommand::Break { path, period, gateway } => {
                let command = json!({ "action": "break", "period": period });
                let lease = gateway.client()?.post(&target(path)?, &command).await?;
                gateway.print(&table::one(&lease), &lease)
            }
        }
    })
}

async fn list(gateway: &Gateway, prefix: &str) -> Result<(), Error> {
    let client = gateway.client()?;
    let mut after = None;
    let mut found = false;
    loop {
        let page = client.page(prefix, after.as_deref()).await?;
        for lease in &page.leases {
            if !found && !gateway.json {
                print_line(table::HEADING)?;
            }
            found = true;
            gateway.print(&table::row(lease), lease)?;
        }
        match page.next {
            Some(next) => after = Some(next),
            None if found || gateway.json => return Ok(()),
            None => return print_line("no leases"),
        }
    }
}

impl Gateway {
    fn client(&self) -> Result<Client, Error> {
        let url = Url::parse(&self.url).ok().filter(|url| url.has_host() && matches!(url.scheme(), "http" | "https"));
        let wrong = || Error::usage(format!("--url {} is not a valid URL; for example {}", self.url, default_url()));
        Client::new(url.ok_or_else(wrong)?, &self.connection)
    }

    fn print(&self, text: &str, json: &serde_json::Value) -> Result<(), Error> {
        if self.json { print_line(&json.to_string()) } else { print_line(text) }
    }
}

fn target(path: &str) -> Result<LeaseTarget, Error> {
    let path = path.strip_prefix('/').unwrap_or(path);
    LeaseTarget::new(path)
        .map_err(|error| Error::usage(format!("{path:?} is not CONTAINER or CONTAINER/BLOB: {error}")))
}

fn default_url() -> String {
    Settings::default().listen.first().map(|listen| format!("http://{listen}")).unwrap_or_default()
}
