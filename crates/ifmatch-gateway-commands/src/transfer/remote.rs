//! A running gateway as clients see it: listings, heads, bodies and conditional writes in the plain dialect.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_LENGTH, ETAG, IF_MATCH, IF_NONE_MATCH, RETRY_AFTER};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use ifmatch_blob::name::{BlobPath, ContainerName};
use ifmatch_client::Cause;
use ifmatch_core::EntityTag;
use ifmatch_core::digest::{ContentHash, Hasher};
use ifmatch_gateway_config::error::Error;
use reqwest::{Client, RequestBuilder, Response};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::time::{sleep, timeout};
use url::Url;

use super::location::Location;
use super::location::Upload;
use super::{Fault, Progress};
use crate::http_client::{Connection, not_a_gateway, origin, rejected, unreachable};

/// Maximum time for the head of a response, or for the next part of its body.
const TIMEOUT: Duration = Duration::from_mins(1);
/// Number of attempts for a request.
const ATTEMPTS: u32 = 6;
/// Half of the pause before the second attempt. The pause doubles with each further one.
const DELAY: Duration = Duration::from_millis(250);
/// Maximum delay that a server may ask for.
const MAX_DELAY: Duration = Duration::from_secs(10);

const REPR_DIGEST: HeaderName = HeaderName::from_static("repr-digest");
/// The fields that a write must repeat, since it replaces them with the bytes.
const KEPT: [HeaderName; 5] = [
    http::header::CONTENT_TYPE,
    http::header::CONTENT_ENCODING,
    http::header::CONTENT_LANGUAGE,
    http::header::CONTENT_DISPOSITION,
    http::header::CACHE_CONTROL,
];
/// Prefix of the user's own fields.
pub(super) const METADATA: &str = "x-meta-";

/// A connection to a gateway.
pub(crate) struct Remote {
    http: Client,
    server: Url,
    /// `true` once the server has answered. It may then be back soon if it can't be reached.
    has_answered: AtomicBool,
}

/// An entry of a listing.
#[derive(Deserialize)]
pub(crate) struct Entry {
    /// The name.
    pub(crate) name: String,
    /// Length in bytes.
    #[serde(default)]
    pub(crate) size: u64,
}

/// The state of a blob.
pub(crate) struct Head {
    /// Length in bytes.
    pub(crate) length: Option<u64>,
    /// The SHA-256 hash of the bytes, if the gateway knows it.
    pub(crate) hash: Option<ContentHash>,
    tag: Option<EntityTag>,
    kept: HeaderMap,
}

/// The attempts of a request.
#[derive(Default)]
pub(super) struct Attempts(u32);

/// The version that a write replaces.
pub(crate) enum Replaces<'a> {
    Nothing,
    Version(&'a Head),
}

/// The result of a write.
pub(crate) enum Put {
    Done,
    /// The condition wasn't met, for this reason.
    Refused(String),
}

/// A body that is being read.
pub(crate) struct Download {
    /// The state of the blob that is read.
    pub(crate) head: Head,
    response: Response,
}

#[derive(Deserialize)]
struct Page {
    #[serde(alias = "containers")]
    blobs: VecDeque<Entry>,
    next: Option<String>,
}

impl Remote {
    /// Creates a client of the gateway at a location.
    pub(crate) fn new(location: &Location, connection: &Connection) -> Result<Self, Error> {
        Ok(Self {
            http: connection.client(&location.server, None)?,
            server: location.server.clone(),
            has_answered: AtomicBool::new(false),
        })
    }

    /// Returns all containers.
    pub(crate) async fn containers(&self) -> Result<Vec<ContainerName>, Error> {
        let entries = self.pages("/", "").await?.unwrap_or_default();
        entries.into_iter().map(|entry| ContainerName::new(&entry.name).map_err(|_| self.not_ours())).collect()
    }

    /// Returns all blobs of a container with this prefix, or `None` if there is no such container.
    pub(crate) async fn list(&self, container: &ContainerName, prefix: &str) -> Result<Option<Vec<Entry>>, Error> {
        self.pages(&format!("/{container}"), prefix).await
    }

    async fn pages(&self, path: &str, prefix: &str) -> Result<Option<Vec<Entry>>, Error> {
        let mut url = self.server.clone();
        url.set_path(path);
        let (mut entries, mut after) = (Vec::new(), None::<String>);
        loop {
            let mut page = url.clone();
            page.query_pairs_mut().append_pair("prefix", prefix);
            page.query_pairs_mut().extend_pairs(after.iter().map(|after| ("after", after)));
            let found: Option<Page> = self.json(page).await.map_err(|fault| Error::runtime(fault.to_string()))?;
            let Some(Page { blobs, next }) = found else { return Ok(None) };
            entries.extend(blobs);
            match next {
                None => return Ok(Some(entries)),
                next if next == after => return Err(self.not_ours()),
                next => after = next,
            }
        }
    }

    async fn json<T: DeserializeOwned>(&self, url: Url) -> Result<Option<T>, Fault> {
        let get = async || Ok(self.http.get(url.clone()).header(ACCEPT, "application/json"));
        let response = self.send(get, Some(TIMEOUT)).await?;
        match response.status() {
            StatusCode::NOT_FOUND => Ok(None),
            StatusCode::OK => {
                let text = timeout(TIMEOUT, response.bytes()).await.map_err(|_| self.slow())?;
                let text = text.map_err(|error| self.broken(&error))?;
                serde_json::from_slice(&text).map(Some).map_err(|_| Fault::last(self.not_ours().to_string()))
            }
            _ => Err(self.refused(response).await),
        }
    }

    /// Returns the state of a blob, or `None` if there is none.
    pub(crate) async fn head(&self, blob: &BlobPath) -> Result<Option<Head>, Fault> {
        let response = self.send(async || Ok(self.http.head(self.url(blob))), Some(TIMEOUT)).await?;
        match response.status() {
            StatusCode::OK => Ok(Some(Head::of(response.headers()))),
            StatusCode::NOT_FOUND => Ok(None),
            _ => Err(self.refused(response).await),
        }
    }

    /// Starts to read a blob. Returns `None` if there is none.
    pub(crate) async fn get(&self, blob: &BlobPath) -> Result<Option<Download>, Fault> {
        let response = self.send(async || Ok(self.http.get(self.url(blob))), Some(TIMEOUT)).await?;
        match response.status() {
            StatusCode::OK => Ok(Some(Download { head: Head::of(response.headers()), response })),
            StatusCode::NOT_FOUND => Ok(None),
            StatusCode::INTERNAL_SERVER_ERROR => Err(Fault::damage(self.refused(response).await.to_string())),
            _ => Err(self.refused(response).await),
        }
    }

    /// Reads a blob, and returns its state and the hash of the bytes that have arrived. Returns `None` if there is none.
    pub(crate) async fn hash(
        &self,
        blob: &BlobPath,
        progress: &Progress,
    ) -> Result<Option<(Head, ContentHash)>, Fault> {
        let mut attempts = Attempts::default();
        loop {
            let Some(mut download) = self.get(blob).await? else { return Ok(None) };
            let mut hasher = Hasher::default();
            let end = loop {
                match download.next().await {
                    Ok(Some(part)) => {
                        hasher.update(&part);
                        progress.add_bytes(part.len() as u64);
                        progress.pace().await;
                    }
                    end => break end,
                }
            };
            match (end, attempts.again()) {
                (Ok(_), _) => return Ok(Some((download.head, hasher.finish()))),
                (Err(fault), None) => return Err(fault),
                (Err(_), Some(_)) => {}
            }
        }
    }

    /// Writes a blob if it hasn't changed.
    pub(super) async fn put(&self, blob: &BlobPath, file: &Upload, over: &Replaces<'_>) -> Result<Put, Fault> {
        let mut fields = HeaderMap::new();
        match over {
            Replaces::Nothing => drop(fields.insert(IF_NONE_MATCH, HeaderValue::from_static("*"))),
            Replaces::Version(Head { tag: Some(tag), kept, .. }) if !tag.is_weak() => {
                fields.extend(kept.clone());
                fields.insert(IF_MATCH, tag.to_header());
            }
            Replaces::Version(_) => return Ok(Put::Refused("no strong ETag".to_owned())),
        }
        for (name, value) in &file.fields {
            fields.insert(name, value.clone());
        }
        fields.extend(file.hash.repr_digest().map(|digest| (REPR_DIGEST, digest)));
        fields.insert(CONTENT_LENGTH, file.length.into());
        let put = async || Ok(self.http.put(self.url(blob)).headers(fields.clone()).body(file.body().await?));
        // An upload takes as long as it takes. The server ends those that make no progress.
        let response = self.send(put, None).await?;
        match response.status() {
            status if status.is_success() => Ok(Put::Done),
            StatusCode::PRECONDITION_FAILED | StatusCode::CONFLICT => Ok(Put::Refused(detail(response).await)),
            _ => Err(self.refused(response).await),
        }
    }

    fn url(&self, blob: &BlobPath) -> Url {
        let mut url = self.server.clone();
        url.set_path(&blob.to_string());
        url
    }

    /// Sends a request, and sends it again after a failure that may pass.
    async fn send(
        &self,
        request: impl AsyncFn() -> Result<RequestBuilder, Fault>,
        limit: Option<Duration>,
    ) -> Result<Response, Fault> {
        let mut attempts = Attempts::default();
        loop {
            let request = request().await?;
            let response = match limit {
                Some(limit) => timeout(limit, request.send()).await.map_err(|_| self.slow()),
                None => Ok(request.send().await),
            };
            let response = response.and_then(|sent| sent.map_err(|error| self.broken(&error)));
            let pause = attempts.again().and_then(|pause| match &response {
                Ok(response) => requested_delay(response),
                Err(fault) => (fault.may_pass() && self.has_answered.load(Relaxed)).then_some(pause),
            });
            self.has_answered.fetch_or(response.is_ok(), Relaxed);
            match pause {
                Some(pause) => sleep(pause).await,
                None => return response,
            }
        }
    }

    fn broken(&self, error: &reqwest::Error) -> Fault {
        if error.is_body() || error.is_decode() {
            return Fault::passing(Cause::of(error).text);
        }
        let message = unreachable(&self.server, error);
        if Cause::of(error).is_lasting { Fault::last(message) } else { Fault::unreachable(message) }
    }

    fn slow(&self) -> Fault {
        Fault::unreachable(format!("{} doesn't respond. Check the URL and the network.", origin(&self.server)))
    }

    async fn refused(&self, response: Response) -> Fault {
        let status = response.status();
        let message = rejected(&origin(&self.server), status, &detail(response).await);
        match status {
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN | StatusCode::INSUFFICIENT_STORAGE => Fault::last(message),
            _ => Fault::failed(message),
        }
    }

    fn not_ours(&self) -> Error {
        Error::runtime(not_a_gateway(&self.server))
    }
}

impl Attempts {
    /// Counts an attempt that has failed. Returns the pause before the next one, unless it was the last.
    pub(super) fn again(&mut self) -> Option<Duration> {
        self.0 += 1;
        (self.0 < ATTEMPTS).then(|| DELAY * (1 << self.0))
    }
}

impl Head {
    fn of(headers: &HeaderMap) -> Self {
        let is_kept = |name: &HeaderName| KEPT.contains(name) || name.as_str().starts_with(METADATA);
        let kept = headers.iter().filter(|(name, _)| is_kept(name));
        Self {
            length: headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok()),
            hash: ContentHash::from_headers(headers, REPR_DIGEST).ok().flatten(),
            tag: headers.get(ETAG).and_then(|tag| EntityTag::from_header(tag).ok()),
            kept: kept.map(|(name, value)| (name.clone(), value.clone())).collect(),
        }
    }
}

impl Download {
    /// Returns the next part of the body.
    pub(crate) async fn next(&mut self) -> Result<Option<Bytes>, Fault> {
        match timeout(TIMEOUT, self.response.chunk()).await {
            Ok(Ok(chunk)) => Ok(chunk),
            Ok(Err(error)) => Err(Fault::passing(format!("the body ended early: {}", Cause::of(&error).text))),
            Err(_) => Err(Fault::passing("the body stalled")),
        }
    }
}

/// Returns the delay after which a server asks for the request again.
fn requested_delay(response: &Response) -> Option<Duration> {
    let status = response.status();
    let may_pass = status.is_server_error()
        || matches!(status, StatusCode::CONFLICT | StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_MANY_REQUESTS);
    let seconds = response.headers().get(RETRY_AFTER).filter(|_| may_pass)?.to_str().ok()?.parse().ok()?;
    Some(Duration::from_secs(seconds).clamp(DELAY, MAX_DELAY))
}

/// Returns the explanation in an error response.
async fn detail(response: Response) -> String {
    let body = timeout(TIMEOUT, response.bytes()).await.ok().and_then(Result::ok).unwrap_or_default();
    let problem: Value = serde_json::from_slice(&body).unwrap_or_default();
    problem["detail"].as_str().or_else(|| problem["title"].as_str()).unwrap_or_default().to_owned()
}
