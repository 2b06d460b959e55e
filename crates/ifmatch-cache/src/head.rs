//! What a response to HEAD says about the stored response to GET (RFC 9111 §4.3.5).

use std::sync::Arc;

use http::{HeaderMap, Method, Response, StatusCode};
use ifmatch_core::date::Timestamp;
use ifmatch_runtime::Clock;

use crate::asked::Asked;
use crate::policy::cdn_cache_control::Governing;
use crate::policy::reuse::is_failure;
use crate::policy::storable::Exchange;
use crate::policy::update::{head_agrees, shares_validator};
use crate::shared::Shared;
use crate::stored::{Body, Came, Stored};

/// Updates the stored response if the two have a validator in common. If they contradict each other, it is outdated: it
/// stays for its validators only. Otherwise nothing was learned.
///
/// The content is still the one that was asked for back then: an invalidation since holds for it as well.
pub(crate) fn learn<C: Clock, T>(
    shared: &Shared<C>,
    asked: &Asked,
    stored: &Stored,
    head: &Response<T>,
    requested: Timestamp,
) {
    let status = head.status();
    // 304 is about what the client has.
    if is_failure(status) || status == StatusCode::NOT_MODIFIED {
        return;
    }
    let len = match &stored.body {
        Body::Whole(content) => content.len,
        Body::Part(part) => part.total,
        Body::File(file) => file.len(),
        Body::Broadcast(_) => return,
    };
    let came = Came {
        request: &asked.head.headers,
        implicit: &asked.implicit,
        began: stored.meta.began,
        requested,
        received: shared.now(),
        heuristic: shared.config.heuristic,
        unstored: &shared.config.unstored,
        always_validate: shared.config.always_validate,
    };
    let request = &asked.head.headers;
    let refusal = |response: &HeaderMap| {
        let (method, governing, rules) = (&Method::GET, &Governing::of(response), shared.config.rules);
        Exchange { method, request, status, response, governing, rules }.refusal()
    };
    // The response concerns only this client.
    if refusal(head.headers()).is_some_and(|refusal| refusal.is_personal(request)) {
        return;
    }
    let agrees = status == stored.meta.status && head_agrees(head.headers(), &stored.meta.headers, len);
    if agrees && !shares_validator(head.headers(), &stored.meta.headers) {
        return;
    }
    let meta = if agrees { stored.meta.freshened(head.headers(), &came) } else { stored.meta.outdated() };
    let updated = Stored { meta: Arc::new(meta), body: stored.body.clone() };
    if agrees && refusal(&updated.meta.headers).is_some() {
        shared.table.discard(&asked.key, stored);
    } else {
        shared.table.store(&asked.key, updated, |_, new| new);
    }
}
