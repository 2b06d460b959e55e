//! Incoming bodies: requested late, verified, and removed if incomplete.

use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use http::{Request, StatusCode};
use http_body::Frame;
use http_body_util::StreamBody;
use ifmatch_core::digest::ContentHash;
use tower::ServiceExt;

use crate::support::{Service, bytes, fixture, send};

#[tokio::test]
async fn a_body_that_is_not_as_declared_changes_nothing_and_leaves_no_file() {
    let fixture = fixture().await;
    let service = fixture.service.clone().max_body(1_000_000);
    let tag = fixture.put("/c/b", "old").await.tag();
    let other = ContentHash::of(b"other").repr_digest().expect("SHA-256");
    let other = other.to_str().expect("ASCII");
    for (length, promised) in [
        (10, "11"),
        (10, "9"),
        (100_000, "100001"),
        (100_000, "99999"),
    ] {
        refused(
            &service,
            ("content-length", promised),
            length,
            None,
            (400, "length-mismatch"),
        )
        .await;
    }
    for length in [10, 5_000, 700_000] {
        let reset = Some(io::Error::other("connection reset"));
        refused(
            &service,
            ("x-meta-a", "b"),
            length,
            reset,
            (400, "content-incomplete"),
        )
        .await;
        for name in ["repr-digest", "content-digest"] {
            refused(
                &service,
                (name, other),
                length,
                None,
                (400, "digest-mismatch"),
            )
            .await;
        }
    }
    refused(
        &service,
        ("x-meta-a", "b"),
        1_000_001,
        None,
        (413, "content-too-large"),
    )
    .await;
    let got = fixture.get("/c/b").await;
    assert_eq!((got.tag(), got.body), (tag, Bytes::from("old")));
    fixture.until_no_files().await;
}

/// Sends a body of this length in pieces, which may end in an error.
async fn refused(
    service: &Service,
    (name, value): (&str, &str),
    length: usize,
    end: Option<io::Error>,
    expected: (u16, &str),
) {
    let whole = bytes(length, 1);
    let pieces = (0..length)
        .step_by(60_000)
        .map(|at| Ok(whole.slice(at..length.min(at + 60_000))));
    let pieces: Vec<_> = pieces
        .chain(end.map(Err))
        .map(|piece| piece.map(Frame::data))
        .collect();
    let put = Request::put("/c/b")
        .header(name, value)
        .body(StreamBody::new(stream::iter(pieces)))
        .expect("valid");
    let answer = send(service, put).await;
    assert_eq!(
        (answer.status.as_u16(), answer.problem().as_str()),
        expected,
        "{name}: {value}, {length} bytes"
    );
}

#[tokio::test]
async fn a_client_that_disconnects_leaves_no_file() {
    let fixture = fixture().await;
    let sent = (0..6).map(|at| Ok::<_, Infallible>(Frame::data(bytes(200_000, at))));
    let pieces = stream::iter(sent).chain(stream::pending());
    let put = Request::put("/c/b")
        .body(StreamBody::new(pieces))
        .expect("valid");
    let answer = fixture.service.clone().oneshot(put);
    let file_exists = async {
        while fixture.files() == 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::select! {
        _ = answer => panic!("the body never ends"),
        exists = tokio::time::timeout(Duration::from_mins(1), file_exists) => {
            exists.expect("a file within a minute");
        }
    }
    fixture.until_no_files().await;
    assert_eq!(fixture.get("/c/b").await.status, StatusCode::NOT_FOUND);
}

/// The first poll of a body requests it from a client that waits for `100 Continue`.
#[tokio::test]
async fn the_body_of_a_request_refused_by_its_head_is_not_read() {
    let fixture = fixture().await;
    fixture.put("/c/b", "old").await;
    let service = fixture.service.clone().max_body(1000);
    for (name, value, status) in [
        ("if-none-match", "*", 412),
        ("if-match", "\"other\"", 412),
        ("content-length", "1001", 413),
        ("content-range", "bytes 0-1/2", 400),
    ] {
        let asked = Arc::new(AtomicBool::new(false));
        let poll = Arc::clone(&asked);
        let body = stream::once(async move {
            poll.store(true, Ordering::SeqCst);
            Ok::<_, Infallible>(Frame::data(Bytes::from("new")))
        });
        let put = Request::put("/c/b").header(name, value);
        let put = put.body(StreamBody::new(Box::pin(body))).expect("valid");
        assert_eq!(send(&service, put).await.status.as_u16(), status, "{name}");
        assert!(
            !asked.load(Ordering::SeqCst),
            "{name}: the body was asked for"
        );
    }
}

#[tokio::test]
async fn trailers_are_not_part_of_a_body() {
    let fixture = fixture().await;
    let frames = [
        Frame::data(Bytes::from("x")),
        Frame::trailers(http::HeaderMap::new()),
    ];
    let body = StreamBody::new(stream::iter(frames.map(Ok::<_, Infallible>)));
    assert_eq!(
        send(
            &fixture.service,
            Request::put("/c/b").body(body).expect("valid")
        )
        .await
        .status,
        StatusCode::CREATED
    );
    assert_eq!(fixture.get("/c/b").await.body, "x");
}
