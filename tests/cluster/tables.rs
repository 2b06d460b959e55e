//! Tables: the entities that several gateways keep in one object store.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use http::Method;
use ifmatch_core::record::{Record, Revision};
use ifmatch_register::{Key, Register, RegisterError, RegisterErrorKind, Scan, Swap, async_trait};
use ifmatch_testbed::{Clients, postgres, s3};
use serde_json::{Value, json};
use support::azure::Azure;
use support::{Answer, Client, Gateway};
use tokio::task::block_in_place;

use super::migrate;

const JSON: [(&str, &str); 2] =
    [("content-type", "application/json"), ("accept", "application/json;odata=fullmetadata")];
const PARTITION: &str = "PartitionKey eq 'p'";

/// Entities used as records: each call goes through another gateway than the call before.
struct Entities {
    gateways: Vec<Azure>,
    calls: AtomicUsize,
    /// The tag of each version that was seen.
    tags: Mutex<HashMap<(Key, Revision), String>>,
}

impl Entities {
    async fn call(&self, method: Method, path: &str, headers: &[(&str, &str)], body: String) -> Answer {
        let gateway = &self.gateways[self.calls.fetch_add(1, Relaxed) % self.gateways.len()];
        gateway.table(method, path, &[&JSON, headers].concat(), body).await
    }

    fn saw(&self, key: &Key, record: &Record, tag: &str) {
        self.tags.lock().unwrap().insert((key.clone(), record.revision()), tag.to_owned());
    }

    async fn conflict(&self, key: &Key) -> Result<Swap, RegisterError> {
        Ok(Swap::Conflict(self.load(key).await?))
    }
}

/// Returns the address of the entity of a key.
fn address(key: &Key) -> String {
    format!("/records(PartitionKey='p',RowKey='{}')", row(key))
}

fn row(key: &Key) -> String {
    key.as_str().replace('/', ":")
}

fn record(entity: &Value) -> Record {
    Record::decode(&BASE64_STANDARD.decode(entity["Record"].as_str().unwrap()).unwrap()).unwrap()
}

#[async_trait]
impl Register for Entities {
    async fn load(&self, key: &Key) -> Result<Option<Record>, RegisterError> {
        let answer = self.call(Method::GET, &address(key), &[], String::new()).await;
        match answer.status.as_u16() {
            200 => {
                let record = record(&answer.json());
                self.saw(key, &record, answer.etag());
                Ok(Some(record))
            }
            404 => Ok(None),
            _ => panic!("{answer:?}"),
        }
    }

    async fn compare_and_swap(
        &self,
        key: &Key,
        expected: Revision,
        next: Option<&Record>,
    ) -> Result<Swap, RegisterError> {
        let next = next.unwrap();
        let mut entity = json!({ "Record": BASE64_STANDARD.encode(next.encode()), "Record@odata.type": "Edm.Binary" });
        let answer = if expected == Revision::NONE {
            (entity["PartitionKey"], entity["RowKey"]) = ("p".into(), row(key).into());
            self.call(Method::POST, "/records", &[("prefer", "return-no-content")], entity.to_string()).await
        } else {
            let tag = self.tags.lock().unwrap()[&(key.clone(), expected)].clone();
            self.call(Method::PUT, &address(key), &[("if-match", &tag)], entity.to_string()).await
        };
        match answer.status.as_u16() {
            204 => {
                self.saw(key, next, answer.etag());
                Ok(Swap::Done)
            }
            409 | 412 => self.conflict(key).await,
            503 => Err(RegisterError::new(RegisterErrorKind::Ambiguous, answer.text())),
            _ => panic!("{answer:?}"),
        }
    }

    async fn scan(&self, _: &Scan<'_>) -> Result<Vec<(Key, Record)>, RegisterError> {
        let filter = PARTITION.replace(' ', "%20").replace('\'', "%27");
        let answer = self.call(Method::GET, &format!("/records()?$filter={filter}"), &[], String::new()).await;
        let entities = answer.expect(200).json()["value"].as_array().unwrap().clone();
        let entry = |entity: &Value| {
            let key = Key::new(entity["RowKey"].as_str().unwrap().replace(':', "/")).unwrap();
            let record = record(entity);
            self.saw(&key, &record, entity["odata.etag"].as_str().unwrap());
            (key, record)
        };
        Ok(entities.iter().map(entry).collect())
    }
}

/// Clients of three gateways change a few entities under `If-Match`, and read and list them.
#[tokio::test(flavor = "multi_thread")]
async fn no_update_of_an_entity_is_lost() {
    let (store, register) = (s3::start().await, postgres::start(&["max_connections=200"]).await);
    migrate(&register);
    let gateway = || {
        let mut command = Gateway::command();
        command.args(["serve", "--store", "s3://bucket", "--register", &register.url()]);
        command.args(["--listen", "127.0.0.1:0", "--listen-tables", "127.0.0.1:0"]).envs(store.settings());
        Gateway::launch(command)
    };
    let mut gateways: Vec<_> = (0..3).map(|_| block_in_place(gateway)).collect();
    let clients =
        gateways.iter_mut().map(|gateway| Azure::development(Client::new(block_in_place(|| gateway.tables()))));
    let entities = Entities { gateways: clients.collect(), calls: AtomicUsize::new(0), tags: Mutex::default() };
    let table = json!({ "TableName": "records" }).to_string();
    entities.call(Method::POST, "/Tables", &[], table).await.expect(201);
    let entities = Arc::new(entities);
    let clients = Clients::new("entity", 3, 6).run(&entities, 3).await;
    clients.check(&*entities).await.unwrap();
}
