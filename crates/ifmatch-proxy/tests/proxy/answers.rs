//! Requests and responses without failures, and an upgraded connection through a real server in front of the proxy.

use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, StatusCode};
use http_body::{Body, Frame};
use http_body_util::{BodyExt, Full};
use hyper::server::conn::http1;
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use ifmatch_proxy::{ForwardedClient, Interim, Upstream};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tower::ServiceExt;

use crate::support::{Origin, Step, ask, content, get, proxy_of};

const HELLO: &str = "HTTP/1.1 200 OK\r\ncontent-length: 5\r\nconnection: x-own\r\nx-own: 1\r\nx-kept: 2\r\n\r\nhello";

#[tokio::test]
async fn a_request_is_forwarded_without_hop_by_hop_fields() {
    let origin = Origin::start(vec![Step::Send(HELLO)]).await;
    let request = Request::put("/a%2Fb?x=%20y")
        .header("host", "example.com")
        .header("connection", "x-secret")
        .header("x-secret", "1")
        .header("expect", "100-continue")
        .body(Full::new(Bytes::from_static(b"content")))
        .unwrap();
    let response = ask(&origin.proxy(), request).await.unwrap();
    assert_eq!(response.headers()["x-kept"], "2");
    assert_eq!(response.headers()["via"], "1.1 ifmatch");
    assert!(
        !response.headers().contains_key("x-own") && !response.headers().contains_key("connection")
    );
    assert_eq!(content(response).await.unwrap(), "hello");
    let seen = &origin.requests()[0];
    assert!(seen.starts_with("PUT /a%2Fb?x=%20y HTTP/1.1\r\n"), "{seen}");
    assert!(seen.ends_with("\r\n\r\ncontent"), "{seen}");
    assert!(seen.contains("host: example.com\r\n"), "{seen}");
    assert!(
        !seen.contains("x-secret") && !seen.contains("expect"),
        "{seen}"
    );
}

/// Content without a length.
struct Unmeasured(Option<Bytes>);

impl Body for Unmeasured {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        Poll::Ready(self.0.take().map(Frame::data).map(Ok))
    }
}

#[tokio::test]
async fn content_of_unknown_length_is_sent_with_any_method() {
    for method in ["GET", "HEAD", "POST", "DELETE", "QUERY"] {
        let origin = Origin::start(vec![Step::Send(
            "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n",
        )])
        .await;
        let request = Request::builder()
            .method(method)
            .uri("/")
            .header("host", "example.com");
        let request = request
            .body(Unmeasured(Some(Bytes::from("query"))))
            .unwrap();
        origin.proxy().oneshot(request).await.unwrap();
        let seen = &origin.requests()[0];
        assert!(seen.contains("transfer-encoding: chunked\r\n"), "{seen}");
        assert!(seen.ends_with("\r\n\r\n5\r\nquery\r\n0\r\n\r\n"), "{seen}");
    }
}

#[tokio::test]
async fn interim_responses_are_forwarded() {
    const HINTS: &str = "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: </a.css>\r\n\r\n\
                         HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";
    let origin = Origin::start(vec![Step::Send(HINTS)]).await;
    let told = Arc::new(Mutex::new(Vec::new()));
    let mut request = get("/");
    let interim = Interim::new({
        let told = Arc::clone(&told);
        move |status, headers| {
            told.lock()
                .unwrap()
                .push((status, headers.get("link").cloned()));
        }
    });
    let client = ForwardedClient {
        address: ([192, 0, 2, 7], 4711).into(),
        secure: false,
        interim: Some(interim),
    };
    request.extensions_mut().insert(client);
    let response = ask(&origin.proxy(), request).await.unwrap();
    assert_eq!(response.status(), StatusCode::OK);
    let told = told.lock().unwrap();
    let [(status, link)] = &told[..] else {
        panic!("{told:?}")
    };
    assert_eq!(
        (status.as_u16(), link.as_ref().unwrap().to_str().unwrap()),
        (103, "</a.css>")
    );
}

#[tokio::test]
async fn trailers_are_forwarded() {
    const CHUNKED: &str = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ntrailer: x-sum\r\n\r\n\
                           5\r\nhello\r\n0\r\nx-sum: 7\r\n\r\n";
    let origin = Origin::start(vec![Step::Send(CHUNKED)]).await;
    let mut request = get("/");
    request
        .headers_mut()
        .insert("te", "trailers".parse().unwrap());
    let response = ask(&origin.proxy(), request).await.unwrap();
    let body = response.into_body().collect().await.unwrap();
    assert_eq!(body.trailers().unwrap()["x-sum"], "7");
    assert!(origin.requests()[0].contains("te: trailers\r\n"));
}

/// Content in these frames, the last one first.
struct Trailing(Vec<Frame<Bytes>>);

impl Body for Trailing {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        Poll::Ready(self.0.pop().map(Ok))
    }
}

#[tokio::test]
async fn forbidden_trailers_are_removed() {
    const CHUNKED: &str = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\
                           trailer: x-sum, x-forwarded-for, set-cookie, x.forwarded.for\r\n\r\n5\r\nhello\r\n0\r\n\
                           x-forwarded-for: 9\r\nset-cookie: 9\r\nx-sum: 7\r\nx.forwarded.for: 9\r\n\r\n";
    const FORBIDDEN: &str =
        "x-forwarded-for, x_forwarded_for, forwarded, x-real-ip, if-match, cookie";
    let origin = Origin::start(vec![Step::Send(CHUNKED)]).await;
    let mut trailers = http::HeaderMap::new();
    for name in FORBIDDEN.split(", ").chain(["x-sum"]) {
        trailers.insert(name, "7".parse().unwrap());
    }
    let request = Request::post("/")
        .header("host", "a")
        .header("trailer", format!("{FORBIDDEN}, x-sum"));
    let content = vec![Frame::trailers(trailers), Frame::data(Bytes::from("hello"))];
    let request = request
        .header("te", "trailers")
        .body(Trailing(content))
        .unwrap();
    let response = origin.proxy().oneshot(request).await.unwrap();
    let body = response.into_body().collect().await.unwrap();
    assert!(body.trailers().unwrap().keys().eq(["x-sum"]), "{body:?}");
    assert!(
        origin.requests()[0].ends_with("\r\n0\r\nx-sum: 7\r\n\r\n"),
        "{:?}",
        origin.requests()
    );
}

/// An upstream that accepts any upgrade, with framing fields, and then echoes its input in upper case.
async fn shouter() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        read_head(&mut stream).await;
        let agreed = "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: shout\r\ncontent-length: 5\r\n\r\n";
        stream.write_all(agreed.as_bytes()).await.unwrap();
        let mut buffer = [0; 64];
        while let Ok(count @ 1..) = stream.read(&mut buffer).await {
            stream
                .write_all(&buffer[..count].to_ascii_uppercase())
                .await
                .unwrap();
        }
    });
    address
}

async fn read_head(stream: &mut TcpStream) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.unwrap());
    }
    String::from_utf8(head).unwrap()
}

#[tokio::test]
async fn both_ends_can_send_after_an_upgrade() {
    let proxy = proxy_of(Upstream::parse(&[shouter().await]).unwrap());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        let connection = http1::Builder::new()
            .serve_connection(TokioIo::new(stream), TowerToHyperService::new(proxy));
        connection.with_upgrades().await.unwrap();
    });
    let mut client = TcpStream::connect(address).await.unwrap();
    let ask =
        "GET /chat HTTP/1.1\r\nhost: example.com\r\nconnection: upgrade\r\nupgrade: shout\r\n\r\n";
    client.write_all(ask.as_bytes()).await.unwrap();
    let head = read_head(&mut client).await.to_ascii_lowercase();
    assert!(
        head.starts_with("http/1.1 101") && head.contains("upgrade: shout\r\n"),
        "{head}"
    );
    assert!(
        !head.contains("content-length"),
        "a 101 has no content (RFC 9110 §8.6): {head}"
    );
    client.write_all(b"hello").await.unwrap();
    let mut reply = [0; 5];
    client.read_exact(&mut reply).await.unwrap();
    assert_eq!(&reply, b"HELLO");
    client.shutdown().await.unwrap();
    assert_eq!(client.read(&mut reply).await.unwrap(), 0);
}
