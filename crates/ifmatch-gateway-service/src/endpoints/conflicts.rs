//! `/-/conflicts`: the requests that lost lately, and the clients and paths with most of them.

use std::net::IpAddr;

use bytes::Bytes;
use http::{Request, Response};
use ifmatch_core::problem::Problem;
use ifmatch_runtime::{Clock, SystemClock};
use serde::{Deserialize, Serialize};
use url::form_urlencoded;

use super::{answer_listing, begin_listing, parse_limit};
use crate::conflicts::{self, Conflict, LosingClient, WINDOW, WorstPath};
use crate::state::AppState;
use crate::text::decoded;

/// Maximum length of each list, and the default.
const MAX_LIMIT: usize = 500;

/// The response.
#[derive(Serialize, Deserialize)]
pub(crate) struct FoundConflicts {
    /// Number of conflicts since the start.
    pub(crate) total: u64,
    /// The time for which conflicts are counted by client and path, in seconds.
    window: u64,
    pub(crate) lengths: ListLengths,
    pub(crate) clients: Vec<LosingClient>,
    pub(crate) worst: Vec<WorstPath>,
    pub(crate) groups: Vec<ConflictGroup>,
    recent: Vec<Conflict>,
}

/// How long the lists would be without a limit.
#[derive(Serialize, Deserialize)]
pub(crate) struct ListLengths {
    pub(crate) clients: usize,
    pub(crate) worst: usize,
    pub(crate) groups: usize,
    recent: usize,
}

/// Conflicts of one client and program, on one path, for one reason.
#[derive(Serialize, Deserialize)]
pub(crate) struct ConflictGroup {
    /// How many of the latest conflicts they are.
    pub(crate) count: u32,
    /// When the oldest of them was refused, in seconds since 1970.
    pub(crate) first: f64,
    /// The latest of them.
    #[serde(flatten)]
    pub(crate) latest: Conflict,
}

impl ConflictGroup {
    /// Returns what tells this group from others.
    pub(crate) fn key(&self) -> String {
        let Conflict {
            path,
            client,
            user_agent,
            method,
            status,
            by_lease,
            code,
            conditions,
            ..
        } = &self.latest;
        format!(
            "{method} {path} {client} {user_agent:?} {status} {by_lease} {code:?} {:?}",
            conditions.keys()
        )
    }

    /// Returns `true` if a conflict belongs to this group.
    fn has(&self, other: &Conflict) -> bool {
        let latest = &self.latest;
        latest.path == other.path
            && latest.client == other.client
            && latest.user_agent == other.user_agent
            && (&latest.method, latest.status, latest.by_lease)
                == (&other.method, other.status, other.by_lease)
            && latest.code == other.code
            && latest.conditions.keys().eq(other.conditions.keys())
    }
}

/// Returns the clients and the paths with conflicts in the last ten minutes, worst first, and the latest conflicts, newest first, also by
/// path, client and reason. `?path=…`, encoded or not, selects clients and conflicts; `?client=…` and `?user_agent=…` select paths and
/// conflicts. `?limit=…` cuts each list.
pub(super) fn respond<B>(
    state: &AppState,
    request: &Request<B>,
) -> Result<Response<Bytes>, Problem> {
    let (wanted, limit) = ConflictQuery::parse(request.uri().query().unwrap_or_default())?;
    let (memory, conflicts) = (begin_listing(state, request)?, &state.conflicts);
    let (now, wall) = (SystemClock.now(), SystemClock.wall());
    // Who loses on a path, and where a client loses, is known of the conflicts that are kept.
    let kept = conflicts.recent(|_| true);
    let lately: Vec<_> = kept
        .iter()
        .filter(|conflict| conflict.is_recent(wall))
        .collect();
    let of = |has: fn(&ConflictQuery, &Conflict) -> bool| {
        let lately = lately.iter().copied();
        lately
            .filter(|conflict| has(&wanted, conflict))
            .collect::<Vec<_>>()
    };
    let clients = match wanted.path {
        Some(_) => conflicts::losers(&of(ConflictQuery::has_path)),
        None => conflicts.losers(now),
    };
    let worst = if wanted.is_of_client() {
        conflicts::paths(&of(ConflictQuery::has_client))
    } else {
        conflicts.worst(now, &lately)
    };
    let recent =
        conflicts.recent(|conflict| wanted.has_path(conflict) && wanted.has_client(conflict));
    let groups = grouped(&recent);
    let found = FoundConflicts {
        total: conflicts.total(),
        window: WINDOW.as_secs(),
        lengths: ListLengths {
            clients: clients.len(),
            worst: worst.len(),
            groups: groups.len(),
            recent: recent.len(),
        },
        clients: clients.into_iter().take(limit).collect(),
        worst: worst.into_iter().take(limit).collect(),
        groups: groups.into_iter().take(limit).collect(),
        recent: recent.into_iter().take(limit).collect(),
    };
    answer_listing(memory, &found)
}

/// The conflicts that a request asks for.
#[derive(Default)]
struct ConflictQuery {
    path: Option<String>,
    client: Option<IpAddr>,
    user_agent: Option<String>,
}

impl ConflictQuery {
    /// Parses a query. Returns the maximum length of each list, too.
    fn parse(query: &str) -> Result<(Self, usize), Problem> {
        let (mut wanted, mut limit) = (Self::default(), MAX_LIMIT);
        for (name, value) in form_urlencoded::parse(query.as_bytes()) {
            match &*name {
                "path" => wanted.path = Some(value.into_owned()),
                "client" => {
                    let invalid = |_| Problem::bad_request("client isn't an IP address");
                    wanted.client = Some(value.parse().map_err(invalid)?);
                }
                "user_agent" => wanted.user_agent = Some(value.into_owned()),
                "limit" => limit = parse_limit(&value, MAX_LIMIT)?,
                _ => {
                    return Err(Problem::bad_request(
                        "unknown parameter. Use path, client, user_agent or limit",
                    ));
                }
            }
        }
        Ok((wanted, limit))
    }

    /// Returns `true` if the request asks for the conflicts of some clients only.
    fn is_of_client(&self) -> bool {
        self.client.is_some() || self.user_agent.is_some()
    }

    /// Returns `true` for a conflict on the path that the request asks for, encoded or not.
    fn has_path(&self, conflict: &Conflict) -> bool {
        let path = self.path.as_ref();
        path.is_none_or(|path| *path == conflict.path.0 || *path == decoded(&conflict.path.0).0)
    }

    /// Returns `true` for a conflict of the clients that the request asks for. An empty program stands for clients that name none.
    fn has_client(&self, conflict: &Conflict) -> bool {
        let agent = conflict
            .user_agent
            .as_ref()
            .map_or("", |agent| agent.0.as_str());
        self.client.is_none_or(|client| client == conflict.client)
            && self
                .user_agent
                .as_ref()
                .is_none_or(|wanted| wanted == agent)
    }
}

/// Groups conflicts, newest first.
fn grouped(conflicts: &[Conflict]) -> Vec<ConflictGroup> {
    let mut groups = Vec::<ConflictGroup>::new();
    for conflict in conflicts {
        if let Some(group) = groups.iter_mut().find(|group| group.has(conflict)) {
            group.count += 1;
            group.first = conflict.time;
        } else {
            groups.push(ConflictGroup {
                count: 1,
                first: conflict.time,
                latest: conflict.clone(),
            });
        }
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conflicts_are_grouped_by_path_client_and_reason() {
        let conflict = |time: f64, path: &str, agent: &str, status: u16| {
            let text = format!(
                r#"{{"time":{time},"method":"PUT","path":"{path}","client":"192.0.2.1","user_agent":"{agent}","conditions":{{}},"status":{status},"by_lease":false,"code":null,"current":null}}"#
            );
            serde_json::from_str::<Conflict>(&text).unwrap()
        };
        let groups = grouped(&[
            conflict(5.0, "/a", "x", 412),
            conflict(4.0, "/a", "y", 412),
            conflict(3.0, "/a", "x", 428),
            conflict(2.0, "/b", "x", 412),
            conflict(1.0, "/a", "x", 412),
        ]);
        let counts: Vec<_> = groups
            .iter()
            .map(|group| (group.count, group.first, group.latest.time))
            .collect();
        assert_eq!(
            counts,
            [(2, 1.0, 5.0), (1, 4.0, 4.0), (1, 3.0, 3.0), (1, 2.0, 2.0)]
        );
        let text = serde_json::to_string(&groups[0]).unwrap();
        assert_eq!(
            serde_json::from_str::<ConflictGroup>(&text)
                .unwrap()
                .latest
                .path,
            "/a".into()
        );
    }
}
