//! A table service whose requests are signed, and answers as a client reads them.

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use hmac::{Hmac, KeyInit, Mac};
use http::{HeaderMap, Method, Request, StatusCode};
use http_body_util::{BodyExt, Full};
use ifmatch_azure::accounts::{Account, Accounts};
use ifmatch_azure_tables::TableService;
use ifmatch_blob::BlobStore;
use ifmatch_blob_embedded::EmbeddedStore;
use ifmatch_core::date::HttpDate;
use ifmatch_register::{Driver, MemoryRegister};
use ifmatch_runtime::Clock;
use serde_json::{Value, json};
use sha2::Sha256;
use tempfile::TempDir;
use tower::ServiceExt;

pub(crate) use ifmatch_blob::test_util::ManualClock;

pub(crate) const ACCOUNT: &str = "photos";
pub(crate) const KEY: &str = "c2VjcmV0";
/// An entity that most tests use.
pub(crate) const ENTITY: &str = "/tab(PartitionKey='p',RowKey='r')";

pub(crate) type Store = EmbeddedStore<Arc<MemoryRegister>, ManualClock>;

/// A table service, and the account that signs requests to it.
#[derive(Clone, Debug)]
pub(crate) struct Client {
    pub(crate) service: TableService,
    pub(crate) clock: ManualClock,
    pub(crate) account: &'static str,
    /// Where the store has its files: it stays as long as anyone uses it.
    #[expect(dead_code, reason = "it is only held")]
    pub(crate) folder: Option<Arc<TempDir>>,
}

/// A service over a store in a temporary folder, whose index is in memory, with a table `tab`.
pub(crate) struct Fixture {
    pub(crate) store: Store,
    pub(crate) clock: ManualClock,
    pub(crate) client: Client,
}

pub(crate) async fn fixture() -> Fixture {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let clock = ManualClock::default();
    let driver = Driver::with_clock(Arc::new(MemoryRegister::unbounded()), clock.clone());
    let store = EmbeddedStore::with_driver(folder.path(), driver).await.expect("an empty folder opens");
    let client = Client { folder: Some(Arc::new(folder)), ..Client::over(store.clone(), &clock) };
    client.create("tab").await;
    Fixture { store, clock, client }
}

impl Client {
    pub(crate) fn over(store: impl BlobStore, clock: &ManualClock) -> Self {
        let accounts = ["photos", "reports"].map(|name| Account::new(name, KEY).expect("valid"));
        let accounts = Accounts::new(accounts).expect("two names");
        let service = TableService::with_clock(Arc::new(store), clock.clone()).accounts(accounts);
        Self { service, clock: clock.clone(), account: ACCOUNT, folder: None }
    }

    /// Sends a signed request; the address begins after the account.
    pub(crate) async fn send(&self, method: &str, address: &str, fields: &[(&str, &str)], body: &str) -> Answer {
        let date = HttpDate::from_unix(i64::try_from(self.clock.now().micros() / 1_000_000).expect("soon"));
        let date = date.to_header().to_str().expect("ASCII").to_owned();
        let (path, query) = address.split_once('?').unwrap_or((address, ""));
        let comp = query.split('&').find_map(|parameter| parameter.strip_prefix("comp="));
        let comp = comp.map_or(String::new(), |comp| format!("?comp={comp}"));
        let path = format!("/{}{path}{comp}", self.account);
        let signed =
            format!("SharedKeyLite {}:{}", self.account, signature(&format!("{date}\n/{}{path}", self.account)));
        let mut request = Request::builder().method(method).uri(format!("/{}{address}", self.account));
        request = request.header("host", "127.0.0.1:10002").header("x-ms-date", date).header("authorization", signed);
        for (name, value) in fields {
            request = request.header(*name, *value);
        }
        self.send_as_is(request.body(Full::new(Bytes::from(body.to_owned()))).expect("a valid request")).await
    }

    pub(crate) async fn send_as_is(&self, request: Request<Full<Bytes>>) -> Answer {
        let (head, body) = self.service.clone().oneshot(request).await.expect("infallible").into_parts();
        let body = body.collect().await.expect("a whole body").to_bytes();
        let answer = Answer { status: head.status, headers: head.headers, body };
        assert!(answer.status != StatusCode::NO_CONTENT || answer.body.is_empty(), "{answer:?}");
        answer
    }

    pub(crate) async fn create(&self, table: &str) {
        let created = self.send("POST", "/Tables", &[], &json!({ "TableName": table }).to_string()).await;
        assert_eq!(created.status, StatusCode::CREATED, "{created:?}");
    }

    pub(crate) async fn get(&self, address: &str) -> Answer {
        self.send("GET", address, &[], "").await
    }

    /// Inserts `p`, `r` with these properties into `tab`.
    pub(crate) async fn insert(&self, properties: Value) -> Answer {
        self.insert_as("p", "r", properties).await
    }

    pub(crate) async fn insert_as(&self, partition: &str, row: &str, mut properties: Value) -> Answer {
        properties["PartitionKey"] = partition.into();
        properties["RowKey"] = row.into();
        self.send("POST", "/tab", &[("prefer", "return-no-content")], &properties.to_string()).await
    }

    /// Replaces [`ENTITY`], or merges into it.
    pub(crate) async fn write(&self, method: &str, if_match: Option<&str>, properties: Value) -> Answer {
        let fields: Vec<_> = if_match.map(|tag| ("if-match", tag)).into_iter().collect();
        self.send(method, ENTITY, &fields, &properties.to_string()).await
    }

    pub(crate) async fn delete(&self, if_match: &str) -> Answer {
        self.send("DELETE", ENTITY, &[("if-match", if_match)], "").await
    }

    /// What is in [`ENTITY`] beside keys and time; null if there is none.
    pub(crate) async fn properties(&self) -> Value {
        let answer = self.send("GET", ENTITY, &[("accept", "application/json;odata=nometadata")], "").await;
        if answer.status == StatusCode::NOT_FOUND {
            return Value::Null;
        }
        let mut json = answer.json();
        for name in ["PartitionKey", "RowKey", "Timestamp"] {
            json.as_object_mut().expect("an object").remove(name);
        }
        json
    }
}

/// The signature of a text with [`KEY`].
pub(crate) fn signature(text: &str) -> String {
    let mut mac = Hmac::<Sha256>::new_from_slice(b"secret").expect("any length");
    mac.update(text.as_bytes());
    STANDARD.encode(mac.finalize().into_bytes())
}

/// A whole response.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Answer {
    pub(crate) fn field(&self, name: &str) -> &str {
        let value = self.headers.get(name).unwrap_or_else(|| panic!("no {name} in {self:?}"));
        value.to_str().expect("visible ASCII")
    }

    pub(crate) fn tag(&self) -> String {
        self.field("etag").to_owned()
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).expect("JSON")
    }

    /// The status and the code of an error, which field and body must agree on.
    pub(crate) fn error(&self) -> (u16, String) {
        let json = self.json();
        let code = json["odata.error"]["code"].as_str().expect("a code");
        assert_eq!(self.field("x-ms-error-code"), code);
        assert!(json["odata.error"]["message"]["value"].is_string(), "{json}");
        (self.status.as_u16(), code.to_owned())
    }

    #[track_caller]
    pub(crate) fn refused(&self, status: u16, code: &str) {
        assert_eq!(self.error(), (status, code.to_owned()));
    }

    #[track_caller]
    pub(crate) fn is(&self, status: u16) -> &Self {
        assert_eq!(self.status.as_u16(), status, "{self:?}");
        self
    }
}

/// Sends a request without any signature.
pub(crate) fn unsigned(path: &str) -> Request<Full<Bytes>> {
    Request::builder().method(Method::GET).uri(path).body(Full::default()).expect("a valid request")
}
