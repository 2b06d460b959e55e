//! An S3 server in this process, with its objects in a folder.

use std::convert::Infallible;
use std::sync::Arc;

use http_body_util::BodyExt;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use s3s::auth::SimpleAuth;
use s3s::service::S3ServiceBuilder;
use s3s_fs::FileSystem;
use tokio::net::TcpListener;
use tokio::sync::Mutex;

use crate::{Settings, settings};

pub(crate) struct Server {
    endpoint: String,
    root: tempfile::TempDir,
}

/// Starts a server with the bucket `bucket`.
pub(crate) async fn start() -> Server {
    let root = tempfile::tempdir().unwrap();
    std::fs::create_dir(root.path().join("bucket")).unwrap();
    let mut builder = S3ServiceBuilder::new(FileSystem::new(root.path()).unwrap());
    builder.set_auth(SimpleAuth::from_single("key", "secret"));
    let service = builder.build();
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    // The server first evaluates the condition and then writes, and writes the bytes and the metadata separately.
    // Handling one request at a time makes it atomic, as S3 is.
    let turn = Arc::new(Mutex::new(()));
    tokio::spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            let (service, turn) = (service.clone(), Arc::clone(&turn));
            let service = hyper::service::service_fn(move |request: http::Request<hyper::body::Incoming>| {
                let (service, turn) = (service.clone(), Arc::clone(&turn));
                async move {
                    let (parts, body) = request.into_parts();
                    let body = body.collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
                    let request = http::Request::from_parts(parts, http_body_util::Full::new(body));
                    let _turn = turn.lock().await;
                    Ok::<_, Infallible>(tower::ServiceExt::oneshot(service, request).await.expect("an answer"))
                }
            });
            tokio::spawn(async move {
                Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(socket), service).await
            });
        }
    });
    Server { endpoint, root }
}

impl Server {
    pub(crate) fn settings(&self) -> Settings {
        settings(&[
            ("AWS_ENDPOINT", &self.endpoint),
            ("AWS_ALLOW_HTTP", "true"),
            ("AWS_ACCESS_KEY_ID", "key"),
            ("AWS_SECRET_ACCESS_KEY", "secret"),
            ("AWS_REGION", "us-east-1"),
            ("TOKEN", "of something else"),
        ])
    }

    /// Number of multipart uploads that are neither complete nor aborted.
    pub(crate) fn unfinished_uploads(&self) -> usize {
        let entries = std::fs::read_dir(self.root.path()).unwrap();
        entries.filter(|entry| entry.as_ref().unwrap().file_name().to_string_lossy().starts_with(".upload")).count()
    }
}
