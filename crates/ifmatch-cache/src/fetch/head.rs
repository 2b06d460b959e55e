//! Updates of the stored response to GET from a response to HEAD (RFC 9111 §4.3.5).

use std::sync::Arc;

use http::{HeaderMap, Method, Response, StatusCode};
use ifmatch_core::date::Timestamp;

use crate::policy::resource_rules::ResourceRules;
use crate::policy::reuse::is_failure;
use crate::policy::storable::Exchange;
use crate::policy::update::{head_agrees, shares_validator};
use crate::request::CacheRequest;
use crate::state::CacheState;
use crate::store::stored_response::{ArrivalContext, StoredBody, StoredResponse};

/// Updates the stored response if the two share a validator. If they contradict each other, the stored response is
/// outdated, and is kept for its validators only. Otherwise HEAD has no effect.
///
/// The stored content is still the one requested back then, so it keeps its ordinal: an invalidation since then applies
/// to it.
pub(crate) fn update_stored<T>(
    state: &CacheState,
    request: &CacheRequest,
    stored: &StoredResponse,
    head: &Response<T>,
    requested: Timestamp,
) {
    let status = head.status();
    // A 304 is about the client's copy.
    if is_failure(status) || status == StatusCode::NOT_MODIFIED {
        return;
    }
    let len = match &stored.body {
        StoredBody::Whole(body) => body.len,
        StoredBody::File(file) => file.len(),
        StoredBody::Parts(parts) => parts.total,
        StoredBody::Broadcast(_) => return,
    };
    let fields = &request.head.headers;
    let resource = ResourceRules::of(&request.head.extensions);
    let arrival = ArrivalContext::new(
        &state.config,
        &request.head,
        &request.implicit_key,
        stored.meta.began,
        requested,
        state.wall(),
    );
    let refusal = |response: &HeaderMap| {
        let (method, governing, rules) = (
            &Method::GET,
            &state.config.governing(response),
            state.config.rules,
        );
        Exchange {
            method,
            request: fields,
            status,
            response,
            governing,
            rules,
            resource,
        }
        .refusal()
    };
    // The response concerns only this client.
    let own = refusal(head.headers());
    if stored.meta.withstands(status, own, state.wall())
        || own.is_some_and(|refusal| refusal.is_personal(fields))
    {
        return;
    }
    let agrees =
        status == stored.meta.status && head_agrees(head.headers(), &stored.meta.headers, len);
    if agrees && !shares_validator(head.headers(), &stored.meta.headers) {
        return;
    }
    let meta = if agrees {
        stored.meta.freshened(head.headers(), &arrival)
    } else {
        stored.meta.outdated()
    };
    let updated = StoredResponse {
        meta: Arc::new(meta),
        body: stored.body.clone(),
    };
    if agrees && refusal(&updated.meta.headers).is_some() {
        state.table.discard(&request.key, stored);
    } else {
        state.table.store(&request.key, updated, |_, new| new);
    }
}
