//! `ifmatch lease`: what an operator asks a running gateway about leases.

mod client;
mod report;

use std::io::{Write, stdout};
use std::path::PathBuf;

use clap::{Args, Subcommand};
use serde_json::json;
use tokio::runtime::Builder;
use url::Url;

use crate::error::Error;
use crate::leases::list::Place;
use crate::settings::Settings;
use client::Client;

/// `ifmatch lease …`
#[derive(Args)]
#[command(arg_required_else_help = true)]
pub(crate) struct Lease {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// List the leases, those that are over included until somebody writes or leases anew.
    #[command(after_help = LIST_EXAMPLES)]
    List {
        /// What the paths begin with, like `docs` or `docs/2026-`; all if left out.
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
    /// End the lease of a blob or container without its id: the way out if its holder is gone for good.
    #[command(after_help = BREAK_EXAMPLES)]
    Break {
        /// CONTAINER or CONTAINER/BLOB.
        path: String,

        /// Seconds that the lease goes on, 0 to 60, so that its holder can come to an end. If left out, a lease for a
        /// time ends with it, one without end at once.
        #[arg(long, value_name = "SECONDS")]
        period: Option<u8>,

        #[command(flatten)]
        gateway: Gateway,
    },
}

/// Which gateway, and how it answers.
#[derive(Args)]
struct Gateway {
    /// Address of the gateway.
    #[arg(long, env = "IFMATCH_URL", default_value_t = default_url())]
    url: String,

    /// Bearer token, if the gateway asks for one; to break a lease, one that may write.
    #[arg(long, env = "IFMATCH_TOKEN", hide_env_values = true)]
    token: Option<String>,

    /// PEM file with the certificates to trust instead of the system's, for a gateway with a certificate of its own.
    #[arg(long, value_name = "FILE", env = "IFMATCH_CA")]
    ca: Option<PathBuf>,

    /// Print JSON, one object a line.
    #[arg(long)]
    json: bool,
}

const LIST_EXAMPLES: &str = "\
Examples:
  All leases of the gateway on this machine:
    ifmatch lease list

  Those of one container elsewhere, for a program:
    IFMATCH_TOKEN=$(cat read.token) ifmatch lease list docs/ --url https://blobs.example.com --json";

const SHOW_EXAMPLES: &str = "\
Examples:
  ifmatch lease show docs/leader.lock
  ifmatch lease show docs --json";

const BREAK_EXAMPLES: &str = "\
Examples:
  At once:
    ifmatch lease break docs/leader.lock --period 0

  In ten seconds, so that its holder can finish:
    ifmatch lease break docs/leader.lock --period 10 --token $(cat write.token)

The holder's id is worth nothing afterwards: its writes get 412.";

/// Asks, and prints the answer.
///
/// # Errors
/// The gateway cannot be reached, or refuses; the message says why.
pub(crate) fn run(lease: &Lease) -> Result<(), Error> {
    let runtime = Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Error::runtime(format!("the runtime cannot be started: {error}")))?;
    runtime.block_on(async {
        match &lease.what {
            What::List { prefix, gateway } => list(gateway, prefix.trim_start_matches('/')).await,
            What::Show { path, gateway } => {
                let lease = gateway.client()?.get(&place(path)?).await?;
                gateway.print(&report::one(&lease), &lease)
            }
            What::Break { path, period, gateway } => {
                let order = json!({ "action": "break", "period": period });
                let lease = gateway.client()?.post(&place(path)?, &order).await?;
                gateway.print(&report::one(&lease), &lease)
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
                say(report::HEADING)?;
            }
            found = true;
            gateway.print(&report::row(lease), lease)?;
        }
        match page.next {
            Some(next) => after = Some(next),
            None if found || gateway.json => return Ok(()),
            None => return say("there are no leases"),
        }
    }
}

impl Gateway {
    fn client(&self) -> Result<Client, Error> {
        let url = Url::parse(&self.url).ok().filter(|url| url.has_host() && matches!(url.scheme(), "http" | "https"));
        let wrong = || Error::usage(format!("--url {} is no address: write it like {}", self.url, default_url()));
        Client::new(url.ok_or_else(wrong)?, self.token.as_deref(), self.ca.as_deref())
    }

    fn print(&self, text: &str, json: &serde_json::Value) -> Result<(), Error> {
        if self.json { say(&json.to_string()) } else { say(text) }
    }
}

/// A reader that has seen enough closes the pipe.
fn say(line: &str) -> Result<(), Error> {
    writeln!(stdout().lock(), "{line}").map_err(|error| Error::runtime(format!("cannot write: {error}")))
}

fn place(path: &str) -> Result<Place, Error> {
    let path = path.strip_prefix('/').unwrap_or(path);
    Place::new(path).map_err(|error| Error::usage(format!("{path:?} is neither CONTAINER nor CONTAINER/BLOB: {error}")))
}

fn default_url() -> String {
    Settings::defaults().listen.map(|listen| format!("http://{listen}")).unwrap_or_default()
}
