//! A service that knows nothing of conditions. Its documents are on a plain HTTP server, so all its instances have the same ones.
//!
//! | request | answer |
//! |---|---|
//! | GET, HEAD, PUT, DELETE `/notes/…` | as the server at `STORE` does, without tags and conditions. 400 to a part of a note |
//! | GET, PUT `/files/NAME` | a file in the first folder that the host grants |
//! | GET `/large/N` | N bytes |
//! | POST `/echo` | the request's body and trailers, as they arrive |
//! | GET `/endless` | a body without end. When its reader has gone, the guest writes `/notes/gone` |
//! | any of `/…/broken/N` | N bytes, then the body fails |
//! | any of `/fail` | an error |
//! | any, with `x-trap: early` | none: the guest traps |
//! | `/notes/…`, with `x-trap: late` | none: the guest traps once the server has answered |

mod files;

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Method, StatusCode};
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Empty, Full};
use send_wrapper::SendWrapper;
use wasip3::cli::environment;
use wasip3::http::client;
use wasip3::http::types::{ErrorCode, Request, Response};
use wasip3::http_compat::{
    IncomingRequestBody, http_from_wasi_request, http_from_wasi_response, http_into_wasi_request,
    http_into_wasi_response,
};

/// Bytes of a frame.
const FRAME: usize = 64 * 1024;

type AnyBody = UnsyncBoxBody<Bytes, ErrorCode>;

struct Guest;

#[allow(unsafe_code, reason = "generated")]
mod export {
    use super::Guest;

    wasip3::http::service::export!(Guest with_types_in wasip3);
}

impl wasip3::exports::http::handler::Guest for Guest {
    async fn handle(request: Request) -> Result<Response, ErrorCode> {
        let request = http_from_wasi_request(request)?;
        let trap = request.headers().get("x-trap").cloned();
        assert!(
            trap.as_ref().is_none_or(|when| when != "early"),
            "on purpose"
        );
        let path = request.uri().path().to_owned();
        match path.split('/').collect::<Vec<_>>()[..] {
            ["", "notes", ..] => {
                let response = stored(request).await?;
                assert!(trap.is_none(), "on purpose");
                http_into_wasi_response(response)
            }
            ["", "files", name] => {
                let (head, body) = request.into_parts();
                http_into_wasi_response(files::answer(&head.method, name, body).await)
            }
            ["", "large", count] => generated(count, false),
            ["", .., "broken", count] => generated(count, true),
            ["", "endless"] => {
                let endless = Generated {
                    left: usize::MAX,
                    fails: false,
                    _gone: Some(Gone),
                };
                http_into_wasi_response(http::Response::new(endless))
            }
            ["", "echo"] => http_into_wasi_response(http::Response::new(request.into_body())),
            ["", "fail"] => Err(ErrorCode::InternalError(Some("on purpose".to_owned()))),
            _ => http_into_wasi_response(empty(StatusCode::NOT_FOUND)),
        }
    }
}

/// Answers with a number of bytes.
fn generated(count: &str, fails: bool) -> Result<Response, ErrorCode> {
    let left = count
        .parse()
        .map_err(|_| ErrorCode::HttpRequestUriInvalid)?;
    http_into_wasi_response(http::Response::new(Generated {
        left,
        fails,
        _gone: None,
    }))
}

/// Does to the store what the client asks for.
async fn stored(
    request: http::Request<IncomingRequestBody>,
) -> Result<http::Response<AnyBody>, ErrorCode> {
    let (head, body) = request.into_parts();
    // A part must not replace the whole (RFC 9110 §14.5).
    if head.headers.contains_key(http::header::CONTENT_RANGE) {
        return Ok(empty(StatusCode::BAD_REQUEST));
    }
    let response = to_store(
        head.method,
        head.uri.path(),
        body.map_err(|error| format!("{error:?}")),
    )
    .await?;
    let (inner, body) = response.into_parts();
    let mut response = http::Response::new(SendWrapper::new(body));
    *response.status_mut() = inner.status;
    Ok(response.map(|body| Wrapped(body).boxed_unsync()))
}

fn empty(status: StatusCode) -> http::Response<AnyBody> {
    let mut response =
        http::Response::new(Empty::new().map_err(|never| match never {}).boxed_unsync());
    *response.status_mut() = status;
    response
}

async fn to_store<B>(
    method: Method,
    path: &str,
    body: B,
) -> Result<http::Response<wasip3::http_compat::IncomingResponseBody>, ErrorCode>
where
    B: http_body::Body<Data = Bytes, Error: Into<Box<dyn std::error::Error + Send + Sync>>>
        + 'static,
{
    let variables = environment::get_environment();
    let store = variables
        .iter()
        .find(|(name, _)| name == "STORE")
        .map(|(_, value)| value.as_str());
    let uri = format!("{}{path}", store.unwrap_or("http://127.0.0.1:1"));
    let request = http::Request::builder().method(method).uri(uri).body(body);
    let request = http_into_wasi_request(request.map_err(|_| ErrorCode::HttpRequestUriInvalid)?)?;
    http_from_wasi_response(client::send(request).await?)
}

/// A body that the guest doesn't keep in memory.
struct Generated {
    left: usize,
    /// `true` if it fails at its end.
    fails: bool,
    /// Dropped with the body.
    _gone: Option<Gone>,
}

/// Tells the store when it is dropped.
struct Gone;

impl Drop for Gone {
    fn drop(&mut self) {
        drop(wasip3::spawn_local(async {
            drop(
                to_store(
                    Method::PUT,
                    "/notes/gone",
                    Full::new(Bytes::from_static(b"gone")),
                )
                .await,
            );
        }));
    }
}

impl http_body::Body for Generated {
    type Data = Bytes;
    type Error = ErrorCode;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        if self.left == 0 {
            let failed = self
                .fails
                .then(|| Err(ErrorCode::InternalError(Some("on purpose".to_owned()))));
            return Poll::Ready(failed);
        }
        let length = self.left.min(FRAME);
        self.left -= length;
        Poll::Ready(Some(Ok(Frame::data(Bytes::from(vec![b'x'; length])))))
    }
}

/// A body of a component, which has one thread.
struct Wrapped(SendWrapper<wasip3::http_compat::IncomingResponseBody>);

impl http_body::Body for Wrapped {
    type Data = Bytes;
    type Error = ErrorCode;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, ErrorCode>>> {
        Pin::new(&mut *self.0).poll_frame(cx)
    }
}
