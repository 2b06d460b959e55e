//! `ifmatch check`: asks a server, by requests and races, whether it honours conditions.

mod cases;
mod judge;
mod races;
mod site;
mod store;
mod tags;

use std::io::stdout;

use clap::Args;
use ifmatch_gateway_config::error::Error;
use serde_json::{Value, json};

use self::cases::CheckCase;
use self::judge::{CheckFinding, CheckVerdict};
use self::site::CheckSite;
use super::http_client::RemoteArgs;
use super::runtime::block_on;
use super::store_url::is_store;
use crate::terminal::{TextStyle, counted, print_line, print_text, printable, supports_colour};

/// Exit code for a server that doesn't honour conditions.
const NOT_HONOURED: u8 = 3;
/// Maximum number of columns of a line.
const WIDTH: usize = 80;
/// Column of the checks' names.
const INDENT: usize = 19;

/// `ifmatch check …`
#[derive(Args)]
pub struct CheckArgs {
    /// URL of a folder or container for test resources, which the check creates and deletes.
    ///
    /// The URL begins with http or https, or is `s3://bucket/prefix`, `az://container/prefix` or `gs://bucket/prefix`. A query,
    /// such as a shared access signature, is sent with every request.
    url: String,

    /// Run all checks of RFC 9110 §13 and §14, not only those that guard against data loss.
    #[arg(long)]
    suite: bool,

    /// Print JSON.
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    remote: RemoteArgs,
}

/// The end of the help of `ifmatch check`.
pub const EXAMPLES: &str = "\
Examples:
  Can clients of this server lose updates?
    ifmatch check http://127.0.0.1:10000/box

  All checks on Azure Blob Storage, with a shared access signature:
    ifmatch check --suite --header 'x-ms-blob-type: BlockBlob' \\
      \"https://account.blob.core.windows.net/box?$SAS\"

  Is this bucket safe for `ifmatch lock`?
    AWS_ENDPOINT=https://minio.example.com ifmatch check s3://my-bucket/test

Results:
  yes      as RFC 9110 says (--json shows what the server did)
  NO       unsafe: clients can lose an update or mix the bytes of two versions,
           or they can't write conditionally
  differs  not as RFC 9110 says, but nothing is lost: it rejects or sends more than it has to
  -        not checked: the server sends no strong ETag or no date

Exit codes:
  0  no check says NO
  1  the server can't be reached, or rejects the requests
  2  invalid flags
  3  a check says NO";

/// Checks a server, prints a table, and returns the exit code.
///
/// # Errors
/// Fails if the server doesn't respond, or can't store anything.
pub fn run(args: &CheckArgs) -> Result<u8, Error> {
    let findings = block_on(async {
        if is_store(&args.url) {
            if args.suite {
                let message = format!(
                    "--suite is for http and https URLs. Remove it for {}.",
                    args.url
                );
                return Err(Error::usage(message));
            }
            return store::check(args.remote.place(&args.url).await?).await;
        }
        let server = args.remote.connect(&args.url)?;
        let site = CheckSite::new(&server, &args.url)?;
        let findings = findings(&site, args.suite).await;
        // In any case, even after an error.
        let cleared = site.clear().await;
        let findings = findings?;
        cleared.map(|()| findings)
    })?;
    if args.json {
        print_text(&format!("{:#}\n", report(&findings)))?;
    } else {
        print(&findings)?;
    }
    Ok(if unsafe_count(&findings) == 0 {
        0
    } else {
        NOT_HONOURED
    })
}

/// Runs the checks of an HTTP server: all of them, or those that guard against data loss.
async fn findings(site: &CheckSite<'_>, all: bool) -> Result<Vec<CheckFinding>, Error> {
    let cases: Vec<CheckCase> = cases::all()?
        .into_iter()
        .filter(|case| all || case.risk.is_some())
        .collect();
    let mut findings = tags::check(site).await?;
    findings.extend(cases::check(site, &cases).await?);
    findings.extend(races::check(site).await?);
    Ok(findings)
}

/// Prints a table of the findings, and the conclusion.
fn print(findings: &[CheckFinding]) -> Result<(), Error> {
    let style = TextStyle::new(supports_colour(&stdout()));
    print_line("RESULT   RFC 9110  CHECK")?;
    for finding in findings {
        print_text(&row(finding, style))?;
    }
    print_line("")?;
    print_line(&match unsafe_count(findings) {
        0 => "The server honours the conditions that clients rely on.".to_owned(),
        count => {
            let checks = counted(count as u64, "check says", "checks say");
            format!(
                "Don't rely on this server: {checks} NO.\nClients can lose data, or can't write conditionally."
            )
        }
    })
}

/// Returns the lines of a finding, which fit 80 columns: the verdict, the check, and of a check that failed what the server did.
fn row(finding: &CheckFinding, style: TextStyle) -> String {
    let CheckFinding {
        section,
        name,
        verdict,
        detail,
        ..
    } = finding;
    let (alarm, plain) = if *verdict == CheckVerdict::No {
        (style.alarm, style.plain)
    } else {
        ("", "")
    };
    let start = format!("{alarm}{:<7}{plain}  {section:<8}  ", verdict.shown());
    let named = wrapped(name, WIDTH - INDENT).join(&format!("\n{:INDENT$}", ""));
    let mut row = format!("{start}{named}\n");
    if *verdict != CheckVerdict::Yes {
        let indent = " ".repeat(INDENT + 2);
        row.extend(
            wrapped(&printable(detail), WIDTH - INDENT - 2)
                .into_iter()
                .map(|line| format!("{indent}{line}\n")),
        );
    }
    row
}

/// Breaks a text into lines of at most this number of characters, between words where it can.
fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    let mut length = 0;
    for word in text.split_ascii_whitespace() {
        let word: Vec<char> = word.chars().collect();
        for (number, part) in word.chunks(width).enumerate() {
            if length > 0 && (number > 0 || length + 1 + part.len() > width) {
                lines.push(String::new());
                length = 0;
            }
            if let Some(line) = lines.last_mut() {
                if length > 0 {
                    line.push(' ');
                    length += 1;
                }
                line.extend(part);
                length += part.len();
            }
        }
    }
    lines
}

/// Returns the number of checks that say no.
fn unsafe_count(findings: &[CheckFinding]) -> usize {
    findings
        .iter()
        .filter(|finding| finding.verdict == CheckVerdict::No)
        .count()
}

/// Returns the findings as JSON.
fn report(findings: &[CheckFinding]) -> Value {
    let count = |wanted: CheckVerdict| {
        findings
            .iter()
            .filter(|finding| finding.verdict == wanted)
            .count()
    };
    let checks: Vec<Value> = findings.iter().map(CheckFinding::json).collect();
    json!({
        "yes": count(CheckVerdict::Yes),
        "no": count(CheckVerdict::No),
        "differs": count(CheckVerdict::Differs),
        "unchecked": count(CheckVerdict::Unchecked),
        "checks": checks,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_line_fits_80_columns_with_the_verdict_first() {
        for case in cases::all().unwrap() {
            for verdict in [
                CheckVerdict::Yes,
                CheckVerdict::No,
                CheckVerdict::Differs,
                CheckVerdict::Unchecked,
            ] {
                let detail = format!("200 OK, {} \"{}\"", case.name, "x".repeat(300));
                let finding = CheckFinding {
                    section: case.section,
                    name: case.name.clone(),
                    risk: None,
                    verdict,
                    detail,
                };
                let shown = row(&finding, TextStyle::new(false));
                assert!(
                    shown.lines().all(|line| line.chars().count() <= WIDTH),
                    "{shown}"
                );
                assert!(
                    shown.starts_with(&format!("{:<7}  {}", verdict.shown(), case.section)),
                    "{shown}"
                );
                assert_eq!(
                    shown.contains("200 OK"),
                    verdict != CheckVerdict::Yes,
                    "{shown}"
                );
            }
        }
    }

    #[test]
    fn only_no_is_in_colour() {
        for (verdict, expected) in [
            (CheckVerdict::No, true),
            (CheckVerdict::Yes, false),
            (CheckVerdict::Differs, false),
        ] {
            let finding = CheckFinding {
                section: "13",
                name: "x".into(),
                risk: None,
                verdict,
                detail: "y".into(),
            };
            assert_eq!(
                row(&finding, TextStyle::new(true)).contains('\u{1b}'),
                expected
            );
        }
    }
}
