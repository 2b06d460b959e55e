//! `ifmatch lease`: lists, shows and breaks leases of a running gateway.

use std::time::Duration;

use clap::{Args, Subcommand};
use ifmatch_blob::leases::LeaseTarget;
use ifmatch_gateway_config::endpoint_paths::{LEASES, OVERVIEW};
use ifmatch_gateway_config::error::Error;
use reqwest::header::CONTENT_TYPE;
use reqwest::{RequestBuilder, StatusCode};
use serde::Deserialize;
use serde_json::{Value, json};
use url::Url;

use crate::http_client::{GatewayArgs, ask, origin, rejected};
use crate::runtime::block_on;
use crate::terminal::{cut, print_line, printable};

/// `ifmatch lease …`
#[derive(Args)]
#[command(arg_required_else_help = true)]
pub struct LeaseArgs {
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
        options: LeaseOptions,
    },
    /// Show the lease of one blob or container.
    #[command(after_help = SHOW_EXAMPLES)]
    Show {
        /// CONTAINER or CONTAINER/BLOB.
        path: String,

        #[command(flatten)]
        options: LeaseOptions,
    },
    /// Break a lease without its ID, for example after its holder crashed.
    #[command(after_help = BREAK_EXAMPLES)]
    Break {
        /// CONTAINER or CONTAINER/BLOB.
        path: String,

        /// Seconds until the lease ends, 0 to 60. By default, a finite lease runs to its end, and an infinite one ends now.
        #[arg(long, value_name = "SECONDS", value_parser = period)]
        period: Option<u8>,

        #[command(flatten)]
        options: LeaseOptions,
    },
}

/// Options of all lease commands.
#[derive(Args)]
struct LeaseOptions {
    #[command(flatten)]
    gateway: GatewayArgs,

    /// Print JSON, one object per line.
    #[arg(long)]
    json: bool,
}

const LIST_EXAMPLES: &str = "\
Examples:
  All leases of the gateway on this machine:
    ifmatch lease list

  One container of another gateway, as JSON:
    ifmatch lease list docs/ --url https://blobs.example.com \\
        --token-file read.token --json";

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

/// Parses a break period, in seconds.
fn period(text: &str) -> Result<u8, String> {
    let seconds = text.parse::<u8>().ok().filter(|seconds| *seconds <= 60);
    seconds.ok_or_else(|| "write a number of seconds from 0 to 60".to_owned())
}

/// Runs the command, and prints its result.
///
/// # Errors
/// Fails if the gateway can't be reached, or rejects the request.
pub fn run(lease: &LeaseArgs) -> Result<(), Error> {
    block_on(async {
        match &lease.command {
            LeaseCommand::List { prefix, options } => {
                list(options, prefix.trim_start_matches('/')).await
            }
            LeaseCommand::Show { path, options } => {
                let lease = options.client()?.get(&target(path)?).await?;
                options.print(&details(&lease), &lease)
            }
            LeaseCommand::Break {
                path,
                period,
                options,
            } => {
                let command = json!({ "action": "break", "period": period });
                let lease = options.client()?.post(&target(path)?, &command).await?;
                options.print(&details(&lease), &lease)
            }
        }
    })
}

/// Prints all leases, a row or an object each.
async fn list(options: &LeaseOptions, prefix: &str) -> Result<(), Error> {
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
            Some(_) if page.next == after => {
                return Err(Error::runtime(format!(
                    "{} repeats a page of its leases. Check the URL.",
                    origin(&client.url)
                )));
            }
            Some(next) => after = Some(next),
            None if found || options.json => return Ok(()),
            None => return print_line("no leases"),
        }
    }
}

impl LeaseOptions {
    /// Returns a client of the gateway.
    fn client(&self) -> Result<LeaseClient, Error> {
        let GatewayArgs { url, connection } = &self.gateway;
        Ok(LeaseClient {
            http: connection.client(url, Some(TIMEOUT))?,
            url: url.clone(),
        })
    }

    /// Prints a lease in the form that was asked for.
    fn print(&self, text: &str, json: &Value) -> Result<(), Error> {
        if self.json {
            print_line(&json.to_string())
        } else {
            print_line(text)
        }
    }
}

/// Parses the path of a container or a blob, with or without a slash before it.
fn target(path: &str) -> Result<LeaseTarget, Error> {
    let path = path.strip_prefix('/').unwrap_or(path);
    LeaseTarget::new(path).map_err(|error| {
        Error::usage(format!(
            "{path:?} isn't valid: {error}. Write CONTAINER or CONTAINER/BLOB."
        ))
    })
}

/// Timeout of a request.
const TIMEOUT: Duration = Duration::from_secs(30);

/// A client of one gateway.
struct LeaseClient {
    http: reqwest::Client,
    url: Url,
}

/// A page of the listing.
#[derive(Deserialize)]
struct LeasesPage {
    leases: Vec<Value>,
    next: Option<String>,
}

impl LeaseClient {
    /// Returns a page of the listing.
    async fn page(&self, prefix: &str, after: Option<&str>) -> Result<LeasesPage, Error> {
        let mut url = self.url(None)?;
        url.query_pairs_mut().append_pair("prefix", prefix);
        if let Some(after) = after {
            url.query_pairs_mut().append_pair("after", after);
        }
        match ask(&self.url, self.http.get(url)).await? {
            Ok(page) => Ok(page),
            Err((status, detail)) => Err(self.failed("list leases", status, &detail).await),
        }
    }

    /// Says why the gateway can't do something: what is down, if it says so.
    async fn failed(&self, what: &str, status: StatusCode, detail: &str) -> Error {
        let server = origin(&self.url);
        if status.is_server_error()
            && let Some((component, reason)) = self.outage().await
        {
            return Error::runtime(format!(
                "{server} can't {what}, because the {component} is down: {reason}"
            ));
        }
        Error::runtime(rejected(&server, status, detail))
    }

    /// Returns what is down, and why.
    async fn outage(&self) -> Option<(String, String)> {
        let url = self.extended(OVERVIEW, &[]).ok()?;
        let overview: Value = ask(&self.url, self.http.get(url)).await.ok()?.ok()?;
        let field = |name: &str| overview[name].as_str().map(ToOwned::to_owned);
        Some((field("component")?, field("reason")?))
    }

    /// Returns one lease.
    async fn get(&self, target: &LeaseTarget) -> Result<Value, Error> {
        self.one(("read", target), self.http.get(self.url(Some(target))?))
            .await
    }

    /// Sends a command for a lease.
    async fn post(&self, target: &LeaseTarget, command: &Value) -> Result<Value, Error> {
        let request = self.http.post(self.url(Some(target))?);
        self.one(
            ("break", target),
            request
                .header(CONTENT_TYPE, "application/json")
                .body(command.to_string()),
        )
        .await
    }

    /// Sends a request about one lease. If there is none, the error says where to look.
    async fn one(
        &self,
        (what, target): (&str, &LeaseTarget),
        request: RequestBuilder,
    ) -> Result<Value, Error> {
        let (status, detail) = match ask(&self.url, request).await? {
            Ok(lease) => return Ok(lease),
            Err(refused) => refused,
        };
        Err(match status {
            StatusCode::NOT_FOUND => {
                let what = if target.blob.is_some() {
                    "blob"
                } else {
                    "container"
                };
                Error::runtime(format!(
                    "no such {what}: {target}. `ifmatch lease list` shows all leases."
                ))
            }
            StatusCode::CONFLICT => Error::runtime(format!(
                "{target}: {detail}. `ifmatch lease list` shows all leases."
            )),
            status => {
                self.failed(&format!("{what} the lease of {target}"), status, &detail)
                    .await
            }
        })
    }

    /// Returns the URL of the listing, or of a lease.
    fn url(&self, target: Option<&LeaseTarget>) -> Result<Url, Error> {
        let target = target.map(ToString::to_string);
        let segments: Vec<_> = target.iter().flat_map(|target| target.split('/')).collect();
        self.extended(LEASES, &segments)
    }

    /// Returns the URL of an endpoint, with these segments below it.
    fn extended(&self, endpoint: &str, below: &[&str]) -> Result<Url, Error> {
        let mut url = self.url.clone();
        // Every URL of a gateway can: it is http or https.
        let wrong = |()| Error::runtime(format!("internal error: {} can't have a path", self.url));
        let mut segments = url.path_segments_mut().map_err(wrong)?;
        segments
            .pop_if_empty()
            .extend(endpoint.split('/').skip(1))
            .extend(below);
        drop(segments);
        Ok(url)
    }
}

/// The header of the [rows](row).
const HEADING: &str = "STATE      REMAINING  HOLDER                PATH";
/// Number of characters of a holder in a row. A longer one is cut, so the paths stay below each other.
const HOLDER: usize = 20;

/// Returns a row of the table. It fits 80 columns unless the path is long. `lease show` has the rest.
fn row(lease: &Value) -> String {
    let (state, left, holder) = (
        text(lease, "state"),
        remaining(lease),
        cut(text(lease, "holder"), HOLDER),
    );
    format!(
        "{state:<9}  {left:<9}  {holder:<HOLDER$}  {}",
        printable(text(lease, "path"))
    )
}

/// Returns all fields of one lease, a line each.
fn details(lease: &Value) -> String {
    let lines = [
        ("path", printable(text(lease, "path"))),
        ("state", printable(text(lease, "state"))),
        ("remaining", remaining(lease)),
        ("duration", duration(lease)),
        ("token", token(lease)),
        ("holder", printable(text(lease, "holder"))),
    ];
    lines
        .iter()
        .map(|(name, value)| format!("{name:<9}  {value}"))
        .collect::<Vec<_>>()
        .join("\n")
}

/// Returns a field of a lease, or `-` if it has none.
fn text<'a>(lease: &'a Value, name: &str) -> &'a str {
    lease[name].as_str().unwrap_or("-")
}

/// Returns the time until a lease stops locking.
fn remaining(lease: &Value) -> String {
    match (text(lease, "state"), lease["remaining"].as_u64()) {
        ("leased" | "breaking", Some(seconds)) => format!("{seconds}s"),
        ("leased" | "breaking", None) => "no end".to_owned(),
        _ => "-".to_owned(),
    }
}

/// Returns the time for which a lease is acquired or renewed.
fn duration(lease: &Value) -> String {
    match lease["duration"].as_u64() {
        Some(seconds) => format!("{seconds}s"),
        None if lease["infinite"] == true => "infinite".to_owned(),
        None => "-".to_owned(),
    }
}

fn token(lease: &Value) -> String {
    lease["token"]
        .as_u64()
        .map_or_else(|| "-".to_owned(), |token| token.to_string())
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
            ("HOLDER", "host-7"),
            ("PATH", "docs/a b"),
        ] {
            assert!(
                row[HEADING.find(heading).unwrap()..].starts_with(value),
                "{heading}: {row}"
            );
        }
    }

    #[test]
    fn a_long_holder_does_not_shift_the_path() {
        let lease = |holder: &str| json!({ "path": "docs/leader.lock", "state": "breaking", "remaining": 60, "holder": holder });
        let [short, long] = ["a", &"x".repeat(64)].map(|holder| row(&lease(holder)));
        assert_eq!(short.find("docs/"), Some(HEADING.find("PATH").unwrap()));
        let column = |row: &str| row.split("docs/").next().unwrap().chars().count();
        assert_eq!(column(&short), column(&long));
        assert!(long.chars().count() <= 80, "{long}");
    }

    #[test]
    fn infinite_and_absent_leases_are_shown() {
        let endless = json!({ "path": "docs", "state": "leased", "infinite": true, "duration": null, "remaining": null, "token": 1 });
        assert!(details(&endless).contains("no end") && details(&endless).contains("infinite"));
        let none = json!({ "path": "docs", "state": "available", "infinite": false, "duration": null, "remaining": null, "token": null });
        let shown = details(&none);
        assert_eq!(shown.matches('-').count(), 4, "{shown}");
    }

    #[test]
    fn control_characters_are_escaped() {
        let lease = json!({ "path": "docs/a\u{1b}[2J", "state": "leased", "holder": "b\u{1b}[2J" });
        for shown in [row(&lease), details(&lease)] {
            assert!(shown.contains("docs/a\\u{1b}[2J"), "{shown:?}");
            assert!(shown.contains("b\\u{1b}[2J"), "{shown:?}");
        }
    }
}
