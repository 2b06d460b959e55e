//! `ifmatch lease`: lists, shows and breaks leases of a running gateway.

use std::time::Duration;

use clap::{Args, Subcommand};
use reqwest::header::CONTENT_TYPE;
use serde::Deserialize;
use serde_json::{Value, json};
use url::Url;

use crate::cli::terminal::print_line;
use crate::commands::http_client::{Connection, send};
use crate::commands::runtime::block_on;
use crate::config::settings::Settings;
use crate::endpoints::leases::ROOT;
use crate::error::Error;
use crate::leases::listing::LeaseTarget;

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
                gateway.print(&one(&lease), &lease)
            }
            LeaseCommand::Break { path, period, gateway } => {
                let command = json!({ "action": "break", "period": period });
                let lease = gateway.client()?.post(&target(path)?, &command).await?;
                gateway.print(&one(&lease), &lease)
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
                print_line(HEADING)?;
            }
            found = true;
            gateway.print(&row(lease), lease)?;
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

/// Timeout of a request.
const TIMEOUT: Duration = Duration::from_secs(30);

/// A client of one gateway.
struct Client {
    http: reqwest::Client,
    url: Url,
}

/// A page of the listing.
#[derive(Deserialize)]
struct Page {
    leases: Vec<Value>,
    next: Option<String>,
}

impl Client {
    /// Creates a client of the gateway at `url`.
    fn new(url: Url, connection: &Connection) -> Result<Self, Error> {
        Ok(Self { http: connection.client(&url, Some(TIMEOUT))?, url })
    }

    /// Returns a page of the listing.
    async fn page(&self, prefix: &str, after: Option<&str>) -> Result<Page, Error> {
        let mut url = self.url(None)?;
        url.query_pairs_mut().append_pair("prefix", prefix);
        if let Some(after) = after {
            url.query_pairs_mut().append_pair("after", after);
        }
        send(&self.url, self.http.get(url)).await
    }

    /// Returns one lease.
    async fn get(&self, target: &LeaseTarget) -> Result<Value, Error> {
        send(&self.url, self.http.get(self.url(Some(target))?)).await
    }

    /// Sends a command for a lease.
    async fn post(&self, target: &LeaseTarget, command: &Value) -> Result<Value, Error> {
        let request = self.http.post(self.url(Some(target))?);
        send(&self.url, request.header(CONTENT_TYPE, "application/json").body(command.to_string())).await
    }

    /// Returns the URL of the API, or of a lease.
    fn url(&self, target: Option<&LeaseTarget>) -> Result<Url, Error> {
        let mut url = self.url.clone();
        let base = || Error::usage(format!("--url {} cannot have a path", self.url));
        let mut segments = url.path_segments_mut().map_err(|()| base())?;
        segments.pop_if_empty().extend(ROOT.split('/').skip(1));
        if let Some(target) = target {
            segments.extend(target.to_string().split('/'));
        }
        drop(segments);
        Ok(url)
    }
}

/// The header of the [rows](row).
const HEADING: &str = "STATE      REMAINING  DURATION   TOKEN             HOLDER            PATH";

/// Returns a row of the table.
fn row(lease: &Value) -> String {
    format!(
        "{:<9}  {:<9}  {:<9}  {:<16}  {:<16}  {}",
        text(lease, "state"),
        remaining(lease),
        duration(lease),
        token(lease),
        text(lease, "holder"),
        text(lease, "path")
    )
}

/// Returns all fields of one lease.
fn one(lease: &Value) -> String {
    let lines = [
        ("path", text(lease, "path").to_owned()),
        ("state", text(lease, "state").to_owned()),
        ("remaining", remaining(lease)),
        ("duration", duration(lease)),
        ("token", token(lease)),
        ("holder", text(lease, "holder").to_owned()),
    ];
    lines.iter().map(|(name, value)| format!("{name:<9}  {value}")).collect::<Vec<_>>().join("\n")
}

fn text<'a>(lease: &'a Value, name: &str) -> &'a str {
    lease[name].as_str().unwrap_or("-")
}

fn remaining(lease: &Value) -> String {
    match (text(lease, "state"), lease["remaining"].as_u64()) {
        ("leased" | "breaking", Some(seconds)) => format!("{seconds}s"),
        ("leased" | "breaking", None) => "no end".to_owned(),
        _ => "-".to_owned(),
    }
}

fn duration(lease: &Value) -> String {
    match lease["duration"].as_u64() {
        Some(seconds) => format!("{seconds}s"),
        None if lease["infinite"] == true => "infinite".to_owned(),
        None => "-".to_owned(),
    }
}

fn token(lease: &Value) -> String {
    lease["token"].as_u64().map_or_else(|| "-".to_owned(), |token| token.to_string())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn rows_align_with_the_header() {
        let lease = json!({ "path": "docs/a b", "state": "leased", "infinite": false, "duration": 15, "remaining": 9, "token": 1_763_730_000_000_000_u64, "holder": "host-7" });
        let row = row(&lease);
        for (heading, value) in [
            ("STATE", "leased"),
            ("REMAINING", "9s"),
            ("DURATION", "15s"),
            ("TOKEN", "1763"),
            ("HOLDER", "host-7"),
            ("PATH", "docs/a b"),
        ] {
            assert!(row[HEADING.find(heading).unwrap()..].starts_with(value), "{heading}: {row}");
        }
    }

    #[test]
    fn infinite_and_absent_leases_are_shown() {
        let endless = json!({ "path": "docs", "state": "leased", "infinite": true, "duration": null, "remaining": null, "token": 1 });
        assert!(one(&endless).contains("no end") && one(&endless).contains("infinite"));
        let none = json!({ "path": "docs", "state": "available", "infinite": false, "duration": null, "remaining": null, "token": null });
        assert_eq!(one(&none).matches('-').count(), 4, "{}", one(&none));
    }
}
