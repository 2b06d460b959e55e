//! Incoming bodies: requested late, verified, and removed if incomplete.

use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use http::{Method, Request, StatusCode};
use http_body::Frame;
use http_body_util::{Full, StreamBody};
use ifmatch_core::digest::ContentHash;
use tower::ServiceExt;

use crate::support::{bytes, fixture, request, send};

fn chunked<E: Send + 'static>(
    chunks: impl IntoIterator<Item = Result<Bytes, E>, IntoIter: Send + 'static>,
) -> impl http_body::Body<Data = Bytes, Error = E> + Send {
    StreamBody::new(stream::iter(chunks).map(|chunk| chunk.map(Frame::data)))
}

#[tokio::test]
async fn a_body_of_unknown_length_in_uneven_pieces_is_stored_whole() {
    let fixture = fixture().await;
    for size in [0, 100, 4096, 4097, 700_000] {
        let whole = bytes(size, 3);
        let mut rest = whole.clone();
        let mut next = 1;
        let pieces = std::iter::from_fn(move || {
            next = (next * 7) % 9973;
            (!rest.is_empty()).then(|| Ok::<_, Infallible>(rest.split_to(next.min(rest.len()))))
        });
        let put = Request::put("/c/b").body(chunked(pieces)).expect("valid");
        assert!(send(&fixture.service, put).await.status.is_success());
        assert_eq!(fixture.get("/c/b").await.body, whole);
    }
}

#[tokio::test]
async fn an_incomplete_body_changes_nothing() {
    let fixture = fixture().await;
    for (before, stops_after) in [("old", 10), ("old", 5_000), ("old", 700_000)] {
        let tag = fixture.put("/c/b", before).await.tag();
        let pieces = [Ok(bytes(stops_after, 1)), Err(io::Error::other("connection reset"))];
        let put = Request::put("/c/b").body(chunked(pieces)).expect("valid");
        let answer = send(&fixture.service, put).await;
        assert_eq!((answer.status.as_u16(), answer.problem().as_str()), (400, "content-incomplete"));
        let got = fixture.get("/c/b").await;
        assert_eq!((got.tag(), got.body), (tag, Bytes::from(before)));
        fixture.until_no_files().await;
    }
}

#[tokio::test]
async fn a_client_that_disconnects_leaves_no_file() {
    let fixture = fixture().await;
    let sent = (0..6).map(|at| Ok::<_, Infallible>(Frame::data(bytes(200_000, at))));
    let pieces = stream::iter(sent).chain(stream::pending());
    let put = Request::put("/c/b").body(StreamBody::new(pieces)).expect("valid");
    let answer = fixture.service.clone().oneshot(put);
    let file_exists = async {
        while fixture.files() == 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::select! {
        _ = answer => panic!("the body never ends"),
        () = file_exists => {}
    }
    fixture.until_no_files().await;
    assert_eq!(fixture.get("/c/b").await.status, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn a_wrong_length_is_refused() {
    let fixture = fixture().await;
    for (promised, sent) in [(5, 4), (5, 6), (100_000, 99_999), (100_000, 100_001)] {
        let put = Request::put("/c/b").header("content-length", promised);
        let put = put.body(chunked([Ok::<_, Infallible>(bytes(sent, 1))])).expect("valid");
        let answer = send(&fixture.service, put).await;
        assert_eq!((answer.status.as_u16(), answer.problem().as_str()), (400, "length-mismatch"), "{promised} {sent}");
    }
    assert_eq!(fixture.files(), 0);
}

#[tokio::test]
async fn a_wrong_digest_is_refused() {
    let fixture = fixture().await;
    for size in [5, 100_000] {
        let body = bytes(size, 1);
        let right = ContentHash::of(&body).repr_digest().expect("SHA-256");
        let right = right.to_str().expect("ASCII").to_owned();
        let wrong = ContentHash::of(b"other").repr_digest().expect("SHA-256");
        let wrong = wrong.to_str().expect("ASCII").to_owned();
        for name in ["repr-digest", "content-digest"] {
            let answer = fixture.send(request(Method::PUT, "/c/b", &[(name, &wrong)], body.clone())).await;
            assert_eq!((answer.status.as_u16(), answer.problem().as_str()), (400, "digest-mismatch"));
            assert_eq!(fixture.get("/c/b").await.status, StatusCode::NOT_FOUND);
        }
        assert_eq!(fixture.files(), 0);
        let both = [("repr-digest", right.as_str()), ("content-digest", &wrong)];
        let contradiction = fixture.send(request(Method::PUT, "/c/b", &both, body.clone())).await;
        assert_eq!(contradiction.status, StatusCode::BAD_REQUEST);
        let answer = fixture.send(request(Method::PUT, "/c/b", &[("repr-digest", &right)], body)).await;
        assert_eq!(answer.status, StatusCode::CREATED);
        fixture.send(request(Method::DELETE, "/c/b", &[], "")).await;
    }
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
        assert!(!asked.load(Ordering::SeqCst), "{name}: the body was asked for");
    }
}

#[tokio::test]
async fn a_body_over_the_limit_is_not_read_to_its_end() {
    let fixture = fixture().await;
    let service = fixture.service.clone().max_body(1_000_000);
    let endless = stream::repeat_with(|| Ok::<_, Infallible>(Frame::data(bytes(10_000, 1))));
    let put = Request::put("/c/b").body(StreamBody::new(endless)).expect("valid");
    let answer = send(&service, put).await;
    assert_eq!((answer.status.as_u16(), answer.json()["limit"].as_u64()), (413, Some(1_000_000)));
    fixture.until_no_files().await;
}

#[tokio::test]
async fn trailers_are_not_part_of_a_body() {
    let fixture = fixture().await;
    let frames = [Frame::data(Bytes::from("x")), Frame::trailers(http::HeaderMap::new())];
    let body = StreamBody::new(stream::iter(frames.map(Ok::<_, Infallible>)));
    assert_eq!(
        send(&fixture.service, Request::put("/c/b").body(body).expect("valid")).await.status,
        StatusCode::CREATED
    );
    assert_eq!(fixture.get("/c/b").await.body, "x");
}

#[tokio::test]
async fn the_service_accepts_any_body_type() {
    let fixture = fixture().await;
    let put = Request::put("/c/b").body(Full::new(Bytes::from_static(b"full"))).expect("valid");
    assert_eq!(send(&fixture.service, put).await.status, StatusCode::CREATED);
    let put = Request::put("/c/b").body(http_body_util::Empty::<Bytes>::new()).expect("valid");
    assert_eq!(send(&fixture.service, put).await.status, StatusCode::OK);
    assert_eq!(fixture.get("/c/b").await.body, "");
}
