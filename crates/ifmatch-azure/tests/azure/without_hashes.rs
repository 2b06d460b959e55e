//! Stores that do not know the hashes of blobs: folders, and any object store for multipart uploads.

use std::sync::Arc;

use std::fmt::Write;
use std::time::Duration;

use http::Method;
use http_body_util::BodyExt;
use ifmatch_azure::AzureDialect;
use ifmatch_blob::BlobService;
use ifmatch_blob_objects::{Backing, ObjectBlobs};
use ifmatch_register::MemoryRegister;
use tower::ServiceExt;

use crate::support::{accounts, fixture};

/// Size of the blocks; two of them exceed the limit of single uploads.
const LONG: usize = 5 * 1024 * 1024;

#[tokio::test]
async fn committed_blocks_can_be_reused() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let in_folder = url::Url::from_file_path(folder.path()).expect("absolute");
    for (store, block) in [(in_folder.as_str(), 1), ("memory:///", LONG)] {
        let (client, clock) = (fixture().await.client, fixture().await.clock);
        let backing = Backing::from_url(store, []).expect("a valid URL");
        let register = Arc::new(MemoryRegister::unbounded());
        let blobs = ObjectBlobs::open(backing, register).await.expect("a usable store");
        let service = BlobService::with_clock(Arc::new(blobs), clock).dialect(AzureDialect::new(accounts()));
        let send = async |method: Method, target: &str, body: String| {
            let request = client.signed(method, target, &[], body.into(), Duration::ZERO);
            let answer = service.clone().oneshot(request).await.expect("infallible");
            let status = answer.status().as_u16();
            (status, answer.into_body().collect().await.expect("a body").to_bytes())
        };
        assert_eq!(send(Method::PUT, "/box?restype=container", String::new()).await.0, 201);
        let mut list = String::new();
        let mut bytes = String::new();
        for (id, letter) in [("AA==", "a"), ("AQ==", "b"), ("Ag==", "c")] {
            let target = format!("/box/a?comp=block&blockid={id}");
            assert_eq!(send(Method::PUT, &target, letter.repeat(block)).await.0, 201, "{store}");
            let _ = write!(list, "<Latest>{id}</Latest>");
            bytes += &letter.repeat(block);
            let document = format!("<BlockList>{list}</BlockList>");
            assert_eq!(send(Method::PUT, "/box/a?comp=blocklist", document).await.0, 201, "{store}");
            let (status, read) = send(Method::GET, "/box/a", String::new()).await;
            assert!(status == 200 && read == bytes, "{store}: {status}, {} bytes", read.len());
        }
    }
}
