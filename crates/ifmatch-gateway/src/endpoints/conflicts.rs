//! `/-/conflicts`: the requests that lost lately, and the paths that lost most.

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use ifmatch_core::problem::Problem;
use ifmatch_runtime::{Clock, SystemClock};
use serde::{Deserialize, Serialize};
use url::form_urlencoded;

use super::answer_json;
use crate::conflicts::{Conflict, Conflicts, WINDOW, Worst};

/// Path of the endpoint.
pub(super) const PATH: &str = "/-/conflicts";

/// Number of paths in `worst`.
const WORST: usize = 10;
/// Maximum number of conflicts in `recent`, and the default.
const MAX_LIMIT: usize = 500;

/// The answer.
#[derive(Serialize, Deserialize)]
pub(crate) struct Found {
    /// Number of conflicts since the start.
    pub(crate) total: u64,
    /// The time for which conflicts are counted by path, in seconds.
    window: u64,
    pub(crate) worst: Vec<Worst>,
    pub(crate) recent: Vec<Conflict>,
}

/// Returns the worst paths of the last ten minutes, and the latest conflicts, newest first: with `?path=…` those of a path, and
/// with `?limit=…` at most this number.
pub(super) fn respond<B>(conflicts: &Conflicts, request: &Request<B>) -> Result<Response<Bytes>, Problem> {
    let (mut path, mut limit) = (None, MAX_LIMIT);
    for (name, value) in form_urlencoded::parse(request.uri().query().unwrap_or_default().as_bytes()) {
        match (&*name, value.parse::<usize>()) {
            ("path", _) => path = Some(value.into_owned()),
            ("limit", Ok(number @ 1..)) => limit = number.min(MAX_LIMIT),
            ("limit", _) => return Err(Problem::bad_request(format!("limit must be a number from 1 to {MAX_LIMIT}"))),
            _ => return Err(Problem::bad_request("the parameters are path and limit")),
        }
    }
    let (now, wall) = (SystemClock.now(), SystemClock.wall());
    let found = Found {
        total: conflicts.total(),
        window: WINDOW.as_secs(),
        worst: conflicts.worst(WORST, now, wall),
        recent: conflicts.recent(limit, |conflict| path.as_ref().is_none_or(|path| *path == conflict.path.0)),
    };
    Ok(answer_json(StatusCode::OK, &found))
}
