//! A client of `/-/leases`.

use std::time::Duration;

use reqwest::RequestBuilder;
use reqwest::header::{ACCEPT, CONTENT_TYPE};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use url::Url;

use crate::commands::http_client::{Connection, reason};
use crate::endpoints::leases::ROOT;
use crate::error::Error;
use crate::leases::listing::LeaseTarget;

/// Timeout of a request.
const TIMEOUT: Duration = Duration::from_secs(30);

/// A client of one gateway.
pub(super) struct Client {
    http: reqwest::Client,
    url: Url,
}

/// A page of the listing.
#[derive(Deserialize)]
pub(super) struct Page {
    pub(super) leases: Vec<Value>,
    pub(super) next: Option<String>,
}

impl Client {
    /// Creates a client of the gateway at `url`.
    pub(super) fn new(url: Url, connection: &Connection) -> Result<Self, Error> {
        Ok(Self { http: connection.client(&url, Some(TIMEOUT))?, url })
    }

    /// Returns a page of the listing.
    pub(super) async fn page(&self, prefix: &str, after: Option<&str>) -> Result<Page, Error> {
        let mut url = self.url(None)?;
        url.query_pairs_mut().append_pair("prefix", prefix);
        if let Some(after) = after {
            url.query_pairs_mut().append_pair("after", after);
        }
        self.send(self.http.get(url)).await
    }

    /// Returns one lease.
    pub(super) async fn get(&self, target: &LeaseTarget) -> Result<Value, Error> {
        self.send(self.http.get(self.url(Some(target))?)).await
    }

    /// Sends a command for a lease.
    pub(super) async fn post(&self, target: &LeaseTarget, command: &Value) -> Result<Value, Error> {
        let request = self.http.post(self.url(Some(target))?);
        self.send(request.header(CONTENT_TYPE, "application/json").body(command.to_string())).await
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

    async fn send<T: DeserializeOwned>(&self, request: RequestBuilder) -> Result<T, Error> {
        let response = request.header(ACCEPT, "application/json").send().await;
        let response = response.map_err(|error| Error::runtime(format!("{}: {}", self.url, reason(&error))))?;
        let status = response.status();
        let body =
            response.bytes().await.map_err(|error| Error::runtime(format!("{}: {}", self.url, reason(&error))))?;
        if !status.is_success() {
            let problem: Value = serde_json::from_slice(&body).unwrap_or_default();
            let detail = problem["detail"].as_str().unwrap_or("no details");
            return Err(Error::runtime(format!("{} responded {status}: {detail}", self.url)));
        }
        serde_json::from_slice(&body).map_err(|error| {
            Error::runtime(format!("the response of {} is not from an ifmatch gateway: {error}", self.url))
        })
    }
}
