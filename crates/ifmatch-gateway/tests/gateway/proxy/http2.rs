//! HTTP/2 requests as forwarded to an HTTP/1.1 origin.

use bytes::Bytes;
use h2::client::{self, SendRequest};
use h2::server;
use http::{Method, Request, Response, StatusCode};
use support::Gateway;
use support::origin::{Origin, ok};
use support::raw::Connection;
use tokio::net::{TcpListener, TcpStream};

use super::before;
use crate::frames::{self, GOAWAY, HEADERS, PREFACE, RST_STREAM, SETTINGS, frame};

async fn connect(gateway: &Gateway) -> SendRequest<Bytes> {
    let stream = TcpStream::connect(gateway.address()).await.unwrap();
    let (client, connection) = client::handshake(stream).await.unwrap();
    tokio::spawn(connection);
    client.ready().await.unwrap()
}

/// Returns the response status for a request with these fields, or `None` if the stream was reset.
async fn ask(
    client: &mut SendRequest<Bytes>,
    uri: &str,
    fields: &[(&str, &str)],
    content: &'static str,
) -> Option<StatusCode> {
    let request = Request::builder().method(Method::POST).uri(uri);
    let request = fields.iter().fold(request, |request, (name, value)| {
        request.header(*name, *value)
    });
    let (response, mut stream) = client
        .send_request(request.body(()).unwrap(), false)
        .unwrap();
    stream.send_data(content.into(), true).unwrap();
    response.await.ok().map(|response| response.status())
}

#[tokio::test]
async fn invalid_hosts_are_not_forwarded() {
    let origin = Origin::start(|_| ok("", ""));
    let gateway = before(&origin, &[]);
    let mut client = connect(&gateway).await;
    assert_eq!(
        ask(
            &mut client,
            "http://shop.example:80/",
            &[("host", "SHOP.example")],
            ""
        )
        .await,
        Some(StatusCode::OK)
    );
    let asked = origin.asked().len();
    for odd in [
        "evil@shop.example",
        "evil:x@shop.example",
        "shop.example:x",
        "shop.example:99999",
    ] {
        let status = ask(&mut client, &format!("http://{odd}/"), &[], "").await;
        assert_eq!(status, Some(StatusCode::BAD_REQUEST), "{odd}");
    }
    for odd in [
        "evil.example",
        "evil@shop.example",
        "shop.example:x",
        "shop.example/evil",
        "shop.example evil",
        "",
        "a,b",
    ] {
        let status = ask(&mut client, "http://shop.example/", &[("host", odd)], "").await;
        assert_eq!(status, Some(StatusCode::BAD_REQUEST), "{odd}");
    }
    let twice = [("host", "shop.example"), ("host", "shop.example")];
    assert_eq!(
        ask(&mut client, "http://shop.example/", &twice, "").await,
        Some(StatusCode::BAD_REQUEST)
    );
    assert_eq!(origin.asked().len(), asked, "{:?}", origin.asked());
}

/// An error of gRPC is often one HEADERS frame (Trailers-Only). Clients take an empty DATA frame after it for a missing status.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_that_ends_with_its_head_is_forwarded_as_one_frame() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("h2c://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            tokio::spawn(async move {
                let mut connection = server::handshake(stream).await.unwrap();
                while let Some(Ok((_, mut reply))) = connection.accept().await {
                    let error = Response::builder()
                        .header("content-type", "application/grpc")
                        .header("grpc-status", "5");
                    reply.send_response(error.body(()).unwrap(), true).unwrap();
                }
            });
        }
    });
    for flags in [&[][..], &["--cache", "0"], &["--guard-writes"]] {
        let gateway = Gateway::start(["proxy", "--upstream", &url].iter().chain(flags));
        let mut connection = Connection::open(gateway.address());
        let goodbye = frame(GOAWAY, 0, 0, &[0; 8]);
        connection.send(
            [
                PREFACE,
                &frame(SETTINGS, 0, 0, &[]),
                &frames::get(1, "/"),
                &goodbye,
            ]
            .concat(),
        );
        let answer = frames::frames(&connection.rest());
        let kinds: Vec<u8> = answer
            .iter()
            .map(|(kind, _)| *kind)
            .filter(|kind| *kind <= RST_STREAM)
            .collect();
        assert_eq!(kinds, [HEADERS], "{flags:?}: {answer:?}");
    }
}
