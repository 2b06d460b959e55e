//! The register on Durable Objects over HTTP, so native tests of registers reach it. For tests only.
//!
//! | request | response |
//! |---|---|
//! | `GET /?key=K` | 200 with the record, or 404 |
//! | `PUT /?key=K&expected=N` with the next record, or without a body to remove it | 204, or 412 with the record found, if any |
//! | `GET /?prefix=P&limit=N&after=K`, the last one optional | 200 with a line for each record: key and record in base64 |
//!
//! 504 is an ambiguous swap. After any other error, nothing was changed.

use std::collections::HashMap;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use http::{Method, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use ifmatch_core::record::{Record, Revision};
use ifmatch_register::{Key, Register, RegisterError, RegisterErrorKind, Scan, Swap};
use ifmatch_worker::RecordObjects;
use worker::{Context, Env, HttpRequest, Result, Url, event};

/// The Durable Object class.
pub use ifmatch_worker::Records;

/// Status and body of a response.
type Answer = (StatusCode, Vec<u8>);

#[event(start)]
fn start() {
    ifmatch_worker::tasks::begin();
}

#[event(fetch)]
async fn fetch(request: HttpRequest, env: Env, _: Context) -> Result<Response<Full<Bytes>>> {
    let register = RecordObjects::open(&env)?;
    let query = Url::parse(&request.uri().to_string())?
        .query_pairs()
        .into_owned()
        .collect();
    let is_swap = request.method() == Method::PUT;
    let content = request.into_body().collect().await?.to_bytes();
    let called = if is_swap {
        swap(&register, &query, &content).await
    } else {
        read(&register, &query).await
    };
    let (status, body) =
        called.unwrap_or_else(|error| (status_of(&error), error.to_string().into_bytes()));
    let mut response = Response::new(Full::from(body));
    *response.status_mut() = status;
    Ok(response)
}

async fn read(
    register: &RecordObjects,
    query: &HashMap<String, String>,
) -> Result<Answer, RegisterError> {
    let Some(prefix) = query.get("prefix") else {
        let found = register.load(&key(query)?).await?;
        return Ok(found.map_or((StatusCode::NOT_FOUND, Vec::new()), |record| {
            (StatusCode::OK, record.encode())
        }));
    };
    let limit = usize::try_from(number(query, "limit")?).unwrap_or(usize::MAX);
    let page = register
        .scan(&Scan {
            prefix,
            after: query.get("after").map(String::as_str),
            limit,
        })
        .await?;
    let lines = page.iter().map(|(key, record)| {
        format!(
            "{} {}\n",
            BASE64_STANDARD.encode(key.as_str()),
            BASE64_STANDARD.encode(record.encode())
        )
    });
    Ok((StatusCode::OK, lines.collect::<String>().into_bytes()))
}

async fn swap(
    register: &RecordObjects,
    query: &HashMap<String, String>,
    content: &[u8],
) -> Result<Answer, RegisterError> {
    let next = if content.is_empty() {
        None
    } else {
        Some(Record::decode(content)?)
    };
    let expected = Revision::new(number(query, "expected")?);
    Ok(
        match register
            .compare_and_swap(&key(query)?, expected, next.as_ref())
            .await?
        {
            Swap::Done => (StatusCode::NO_CONTENT, Vec::new()),
            Swap::Conflict(found) => (
                StatusCode::PRECONDITION_FAILED,
                found.map(|record| record.encode()).unwrap_or_default(),
            ),
        },
    )
}

fn key(query: &HashMap<String, String>) -> Result<Key, RegisterError> {
    Key::new(query.get("key").map_or("", String::as_str))
        .map_err(|error| invalid(&error.to_string()))
}

fn number(query: &HashMap<String, String>, name: &str) -> Result<u64, RegisterError> {
    query
        .get(name)
        .and_then(|text| text.parse().ok())
        .ok_or_else(|| invalid(name))
}

fn invalid(parameter: &str) -> RegisterError {
    RegisterError::new(
        RegisterErrorKind::Unavailable,
        format!("an invalid request: {parameter}"),
    )
}

fn status_of(error: &RegisterError) -> StatusCode {
    match error.kind() {
        RegisterErrorKind::Ambiguous => StatusCode::GATEWAY_TIMEOUT,
        _ => StatusCode::SERVICE_UNAVAILABLE,
    }
}
