//! Blobs as registers: the history of what clients read, write, append and take snapshots of is linearizable, although gateways are
//! killed, and the networks to the bucket and to the register lose requests and answers.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, StatusCode};
use ifmatch_core::record::{Record, Revision};
use ifmatch_register::{Key, Register, RegisterError, RegisterErrorKind, Scan, Swap, async_trait};
use ifmatch_testbed::{Clients, Network, Proxy, Server, postgres, s3};
use support::azure::{DEVELOPMENT_ACCOUNT, DEVELOPMENT_KEY, Form, Signer, signed};
use support::{Answer, Client, Gateway, full};
use tokio::sync::RwLock;
use tokio::task::block_in_place;

use super::migrate;

const GATEWAYS: usize = 3;
const CLIENTS: usize = 12;
const KEYS: usize = 8;
/// Sets the number of acknowledged writes of a long run.
const SOAK: &str = "IFMATCH_CLUSTER_WRITES";
/// Number of acknowledged writes by default.
const WRITES: usize = 600;
/// Time for which a network hangs, or a server is down.
const HOLD: Duration = Duration::from_millis(1_500);
/// Number of connections that are cut in a row.
const CUTS: usize = 20;
/// Pause between cuts.
const PAUSE: Duration = Duration::from_millis(20);
/// Length of a block that is appended. It holds a record.
const BLOCK: usize = 600;
/// Length of a body that is an object.
const LONG: usize = 6_000;

/// Three gateways on one bucket and one register, each with networks of its own to both.
struct Gateways {
    processes: Vec<Gateway>,
    to_bucket: Vec<Proxy>,
    to_register: Vec<Proxy>,
    register: Server,
    _bucket: s3::S3Server,
}

impl Gateways {
    async fn start() -> Self {
        let bucket = s3::start().await;
        let register = postgres::start(&["max_connections=200"]).await;
        migrate(&register);
        let (mut processes, mut to_bucket, mut to_register) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..GATEWAYS {
            let (objects, records) = (
                Proxy::start(bucket.address()).await,
                Proxy::start(register.address()).await,
            );
            let mut command = Gateway::command();
            let address = register.address().to_string();
            let url = register
                .url()
                .replace(&address, &records.address().to_string());
            command.args([
                "serve",
                "--listen",
                "127.0.0.1:0",
                "--data",
                "s3://bucket/own",
                "--register",
                &url,
            ]);
            command
                .envs(bucket.settings())
                .env("AWS_ENDPOINT", format!("http://{}", objects.address()));
            processes.push(block_in_place(|| Gateway::launch(command)));
            to_bucket.push(objects);
            to_register.push(records);
        }
        Self {
            processes,
            to_bucket,
            to_register,
            register,
            _bucket: bucket,
        }
    }

    /// Lets a fault happen to a gateway.
    async fn suffer(&mut self, fault: Fault, number: usize, blobs: &Blobs) {
        match fault {
            Fault::Cut(side, network) => {
                for _ in 0..CUTS {
                    self.network(side, number).set(network);
                    tokio::time::sleep(PAUSE).await;
                }
                self.network(side, number).set(Network::Whole);
            }
            Fault::Hang(side, network) => {
                self.network(side, number).set(network);
                tokio::time::sleep(HOLD).await;
                self.network(side, number).set(Network::Whole);
            }
            Fault::GatewayKilled => {
                block_in_place(|| self.processes[number].restart());
                blobs.clients.write().await[number] = Client::new(self.processes[number].address());
            }
            Fault::RegisterKilled => {
                self.register.kill();
                tokio::time::sleep(HOLD).await;
                self.register.restart().await;
            }
        }
    }

    fn network(&self, side: Side, number: usize) -> &Proxy {
        match side {
            Side::Bucket => &self.to_bucket[number],
            Side::Register => &self.to_register[number],
        }
    }
}

/// What a gateway's network leads to.
#[derive(Clone, Copy, Debug)]
enum Side {
    Bucket,
    Register,
}

/// What happens to a gateway, to its networks or to the register.
#[derive(Clone, Copy, Debug)]
enum Fault {
    /// Requests or answers are lost one by one, with their connections.
    Cut(Side, Network),
    /// Nothing arrives for a while.
    Hang(Side, Network),
    GatewayKilled,
    RegisterKilled,
}

const FAULTS: [Fault; 12] = [
    Fault::Cut(Side::Bucket, Network::CutAfterCommit),
    Fault::GatewayKilled,
    Fault::Cut(Side::Register, Network::CutAfterCommit),
    Fault::Hang(Side::Bucket, Network::Silent),
    Fault::Cut(Side::Bucket, Network::CutBeforeSending),
    Fault::Cut(Side::Register, Network::CutAfterSending),
    Fault::GatewayKilled,
    Fault::Hang(Side::Register, Network::Silent),
    Fault::Cut(Side::Bucket, Network::CutAfterSending),
    Fault::RegisterKilled,
    Fault::Cut(Side::Register, Network::CutBeforeSending),
    Fault::GatewayKilled,
];

/// How the record of a key is kept in its blob.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Shape {
    /// In a body that is part of the gateway's own record.
    Short,
    /// In a body that is an object.
    Long,
    /// As the last block of an append blob.
    Appended,
}

/// A register whose records are blobs. Each call goes to another gateway.
struct Blobs {
    clients: RwLock<Vec<Client>>,
    calls: AtomicUsize,
    snapshots: AtomicUsize,
    signer: Signer,
}

/// A blob that was read.
struct Found {
    record: Option<Record>,
    tag: String,
    length: usize,
}

fn failed(kind: RegisterErrorKind, answer: &Answer) -> RegisterError {
    RegisterError::new(kind, format!("{} {}", answer.status, answer.text()))
}

fn path_of(key: &Key) -> String {
    format!("/{key}")
}

fn shape_of(key: &Key) -> Shape {
    match key.as_str().bytes().last() {
        Some(b'0'..=b'2') => Shape::Short,
        Some(b'3'..=b'5') => Shape::Long,
        _ => Shape::Appended,
    }
}

/// Returns a record in a text of this length.
fn padded(record: &Record, length: usize) -> Bytes {
    let encoded = record.encode();
    let mut text = u32::try_from(encoded.len())
        .expect("a short record")
        .to_be_bytes()
        .to_vec();
    text.extend(encoded);
    assert!(text.len() <= length, "the record is longer than its place");
    text.resize(length, 0);
    text.into()
}

fn unpadded(text: &[u8]) -> Record {
    let (length, rest) = text.split_first_chunk::<4>().expect("a length");
    let length = usize::try_from(u32::from_be_bytes(*length)).expect("a length");
    Record::decode(&rest[..length]).expect("a whole record")
}

impl Blobs {
    fn new(processes: &[Gateway]) -> Self {
        let clients: Vec<_> = processes
            .iter()
            .map(|process| Client::new(process.address()))
            .collect();
        let signer = Signer::new(DEVELOPMENT_ACCOUNT, DEVELOPMENT_KEY);
        Self {
            clients: RwLock::new(clients),
            calls: AtomicUsize::new(0),
            snapshots: AtomicUsize::new(0),
            signer,
        }
    }

    fn turn(&self) -> usize {
        self.calls.fetch_add(1, Ordering::SeqCst)
    }

    /// Sends a request. Without an answer, it may have taken effect.
    async fn send(&self, request: Request<support::Body>) -> Result<Answer, RegisterError> {
        let client = self.clients.read().await[self.turn() % GATEWAYS].clone();
        client
            .try_send(request)
            .await
            .map_err(|error| RegisterError::new(RegisterErrorKind::Ambiguous, error))
    }

    async fn azure(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        content: Bytes,
    ) -> Result<Answer, RegisterError> {
        self.send(signed(&self.signer, Form::Blob, method, path, headers, content).map(full))
            .await
    }

    /// Reads a blob, sometimes by a snapshot of it.
    async fn read(&self, key: &Key) -> Result<Option<Found>, RegisterError> {
        let path = path_of(key);
        let answer = if self.turn().is_multiple_of(7) {
            match self.read_snapshot(&path).await? {
                Some(answer) => answer,
                None => return Ok(None),
            }
        } else {
            self.send(Request::get(&path).body(full("")).expect("a request"))
                .await?
        };
        match answer.status {
            StatusCode::OK => {
                let text = match shape_of(key) {
                    Shape::Appended => answer.body.rchunks(BLOCK).next(),
                    _ => Some(&answer.body[..]),
                };
                let record = text.map(unpadded);
                Ok(Some(Found {
                    record,
                    tag: answer.etag().to_owned(),
                    length: answer.body.len(),
                }))
            }
            StatusCode::NOT_FOUND => Ok(None),
            _ => Err(failed(RegisterErrorKind::Unavailable, &answer)),
        }
    }

    /// Takes a snapshot, reads it, and deletes it. Returns `None` if there is no blob.
    async fn read_snapshot(&self, path: &str) -> Result<Option<Answer>, RegisterError> {
        let empty = [("content-length", "0")];
        let taken = self
            .azure(
                Method::PUT,
                &format!("{path}?comp=snapshot"),
                &empty,
                Bytes::new(),
            )
            .await?;
        match taken.status {
            StatusCode::CREATED => {}
            StatusCode::NOT_FOUND => return Ok(None),
            _ => return Err(failed(RegisterErrorKind::Unavailable, &taken)),
        }
        self.snapshots.fetch_add(1, Ordering::SeqCst);
        let snapshot = format!("{path}?snapshot={}", taken.header("x-ms-snapshot"));
        let read = self
            .azure(Method::GET, &snapshot, &[], Bytes::new())
            .await?;
        assert_ne!(
            read.status,
            StatusCode::NOT_FOUND,
            "an acknowledged snapshot of {path} is lost"
        );
        assert!(
            read.status != StatusCode::OK || read.etag() == taken.etag(),
            "{path}: {read:?}"
        );
        // If this fails, the snapshot stays.
        drop(
            self.azure(Method::DELETE, &snapshot, &[], Bytes::new())
                .await,
        );
        Ok(Some(read))
    }

    /// Appends a record to a blob of this length.
    async fn append(
        &self,
        path: &str,
        length: usize,
        exists: bool,
        record: &Record,
    ) -> Result<Answer, RegisterError> {
        if !exists {
            let fields = [
                ("x-ms-blob-type", "AppendBlob"),
                ("content-length", "0"),
                ("if-none-match", "*"),
            ];
            let created = self.azure(Method::PUT, path, &fields, Bytes::new()).await?;
            if created.status.is_server_error() {
                return Err(failed(RegisterErrorKind::Unavailable, &created));
            }
        }
        let position = length.to_string();
        let fields = [("x-ms-blob-condition-appendpos", &*position)];
        self.azure(
            Method::PUT,
            &format!("{path}?comp=appendblock"),
            &fields,
            padded(record, BLOCK),
        )
        .await
    }
}

#[async_trait]
impl Register for Blobs {
    async fn load(&self, key: &Key) -> Result<Option<Record>, RegisterError> {
        Ok(self.read(key).await?.and_then(|found| found.record))
    }

    async fn compare_and_swap(
        &self,
        key: &Key,
        expected: Revision,
        next: Option<&Record>,
    ) -> Result<Swap, RegisterError> {
        let next = next.expect("no record is removed");
        let unsent = |_| RegisterError::from(RegisterErrorKind::Unavailable);
        let found = self.read(key).await.map_err(unsent)?;
        let record = found.as_ref().and_then(|found| found.record.clone());
        if record.as_ref().map_or(Revision::NONE, Record::revision) != expected {
            return Ok(Swap::Conflict(record));
        }
        let path = path_of(key);
        let written = match shape_of(key) {
            Shape::Appended => {
                let length = found.as_ref().map_or(0, |found| found.length);
                self.append(&path, length, found.is_some(), next).await?
            }
            shape => {
                let condition = found
                    .as_ref()
                    .map_or(("if-none-match", "*"), |found| ("if-match", &*found.tag));
                let length = if shape == Shape::Long { LONG } else { BLOCK };
                let request = Request::put(&path).header(condition.0, condition.1);
                self.send(request.body(full(padded(next, length))).expect("a request"))
                    .await?
            }
        };
        match written.status {
            StatusCode::OK | StatusCode::CREATED => Ok(Swap::Done),
            StatusCode::PRECONDITION_FAILED => {
                Ok(Swap::Conflict(self.load(key).await.map_err(unsent)?))
            }
            _ if written.text().contains("outcome") => {
                Err(failed(RegisterErrorKind::Ambiguous, &written))
            }
            status if status.is_server_error() => {
                Err(failed(RegisterErrorKind::Unavailable, &written))
            }
            status => panic!("{status}: {}", written.text()),
        }
    }

    async fn scan(&self, scan: &Scan<'_>) -> Result<Vec<(Key, Record)>, RegisterError> {
        let mut found = Vec::new();
        for number in 0..KEYS {
            let key = Key::new(format!("docs/key/{number:04}")).expect("a key");
            let is_next = scan.after.is_none_or(|after| key.as_str() > after);
            if key.as_str().starts_with(scan.prefix) && is_next && found.len() < scan.limit {
                found.extend(self.load(&key).await?.map(|record| (key, record)));
            }
        }
        Ok(found)
    }
}

/// By the checker that checks registers. A read by a snapshot is a load, too: what it shows was current when it was taken.
#[tokio::test(flavor = "multi_thread")]
async fn the_history_of_blobs_is_linearizable() {
    let writes = std::env::var(SOAK).map_or(WRITES, |writes| writes.parse().expect("a number"));
    let mut gateways = Gateways::start().await;
    let blobs = Arc::new(Blobs::new(&gateways.processes));
    blobs
        .send(
            Request::put("/docs/first")
                .body(full(""))
                .expect("a request"),
        )
        .await
        .expect("an answer")
        .expect(201);
    let wins = writes.div_ceil(CLIENTS * FAULTS.len());
    let mut clients = Clients::new("docs/key", KEYS, CLIENTS);
    for (round, fault) in FAULTS.into_iter().enumerate() {
        println!("{fault:?}");
        let suffered = gateways.suffer(fault, round % GATEWAYS, &blobs);
        clients = clients.run_during(&blobs, wins, suffered).await;
    }
    let snapshots = blobs.snapshots.load(Ordering::SeqCst);
    println!(
        "{} acknowledged writes, {snapshots} snapshots, {} requests",
        clients.wins(),
        blobs.turn()
    );
    assert!(clients.wins() >= writes && snapshots > 0);
    clients
        .check(&*blobs)
        .await
        .expect("a linearizable history");
}
