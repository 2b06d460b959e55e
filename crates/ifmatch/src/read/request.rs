//! A request as it came, before anything is taken out of it for the inner service.

use http::header::{AUTHORIZATION, COOKIE, IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE, IF_UNMODIFIED_SINCE};
use http::request::Parts;
use http::{HeaderMap, HeaderName, Method};
use ifmatch_core::precondition::Preconditions;
use ifmatch_core::record::Variant;
use ifmatch_register::Key;

use crate::config::Config;
use crate::read::cached::Sought;
use crate::read::vary::Vary;

/// What a client asked for.
#[derive(Debug)]
pub(crate) struct Asked {
    /// The resource.
    pub(crate) key: Key,
    /// Whether it is HEAD and not GET.
    pub(crate) is_head: bool,
    pub(crate) query: Option<Box<str>>,
    pub(crate) headers: HeaderMap,
    /// Its conditions.
    pub(crate) conditions: Preconditions,
    /// Whether what is answered may be told to others.
    pub(crate) anonymous: bool,
}

impl Asked {
    pub(crate) fn new(sought: Sought, head: &Parts) -> Self {
        let Sought { key, anonymous, .. } = sought;
        let query = head.uri.query().map(Box::from);
        let conditions = Preconditions::from_headers(&head.headers);
        Self { key, is_head: head.method == Method::HEAD, query, headers: head.headers.clone(), conditions, anonymous }
    }

    /// The representation that it selects of a resource whose representations these fields tell apart.
    pub(crate) fn select(&self, vary: &Vary) -> Option<Variant> {
        vary.select(self.query.as_deref(), &self.headers)
    }

    /// Whether what may be answered depends on what the client has.
    pub(crate) fn is_conditional(&self) -> bool {
        !self.conditions.is_empty() || self.headers.contains_key(IF_RANGE)
    }
}

/// Whether the responses to this request may be told to others, and those to others to its client.
pub(crate) fn is_anonymous(config: &Config, head: &Parts) -> bool {
    let has_credentials = || head.headers.keys().any(|name| *name == AUTHORIZATION || *name == COOKIE);
    config.behind_authentication || !has_credentials()
}

/// Takes the conditions out of a request: the inner service answers in full, with the tag of those very bytes.
pub(crate) fn strip_conditions(headers: &mut HeaderMap) {
    const CONDITIONS: [HeaderName; 5] = [IF_MATCH, IF_NONE_MATCH, IF_UNMODIFIED_SINCE, IF_MODIFIED_SINCE, IF_RANGE];
    if headers.keys().any(|name| CONDITIONS.contains(name)) {
        for name in CONDITIONS {
            headers.remove(name);
        }
    }
}
