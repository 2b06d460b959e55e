//! A blob of 1 GiB is stored and read in 64 MiB of memory.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, StatusCode};
use http_body_util::BodyExt;
use hyper::body::{Body, Frame, SizeHint};
use ifmatch_core::digest::Hasher;
use support::{Client, Gateway};

const SIZE: u64 = 1 << 30;
const CHUNK: usize = 256 << 10;
const MOST_MEMORY: u64 = 64 << 20;

/// A body of [`SIZE`] bytes, generated as it is sent. All chunks differ.
struct GeneratedBody {
    sent: u64,
}

impl GeneratedBody {
    fn chunk(number: u64) -> Bytes {
        number
            .to_be_bytes()
            .iter()
            .copied()
            .cycle()
            .take(CHUNK)
            .collect()
    }
}

impl Body for GeneratedBody {
    type Data = Bytes;
    type Error = Box<dyn std::error::Error + Send + Sync>;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        if self.sent == SIZE {
            return Poll::Ready(None);
        }
        let chunk = Self::chunk(self.sent / CHUNK as u64);
        self.sent += CHUNK as u64;
        Poll::Ready(Some(Ok(Frame::data(chunk))))
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(SIZE - self.sent)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gibibyte_is_stored_and_read_in_64_mib() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_str().unwrap().to_owned();
    let gateway = tokio::task::block_in_place(|| Gateway::start(["serve", "--data", &path]));
    let client = Client::new(gateway.address());

    let put = Request::put("/c/big")
        .body(GeneratedBody { sent: 0 }.boxed_unsync())
        .unwrap();
    let written = client.stream(put).await.unwrap();
    assert_eq!(written.status(), StatusCode::CREATED);
    let tag = written.headers()["etag"].clone();

    let get = Request::get("/c/big").body(support::full("")).unwrap();
    let read = client.stream(get).await.unwrap();
    assert_eq!(
        (read.status(), &read.headers()["etag"]),
        (StatusCode::OK, &tag)
    );
    let mut hasher = Hasher::default();
    let mut length = 0;
    let mut body = read.into_body();
    while let Some(frame) = body.frame().await {
        let data = frame.unwrap().into_data().expect("no trailers");
        hasher.update(&data);
        length += data.len() as u64;
    }
    assert_eq!(length, SIZE);
    let hash = hasher.finish().hex();
    assert!(
        tag.to_str().unwrap().trim_matches('"').starts_with(&hash),
        "{tag:?} is not of these bytes: {hash}"
    );

    let peak = gateway.memory().peak;
    println!("peak resident memory: {} MiB", peak >> 20);
    assert!(peak < MOST_MEMORY, "{} MiB were resident", peak >> 20);
}
