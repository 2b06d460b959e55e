//! Writing and deleting a blob.

use http::header::{CONTENT_LENGTH, CONTENT_RANGE, ETAG, LAST_MODIFIED};
use http::request::Parts;
use http::{HeaderMap, Response, StatusCode};
use http_body::Body;
use ifmatch_core::date::Timestamp;
use ifmatch_core::precondition::Preconditions;
use ifmatch_core::problem::Problem;

use super::fields::{self, REPR_DIGEST};
use crate::body::BlobBody;
use crate::dialect::Context;
use crate::name::BlobPath;
use crate::store::{Delete, Put, Upload, Written};

/// Answers a PUT of a blob.
pub(super) async fn put(
    shared: &Context,
    head: &Parts,
    blob: &BlobPath,
    upload: impl FnOnce() -> Upload,
) -> Result<Response<BlobBody>, Problem> {
    let preconditions = conditions(shared, head)?;
    if head.headers.contains_key(CONTENT_RANGE) {
        // RFC 9110 §14.5: a part must not replace the whole.
        return Err(Problem::bad_request(
            "a PUT replaces the whole blob: send all of it, without Content-Range",
        ));
    }
    let promised = length(&head.headers)?;
    let headers = fields::from_request(&head.headers)?;
    let digest = fields::promised_digest(&head.headers)?;
    let lease = fields::lease_of_write(&head.headers)?;
    let request = fields::request_key(head)?;
    let body = upload();
    let length = promised.or_else(|| body.size_hint().exact());
    let put = Put {
        preconditions,
        lease,
        headers,
        length,
        digest,
        request,
        limit: shared.max_body,
        ..Put::new(body)
    };
    let written = shared.store.put(blob, put).await?;
    Ok(stored(&written, shared.wall()))
}

/// Answers a DELETE of a blob.
pub(super) async fn delete(
    shared: &Context,
    head: &Parts,
    blob: &BlobPath,
) -> Result<Response<BlobBody>, Problem> {
    let preconditions = conditions(shared, head)?;
    let lease = fields::lease_of_write(&head.headers)?;
    let delete = Delete {
        preconditions,
        lease,
        request: fields::request_key(head)?,
        ..Delete::default()
    };
    shared.store.delete(blob, delete).await?;
    let mut response = Response::new(BlobBody::empty());
    *response.status_mut() = StatusCode::NO_CONTENT;
    Ok(response)
}

/// Returns the conditions of a write. Refuses a query, and a write without a condition that the policy requires.
fn conditions(shared: &Context, head: &Parts) -> Result<Preconditions, Problem> {
    if head.uri.query().is_some_and(|query| !query.is_empty()) {
        // In other dialects parameters change the meaning of a write. Such a request must not replace the blob.
        return Err(Problem::bad_request(
            "a PUT or DELETE takes no parameters. Remove the query",
        ));
    }
    let preconditions = Preconditions::from_headers(&head.headers);
    if shared.required.refuses(&head.method, &preconditions) {
        return Err(Problem::precondition_required(&head.method));
    }
    Ok(preconditions)
}

/// Returns the declared length of a body (RFC 9110 §8.6).
fn length(headers: &HeaderMap) -> Result<Option<u64>, Problem> {
    let mut lines = headers.get_all(CONTENT_LENGTH).iter();
    let Some(line) = lines.next() else {
        return Ok(None);
    };
    if lines.next().is_some() {
        return Err(fields::repeated("content-length"));
    }
    let digits = line
        .to_str()
        .ok()
        .filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
    let length = digits.and_then(|digits| digits.parse().ok());
    length
        .map(Some)
        .ok_or_else(|| Problem::bad_request("content-length is not a number of bytes"))
}

/// Returns the response to a PUT that took effect.
fn stored(written: &Written, now: Timestamp) -> Response<BlobBody> {
    let mut response = Response::new(BlobBody::empty());
    *response.status_mut() = if written.created {
        StatusCode::CREATED
    } else {
        StatusCode::OK
    };
    let headers = response.headers_mut();
    headers.extend(written.tag.as_ref().map(|tag| (ETAG, tag.to_header())));
    headers.extend(
        written
            .hash
            .and_then(|hash| hash.repr_digest())
            .map(|digest| (REPR_DIGEST, digest)),
    );
    if written.last_modified.has_come(now) {
        headers.insert(LAST_MODIFIED, written.last_modified.to_header());
    }
    response
}
