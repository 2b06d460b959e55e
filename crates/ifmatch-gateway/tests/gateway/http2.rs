//! HTTP/2, partly by hand-written frames: partial, excessive and cancelled requests.

use bytes::Bytes;
use h2::client::{Builder, ResponseFuture, SendRequest};
use h2::{Reason, RecvStream, SendStream};
use http::{Request, Response, StatusCode};
use ifmatch_testbed::within;
use support::Gateway;
use support::raw::{Connection, exchange};
use tokio::net::TcpStream;

use crate::frames::{
    self, INITIAL_WINDOW_SIZE, PING, PREFACE, SETTINGS, WINDOW_UPDATE, frame, setting,
};
use crate::{eventually, get, memory, put_head, wait_for};

/// Connects with prior knowledge. The stream windows are small, so responses don't fit.
async fn connect(gateway: &Gateway) -> SendRequest<Bytes> {
    let stream = TcpStream::connect(gateway.address()).await.unwrap();
    let mut builder = Builder::new();
    builder
        .initial_window_size(64 << 10)
        .initial_connection_window_size(1 << 20);
    let (client, connection) = builder.handshake(stream).await.unwrap();
    tokio::spawn(connection);
    client.ready().await.unwrap()
}

type Exchange = (ResponseFuture, SendStream<Bytes>);

fn put(client: &mut SendRequest<Bytes>, path: &str) -> Exchange {
    client
        .send_request(
            Request::put(format!("http://localhost{path}"))
                .body(())
                .unwrap(),
            false,
        )
        .unwrap()
}

async fn ask(
    client: &mut SendRequest<Bytes>,
    request: http::request::Builder,
) -> Response<RecvStream> {
    client
        .send_request(request.body(()).unwrap(), true)
        .unwrap()
        .0
        .await
        .unwrap()
}

async fn status(client: &mut SendRequest<Bytes>, path: &str) -> StatusCode {
    ask(client, Request::get(format!("http://localhost{path}")))
        .await
        .status()
}

/// Waits until the connection accepts no more requests, and returns the reason.
async fn closed(mut client: SendRequest<Bytes>) -> h2::Error {
    within("the end of the connection", async {
        loop {
            match client.ready().await {
                Ok(ready) => client = ready,
                Err(refused) => return refused,
            }
            tokio::task::yield_now().await;
        }
    })
    .await
}

#[tokio::test]
async fn responses_without_content_end_with_their_head() {
    let gateway = memory(&[]);
    let mut client = connect(&gateway).await;
    let (created, mut send) = put(&mut client, "/c/a");
    send.send_data("hello".into(), true).unwrap();
    let tag = created.await.unwrap().headers()["etag"].clone();
    let head = ask(&mut client, Request::head("http://localhost/c/a")).await;
    assert_eq!(
        (
            head.status(),
            head.headers()["content-length"].to_str().unwrap()
        ),
        (StatusCode::OK, "5")
    );
    let same = ask(
        &mut client,
        Request::get("http://localhost/c/a").header("if-none-match", &tag),
    )
    .await;
    assert_eq!(
        (same.status(), same.headers().get("content-length")),
        (StatusCode::NOT_MODIFIED, None)
    );
    let gone = ask(
        &mut client,
        Request::delete("http://localhost/c/a").header("if-match", &tag),
    )
    .await;
    assert_eq!(gone.status(), StatusCode::NO_CONTENT);
    for answer in [head, same, gone] {
        assert!(answer.body().is_end_stream(), "{answer:?}");
        assert!(
            answer.headers()["date"].to_str().unwrap().ends_with(" GMT"),
            "{answer:?}"
        );
    }
}

#[tokio::test]
async fn a_body_of_the_wrong_length_is_not_stored() {
    let gateway = memory(&[]);
    let mut client = connect(&gateway).await;
    for content in ["hell", "hello!"] {
        let request = Request::put("http://localhost/c/a").header("content-length", "5");
        let (response, mut send) = client
            .send_request(request.body(()).unwrap(), false)
            .unwrap();
        send.send_data(content.into(), true).unwrap();
        assert_eq!(
            response.await.unwrap_err().reason(),
            Some(Reason::PROTOCOL_ERROR),
            "{content}"
        );
    }
    assert_eq!(status(&mut client, "/c/a").await, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn a_large_head_gets_431_and_the_connection_stays_open() {
    let gateway = memory(&["--max-header-size", "8KiB"]);
    let mut client = connect(&gateway).await;
    let large = |size: usize| Request::get("http://localhost/c/a").header("x", "x".repeat(size));
    assert_eq!(
        ask(&mut client, large(7 << 10)).await.status(),
        StatusCode::NOT_FOUND
    );
    assert_eq!(
        ask(&mut client, large(8 << 10)).await.status(),
        StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE
    );
    assert_eq!(status(&mut client, "/c/a").await, StatusCode::NOT_FOUND);
}

#[test]
fn small_windows_and_pings_do_not_prevent_timeouts() {
    let gateway = memory(&["--body-timeout", "400ms"]);
    exchange(gateway.address(), put_head("a", 5_000) + &"x".repeat(5_000)).expect(201);
    let mut connection = Connection::open(gateway.address());
    let no_window = frame(SETTINGS, 0, 0, &setting(INITIAL_WINDOW_SIZE, 0));
    connection.send(
        [
            PREFACE,
            &no_window,
            &frames::get(1, "/c/a"),
            &frames::get(3, "/c/a"),
        ]
        .concat(),
    );
    let drip = [
        frame(PING, 0, 0, b"go on..."),
        frame(WINDOW_UPDATE, 0, 1, &1_u32.to_be_bytes()),
        frame(WINDOW_UPDATE, 0, 3, &1_u32.to_be_bytes()),
    ];
    eventually("both are given up", || {
        connection.send(drip.concat());
        let metrics = exchange(gateway.address(), get("/-/metrics"));
        metrics
            .text()
            .contains("ifmatch_timeouts_total{of=\"answer\"} 2\n")
            .then_some(())
    });
    wait_for(&gateway, "ifmatch_requests_in_flight 1");
}

#[tokio::test]
async fn an_idle_connection_is_closed_with_goaway() {
    let gateway = memory(&["--keep-alive", "300ms"]);
    let mut client = connect(&gateway).await;
    assert_eq!(status(&mut client, "/c/a").await, StatusCode::NOT_FOUND);
    assert!(closed(client).await.is_go_away());
}

/// 500 responses of 200 KiB each would take 100 MiB. A client's unread chunks take at most 32 MiB, and each response beyond them
/// 16 KiB.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_client_leaves_unread_takes_a_bounded_memory() {
    const LIMIT: u64 = 64 << 20;
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().to_str().unwrap().to_owned();
    let args = ["serve", "--data", &data, "--max-requests", "2000"];
    let gateway = tokio::task::block_in_place(|| Gateway::start(args));
    let body = vec![b'x'; 200 << 10];
    support::Client::new(gateway.address())
        .put("/c/a", &[], body)
        .await
        .expect(201);
    let before = gateway.memory().resident;
    let requests: Vec<u8> = (0..100)
        .flat_map(|number| frames::get(2 * number + 1, "/c/a"))
        .collect();
    let unread: Vec<Connection> = (0..5)
        .map(|_| {
            let mut connection = Connection::open(gateway.address());
            connection.send([PREFACE, &frame(SETTINGS, 0, 0, &[]), &requests].concat());
            connection
        })
        .collect();
    let mut last = 0;
    eventually("memory that doesn't grow any more", || {
        std::thread::sleep(std::time::Duration::from_millis(500));
        let resident = gateway.memory().resident;
        let grows = resident > last;
        last = resident;
        (!grows).then_some(())
    });
    let grown = gateway.memory().peak.saturating_sub(before);
    drop(unread);
    assert!(grown < LIMIT, "it has grown by {} MiB", grown >> 20);
}
