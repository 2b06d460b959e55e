//! A request as it came, before anything is taken out of it for the inner service.

use http::header::{AUTHORIZATION, COOKIE, IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE, IF_UNMODIFIED_SINCE};
use http::request::Parts;
use http::{HeaderMap, Request};
use ifmatch_core::precondition::Preconditions;
use ifmatch_store::Key;

use crate::config::Config;

/// What a client asked for.
#[derive(Debug)]
pub(crate) struct Asked {
    /// The resource.
    pub(crate) key: Key,
    /// The head of the request, without its extensions.
    pub(crate) head: Parts,
    /// Its conditions.
    pub(crate) conditions: Preconditions,
}

impl Asked {
    pub(crate) fn new(key: Key, head: &Parts) -> Self {
        Self { key, head: copy(head), conditions: Preconditions::from_headers(&head.headers) }
    }

    /// Whether what may be answered depends on what the client has.
    pub(crate) fn is_conditional(&self) -> bool {
        !self.conditions.is_empty() || self.head.headers.contains_key(IF_RANGE)
    }
}

/// Whether the responses to this request may be told to others, and those to others to its client.
pub(crate) fn is_anonymous(config: &Config, head: &Parts) -> bool {
    config.behind_authentication || !(head.headers.contains_key(AUTHORIZATION) || head.headers.contains_key(COOKIE))
}

/// Takes the conditions out of a request: the inner service answers in full, with the tag of those very bytes.
pub(crate) fn strip(headers: &mut HeaderMap) {
    for name in [IF_MATCH, IF_NONE_MATCH, IF_UNMODIFIED_SINCE, IF_MODIFIED_SINCE, IF_RANGE] {
        headers.remove(name);
    }
}

/// A head without extensions.
fn copy(head: &Parts) -> Parts {
    let (mut copy, ()) = Request::new(()).into_parts();
    copy.method = head.method.clone();
    copy.uri = head.uri.clone();
    copy.version = head.version;
    copy.headers = head.headers.clone();
    copy
}
