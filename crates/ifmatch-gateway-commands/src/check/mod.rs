//! `ifmatch check`: asks a server, by requests and races, whether it honours conditions.

mod cases;
mod judge;
mod races;
mod site;
mod store;
mod tags;

use clap::Args;
use ifmatch_gateway_config::error::Error;
use serde_json::{Value, json};

use self::cases::Case;
use self::judge::{Finding, Verdict};
use self::site::Site;
use super::http_client::Remote;
use super::runtime::block_on;
use super::store_url::is_store;
use crate::terminal::{counted, print_line, print_text};

/// Exit code for a server that doesn't honour conditions.
const NOT_HONOURED: u8 = 3;

/// `ifmatch check …`
#[derive(Args)]
pub struct CheckArgs {
    /// URL of a folder or container for test resources, which the check creates and deletes.
    ///
    /// http, https, `s3://bucket/prefix`, `az://container/prefix` or `gs://bucket/prefix`. A query, such as a shared access
    /// signature, is sent with every request.
    url: String,

    /// Run all checks of RFC 9110 §13 and §14, not only those that guard against data loss.
    #[arg(long)]
    suite: bool,

    /// Print JSON.
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    remote: Remote,
}

/// The end of the help of `ifmatch check`.
pub const EXAMPLES: &str = "\
Examples:
  Can clients of this server lose updates?
    ifmatch check http://127.0.0.1:10000/box

  All checks on Azure Blob Storage, with a shared access signature:
    ifmatch check --suite --header 'x-ms-blob-type: BlockBlob' \\
      'https://account.blob.core.windows.net/box?sv=…'

  Is this bucket safe for `ifmatch lock`?
    AWS_ENDPOINT=https://minio.example.com ifmatch check s3://my-bucket/test

Results:
  yes      as RFC 9110 says
  NO       unsafe: clients can lose an update, mix the bytes of two versions,
           or can't write conditionally
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
            return store::check(args.remote.place(&args.url).await?).await;
        }
        let server = args.remote.connect(&args.url)?;
        let site = Site::new(&server, &args.url)?;
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
    Ok(if unsafe_ones(&findings) == 0 { 0 } else { NOT_HONOURED })
}

async fn findings(site: &Site<'_>, all: bool) -> Result<Vec<Finding>, Error> {
    let cases: Vec<Case> = cases::all()?.into_iter().filter(|case| all || case.risk.is_some()).collect();
    let mut findings = tags::check(site).await?;
    findings.extend(cases::check(site, &cases).await?);
    findings.extend(races::check(site).await?);
    Ok(findings)
}

fn print(findings: &[Finding]) -> Result<(), Error> {
    let width = findings.iter().map(|finding| finding.name.chars().count()).max().unwrap_or_default();
    print_line(&format!("{:<8}  {:<width$}  {:<7}  {}", "RFC 9110", "CHECK", "RESULT", "DETAIL"))?;
    for Finding { section, name, verdict, detail, .. } in findings {
        print_line(&format!("{section:<8}  {name:<width$}  {:<7}  {detail}", verdict.shown()))?;
    }
    print_line("")?;
    print_line(&match unsafe_ones(findings) {
        0 => "The server honours the conditions that clients rely on.".to_owned(),
        count => {
            let checks = counted(count as u64, "check says", "checks say");
            format!("Do not rely on this server: {checks} NO, so clients can lose data or cannot write on a condition.")
        }
    })
}

fn unsafe_ones(findings: &[Finding]) -> usize {
    findings.iter().filter(|finding| finding.verdict == Verdict::No).count()
}

fn report(findings: &[Finding]) -> Value {
    let count = |wanted: Verdict| findings.iter().filter(|finding| finding.verdict == wanted).count();
    let checks: Vec<Value> = findings.iter().map(Finding::json).collect();
    json!({
        "yes": count(Verdict::Yes),
        "no": count(Verdict::No),
        "differs": count(Verdict::Differs),
        "unchecked": count(Verdict::Unchecked),
        "checks": checks,
    })
}
