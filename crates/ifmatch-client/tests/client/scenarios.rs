//! The scenarios that the TypeScript client runs as well, against a server over HTTP whose network and other clients act as a row says.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use http::header::{ETAG, IF_MATCH, IF_NONE_MATCH, LOCATION};
use http::{HeaderMap, HeaderName, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use ifmatch_client::{Client, Document, Error, ErrorKind, Version};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::net::TcpListener;

const TABLE: &str = include_str!("../data/scenarios.txt");
/// Far beyond the time of a scenario.
const LIMIT: Duration = Duration::from_mins(5);

#[derive(Debug, Default, Serialize, Deserialize)]
struct Number {
    n: u64,
}

/// A row of the table.
#[derive(Clone, Copy)]
struct Scenario {
    name: &'static str,
    behaviour: &'static str,
    before: &'static str,
    writes: &'static str,
    operation: &'static str,
    outcome: &'static str,
    after: &'static str,
}

fn scenarios() -> impl Iterator<Item = Scenario> {
    TABLE
        .lines()
        .filter(|line| !line.starts_with('#'))
        .map(|line| {
            let columns: Vec<&str> = line.split('|').map(str::trim).collect();
            let [
                name,
                behaviour,
                before,
                writes,
                operation,
                outcome,
                after,
                _without_stamps,
            ] = columns[..]
            else {
                panic!("a row has eight columns: {line}");
            };
            Scenario {
                name,
                behaviour,
                before,
                writes,
                operation,
                outcome,
                after,
            }
        })
}

/// The server's document, and what happens at the writes that are left.
struct Server {
    behaviour: &'static str,
    content: Option<Bytes>,
    version: u64,
    looks: u32,
    rivals: u32,
    always: bool,
    writes: Vec<Vec<&'static str>>,
}

impl Server {
    fn new(scenario: Scenario) -> Self {
        let (always, writes) = match scenario.writes.strip_prefix("always ") {
            Some(writes) => (true, writes),
            None => (false, scenario.writes),
        };
        let writes = if writes == "-" {
            Vec::new()
        } else {
            writes
                .split(';')
                .map(|steps| steps.split_whitespace().collect())
                .collect()
        };
        let behaviour = scenario.behaviour;
        let mut server = Self {
            behaviour,
            content: None,
            version: 0,
            looks: 0,
            rivals: 0,
            always,
            writes,
        };
        if let Ok(number) = scenario.before.parse() {
            server.write_stamped(number);
        }
        server
    }

    fn set(&mut self, content: Option<Bytes>) {
        self.version += 1;
        self.content = content;
    }

    fn value(&self) -> Value {
        self.content.as_ref().map_or(Value::Null, |content| {
            serde_json::from_slice(content).unwrap()
        })
    }

    fn number(&self) -> Option<u64> {
        self.value()["n"].as_u64()
    }

    /// Writes as another client of this library.
    fn write_stamped(&mut self, number: u64) {
        self.rivals += 1;
        let id = format!("rival {}", self.rivals);
        let mut stamp = self.value()["$ifmatch"].clone();
        if stamp.is_null() {
            stamp = json!({ "chain": id, "writes": 0, "recent": [] });
        }
        stamp["writes"] = (stamp["writes"].as_u64().unwrap() + 1).into();
        stamp["recent"].as_array_mut().unwrap().push(id.into());
        self.set(Some(
            json!({ "n": number, "$ifmatch": stamp }).to_string().into(),
        ));
    }

    fn rival(&mut self) {
        self.write_stamped(self.number().unwrap_or(0) + 10);
    }

    fn strong(&self) -> String {
        format!("\"v{}\"", self.version)
    }

    fn tag(&mut self, is_write: bool) -> Option<String> {
        self.looks += u32::from(!is_write);
        match self.behaviour {
            "untagged" => None,
            "untagged-writes" if is_write => None,
            "weak" => Some(format!("W/{}", self.strong())),
            "weak-at-first" if !is_write && self.looks <= 2 => Some(format!("W/{}", self.strong())),
            _ => Some(self.strong()),
        }
    }

    fn holds(&self, headers: &HeaderMap) -> bool {
        let is_absent = self.content.is_none();
        let named = headers
            .get(IF_MATCH)
            .map(|tag| tag.to_str().unwrap() == self.strong());
        let matches = named.is_none_or(|is_current| is_current && !is_absent)
            || self.behaviour == "ignores-if-match";
        let creates = headers.contains_key(IF_NONE_MATCH);
        matches && (!creates || is_absent || self.behaviour == "ignores-if-none-match")
    }

    fn write(&mut self, method: &Method, headers: &HeaderMap, body: Bytes) -> u16 {
        if !self.holds(headers) {
            return 412;
        }
        let existed = self.content.is_some();
        self.set((method != Method::DELETE).then_some(body));
        if existed { 204 } else { 201 }
    }

    /// Returns the response, or `None` if the connection is closed instead.
    fn handle(
        &mut self,
        method: &Method,
        headers: &HeaderMap,
        body: Bytes,
    ) -> Option<Response<Full<Bytes>>> {
        if method == Method::GET {
            let is_current = headers
                .get(IF_NONE_MATCH)
                .is_some_and(|tag| tag.to_str().unwrap() == self.strong());
            let status = match self.content {
                None => 404,
                Some(_) if is_current && self.behaviour == "-" => 304,
                Some(_) => 200,
            };
            return Some(self.respond(status, false));
        }
        let named = headers.get(IF_MATCH).map(|tag| tag.to_str().unwrap());
        let is_probe =
            named.is_some_and(|tag| headers.contains_key(IF_NONE_MATCH) || !tag.starts_with("\"v"));
        if method == Method::PUT && is_probe {
            let status = self.write(method, headers, body);
            return Some(self.respond(status, true));
        }
        let steps = match self.writes.first().cloned() {
            Some(steps) if self.always => steps,
            Some(_) => self.writes.remove(0),
            None => vec!["write"],
        };
        let mut status = None;
        for step in steps {
            match step {
                "write" => status = Some(self.write(method, headers, body.clone())),
                "rival" => self.rival(),
                "program" => {
                    let number = self.number().unwrap() + 10;
                    self.set(Some(json!({ "n": number }).to_string().into()));
                }
                "delete" => self.set(None),
                "drop" => return None,
                step => match step.strip_prefix("rival=") {
                    Some(number) => self.write_stamped(number.parse().unwrap()),
                    None => status = Some(step.parse().unwrap()),
                },
            }
        }
        Some(self.respond(status.unwrap(), true))
    }

    fn respond(&mut self, status: u16, is_write: bool) -> Response<Full<Bytes>> {
        let body = self
            .content
            .clone()
            .filter(|_| status == 200)
            .unwrap_or_default();
        let mut response = Response::new(Full::new(body));
        *response.status_mut() = StatusCode::from_u16(status).unwrap();
        let mut add = |name: HeaderName, value: &str| {
            response.headers_mut().insert(name, value.parse().unwrap())
        };
        if status == 303 {
            add(LOCATION, "/box/document");
        } else if self.content.is_some()
            && status < 500
            && let Some(tag) = self.tag(is_write)
        {
            add(ETAG, &tag);
        }
        response
    }
}

/// Serves until the runtime ends. Returns the URL of the folder.
async fn serve(server: Arc<Mutex<Server>>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/box", listener.local_addr().unwrap());
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let server = Arc::clone(&server);
            let service = service_fn(move |request: Request<Incoming>| {
                let server = Arc::clone(&server);
                async move {
                    let (head, body) = request.into_parts();
                    let body = body
                        .collect()
                        .await
                        .map_err(std::io::Error::other)?
                        .to_bytes();
                    let response = server
                        .lock()
                        .unwrap()
                        .handle(&head.method, &head.headers, body);
                    response.ok_or_else(|| {
                        std::io::Error::other("the connection is closed without a response")
                    })
                }
            });
            // A connection that a step drops ends in an error.
            tokio::spawn(
                hyper::server::conn::http1::Builder::new()
                    .serve_connection(TokioIo::new(stream), service),
            );
        }
    });
    url
}

/// Runs an operation, and returns its outcome.
async fn operate(
    document: &Document<Number>,
    server: &Mutex<Server>,
    operation: &str,
) -> &'static str {
    let (name, number) = operation.split_once(' ').unwrap_or((operation, "0"));
    let value = Number {
        n: number.parse().unwrap(),
    };
    let failed = |error: Error| match error.kind() {
        ErrorKind::Conflict { .. } => "conflict",
        ErrorKind::Contended => "contended",
        ErrorKind::Unknown
            if error
                .to_string()
                .contains("was written, and has changed since") =>
        {
            "superseded"
        }
        ErrorKind::Unknown => "unknown",
        ErrorKind::Refused => "refused",
        other => panic!("{other:?}"),
    };
    let done = match name {
        "update" => document
            .update(|document| document.n += 1)
            .await
            .map(|_| "saved"),
        "create" => document.create(value).await.map(|_| "saved"),
        "read" => document.get().await.map(|_| "read"),
        "save" | "late" => match document.get().await {
            Ok(read) => {
                if name == "late" {
                    server.lock().unwrap().rival();
                }
                let version: Version = read.unwrap().version;
                document.replace(&version, value).await.map(|_| "saved")
            }
            Err(error) => Err(error),
        },
        other => panic!("{other} is no operation"),
    };
    done.unwrap_or_else(failed)
}

async fn run(scenario: Scenario) {
    let server = Arc::new(Mutex::new(Server::new(scenario)));
    let url = serve(Arc::clone(&server)).await;
    let patience = Duration::from_secs(if scenario.writes.starts_with("always ") {
        2
    } else {
        30
    });
    let document = Client::http(&url)
        .unwrap()
        .with_patience(patience)
        .json::<Number>("document");
    let outcome = operate(&document, &server, scenario.operation).await;
    let server = server.lock().unwrap();
    let number = server
        .number()
        .map_or_else(|| "-".to_owned(), |number| number.to_string());
    let after = if scenario.after == "?" { "?" } else { &number };
    let is_expected = scenario
        .outcome
        .split(" or ")
        .any(|expected| expected == outcome)
        && after == scenario.after;
    let Scenario {
        name,
        outcome: expected,
        after: number,
        ..
    } = scenario;
    assert!(
        is_expected,
        "{name}: {outcome} {after} instead of {expected} {number}"
    );
    assert!(
        server.always || server.writes.is_empty(),
        "{}: writes are left: {:?}",
        scenario.name,
        server.writes
    );
}

#[tokio::test]
async fn the_scenarios_that_the_clients_share_end_as_the_table_says() {
    assert!(scenarios().count() > 40, "the table has hardly any rows");
    let all = scenarios().map(|scenario| tokio::spawn(run(scenario)));
    let ended = tokio::time::timeout(LIMIT, join_all(all))
        .await
        .expect("the scenarios within five minutes");
    let failed: Vec<String> = ended
        .into_iter()
        .filter_map(Result::err)
        .map(|error| error.to_string())
        .collect();
    assert!(
        failed.is_empty(),
        "{} of the scenarios fail: {failed:#?}",
        failed.len()
    );
}
