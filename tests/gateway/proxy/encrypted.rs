//! TLS on both sides, and HTTP/2 to clients.

use std::future::poll_fn;
use std::io::Write as _;
use std::path::Path;
use std::sync::Mutex;
use std::sync::mpsc::{Sender, channel};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http2::{self, SendRequest};
use hyper::rt::{Read, Write};
use hyper_util::rt::{TokioExecutor, TokioIo};
use support::Gateway;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

use super::origin::{Origin, ok};
use super::{before, get};
use crate::tls::Files;

/// Starts a TLS proxy in front of an `https` upstream, with `roots` as the trusted certificates.
fn encrypting(files: &Files, upstream: &Gateway, roots: &Path) -> Gateway {
    let mut command = Gateway::command();
    let upstream = format!("https://localhost:{}", upstream.address().port());
    command.args(["proxy", "--listen", "127.0.0.1:0", "--upstream", &upstream, "--tls-cert"]);
    command.arg(files.path("cert.pem")).arg("--tls-key").arg(files.path("key.pem")).env("SSL_CERT_FILE", roots);
    Gateway::launch(command)
}

async fn speak_http2<T: Read + Write + Unpin + Send + 'static>(stream: T) -> SendRequest<Full<Bytes>> {
    let (client, connection) = http2::handshake(TokioExecutor::new(), stream).await.unwrap();
    tokio::spawn(connection);
    client
}

type Connection = SendRequest<Full<Bytes>>;

async fn send(connection: &mut Connection, request: Request<Full<Bytes>>) -> (StatusCode, HeaderMap, Bytes) {
    let (head, body) = connection.send_request(request).await.unwrap().into_parts();
    (head.status, head.headers, body.collect().await.unwrap().to_bytes())
}

async fn ask(connection: &mut Connection, request: http::request::Builder) -> (StatusCode, HeaderMap, Bytes) {
    send(connection, request.body(Full::from("hello")).unwrap()).await
}

async fn read(connection: &mut Connection, uri: &str) -> (StatusCode, HeaderMap, Bytes) {
    send(connection, Request::get(uri).body(Full::default()).unwrap()).await
}

#[tokio::test]
async fn client_and_upstream_connections_use_tls() {
    let files = Files::new();
    let upstream = Gateway::start(files.flags("cert.pem", "key.pem"));
    let gateway = encrypting(&files, &upstream, &files.path("cert.pem"));
    let mut client = speak_http2(TokioIo::new(files.connect(&gateway, &["h2"]).await)).await;
    let put = Request::put("https://localhost/c/a").header("cache-control", "max-age=600");
    assert_eq!(ask(&mut client, put).await.0, StatusCode::CREATED);
    let (status, headers, body) = read(&mut client, "https://localhost/c/a").await;
    assert_eq!((status, &body[..]), (StatusCode::OK, &b"hello"[..]), "{headers:?}");
    // All HTTP versions share the stored responses.
    let stream = files.connect(&gateway, &["http/1.1"]).await;
    let (mut other, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    let request = Request::get("/c/a").header("host", "localhost").body(Full::<Bytes>::default()).unwrap();
    let hit = other.send_request(request).await.unwrap();
    assert!(hit.headers()["cache-status"].to_str().unwrap().starts_with("ifmatch; hit"), "{hit:?}");
}

#[tokio::test]
async fn an_unknown_certificate_of_an_upstream_is_rejected() {
    let (files, others) = (Files::new(), Files::new());
    let upstream = Gateway::start(files.flags("cert.pem", "key.pem"));
    let gateway = encrypting(&files, &upstream, &others.path("cert.pem"));
    let mut client = speak_http2(TokioIo::new(files.connect(&gateway, &["h2"]).await)).await;
    assert_eq!(read(&mut client, "https://localhost/c/a").await.0, StatusCode::BAD_GATEWAY);
}

#[test]
fn upstreams_select_http_2_only_if_it_is_offered() {
    let files = Files::new();
    let upstream = Gateway::start(files.flags("cert.pem", "key.pem"));
    let (url, ca) = (format!("https://localhost:{}", upstream.address().port()), files.path("cert.pem"));
    for (flag, via) in [("--upstream-http2=false", "1.1 ifmatch"), ("--upstream-http2", "2.0 ifmatch")] {
        let gateway = Gateway::start(["proxy", "--upstream", &url, "--upstream-ca", ca.to_str().unwrap(), flag]);
        for _ in 0..2 {
            assert_eq!(get(&gateway, "/c/none", "").header("via"), via);
        }
    }
}

#[tokio::test]
async fn http_2_clients_get_no_connection_headers() {
    let origin = Origin::start(|_| ok("cache-control: max-age=600\r\nconnection: x-hop\r\nx-hop: 1\r\n", "hello"));
    let gateway = before(&origin, &[]);
    let stream = TcpStream::connect(gateway.address()).await.unwrap();
    let mut client = speak_http2(TokioIo::new(stream)).await;
    let (status, headers, body) = read(&mut client, "http://example.com/a").await;
    assert_eq!((status, &body[..]), (StatusCode::OK, &b"hello"[..]));
    assert!(!headers.contains_key("connection") && !headers.contains_key("x-hop"), "{headers:?}");
    assert_eq!(origin.asked()[0].field("host"), Some("example.com"));
    assert!(origin.asked()[0].field("via").is_some_and(|via| via.starts_with("2.0 ifmatch-")));
    let hit = get(&gateway, "/a", "").expect(200);
    assert!(super::status(&hit).contains("; hit"), "{hit:?}");
}

/// An origin with three interim responses, and a response when the test allows it.
fn hinting() -> (Origin, Sender<()>) {
    let (release, released) = channel::<()>();
    let released = Mutex::new(released);
    let origin = Origin::converse(move |_, stream| {
        for (status, link) in HINTS {
            let hint =
                format!("HTTP/1.1 {status} Hint\r\nlink: {link}\r\nconnection: x-private\r\nx-private: 1\r\n\r\n");
            stream.write_all(hint.as_bytes()).unwrap();
        }
        // Fails if the test has failed.
        let _ = released.lock().unwrap().recv();
        stream.write_all(ok("cache-control: no-store\r\n", "hello").as_bytes()).unwrap();
    });
    (origin, release)
}

const HINTS: [(u16, &str); 3] = [(103, "</a.css>; rel=preload"), (102, "<b>"), (103, "</c.js>; rel=preload")];

/// Sends two requests on a connection: both get the hints in order, before the response.
async fn hinted<T: AsyncRead + AsyncWrite + Unpin + Send + 'static>(stream: T, release: Sender<()>) {
    let (client, connection) = h2::client::handshake(stream).await.unwrap();
    tokio::spawn(connection);
    let mut client = client.ready().await.unwrap();
    for _ in 0..2 {
        let request = Request::get("https://localhost/").body(()).unwrap();
        let (mut response, _) = client.send_request(request, true).unwrap();
        for (status, link) in HINTS {
            let hint = poll_fn(|cx| response.poll_informational(cx)).await.unwrap().unwrap();
            assert_eq!((hint.status().as_u16(), &hint.headers()["link"]), (status, &HeaderValue::from_static(link)));
            assert_eq!(hint.headers().len(), 1, "{hint:?}");
        }
        release.send(()).unwrap();
        let mut response = response.await.unwrap();
        assert_eq!(response.status(), StatusCode::OK);
        assert_eq!(response.body_mut().data().await.unwrap().unwrap(), "hello");
    }
}

#[tokio::test]
async fn http_2_clients_get_hints_before_the_response() {
    let (origin, release) = hinting();
    let gateway = before(&origin, &[]);
    hinted(TcpStream::connect(gateway.address()).await.unwrap(), release).await;
}

#[tokio::test]
async fn clients_get_hints_over_tls() {
    let (origin, release) = hinting();
    let files = Files::new();
    let (cert, key) = (files.path("cert.pem"), files.path("key.pem"));
    let gateway = before(&origin, &["--tls-cert", cert.to_str().unwrap(), "--tls-key", key.to_str().unwrap()]);
    hinted(files.connect(&gateway, &["h2"]).await, release).await;
}

/// The queue for a client that reads nothing is bounded.
#[tokio::test]
async fn the_number_of_hints_is_limited() {
    let origin = Origin::converse(|_, stream| {
        let hint = format!("HTTP/1.1 103 Early Hints\r\nlink: {}\r\n\r\n", "x".repeat(1 << 10));
        stream.write_all(hint.repeat(100).as_bytes()).unwrap();
        stream.write_all(ok("cache-control: no-store\r\n", "hello").as_bytes()).unwrap();
    });
    let gateway = before(&origin, &[]);
    let stream = TcpStream::connect(gateway.address()).await.unwrap();
    let (client, connection) = h2::client::handshake(stream).await.unwrap();
    tokio::spawn(connection);
    let request = Request::get("http://localhost/").body(()).unwrap();
    let (mut response, _) = client.ready().await.unwrap().send_request(request, true).unwrap();
    let mut count = 0;
    while let Some(hint) = poll_fn(|cx| response.poll_informational(cx)).await {
        assert_eq!(hint.unwrap().status(), StatusCode::EARLY_HINTS);
        count += 1;
    }
    assert!((1..64).contains(&count), "{count}");
    assert_eq!(response.await.unwrap().status(), StatusCode::OK);
}
