//! The library over HTTP, on the gateway and on servers whose conditions or tags can't be relied on.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use http::header::{ETAG, IF_MATCH, IF_NONE_MATCH};
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use ifmatch_client::{Client, ErrorKind, Http};
use ifmatch_testbed::{Network, Proxy};
use support::{Gateway, Guarded, Server, eventually};
use tower::service_fn;

/// Far beyond the time that the updates take.
const PATIENCE: Duration = Duration::from_hours(1);

fn client(url: &str) -> Client {
    Client::http(url).unwrap().with_patience(PATIENCE)
}

#[tokio::test(flavor = "multi_thread")]
async fn of_64_tasks_with_100_updates_each_none_is_lost() {
    let gateway = Gateway::on_folder(&[]);
    // Eight documents contend. The tasks of each take turns.
    let documents: Vec<_> = (0..8)
        .map(|_| client(&gateway.url("/box")).json::<u64>("hits"))
        .collect();
    let task = |number: usize| {
        let document = documents[number % documents.len()].clone();
        tokio::spawn(async move {
            for _ in 0..100 {
                document.update(|count| *count += 1).await.unwrap();
            }
        })
    };
    for done in join_all((0..64).map(task)).await {
        done.unwrap();
    }
    assert_eq!(documents[0].get().await.unwrap().unwrap().value, 6_400);
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_lost_after_the_commit_neither_fail_nor_repeat_an_update() {
    let gateway = Gateway::on_folder(&[]);
    let proxy = Proxy::start(gateway.address()).await;
    let document = client(&format!("http://{}/box", proxy.address())).json::<u64>("hits");
    for number in 0..1_000 {
        // The closure runs after the read, so the answer of the write is lost.
        let cut = if number % 2 == 0 {
            Network::CutAfterCommit
        } else {
            Network::CutBeforeSending
        };
        document
            .update(|count| {
                proxy.set(cut);
                *count += 1;
            })
            .await
            .unwrap();
    }
    assert_eq!(document.get().await.unwrap().unwrap().value, 1_000);
}

#[tokio::test]
async fn the_gateway_itself_fences_late_writes_off() {
    let gateway = Gateway::on_folder(&[]);
    let client = client(&gateway.url("/box"));
    let lock = client.lock("lock");
    let old = lock.acquire().await.unwrap();
    let next = {
        // An operator deletes the record, and another client acquires the lock.
        let record = client
            .json::<serde_json::Value>("lock")
            .get()
            .await
            .unwrap()
            .unwrap();
        client
            .backend()
            .delete("lock", &record.version)
            .await
            .unwrap();
        client.lock("lock").acquire().await.unwrap()
    };
    assert!(next.fence() > old.fence());
    let bill = client.json::<u64>("bill");
    bill.update_fenced(&next, |sum| *sum += 1).await.unwrap();
    // Replaces the document with one that has no stamp, so only the gateway knows the larger token.
    let version = bill.get().await.unwrap().unwrap().version;
    let server = Http::new(&gateway.url("/box")).unwrap();
    let headers = HeaderMap::from_iter([(IF_MATCH, version.as_str().parse().unwrap())]);
    server
        .send(Method::PUT, "bill", headers, "5".into())
        .await
        .unwrap();
    let late = client
        .json::<u64>("bill")
        .update_fenced(&old, |sum| *sum += 100)
        .await
        .unwrap_err();
    assert_eq!(*late.kind(), ErrorKind::Lost);
    assert_eq!(bill.get().await.unwrap().unwrap().value, 5);
}

#[tokio::test]
async fn jobs_go_through_the_listing_of_the_gateway() {
    let gateway = Gateway::on_folder(&[]);
    for url in [
        gateway.url(""),
        gateway.url("/box"),
        gateway.url("/box/deep"),
    ] {
        let queue = client(&url).queue("jobs");
        assert!(queue.take(Duration::from_mins(1)).await.unwrap().is_none());
        queue.push(&"résumé").await.unwrap();
        let job = queue
            .take(Duration::from_mins(1))
            .await
            .unwrap()
            .expect("a job");
        assert_eq!(job.payload::<String>().unwrap(), "résumé");
        job.done().await.unwrap();
        assert!(queue.take(Duration::from_mins(1)).await.unwrap().is_none());
    }
}

/// Each worker takes one job and ends, as those that a timer starts: only the dates of the gateway tell that the time of the first is
/// over.
#[tokio::test]
async fn workers_that_end_at_once_recover_a_job_from_the_gateway() {
    let gateway = Gateway::on_folder(&[]);
    let worker = || client(&gateway.url("/box")).queue("jobs");
    worker().push(&"resize").await.unwrap();
    drop(
        worker()
            .take(Duration::from_secs(3))
            .await
            .unwrap()
            .expect("a job"),
    );
    let taken_again = async {
        loop {
            if let Some(job) = worker().take(Duration::from_mins(1)).await.unwrap() {
                return job;
            }
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    };
    let job = tokio::time::timeout(Duration::from_mins(2), taken_again)
        .await
        .expect("a job within two minutes");
    assert_eq!(job.attempts(), 2);
}

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
    /// Tags are weak for the first few reads, as Apache's are for the first second.
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

/// Starts a server with this flaw, and returns its documents, too.
async fn flawed(flaw: Flaw) -> (Server, Documents) {
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

fn answer(
    flaw: Flaw,
    head: &Parts,
    body: Bytes,
    documents: &mut HashMap<String, Document>,
) -> Response<Full<Bytes>> {
    let current = documents.get_mut(head.uri.path());
    let tag = current.map(|found| {
        found.reads += u32::from(head.method == Method::GET);
        found.tag(flaw)
    });
    let field = |name: HeaderName| {
        head.headers
            .get(name)
            .map(|value| value.to_str().expect("text").to_owned())
    };
    let named = field(IF_MATCH).filter(|_| flaw != Flaw::IgnoresConditions);
    let excluded = field(IF_NONE_MATCH)
        .filter(|_| flaw != Flaw::IgnoresConditions)
        .filter(|_| flaw != Flaw::IgnoresIfNoneMatch || head.method == Method::GET);
    // The comparison of If-Match is strong.
    let is_named =
        named.is_none_or(|named| tag.as_ref() == Some(&named) && !named.starts_with("W/"));
    let is_excluded = excluded
        .is_some_and(|excluded| tag.is_some() && (excluded == "*" || tag == Some(excluded)));
    let mut response = Response::new(Full::new(Bytes::new()));
    match (&head.method, documents.get(head.uri.path())) {
        (&Method::GET | &Method::DELETE, None) => *response.status_mut() = StatusCode::NOT_FOUND,
        (&Method::GET, Some(_)) if is_excluded => *response.status_mut() = StatusCode::NOT_MODIFIED,
        (&Method::GET, Some(found)) => *response.body_mut() = Full::new(found.body.clone()),
        _ if !is_named || is_excluded => *response.status_mut() = StatusCode::PRECONDITION_FAILED,
        (&Method::DELETE, _) => drop(documents.remove(head.uri.path())),
        (_, found) => {
            let version = found.map_or(0, |found| found.version) + 1;
            documents.insert(
                head.uri.path().to_owned(),
                Document {
                    body,
                    version,
                    reads: 0,
                },
            );
        }
    }
    if let Some(found) = documents.get(head.uri.path()) {
        let tag = HeaderValue::from_str(&found.tag(flaw)).expect("valid");
        response.headers_mut().insert(ETAG, tag);
    }
    response
}

fn client_of(server: &Server) -> Client {
    Client::http(&format!("http://{}/box", server.address()))
        .unwrap()
        .with_patience(Duration::from_mins(10))
}

const UNSAFE: [Flaw; 3] = [
    Flaw::IgnoresConditions,
    Flaw::IgnoresIfNoneMatch,
    Flaw::WeakTags,
];

/// Without the probe, both of two clients create the lock, or replace the same version of it.
#[tokio::test]
async fn a_lock_on_an_unsafe_server_is_refused_and_not_left_behind() {
    for flaw in UNSAFE {
        let (server, documents) = flawed(flaw).await;
        let (one, other) = (
            client_of(&server).lock("lock"),
            client_of(&server).lock("lock"),
        );
        let (one, other) = tokio::join!(one.acquire(), other.acquire());
        for refused in [one, other] {
            assert_eq!(
                *refused.expect_err("a lock on an unsafe server").kind(),
                ErrorKind::Refused,
                "{flaw:?}"
            );
        }
        assert!(documents.lock().unwrap().is_empty(), "{flaw:?}");
    }
}

#[tokio::test]
async fn a_document_on_an_unsafe_server_is_neither_changed_nor_left_behind() {
    for flaw in UNSAFE {
        let (server, documents) = flawed(flaw).await;
        let before = Bytes::from_static(b"{ \"count\": 1 }");
        let old = Document {
            body: before.clone(),
            version: 1,
            reads: 0,
        };
        documents.lock().unwrap().insert("/box/old".to_owned(), old);
        for key in ["old", "new"] {
            let document = client_of(&server).json::<serde_json::Value>(key);
            let error = document
                .update(|value| *value = 2.into())
                .await
                .expect_err("an update on an unsafe server");
            assert_eq!(*error.kind(), ErrorKind::Refused, "{flaw:?}: {error}");
        }
        let documents = documents.lock().unwrap();
        assert_eq!(
            documents
                .iter()
                .map(|(key, old)| (key.as_str(), &old.body))
                .collect::<Vec<_>>(),
            [("/box/old", &before)]
        );
    }
}

/// Two clients, one of which comes as soon as the other has the lock, while its tag is still weak.
#[tokio::test]
async fn tags_that_are_weak_at_first_are_waited_for() {
    for flaw in [Flaw::None, Flaw::WeakAtFirst] {
        let (server, documents) = flawed(flaw).await;
        let held = client_of(&server).lock("lock").acquire().await.unwrap();
        assert!(
            client_of(&server)
                .lock("lock")
                .try_acquire()
                .await
                .unwrap()
                .is_none(),
            "{flaw:?}"
        );
        held.release().await.unwrap();
        assert!(
            client_of(&server)
                .lock("lock")
                .try_acquire()
                .await
                .unwrap()
                .is_some(),
            "{flaw:?}"
        );
        let count = client_of(&server).json::<u32>("count");
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
    let (server, documents) = flawed(Flaw::SlowAnswers).await;
    let url = format!("http://{}/box/lock", server.address());
    let acquired = Arc::clone(&documents);
    let code = tokio::task::spawn_blocking(move || {
        let mut guarded = Guarded::of(Gateway::command(), &["lock", &url], "exec sleep 600");
        eventually("the acquisition", || {
            (!acquired.lock().unwrap().is_empty()).then_some(())
        });
        guarded.signal("TERM");
        guarded.code()
    });
    assert_eq!(code.await.unwrap(), Some(143));
    let documents = documents.lock().unwrap();
    let record: serde_json::Value = serde_json::from_slice(&documents["/box/lock"].body).unwrap();
    assert_eq!(record["held"], false);
}
