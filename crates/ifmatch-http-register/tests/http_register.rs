//! The register on a gateway's service in this process, whole and through transports that fail.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking"
)]

use std::error::Error;
use std::future::pending;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http::header::{ETAG, IF_MATCH};
use http::{HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use ifmatch_blob::BlobService;
use ifmatch_blob_indexed::IndexedStore;
use ifmatch_core::command::{Command, Content, Outcome, Write};
use ifmatch_core::digest::ContentHash;
use ifmatch_core::precondition::Preconditions;
use ifmatch_core::record::{Record, Revision};
use ifmatch_http_register::{Address, ConnectErrorKind, HttpRegister, Transport};
use ifmatch_register::conformance::history;
use ifmatch_register::conformance::workload::Workload;
use ifmatch_register::conformance::{self, RaceSize};
use ifmatch_register::{Driver, Key, Register, RegisterErrorKind, Scan, Swap};
use ifmatch_runtime::{Clock, SystemClock};
use tempfile::TempDir;
use tower::ServiceExt;

type BoxError = Box<dyn Error + Send + Sync>;
/// Chooses what happens to a request.
type ChooseFault = Arc<dyn Fn(&Request<Full<Bytes>>) -> Fault + Send + Sync>;

/// What happens to a request.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fault {
    Nothing,
    /// It doesn't reach the server.
    Request,
    /// The server's response is lost.
    Answer,
    /// A proxy answers with this status, after the server has.
    Replaced(u16),
    /// The server's response never comes.
    Hangs,
    /// The server's response has no tag.
    Untagged,
    /// The server doesn't see the condition.
    Unconditional,
    /// A login page answers 200 in the server's place.
    Page,
    /// The same, with the strong tag of the page.
    TaggedPage(u16),
}

/// A gateway in this process.
#[derive(Clone)]
struct Gateway {
    service: BlobService,
    fault: ChooseFault,
    requests: Arc<Mutex<Vec<Method>>>,
    _folder: Arc<TempDir>,
}

impl Gateway {
    /// Starts a gateway on an empty folder.
    async fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let store = IndexedStore::open(folder.path()).await.unwrap();
        let service = BlobService::new(Arc::new(store));
        Self {
            service,
            fault: Arc::new(|_| Fault::Nothing),
            requests: Arc::default(),
            _folder: Arc::new(folder),
        }
    }

    /// Returns the same gateway behind a fault.
    fn with(&self, fault: impl Fn(&Request<Full<Bytes>>) -> Fault + Send + Sync + 'static) -> Self {
        Self {
            fault: Arc::new(fault),
            ..self.clone()
        }
    }

    async fn open(&self) -> HttpRegister<impl Transport + use<>> {
        HttpRegister::open(self.transport(), address())
            .await
            .expect("a register")
    }

    fn transport(&self) -> impl Transport + use<> {
        let gateway = self.clone();
        tower::service_fn(move |request| {
            let gateway = gateway.clone();
            async move { gateway.answer(request).await }
        })
    }

    async fn answer(
        &self,
        mut request: Request<Full<Bytes>>,
    ) -> Result<Response<Full<Bytes>>, BoxError> {
        self.requests.lock().unwrap().push(request.method().clone());
        let failing = (self.fault)(&request);
        if failing == Fault::Request {
            return Err("refused".into());
        }
        if failing == Fault::Page {
            return Ok(Response::new(Full::new("<p>Log in to this network".into())));
        }
        if let Fault::TaggedPage(status) = failing {
            let page = Response::builder()
                .status(status)
                .header(ETAG, "\"663f3c1e-d\"");
            return Ok(page.body(Full::new("<p>Log in to this network".into()))?);
        }
        if failing == Fault::Unconditional {
            request.headers_mut().remove("if-match");
            request.headers_mut().remove("if-none-match");
        }
        let answer = self.service.clone().oneshot(request).await.unwrap();
        let (head, body) = answer.into_parts();
        let mut answer =
            Response::from_parts(head, Full::new(body.collect().await.unwrap().to_bytes()));
        match failing {
            Fault::Answer => return Err("connection closed".into()),
            Fault::Replaced(status) => {
                *answer.status_mut() = StatusCode::from_u16(status).unwrap();
            }
            Fault::Hangs => pending().await,
            Fault::Untagged => drop(answer.headers_mut().remove(ETAG)),
            _ => {}
        }
        Ok(answer)
    }

    /// Returns the methods of the requests since the last call.
    fn take_requests(&self) -> Vec<Method> {
        std::mem::take(&mut self.requests.lock().unwrap())
    }
}

fn address() -> Address {
    "http://gateway/records/of/notes".parse().unwrap()
}

fn key(text: &str) -> Key {
    Key::new(text).unwrap()
}

/// Returns the record after a write of this content.
fn written(before: &Record, content: &'static [u8]) -> Record {
    let content = Content::Hashed {
        hash: ContentHash::of(content),
        payload: content.to_vec().into(),
    };
    let write = Write::new(
        &Method::PUT,
        &Preconditions::NONE,
        content,
        ifmatch_runtime::nonce().unwrap(),
    );
    before
        .apply(&Command::Write(write), SystemClock.now())
        .next
        .expect("a write")
}

/// Returns this fault for each write, and none for reads.
fn of_writes(failing: Fault) -> impl Fn(&Request<Full<Bytes>>) -> Fault + Send + Sync {
    move |request| {
        if request.method() == Method::GET {
            Fault::Nothing
        } else {
            failing
        }
    }
}

/// Ends with races, among them clients whose history must be linearizable.
#[tokio::test(flavor = "multi_thread")]
async fn the_register_conforms_through_two_handles() {
    let gateway = Gateway::start().await;
    conformance::run_shared(async || gateway.open().await, RaceSize::new(8, 10)).await;
}

/// Of seven requests, the answers to two are lost and to two replaced by a proxy's, if they are writes, and one doesn't arrive. Each
/// client must learn what became of its swap, by loading.
#[tokio::test(flavor = "multi_thread")]
async fn lost_answers_leave_the_history_linearizable() {
    let gateway = Gateway::start().await;
    let count = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&count);
    let faulty = gateway.with(
        move |request| match counted.fetch_add(1, Ordering::SeqCst) % 7 {
            _ if request.uri().path().ends_with("/probe") => Fault::Nothing,
            0 | 3 => of_writes(Fault::Answer)(request),
            1 | 4 => of_writes(Fault::Replaced(502))(request),
            2 => Fault::Request,
            _ => Fault::Nothing,
        },
    );
    let register = Arc::new(faulty.open().await);
    let workload = Workload::new("faults", 3, 9);
    let ticks = Arc::new(AtomicUsize::new(0));
    let now = |ticks: &AtomicUsize| u64::try_from(ticks.fetch_add(1, Ordering::SeqCst)).unwrap();
    let clients: Vec<_> = (0..8)
        .map(|number| {
            let (mut client, register, ticks) = (
                workload.client(number),
                Arc::clone(&register),
                Arc::clone(&ticks),
            );
            tokio::spawn(async move {
                while client.wins() < 20 {
                    client.step(&*register, || now(&ticks)).await;
                    tokio::task::yield_now().await;
                }
                client
            })
        })
        .collect();
    let mut operations = Vec::new();
    for client in clients {
        operations.extend(client.await.unwrap().into_history());
    }
    let mut last = workload.client(8);
    last.load_all(&gateway.open().await, || now(&ticks)).await;
    operations.extend(last.into_history());
    history::check(&operations).unwrap_or_else(|violation| panic!("{violation}"));
}

#[tokio::test]
async fn each_failed_write_has_the_kind_of_error_that_its_answer_allows() {
    let gateway = Gateway::start().await;
    gateway.open().await;
    for (failing, kind, is_done) in [
        (Fault::Answer, RegisterErrorKind::Ambiguous, true),
        (Fault::Request, RegisterErrorKind::Ambiguous, false),
        (Fault::Replaced(500), RegisterErrorKind::Ambiguous, true),
        (Fault::Replaced(503), RegisterErrorKind::Ambiguous, true),
        (Fault::Replaced(202), RegisterErrorKind::Ambiguous, true),
        (Fault::Replaced(408), RegisterErrorKind::Ambiguous, true),
        (Fault::Replaced(401), RegisterErrorKind::Unavailable, true),
        (Fault::Replaced(429), RegisterErrorKind::Unavailable, true),
        (Fault::Replaced(303), RegisterErrorKind::Ambiguous, true),
        (Fault::Replaced(307), RegisterErrorKind::Unavailable, true),
        (Fault::Page, RegisterErrorKind::Ambiguous, false),
        (Fault::TaggedPage(200), RegisterErrorKind::Ambiguous, false),
        (Fault::TaggedPage(201), RegisterErrorKind::Ambiguous, false),
        (Fault::TaggedPage(204), RegisterErrorKind::Ambiguous, false),
        (Fault::Replaced(507), RegisterErrorKind::Full, true),
    ] {
        let key = key(&format!("{failing:?}"));
        // The probe is not affected: its key has another name.
        let name = ifmatch_register::object::name(&key).replace('=', "%3D");
        let register = gateway
            .with(move |request| {
                let is_ours = request.uri().path().ends_with(&name);
                if is_ours {
                    of_writes(failing)(request)
                } else {
                    Fault::Nothing
                }
            })
            .open()
            .await;
        let record = written(&Record::absent(), b"a");
        let error = register
            .compare_and_swap(&key, Revision::NONE, Some(&record))
            .await
            .unwrap_err();
        assert_eq!(error.kind(), kind, "{failing:?}: {error}");
        let found = register.load(&key).await.unwrap();
        assert_eq!(found, is_done.then_some(record), "{failing:?}");
    }
}

#[tokio::test]
async fn a_server_that_hangs_is_given_up() {
    let gateway = Gateway::start().await;
    let register = gateway.with(|request| {
        if request.uri().path().ends_with("rhang") {
            Fault::Hangs
        } else {
            Fault::Nothing
        }
    });
    let register = register.open().await;
    tokio::time::pause();
    let (key, record) = (key("hang"), written(&Record::absent(), b"a"));
    let limit = Duration::from_secs(30);
    let load = tokio::time::timeout(limit, register.load(&key))
        .await
        .expect("the load ends within 30 seconds")
        .unwrap_err();
    assert_eq!(load.kind(), RegisterErrorKind::Unavailable, "{load}");
    let swap = register.compare_and_swap(&key, Revision::NONE, Some(&record));
    let swap = tokio::time::timeout(limit, swap)
        .await
        .expect("the swap ends within 30 seconds")
        .unwrap_err();
    assert_eq!(swap.kind(), RegisterErrorKind::Ambiguous, "{swap}");
}

/// A proxy sends a PUT again, whose answer was lost, and reports the conflict with its own success.
#[tokio::test]
async fn a_conflict_with_its_own_success_is_a_success() {
    let gateway = Gateway::start().await;
    gateway.open().await;
    let resent = {
        let inner = gateway.transport();
        let again = move |request: Request<Full<Bytes>>| {
            let inner = inner.clone();
            async move {
                if request.method() == Method::PUT {
                    inner.send(request.clone()).await?;
                }
                inner
                    .send(request)
                    .await
                    .map(|answer| answer.map(Full::new))
            }
        };
        Box::pin(HttpRegister::open(tower::service_fn(again), address()))
            .await
            .unwrap()
    };
    let driver = Driver::new(resent).assume_absent();
    let content = Content::Hashed {
        hash: ContentHash::of(b"a"),
        payload: b"a".to_vec().into(),
    };
    let write = Write::new(&Method::PUT, &Preconditions::NONE, content, 7);
    let applied = driver
        .apply(&key("note"), &Command::Write(write))
        .await
        .unwrap();
    assert!(
        matches!(applied.outcome, Outcome::Written(_)),
        "{applied:?}"
    );
}

#[tokio::test]
async fn a_swap_of_a_record_just_seen_takes_one_request() {
    let gateway = Gateway::start().await;
    let (register, other) = (gateway.open().await, gateway.open().await);
    let (key, first) = (key("note"), written(&Record::absent(), b"1"));
    gateway.take_requests();
    assert_eq!(
        register
            .compare_and_swap(&key, Revision::NONE, Some(&first))
            .await
            .unwrap(),
        Swap::Done
    );
    let second = written(&first, b"2");
    assert_eq!(
        register
            .compare_and_swap(&key, first.revision(), Some(&second))
            .await
            .unwrap(),
        Swap::Done
    );
    assert_eq!(gateway.take_requests(), [Method::PUT, Method::PUT]);
    // Another process must ask for the tag.
    let third = written(&second, b"3");
    assert_eq!(
        other
            .compare_and_swap(&key, second.revision(), Some(&third))
            .await
            .unwrap(),
        Swap::Done
    );
    assert_eq!(gateway.take_requests(), [Method::GET, Method::PUT]);
    // The first one's tag is outdated, which the server notices.
    let late = written(&second, b"late");
    let swap = register
        .compare_and_swap(&key, second.revision(), Some(&late))
        .await
        .unwrap();
    assert_eq!(swap, Swap::Conflict(Some(third.clone())));
    assert_eq!(gateway.take_requests(), [Method::PUT, Method::GET]);
    assert_eq!(
        register
            .compare_and_swap(&key, third.revision(), None)
            .await
            .unwrap(),
        Swap::Done
    );
    assert_eq!(gateway.take_requests(), [Method::DELETE]);
}

/// A server that makes its tags in another way: one more request tells that the write was done.
#[tokio::test]
async fn a_put_with_a_tag_of_another_kind_is_checked() {
    let gateway = Gateway::start().await;
    let inner = gateway.clone();
    // Its tags are the gateway's, behind a word.
    let retagging = move |mut request: Request<Full<Bytes>>| {
        let gateway = inner.clone();
        async move {
            let original = |value: &HeaderValue| {
                HeaderValue::from_str(&value.to_str().unwrap().replace("v-", "")).unwrap()
            };
            if let Some(tag) = request.headers().get(IF_MATCH).map(original) {
                request.headers_mut().insert(IF_MATCH, tag);
            }
            let mut answer = gateway.answer(request).await?;
            if let Some(tag) = answer.headers_mut().get_mut(ETAG) {
                *tag =
                    HeaderValue::from_str(&tag.to_str().unwrap().replacen('"', "\"v-", 1)).unwrap();
            }
            Ok::<_, BoxError>(answer)
        }
    };
    let register = HttpRegister::open(tower::service_fn(retagging), address())
        .await
        .unwrap();
    let (key, first) = (key("note"), written(&Record::absent(), b"1"));
    gateway.take_requests();
    assert_eq!(
        register
            .compare_and_swap(&key, Revision::NONE, Some(&first))
            .await
            .unwrap(),
        Swap::Done
    );
    let second = written(&first, b"2");
    assert_eq!(
        register
            .compare_and_swap(&key, first.revision(), Some(&second))
            .await
            .unwrap(),
        Swap::Done
    );
    assert_eq!(
        gateway.take_requests(),
        [Method::PUT, Method::GET, Method::PUT, Method::GET]
    );
}

#[tokio::test]
async fn a_server_that_ignores_conditions_or_has_no_tags_is_refused() {
    let gateway = Gateway::start().await;
    for (failing, method, words) in [
        (
            Fault::Unconditional,
            Method::PUT,
            "PUT with If-None-Match: *",
        ),
        (
            Fault::Unconditional,
            Method::DELETE,
            "DELETE with a non-matching If-Match",
        ),
        (Fault::Untagged, Method::GET, "without a strong ETag"),
        (Fault::Replaced(403), Method::PUT, "check the token"),
    ] {
        let wrong = gateway.with(move |request| {
            if request.method() == method {
                failing
            } else {
                Fault::Nothing
            }
        });
        let error = HttpRegister::open(wrong.transport(), address())
            .await
            .map(drop)
            .unwrap_err();
        let expected = if failing == Fault::Replaced(403) {
            ConnectErrorKind::Denied
        } else {
            ConnectErrorKind::Unsuitable
        };
        assert_eq!(error.kind(), expected, "{error}");
        assert!(error.to_string().contains(words), "{error}");
    }
    let only_if_match = gateway.with(|request| {
        if request.headers().contains_key("if-match") && request.method() == Method::PUT {
            Fault::Unconditional
        } else {
            Fault::Nothing
        }
    });
    let error = HttpRegister::open(only_if_match.transport(), address())
        .await
        .map(drop)
        .unwrap_err();
    assert!(
        error
            .to_string()
            .contains("PUT with a non-matching If-Match"),
        "{error}"
    );
    let gone = gateway.with(|_| Fault::Request);
    let error = HttpRegister::open(gone.transport(), address())
        .await
        .map(drop)
        .unwrap_err();
    assert_eq!(error.kind(), ConnectErrorKind::Unreachable, "{error}");
}

/// The record of a process whose clock is an hour ahead: this one grants no permit, since it would break the other's.
#[tokio::test]
async fn another_process_with_a_clock_that_is_ahead_is_noticed() {
    let gateway = Gateway::start().await;
    let register = gateway.open().await;
    assert_eq!(register.engine().time, None);
    let (key, ahead) = (
        key("ahead"),
        SystemClock.now().saturating_add(Duration::from_hours(1)),
    );
    let record = Record::forgotten(Revision::new(ahead.micros()));
    register
        .compare_and_swap(&key, Revision::NONE, Some(&record))
        .await
        .unwrap();
    register.load(&key).await.unwrap();
    let time = register.engine().time.expect("the other clock is known");
    assert!(time.error() > Duration::from_mins(59), "{time:?}");
}

#[tokio::test]
async fn what_is_no_record_is_not_read_as_one() {
    let gateway = Gateway::start().await;
    let register = gateway.open().await;
    let put = Request::put("/records/of/notes/rnote")
        .body(Full::new(Bytes::from_static(b"text")))
        .unwrap();
    gateway.answer(put).await.unwrap();
    let error = register.load(&key("note")).await.unwrap_err();
    assert_eq!(error.kind(), RegisterErrorKind::Unreadable, "{error}");
}

/// Not each server that honours conditions has the gateway's listings.
#[tokio::test]
async fn a_server_without_listings_is_not_one_without_records() {
    let gateway = Gateway::start().await;
    let without = gateway.with(|request| {
        if request.uri().query().is_some() {
            Fault::Replaced(404)
        } else {
            Fault::Nothing
        }
    });
    let (register, key) = (without.open().await, key("note"));
    let first = written(&Record::absent(), b"1");
    let swap = register.compare_and_swap(&key, Revision::NONE, Some(&first));
    assert_eq!(swap.await.unwrap(), Swap::Done);
    let scan = Scan {
        prefix: "",
        after: None,
        limit: 10,
    };
    let error = register.scan(&scan).await.unwrap_err();
    assert_eq!(error.kind(), RegisterErrorKind::Unavailable, "{error}");
}

/// Some servers send a tag only on GET. And a login page's 200 doesn't mean that the PUT or DELETE reached the server.
#[tokio::test]
async fn a_put_without_a_tag_is_checked_and_a_login_page_is_no_success() {
    let gateway = Gateway::start().await;
    gateway.open().await;
    let untagged = gateway.with(of_writes(Fault::Untagged));
    let register = HttpRegister::open(untagged.transport(), address())
        .await
        .unwrap();
    let (key, first) = (key("note"), written(&Record::absent(), b"1"));
    gateway.take_requests();
    assert_eq!(
        register
            .compare_and_swap(&key, Revision::NONE, Some(&first))
            .await
            .unwrap(),
        Swap::Done
    );
    let second = written(&first, b"2");
    assert_eq!(
        register
            .compare_and_swap(&key, first.revision(), Some(&second))
            .await
            .unwrap(),
        Swap::Done
    );
    assert_eq!(
        gateway.take_requests(),
        [Method::PUT, Method::GET, Method::PUT, Method::GET]
    );
    let with_page = gateway.with(|request| {
        if request.uri().path().ends_with("rnote") {
            of_writes(Fault::Page)(request)
        } else {
            Fault::Nothing
        }
    });
    let error = with_page
        .open()
        .await
        .compare_and_swap(&key, second.revision(), None)
        .await
        .unwrap_err();
    assert_eq!(error.kind(), RegisterErrorKind::Ambiguous, "{error}");
    let other = gateway.open().await;
    assert_eq!(other.load(&key).await.unwrap().as_ref(), Some(&second));
    // Two processes delete the same version. The login page answers one; the other wins.
    let loser = with_page.open().await;
    loser.load(&key).await.unwrap();
    assert_eq!(
        other
            .compare_and_swap(&key, second.revision(), None)
            .await
            .unwrap(),
        Swap::Done
    );
    let error = loser
        .compare_and_swap(&key, second.revision(), None)
        .await
        .unwrap_err();
    assert_eq!(error.kind(), RegisterErrorKind::Ambiguous, "{error}");
}

/// A case-insensitive file server keeps both keys in one object. If one key got the other's record, a writer without a permit could
/// win.
#[tokio::test]
async fn a_key_never_gets_another_keys_record() {
    let gateway = Gateway::start().await;
    let ignoring_case = move |mut request: Request<Full<Bytes>>| {
        let gateway = gateway.clone();
        *request.uri_mut() = request.uri().to_string().to_lowercase().parse().unwrap();
        async move { gateway.answer(request).await }
    };
    let register = HttpRegister::open(tower::service_fn(ignoring_case), address())
        .await
        .unwrap();
    let record = written(&Record::absent(), b"1");
    assert_eq!(
        register
            .compare_and_swap(&key("Note"), Revision::NONE, Some(&record))
            .await
            .unwrap(),
        Swap::Done
    );
    let error = register.load(&key("note")).await.unwrap_err();
    assert_eq!(error.kind(), RegisterErrorKind::Unreadable, "{error}");
    let error = register
        .compare_and_swap(&key("note"), record.revision(), Some(&record))
        .await
        .unwrap_err();
    assert_eq!(error.kind(), RegisterErrorKind::Unreadable, "{error}");
    assert_eq!(register.load(&key("Note")).await.unwrap(), Some(record));
}
