//! What instances reach by HTTP: notes on a plain server in this process, and any address on this machine.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use tokio::sync::{OwnedRwLockWriteGuard, RwLock};
use wasmtime_wasi_http::{Error, RequestOptions, WasiHttpHooks};

use crate::Body;

/// A request on its way, as wasmtime takes it.
type Outgoing = Box<dyn Future<Output = Result<(Response<Body>, Ended), Error>> + Send>;
/// The end of a request or response, with its error.
type Ended = Box<dyn Future<Output = Result<(), Error>> + Send>;

/// A plain HTTP server: GET, PUT and DELETE, without tags and conditions. It takes a moment for each write, so that writers
/// overlap.
#[derive(Clone, Debug, Default)]
pub struct Notes(Arc<StoredNotes>);

/// The state of [`Notes`].
#[derive(Debug, Default)]
struct StoredNotes {
    /// All versions of each note, the newest last. `None` is a deletion.
    versions: Mutex<HashMap<String, Vec<Option<Bytes>>>>,
    /// Each write that has arrived and isn't done has a clone.
    arrived: Arc<()>,
    /// Locked for writing while writes are held.
    gate: Arc<RwLock<()>>,
}

/// The network of instances. The authority `notes` is [`Notes`].
#[derive(Clone, Debug)]
pub struct Network {
    /// The notes.
    pub notes: Notes,
    client: Client<HttpConnector, Body>,
    /// Requests to other addresses.
    sent: Arc<AtomicUsize>,
}

impl Network {
    /// Returns the number of requests since the last time, without those to the notes: the calls of a register.
    pub fn calls(&self) -> usize {
        self.sent.swap(0, Ordering::Relaxed)
    }
}

impl Default for Network {
    fn default() -> Self {
        Self {
            notes: Notes::default(),
            client: Client::builder(TokioExecutor::new()).build_http(),
            sent: Arc::default(),
        }
    }
}

impl Notes {
    /// Returns a note.
    pub fn get(&self, path: &str) -> Option<Bytes> {
        self.versions()
            .get(path)
            .and_then(|versions| versions.last().cloned().flatten())
    }

    /// Writes a note.
    pub fn put(&self, path: &str, content: impl Into<Bytes>) {
        self.change(path, Some(content.into()));
    }

    /// Returns how often a note was written or deleted.
    pub fn writes(&self, path: &str) -> usize {
        self.versions().get(path).map_or(0, Vec::len)
    }

    /// Holds all writes that arrive until the guard is dropped.
    pub async fn hold(&self) -> OwnedRwLockWriteGuard<()> {
        Arc::clone(&self.0.gate).write_owned().await
    }

    /// Returns `true` if a write has arrived and isn't done.
    pub fn is_written_to(&self) -> bool {
        Arc::strong_count(&self.0.arrived) > 1
    }

    fn versions(&self) -> MutexGuard<'_, HashMap<String, Vec<Option<Bytes>>>> {
        self.0.versions.lock().expect("no panic while it is locked")
    }

    fn change(&self, path: &str, content: Option<Bytes>) {
        self.versions()
            .entry(path.to_owned())
            .or_default()
            .push(content);
    }

    async fn answer(&self, request: Request<Body>) -> Result<Response<Body>, Error> {
        let (head, body) = request.into_parts();
        let content = body.collect().await?.to_bytes();
        let path = head.uri.path();
        let (status, content) = match head.method {
            Method::PUT => {
                let _arrived = Arc::clone(&self.0.arrived);
                drop(self.0.gate.read().await);
                tokio::time::sleep(Duration::from_millis(1)).await;
                self.put(path, content);
                (StatusCode::NO_CONTENT, Bytes::new())
            }
            Method::DELETE if self.get(path).is_some() => {
                self.change(path, None);
                (StatusCode::NO_CONTENT, Bytes::new())
            }
            _ => self
                .get(path)
                .map_or((StatusCode::NOT_FOUND, Bytes::new()), |note| {
                    (StatusCode::OK, note)
                }),
        };
        let mut response = Response::new(
            Full::new(content)
                .map_err(|never| match never {})
                .boxed_unsync(),
        );
        *response.status_mut() = status;
        Ok(response)
    }
}

impl WasiHttpHooks for Network {
    fn send_request(
        &mut self,
        request: Request<Body>,
        _: Option<RequestOptions>,
        _: Ended,
    ) -> Outgoing {
        let (notes, client, sent) = (
            self.notes.clone(),
            self.client.clone(),
            Arc::clone(&self.sent),
        );
        Box::new(async move {
            let authority = request
                .uri()
                .authority()
                .map(ToString::to_string)
                .unwrap_or_default();
            if authority == "notes" {
                let ended: Ended = Box::new(async { Ok(()) });
                return Ok((notes.answer(request).await?, ended));
            }
            sent.fetch_add(1, Ordering::Relaxed);
            let failed = |error| Error::Connect(std::io::Error::other(error));
            let response = client.request(request).await.map_err(failed)?;
            let failed = |error| Error::Connect(std::io::Error::other(error));
            let ended: Ended = Box::new(async { Ok(()) });
            Ok((
                response.map(|body| body.map_err(failed).boxed_unsync()),
                ended,
            ))
        })
    }
}
