//! Tests of the test clients: if they misread framing, no other test could be trusted.

use std::convert::Infallible;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::panic::{AssertUnwindSafe, catch_unwind};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, Response};
use http_body_util::{BodyExt, Collected, Full};
use hyper::body::Incoming;
use support::{Answer, Body, Server, full, raw};
use tower::service_fn;

/// Answers one connection with these bytes and closes it.
fn server_of(bytes: &'static [u8]) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.read_exact(&mut [0; GET.len()]).unwrap();
        stream.write_all(bytes).unwrap();
    });
    address
}

const GET: &str = "GET / HTTP/1.1\r\nHost: test\r\n\r\n";

fn answer_to_get(bytes: &'static [u8]) -> Answer {
    raw::exchange(server_of(bytes), GET)
}

#[test]
fn content_ends_according_to_its_framing() {
    let length = answer_to_get(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabcdef");
    let close = answer_to_get(b"HTTP/1.1 200 OK\r\n\r\nabcdef");
    let none = answer_to_get(b"HTTP/1.1 304 Not Modified\r\nContent-Length: 3\r\n\r\nabcdef");
    assert_eq!(
        [length.text(), close.text(), none.text()],
        ["abc", "abcdef", ""]
    );
}

#[test]
fn chunks_are_joined_and_trailers_kept() {
    let head =
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4;x=y\r\nab\r\n\r\n1\r\nc\r\n0\r\nETag: \"t\"\r\n\r\n";
    let answer = answer_to_get(head);
    assert_eq!(answer.text(), "ab\r\nc");
    assert_eq!(answer.trailers["etag"], "\"t\"");
}

#[test]
fn truncated_content_is_an_error() {
    for cut in [
        "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nab",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\na",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n",
        "HTTP/1.1 200 OK\r\nContent-Le",
        "",
    ] {
        let address = server_of(cut.as_bytes());
        assert!(
            catch_unwind(AssertUnwindSafe(|| raw::exchange(address, GET))).is_err(),
            "{cut:?} was taken as complete"
        );
    }
}

#[test]
fn an_interim_response_is_read_alone() {
    let address =
        server_of(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
    let mut connection = raw::Connection::open(address);
    connection.send(GET);
    assert_eq!(connection.answer().status, 100);
    assert_eq!(connection.answer().text(), "ok");
    assert_eq!(connection.rest(), b"");
}

/// Sends the request's content back, and its `X-Tag` after it.
async fn echo(request: Request<Incoming>) -> Result<Response<Body>, Infallible> {
    let tag = request.headers().get("x-tag").cloned();
    let content = request
        .into_body()
        .collect()
        .await
        .map_or_else(|_| Bytes::new(), Collected::to_bytes);
    let Some(tag) = tag else {
        return Ok(Response::new(full(content)));
    };
    let trailers = HeaderMap::from_iter([(http::header::ETAG, tag)]);
    let body = Full::new(content).with_trailers(std::future::ready(Some(Ok(trailers))));
    let mut response = Response::new(
        body.map_err(|never: Infallible| match never {})
            .boxed_unsync(),
    );
    response
        .headers_mut()
        .insert("trailer", HeaderValue::from_static("etag"));
    // A body with a declared length can't have trailers.
    response
        .headers_mut()
        .insert("transfer-encoding", HeaderValue::from_static("chunked"));
    Ok(response)
}

#[tokio::test(flavor = "multi_thread")]
async fn both_clients_read_the_same_from_a_real_server() {
    let server = Server::start(service_fn(echo)).await;
    let client = server.client();
    let pooled = client.put("/a?b", &[], "content").await.expect(200);
    let by_hand = raw::exchange(
        server.address(),
        "PUT /a?b HTTP/1.1\r\nHost: t\r\nContent-Length: 7\r\n\r\ncontent",
    );
    assert_eq!((pooled.text(), by_hand.text()), ("content", "content"));
    assert_eq!(
        pooled.header("content-length"),
        by_hand.header("content-length")
    );

    let headers = [("x-tag", "\"t\""), ("te", "trailers")];
    let pooled = client.put("/", &headers, "content").await;
    let by_hand = raw::exchange(
        server.address(),
        "PUT / HTTP/1.1\r\nHost: t\r\nX-Tag: \"t\"\r\nTE: trailers\r\nContent-Length: 7\r\n\r\ncontent",
    );
    for answer in [pooled, by_hand] {
        assert_eq!(
            (answer.text(), &answer.trailers["etag"]),
            ("content", &HeaderValue::from_static("\"t\""))
        );
    }
}
