//! Ranges: one, several, none; in memory and in a file.

use std::time::Duration;

use http::{Method, StatusCode};

use crate::support::{Answer, Fixture, bytes, fixture, request};

const SIZES: [usize; 2] = [1000, 400_000];

async fn ranged(fixture: &Fixture, fields: &[(&str, &str)]) -> Answer {
    fixture.send(request(Method::GET, "/c/b", fields, "")).await
}

#[tokio::test]
async fn one_range_is_a_206_with_these_bytes() {
    for size in SIZES {
        let fixture = fixture().await;
        let body = bytes(size, 1);
        let tag = fixture.put("/c/b", body.clone()).await.tag();
        for (range, start, end) in [
            ("bytes=0-0".to_owned(), 0, 1),
            ("bytes=10-499".to_owned(), 10, 500),
            ("bytes=990-".to_owned(), 990, size),
            ("bytes=-7".to_owned(), size - 7, size),
            ("bytes=-99999999".to_owned(), 0, size),
            (format!("bytes={}-18446744073709551615", size - 1), size - 1, size),
        ] {
            let answer = ranged(&fixture, &[("range", &range), ("if-match", &tag)]).await;
            assert_eq!((answer.status, answer.tag()), (StatusCode::PARTIAL_CONTENT, tag.clone()), "{range}");
            assert_eq!(answer.field("content-range"), format!("bytes {start}-{}/{size}", end - 1));
            assert_eq!(answer.field("content-length"), (end - start).to_string());
            assert_eq!(answer.body, body.slice(start..end), "{range}");
        }
    }
}

#[tokio::test]
async fn several_ranges_are_a_multipart_of_the_declared_length() {
    for size in SIZES {
        let fixture = fixture().await;
        let body = bytes(size, 1);
        fixture.send(request(Method::PUT, "/c/b", &[("content-type", "text/plain")], body.clone())).await;
        let last = format!("bytes=500-599, 0-0, {}-", size - 3);
        let answer = ranged(&fixture, &[("range", &last)]).await;
        assert_eq!(answer.status, StatusCode::PARTIAL_CONTENT);
        assert!(!answer.headers.contains_key("content-range"));
        let boundary =
            answer.field("content-type").strip_prefix("multipart/byteranges; boundary=").expect("a boundary");
        let mut expected = Vec::new();
        for (at, part) in [500..600, 0..1, size - 3..size].into_iter().enumerate() {
            let break_line = if at == 0 { "" } else { "\r\n" };
            let head = format!(
                "{break_line}--{boundary}\r\nContent-Type: text/plain\r\nContent-Range: bytes {}-{}/{size}\r\n\r\n",
                part.start,
                part.end - 1
            );
            expected.extend_from_slice(head.as_bytes());
            expected.extend_from_slice(&body[part]);
        }
        expected.extend_from_slice(format!("\r\n--{boundary}--\r\n").as_bytes());
        assert_eq!(answer.body, expected);
        assert_eq!(answer.field("content-length"), expected.len().to_string());
    }
}

#[tokio::test]
async fn a_range_beyond_the_end_gets_416_with_the_length() {
    let fixture = fixture().await;
    let tag = fixture.put("/c/b", bytes(1000, 1)).await.tag();
    for range in ["bytes=1000-", "bytes=5000-6000", "bytes=-0"] {
        let answer = ranged(&fixture, &[("range", range)]).await;
        assert_eq!((answer.status, answer.field("content-range")), (StatusCode::RANGE_NOT_SATISFIABLE, "bytes */1000"));
        assert_eq!((answer.tag(), answer.problem().as_str()), (tag.clone(), "range-not-satisfiable"));
    }
}

#[tokio::test]
async fn an_invalid_range_is_ignored() {
    let fixture = fixture().await;
    fixture.put("/c/b", bytes(1000, 1)).await;
    let thousands = (0..1001).map(|at| format!("{at}-{at}")).collect::<Vec<_>>().join(",");
    let thousands = format!("bytes={thousands}");
    for range in ["lines=0-1", "bytes=5-1", "bytes=", "bytes", "bytes=a-b", "bytes=0-9,5-14", &thousands] {
        let answer = ranged(&fixture, &[("range", range)]).await;
        assert_eq!((answer.status, answer.body.len()), (StatusCode::OK, 1000), "{range}");
    }
    let twice = ranged(&fixture, &[("range", "bytes=0-0"), ("range", "bytes=1-1")]).await;
    assert_eq!(twice.status, StatusCode::OK);
    let head = fixture.send(request(Method::HEAD, "/c/b", &[("range", "bytes=0-0")], "")).await;
    assert_eq!((head.status, head.field("content-length")), (StatusCode::OK, "1000"));
}

#[tokio::test]
async fn if_range_holds_for_the_current_strong_validator_only() {
    let fixture = fixture().await;
    let old = fixture.put("/c/b", bytes(1000, 1)).await.tag();
    // A version of the same second would have a later date.
    fixture.clock.advance(Duration::from_secs(1));
    let tag = fixture.put("/c/b", bytes(1000, 1)).await.tag();
    fixture.clock.advance(Duration::from_millis(500));
    let date = fixture.get("/c/b").await.field("last-modified").to_owned();
    let weak = format!("W/{tag}");
    let with =
        async |value: &str| ranged(&fixture, &[("range", "bytes=0-9"), ("if-range", value)]).await.status.as_u16();
    assert_eq!(with(&date).await, 200, "the date's second is not over");
    fixture.clock.advance(Duration::from_secs(1));
    for (value, status) in [(tag.as_str(), 206), (&old, 200), (&weak, 200), (&date, 206), ("\"x\"", 200)] {
        assert_eq!(with(value).await, status, "{value}");
    }
    assert_eq!(with("Sat, 01 Jan 2050 00:00:00 GMT").await, 200);
}

#[tokio::test]
async fn an_empty_blob_has_no_ranges() {
    let fixture = fixture().await;
    fixture.put("/c/b", "").await;
    assert_eq!(ranged(&fixture, &[("range", "bytes=0-")]).await.status, StatusCode::RANGE_NOT_SATISFIABLE);
    assert_eq!(ranged(&fixture, &[("range", "bytes=-5")]).await.status, StatusCode::OK);
}
