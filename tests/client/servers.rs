//! The client on servers whose conditions or tags cannot be relied on: it refuses, and leaves nothing behind.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http::header::{ETAG, IF_MATCH, IF_NONE_MATCH};
use http::request::Parts;
use http::{HeaderName, HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use ifmatch_client::{Client, ErrorKind};
use support::{Gateway, Server};
use tower::service_fn;

use crate::commands::Guarded;

/// The flaw of a server of documents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flaw {
    None,
    IgnoresConditions,
    IgnoresIfNoneMatch,
    /// All tags are weak.
    WeakTags,
    /// The answer to a write takes a while.
    SlowAnswers,
    /// Tags are weak for the first few reads, as those of Apache are for the first second.
    WeakAtFirst,
}

type Documents = Arc<Mutex<HashMap<String, Document>>>;

struct Document {
    body: Bytes,
    version: u32,
    reads: u32,
}

impl Document {
    fn tag(&self, flaw: Flaw) -> String {
        let is_weak = flaw == Flaw::WeakTags || flaw == Flaw::WeakAtFirst && self.reads < 3;
        format!("{}\"{}\"", if is_weak { "W/" } else { "" }, self.version)
    }
}

async fn serve(flaw: Flaw) -> (Server, Documents) {
    let documents = Documents::default();
    let served = Arc::clone(&documents);
    let service = service_fn(move |request: Request<Incoming>| {
        let served = Arc::clone(&served);
        async move {
            let (head, body) = request.into_parts();
            let body = body.collect().await.expect("a body").to_bytes();
            let is_slow = flaw == Flaw::SlowAnswers && head.method == Method::PUT;
            let response = answer(flaw, &head, body, &mut served.lock().expect("no panic"));
            if is_slow {
                tokio::time::sleep(Duration::from_millis(500)).await;
            }
            Ok::<_, Infallible>(response)
        }
    });
    (Server::start(service).await, documents)
}

fn answer(flaw: Flaw, head: &Parts, body: Bytes, documents: &mut HashMap<String, Document>) -> Response<Full<Bytes>> {
    let current = documents.get_mut(head.uri.path());
    let tag = current.map(|found| {
        found.reads += u32::from(head.method == Method::GET);
        found.tag(flaw)
    });
    let field = |name: HeaderName| head.headers.get(name).map(|value| value.to_str().expect("text").to_owned());
    let named = field(IF_MATCH).filter(|_| flaw != Flaw::IgnoresConditions);
    let excluded = field(IF_NONE_MATCH)
        .filter(|_| flaw != Flaw::IgnoresConditions)
        .filter(|_| flaw != Flaw::IgnoresIfNoneMatch || head.method == Method::GET);
    // The comparison of If-Match is strong.
    let is_named = named.is_none_or(|named| tag.as_ref() == Some(&named) && !named.starts_with("W/"));
    let is_excluded = excluded.is_some_and(|excluded| tag.is_some() && (excluded == "*" || tag == Some(excluded)));
    let mut response = Response::new(Full::new(Bytes::new()));
    match (&head.method, documents.get(head.uri.path())) {
        (&Method::GET | &Method::DELETE, None) => *response.status_mut() = StatusCode::NOT_FOUND,
        (&Method::GET, Some(_)) if is_excluded => *response.status_mut() = StatusCode::NOT_MODIFIED,
        (&Method::GET, Some(found)) => *response.body_mut() = Full::new(found.body.clone()),
        _ if !is_named || is_excluded => *response.status_mut() = StatusCode::PRECONDITION_FAILED,
        (&Method::DELETE, _) => drop(documents.remove(head.uri.path())),
        (_, found) => {
            let version = found.map_or(0, |found| found.version) + 1;
            documents.insert(head.uri.path().to_owned(), Document { body, version, reads: 0 });
        }
    }
    if let Some(found) = documents.get(head.uri.path()) {
        let tag = HeaderValue::from_str(&found.tag(flaw)).expect("valid");
        response.headers_mut().insert(ETAG, tag);
    }
    response
}

fn client(server: &Server) -> Client {
    Client::http(&format!("http://{}/box", server.address())).unwrap().with_patience(Duration::from_mins(10))
}

const UNSAFE: [Flaw; 3] = [Flaw::IgnoresConditions, Flaw::IgnoresIfNoneMatch, Flaw::WeakTags];

/// Without the probe, both of two clients create the lock, or replace the same version of it.
#[tokio::test]
async fn a_lock_is_refused_and_not_left_behind() {
    for flaw in UNSAFE {
        let (server, documents) = serve(flaw).await;
        let (one, other) = (client(&server).lock("lock"), client(&server).lock("lock"));
        let (one, other) = tokio::join!(one.acquire(), other.acquire());
        for refused in [one, other] {
            assert_eq!(*refused.expect_err("a lock on an unsafe server").kind(), ErrorKind::Refused, "{flaw:?}");
        }
        assert!(documents.lock().unwrap().is_empty(), "{flaw:?}");
    }
}

#[tokio::test]
async fn a_document_is_neither_changed_nor_left_behind() {
    for flaw in UNSAFE {
        let (server, documents) = serve(flaw).await;
        let before = Bytes::from_static(b"{ \"count\": 1 }");
        let old = Document { body: before.clone(), version: 1, reads: 0 };
        documents.lock().unwrap().insert("/box/old".to_owned(), old);
        for key in ["old", "new"] {
            let document = client(&server).json::<serde_json::Value>(key);
            let error = document.update(|value| *value = 2.into()).await.expect_err("an update on an unsafe server");
            assert_eq!(*error.kind(), ErrorKind::Refused, "{flaw:?}: {error}");
        }
        let documents = documents.lock().unwrap();
        assert_eq!(
            documents.iter().map(|(key, old)| (key.as_str(), &old.body)).collect::<Vec<_>>(),
            [("/box/old", &before)]
        );
    }
}

/// Two clients, one of which comes as soon as the other has the lock, while its tag is still weak.
#[tokio::test]
async fn tags_that_are_weak_at_first_are_waited_for() {
    for flaw in [Flaw::None, Flaw::WeakAtFirst] {
        let (server, documents) = serve(flaw).await;
        let held = client(&server).lock("lock").acquire().await.unwrap();
        assert!(client(&server).lock("lock").try_acquire().await.unwrap().is_none(), "{flaw:?}");
        held.release().await.unwrap();
        assert!(client(&server).lock("lock").try_acquire().await.unwrap().is_some(), "{flaw:?}");
        let count = client(&server).json::<u32>("count");
        for _ in 0..2 {
            count.update(|count| *count += 1).await.unwrap();
        }
        assert_eq!(count.get().await.unwrap().unwrap().value, 2, "{flaw:?}");
        assert_eq!(documents.lock().unwrap().len(), 2);
    }
}

/// The signal arrives while the answer to the acquisition is on its way, or later.
#[tokio::test(flavor = "multi_thread")]
async fn a_signal_during_an_acquisition_leaves_no_lock() {
    let (server, documents) = serve(Flaw::SlowAnswers).await;
    let url = format!("http://{}/box/lock", server.address());
    let acquired = Arc::clone(&documents);
    let code = tokio::task::spawn_blocking(move || {
        let mut guarded = Guarded::of(Gateway::command(), &["lock", &url], "exec sleep 600");
        while acquired.lock().unwrap().is_empty() {
            std::thread::sleep(Duration::from_millis(1));
        }
        guarded.signal("TERM");
        guarded.code()
    });
    let code = tokio::time::timeout(Duration::from_mins(2), code).await.expect("it ends within two minutes").unwrap();
    assert_eq!(code, Some(143));
    let documents = documents.lock().unwrap();
    let record: serde_json::Value = serde_json::from_slice(&documents["/box/lock"].body).unwrap();
    assert_eq!(record["held"], false);
}
