//! The form of batches that single clients need.

use http::Method;

use crate::support::fixture;

const TYPE: (&str, &str) = ("content-type", "multipart/mixed; boundary=b");
/// Its only part is not signed.
const BATCH: &str = "--b\r\nContent-ID: 0\r\n\r\nDELETE /photos/box/a HTTP/1.1\r\n\r\n--b--\r\n";

/// The SDK for JavaScript takes an account in the path for a container. The SDK for C++ ends the process if anything follows the last
/// boundary.
#[tokio::test]
async fn a_batch_of_an_account_may_look_like_that_of_a_container_and_its_answer_ends_with_the_boundary() {
    let client = fixture().await.client;
    for target in ["?comp=batch", "?restype=container&comp=batch", "/box?restype=container&comp=batch"] {
        let answer = client.send(Method::POST, target, &[TYPE], BATCH).await.expect(202);
        let (_, boundary) = answer.header("content-type").split_once("boundary=").expect("a boundary");
        assert_eq!(answer.text().matches("HTTP/1.1 401 ").count(), 1, "{target}: {answer:?}");
        assert!(answer.text().ends_with(&format!("\r\n--{boundary}--")), "{target}: {answer:?}");
    }
}
