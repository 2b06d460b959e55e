//! The parameters of List Containers and List Blobs.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE;
use http::request::Parts;
use ifmatch_blob::accounts::{Account, Accounts};
use ifmatch_blob::dialect::Client;
use ifmatch_blob::name::ContainerName;

use super::headers::host;
use super::snapshot::SnapshotTime;
use crate::error::AzureError;
use crate::query::QueryParameters;

/// Maximum and default number of items in a page.
const MAX_RESULTS: usize = 5000;
/// Values of `include` for a listing of blobs. All except metadata, copy, tags and snapshots leave the listing unchanged. The service
/// keeps no versions, immutability policies or deleted blobs, and doesn't list blobs with only staged blocks.
const OF_BLOBS: [&str; 11] = [
    "metadata",
    "copy",
    "deleted",
    "deletedwithversions",
    "immutabilitypolicy",
    "legalhold",
    "permissions",
    "snapshots",
    "tags",
    "uncommittedblobs",
    "versions",
];
/// Values of `include` for a listing of containers. There are no deleted or system containers.
const OF_CONTAINERS: [&str; 3] = ["metadata", "deleted", "system"];

/// The parameters of a listing.
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a value of `include`"
)]
pub(crate) struct ListParameters {
    /// The client that asks.
    pub(crate) client: Option<Client>,
    pub(crate) prefix: String,
    pub(crate) delimiter: Option<String>,
    pub(crate) marker: Option<String>,
    /// The first name that may be listed.
    pub(crate) start: Option<String>,
    pub(crate) limit: usize,
    pub(crate) with_metadata: bool,
    pub(crate) with_copies: bool,
    pub(crate) with_tags: bool,
    pub(crate) with_snapshots: bool,
    /// Continues with this blob, after this snapshot of it, instead of the marker.
    pub(crate) resume: Option<(String, Option<SnapshotTime>)>,
    /// `maxresults` as sent.
    pub(crate) max_results: Option<String>,
    /// The URL by which the client addressed the account.
    pub(crate) endpoint: String,
    account: Account,
    accounts: Accounts,
}

impl ListParameters {
    /// Parses List Containers.
    pub(super) fn of_containers(
        head: &Parts,
        query: &QueryParameters,
        account: &Account,
        accounts: &Accounts,
    ) -> Result<Self, AzureError> {
        Self::parse(head, query, account, accounts, &OF_CONTAINERS)
    }

    /// Parses List Blobs.
    pub(super) fn of_blobs(
        head: &Parts,
        query: &QueryParameters,
        account: &Account,
        accounts: &Accounts,
    ) -> Result<Self, AzureError> {
        Self::parse(head, query, account, accounts, &OF_BLOBS)
    }

    /// Parses a listing with these values allowed for `include`.
    fn parse(
        head: &Parts,
        query: &QueryParameters,
        account: &Account,
        accounts: &Accounts,
        includes: &[&str],
    ) -> Result<Self, AzureError> {
        let text = |name| {
            query
                .get(name)
                .filter(|text| !text.is_empty())
                .map(str::to_owned)
        };
        let marker = text("marker").map(|marker| {
            let name = URL_SAFE
                .decode(marker)
                .ok()
                .and_then(|bytes| String::from_utf8(bytes).ok());
            name.ok_or_else(|| {
                AzureError::invalid_parameter(
                    "marker",
                    "must be the NextMarker of the previous page",
                )
            })
        });
        let marker = marker.transpose()?;
        let resume = marker.as_deref().and_then(resumption);
        let include: Vec<&str> = query
            .get("include")
            .unwrap_or_default()
            .split(',')
            .map(str::trim)
            .collect();
        if let Some(unknown) = include
            .iter()
            .find(|name| !name.is_empty() && !includes.contains(name))
        {
            let rule = format!(
                "{unknown} is unknown; known values are {}",
                includes.join(", ")
            );
            return Err(AzureError::invalid_parameter("include", &rule));
        }
        Ok(Self {
            client: head.extensions.get().copied(),
            prefix: text("prefix").unwrap_or_default(),
            delimiter: text("delimiter"),
            start: text("startfrom").max(resume.as_ref().map(|(from, _)| from.clone())),
            marker,
            resume,
            limit: limit(query.get("maxresults"))?,
            with_metadata: include.contains(&"metadata"),
            with_copies: include.contains(&"copy"),
            with_tags: include.contains(&"tags"),
            with_snapshots: include.contains(&"snapshots"),
            max_results: text("maxresults"),
            endpoint: endpoint(head, account),
            account: account.clone(),
            accounts: accounts.clone(),
        })
    }

    /// Returns the prefix of the account's containers in the store.
    pub(crate) fn account_prefix(&self) -> String {
        self.accounts.prefix(&self.account)
    }

    /// Returns the name by which the account knows a container.
    pub(crate) fn container_name<'a>(&self, container: &'a ContainerName) -> Option<&'a str> {
        self.accounts.name_of(&self.account, container)
    }
}

/// Returns the marker of a page that begins with this blob, after this snapshot of it. No name contains the separator.
pub(crate) fn marker_at(from: &str, after: Option<SnapshotTime>) -> String {
    format!(
        "\0{from}\0{}",
        after.map(|time| time.to_string()).unwrap_or_default()
    )
}

/// Parses a marker made by [`marker_at`].
fn resumption(marker: &str) -> Option<(String, Option<SnapshotTime>)> {
    let (from, after) = marker.strip_prefix('\0')?.split_once('\0')?;
    Some((from.to_owned(), SnapshotTime::parse(after)))
}

/// Parses `maxresults`.
fn limit(text: Option<&str>) -> Result<usize, AzureError> {
    match text.map(str::parse::<u64>) {
        None => Ok(MAX_RESULTS),
        Some(Ok(limit @ 1..)) => Ok(usize::try_from(limit)
            .unwrap_or(MAX_RESULTS)
            .min(MAX_RESULTS)),
        Some(Ok(0)) => Err(AzureError::bad_request(
            "OutOfRangeQueryParameterValue",
            "maxresults must be at least 1",
        )),
        Some(Err(_)) => Err(AzureError::invalid_parameter(
            "maxresults",
            "must be a number",
        )),
    }
}

/// Returns the URL by which the client addressed the account.
fn endpoint(head: &Parts, account: &Account) -> String {
    format!(
        "{}://{}/{}/",
        head.uri.scheme_str().unwrap_or("http"),
        host(head).unwrap_or_default(),
        account.name()
    )
}
