//! Answering 304 from memory, without running the inner service.

use std::sync::Arc;

use http::header::{AGE, ETAG};
use http::request::Parts;
use http::{Method, Response};
use http_body::Body;
use ifmatch_core::EntityTag;
use ifmatch_core::date::Timestamp;
use ifmatch_core::precondition::{Preconditions, Validators, Verdict};
use ifmatch_core::record::Version;
use ifmatch_store::{Clock, Key, Register};

use crate::answer;
use crate::asked::is_anonymous;
use crate::body::ResponseBody;
use crate::coding;
use crate::freshness::wants_origin;
use crate::memory::Known;
use crate::read::Looked;
use crate::shared::Shared;

/// Answers 304 if the client has the current representation, and this is known for certain: the register has the same
/// version, and either all changes go through it or the response itself said that it stays fresh.
///
/// # Errors
/// The inner service must run; this is what was found in the register.
pub(crate) async fn recall<T: Body, R: Register, C: Clock>(
    shared: &Shared<R, C>,
    key: &Key,
    head: &Parts,
) -> Result<Response<ResponseBody<T>>, Looked> {
    let at = shared.now();
    let candidate = shared.candidate(key, head, at);
    if let Some((known, shown)) = &candidate
        && known.confirmed().saturating_add(shared.config.staleness) > at
    {
        return Ok(shared.not_modified(known, shown, at));
    }
    let record = shared.answer(shared.driver.load(key)).await;
    let generation = record.as_ref().and_then(|record| record.settled(at)).map(Version::generation);
    match candidate {
        Some((known, shown)) if generation == Some(known.generation) => {
            known.confirm(at);
            Ok(shared.not_modified(&known, &shown, at))
        }
        _ => Err(Looked { at, record }),
    }
}

impl<R: Register, C: Clock> Shared<R, C> {
    /// What is remembered of the representation that this request selects, if it makes a 304 of the request; and its
    /// tag as the client is to see it.
    fn candidate(&self, key: &Key, head: &Parts, at: Timestamp) -> Option<(Arc<Known>, EntityTag)> {
        let conditions = Preconditions::from_headers(&head.headers);
        if conditions.is_empty() || !is_anonymous(&self.config, head) {
            return None;
        }
        let known = self.memory.get(key)?.find(head).cloned()?;
        let usable = self.is_authoritative() || (at < known.fresh_until && !wants_origin(&head.headers));
        let shown =
            if self.config.behind_compression { coding::shown(&known.tag, &head.headers) } else { known.tag.clone() };
        let validators = Validators {
            tags: std::slice::from_ref(&shown),
            last_modified: Some(known.last_modified).filter(|date| date.has_come(at)),
        };
        let verdict = conditions.evaluate(&Method::GET, Some(&validators));
        (usable && verdict == Verdict::NotModified).then_some((known, shown))
    }

    fn not_modified<T: Body>(&self, known: &Known, shown: &EntityTag, at: Timestamp) -> Response<ResponseBody<T>> {
        let mut headers = known.headers.clone();
        if self.config.behind_compression {
            headers.insert(ETAG, shown.to_header());
        }
        if !self.is_authoritative() {
            // Nobody but the response's own freshness vouches for it: it is as old as it is.
            headers.insert(AGE, known.born.until(at).as_secs().into());
        }
        answer::bare(headers)
    }
}
