//! Copies onto leased blobs, and copies with verified bytes.

use crate::support::{Answer, Client, fixture};

const SOURCE: [(&str, &str); 2] = [
    ("host", "localhost"),
    ("x-ms-copy-source", "http://localhost/photos/box/source"),
];
const SYNC: (&str, &str) = ("x-ms-requires-sync", "true");
/// The MD5 of `hello`.
const MD5: &str = "XUFAKrxLKna5cZ2REBfFkg==";
/// The MD5 of no bytes.
const OTHER_MD5: &str = "1B2M2Y8AsgTpgAmY7PhCfg==";

/// Copies the source, `hello`, to `/box/copy`.
async fn copy(client: &Client, fields: &[(&str, &str)]) -> Answer {
    client
        .put("/box/copy", &[&SOURCE[..], fields].concat(), "")
        .await
}

async fn with_source() -> Client {
    let client = fixture().await.client;
    client.upload("/box/source", "hello", &[]).await.expect(201);
    client
}

/// Azure's Copy Blob continues after its response, and a finite lease could expire before it ends.
#[tokio::test]
async fn copy_blob_needs_an_infinite_lease_on_its_target_or_none() {
    let client = with_source().await;
    for (duration, fields, status, code) in [
        ("-1", &[][..], 202, ""),
        ("15", &[], 412, "InfiniteLeaseDurationRequired"),
        ("15", &[SYNC], 202, ""),
        ("15", &[("x-ms-blob-type", "BlockBlob")], 201, ""),
    ] {
        let what = format!("{duration} {fields:?}");
        client.upload("/box/copy", "old", &[]).await.expect(201);
        let acquire = [
            ("x-ms-lease-action", "acquire"),
            ("x-ms-lease-duration", duration),
        ];
        let leased = client
            .put("/box/copy?comp=lease", &acquire, "")
            .await
            .expect(201);
        let id = ("x-ms-lease-id", leased.header("x-ms-lease-id"));
        copy(&client, fields).await.refused(412, "LeaseIdMissing");
        let other = ("x-ms-lease-id", "00000000-0000-0000-0000-000000000001");
        copy(&client, &[fields, &[other]].concat())
            .await
            .refused(412, "LeaseIdMismatchWithBlobOperation");
        let copied = copy(&client, &[fields, &[id]].concat()).await;
        assert_eq!(
            (copied.status.as_u16(), copied.code()),
            (status, code),
            "{what}"
        );
        let kept = if code.is_empty() { "hello" } else { "old" };
        assert_eq!(
            client.get("/box/copy").await.expect(200).text(),
            kept,
            "{what}"
        );
        client.delete("/box/copy", &[id]).await.expect(202);
    }
}

#[tokio::test]
async fn copy_blob_from_url_takes_the_md5_of_its_source() {
    let client = with_source().await;
    copy(&client, &[SYNC, ("x-ms-source-content-md5", OTHER_MD5)])
        .await
        .refused(400, "Md5Mismatch");
    client.get("/box/copy").await.refused(404, "BlobNotFound");
    copy(&client, &[SYNC, ("x-ms-source-content-md5", MD5)])
        .await
        .expect(202);
    let copied = client.get("/box/copy").await.expect(200);
    assert_eq!(
        (copied.text(), copied.header("content-md5")),
        ("hello", MD5)
    );
    for (name, value) in [
        ("x-ms-source-content-md5", MD5),
        ("x-ms-blob-content-type", "text/plain"),
        ("x-ms-blob-cache-control", "no-store"),
    ] {
        copy(&client, &[(name, value)])
            .await
            .refused(400, "UnsupportedHeader");
    }
}
