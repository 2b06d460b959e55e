//! `ifmatch lease`: lists, shows and breaks leases of a running gateway.

use std::time::Duration;

use clap::{Args, Subcommand, value_parser};
use ifmatch_gateway_config::endpoint_paths::LEASES;
use ifmatch_gateway_config::error::Error;
use reqwest::header::CONTENT_TYPE;
use reqwest::{RequestBuilder, StatusCode};
use serde::Deserialize;
use serde_json::{Value, json};
use url::Url;

use crate::http_client::{Gateway, ask, origin, rejected, send};
use crate::runtime::block_on;
use crate::terminal::print_line;
use ifmatch_blob::leases::LeaseTarget;

/// `ifmatch lease …`
#[derive(Args)]
#[command(arg_required_else_help = true)]
pub struct Lease {
    #[command(subcommand)]
    command: LeaseCommand,
}

#[derive(Subcommand)]
enum LeaseCommand {
    /// List leases, including expired ones until the next write or acquisition.
    #[command(after_help = LIST_EXAMPLES)]
    List {
        /// Start of the paths, such as `docs` or `docs/2026-`.
        #[arg(default_value = "", hide_default_value = true)]
        prefix: String,

        #[command(flatten)]
        options: Options,
    },
    /// Show the lease of one blob or container.
    #[command(after_help = SHOW_EXAMPLES)]
    Show {
        /// CONTAINER or CONTAINER/BLOB.
        path: String,

        #[command(flatten)]
        options: Options,
    },
    /// Break a lease without its ID, for example after its holder crashed.
    #[command(after_help = BREAK_EXAMPLES)]
    Break {
        /// CONTAINER or CONTAINER/BLOB.
        path: String,

        /// Seconds until the lease ends, 0 to 60. By default, a fixed lease runs to its end, and an infinite one ends now.
        #[arg(long, value_name = "SECONDS", value_parser = value_parser!(u8).range(0..=60))]
        period: Option<u8>,

        #[command(flatten)]
        options: Options,
    },
}

/// Options for the connection to the gateway.
#[derive(Args)]
struct Options {
    #[command(flatten)]
    gateway: Gateway,

    /// Print JSON, one object per line.
    #[arg(long)]
    json: bool,
}

const LIST_EXAMPLES: &str = "\
Examples:
  All leases of the gateway on this machine:
    ifmatch lease list

  One container of another gateway, as JSON:
    ifmatch lease list docs/ --url https://blobs.example.com --token-file read.token --json";

const SHOW_EXAMPLES: &str = "\
Examples:
  ifmatch lease show docs/leader.lock
  ifmatch lease show docs --json";

const BREAK_EXAMPLES: &str = "\
Examples:
  Now:
    ifmatch lease break docs/leader.lock --period 0

  In ten seconds, so the holder can finish:
    ifmatch lease break docs/leader.lock --period 10 --token-file write.token

Once the lease is broken, writes with its ID get 412. A gateway with tokens requires a write token.";

/// Runs the command, and prints its result.
///
/// # Errors
/// Fails if the gateway can't be reached, or rejects the request.
pub fn run(lease: &Lease) -> Result<(), Error> {
    block_on(async {
        match &lease.command {
            LeaseCommand::List { prefix, options } => list(options, prefix.trim_start_matches('/')).await,
            LeaseCommand::Show { path, options } => {
                let lease = options.client()?.get(&target(path)?).await?;
                options.print(&one(&lease), &lease)
            }
            LeaseCommand::Break { path, period, options } => {
                let command = json!({ "action": "break", "period": period });
                let lease = options.client()?.post(&target(path)?, &command).await?;
                options.print(&one(&lease), &lease)
            }
        }
    })
}

async fn list(options: &Options, prefix: &str) -> Result<(), Error> {
    let client = options.client()?;
    let mut after = None;
    let mut found = false;
    loop {
        let page = client.page(prefix, after.as_deref()).await?;
        for lease in &page.leases {
            if !found && !options.json {
                print_line(HEADING)?;
            }
            found = true;
            options.print(&row(lease), lease)?;
        }
        match page.next {
            Some(next) => after = Some(next),
            None if found || options.json => return Ok(()),
            None => return print_line("no leases"),
        }
    }
}

impl Options {
    fn client(&self) -> Result<Client, Error> {
        let Gateway { url, connection } = &self.gateway;
        Ok(Client { http: connection.client(url, Some(TIMEOUT))?, url: url.clone() })
    }

    fn print(&self, text: &str, json: &serde_json::Value) -> Result<(), Error> {
        if self.json { print_line(&json.to_string()) } else { print_line(text) }
    }
}

fn target(path: &str) -> Result<LeaseTarget, Error> {
    let path = path.strip_prefix('/').unwrap_or(path);
    LeaseTarget::new(path)
        .map_err(|error| Error::usage(format!("write CONTAINER or CONTAINER/BLOB in place of {path:?}: {error}")))
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
        self.one(target, self.http.get(self.url(Some(target))?)).await
    }

    /// Sends a command for a lease.
    async fn post(&self, target: &LeaseTarget, command: &Value) -> Result<Value, Error> {
        let request = self.http.post(self.url(Some(target))?);
        self.one(target, request.header(CONTENT_TYPE, "application/json").body(command.to_string())).await
    }

    /// Sends a request about one lease. If there is none, the error says where to look.
    async fn one(&self, target: &LeaseTarget, request: RequestBuilder) -> Result<Value, Error> {
        ask(&self.url, request).await?.map_err(|(status, detail)| {
            Error::runtime(match status {
                StatusCode::NOT_FOUND => {
                    let what = if target.blob.is_some() { "blob" } else { "container" };
                    format!("no such {what}: {target}. `ifmatch lease list` shows all leases.")
                }
                StatusCode::CONFLICT => format!("{target}: {detail}. `ifmatch lease list` shows all leases."),
                status => rejected(&origin(&self.url), status, &detail),
            })
        })
    }

    /// Returns the URL of the API, or of a lease.
    fn url(&self, target: Option<&LeaseTarget>) -> Result<Url, Error> {
        let mut url = self.url.clone();
        let wrong = || Error::usage(format!("--url {} has no path to extend", self.url));
        let mut segments = url.path_segments_mut().map_err(|()| wrong())?;
        segments.pop_if_empty().extend(LEASES.split('/').skip(1));
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
