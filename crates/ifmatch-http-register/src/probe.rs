//! Tests that a server honours conditions. Some accept a condition and ignore it.

use futures_util::future::try_join3;
use http::{HeaderValue, StatusCode};
use ifmatch_register::{ConnectError, ConnectErrorKind, RegisterErrorKind};

use crate::address::Address;
use crate::exchange::{self, ServerResponse, Transport, When, exchange};

/// Name of the probe object. No record's name begins like this.
const NAME: &str = "probe";
/// A tag that no version has.
const NONE: &str = "\"ifmatch-has-no-such-version\"";

/// Tests the server with an object that stays there, so that only the first process writes it.
///
/// # Errors
/// Those of [`HttpRegister::open`](crate::HttpRegister::open).
pub(crate) async fn probe(
    transport: &impl Transport,
    address: &Address,
) -> Result<(), ConnectError> {
    let uri = address
        .object(NAME)
        .map_err(|error| ConnectError::new(ConnectErrorKind::Url, error.to_string()))?;
    let send = async |request, asked: &str| {
        let answered = exchange(transport, request, RegisterErrorKind::Unavailable).await;
        let answer = answered.map_err(|error| {
            unusable(address, ConnectErrorKind::Unreachable, &error.to_string())
        })?;
        match answer.status {
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => Err(unusable(
                address,
                ConnectErrorKind::Denied,
                &said(&answer, asked),
            )),
            status if status.is_server_error() => Err(unusable(
                address,
                ConnectErrorKind::Unreachable,
                &said(&answer, asked),
            )),
            _ => Ok(answer),
        }
    };
    let write = |when: &When, content: Option<&str>| {
        exchange::write(
            uri.clone(),
            address.authorization(),
            when,
            content.map(|text| text.as_bytes().to_vec()),
        )
    };
    let refused = |answer: ServerResponse, asked: &str| match answer.status {
        StatusCode::PRECONDITION_FAILED => Ok(()),
        _ => Err(unusable(
            address,
            ConnectErrorKind::Unsuitable,
            &format!("{}, not 412", said(&answer, asked)),
        )),
    };
    let creation = "PUT with If-None-Match: *";
    if send(write(&When::Absent, Some("created")), creation)
        .await?
        .status
        != StatusCode::PRECONDITION_FAILED
    {
        refused(
            send(write(&When::Absent, Some("twice")), creation).await?,
            "the second PUT with If-None-Match: *",
        )?;
    }
    let stale = When::Tagged(HeaderValue::from_static(NONE));
    let (updated, deleted, found) = try_join3(
        send(write(&stale, Some("stale")), "PUT"),
        send(write(&stale, None), "DELETE"),
        send(exchange::read(uri.clone(), address.authorization()), "GET"),
    )
    .await?;
    refused(updated, "PUT with a non-matching If-Match")?;
    refused(deleted, "DELETE with a non-matching If-Match")?;
    match found.tag() {
        Some(_) if found.status == StatusCode::OK => Ok(()),
        _ => Err(unusable(
            address,
            ConnectErrorKind::Unsuitable,
            &said(&found, "GET, without a strong ETag,"),
        )),
    }
}

/// Says what a server answered.
fn said(answer: &ServerResponse, asked: &str) -> String {
    format!("{asked} got {}", answer.status)
}

/// Returns the error for a server that can't be used, with what to do.
fn unusable(address: &Address, kind: ConnectErrorKind, why: &str) -> ConnectError {
    let advice = match kind {
        ConnectErrorKind::Denied => "check the token",
        ConnectErrorKind::Unsuitable => {
            "it can't keep records: use a server with strong tags that honours If-Match"
        }
        _ => "check that it runs, and the URL",
    };
    ConnectError::new(
        kind,
        format!("the register {address} can't be used: {why}; {advice}"),
    )
}
