//! Purges of several proxies: one that this proxy acknowledges holds on all.
//!
//! With a register that they share, by the protocol of [`ifmatch_core::purge_log`]. Without one, by a list of peers, which are
//! asked one by one: the promise then ends with a peer that is missing from the list, or restarts meanwhile.

mod follower;
mod log;
mod peers;

use http::{HeaderMap, StatusCode};
use ifmatch_cache::{CacheHandle, Purge};
use ifmatch_core::problem::Problem;
use serde::{Deserialize, Serialize};

pub(crate) use follower::Following;
pub(crate) use peers::Peers;

/// A purge as the log has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Order {
    pub(crate) purges: Vec<Purge>,
    /// `true` if the responses become stale instead of being removed.
    pub(crate) soft: bool,
}

impl Order {
    /// Carries the purge out on this node. Returns the number of URLs with responses that it concerned.
    pub(crate) fn run(&self, cache: &CacheHandle) -> usize {
        run_all(&[self], cache)
    }
}

/// Carries out purges on this node, as one as far as possible. Returns the number of URLs with responses that they concerned.
fn run_all(orders: &[&Order], cache: &CacheHandle) -> usize {
    let of = |soft| orders.iter().filter(move |order| order.soft == soft).flat_map(|order| &order.purges);
    cache.purge_all(of(false)) + of(true).map(|purge| cache.soft_purge(purge)).sum::<usize>()
}

/// The other proxies.
#[derive(Default)]
pub(crate) enum Purges {
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
    pub(crate) async fn spread(&self, order: Order, request: &HeaderMap) -> Result<(), Problem> {
        match self {
            Self::Alone => Ok(()),
            Self::Logged(following) => following.append(order).await.map_err(|error| {
                let detail =
                    format!("this proxy has purged its responses, the others may not have: repeat the purge ({error})");
                Problem::new(StatusCode::SERVICE_UNAVAILABLE, "purge-incomplete").detail(detail)
            }),
            Self::Peers(peers) => peers.ask(&order, request).await.map_err(|failed| {
                let detail = format!(
                    "this proxy has purged its responses, but not all of its peers: repeat the purge ({failed})"
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
