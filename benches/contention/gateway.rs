//! The gateway and its clients.

use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request};
use ifmatch_testbed::{Program, Server, etcd};
use support::azure::{DEVELOPMENT_ACCOUNT, DEVELOPMENT_KEY, Form, Signer, signed};
use tempfile::TempDir;
use tokio::time::Instant;
use xtask_registers::engine::Engine;

use crate::connection::{Connection, Reply};
use crate::{Tally, together};

/// Flags of a gateway that serves only what is measured, to many clients of one address.
const QUIET: [&str; 8] = [
    "--listen-s3",
    "off",
    "--console",
    "off",
    "--max-requests-per-client",
    "1000",
    "--max-connections-per-client",
    "1000",
];
/// Content of a blob, and of a block that is appended.
const CONTENT: &[u8] = &[b'x'; 64];

/// A gateway, or two that share a bucket, and the engine with the records.
pub(crate) struct Gateway {
    pub(crate) name: &'static str,
    servers: Vec<Server>,
    tables: SocketAddr,
    /// The container and the table of the works in the Azure dialects exist.
    is_prepared: AtomicBool,
    _engine: Option<Server>,
    _bodies: Option<TempDir>,
}

/// A client's request or requests, which it repeats.
#[derive(Clone, Copy)]
pub(crate) enum Work {
    /// PUT without a condition.
    Put,
    /// GET, then PUT with `If-Match`.
    Update,
    /// Acquires a lease, and releases it.
    Lease,
    /// Appends a block to an append blob.
    Append,
    /// Merges a property into an entity.
    Merge,
}

impl Work {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Put => "PUT",
            Self::Update => "GET and PUT If-Match",
            Self::Lease => "lease and release",
            Self::Append => "Append Block",
            Self::Merge => "Merge Entity",
        }
    }
}

impl Gateway {
    /// Starts all gateways of the table.
    pub(crate) async fn start_each(binary: &str) -> Vec<Self> {
        let postgres = Engine::Postgres.start().await.unwrap().remove(0);
        let etcd = etcd::start(&[]).await;
        let mut started = vec![
            Self::start(binary, "folder", None).await,
            Self::start(binary, "PostgreSQL", Some(postgres)).await,
            Self::start(binary, "etcd", Some(etcd)).await,
        ];
        for (name, flag, count) in [
            ("`--store file://`, PostgreSQL", "--store", 1),
            ("bucket of its own, PostgreSQL", "--data", 1),
            ("the same, two gateways", "--data", 2),
        ] {
            started.push(Self::start_beside_others(binary, name, flag, count).await);
        }
        started
    }

    /// Starts gateways on a folder that is a bucket, given by this flag, and PostgreSQL.
    async fn start_beside_others(
        binary: &str,
        name: &'static str,
        flag: &'static str,
        count: usize,
    ) -> Self {
        let engine = Engine::Postgres.start().await.unwrap().remove(0);
        let bodies = tempfile::tempdir().unwrap();
        let store = format!("file://{}", bodies.path().display());
        let mut servers = Vec::new();
        for _ in 0..count {
            let (store, register) = (store.clone(), engine.url());
            let serve = move |port: u16, _: &std::path::Path| {
                let listen = format!("127.0.0.1:{port}");
                let args = [
                    "serve",
                    "--listen",
                    &listen,
                    "--listen-tables",
                    "off",
                    flag,
                    &store,
                    "--register",
                    &register,
                ];
                args.into_iter()
                    .chain(QUIET)
                    .map(str::to_owned)
                    .collect::<Vec<_>>()
                    .into()
            };
            servers
                .push(Server::start(Program::new(binary, "ifmatch", ("http://", ""), serve)).await);
        }
        let tables = servers[0].address();
        let (is_prepared, _engine, _bodies) = (AtomicBool::new(false), Some(engine), Some(bodies));
        Self {
            name,
            servers,
            tables,
            is_prepared,
            _engine,
            _bodies,
        }
    }

    /// Starts Azurite, another server that clients of Azure append to. It doesn't wait for its disk.
    pub(crate) async fn start_azurite() -> Self {
        let script = "/../tests/azurite/node_modules/azurite/dist/src/blob/main.js";
        let serve = move |port: u16, folder: &std::path::Path| {
            let script = format!("{}{script}", env!("CARGO_MANIFEST_DIR"));
            let data = folder.display().to_string();
            let port = port.to_string();
            let args = [
                &*script,
                "--blobPort",
                &port,
                "--location",
                &data,
                "--skipApiVersionCheck",
                "--disableTelemetry",
            ];
            args.into_iter()
                .map(str::to_owned)
                .chain(["--silent".to_owned()])
                .collect()
        };
        let server = Server::start(Program::new("node", "nodejs", ("http://", ""), serve)).await;
        let (tables, servers, is_prepared) =
            (server.address(), vec![server], AtomicBool::new(false));
        Self {
            name: "Azurite",
            servers,
            tables,
            is_prepared,
            _engine: None,
            _bodies: None,
        }
    }

    async fn start(binary: &str, name: &'static str, engine: Option<Server>) -> Self {
        let register = engine.as_ref().map(Server::url);
        let tables = TcpListener::bind("127.0.0.1:0")
            .and_then(|listener| listener.local_addr())
            .unwrap();
        let serve = move |port: u16, folder: &std::path::Path| {
            let listen = format!("127.0.0.1:{port}");
            let tables = tables.to_string();
            let mut args = vec!["serve", "--listen", &listen];
            args.extend(QUIET);
            args.extend(["--listen-tables", &tables]);
            let data = folder.join("data").display().to_string();
            match &register {
                Some(register) => args.extend(["--store", "memory://", "--register", register]),
                None => args.extend(["--data", &data]),
            }
            args.into_iter()
                .map(str::to_owned)
                .collect::<Vec<_>>()
                .into()
        };
        let server = Server::start(Program::new(binary, "ifmatch", ("http://", ""), serve)).await;
        let (servers, is_prepared) = (vec![server], AtomicBool::new(false));
        Self {
            name,
            servers,
            tables,
            is_prepared,
            _engine: engine,
            _bodies: None,
        }
    }

    /// Creates the keys, and runs clients on them.
    pub(crate) async fn run(
        &self,
        work: Work,
        keys: &[String],
        clients: usize,
        time: Duration,
    ) -> Vec<Tally> {
        if matches!(work, Work::Append | Work::Merge)
            && !self.is_prepared.swap(true, Ordering::Relaxed)
        {
            self.prepare().await;
        }
        let mut ready = Vec::new();
        for number in 0..clients {
            let path = format!("/hot/{}", keys[number % keys.len()]);
            let server = &self.servers[number % self.servers.len()];
            let address = if matches!(work, Work::Merge) {
                self.tables
            } else {
                server.address()
            };
            let mut client = Client {
                connection: Connection::open(address).await,
                path,
                number,
                signed: None,
            };
            if number < keys.len() {
                client.create(work).await;
            }
            client.signed = signed_work(work, &client.path);
            ready.push(client);
        }
        together(ready, time, move |client, end| client.run(work, end)).await
    }

    /// Creates a container, unless other works have, and a table where there are tables.
    async fn prepare(&self) {
        let container = azure(
            Form::Blob,
            Method::PUT,
            "/hot?restype=container",
            &[],
            Bytes::new(),
        );
        Connection::open(self.servers[0].address())
            .await
            .exchange(&container)
            .await
            .expect(&[201, 409]);
        if self.tables != self.servers[0].address() {
            let table = azure(
                Form::Table,
                Method::POST,
                "/Tables",
                &[JSON],
                r#"{"TableName":"hot"}"#.into(),
            );
            Connection::open(self.tables)
                .await
                .exchange(&table)
                .await
                .expect(&[201]);
        }
    }
}

/// Returns the request that a client of the Azure dialects repeats. Its signature is valid for a quarter of an hour.
fn signed_work(work: Work, path: &str) -> Option<Request<Bytes>> {
    match work {
        Work::Append => {
            let block = Bytes::from_static(CONTENT);
            Some(azure(
                Form::Blob,
                Method::PUT,
                &format!("{path}?comp=appendblock"),
                &[],
                block,
            ))
        }
        Work::Merge => {
            let (_, key) = path.rsplit_once('/')?;
            let entity = format!("/hot(PartitionKey='hot',RowKey='{key}')");
            Some(azure(
                Form::Table,
                Method::PATCH,
                &entity,
                &[JSON],
                r#"{"value":1}"#.into(),
            ))
        }
        Work::Put | Work::Update | Work::Lease => None,
    }
}

const JSON: (&str, &str) = ("content-type", "application/json");

fn azure(
    form: Form,
    method: Method,
    path: &str,
    fields: &[(&str, &str)],
    body: Bytes,
) -> Request<Bytes> {
    signed(
        &Signer::new(DEVELOPMENT_ACCOUNT, DEVELOPMENT_KEY),
        form,
        method,
        path,
        fields,
        body,
    )
}

/// A client, and what it changes.
struct Client {
    connection: Connection,
    path: String,
    number: usize,
    /// The request to repeat, for works in the Azure dialects.
    signed: Option<Request<Bytes>>,
}

impl Client {
    /// Creates what the work is on.
    async fn create(&mut self, work: Work) {
        match work {
            Work::Put | Work::Update | Work::Lease => {
                drop(self.ask(Method::PUT, "", &[]).await.expect(&[201]))
            }
            Work::Append => {
                let blob = azure(
                    Form::Blob,
                    Method::PUT,
                    &self.path,
                    &[("x-ms-blob-type", "AppendBlob")],
                    Bytes::new(),
                );
                self.connection.exchange(&blob).await.expect(&[201]);
            }
            Work::Merge => {
                let merge = signed_work(work, &self.path).unwrap();
                self.connection.exchange(&merge).await.expect(&[204]);
            }
        }
    }

    async fn run(mut self, work: Work, end: Instant) -> Tally {
        let mut tally = Tally::default();
        let mut done = 0_u64;
        while Instant::now() < end {
            done += 1;
            let is_accepted = match work {
                Work::Put => self.ask(Method::PUT, "", &[]).await.status < 300,
                Work::Update => self.update().await,
                Work::Lease => self.lease(done).await,
                Work::Append | Work::Merge => {
                    let request = self.signed.as_ref().unwrap();
                    self.connection.exchange(request).await.status < 300
                }
            };
            tally.count(is_accepted);
        }
        tally
    }

    async fn update(&mut self) -> bool {
        let tag = self.ask(Method::GET, "", &[]).await.expect(&[200]).unwrap();
        self.ask(Method::PUT, "", &[("if-match", &tag)])
            .await
            .status
            < 300
    }

    async fn lease(&mut self, done: u64) -> bool {
        let id = format!(
            "00000000-0000-4000-8000-{:06x}{:06x}",
            self.number,
            done & 0xff_ffff
        );
        let acquire = [("lease-duration", "15"), ("lease-id", &*id)];
        if self.ask(Method::POST, "?lease", &acquire).await.status != 201 {
            return false;
        }
        while self
            .ask(Method::DELETE, "?lease", &[("lease-id", &id)])
            .await
            .status
            >= 300
        {}
        true
    }

    async fn ask(&mut self, method: Method, query: &str, fields: &[(&str, &str)]) -> Reply {
        let body = if method == Method::PUT {
            Bytes::from_static(CONTENT)
        } else {
            Bytes::new()
        };
        let request = Request::builder()
            .method(method)
            .uri(format!("{}{query}", self.path));
        let request = fields.iter().fold(request, |request, (name, value)| {
            request.header(*name, *value)
        });
        self.connection.exchange(&request.body(body).unwrap()).await
    }
}
