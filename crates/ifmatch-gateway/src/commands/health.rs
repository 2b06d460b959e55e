//! `ifmatch health`: asks a running gateway or proxy if it serves requests, for containers and scripts.

use std::time::Duration;

use clap::Args;
use url::Url;

use super::http_client::{Trust, reason};
use super::runtime::block_on;
use crate::cli::terminal::print_line;
use crate::error::Error;

/// `ifmatch health …`
#[derive(Args)]
pub(crate) struct HealthArgs {
    /// URL of the gateway or proxy.
    #[arg(long, env = "IFMATCH_URL", default_value = "http://127.0.0.1:10000")]
    url: Url,

    /// Also require that its storage and register answer, by `/-/ready`.
    #[arg(long)]
    ready: bool,

    #[command(flatten)]
    trust: Trust,
}

pub(crate) const EXAMPLES: &str = "\
Example, in a container image:
  HEALTHCHECK CMD [\"ifmatch\", \"health\"]

Exit codes:
  0  it serves requests
  1  it does not answer, or is about to stop
  2  invalid flags";

/// Time to answer.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Runs the command.
///
/// # Errors
/// Fails if the gateway does not answer, or not with 200.
pub(crate) fn run(args: &HealthArgs) -> Result<(), Error> {
    block_on(async {
        let path = if args.ready { "/-/ready" } else { "/-/health" };
        let url = args.url.join(path).map_err(|error| Error::usage(format!("--url {}: {error}", args.url)))?;
        let client = args.trust.client(&url, TIMEOUT)?;
        let response = client.get(url.clone()).send().await;
        let response = response.map_err(|error| Error::runtime(format!("{url}: {}", reason(&error))))?;
        match response.status() {
            status if status.is_success() => print_line("ok"),
            status => Err(Error::runtime(format!("{url} responded {status}"))),
        }
    })
}
