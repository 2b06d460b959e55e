//! The distribution of requests over the servers of an upstream: a pure decision.

use std::cmp::{Ordering, Reverse};

/// The server that gets the next request, of those that are available.
///
/// ```
/// use ifmatch_proxy::{Balance, Upstream};
///
/// let upstream = Upstream::parse(&["http://10.0.0.7:8080 weight=3", "http://10.0.0.8:8080"])?;
/// let upstream = upstream.balance(Balance::LeastConnections);
/// # drop(upstream);
/// # Ok::<(), ifmatch_proxy::InvalidUpstream>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Balance {
    /// Each server in turn, in proportion to the weights, without bursts.
    #[default]
    RoundRobin,
    /// The server with the fewest requests in progress, divided by its weight. Equals take turns.
    LeastConnections,
}

/// The health of a server, best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ServerHealth {
    /// The server gets requests.
    Healthy,
    /// The server was unreachable recently.
    Avoided,
    /// The server's health checks fail.
    Unhealthy,
}

/// A server as the decision sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ServerCandidate {
    /// Index of the server in its upstream.
    pub(crate) index: usize,
    pub(crate) weight: u32,
    /// Number of requests in progress.
    pub(crate) requests: u64,
    pub(crate) health: ServerHealth,
    /// `true` if the server is used only while no other one is available.
    pub(crate) backup: bool,
    /// `true` if all slots of the server are taken.
    pub(crate) full: bool,
}

/// The turns of an upstream's servers: smooth weighted round robin, as in nginx.
///
/// At each turn, every available server earns its weight, and the one with the most credit pays what all have earned.
/// So the sum of all credits is always zero.
#[derive(Debug, Default)]
pub(crate) struct ServerTurns(Vec<i64>);

impl ServerCandidate {
    /// Returns the servers that requests may wait for instead of this one. Requests don't leave healthy servers for
    /// unhealthy ones or backups just because they are busy.
    pub(crate) fn group(&self) -> (bool, bool) {
        (self.health == ServerHealth::Unhealthy, self.backup)
    }

    fn rank(&self) -> (ServerHealth, bool, bool) {
        (self.health, self.backup, self.full)
    }

    fn compare_load(&self, other: &Self) -> Ordering {
        let load = |one: &Self, other: &Self| u128::from(one.requests) * u128::from(other.weight);
        load(self, other).cmp(&load(other, self))
    }
}

impl ServerTurns {
    /// Creates the turns of this number of servers.
    pub(crate) fn new(servers: usize) -> Self {
        Self(vec![0; servers])
    }

    /// Sorts the candidates in the order in which to try them, and ends the turn of the first.
    pub(crate) fn order(
        &mut self,
        balance: Balance,
        mut candidates: Vec<ServerCandidate>,
    ) -> Vec<ServerCandidate> {
        let compare = |a: &ServerCandidate, b: &ServerCandidate| {
            let by_load = match balance {
                Balance::RoundRobin => Ordering::Equal,
                Balance::LeastConnections => a.compare_load(b),
            };
            a.rank().cmp(&b.rank()).then(by_load)
        };
        let Some(best) = candidates.iter().copied().min_by(compare) else {
            return candidates;
        };
        let mut earned = 0;
        for equal in candidates
            .iter()
            .filter(|candidate| compare(candidate, &best).is_eq())
        {
            self.0[equal.index] += i64::from(equal.weight);
            earned += i64::from(equal.weight);
        }
        candidates.sort_by(|a, b| {
            compare(a, b).then(Reverse(self.0[a.index]).cmp(&Reverse(self.0[b.index])))
        });
        self.0[candidates[0].index] -= earned;
        candidates
    }
}

/// Returns the share of `total` for a server with this weight, of servers with these weights. At least 1.
pub(crate) fn share(total: u32, weight: u32, weights: impl Iterator<Item = u32>) -> u32 {
    let sum = weights.map(u64::from).sum::<u64>().max(1);
    u32::try_from(u64::from(total) * u64::from(weight) / sum)
        .unwrap_or(total)
        .max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidates(weights: &[u32]) -> Vec<ServerCandidate> {
        let candidate = |(index, weight): (usize, &u32)| ServerCandidate {
            index,
            weight: *weight,
            requests: 0,
            health: ServerHealth::Healthy,
            backup: false,
            full: false,
        };
        weights.iter().enumerate().map(candidate).collect()
    }

    /// Returns the first servers of a number of turns, `a` for the first server.
    fn firsts(
        turns: &mut ServerTurns,
        balance: Balance,
        candidates: &[ServerCandidate],
        count: usize,
    ) -> String {
        let letter = |index: usize| char::from(b"abcdefgh"[index]);
        (0..count)
            .map(|_| letter(turns.order(balance, candidates.to_vec())[0].index))
            .collect()
    }

    fn indices(order: &[ServerCandidate]) -> Vec<usize> {
        order.iter().map(|candidate| candidate.index).collect()
    }

    #[test]
    fn turns_follow_the_weights_without_bursts() {
        for (weights, expected) in [
            (&[1, 1, 1][..], "abcabc"),
            // The example of nginx.
            (&[5, 1, 1], "aabacaaaabacaa"),
            (&[2, 1], "abaaba"),
            (&[7], "aaa"),
        ] {
            let mut turns = ServerTurns::new(weights.len());
            assert_eq!(
                firsts(
                    &mut turns,
                    Balance::RoundRobin,
                    &candidates(weights),
                    expected.len()
                ),
                expected,
                "{weights:?}"
            );
        }
    }

    #[test]
    fn the_order_prefers_health_then_reachability_then_primaries_then_free_slots() {
        let mut all = candidates(&[9, 1, 1, 1, 1]);
        all[0].health = ServerHealth::Unhealthy;
        all[1].health = ServerHealth::Avoided;
        all[2].backup = true;
        all[3].full = true;
        for balance in [Balance::RoundRobin, Balance::LeastConnections] {
            assert_eq!(
                indices(&ServerTurns::new(5).order(balance, all.clone())),
                [4, 3, 2, 1, 0]
            );
        }
    }

    #[test]
    fn a_server_that_was_away_gets_no_burst() {
        let mut turns = ServerTurns::new(2);
        let both = candidates(&[1, 1]);
        let mut away = both.clone();
        away[1].health = ServerHealth::Unhealthy;
        assert_eq!(
            firsts(&mut turns, Balance::RoundRobin, &away, 100),
            "a".repeat(100)
        );
        assert_eq!(firsts(&mut turns, Balance::RoundRobin, &both, 4), "abab");
    }

    #[test]
    fn the_least_loaded_server_by_weight_is_first_and_equals_take_turns() {
        let mut all = candidates(&[3, 1, 1]);
        for (requests, expected) in [
            ([0, 0, 0], "abaca"),
            ([2, 1, 1], "aaaa"),
            ([3, 1, 0], "cccc"),
            ([4, 1, 1], "bcbc"),
            ([9, 2, 3], "bbbb"),
        ] {
            for (candidate, requests) in all.iter_mut().zip(requests) {
                candidate.requests = requests;
            }
            let found = firsts(
                &mut ServerTurns::new(3),
                Balance::LeastConnections,
                &all,
                expected.len(),
            );
            assert_eq!(found, expected, "{requests:?}");
        }
    }

    #[test]
    fn credits_stay_balanced_whatever_is_available() {
        let weights = [5_u32, 3, 2, 1];
        let all = candidates(&weights);
        let mut turns = ServerTurns::new(4);
        // What four turns of all servers cost.
        let most = 4 * weights.into_iter().map(i64::from).sum::<i64>();
        for round in 0..1_000_u32 {
            let available = all
                .iter()
                .filter(|candidate| (round / 7) >> candidate.index & 1 == 1)
                .copied()
                .collect();
            turns.order(Balance::RoundRobin, available);
            assert_eq!(turns.0.iter().sum::<i64>(), 0);
            assert!(
                turns.0.iter().all(|credit| credit.abs() <= most),
                "{turns:?}"
            );
        }
    }

    #[test]
    fn an_upstream_s_requests_are_shared_by_weight() {
        let shares = |total, weights: &[u32]| {
            weights
                .iter()
                .map(|weight| share(total, *weight, weights.iter().copied()))
                .collect::<Vec<_>>()
        };
        assert_eq!(shares(500, &[1]), [500]);
        assert_eq!(shares(500, &[1; 4]), [125; 4]);
        assert_eq!(shares(500, &[3, 1]), [375, 125]);
        assert_eq!(shares(0, &[3, 1]), [1, 1]);
        assert_eq!(shares(u32::MAX, &[u32::MAX, 1]), [u32::MAX - 1, 1]);
    }
}
