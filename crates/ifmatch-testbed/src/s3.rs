//! An S3 server in this process, with its objects in a folder.

use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;

use http::header::{AUTHORIZATION, IF_MATCH, IF_NONE_MATCH};
use http_body_util::BodyExt;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use s3s::auth::SimpleAuth;
use s3s::service::S3ServiceBuilder;
use s3s_fs::FileSystem;
use tokio::net::TcpListener;
use tokio::sync::Mutex;
use tokio::task::AbortHandle;

/// An S3 server with the bucket `bucket`.
#[derive(Debug)]
pub struct S3Server {
    address: SocketAddr,
    root: tempfile::TempDir,
    task: AbortHandle,
}

/// Starts a server, which ends when dropped.
pub async fn start() -> S3Server {
    serve(false).await
}

/// Starts a server that ignores conditions, as several do in silence. It asks for no signature.
pub async fn start_without_conditions() -> S3Server {
    serve(true).await
}

async fn serve(is_careless: bool) -> S3Server {
    let root = tempfile::tempdir().expect("a temporary folder");
    std::fs::create_dir(root.path().join("bucket")).expect("an empty folder");
    let mut builder = S3ServiceBuilder::new(FileSystem::new(root.path()).expect("a folder"));
    if !is_careless {
        builder.set_auth(SimpleAuth::from_single("key", "secret"));
    }
    let service = builder.build();
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
        .await
        .expect("a free port");
    let address = listener.local_addr().expect("a bound socket");
    // The server first evaluates the condition and then writes, and writes the bytes and the metadata separately.
    // Handling one request at a time makes it atomic, as S3 is.
    let turn = Arc::new(Mutex::new(()));
    let accept = async move {
        while let Ok((socket, _)) = listener.accept().await {
            let (service, turn) = (service.clone(), Arc::clone(&turn));
            let service =
                hyper::service::service_fn(move |request: http::Request<hyper::body::Incoming>| {
                    let (service, turn) = (service.clone(), Arc::clone(&turn));
                    async move {
                        let (mut parts, body) = request.into_parts();
                        if is_careless {
                            for name in [IF_MATCH, IF_NONE_MATCH, AUTHORIZATION] {
                                parts.headers.remove(name);
                            }
                        }
                        let body = body
                            .collect()
                            .await
                            .map(http_body_util::Collected::to_bytes)
                            .unwrap_or_default();
                        let request =
                            http::Request::from_parts(parts, http_body_util::Full::new(body));
                        if let Some(refused) = limits(&request) {
                            return Ok(refused);
                        }
                        let _turn = turn.lock().await;
                        Ok::<_, Infallible>(
                            tower::ServiceExt::oneshot(service, request)
                                .await
                                .expect("an answer"),
                        )
                    }
                });
            tokio::spawn(async move {
                Builder::new(TokioExecutor::new())
                    .serve_connection(TokioIo::new(socket), service)
                    .await
            });
        }
    };
    S3Server {
        address,
        root,
        task: tokio::spawn(accept).abort_handle(),
    }
}

/// Returns the response of S3 to a key of more than 1,024 bytes, or to more than 2 KiB of metadata.
fn limits<B>(request: &http::Request<B>) -> Option<http::Response<s3s::Body>> {
    let metadata = request.headers().iter().filter_map(|(name, value)| {
        Some(name.as_str().strip_prefix("x-amz-meta-")?.len() + value.len())
    });
    let metadata: usize = metadata.sum();
    let key = request
        .uri()
        .path()
        .splitn(3, '/')
        .nth(2)
        .unwrap_or_default();
    // Three characters of the path encode a byte of the key.
    let code = match (key.len() - 2 * key.matches('%').count(), metadata) {
        (1_025.., _) => "KeyTooLongError",
        (_, 2_049..) => "MetadataTooLarge",
        _ => return None,
    };
    let body =
        format!("<?xml version=\"1.0\" encoding=\"UTF-8\"?><Error><Code>{code}</Code></Error>");
    let body = if request.method() == http::Method::HEAD {
        String::new()
    } else {
        body
    };
    Some(
        http::Response::builder()
            .status(400)
            .body(body.into())
            .expect("a response"),
    )
}

impl S3Server {
    /// Returns its address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the environment of its clients: names and values.
    pub fn settings(&self) -> Vec<(String, String)> {
        let endpoint = format!("http://{}", self.address);
        let settings = [
            ("AWS_ENDPOINT", &*endpoint),
            ("AWS_ALLOW_HTTP", "true"),
            ("AWS_ACCESS_KEY_ID", "key"),
            ("AWS_SECRET_ACCESS_KEY", "secret"),
            ("AWS_REGION", "us-east-1"),
            // object_store would take it for a session token: clients must only pass names with a prefix on.
            ("TOKEN", "of something else"),
        ];
        settings
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .to_vec()
    }

    /// Returns the number of objects in the bucket.
    pub fn objects(&self) -> usize {
        let (mut count, mut folders) = (0, vec![PathBuf::from("bucket")]);
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(self.root.path().join(&folder))
                .expect("a folder")
                .flatten()
            {
                if entry.path().is_dir() {
                    folders.push(folder.join(entry.file_name()));
                } else {
                    count += 1;
                }
            }
        }
        count
    }

    /// Returns the number of multipart uploads that are neither complete nor aborted.
    pub fn unfinished_uploads(&self) -> usize {
        let entries = std::fs::read_dir(self.root.path())
            .expect("the server's folder")
            .flatten();
        entries
            .filter(|entry| entry.file_name().to_string_lossy().starts_with(".upload"))
            .count()
    }
}

impl Drop for S3Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}
