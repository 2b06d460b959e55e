//! A request as it came, before anything is taken out of it for the inner service.

use http::header::{AUTHORIZATION, COOKIE, IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE, IF_UNMODIFIED_SINCE};
use http::request::Parts;
use http::{HeaderMap, HeaderName, Request};
use ifmatch_core::precondition::Preconditions;
use ifmatch_store::Key;

use crate::config::Config;
use crate::recall::Sought;

/// What a client asked for.
#[derive(Debug)]
pub(crate) struct Asked {
    /// The resource.
    pub(crate) key: Key,
    /// The head of the request, without its extensions.
    pub(crate) head: Parts,
    /// Its conditions.
    pub(crate) conditions: Preconditions,
    /// Whether what is answered may be told to others.
    pub(crate) anonymous: bool,
}

impl Asked {
    pub(crate) fn new<B>(sought: Sought, request: &Request<B>) -> Self {
        let Sought { key, conditions, anonymous, .. } = sought;
        Self { key, head: head_of(request), conditions, anonymous }
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
    const CONDITIONS: [HeaderName; 5] = [IF_MATCH, IF_NONE_MATCH, IF_UNMODIFIED_SINCE, IF_MODIFIED_SINCE, IF_RANGE];
    if headers.keys().any(|name| CONDITIONS.contains(name)) {
        for name in CONDITIONS {
            headers.remove(name);
        }
    }
}

/// A head without extensions.
fn head_of<B>(request: &Request<B>) -> Parts {
    let (mut head, ()) = Request::new(()).into_parts();
    head.method = request.method().clone();
    head.uri = request.uri().clone();
    head.version = request.version();
    head.headers = request.headers().clone();
    head
}
