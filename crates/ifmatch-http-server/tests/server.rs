//! A server over real sockets, with a handler written for each test.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use ifmatch_http_server::{
    RequestBody, RequestContext, RequestHandler, Server, ServerEvent, ServerLimits, SlotLimit,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// Echoes the body of a request: after a hint at `/hint`, and not at `/unread`, which gets 412 at once.
struct Echo;

impl RequestHandler for Echo {
    type Body = Full<Bytes>;

    async fn handle(
        self: Arc<Self>,
        request: Request<RequestBody>,
        context: RequestContext,
    ) -> Response<Full<Bytes>> {
        let Some(_slot) = context.take_slot() else {
            return status(StatusCode::SERVICE_UNAVAILABLE);
        };
        if request.uri().path() == "/hint" {
            context
                .interim()
                .unwrap()
                .send(StatusCode::EARLY_HINTS, HeaderMap::new());
        }
        if request.uri().path() == "/unread" {
            return status(StatusCode::PRECONDITION_FAILED);
        }
        match request.into_body().collect().await {
            Ok(body) => Response::new(Full::new(body.to_bytes())),
            Err(_) => status(StatusCode::REQUEST_TIMEOUT),
        }
    }

    fn sends_interim(&self) -> bool {
        true
    }
}

fn status(status: StatusCode) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::default());
    *response.status_mut() = status;
    response
}

/// Starts a server on a free port. Returns it with its address and its events.
async fn start(limits: ServerLimits) -> (Server, SocketAddr, Arc<Mutex<Vec<ServerEvent>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let events = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&events);
    let mut server = Server::new(
        limits,
        Arc::new(move |event| seen.lock().unwrap().push(event)),
    );
    server.serve(vec![listener], Arc::new(Echo));
    (server, address, events)
}

/// Sends a request on a new connection, and reads until the server closes it.
async fn exchange(address: SocketAddr, request: &str) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    rest(&mut stream).await
}

/// Begins a request, and returns its connection once the server asks for the five bytes of its body, so it has its slot.
async fn begin_upload(address: SocketAddr) -> TcpStream {
    const CONTINUE: &[u8; 25] = b"HTTP/1.1 100 Continue\r\n\r\n";
    let mut stream = TcpStream::connect(address).await.unwrap();
    let post = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n";
    stream.write_all(post.as_bytes()).await.unwrap();
    let mut interim = [0; CONTINUE.len()];
    within("100 Continue", stream.read_exact(&mut interim))
        .await
        .unwrap();
    assert_eq!(&interim, CONTINUE);
    stream
}

/// Reads until the server closes the connection.
async fn rest(stream: &mut TcpStream) -> String {
    let mut text = String::new();
    within("the connection's end", stream.read_to_string(&mut text))
        .await
        .unwrap();
    text
}

/// Waits for an event, and fails if it takes longer than a minute.
async fn within<T>(name: &str, wait: impl Future<Output = T>) -> T {
    let Ok(done) = tokio::time::timeout(Duration::from_mins(1), wait).await else {
        panic!("{name}: not within a minute")
    };
    done
}

/// Returns a request with a body that closes its connection.
fn post(path: &str) -> String {
    format!(
        "POST {path} HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello"
    )
}

#[tokio::test]
async fn a_handler_responds_after_its_interim_responses() {
    let (_server, address, events) = start(ServerLimits::default()).await;
    let response = exchange(address, &post("/hint")).await;
    assert!(
        response.starts_with("HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 200 OK\r\n"),
        "{response}"
    );
    assert!(response.ends_with("\r\n\r\nhello"), "{response}");
    assert_eq!(events.lock().unwrap()[0], ServerEvent::ConnectionOpened);
}

/// The client needn't send the body after a final response (RFC 9110 §10.1.1). If the connection stayed open, the first bytes of
/// its next request could count as the body.
#[tokio::test]
async fn an_early_response_to_a_client_that_awaits_100_continue_closes_the_connection() {
    let (_server, address, _) = start(ServerLimits::default()).await;
    let put =
        "PUT /unread HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n";
    let response = exchange(address, put).await;
    assert!(
        response.starts_with("HTTP/1.1 412 ") && response.contains("connection: close\r\n"),
        "{response}"
    );
}

#[tokio::test]
async fn requests_beyond_the_limit_get_no_slot() {
    let requests = SlotLimit {
        total: 1,
        per_client: None,
    };
    let (_server, address, events) = start(ServerLimits {
        requests,
        ..ServerLimits::default()
    })
    .await;
    let _first = begin_upload(address).await;
    assert!(
        exchange(address, &post("/"))
            .await
            .starts_with("HTTP/1.1 503 ")
    );
    assert!(
        events
            .lock()
            .unwrap()
            .contains(&ServerEvent::RequestRefused)
    );
}

#[tokio::test]
async fn a_stalled_body_fails() {
    let limits = ServerLimits {
        body_timeout: Duration::from_millis(50),
        ..ServerLimits::default()
    };
    let (_server, address, _) = start(limits).await;
    let partial =
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhell";
    assert!(
        exchange(address, partial)
            .await
            .starts_with("HTTP/1.1 408 ")
    );
}

#[tokio::test]
async fn a_partial_head_times_out() {
    let limits = ServerLimits {
        head_timeout: Duration::from_millis(50),
        ..ServerLimits::default()
    };
    let (_server, address, events) = start(limits).await;
    assert_eq!(exchange(address, "GET / HTTP/1.1\r\n").await, "");
    assert!(events.lock().unwrap().contains(&ServerEvent::SlowHead));
}

/// Between the end of a kept connection and the news of it, a client may send a request, which is lost. While the server drains,
/// a connection is closed by a response, so the client knows before it sends the next request.
#[tokio::test]
async fn a_draining_server_closes_connections_with_a_response_and_serves_others() {
    let (mut server, address, _) = start(ServerLimits::default()).await;
    let mut kept = TcpStream::connect(address).await.unwrap();
    let get = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";
    kept.write_all(get).await.unwrap();
    let mut response = String::new();
    while !response.ends_with("\r\n\r\n") {
        let byte = within("the response's head", kept.read_u8()).await.unwrap();
        response.push(byte.into());
    }
    assert!(
        response.starts_with("HTTP/1.1 200 OK\r\n") && !response.contains("connection: close"),
        "{response}"
    );
    server.drain();
    let mut fresh = TcpStream::connect(address).await.unwrap();
    for stream in [&mut kept, &mut fresh] {
        stream.write_all(get).await.unwrap();
        let response = rest(stream).await;
        assert!(
            response.starts_with("HTTP/1.1 200 OK\r\n")
                && response.contains("connection: close\r\n"),
            "{response}"
        );
    }
    server.shut_down(Duration::from_hours(1)).await;
    assert_eq!(server.connections(), 0);
}

#[tokio::test]
async fn a_shutdown_completes_requests_in_progress() {
    let (mut server, address, _) = start(ServerLimits::default()).await;
    let mut stream = begin_upload(address).await;
    let stopped = tokio::spawn(async move {
        server.shut_down(Duration::from_hours(1)).await;
        server.connections()
    });
    within("the port's end", async {
        while TcpStream::connect(address).await.is_ok() {
            tokio::task::yield_now().await;
        }
    })
    .await;
    stream.write_all(b"hello").await.unwrap();
    let response = rest(&mut stream).await;
    assert!(
        response.starts_with("HTTP/1.1 200 OK\r\n") && response.ends_with("hello"),
        "{response}"
    );
    assert_eq!(stopped.await.unwrap(), 0);
}

/// The connections of clients that were quick enough to connect, but whose first request wasn't read yet.
#[tokio::test]
async fn a_shutdown_answers_connections_that_wait_to_be_accepted() {
    let (mut server, address, _) = start(ServerLimits::default()).await;
    let mut streams = Vec::new();
    // Nothing runs between the connections and the shutdown, so the server has accepted none of them.
    for _ in 0..20 {
        let stream = std::net::TcpStream::connect(address).unwrap();
        stream.set_nonblocking(true).unwrap();
        streams.push(TcpStream::from_std(stream).unwrap());
    }
    let clients = async {
        for stream in &mut streams {
            stream
                .write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
                .await
                .unwrap();
        }
        for stream in &mut streams {
            let response = rest(stream).await;
            assert!(response.starts_with("HTTP/1.1 200 OK\r\n"), "{response:?}");
        }
    };
    tokio::join!(server.shut_down(Duration::from_hours(1)), clients);
    assert_eq!(server.connections(), 0);
}

/// A client of HTTP/2, and its connection, which ends with the server's GOAWAY.
async fn http2(
    address: SocketAddr,
) -> (
    h2::client::SendRequest<Bytes>,
    JoinHandle<Result<(), h2::Error>>,
) {
    let stream = TcpStream::connect(address).await.unwrap();
    let (client, connection) = h2::client::handshake(stream).await.unwrap();
    (client.ready().await.unwrap(), tokio::spawn(connection))
}

/// Sends a GET with these header fields over HTTP/2. Returns the status.
async fn get_http2(
    client: &mut h2::client::SendRequest<Bytes>,
    fields: &[(String, &str)],
) -> StatusCode {
    let mut request = Request::get("http://a/");
    for (name, value) in fields {
        request = request.header(name, *value);
    }
    let (response, _) = client
        .send_request(request.body(()).unwrap(), true)
        .unwrap();
    response.await.unwrap().status()
}

#[tokio::test]
async fn http2_takes_as_many_header_fields_as_http1() {
    let (_server, address, _) = start(ServerLimits::default()).await;
    for (count, expected) in [(100, 200), (101, 431)] {
        let fields: Vec<_> = (0..count)
            .map(|number| (format!("x-{number}"), "v"))
            .collect();
        let (mut client, _connection) = http2(address).await;
        assert_eq!(
            get_http2(&mut client, &fields).await,
            expected,
            "{count} over HTTP/2"
        );
        // `Host` and `Connection` are fields of HTTP/1 alone.
        let lines: Vec<_> = fields
            .iter()
            .skip(2)
            .map(|(name, value)| format!("{name}: {value}\r\n"))
            .collect();
        let lines = lines.concat();
        let response = exchange(
            address,
            &format!("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n{lines}\r\n"),
        )
        .await;
        assert!(
            response.starts_with(&format!("HTTP/1.1 {expected} ")),
            "{count} over HTTP/1: {response}"
        );
    }
    let crumbs: Vec<_> = (0..120).map(|_| ("cookie".to_owned(), "a=b")).collect();
    let (mut client, _connection) = http2(address).await;
    assert_eq!(
        get_http2(&mut client, &crumbs).await,
        200,
        "one field in 120 crumbs"
    );
}

#[tokio::test]
async fn a_draining_server_sends_goaway_and_answers_what_is_on_its_way() {
    let (server, address, _) = start(ServerLimits::default()).await;
    let (mut client, connection) = http2(address).await;
    assert_eq!(get_http2(&mut client, &[]).await, 200);
    server.drain();
    within("the server's GOAWAY", connection)
        .await
        .unwrap()
        .unwrap();
    let (mut client, _connection) = http2(address).await;
    assert_eq!(
        get_http2(&mut client, &[]).await,
        200,
        "a new connection is served until the port closes"
    );
}
