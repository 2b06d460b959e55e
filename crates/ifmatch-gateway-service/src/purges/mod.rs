//! Purges of several proxies: one that this proxy acknowledges holds on all.
//!
//! With a register that they share, by the protocol of [`ifmatch_core::purge_log`]. Without one, by a list of peers,
//! which are asked one by one: the promise then ends with a peer that is missing from the list, or restarts in the
//! meantime.

use std::time::Duration;

use futures_util::future::join_all;
use http::header::AUTHORIZATION;
use http::{HeaderMap, StatusCode};
use ifmatch_cache::{CacheHandle, Purge};
use ifmatch_client::Cause;
use ifmatch_core::problem::Problem;
use ifmatch_gateway_config::endpoint_paths::CACHE;
use ifmatch_gateway_config::error::Error;
use ifmatch_gateway_config::shown_url::without_secrets;
use ifmatch_gateway_config::trust::Trust;
use reqwest::Client;
use serde::{Deserialize, Serialize};
use url::Url;

mod follower;
mod log;

pub use follower::Following;

/// A purge as the log has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PurgeOrder {
    pub(crate) purges: Vec<Purge>,
    /// `true` if the responses become stale instead of being removed.
    pub(crate) soft: bool,
}

impl PurgeOrder {
    /// Carries the purge out on this node. Returns the number of URLs with responses that it concerned.
    pub(crate) fn run(&self, cache: &CacheHandle) -> usize {
        run_all(&[self], cache)
    }
}

/// Carries out purges on this node, as one as far as possible. Returns the number of URLs with responses that they concerned.
fn run_all(orders: &[&PurgeOrder], cache: &CacheHandle) -> usize {
    let of = |soft| {
        orders
            .iter()
            .filter(move |order| order.soft == soft)
            .flat_map(|order| &order.purges)
    };
    cache.purge_all(of(false)) + of(true).map(|purge| cache.soft_purge(purge)).sum::<usize>()
}

/// The other proxies.
#[derive(Default)]
pub enum Purges {
    /// There are none.
    #[default]
    Alone,
    /// They read the log of a shared register.
    Logged(Following),
    /// They are asked one by one.
    Peers(Peers),
}

impl Purges {
    /// Returns once a purge that this node has carried out holds on all.
    ///
    /// # Errors
    /// 502 or 503 if it may not hold on all. To repeat it is harmless.
    pub(crate) async fn spread(
        &self,
        order: PurgeOrder,
        request: &HeaderMap,
    ) -> Result<(), Problem> {
        match self {
            Self::Alone => Ok(()),
            Self::Logged(following) => following.append(order).await.map_err(|error| {
                let detail =
                    format!("this proxy has purged its responses, but others may not have. Repeat the purge ({error})");
                Problem::new(StatusCode::SERVICE_UNAVAILABLE, "purge-incomplete").detail(detail)
            }),
            Self::Peers(peers) => peers.ask(&order, request).await.map_err(|failed| {
                let detail = format!(
                    "this proxy has purged its responses, but not all its peers have. Repeat the purge ({failed})"
                );
                Problem::new(StatusCode::BAD_GATEWAY, "purge-incomplete").detail(detail)
            }),
        }
    }

    /// Returns the progress through the log, if there is one.
    pub(crate) fn following(&self) -> Option<&Following> {
        match self {
            Self::Logged(following) => Some(following),
            Self::Alone | Self::Peers(_) => None,
        }
    }
}

/// Time limit for each peer.
const PATIENCE: Duration = Duration::from_secs(10);

/// The peers of a proxy, with a client for each.
pub struct Peers(Vec<(Url, Client)>);

impl Peers {
    /// Creates the clients of these peers.
    ///
    /// # Errors
    /// Fails if this machine has no root certificates for a peer with `https`.
    pub fn new(urls: &[Url]) -> Result<Self, Error> {
        let client = |url: &Url| {
            Ok((
                url.clone(),
                Trust::default().client(url, HeaderMap::new(), Some(PATIENCE))?,
            ))
        };
        urls.iter()
            .map(client)
            .collect::<Result<_, Error>>()
            .map(Self)
    }

    /// Asks each peer to purge, with the token of the request.
    ///
    /// # Errors
    /// Names the peers that haven't confirmed the purge, with the reasons.
    async fn ask(&self, order: &PurgeOrder, request: &HeaderMap) -> Result<(), String> {
        let asked = self.0.iter().map(async |(peer, client)| {
            let failed = match Self::ask_one(client, peer, order, request).await {
                Ok(status) if status.is_success() => return None,
                Ok(status) => format!("status {status}"),
                Err(error) => Cause::of(&error).text,
            };
            Some(format!("{}: {failed}", without_secrets(peer.as_str())))
        });
        let failed: Vec<String> = join_all(asked).await.into_iter().flatten().collect();
        if failed.is_empty() {
            Ok(())
        } else {
            Err(failed.join("; "))
        }
    }

    /// Asks a peer to purge, and returns the status of its response.
    async fn ask_one(
        client: &Client,
        peer: &Url,
        order: &PurgeOrder,
        request: &HeaderMap,
    ) -> Result<StatusCode, reqwest::Error> {
        let mut url = peer.clone();
        url.set_path(CACHE);
        url.query_pairs_mut().extend_pairs(query(order));
        let mut asked = client.delete(url);
        if let Some(token) = request.get(AUTHORIZATION) {
            asked = asked.header(AUTHORIZATION, token);
        }
        Ok(asked.send().await?.status())
    }
}

/// Returns the query of an order that a peer doesn't pass on. The groups of an order have one origin.
pub(crate) fn query(order: &PurgeOrder) -> Vec<(&'static str, String)> {
    let mut query = vec![
        ("soft", order.soft.to_string()),
        ("local", true.to_string()),
    ];
    for purge in order.purges.iter().cloned() {
        match purge {
            Purge::Url(url) => query.push(("url", url)),
            Purge::Prefix(prefix) => query.push(("prefix", prefix)),
            Purge::Group { origin, name } => {
                if !query.iter().any(|(field, _)| *field == "origin") {
                    query.push(("origin", origin));
                }
                query.push(("group", name));
            }
        }
    }
    query
}
