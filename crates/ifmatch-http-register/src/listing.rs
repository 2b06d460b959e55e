//! Scans, by the listings of the gateway's plain dialect.

use http::StatusCode;
use ifmatch_core::record::Record;
use ifmatch_register::{Key, RegisterError, RegisterErrorKind, Scan, object};
use serde::Deserialize;

use crate::exchange::{self, Transport, exchange};
use crate::{Address, HttpRegister};

/// A page of names.
#[derive(Deserialize)]
struct Page {
    blobs: Vec<Entry>,
    next: Option<String>,
}

/// An object in a page.
#[derive(Deserialize)]
struct Entry {
    name: String,
}

/// Reads the names of all records, then the records of a page.
pub(crate) async fn scan<T: Transport>(
    register: &HttpRegister<T>,
    scan: &Scan<'_>,
) -> Result<Vec<(Key, Record)>, RegisterError> {
    object::page(register, keys(register).await?, scan).await
}

/// Returns the keys of all records. A name that doesn't contain all of its key needs a GET of the record.
async fn keys<T: Transport>(register: &HttpRegister<T>) -> Result<Vec<Key>, RegisterError> {
    let (mut keys, mut after) = (Vec::new(), None);
    loop {
        let page = page(&register.transport, &register.address, after.as_deref()).await?;
        let (_, folder) = register.address.container();
        let names = page
            .blobs
            .iter()
            .filter_map(|entry| entry.name.strip_prefix(folder));
        for name in names.filter(|name| name.starts_with('r') && !name.contains('/')) {
            match object::key(name) {
                Some(key) => keys.push(key),
                None => keys.extend(register.get(name).await?.map(|(key, _)| key)),
            }
        }
        match page.next {
            None => return Ok(keys),
            next if next == after => {
                return Err(RegisterError::new(
                    RegisterErrorKind::Unavailable,
                    "the server's listing repeats a page",
                ));
            }
            next => after = next,
        }
    }
}

/// Returns a page of names. The container exists, since [`open`](HttpRegister::open) writes its probe object there: a server
/// that can't find it has no listings, or has lost the records.
async fn page<T: Transport>(
    transport: &T,
    address: &Address,
    after: Option<&str>,
) -> Result<Page, RegisterError> {
    let unavailable = |error: Box<dyn std::error::Error + Send + Sync>| {
        RegisterError::new(
            RegisterErrorKind::Unavailable,
            format!("the server's listing can't be used: {error}"),
        )
    };
    let uri = address
        .listing(after)
        .map_err(|error| unavailable(error.into()))?;
    let answer = exchange(
        transport,
        exchange::read(uri, address.authorization()),
        RegisterErrorKind::Unavailable,
    )
    .await?;
    match answer.status {
        StatusCode::OK => {
            serde_json::from_slice(&answer.body).map_err(|error| unavailable(error.into()))
        }
        _ => Err(answer.error(
            RegisterErrorKind::Unavailable,
            "a listing, which only an ifmatch gateway has,",
        )),
    }
}
