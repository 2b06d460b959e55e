//! Upstreams with HTTP/2: fields, trailers, shared connections, refusals and cancellation.

use std::net::SocketAddr;
use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration;

use bytes::Bytes;
use h2::server::SendResponse;
use http::{HeaderMap, Request, Response};
use http_body_util::{BodyExt, Full};
use ifmatch_proxy::{Proxy, ProxyErrorKind, Upstream};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::support::{ask, content, get, proxy_of, refused, until};

/// Reaction of a server to a request.
#[derive(Clone, Copy)]
enum Act {
    /// Responds with 200.
    Respond,
    /// Resets the stream with this code.
    Reset(u8),
    /// Sends GOAWAY, as if the request had arrived too late.
    GoAway,
    /// Does nothing.
    Wait,
}

/// Content that is too long to be kept.
static LONG: LazyLock<String> = LazyLock::new(|| "x".repeat(100_000));

// Types of frames (RFC 9113 §6).
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;

// Flags of frames.
const END_STREAM: u8 = 1;
const ACK: u8 = 1;
const END_HEADERS: u8 = 4;

// Error codes (RFC 9113 §7).
const INTERNAL_ERROR: u8 = 2;
const REFUSED: u8 = 7;
const CANCEL: u8 = 8;

/// `:status: 200` in the static table of HPACK (RFC 7541 §6.1).
const STATUS_200: u8 = 0x88;

/// A server that sends HTTP/2 frames as told.
struct Origin {
    address: SocketAddr,
    seen: Arc<Mutex<Seen>>,
}

#[derive(Default)]
struct Seen {
    connections: usize,
    requests: usize,
    /// Content of the requests.
    contents: Vec<Vec<u8>>,
    /// Codes of the streams that the client has reset.
    resets: Vec<u8>,
}

impl Origin {
    async fn start(script: impl Into<Vec<Act>>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let seen = Arc::<Mutex<Seen>>::default();
        let script = Arc::new(Mutex::new(script.into().into_iter()));
        let shared = Arc::clone(&seen);
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                shared.lock().unwrap().connections += 1;
                tokio::spawn(converse(stream, Arc::clone(&script), Arc::clone(&shared)));
            }
        });
        Self { address, seen }
    }

    fn proxy(&self) -> Proxy {
        before(&[self.address])
    }

    fn counts(&self) -> (usize, usize) {
        let seen = self.seen.lock().unwrap();
        (seen.connections, seen.requests)
    }
}

fn before(addresses: &[SocketAddr]) -> Proxy {
    let urls: Vec<_> = addresses
        .iter()
        .map(|address| format!("h2c://{address}"))
        .collect();
    proxy_of(Upstream::parse(&urls).unwrap())
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u8::try_from(payload.len()).unwrap();
    [
        &[0, 0, length, kind, flags][..],
        &stream.to_be_bytes(),
        payload,
    ]
    .concat()
}

/// Answers frames until the connection ends. `None` is its end.
async fn converse(
    mut stream: TcpStream,
    script: Arc<Mutex<std::vec::IntoIter<Act>>>,
    seen: Arc<Mutex<Seen>>,
) -> Option<()> {
    let mut preface = [0; 24];
    stream.read_exact(&mut preface).await.ok()?;
    assert_eq!(&preface, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
    stream.write_all(&frame(SETTINGS, 0, 0, &[])).await.ok()?;
    let (mut last, mut content) = (0_u32, Vec::new());
    loop {
        let mut head = [0; 9];
        stream.read_exact(&mut head).await.ok()?;
        let [a, b, c, kind, flags, id @ ..] = head;
        let mut payload = vec![0; u32::from_be_bytes([0, a, b, c]) as usize];
        stream.read_exact(&mut payload).await.ok()?;
        let id = u32::from_be_bytes(id);
        if kind == DATA && !payload.is_empty() {
            for window in [0, id] {
                stream
                    .write_all(&frame(WINDOW_UPDATE, 0, window, &[0, a, b, c]))
                    .await
                    .ok()?;
            }
            content.extend(&payload);
        }
        match kind {
            // The end of a request.
            DATA | HEADERS if flags & END_STREAM != 0 => {
                {
                    let mut seen = seen.lock().unwrap();
                    seen.requests += 1;
                    seen.contents.push(std::mem::take(&mut content));
                }
                let act = script.lock().unwrap().next();
                let answer = match act? {
                    Act::Respond => frame(HEADERS, END_STREAM | END_HEADERS, id, &[STATUS_200]),
                    Act::Reset(code) => frame(RST_STREAM, 0, id, &[0, 0, 0, code]),
                    Act::GoAway => frame(GOAWAY, 0, 0, &[last.to_be_bytes(), [0; 4]].concat()),
                    Act::Wait => continue,
                };
                stream.write_all(&answer).await.ok()?;
                last = id;
            }
            RST_STREAM => seen.lock().unwrap().resets.extend(payload.last()),
            SETTINGS if flags == 0 => {
                stream.write_all(&frame(SETTINGS, ACK, 0, &[])).await.ok()?;
            }
            PING if flags == 0 => {
                stream
                    .write_all(&frame(PING, ACK, 0, &payload))
                    .await
                    .ok()?;
            }
            _ => {}
        }
    }
}

/// A request that must not be processed twice.
fn post(content: &'static str) -> Request<Full<Bytes>> {
    Request::post("/")
        .header("host", "example.com")
        .body(Full::from(content))
        .unwrap()
}

#[tokio::test]
async fn requests_share_a_connection() {
    let origin = Origin::start(&[Act::Respond; 9]).await;
    let proxy = origin.proxy();
    let tasks: Vec<_> = (0..9)
        .map(|_| {
            tokio::spawn({
                let proxy = proxy.clone();
                async move { ask(&proxy, get("/")).await.map(drop) }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap().unwrap();
    }
    assert_eq!(origin.counts(), (1, 9));
}

#[tokio::test]
async fn a_request_that_was_not_processed_is_sent_again_over_a_new_connection() {
    for unprocessed in [Act::GoAway, Act::Reset(REFUSED)] {
        let origin = Origin::start(&[Act::Respond, unprocessed, Act::Respond]).await;
        let proxy = origin.proxy();
        for _ in 0..2 {
            assert_eq!(ask(&proxy, post("")).await.unwrap().status(), 200);
        }
        assert_eq!(origin.counts(), (2, 3));
    }
}

#[tokio::test]
async fn a_refused_request_goes_to_the_next_server() {
    let refusing = Origin::start(&[Act::Reset(REFUSED)]).await;
    let other = Origin::start(&[Act::Respond]).await;
    let proxy = before(&[refusing.address, other.address]);
    assert_eq!(ask(&proxy, post("")).await.unwrap().status(), 200);
    assert_eq!((refusing.counts(), other.counts()), ((1, 1), (1, 1)));
}

#[tokio::test]
async fn a_request_that_may_have_been_processed_is_not_sent_again() {
    let origin = Origin::start(&[Act::Reset(INTERNAL_ERROR); 4]).await;
    let proxy = origin.proxy();
    assert_eq!(
        refused(&proxy, post("")).await.kind(),
        ProxyErrorKind::Broken
    );
    assert_eq!(origin.counts().1, 1);
    // A GET is repeated once.
    assert_eq!(
        refused(&proxy, get("/")).await.kind(),
        ProxyErrorKind::Broken
    );
    assert_eq!(origin.counts().1, 3);
}

#[tokio::test]
async fn short_content_is_sent_again_and_long_content_is_not() {
    let origin = Origin::start(&[Act::Respond, Act::GoAway, Act::Respond, Act::GoAway]).await;
    let proxy = origin.proxy();
    for _ in 0..2 {
        assert_eq!(ask(&proxy, post("order")).await.unwrap().status(), 200);
    }
    assert_eq!(origin.seen.lock().unwrap().contents, [b"order"; 3]);
    let error = refused(&proxy, post(&LONG)).await;
    assert_eq!(
        (error.kind(), error.is_in_doubt()),
        (ProxyErrorKind::Unreachable, false)
    );
    assert_eq!(origin.seen.lock().unwrap().contents[3].len(), LONG.len());
    assert_eq!(origin.counts(), (2, 4));
}

#[tokio::test]
async fn a_cancelled_request_resets_its_stream_alone() {
    let origin = Origin::start(&[Act::Wait, Act::Respond]).await;
    let proxy = origin.proxy();
    let waiting = tokio::spawn({
        let proxy = proxy.clone();
        async move { ask(&proxy, get("/")).await.map(drop) }
    });
    until("the request", || origin.counts().1 > 0).await;
    waiting.abort();
    until("its end", || !origin.seen.lock().unwrap().resets.is_empty()).await;
    assert_eq!(origin.seen.lock().unwrap().resets, [CANCEL]);
    ask(&proxy, get("/")).await.unwrap();
    assert_eq!(origin.counts(), (1, 2));
}

/// A server closes a connection after too many cancelled requests, and with it the requests of other clients. No connection
/// gets that many.
#[tokio::test]
async fn a_connection_with_many_cancelled_requests_gets_no_new_ones() {
    let mut script = vec![Act::Wait; 30];
    script.push(Act::Respond);
    let origin = Origin::start(script).await;
    let proxy = origin.proxy();
    for number in 0..30 {
        let waiting = tokio::spawn({
            let proxy = proxy.clone();
            async move { ask(&proxy, get("/")).await.map(drop) }
        });
        until("the request", || origin.counts().1 > number).await;
        waiting.abort();
        until("its end", || {
            origin.seen.lock().unwrap().resets.len() > number
        })
        .await;
    }
    ask(&proxy, get("/")).await.unwrap();
    assert_eq!(
        origin.counts(),
        (4, 31),
        "eight cancelled requests on each connection but the last"
    );
}

/// Handles each request of all connections by a function, in a task of its own.
async fn serve<F>(
    handle: impl Fn(Request<h2::RecvStream>, SendResponse<Bytes>) -> F + Clone + Send + 'static,
) -> SocketAddr
where
    F: Future<Output = ()> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let handle = handle.clone();
            tokio::spawn(async move {
                let mut connection = h2::server::handshake(stream).await.unwrap();
                while let Some(Ok((request, respond))) = connection.accept().await {
                    tokio::spawn(handle(request, respond));
                }
            });
        }
    });
    address
}

#[tokio::test]
async fn fields_content_and_trailers_are_forwarded() {
    let (tell, mut told) = tokio::sync::mpsc::unbounded_channel();
    let address = serve(move |request, mut respond| {
        let tell = tell.clone();
        async move {
            let (head, mut body) = request.into_parts();
            let mut sent = Vec::new();
            while let Some(data) = body.data().await {
                sent.extend(data.unwrap());
            }
            tell.send((head, sent)).unwrap();
            let hint = Response::builder()
                .status(103)
                .header("link", "</a.css>")
                .body(())
                .unwrap();
            respond.send_informational(hint).unwrap();
            let mut stream = respond.send_response(Response::new(()), false).unwrap();
            stream.send_data("hello".into(), false).unwrap();
            stream
                .send_trailers(HeaderMap::from_iter([(
                    "x-sum".parse().unwrap(),
                    "7".parse().unwrap(),
                )]))
                .unwrap();
        }
    })
    .await;
    let request = Request::post("/a?b")
        .header("host", "example.com")
        .header("connection", "x-own, upgrade");
    let request = request
        .header("x-own", "1")
        .header("upgrade", "websocket")
        .header("te", "trailers");
    let response = ask(
        &before(&[address]),
        request.body(Full::from("order")).unwrap(),
    )
    .await
    .unwrap();
    assert_eq!(
        (
            response.status().as_u16(),
            response.headers()["via"].to_str().unwrap()
        ),
        (200, "2.0 ifmatch")
    );
    let body = response.into_body().collect().await.unwrap();
    assert_eq!(body.trailers().unwrap()["x-sum"], "7");
    assert_eq!(body.to_bytes(), "hello");
    let (head, sent) = told.recv().await.unwrap();
    assert_eq!(
        (head.uri.to_string().as_str(), &sent[..]),
        ("http://example.com/a?b", &b"order"[..])
    );
    for name in [
        "host",
        "connection",
        "x-own",
        "upgrade",
        "transfer-encoding",
    ] {
        assert!(!head.headers.contains_key(name), "{name}");
    }
    assert_eq!(head.headers["te"], "trailers");
}

#[tokio::test]
async fn responses_without_content_keep_their_length() {
    let address = serve(|request, mut respond| async move {
        let status = if request.method() == "HEAD" { 200 } else { 304 };
        let response = Response::builder()
            .status(status)
            .header("content-length", "5")
            .body(())
            .unwrap();
        respond.send_response(response, true).unwrap();
    })
    .await;
    let proxy = before(&[address]);
    for (method, status) in [("HEAD", 200), ("GET", 304)] {
        let request = Request::builder()
            .method(method)
            .uri("/")
            .header("host", "example.com");
        let response = ask(&proxy, request.body(Full::default()).unwrap())
            .await
            .unwrap();
        assert_eq!(
            (
                response.status().as_u16(),
                &response.headers()["content-length"]
            ),
            (status, &"5".parse().unwrap())
        );
        assert_eq!(content(response).await.unwrap(), "");
    }
}

/// Servers such as nginx close each connection after a number of requests. Others are then on their way.
#[tokio::test]
async fn no_request_is_lost_when_a_server_closes_its_connections() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            tokio::spawn(async move {
                let mut connection = h2::server::handshake(stream).await.unwrap();
                let mut count = 0;
                while let Some(Ok((request, mut respond))) = connection.accept().await {
                    count += 1;
                    if count == 50 {
                        connection.graceful_shutdown();
                    }
                    tokio::spawn(async move {
                        let mut body = request.into_body();
                        let mut content = Vec::new();
                        while let Some(Ok(data)) = body.data().await {
                            content.extend(data);
                        }
                        // Fails if the connection does.
                        if let Ok(mut stream) = respond.send_response(Response::new(()), false) {
                            let _ = stream.send_data(content.into(), true);
                        }
                    });
                }
            });
        }
    });
    let proxy = before(&[address]);
    let client = |proxy: Proxy| async move {
        for _ in 0..100 {
            assert_eq!(
                content(ask(&proxy, post("order")).await.unwrap())
                    .await
                    .unwrap(),
                "order"
            );
        }
    };
    let clients: Vec<_> = (0..8)
        .map(|_| tokio::spawn(client(proxy.clone())))
        .collect();
    for client in clients {
        client.await.unwrap();
    }
}

/// All responses share the connection, and its window.
#[tokio::test]
async fn slow_readers_do_not_stall_others() {
    let address = serve(|request, mut respond| async move {
        let mut stream = respond.send_response(Response::new(()), false).unwrap();
        let length = if request.uri().path() == "/large" {
            8 << 20
        } else {
            5
        };
        // The library waits for the windows.
        stream.send_data(vec![b'x'; length].into(), true).unwrap();
    })
    .await;
    let proxy = before(&[address]);
    let mut unread = Vec::new();
    for _ in 0..40 {
        unread.push(ask(&proxy, get("/large")).await.unwrap());
    }
    let small = async {
        content(ask(&proxy, get("/small")).await.unwrap())
            .await
            .unwrap()
    };
    let small = tokio::time::timeout(Duration::from_mins(5), small)
        .await
        .expect("the window is not exhausted");
    assert_eq!(small, "xxxxx");
    assert_eq!(content(unread.swap_remove(7)).await.unwrap().len(), 8 << 20);
}
