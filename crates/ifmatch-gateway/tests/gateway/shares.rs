//! Connections and requests that one client may hold while others wait.

use std::fmt::Write;
use std::net::{Ipv4Addr, SocketAddr};

use http::Method;
use support::azure::{DEVELOPMENT_ACCOUNT, DEVELOPMENT_KEY, Form, Signer, signed};
use support::raw::Connection;
use support::{Answer, Gateway};

use crate::frames::{
    self, GOAWAY, INITIAL_WINDOW_SIZE, PREFACE, SETTINGS, frame, get_with, setting,
};
use crate::{eventually, get, memory, put_head, wait_for};

const ONE: Ipv4Addr = Ipv4Addr::LOCALHOST;
const OTHER: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 9);

fn open(gateway: &Gateway, from: Ipv4Addr) -> Connection {
    Connection::open_from(from.into(), gateway.address())
}

/// Writes in progress at the gateway, which continue while their connections are open.
fn half_puts(gateway: &Gateway, count: usize) -> Vec<Connection> {
    let puts = (0..count).map(|number| {
        let mut put = open(gateway, ONE);
        put.send(put_head(&number.to_string(), 4) + "12");
        put
    });
    let puts = puts.collect();
    // These writes and the request for the metrics.
    wait_for(
        gateway,
        &format!("ifmatch_requests_in_flight {}", count + 1),
    );
    puts
}

#[track_caller]
fn ask(gateway: &Gateway, from: Ipv4Addr, status: u16) {
    ask_for(gateway, from, "/").expect(status);
}

fn ask_for(gateway: &Gateway, from: Ipv4Addr, path: &str) -> Answer {
    let mut connection = open(gateway, from);
    connection.send(get(path));
    connection.answer()
}

#[test]
fn one_client_cannot_take_all_request_slots() {
    let gateway = memory(&["--max-requests", "4"]);
    let _puts = half_puts(&gateway, 2);
    ask(&gateway, ONE, 503);
    ask(&gateway, OTHER, 200);
    wait_for(&gateway, r#"ifmatch_turned_away_total{what="request"} 1"#);
}

/// Sends a signed request whose body is `announced` bytes long, and as much of it as is given.
fn begin(
    (from, address): (Ipv4Addr, SocketAddr),
    form: Form,
    (method, path, fields): (Method, &str, &[(&str, &str)]),
    announced: usize,
    body: &str,
) -> Connection {
    let length = announced.to_string();
    let signer = Signer::new(DEVELOPMENT_ACCOUNT, DEVELOPMENT_KEY);
    let fields = [
        &[("content-length", length.as_str()), ("host", "test")],
        fields,
    ]
    .concat();
    let request = signed(&signer, form, method, path, &fields, "".into());
    let mut head = format!("{} {} HTTP/1.1\r\n", request.method(), request.uri());
    for (name, value) in request.headers() {
        let _ = write!(head, "{name}: {}\r\n", value.to_str().unwrap());
    }
    let mut connection = Connection::open_from(from.into(), address);
    connection.send(head + "\r\n");
    connection.send(body);
    connection
}

/// Lists of blocks that don't end, from one client, fill its half of the memory for documents. Another client's list is taken, and so
/// is a read of a blob by the same client; its listings, and its entity on another listener, are refused like its lists, until the
/// connections end.
#[test]
fn one_client_cannot_take_all_memory_for_documents() {
    const LIST: usize = 8 << 20;
    let mut gateway = Gateway::on_folder(&["--listen-tables", "127.0.0.1:0"]);
    let (blobs, tables) = (gateway.address(), gateway.tables());
    let put = (Method::PUT, "/box?restype=container", &[][..]);
    begin((ONE, blobs), Form::Blob, put, 0, "")
        .answer()
        .expect(201);
    // All but a few bytes of the half.
    let flood: Vec<_> = (0..8)
        .map(|number| {
            let path = format!("/box/{number}?comp=blocklist");
            begin(
                (ONE, blobs),
                Form::Blob,
                (Method::PUT, &path, &[]),
                LIST,
                &" ".repeat(LIST - 1),
            )
        })
        .collect();
    wait_for(
        &gateway,
        &format!("ifmatch_document_bytes {}", 8 * (LIST - 1)),
    );
    let list = "<BlockList></BlockList>";
    let commit = |from| {
        let put = (Method::PUT, "/box/a?comp=blocklist", &[][..]);
        begin((from, blobs), Form::Blob, put, list.len(), list).answer()
    };
    let table = r#"{"TableName":"people"}"#;
    let create = |from| {
        let post = (
            Method::POST,
            "/Tables",
            &[("content-type", "application/json")][..],
        );
        begin((from, tables), Form::Table, post, table.len(), table).answer()
    };
    let refused = |answer: Answer| {
        let answer = answer.expect(503);
        assert_eq!(
            (
                answer.header("x-ms-error-code"),
                answer.header("retry-after")
            ),
            ("ServerBusy", "1")
        );
    };
    refused(commit(ONE));
    refused(create(ONE));
    commit(OTHER).expect(201);
    create(OTHER).expect(201);
    for listing in ["/", "/-/leases", "/-/leases/box", "/-/conflicts"] {
        ask_for(&gateway, OTHER, listing).expect(200);
        assert_eq!(
            ask_for(&gateway, ONE, listing)
                .expect(503)
                .header("retry-after"),
            "1",
            "{listing}"
        );
    }
    for state in ["/-/health", "/-/ready", "/-/metrics", "/-/overview"] {
        ask_for(&gateway, ONE, state).expect(200);
    }
    let mut read = open(&gateway, ONE);
    read.send(get("/box/a"));
    read.answer().expect(200);
    drop(flood);
    eventually("the memory is free again", || {
        (commit(ONE).status == 201).then_some(())
    });
}

/// The listings of the endpoints, of the gateway and of a proxy, count until their client has read them or has left.
#[test]
fn an_unread_listing_of_an_endpoint_occupies_memory() {
    let no_window = frame(SETTINGS, 0, 0, &setting(INITIAL_WINDOW_SIZE, 0));
    let proxy = Gateway::start(["proxy", "--upstream", "http://127.0.0.1:9"]);
    let blobs = memory(&[]);
    for (gateway, path) in [
        (&blobs, "/-/leases"),
        (&blobs, "/-/conflicts"),
        (&proxy, "/-/conflicts"),
    ] {
        let length = ask_for(gateway, ONE, path).expect(200).body.len();
        // What was reserved before a listing is built is kept.
        let occupied = if path == "/-/conflicts" {
            length.max(64 << 10)
        } else {
            length
        };
        let mut unread = open(gateway, ONE);
        unread.send([PREFACE, &no_window, &frames::get(1, path)].concat());
        wait_for(gateway, &format!("ifmatch_document_bytes {occupied}"));
        drop(unread);
        wait_for(gateway, "ifmatch_document_bytes 0");
    }
}

/// The gateway's own responses and rejections don't occupy request slots, and aren't read here.
#[test]
fn one_client_cannot_accumulate_unread_responses() {
    let gateway = memory(&["--max-requests-per-client", "1"]);
    let no_window = frame(SETTINGS, 0, 0, &setting(INITIAL_WINDOW_SIZE, 0));
    let mut piles: Vec<_> = (0..3).map(|_| open(&gateway, ONE)).collect();
    // Of 306 requests, twice the limit and 200 are admitted.
    let seen = [
        "requests_in_flight 103",
        "turned_away_total{what=\"request\"} 2",
        "turned_away_total{what=\"request\"} 104",
    ];
    for (pile, seen) in piles.iter_mut().zip(seen) {
        pile.send([PREFACE, &no_window].concat());
        for stream in (1..204).step_by(2) {
            pile.send(frames::get(stream, "/-/health"));
        }
        eventually(seen, || {
            let mut other = open(&gateway, OTHER);
            other.send(get("/-/metrics"));
            other
                .answer()
                .expect(200)
                .text()
                .contains(&format!("\nifmatch_{seen}\n"))
                .then_some(())
        });
    }
}

/// The client doesn't read the response to its request without a signature.
#[test]
fn a_rejected_request_takes_no_slot() {
    let gateway = memory(&["--max-requests-per-client", "1", "--body-timeout", "1h"]);
    let mut unread = open(&gateway, ONE);
    let no_window = frame(SETTINGS, 0, 0, &setting(INITIAL_WINDOW_SIZE, 0));
    let unsigned = get_with(
        1,
        "/devstoreaccount1/c/a",
        &[("x-ms-version", "2026-02-06")],
    );
    unread.send([PREFACE, &no_window, &unsigned].concat());
    // This request and the one for the metrics.
    let in_progress = "ifmatch_requests_in_flight 2";
    wait_for(&gateway, in_progress);
    eventually("a slot", || {
        let mut next = open(&gateway, ONE);
        next.send(get("/"));
        (next.answer().status == 200).then_some(())
    });
    wait_for(&gateway, in_progress);
}

#[test]
fn the_request_limit_per_client_can_be_set() {
    let gateway = memory(&["--max-requests", "4", "--max-requests-per-client", "4"]);
    let _puts = half_puts(&gateway, 3);
    ask(&gateway, ONE, 200);
    let gateway = memory(&["--max-requests-per-client", "1"]);
    let _puts = half_puts(&gateway, 1);
    ask(&gateway, ONE, 503);
    ask(&gateway, OTHER, 200);
}

#[test]
fn idle_connections_are_evicted() {
    let gateway = memory(&[
        "--max-connections",
        "2",
        "--max-connections-per-client",
        "2",
    ]);
    let mut idle: Vec<_> = (0..2).map(|_| open(&gateway, ONE)).collect();
    for connection in &mut idle {
        connection.send(get("/-/health"));
        connection.answer().expect(200);
    }
    ask(&gateway, OTHER, 200);
    let is_open = |connection: &mut Connection| {
        connection.try_send(get("/-/health")).is_ok() && connection.is_answered()
    };
    assert!(!idle.iter_mut().all(is_open), "one of them was closed");
}

/// A client that learns which requests were processed can send the others elsewhere.
#[test]
fn an_evicted_http2_connection_gets_goaway() {
    let gateway = memory(&["--max-connections", "1"]);
    let mut idle = open(&gateway, ONE);
    idle.send(
        [
            PREFACE,
            &frame(SETTINGS, 0, 0, &[]),
            &frames::get(1, "/-/health"),
        ]
        .concat(),
    );
    assert!(idle.is_answered());
    ask(&gateway, OTHER, 200);
    let answer = frames::frames(&idle.rest());
    let (_, go_away) = answer
        .iter()
        .find(|(kind, _)| *kind == GOAWAY)
        .expect("GOAWAY");
    assert_eq!(
        go_away[..8],
        [0, 0, 0, 1, 0, 0, 0, 0],
        "after stream 1, without an error"
    );
}

#[test]
fn a_client_at_its_limit_gets_no_further_connection() {
    let gateway = memory(&["--max-connections-per-client", "2"]);
    let mut put = open(&gateway, ONE);
    put.send(put_head("a", 4) + "12");
    let mut second = open(&gateway, ONE);
    second.send(put_head("b", 4) + "12");
    eventually("both requests are in progress", || {
        let mut other = open(&gateway, OTHER);
        other.send(get("/-/metrics"));
        other
            .answer()
            .text()
            .contains("\nifmatch_requests_in_flight 3\n")
            .then_some(())
    });
    let mut third = open(&gateway, ONE);
    assert!(!third.is_answered(), "closed");
    put.send("34");
    put.answer().expect(201);
    // Idle from now on, so it is evicted for the next connection.
    eventually("another connection", || {
        let mut another = open(&gateway, ONE);
        another.try_send(get("/")).ok()?;
        another.is_answered().then_some(())
    });
    assert!(put.rest().is_empty());
}
