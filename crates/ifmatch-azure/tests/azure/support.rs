//! A store in a temporary folder, a manual clock, and a client that signs its requests.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::{Method, Request, StatusCode};
use http_body_util::Full;
use ifmatch_azure::AzureDialect;
use ifmatch_blob::BlobService;
use ifmatch_blob::accounts::{Account, Accounts};
use ifmatch_blob::store::BlobStore;
use ifmatch_blob_indexed::IndexedStore;
use ifmatch_blob_objects::{BackingStore, ObjectBlobs};
use ifmatch_core::date::HttpDate;
use ifmatch_register::{Driver, MemoryRegister};
use ifmatch_runtime::Clock;
use tempfile::TempDir;
use tower::ServiceExt;

use crate::signer::{Form, Signer};

pub(crate) use crate::answer::Answer;
pub(crate) use ifmatch_blob::test_util::ManualClock;

pub(crate) type Store = IndexedStore;
pub(crate) type Service = BlobService;

/// The first key of the account `photos`, and the key of `reports`.
pub(crate) const KEY: &[u8] = b"photos' key";
pub(crate) const OTHER_KEY: &[u8] = b"reports' key";

/// The accounts `photos`, the default one, and `reports`.
pub(crate) fn accounts() -> Accounts {
    let account = |name, key| Account::new(name, &STANDARD.encode(key)).expect("a valid account");
    let photos = account("photos", KEY)
        .and_key(&STANDARD.encode("photos' second key"))
        .expect("a valid key");
    Accounts::new([photos, account("reports", OTHER_KEY)]).expect("two names")
}

pub(crate) struct Fixture {
    pub(crate) store: Store,
    pub(crate) clock: ManualClock,
    pub(crate) client: Client,
}

/// Creates a service with an empty container `box` in the account `photos`.
pub(crate) async fn fixture() -> Fixture {
    let folder = Arc::new(tempfile::tempdir().expect("a temporary folder"));
    let clock = ManualClock::default().with_timers();
    let driver = Driver::with_clock(Arc::new(MemoryRegister::unbounded()), clock.clone());
    let store = IndexedStore::with_driver(folder.path(), driver)
        .await
        .expect("an empty folder opens");
    let service = BlobService::with_clock(Arc::new(store.clone()), clock.clone())
        .dialect(AzureDialect::new(accounts()))
        .max_body(1 << 20);
    let client = Client {
        service,
        clock: clock.clone(),
        account: "photos",
        key: KEY,
        _folder: folder,
    };
    client
        .put("/box?restype=container", &[], "")
        .await
        .expect(201);
    Fixture {
        store,
        clock,
        client,
    }
}

/// Returns a client of an object store at this URL, with an empty container `box`.
pub(crate) async fn over_objects(own: &Client, url: &str) -> Client {
    let backing = BackingStore::from_url(url, []).expect("a valid URL");
    let objects = ObjectBlobs::open(backing, Arc::new(MemoryRegister::unbounded()))
        .await
        .expect("a usable store");
    let client = own.over(objects);
    client
        .put("/box?restype=container", &[], "")
        .await
        .expect(201);
    client
}

/// A client that signs requests for an account.
#[derive(Clone)]
pub(crate) struct Client {
    pub(crate) service: Service,
    pub(crate) clock: ManualClock,
    pub(crate) account: &'static str,
    pub(crate) key: &'static [u8],
    /// Removed with the last client.
    pub(crate) _folder: Arc<TempDir>,
}

impl Client {
    /// Returns a client of a service over another store.
    pub(crate) fn over(&self, store: impl BlobStore) -> Self {
        let service = BlobService::with_clock(Arc::new(store), self.clock.clone())
            .dialect(AzureDialect::new(accounts()));
        Self {
            service,
            ..self.clone()
        }
    }

    pub(crate) async fn send(
        &self,
        method: Method,
        target: &str,
        fields: &[(&str, &str)],
        body: impl Into<Bytes>,
    ) -> Answer {
        let request = self.signed(method, target, fields, body.into(), Duration::ZERO);
        send(&self.service, request).await
    }

    pub(crate) async fn get(&self, target: &str) -> Answer {
        self.send(Method::GET, target, &[], "").await
    }

    pub(crate) async fn put(
        &self,
        target: &str,
        fields: &[(&str, &str)],
        body: impl Into<Bytes>,
    ) -> Answer {
        self.send(Method::PUT, target, fields, body).await
    }

    pub(crate) async fn delete(&self, target: &str, fields: &[(&str, &str)]) -> Answer {
        self.send(Method::DELETE, target, fields, "").await
    }

    /// Writes a whole blob.
    pub(crate) async fn upload(
        &self,
        target: &str,
        body: impl Into<Bytes>,
        fields: &[(&str, &str)],
    ) -> Answer {
        self.put(
            target,
            &[&[("x-ms-blob-type", "BlockBlob")], fields].concat(),
            body,
        )
        .await
    }

    /// Returns a signed request, dated `later` than now.
    pub(crate) fn signed(
        &self,
        method: Method,
        target: &str,
        fields: &[(&str, &str)],
        body: Bytes,
        later: Duration,
    ) -> Request<Full<Bytes>> {
        let seconds = (self.clock.now().micros() / 1_000_000 + later.as_secs()).cast_signed();
        let date = HttpDate::from_unix(seconds).to_string();
        let length = body.len().to_string();
        let own = [
            ("x-ms-version", "2026-02-06"),
            ("x-ms-date", date.as_str()),
            ("content-length", length.as_str()),
        ];
        let own = own
            .into_iter()
            .filter(|(name, _)| fields.iter().all(|(other, _)| other != name));
        let uri = format!("/{}{target}", self.account);
        let mut request = Request::builder().method(method).uri(&uri);
        for (name, value) in own.chain(fields.iter().copied()) {
            request = request.header(name, value);
        }
        let mut request = request.body(Full::new(body)).expect("a valid request");
        Signer::new(self.account, &STANDARD.encode(self.key)).sign(Form::Blob, &mut request);
        request
    }
}

impl Answer {
    /// Checks for an error with this status and code.
    #[track_caller]
    pub(crate) fn refused(&self, status: u16, code: &str) {
        assert_eq!(
            (self.status.as_u16(), self.code()),
            (status, code),
            "{self:?}"
        );
    }

    pub(crate) fn code(&self) -> &str {
        self.headers
            .get("x-ms-error-code")
            .map_or("", |code| code.to_str().expect("ASCII"))
    }

    /// Returns the texts of all elements with this name.
    pub(crate) fn all(&self, name: &str) -> Vec<&str> {
        let (open, close) = (format!("<{name}>"), format!("</{name}>"));
        let parts = self.text().split(&open).skip(1);
        parts
            .map(|part| part.split_once(&close).map_or("", |(text, _)| text))
            .collect()
    }
}

/// Sends a request and reads the response. Checks what holds for every response.
pub(crate) async fn send(service: &Service, request: Request<Full<Bytes>>) -> Answer {
    let method = request.method().clone();
    let client_id = request.headers().get("x-ms-client-request-id").cloned();
    let response = service.clone().oneshot(request).await.expect("infallible");
    let answer = Answer::read(response).await.expect("a whole body");
    assert_eq!(answer.header("x-ms-request-id").len(), 36);
    assert_eq!(
        answer.headers.get("x-ms-client-request-id"),
        client_id.as_ref()
    );
    let bodiless = method == Method::HEAD || answer.status == StatusCode::NOT_MODIFIED;
    assert!(
        !bodiless || answer.body.is_empty(),
        "a body in the response to {method}: {answer:?}"
    );
    if let (false, Some(length)) = (bodiless, answer.headers.get("content-length")) {
        assert_eq!(
            length.to_str().expect("digits"),
            answer.body.len().to_string()
        );
    }
    if answer.status.is_client_error() || answer.status.is_server_error() {
        let media_type = answer
            .headers
            .get("content-type")
            .map(|value| value.to_str().expect("ASCII"));
        assert_eq!(
            media_type,
            (!bodiless).then_some("application/xml"),
            "{answer:?}"
        );
        assert!(
            bodiless || answer.all("Code") == [answer.code()],
            "{answer:?}"
        );
    }
    answer
}
