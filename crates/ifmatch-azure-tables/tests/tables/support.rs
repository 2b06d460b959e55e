//! A table service over a temporary folder, a manual clock, and a client that signs its requests.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use http::{Request, StatusCode};
use http_body_util::Full;
use ifmatch_azure_tables::TableService;
use ifmatch_blob::BlobStore;
use ifmatch_blob::accounts::{Account, Accounts};
use ifmatch_blob::name::ContainerName;
use ifmatch_blob::test_util::{Act, Hooked, Step};
use ifmatch_blob_indexed::IndexedStore;
use ifmatch_core::date::HttpDate;
use ifmatch_register::{Driver, MemoryRegister};
use ifmatch_runtime::Clock;
use serde_json::{Value, json};
use tempfile::TempDir;
use tower::ServiceExt;

use crate::signer::{Form, Signer};

pub(crate) use crate::answer::Answer;
pub(crate) use ifmatch_blob::test_util::ManualClock;

const ACCOUNT: &str = "photos";
const KEY: &str = "c2VjcmV0";
/// The entity used by most tests.
pub(crate) const ENTITY: &str = "/tab(PartitionKey='p',RowKey='r')";

pub(crate) type Store = IndexedStore;

/// A client that signs requests for an account.
#[derive(Clone, Debug)]
pub(crate) struct Client {
    pub(crate) service: TableService,
    pub(crate) clock: ManualClock,
    pub(crate) account: &'static str,
    /// The folder of the store, removed with the last client.
    #[expect(dead_code, reason = "held only")]
    pub(crate) folder: Option<Arc<TempDir>>,
}

/// A service with a table `tab`, over a store in a temporary folder with its index in memory.
pub(crate) struct Fixture {
    pub(crate) store: Store,
    pub(crate) clock: ManualClock,
    pub(crate) client: Client,
}

pub(crate) async fn fixture() -> Fixture {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let clock = ManualClock::default().with_timers();
    let driver = Driver::with_clock(Arc::new(MemoryRegister::unbounded()), clock.clone());
    let store = IndexedStore::with_driver(folder.path(), driver)
        .await
        .expect("an empty folder opens");
    let client = Client {
        folder: Some(Arc::new(folder)),
        ..Client::over(store.clone(), &clock)
    };
    client.create("tab").await;
    Fixture {
        store,
        clock,
        client,
    }
}

impl Fixture {
    /// Returns a client with requests that the action interrupts: before the steps with these numbers.
    pub(crate) fn interrupted<F: Future<Output = ()> + Send + 'static>(
        &self,
        counted: fn(Step, &ContainerName) -> bool,
        before: Range<usize>,
        act: impl Fn(Client) -> F + Send + Sync + 'static,
    ) -> Client {
        let client = self.client.clone();
        let hook = Act::new(counted, before, move || act(client.clone()));
        Client::over(
            Hooked {
                inner: Arc::new(self.store.clone()),
                hook,
            },
            &self.clock,
        )
    }
}

/// Matches the opening of an entity.
pub(crate) fn opens(step: Step, container: &ContainerName) -> bool {
    step == Step::Open && !has_tables(container)
}

/// Matches a write or a deletion of an entity.
pub(crate) fn writes(step: Step, container: &ContainerName) -> bool {
    matches!(step, Step::Put | Step::Delete) && !has_tables(container)
}

/// Matches a creation or a deletion of a table.
pub(crate) fn changes_tables(step: Step, container: &ContainerName) -> bool {
    matches!(step, Step::Put | Step::Delete) && has_tables(container)
}

/// Matches a listing of entities.
pub(crate) fn lists(step: Step, container: &ContainerName) -> bool {
    step == Step::List && !has_tables(container)
}

fn has_tables(container: &ContainerName) -> bool {
    container.as_str().starts_with("-tables")
}

impl Client {
    pub(crate) fn over(store: impl BlobStore, clock: &ManualClock) -> Self {
        let accounts = ["photos", "reports"].map(|name| Account::new(name, KEY).expect("valid"));
        let accounts = Accounts::new(accounts).expect("two names");
        let service = TableService::with_clock(Arc::new(store), clock.clone()).accounts(accounts);
        Self {
            service,
            clock: clock.clone(),
            account: ACCOUNT,
            folder: None,
        }
    }

    /// Sends a signed request. The address begins after the account.
    pub(crate) async fn send(
        &self,
        method: &str,
        address: &str,
        fields: &[(&str, &str)],
        body: &str,
    ) -> Answer {
        let date = HttpDate::from_unix(
            i64::try_from(self.clock.now().micros() / 1_000_000).expect("soon"),
        );
        let date = date.to_header().to_str().expect("ASCII").to_owned();
        let mut request = Request::builder()
            .method(method)
            .uri(format!("/{}{address}", self.account));
        request = request
            .header("host", "127.0.0.1:10002")
            .header("x-ms-date", date);
        for (name, value) in fields {
            request = request.header(*name, *value);
        }
        let mut request = request
            .body(Full::new(Bytes::from(body.to_owned())))
            .expect("a valid request");
        Signer::new(self.account, KEY).sign(Form::Table, &mut request);
        let response = self
            .service
            .clone()
            .oneshot(request)
            .await
            .expect("infallible");
        let answer = Answer::read(response).await.expect("a whole body");
        assert!(
            answer.status != StatusCode::NO_CONTENT || answer.body.is_empty(),
            "{answer:?}"
        );
        answer
    }

    pub(crate) async fn create(&self, table: &str) {
        let created = self
            .send(
                "POST",
                "/Tables",
                &[],
                &json!({ "TableName": table }).to_string(),
            )
            .await;
        assert_eq!(created.status, StatusCode::CREATED, "{created:?}");
    }

    pub(crate) async fn get(&self, address: &str) -> Answer {
        self.send("GET", address, &[], "").await
    }

    /// Inserts `p`, `r` with these properties into `tab`.
    pub(crate) async fn insert(&self, properties: Value) -> Answer {
        self.insert_as("p", "r", properties).await
    }

    pub(crate) async fn insert_as(
        &self,
        partition: &str,
        row: &str,
        mut properties: Value,
    ) -> Answer {
        properties["PartitionKey"] = partition.into();
        properties["RowKey"] = row.into();
        self.send(
            "POST",
            "/tab",
            &[("prefer", "return-no-content")],
            &properties.to_string(),
        )
        .await
    }

    /// Replaces [`ENTITY`], or merges into it.
    pub(crate) async fn write(
        &self,
        method: &str,
        if_match: Option<&str>,
        properties: Value,
    ) -> Answer {
        let fields: Vec<_> = if_match.map(|tag| ("if-match", tag)).into_iter().collect();
        self.send(method, ENTITY, &fields, &properties.to_string())
            .await
    }

    pub(crate) async fn delete(&self, if_match: &str) -> Answer {
        self.send("DELETE", ENTITY, &[("if-match", if_match)], "")
            .await
    }

    /// Returns the properties of [`ENTITY`], or null if it doesn't exist.
    pub(crate) async fn properties(&self) -> Value {
        let answer = self
            .send(
                "GET",
                ENTITY,
                &[("accept", "application/json;odata=nometadata")],
                "",
            )
            .await;
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

impl Answer {
    pub(crate) fn tag(&self) -> String {
        self.header("etag").to_owned()
    }

    /// Returns the status and the code of an error. Checks that header and body agree.
    pub(crate) fn error(&self) -> (u16, String) {
        let json = self.json();
        let code = json["odata.error"]["code"].as_str().expect("a code");
        assert_eq!(self.header("x-ms-error-code"), code);
        assert!(
            json["odata.error"]["message"]["value"].is_string(),
            "{json}"
        );
        (self.status.as_u16(), code.to_owned())
    }

    #[track_caller]
    pub(crate) fn refused(&self, status: u16, code: &str) {
        assert_eq!(self.error(), (status, code.to_owned()));
    }
}
