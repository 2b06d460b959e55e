//! A scripted upstream and a proxy in front of it.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use ifmatch_proxy::{Proxy, ProxyBody, ProxyBuilder, ProxyError, Upstream};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tower::ServiceExt;

/// An upstream that answers each request with the next step of its script, then closes.
pub(crate) struct Origin {
    pub(crate) address: SocketAddr,
    requests: Arc<Mutex<Vec<String>>>,
}

/// A step for one request.
#[derive(Clone, Copy)]
pub(crate) enum Step {
    /// Sends this text, then waits for the next request.
    Send(&'static str),
    /// Sends this text, then closes the connection.
    Close(&'static str),
    /// Sends nothing.
    Wait,
}

impl Origin {
    pub(crate) async fn start(script: Vec<Step>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let requests = Arc::new(Mutex::new(Vec::new()));
        let script = Arc::new(Mutex::new(script.into_iter()));
        let seen = Arc::clone(&requests);
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                tokio::spawn(converse(stream, Arc::clone(&script), Arc::clone(&seen)));
            }
        });
        Self { address, requests }
    }

    /// Returns the requests received so far.
    pub(crate) fn requests(&self) -> Vec<String> {
        self.requests.lock().unwrap().clone()
    }

    pub(crate) fn upstream(&self) -> Upstream {
        upstream_of(&[self])
    }

    pub(crate) fn proxy(&self) -> Proxy {
        proxy_of(self.upstream())
    }

    pub(crate) fn builder(&self) -> ProxyBuilder {
        Proxy::builder().route("/", self.upstream()).unwrap()
    }
}

pub(crate) fn upstream_of(origins: &[&Origin]) -> Upstream {
    let urls: Vec<_> = origins
        .iter()
        .map(|origin| format!("http://{}", origin.address))
        .collect();
    Upstream::parse(&urls).unwrap()
}

pub(crate) fn proxy_of(upstream: Upstream) -> Proxy {
    Proxy::builder()
        .route("/", upstream)
        .unwrap()
        .build()
        .unwrap()
}

async fn converse(
    mut stream: TcpStream,
    script: Arc<Mutex<std::vec::IntoIter<Step>>>,
    seen: Arc<Mutex<Vec<String>>>,
) {
    while let Some(request) = read_request(&mut stream).await {
        seen.lock().unwrap().push(request);
        let step = script.lock().unwrap().next();
        match step {
            Some(Step::Send(text)) => stream.write_all(text.as_bytes()).await.unwrap(),
            Some(Step::Close(text)) => return stream.write_all(text.as_bytes()).await.unwrap(),
            Some(Step::Wait) => tokio::time::sleep(Duration::from_hours(1)).await,
            None => return,
        }
    }
}

/// Reads a head and its content, without decoding chunks.
async fn read_request(stream: &mut TcpStream) -> Option<String> {
    let mut text = Vec::new();
    loop {
        let mut byte = [0];
        if stream.read(&mut byte).await.unwrap_or(0) == 0 {
            return None;
        }
        text.push(byte[0]);
        if text.ends_with(b"\r\n\r\n") {
            break;
        }
    }
    let head = String::from_utf8(text.clone()).unwrap();
    let length = head
        .lines()
        .find_map(|line| line.strip_prefix("content-length: ")?.parse().ok())
        .unwrap_or(0);
    let mut content = vec![0; length];
    stream.read_exact(&mut content).await.ok()?;
    text.extend(content);
    let is_last = |text: &[u8]| {
        text.ends_with(b"\r\n\r\n") && text.windows(5).any(|window| window == b"\r\n0\r\n")
    };
    while head.contains("transfer-encoding: chunked") && !is_last(&text) {
        text.push(stream.read_u8().await.ok()?);
    }
    Some(String::from_utf8(text).unwrap())
}

pub(crate) fn get(path: &str) -> Request<Full<Bytes>> {
    Request::get(path)
        .header("host", "example.com")
        .body(Full::default())
        .unwrap()
}

pub(crate) async fn ask(
    proxy: &Proxy,
    request: Request<Full<Bytes>>,
) -> Result<Response<ProxyBody>, ProxyError> {
    proxy.clone().oneshot(request).await
}

pub(crate) async fn refused(proxy: &Proxy, request: Request<Full<Bytes>>) -> ProxyError {
    ask(proxy, request).await.expect_err("an error")
}

/// Returns the content of a response, or its error.
pub(crate) async fn content(response: Response<ProxyBody>) -> Result<String, String> {
    let body = response
        .into_body()
        .collect()
        .await
        .map_err(|error| error.to_string())?;
    Ok(String::from_utf8(body.to_bytes().to_vec()).unwrap())
}

/// Waits for a moment at which a condition holds.
pub(crate) async fn until(name: &str, condition: impl Fn() -> bool) {
    let wait = async {
        while !condition() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    assert!(
        tokio::time::timeout(Duration::from_mins(1), wait)
            .await
            .is_ok(),
        "{name}: not within a minute"
    );
}
