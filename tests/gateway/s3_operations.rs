//! Each operation of S3 is served, or refused without a change.

use http::Method;
use support::s3::{S3, element};

use crate::serve;

/// The operations that are served, with the status and a part of the answer to the request of the table: for an upload that does not
/// exist, or with a document that is none.
const SERVED: [(&str, u16, &str); 24] = [
    ("AbortMultipartUpload", 404, "NoSuchUpload"),
    ("CompleteMultipartUpload", 400, "MalformedXML"),
    ("CopyObject", 400, "a copy of an object onto itself"),
    ("CreateBucket", 400, "MalformedXML"),
    ("CreateMultipartUpload", 200, "<InitiateMultipartUploadResult"),
    ("DeleteBucket", 409, "BucketNotEmpty"),
    ("DeleteObject", 204, ""),
    ("DeleteObjects", 400, "MalformedXML"),
    ("GetBucketLocation", 200, "<LocationConstraint"),
    ("GetBucketVersioning", 200, "<VersioningConfiguration"),
    ("GetObject", 200, "precious"),
    ("GetObjectAttributes", 200, "<GetObjectAttributesResponse"),
    ("HeadBucket", 200, ""),
    ("HeadObject", 200, ""),
    ("ListBuckets", 200, "<ListAllMyBucketsResult"),
    // Only the host and the service of its signature tell it from `ListBuckets`.
    ("ListDirectoryBuckets", 200, "<ListAllMyBucketsResult"),
    ("ListMultipartUploads", 200, "<ListMultipartUploadsResult"),
    ("ListObjects", 200, "<Marker>"),
    ("ListObjectsV2", 200, "<KeyCount>"),
    ("ListParts", 404, "NoSuchUpload"),
    ("PutObject", 200, ""),
    ("UploadPart", 404, "NoSuchUpload"),
    ("UploadPartCopy", 404, "NoSuchUpload"),
    // It is for another host. Here, it names a bucket.
    ("WriteGetObjectResponse", 400, "InvalidBucketName"),
];

/// An operation of the table.
struct Operation<'a> {
    name: &'a str,
    method: Method,
    path: String,
    /// The names that select the operation.
    selectors: Vec<&'a str>,
    parameters: Vec<&'a str>,
    headers: Vec<(&'a str, &'a str)>,
}

impl<'a> Operation<'a> {
    fn parse(line: &'a str) -> Self {
        let fields: Vec<&str> = line.split(" | ").collect();
        let [request, parameters, headers, name] = fields[..] else { panic!("four fields: {line}") };
        let (method, uri) = request.split_once(' ').expect("a method and a path");
        let (path, selectors) = uri.split_once('?').unwrap_or((uri, ""));
        let words = |text: &'a str| text.split(' ').filter(|word| *word != "-");
        let value = |name| match name {
            "x-amz-copy-source" | "x-amz-rename-source" => "/docs/kept",
            "x-amz-object-attributes" => "ETag",
            "x-amz-request-route" | "x-amz-request-token" => "a",
            _ => panic!("a value for {name}"),
        };
        Self {
            name,
            method: method.parse().expect("a method"),
            path: path.replace("{Bucket}", "docs").replace("{Key+}", "kept"),
            selectors: selectors.split('&').filter(|name| !name.is_empty()).collect(),
            parameters: words(parameters).collect(),
            headers: words(headers).map(|name| (name, value(name))).collect(),
        }
    }

    /// Returns its path and query, with these texts after the names that select it.
    fn target(&self, after: &str) -> String {
        let selectors = self.selectors.iter().map(|name| {
            // A few have a value of their own.
            if name.contains('=') { (*name).to_owned() } else { format!("{name}{after}") }
        });
        let parameters = self.parameters.iter().map(|name| format!("{name}=1"));
        let mut query: Vec<String> = selectors.chain(parameters).collect();
        query.sort_by_key(|part| part.split('=').next().map(str::to_owned));
        format!("{}?{}", self.path, query.join("&"))
    }

    async fn send(&self, s3: &S3, target: &str) -> support::Answer {
        let has_body = matches!(self.method, Method::PUT | Method::POST);
        s3.send(self.method.clone(), target, &self.headers, if has_body { "note" } else { "" }).await
    }
}

/// Returns all that a request may have changed.
async fn state(s3: &S3) -> (u16, String, String, u16) {
    let kept = s3.get("/docs/kept", &[]).await;
    let listed = s3.get("/docs?list-type=2", &[]).await.expect(200);
    let buckets = s3.get("/", &[]).await.expect(200);
    let text = (kept.text().to_owned(), element(listed.text(), "KeyCount").to_owned());
    (kept.status.as_u16(), text.0, text.1, u16::try_from(buckets.text().matches("<Bucket>").count()).unwrap())
}

/// The library for S3 takes a request with a name that it does not know for the plain operation, which writes, deletes or reads.
#[tokio::test]
async fn each_operation_of_amazon_is_served_or_refused_without_a_change() {
    let folder = tempfile::tempdir().unwrap();
    let mut gateway = serve(folder.path(), &["--listen-s3", "127.0.0.1:0"]);
    let s3 = S3::development(gateway.s3());
    s3.put("/docs", &[], "").await.expect(200);
    let reset = async || drop(s3.put("/docs/kept", &[], "precious").await.expect(200));
    reset().await;
    let before = state(&s3).await;
    let table = include_str!("../data/s3-operations.txt");
    let mut served = Vec::new();
    for line in table.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let operation = Operation::parse(line);
        if let Some((name, status, text)) = SERVED.iter().find(|(name, ..)| *name == operation.name) {
            let answer = operation.send(&s3, &operation.target("")).await;
            assert_eq!(answer.status, *status, "{line}: {}", answer.text());
            assert!(answer.text().contains(text), "{line}: {}", answer.text());
            if matches!(*name, "PutObject" | "DeleteObject") {
                reset().await;
            }
            served.push(*name);
        } else {
            for after in ["", "=", "=1"] {
                let target = operation.target(after);
                let answer = operation.send(&s3, &target).await;
                assert_eq!(answer.status, 501, "{line}: {target}: {}", answer.text());
            }
        }
        assert_eq!(state(&s3).await, before, "{line}");
    }
    assert_eq!(served, SERVED.map(|(name, ..)| name), "the operations of the table that are served");
}

/// Names that select no operation of S3 are ignored, and one that may select an operation tomorrow is not.
#[tokio::test]
async fn a_name_that_may_be_an_operation_tomorrow_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let mut gateway = serve(folder.path(), &["--listen-s3", "127.0.0.1:0"]);
    let s3 = S3::development(gateway.s3());
    s3.put("/docs", &[], "").await.expect(200);
    for ignored in ["foo", "1700000000", "version=2", "x-id=PutObject", "x-amz-acl=private"] {
        let target = format!("/docs/kept?{ignored}");
        s3.put(&target, &[], ignored).await.expect(200);
        assert_eq!(s3.get("/docs/kept", &[]).await.expect(200).text(), ignored);
    }
    s3.put("/docs/kept", &[], "precious").await.expect(200);
    for (method, target) in [
        (Method::PUT, "/docs/kept?tomorrow"),
        (Method::DELETE, "/docs/kept?tomorrow"),
        (Method::DELETE, "/docs/kept?%74omorrow="),
        (Method::GET, "/docs/kept?tomorrow"),
        (Method::PUT, "/docs/kept?x-id=RenameObject"),
        (Method::PUT, "/docs/kept?uploadId=1"),
        (Method::PUT, "/docs/kept?partNumber=1"),
        (Method::PUT, "/docs/kept?x-amz-copy-source=%2Fdocs%2Fother"),
        (Method::DELETE, "/docs?tomorrow"),
    ] {
        // The signature is one of the decoded names.
        let answer = if target.contains("%74") {
            let request = s3.signed(method, "/docs/kept?tomorrow=", &[], "", support::s3::now());
            let (mut head, body) = request.into_parts();
            head.uri = target.parse().unwrap();
            s3.send_signed(http::Request::from_parts(head, body)).await
        } else {
            s3.send(method, target, &[], "").await
        };
        assert_eq!(answer.status, 501, "{target}: {}", answer.text());
        assert!(answer.text().contains("<Code>NotImplemented</Code>"), "{target}: {}", answer.text());
    }
    let renamed = s3.put("/docs/kept", &[("x-amz-rename-source", "/docs/other")], "").await;
    assert_eq!(renamed.status, 501);
    assert_eq!(s3.get("/docs/kept", &[]).await.expect(200).text(), "precious");
}
