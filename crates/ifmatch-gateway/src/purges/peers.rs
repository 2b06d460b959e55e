//! Purges without a shared register: each peer is asked.

use std::time::Duration;

use futures_util::future::join_all;
use http::HeaderMap;
use http::header::AUTHORIZATION;
use ifmatch_cache::Purge;
use reqwest::Client;
use url::Url;

use super::Order;
use crate::commands::http_client::{Trust, reason};
use crate::config::shown_url::without_secrets;
use crate::endpoints::CACHE_PATH;
use crate::error::Error;

/// Time limit for each peer.
const PATIENCE: Duration = Duration::from_secs(10);

/// The peers of a proxy.
pub(crate) struct Peers(Vec<(Url, Client)>);

impl Peers {
    /// Creates the clients of these peers.
    ///
    /// # Errors
    /// If this machine has no root certificates for a peer with `https`.
    pub(crate) fn new(urls: &[Url]) -> Result<Self, Error> {
        let client = |url: &Url| Ok((url.clone(), Trust::default().client(url, PATIENCE)?));
        urls.iter().map(client).collect::<Result<_, Error>>().map(Self)
    }

    /// Asks each peer to purge, with the token of the request.
    ///
    /// # Errors
    /// Names the peers that have not confirmed the purge, with the reasons.
    pub(super) async fn ask(&self, order: &Order, request: &HeaderMap) -> Result<(), String> {
        let asked = self.0.iter().map(async |(peer, client)| {
            let failed = match Self::ask_one(client, peer, order, request).await {
                Ok(status) if status.is_success() => return None,
                Ok(status) => format!("status {status}"),
                Err(error) => reason(&error),
            };
            Some(format!("{}: {failed}", without_secrets(peer.as_str())))
        });
        let failed: Vec<String> = join_all(asked).await.into_iter().flatten().collect();
        if failed.is_empty() { Ok(()) } else { Err(failed.join("; ")) }
    }

    async fn ask_one(
        client: &Client,
        peer: &Url,
        order: &Order,
        request: &HeaderMap,
    ) -> Result<http::StatusCode, reqwest::Error> {
        let mut status = http::StatusCode::OK;
        for purge in &order.purges {
            let mut url = peer.clone();
            url.set_path(CACHE_PATH);
            url.query_pairs_mut().extend_pairs(query(purge, order.soft));
            let mut asked = client.delete(url);
            if let Some(token) = request.get(AUTHORIZATION) {
                asked = asked.header(AUTHORIZATION, token);
            }
            status = asked.send().await?.status();
            if !status.is_success() {
                break;
            }
        }
        Ok(status)
    }
}

/// Returns the query of a purge that a peer does not pass on.
fn query(purge: &Purge, soft: bool) -> Vec<(&'static str, String)> {
    let mut query = match purge.clone() {
        Purge::Url(url) => vec![("url", url)],
        Purge::Prefix(prefix) => vec![("prefix", prefix)],
        Purge::Group { origin, name } => vec![("group", name), ("origin", origin)],
    };
    query.extend([("soft", soft.to_string()), ("local", true.to_string())]);
    query
}
