//! Tables and S3 clients of several gateways, in front of stores that ignore conditions.

use std::collections::HashMap;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use futures_util::future::join_all;
use http::Method;
use ifmatch_core::record::{Record, Revision};
use ifmatch_register::{Key, Register, RegisterError, RegisterErrorKind, Scan, Swap, async_trait};
use ifmatch_testbed::{Clients, Server, postgres, s3, within};
use serde_json::{Value, json};
use support::azure::Azure;
use support::s3::{S3, race};
use support::{Answer, Client, Gateway};
use tokio::task::block_in_place;

use super::migrate;

const JSON: [(&str, &str); 2] = [
    ("content-type", "application/json"),
    ("accept", "application/json;odata=fullmetadata"),
];

/// Entities used as records: each call goes through another gateway than the call before.
struct Entities {
    gateways: Vec<Azure>,
    calls: AtomicUsize,
    /// The tag of each version that was seen.
    tags: Mutex<HashMap<(Key, Revision), String>>,
}

impl Entities {
    async fn call(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: String,
    ) -> Answer {
        let gateway = &self.gateways[self.calls.fetch_add(1, Relaxed) % self.gateways.len()];
        gateway
            .table(method, path, &[&JSON, headers].concat(), body)
            .await
    }

    fn saw(&self, key: &Key, record: &Record, tag: &str) {
        self.tags
            .lock()
            .unwrap()
            .insert((key.clone(), record.revision()), tag.to_owned());
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
    Record::decode(
        &BASE64_STANDARD
            .decode(entity["Record"].as_str().unwrap())
            .unwrap(),
    )
    .unwrap()
}

#[async_trait]
impl Register for Entities {
    async fn load(&self, key: &Key) -> Result<Option<Record>, RegisterError> {
        let answer = self
            .call(Method::GET, &address(key), &[], String::new())
            .await;
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
            self.call(
                Method::POST,
                "/records",
                &[("prefer", "return-no-content")],
                entity.to_string(),
            )
            .await
        } else {
            let tag = self.tags.lock().unwrap()[&(key.clone(), expected)].clone();
            self.call(
                Method::PUT,
                &address(key),
                &[("if-match", &tag)],
                entity.to_string(),
            )
            .await
        };
        match answer.status.as_u16() {
            204 => {
                self.saw(key, next, answer.etag());
                Ok(Swap::Done)
            }
            409 | 412 => self.conflict(key).await,
            503 => Err(RegisterError::new(
                RegisterErrorKind::Ambiguous,
                answer.text(),
            )),
            _ => panic!("{answer:?}"),
        }
    }

    async fn scan(&self, _: &Scan<'_>) -> Result<Vec<(Key, Record)>, RegisterError> {
        let path = "/records()?$filter=PartitionKey%20eq%20%27p%27";
        let answer = self.call(Method::GET, path, &[], String::new()).await;
        let entities = answer.expect(200).json()["value"]
            .as_array()
            .unwrap()
            .clone();
        let entry = |entity: &Value| {
            let key = Key::new(entity["RowKey"].as_str().unwrap().replace(':', "/")).unwrap();
            let record = record(entity);
            self.saw(&key, &record, entity["odata.etag"].as_str().unwrap());
            (key, record)
        };
        Ok(entities.iter().map(entry).collect())
    }
}

/// Starts gateways on one store and one register, each with this listener, too.
fn three_gateways(store: &s3::S3Server, register: &Server, listener: &str) -> Vec<Gateway> {
    let gateway = |_| {
        let mut command = Gateway::command();
        command
            .args(["serve", "--store", "s3://bucket/some", "--register"])
            .arg(register.url())
            .args(["--listen", "127.0.0.1:0", listener, "127.0.0.1:0"])
            .envs(store.settings());
        block_in_place(|| Gateway::launch(command))
    };
    (0..3).map(gateway).collect()
}

/// Clients of three gateways change a few entities under `If-Match`, and read and list them.
#[tokio::test(flavor = "multi_thread")]
async fn no_update_of_an_entity_is_lost() {
    let (store, register) = (
        s3::start().await,
        postgres::start(&["max_connections=200"]).await,
    );
    migrate(&register);
    let mut gateways = three_gateways(&store, &register, "--listen-tables");
    let clients = gateways
        .iter_mut()
        .map(|gateway| Azure::development(Client::new(block_in_place(|| gateway.tables()))));
    let entities = Entities {
        gateways: clients.collect(),
        calls: AtomicUsize::new(0),
        tags: Mutex::default(),
    };
    let table = json!({ "TableName": "records" }).to_string();
    entities
        .call(Method::POST, "/Tables", &[], table)
        .await
        .expect(201);
    let entities = Arc::new(entities);
    let clients = Clients::new("entity", 3, 6).run(&entities, 3).await;
    clients.check(&*entities).await.unwrap();
}

/// Number of writers, and of updates by each.
const WRITERS: usize = 12;
const UPDATES: usize = 4;

/// Three gateways, with the bucket `docs`.
struct Gateways {
    doors: Vec<S3>,
    _running: (Vec<Gateway>, s3::S3Server, Server),
}

async fn gateways() -> Gateways {
    let (store, register) = (
        s3::start_without_conditions().await,
        postgres::start(&["max_connections=200"]).await,
    );
    migrate(&register);
    let mut gateways = three_gateways(&store, &register, "--listen-s3");
    let doors: Vec<S3> = gateways
        .iter_mut()
        .map(|gateway| S3::development(block_in_place(|| gateway.s3())))
        .collect();
    doors[0].put("/docs", &[], "").await.expect(200);
    Gateways {
        doors,
        _running: (gateways, store, register),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_of_sixteen_writers_wins_through_any_gateway() {
    race(&gateways().await.doors, "/docs", 5).await;
}

/// One writer after another is told whether its object is there: the bucket is deleted with none of them.
#[tokio::test(flavor = "multi_thread")]
async fn a_bucket_is_deleted_only_while_it_is_empty() {
    let Gateways { doors, _running } = gateways().await;
    for attempt in 0..5 {
        let bucket = format!("/bucket-{attempt}");
        doors[0].put(&bucket, &[], "").await.expect(200);
        let write = async |writer: usize| {
            tokio::time::sleep(Duration::from_millis(100 * u64::try_from(writer).unwrap())).await;
            doors[writer % 3]
                .put(&format!("{bucket}/{writer}"), &[], "x")
                .await
                .status
                .as_u16()
        };
        let delete = async {
            tokio::time::sleep(Duration::from_millis(100 * attempt)).await;
            doors[1].delete(&bucket, &[]).await
        };
        let (written, deleted) = futures_util::join!(join_all((0..6).map(write)), delete);
        match deleted.status.as_u16() {
            204 => assert!(
                !written.contains(&200),
                "{written:?}: an object was deleted with its bucket"
            ),
            409 | 503 => {
                for (writer, status) in written.iter().enumerate() {
                    let read = doors[2]
                        .get(&format!("{bucket}/{writer}"), &[])
                        .await
                        .status
                        .as_u16();
                    assert_eq!(
                        read == 200,
                        *status == 200,
                        "the object of writer {writer}, which got {status}"
                    );
                }
            }
            other => panic!("{other}: {}", deleted.text()),
        }
    }
}

/// Of the writers that create an object, one wins. Then each counts up in it under `If-Match`, and no update is lost.
#[tokio::test(flavor = "multi_thread")]
async fn no_update_of_an_object_is_lost() {
    let Gateways { doors, _running } = gateways().await;

    let create = async |writer: usize| {
        let door = &doors[writer % doors.len()];
        unless_busy(async || {
            door.put("/docs/count", &[("if-none-match", "*")], "0")
                .await
        })
        .await
        .status
        .as_u16()
    };
    let mut statuses = join_all((0..WRITERS).map(create)).await;
    statuses.sort_unstable();
    assert_eq!(
        (statuses[0], &statuses[1..]),
        (200, &[412; WRITERS - 1][..]),
        "one of the writers creates it"
    );

    let count = async |writer: usize| {
        let door = &doors[writer % doors.len()];
        let mut won = 0;
        while won < UPDATES {
            let found = unless_busy(async || door.get("/docs/count", &[]).await)
                .await
                .expect(200);
            let next = (found.text().parse::<usize>().expect("a number") + 1).to_string();
            let condition = [("if-match", found.etag())];
            let written =
                unless_busy(async || door.put("/docs/count", &condition, next.clone()).await).await;
            match written.status.as_u16() {
                200 => won += 1,
                412 => {}
                other => panic!("{other}: {}", written.text()),
            }
        }
    };
    join_all((0..WRITERS).map(count)).await;
    let counted = doors[0].get("/docs/count", &[]).await.expect(200);
    assert_eq!(
        counted.text(),
        (WRITERS * UPDATES).to_string(),
        "an update is lost"
    );
}

/// Repeats a request while another write is under way, which changes nothing.
async fn unless_busy(request: impl AsyncFn() -> Answer) -> Answer {
    let answered = async {
        loop {
            let answer = request().await;
            if !matches!(answer.status.as_u16(), 409 | 503) {
                return answer;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    within("an answer other than 409 and 503", answered).await
}
