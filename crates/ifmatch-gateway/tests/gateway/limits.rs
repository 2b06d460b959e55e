//! Limits, and clients that are slow or send malformed requests.

use support::raw::{Connection, exchange};
use support::{Client, Gateway};

use crate::frames::{
    GOAWAY, HEADERS, MAX_CONCURRENT_STREAMS, PREFACE, RST_STREAM, SETTINGS, frame, frames,
};
use crate::{eventually, get, memory, put_head, wait_for};

#[tokio::test]
async fn a_large_body_changes_nothing() {
    let gateway = Gateway::on_folder(&["--max-body-size", "100"]);
    let client = Client::new(gateway.address());
    let tag = client
        .put("/c/a", &[], vec![b'x'; 100])
        .await
        .expect(201)
        .etag()
        .to_owned();
    client.put("/c/a", &[], vec![b'y'; 101]).await.expect(413);
    let chunk = format!("65\r\n{}\r\n0\r\n\r\n", "z".repeat(0x65));
    let head = "PUT /c/a HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n";
    exchange(gateway.address(), format!("{head}{chunk}")).expect(413);
    let kept = client.get("/c/a", &[]).await.expect(200);
    assert_eq!((kept.etag(), kept.body.len()), (&*tag, 100));
}

/// The declared length is sufficient for a rejection, before any byte of the body.
#[test]
fn an_excessive_length_is_rejected_before_the_body() {
    let gateway = memory(&["--max-body-size", "1KiB"]);
    exchange(gateway.address(), put_head("a", 1025)).expect(413);
    exchange(gateway.address(), put_head("a", 1 << 60)).expect(413);
}

#[test]
fn large_heads_get_431() {
    let gateway = memory(&["--max-header-size", "8KiB"]);
    let with = |fields: &str| {
        exchange(
            gateway.address(),
            format!("GET / HTTP/1.1\r\nHost: h\r\n{fields}\r\n"),
        )
    };
    with(&format!("X: {}\r\n", "x".repeat(7 << 10))).expect(200);
    with(&format!("X: {}\r\n", "x".repeat(8 << 10))).expect(431);
    with(&"X: y\r\n".repeat(99)).expect(200);
    with(&"X: y\r\n".repeat(100)).expect(431);
    exchange(gateway.address(), get(&format!("/{}", "x".repeat(9 << 10)))).expect(431);
    // A reset may overtake the response to an endless head.
    let mut endless = Connection::open(gateway.address());
    endless.send("GET / HTTP/1.1\r\n");
    for _ in 0..1_000 {
        if endless
            .try_send("X: ".to_owned() + &"x".repeat(1 << 10) + "\r\n")
            .is_err()
        {
            break;
        }
    }
    let answer = endless.rest();
    assert!(
        answer.is_empty() || answer.starts_with(b"HTTP/1.1 431 "),
        "{}",
        String::from_utf8_lossy(&answer)
    );
}

#[test]
fn excess_requests_get_503_and_health_stays_available() {
    let gateway = memory(&["--max-requests", "1"]);
    let mut slow = Connection::open(gateway.address());
    slow.send(put_head("slow", 4));
    slow.send("12");
    // That request and the one for the metrics: its slot is taken.
    wait_for(&gateway, "ifmatch_requests_in_flight 2");
    let refused = exchange(gateway.address(), get("/")).expect(503);
    assert_eq!(refused.header("retry-after"), "1");
    assert_eq!(refused.header("content-type"), "application/problem+json");
    exchange(gateway.address(), get("/-/health")).expect(200);
    slow.send("34");
    slow.answer().expect(201);
    eventually("200 again", || {
        (exchange(gateway.address(), get("/")).status == 200).then_some(())
    });
}

/// If the rest weren't read, closing would reset the connection while the client is still sending, and the reset could
/// overtake the response.
#[test]
fn a_client_that_keeps_sending_sees_the_rejection() {
    let gateway = memory(&["--write-token", "w"]);
    let mut connection = Connection::open(gateway.address());
    let length = 32 << 20;
    for _ in 0..3 {
        connection.send(put_head("a", length));
        connection.send(vec![b'x'; length]);
        connection.answer().expect(401);
    }
    connection.send(get("/-/health"));
    connection.answer().expect(200);
}

#[test]
fn http2_streams_are_limited_and_rapid_resets_close_the_connection() {
    let gateway = memory(&[]);
    let mut connection = Connection::open(gateway.address());
    connection.send([PREFACE, &frame(SETTINGS, 0, 0, &[])].concat());
    // GET http://a/ by the static table (RFC 7541, appendix A), then cancelled immediately.
    let request = [0x82, 0x86, 0x84, 0x41, 1, b'a'];
    for stream in (1..20_000).step_by(2) {
        let open = frame(HEADERS, 0x5, stream, &request);
        let reset = frame(RST_STREAM, 0, stream, &8_u32.to_be_bytes());
        if connection.try_send([open, reset].concat()).is_err() {
            break;
        }
    }
    let frames = frames(&connection.rest());
    let (_, settings) = frames
        .iter()
        .find(|(kind, _)| *kind == SETTINGS)
        .expect("settings");
    let limit = settings
        .chunks(6)
        .find(|setting| setting[..2] == MAX_CONCURRENT_STREAMS.to_be_bytes())
        .expect("a limit");
    assert_eq!(limit[2..], 200_u32.to_be_bytes());
    assert!(
        frames.iter().any(|(kind, _)| *kind == GOAWAY),
        "a GOAWAY is expected"
    );
    exchange(gateway.address(), get("/-/health")).expect(200);
}

#[test]
fn a_partial_head_times_out() {
    let gateway = Gateway::start(["serve", "--store", "memory://", "--head-timeout", "300ms"]);
    for start in [
        "",
        "P",
        "PR",
        "PRI",
        "G",
        "GET / HTTP/1.1\r\nHost:",
        "PRI * HTTP/2.0\r\n\r\nSM\r\n",
    ] {
        let mut connection = Connection::open(gateway.address());
        connection.send(start);
        connection.rest();
    }
    wait_for(&gateway, r#"ifmatch_timeouts_total{of="head"} 7"#);
}

#[test]
fn an_idle_connection_is_closed() {
    let gateway = Gateway::start(["serve", "--store", "memory://", "--keep-alive", "300ms"]);
    let mut connection = Connection::open(gateway.address());
    connection.send(get("/-/health"));
    connection.answer().expect(200);
    assert!(connection.rest().is_empty());
}

#[tokio::test]
async fn a_stalled_body_gets_408_and_changes_nothing() {
    let gateway = Gateway::on_folder(&["--body-timeout", "400ms"]);
    let client = Client::new(gateway.address());
    let tag = client
        .put("/c/a", &[], "old")
        .await
        .expect(201)
        .etag()
        .to_owned();
    for part in ["", "n", &"n".repeat(5_000)] {
        let mut connection = Connection::open(gateway.address());
        connection.send(put_head("a", 10_000));
        connection.send(part);
        let answer = connection.answer().expect(408);
        assert_eq!(answer.header("connection"), "close");
        assert!(connection.rest().is_empty(), "408 ends the connection");
    }
    let kept = client.get("/c/a", &[]).await.expect(200);
    assert_eq!((kept.text(), kept.etag()), ("old", &*tag));
    wait_for(&gateway, r#"ifmatch_timeouts_total{of="body"} 3"#);
}

#[tokio::test]
async fn a_client_that_does_not_read_its_response_is_disconnected() {
    let gateway = Gateway::on_folder(&["--body-timeout", "400ms"]);
    let client = Client::new(gateway.address());
    client
        .put("/c/big", &[], vec![b'x'; 64 << 20])
        .await
        .expect(201);
    let mut connection = Connection::open(gateway.address());
    connection.send(get("/c/big"));
    wait_for(&gateway, r#"ifmatch_timeouts_total{of="answer"} 1"#);
    assert!(connection.rest().len() < 64 << 20);
}

#[test]
fn the_endpoints_reject_bad_requests_as_well() {
    let gateway = Gateway::on_folder(&[]);
    for (sent, status) in [
        (
            "GET /-/health HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n\r\n",
            400,
        ),
        ("GET /-/health HTTP/1.1\r\n\r\n", 400),
        ("GET /-/health HTTP/1.0\r\n\r\n", 200),
        (
            "POST /-/leases/c HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: identity, chunked\r\n\r\n0\r\n\r\n",
            501,
        ),
    ] {
        exchange(gateway.address(), sent).expect(status);
    }
}
