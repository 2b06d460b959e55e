//! Invalid paths: every method rejects them with a clear error.

use http::Method;

use crate::support::{fixture, request};

#[tokio::test]
async fn bad_names_are_refused_with_a_reason() {
    let fixture = fixture().await;
    for method in [Method::GET, Method::PUT, Method::DELETE] {
        for (path, status) in [
            ("/c/../etc/passwd", 400),
            ("/c/%2e%2e/b", 400),
            ("/c/a%00b", 400),
            ("/c/a%2Fb", 400),
            ("/c/%ff%fe", 400),
            ("/c/%zz", 400),
            ("/-/b", 400),
            ("/.hidden/b", 400),
            (&format!("/c/{}", "b".repeat(1025)), 414),
            (&format!("/c/{}", "b".repeat(10_240)), 414),
            (&format!("/{}/b", "c".repeat(89)), 414),
        ] {
            let answer = fixture.send(request(method.clone(), path, &[], "x")).await;
            assert_eq!(answer.status.as_u16(), status, "{method} {path}");
            assert_eq!(answer.problem(), "invalid-name");
            assert!(!answer.json()["detail"].as_str().expect("a detail").is_empty());
        }
    }
}

#[tokio::test]
async fn the_encoding_of_a_path_does_not_change_the_name() {
    let fixture = fixture().await;
    fixture.put("/c/caf%C3%A9/%7Ea+b", "x").await;
    assert_eq!(fixture.get("/c/caf%c3%a9/~a%2Bb").await.body, "x");
    assert_eq!(fixture.get("/c").await.json()["blobs"][0]["name"], "café/~a+b");
}

#[tokio::test]
async fn the_longest_name_can_be_stored() {
    let fixture = fixture().await;
    let path = format!("/{}/{}", "c".repeat(88), "%C3%BC".repeat(970));
    assert_eq!(fixture.put(&path, "x").await.status.as_u16(), 201);
    assert_eq!(fixture.get(&path).await.body, "x");
    let longest = format!("/{}/{}", "d".repeat(88), "%F0%9F%98%80".repeat(485));
    assert_eq!(fixture.put(&longest, "x").await.status.as_u16(), 201);
}
