//! The resources of a check, and the requests for them.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::header::{DATE, ETAG, IF_MATCH, IF_NONE_MATCH, LAST_MODIFIED};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Response, StatusCode};
use ifmatch_client::Http;
use ifmatch_core::EntityTag;
use ifmatch_core::date::HttpDate;
use ifmatch_gateway_config::error::Error;
use ifmatch_runtime::nonce;
use tokio::time::{sleep, timeout};

use crate::http_client::{GIVE_TOKEN, detail, explained};

/// Time limit of a request.
pub(super) const PATIENCE: Duration = Duration::from_mins(1);
/// Maximum number of attempts of a request.
pub(super) const ATTEMPTS: usize = 3;
/// Interval between looks at a resource whose tag is still weak, or whose date is too young.
const LOOK: Duration = Duration::from_millis(200);
/// Number of these looks. Some servers call a tag weak for a second or two, since a file's date can't tell two writes of
/// the same second apart.
const LOOKS: usize = 30;

/// The folder where the check writes.
pub(super) struct CheckSite<'a> {
    server: &'a Http,
    url: &'a str,
    /// Distinguishes the resources of this check from others.
    random: u64,
    /// The names of the resources so far.
    keys: Mutex<Vec<String>>,
    /// `true` once no strong tag, or no strong date, was seen for long enough: the server has none.
    has_no: [AtomicBool; 2],
}

/// The representation of a resource.
pub(super) struct SeenResource {
    pub(super) status: StatusCode,
    pub(super) body: Bytes,
    /// The strong tag.
    pub(super) tag: Option<String>,
    pub(super) date: Option<HttpDate>,
    /// `true` if the date is more than a second in the past, by the server's clock: it is then a strong validator (RFC 9110
    /// §8.8.2.2).
    aged: bool,
}

impl<'a> CheckSite<'a> {
    /// Prepares a check below `url`, which `server` is the connection to.
    pub(super) fn new(server: &'a Http, url: &'a str) -> Result<Self, Error> {
        let random = nonce().map_err(|error| Error::runtime(error.to_string()))?;
        Ok(Self {
            server,
            url: url.split('?').next().unwrap_or_default(),
            random,
            keys: Mutex::default(),
            has_no: Default::default(),
        })
    }

    /// Returns the name of a new resource.
    pub(super) fn key(&self) -> String {
        let mut keys = self.keys.lock().unwrap_or_else(PoisonError::into_inner);
        let key = format!("ifmatch-check-{:016x}-{}", self.random, keys.len());
        keys.push(key.clone());
        key
    }

    /// Sends a request, and resends it if there is no response: a server may close the connection instead of reading the rest of
    /// a request that it rejects. Not for conditional writes: a second one would find the first one's version.
    pub(super) async fn send(
        &self,
        method: &Method,
        key: &str,
        fields: &[(HeaderName, String)],
        body: &str,
    ) -> Result<Response<Bytes>, Error> {
        for _ in 1..ATTEMPTS {
            if let Ok(response) = self.send_once(method, key, fields, body).await {
                return Ok(response);
            }
        }
        self.send_once(method, key, fields, body).await
    }

    /// Sends a request once.
    pub(super) async fn send_once(
        &self,
        method: &Method,
        key: &str,
        fields: &[(HeaderName, String)],
        body: &str,
    ) -> Result<Response<Bytes>, Error> {
        let mut headers = HeaderMap::new();
        for (name, value) in fields {
            let value =
                HeaderValue::from_str(value).map_err(|error| Error::runtime(error.to_string()))?;
            headers.append(name, value);
        }
        let sent = self.server.send(
            method.clone(),
            key,
            headers,
            Bytes::copy_from_slice(body.as_bytes()),
        );
        let late = |_| {
            Error::runtime(format!(
                "the server didn't respond to {method} within {PATIENCE:?}. Check the URL and the network."
            ))
        };
        timeout(PATIENCE, sent)
            .await
            .map_err(late)?
            .map_err(|error| Error::runtime(explained(self.url, &error.to_string())))
    }

    /// Reads a resource, which may not exist.
    pub(super) async fn get(&self, key: &str) -> Result<SeenResource, Error> {
        self.send(&Method::GET, key, &[], "")
            .await
            .map(SeenResource::of)
    }

    /// Writes a resource. Sends a condition only to a server that demands one.
    pub(super) async fn write(&self, key: &str, body: &str) -> Result<(), Error> {
        let mut response = self.send(&Method::PUT, key, &[], body).await?;
        if response.status() == StatusCode::PRECONDITION_REQUIRED {
            response = self
                .send(&Method::PUT, key, &self.current(key).await?, body)
                .await?;
        }
        let status = response.status();
        if status.is_success() {
            return Ok(());
        }
        let detail = detail(response.body());
        let separator = if detail.is_empty() { "" } else { ": " };
        Err(Error::runtime(match status {
            StatusCode::UNAUTHORIZED => {
                format!("the server rejected PUT of {key} (401). Pass a valid token {GIVE_TOKEN}.")
            }
            StatusCode::FORBIDDEN => {
                format!("the server refused PUT of {key} (403). Pass a write token {GIVE_TOKEN}.")
            }
            status => format!(
                "the server responded {status} to PUT of {key}{separator}{detail}. Use the URL of a folder or container that you can write, such as \
                 http://127.0.0.1:10000/box."
            ),
        }))
    }

    /// Waits until a resource has a strong tag, and, if `dated`, a date that is a strong validator. Gives up after a few
    /// seconds, since a server may have neither.
    pub(super) async fn settled(&self, key: &str, dated: bool) -> Result<SeenResource, Error> {
        let [no_tag, no_date] = &self.has_no;
        for _ in 0..LOOKS {
            let seen = self.get(key).await?;
            let has_tag = seen.tag.is_some() || no_tag.load(Ordering::Relaxed);
            let has_date = !dated || seen.aged || no_date.load(Ordering::Relaxed);
            if has_tag && has_date {
                return Ok(seen);
            }
            sleep(LOOK).await;
        }
        let seen = self.get(key).await?;
        no_tag.fetch_or(seen.tag.is_none(), Ordering::Relaxed);
        no_date.fetch_or(dated && !seen.aged, Ordering::Relaxed);
        Ok(seen)
    }

    /// Deletes everything that the check has written. Returns the first error, after the last deletion.
    pub(super) async fn clear(&self) -> Result<(), Error> {
        let keys = std::mem::take(&mut *self.keys.lock().unwrap_or_else(PoisonError::into_inner));
        let mut cleared = Ok(());
        for key in keys {
            cleared = cleared.and(self.delete(&key).await);
        }
        cleared
    }

    /// Deletes a resource, which may not exist. Sends a condition only to a server that demands one.
    async fn delete(&self, key: &str) -> Result<(), Error> {
        let status = self.send(&Method::DELETE, key, &[], "").await?.status();
        if status == StatusCode::PRECONDITION_REQUIRED {
            self.send(&Method::DELETE, key, &self.current(key).await?, "")
                .await?;
        }
        Ok(())
    }

    /// Returns the condition that a resource is as it is now.
    async fn current(&self, key: &str) -> Result<Vec<(HeaderName, String)>, Error> {
        Ok(vec![match self.get(key).await?.tag {
            Some(tag) => (IF_MATCH, tag),
            None => (IF_NONE_MATCH, "*".to_owned()),
        }])
    }
}

impl SeenResource {
    /// Returns the resource that a response shows.
    pub(super) fn of(response: Response<Bytes>) -> Self {
        let (head, body) = response.into_parts();
        let (date, now) = (
            HttpDate::from_headers(&head.headers, LAST_MODIFIED),
            HttpDate::from_headers(&head.headers, DATE),
        );
        let aged = date.zip(now).is_some_and(|(date, now)| date.next() < now);
        Self {
            status: head.status,
            tag: strong_tag(&head.headers),
            date,
            aged,
            body,
        }
    }

    /// Returns `true` if the resource exists.
    pub(super) fn exists(&self) -> bool {
        self.status == StatusCode::OK
    }

    /// Returns `true` if both are absent, or have the same content. The body of an error may have a number of the request.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        match (self.exists(), other.exists()) {
            (true, true) => self.body == other.body,
            (false, false) => self.status == other.status,
            _ => false,
        }
    }
}

/// Returns the tag of a response, if it is a strong one.
pub(super) fn strong_tag(headers: &HeaderMap) -> Option<String> {
    let tag = headers
        .get(ETAG)
        .and_then(|tag| EntityTag::from_header(tag).ok());
    tag.filter(|tag| !tag.is_weak()).map(|tag| tag.to_string())
}
