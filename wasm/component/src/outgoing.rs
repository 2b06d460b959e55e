//! Messages that leave: requests to the guest or to a server, and responses to the host.

use std::pin::pin;

use bytes::Bytes;
use http::header::HOST;
use http::uri::PathAndQuery;
use http::{HeaderMap, Request, Response};
use http_body_util::{BodyExt, Full};
use ifmatch::{RequestBody, ResponseBody};
use wasip3::http::types::{self, ErrorCode, Fields};
use wasip3::http_compat::RequestOptionsExtension;
use wasip3::wit_bindgen::{FutureReader, FutureWriter, StreamReader, StreamWriter};
use wasip3::{wit_future, wit_stream};

use crate::failed::FailedRequest;
use crate::incoming::{BodyEnd, Incoming, Message};

/// A body that leaves.
pub(crate) trait OutgoingBody:
    http_body::Body<Data = Bytes, Error: Into<Box<dyn std::error::Error + Send + Sync>>> + 'static
{
    /// Returns the host's own stream and result of a body that has arrived, if nothing of it was read.
    fn take_untouched(&mut self) -> Option<(StreamReader<u8>, FutureReader<BodyEnd>)> {
        None
    }
}

impl OutgoingBody for Full<Bytes> {}

impl<M: Message> OutgoingBody for Incoming<M> {
    fn take_untouched(&mut self) -> Option<(StreamReader<u8>, FutureReader<BodyEnd>)> {
        let (_handled, reader) = wit_future::new(|| Ok(()));
        Self::take_untouched(self).map(|message| message.open(reader))
    }
}

impl<M: Message> OutgoingBody for RequestBody<Incoming<M>> {
    fn take_untouched(&mut self) -> Option<(StreamReader<u8>, FutureReader<BodyEnd>)> {
        self.inner_mut().and_then(OutgoingBody::take_untouched)
    }
}

impl<M: Message> OutgoingBody for ResponseBody<Incoming<M>> {
    fn take_untouched(&mut self) -> Option<(StreamReader<u8>, FutureReader<BodyEnd>)> {
        self.inner_mut().and_then(OutgoingBody::take_untouched)
    }
}

/// Makes a request of WASI.
pub(crate) fn request<B: OutgoingBody>(
    request: Request<B>,
) -> Result<types::Request, FailedRequest> {
    let (mut head, body) = request.into_parts();
    let invalid = |()| FailedRequest(ErrorCode::HttpRequestUriInvalid);
    // Hosts take the authority in place of the field.
    let host = head
        .headers
        .remove(HOST)
        .map(|host| host.to_str().map(str::to_owned));
    let host = host.transpose().map_err(|_| invalid(()))?;
    let authority = match (head.uri.authority(), host) {
        (Some(authority), Some(host)) if authority != host.as_str() => return Err(invalid(())),
        (Some(authority), _) => Some(authority.as_str().to_owned()),
        (None, host) => host,
    };
    let options = head
        .extensions
        .get::<RequestOptionsExtension>()
        .map(|options| options.clone().0);
    let (stream, end) = send(body);
    let (request, _transmitted) = types::Request::new(fields(head.headers)?, stream, end, options);
    let method = request.set_method(&head.method.into());
    method.map_err(|()| FailedRequest(ErrorCode::HttpRequestMethodInvalid))?;
    request
        .set_scheme(head.uri.scheme().map(Into::into).as_ref())
        .map_err(invalid)?;
    request
        .set_authority(authority.as_deref())
        .map_err(invalid)?;
    request
        .set_path_with_query(head.uri.path_and_query().map(PathAndQuery::as_str))
        .map_err(invalid)?;
    Ok(request)
}

/// Makes a response of WASI.
pub(crate) fn response<B: OutgoingBody>(
    response: Response<B>,
) -> Result<types::Response, FailedRequest> {
    let (head, body) = response.into_parts();
    let fields = fields(head.headers)?;
    let (stream, end) = send(body);
    let (response, _transmitted) = types::Response::new(fields, stream, end);
    let status = response.set_status_code(head.status.as_u16());
    status.map_err(|()| FailedRequest(ErrorCode::HttpProtocolError))?;
    Ok(response)
}

fn fields(headers: HeaderMap) -> Result<Fields, FailedRequest> {
    headers.try_into().map_err(|error| {
        FailedRequest(ErrorCode::InternalError(Some(format!(
            "header fields: {error:?}"
        ))))
    })
}

/// Returns the stream of a body and its result, and sends it in the background.
fn send<B: OutgoingBody>(mut body: B) -> (Option<StreamReader<u8>>, FutureReader<BodyEnd>) {
    if let Some((stream, end)) = body.take_untouched() {
        return (Some(stream), end);
    }
    if body.is_end_stream() {
        return (None, wit_future::new(|| Ok(None)).1);
    }
    let (writer, stream) = wit_stream::new();
    let (tell, end) = wit_future::new(|| {
        Err(ErrorCode::InternalError(Some(
            "the body's reader has left".to_owned(),
        )))
    });
    drop(wasip3::spawn_local(write(body, writer, tell)));
    (Some(stream), end)
}

/// Writes a body. Readers read the stream to its end before they look at the result, so the stream ends first, after an error, too:
/// see [`crate::incoming`].
async fn write<B: OutgoingBody>(
    body: B,
    mut stream: StreamWriter<u8>,
    tell: FutureWriter<BodyEnd>,
) {
    let mut body = pin!(body);
    let mut trailers = None;
    let end = loop {
        match body.frame().await {
            Some(Ok(frame)) => match frame.into_data() {
                Ok(data) => {
                    if !stream.write_all(data.into()).await.is_empty() {
                        return;
                    }
                }
                Err(frame) => trailers = frame.into_trailers().ok(),
            },
            Some(Err(error)) => break Err(FailedRequest::code_of(error.into())),
            None => {
                break trailers
                    .map(fields)
                    .transpose()
                    .map_err(|FailedRequest(code)| code);
            }
        }
    };
    drop(stream);
    // A reader that has left doesn't want to know.
    let _ = tell.write(end).await;
}
