//! `ifmatch health`: asks a running gateway or proxy if it serves requests, for containers and scripts.

use std::time::Duration;

use clap::Args;
use http::HeaderMap;
use ifmatch_gateway_config::endpoint_paths::{HEALTH, READY};
use ifmatch_gateway_config::error::Error;
use ifmatch_gateway_config::trust::Trust;
use reqwest::StatusCode;
use url::Url;

use super::http_client::{DEFAULT_URL, detail, gateway_url, origin, unreachable};
use super::runtime::block_on;
use crate::terminal::print_line;

/// `ifmatch health …`
#[derive(Args)]
pub struct HealthArgs {
    /// URL of the gateway or proxy.
    #[arg(long, value_name = "URL", env = "IFMATCH_URL", hide_env_values = true, default_value = DEFAULT_URL, value_parser = gateway_url)]
    url: Url,

    /// Also check its store and register (`/-/ready`).
    #[arg(long)]
    ready: bool,

    #[command(flatten)]
    trust: Trust,
}

/// The end of the help of `ifmatch health`.
pub const EXAMPLES: &str = "\
Examples:
  ifmatch health
  ifmatch health --ready --url https://blobs.example.com

  In a container image:
    HEALTHCHECK CMD [\"ifmatch\", \"health\"]

Exit codes:
  0  healthy
  1  no response, not ready, or stopping
  2  invalid flags";

/// Timeout of the request.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Runs the command.
///
/// # Errors
/// Fails if the gateway doesn't respond, or not with 200.
pub fn run(args: &HealthArgs) -> Result<(), Error> {
    block_on(async {
        let path = if args.ready { READY } else { HEALTH };
        let url = args
            .url
            .join(path)
            .map_err(|error| Error::usage(format!("--url {}: {error}", args.url)))?;
        let client = args.trust.client(&url, HeaderMap::new(), Some(TIMEOUT))?;
        let response = client.get(url.clone()).send().await;
        let response = response.map_err(|error| Error::runtime(unreachable(&url, &error)))?;
        match response.status() {
            status if status.is_success() => print_line("ok"),
            StatusCode::SERVICE_UNAVAILABLE => Err(Error::runtime(format!(
                "{} is stopping or can't reach its store or register (503). The cause is in its log.",
                origin(&url)
            ))),
            status => {
                let detail = detail(&response.bytes().await.unwrap_or_default());
                let separator = if detail.is_empty() { "" } else { ": " };
                Err(Error::runtime(format!(
                    "{url} responded {status}{separator}{detail}. Check the URL."
                )))
            }
        }
    })
}
