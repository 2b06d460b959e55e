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
            assert_eq!(answer.header("content-range"), format!("bytes {start}-{}/{size}", end - 1));
            assert_eq!(answer.header("content-length"), (end - start).to_string());
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
            answer.header("content-type").strip_prefix("multipart/byteranges; boundary=").expect("a boundary");
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
        assert_eq!(answer.header("content-length"), expected.len().to_string());
    }
}

#[tokio::test]
async fn a_date_is_a_strong_validator_once_its_second_is_over() {
    let fixture = fixture().await;
    fixture.put("/c/b", bytes(1000, 1)).await;
    fixture.clock.advance(Duration::from_millis(500));
    let date = fixture.get("/c/b").await.header("last-modified").to_owned();
    let with_date = async || ranged(&fixture, &[("range", "bytes=0-9"), ("if-range", &date)]).await.status;
    assert_eq!(with_date().await, StatusCode::OK, "the date's second is not over");
    fixture.clock.advance(Duration::from_secs(1));
    assert_eq!(with_date().await, StatusCode::PARTIAL_CONTENT);
}
