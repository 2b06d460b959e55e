//! Connections between h2's client and a service written for each test.

use std::future::{pending, poll_fn, ready};
use std::time::Duration;

use h2::client::{self, ResponseFuture, SendRequest};
use h2::{Reason, SendStream};
use http::{HeaderMap, HeaderValue, StatusCode, header};
use http_body::Frame;
use http_body_util::{BodyExt, Collected, Empty, Full};
use tokio::io::duplex;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

use super::*;

/// Number of requests that a test client may cancel.
const MAX_CANCELLED: u32 = 3;

type Queue = Option<Arc<InterimQueue>>;

fn limits() -> ServerLimits {
    ServerLimits {
        streams: 10,
        body_timeout: Duration::from_hours(1),
        ..ServerLimits::default()
    }
}

/// Returns a client of a connection with this service, the end of the connection, and a way to close it.
async fn connect<A, F, B>(
    settings: &client::Builder,
    mut answer: A,
) -> (
    SendRequest<Bytes>,
    JoinHandle<Result<(), Error>>,
    oneshot::Sender<()>,
)
where
    A: FnMut(Request<StreamBody>, Queue) -> F + Unpin + Send + 'static,
    F: Future<Output = Result<Response<B>, Infallible>> + Send + 'static,
    B: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
{
    let (ours, theirs) = duplex(64 << 10);
    let (close, closed) = oneshot::channel();
    let mut closed = Some(closed);
    let read_timeout = ReadTimeout::new(limits().body_timeout, Arc::new(|_| ()));
    let options = StreamOptions {
        sends_interim: true,
        read_timeout,
        admits: || true,
        max_cancelled: MAX_CANCELLED,
    };
    let answer = move |request, queue| Some(answer(request, queue));
    let mut connection = Http2Connection::new(&builder(&limits()), ours, options, answer);
    let end = tokio::spawn(poll_fn(move |cx| {
        if let Some(Poll::Ready(Ok(()))) = closed.as_mut().map(|closed| Pin::new(closed).poll(cx)) {
            connection.close(CloseMode::Graceful);
            closed = None;
        }
        Pin::new(&mut connection).poll(cx)
    }));
    let (client, connection) = settings.handshake(theirs).await.unwrap();
    tokio::spawn(connection);
    (client.ready().await.unwrap(), end, close)
}

/// Returns a client of a service whose connection this side never closes.
async fn serve<F, B>(
    answer: impl FnMut(Request<StreamBody>, Queue) -> F + Unpin + Send + 'static,
) -> SendRequest<Bytes>
where
    F: Future<Output = Result<Response<B>, Infallible>> + Send + 'static,
    B: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
{
    let (client, end, close) = connect(&client::Builder::new(), answer).await;
    std::mem::forget(close);
    drop(end);
    client
}

/// Sends a request, whose content follows if it is a POST.
fn ask(client: &mut SendRequest<Bytes>, method: Method) -> (ResponseFuture, SendStream<Bytes>) {
    let ends = method != Method::POST;
    let request = Request::builder()
        .method(method)
        .uri("http://example.com/")
        .body(())
        .unwrap();
    client.send_request(request, ends).unwrap()
}

/// A body that a test sends in pieces.
struct Pieces(mpsc::Receiver<Result<Frame<Bytes>, BoxError>>);

impl Body for Pieces {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        self.0.poll_recv(cx)
    }
}

/// Returns a client of a service that answers its first request with a body in pieces, with room for so many, and the others without
/// an end.
async fn serve_pieces(
    settings: &client::Builder,
    room: usize,
) -> (
    SendRequest<Bytes>,
    mpsc::Sender<Result<Frame<Bytes>, BoxError>>,
) {
    let (pieces, body) = mpsc::channel(room);
    let mut body = Some(body);
    let answer = move |_, _| {
        let other = || Pieces(mpsc::channel(1).1);
        ready(Ok(Response::new(body.take().map_or_else(other, Pieces))))
    };
    let (client, end, close) = connect(settings, answer).await;
    std::mem::forget(close);
    drop(end);
    (client, pieces)
}

/// Returns the settings of a client that reads little at a time on a stream.
fn narrow() -> client::Builder {
    let mut builder = client::Builder::new();
    builder
        .initial_window_size(64 << 10)
        .initial_connection_window_size(1 << 20);
    builder
}

#[tokio::test]
async fn bodies_are_sent_concurrently_and_end_with_trailers() {
    let mut client = serve(|request, _| ready(Ok(Response::new(request.into_body())))).await;
    let (response, mut send) = ask(&mut client, Method::POST);
    let mut body = response.await.unwrap().into_body();
    for word in ["hello", "again"] {
        send.send_data(Bytes::from_static(word.as_bytes()), false)
            .unwrap();
        assert_eq!(body.data().await.unwrap().unwrap(), word);
    }
    let trailers = HeaderMap::from_iter([(header::ETAG, HeaderValue::from_static("\"x\""))]);
    send.send_trailers(trailers.clone()).unwrap();
    assert!(body.data().await.is_none());
    assert_eq!(body.trailers().await.unwrap(), Some(trailers));
}

#[tokio::test]
async fn content_length_sets_the_size_hint() {
    let mut client = serve(|request, _| {
        let hint = request.body().size_hint().exact();
        async move {
            let read = request.into_body().collect().await.map(Collected::to_bytes);
            Ok(Response::new(Full::new(Bytes::from(format!(
                "{hint:?} {read:?}"
            )))))
        }
    })
    .await;
    let request = || {
        Request::post("http://example.com/")
            .header("content-length", "5")
            .body(())
            .unwrap()
    };
    let (response, mut send) = client.send_request(request(), false).unwrap();
    send.send_data(Bytes::from_static(b"hello"), true).unwrap();
    let mut body = response.await.unwrap().into_body();
    assert_eq!(
        body.data().await.unwrap().unwrap(),
        "Some(5) Ok(b\"hello\")"
    );
    for content in ["hell", "hello!"] {
        let (response, mut send) = client.send_request(request(), false).unwrap();
        send.send_data(Bytes::from_static(content.as_bytes()), true)
            .unwrap();
        assert_eq!(
            response.await.unwrap_err().reason(),
            Some(Reason::PROTOCOL_ERROR),
            "{content}"
        );
    }
}

#[tokio::test]
async fn a_reset_body_is_incomplete() {
    for reason in [Reason::NO_ERROR, Reason::CANCEL] {
        let (seen, end) = oneshot::channel();
        let mut seen = Some(seen);
        let mut client = serve(move |request: Request<StreamBody>, _| {
            let seen = seen.take().unwrap();
            tokio::spawn(async move { seen.send(request.into_body().collect().await.is_ok()) });
            pending::<Result<Response<Empty<Bytes>>, _>>()
        })
        .await;
        let (_response, mut send) = ask(&mut client, Method::POST);
        send.send_data(Bytes::from_static(b"half"), false).unwrap();
        send.send_reset(reason);
        assert!(!end.await.unwrap(), "{reason:?}");
    }
}

/// Returns a service that never responds, a signal for the start of its request, and one for the end of its work.
fn endless() -> (
    impl FnMut(Request<StreamBody>, Queue) -> Never,
    oneshot::Receiver<()>,
    oneshot::Receiver<()>,
) {
    let (asked, has_been_asked) = oneshot::channel();
    let (works, end) = oneshot::channel::<()>();
    let mut once = Some((asked, works));
    let answer = move |_, _| -> Never {
        let (asked, works) = once.take().unwrap();
        Box::pin(async move {
            asked.send(()).unwrap();
            let _works = works;
            pending().await
        })
    };
    (answer, has_been_asked, end)
}

type Never = Pin<Box<dyn Future<Output = Result<Response<Empty<Bytes>>, Infallible>> + Send>>;

#[tokio::test]
async fn a_reset_drops_the_response_future() {
    let (answer, has_been_asked, end) = endless();
    let mut client = serve(answer).await;
    let (_response, mut send) = ask(&mut client, Method::POST);
    has_been_asked.await.unwrap();
    send.send_reset(Reason::CANCEL);
    assert!(end.await.is_err());
}

#[tokio::test]
async fn a_client_that_cancels_too_many_requests_is_disconnected() {
    let (begins, mut begun) = mpsc::channel(1);
    let (mut client, end, _close) = connect(&client::Builder::new(), move |_, _| {
        begins.try_send(()).unwrap();
        pending::<Result<Response<Empty<Bytes>>, _>>()
    })
    .await;
    for _ in 0..=MAX_CANCELLED {
        let (response, mut send) = ask(&mut client, Method::POST);
        begun.recv().await.unwrap();
        send.send_reset(Reason::CANCEL);
        drop(response);
        pause().await;
    }
    let (response, _send) = ask(&mut client, Method::POST);
    let is_refused = tokio::select! {
        answer = response => answer.is_err(),
        begun = begun.recv() => begun.is_none(),
    };
    assert!(is_refused, "the request is served");
    drop(end.await.unwrap());
}

#[tokio::test]
async fn the_end_of_a_connection_drops_its_response_futures() {
    let (answer, has_been_asked, end) = endless();
    let (mut client, connection, _close) = connect(&client::Builder::new(), answer).await;
    let (_response, _send) = ask(&mut client, Method::GET);
    has_been_asked.await.unwrap();
    connection.abort();
    assert!(end.await.is_err());
}

#[tokio::test]
async fn a_reset_drops_the_response_body() {
    let (mut client, pieces) = serve_pieces(&client::Builder::new(), 1).await;
    let (response, mut send) = ask(&mut client, Method::POST);
    let _answer = response.await.unwrap();
    send.send_reset(Reason::CANCEL);
    pieces.closed().await;
}

#[tokio::test]
async fn a_failed_body_resets_the_stream() {
    let (mut client, pieces) = serve_pieces(&client::Builder::new(), 2).await;
    let mut body = ask(&mut client, Method::GET).0.await.unwrap().into_body();
    pieces
        .send(Ok(Frame::data(Bytes::from_static(b"half"))))
        .await
        .unwrap();
    assert_eq!(body.data().await.unwrap().unwrap(), "half");
    pieces.send(Err("a broken disk".into())).await.unwrap();
    assert_eq!(
        body.data().await.unwrap().unwrap_err().reason(),
        Some(Reason::INTERNAL_ERROR)
    );
}

#[tokio::test]
async fn interim_responses_precede_the_final_one_in_order() {
    let (senders, mut sender) = mpsc::channel(1);
    let (pieces, body) = mpsc::channel(1);
    let mut body = Some(body);
    let (release, released) = oneshot::channel::<()>();
    let mut released = Some(released);
    let mut client = serve(move |_, queue| {
        senders.try_send(queue.unwrap().sender()).unwrap();
        let (body, released) = (body.take().unwrap(), released.take().unwrap());
        async move {
            released.await.unwrap();
            Ok(Response::new(Pieces(body)))
        }
    })
    .await;
    let (mut response, _) = ask(&mut client, Method::GET);
    let sender = sender.recv().await.unwrap();
    for number in [1_u16, 2, 3] {
        let status = if number == 2 {
            StatusCode::PROCESSING
        } else {
            StatusCode::EARLY_HINTS
        };
        let headers = HeaderMap::from_iter([(header::LINK, HeaderValue::from(number))]);
        sender.send(status, headers.clone());
        let interim = poll_fn(|cx| response.poll_informational(cx))
            .await
            .unwrap()
            .unwrap();
        assert_eq!((interim.status(), interim.headers()), (status, &headers));
    }
    release.send(()).unwrap();
    let mut body = response.await.unwrap().into_body();
    // Too late: the final response has begun.
    sender.send(StatusCode::EARLY_HINTS, HeaderMap::new());
    pieces
        .send(Ok(Frame::data(Bytes::from_static(b"hello"))))
        .await
        .unwrap();
    drop(pieces);
    assert_eq!(body.data().await.unwrap().unwrap(), "hello");
    // The end of the stream, and nothing else.
    assert_eq!(body.data().await.unwrap().unwrap(), "");
    assert!(body.is_end_stream());
}

#[tokio::test]
async fn the_final_response_waits_for_interim_ones() {
    let mut client = serve(|_, queue| async move {
        let queue = queue.unwrap();
        queue
            .sender()
            .send(StatusCode::EARLY_HINTS, HeaderMap::new());
        assert!(queue.end_request());
        queue.flushed().await;
        Ok(Response::new(Empty::new()))
    })
    .await;
    let (mut response, _) = ask(&mut client, Method::GET);
    let interim = poll_fn(|cx| response.poll_informational(cx))
        .await
        .unwrap()
        .unwrap();
    assert_eq!(interim.status(), StatusCode::EARLY_HINTS);
    assert_eq!(response.await.unwrap().status(), StatusCode::OK);
}

#[tokio::test]
async fn reading_the_body_sends_100_continue() {
    let mut client = serve(|mut request, _| async move {
        let read = if request.uri().path() == "/read" {
            request.body_mut().collect().await.unwrap()
        } else {
            Collected::default()
        };
        Ok(Response::new(Full::new(read.to_bytes())))
    })
    .await;
    let mut put = |path: &str| {
        let request = Request::put(format!("http://example.com{path}"))
            .header(header::EXPECT, "100-continue");
        client
            .send_request(request.body(()).unwrap(), false)
            .unwrap()
    };
    let (mut response, mut content) = put("/read");
    let interim = poll_fn(|cx| response.poll_informational(cx))
        .await
        .unwrap()
        .unwrap();
    assert_eq!(
        (interim.status(), interim.headers().len()),
        (StatusCode::CONTINUE, 0)
    );
    content.send_data("hello".into(), true).unwrap();
    let mut answer = response.await.unwrap().into_body();
    assert_eq!(answer.data().await.unwrap().unwrap(), "hello");

    let (mut response, _content) = put("/refused");
    assert!(
        poll_fn(|cx| response.poll_informational(cx))
            .await
            .is_none()
    );
    assert_eq!(response.await.unwrap().status(), StatusCode::OK);
}

#[tokio::test]
async fn connection_headers_are_removed_and_framing_headers_added() {
    let mut client = serve(|request, _| {
        let status = match request.method().as_str() {
            "NO" => StatusCode::NO_CONTENT,
            "SAME" => StatusCode::NOT_MODIFIED,
            _ => StatusCode::OK,
        };
        let answer = Response::builder()
            .status(status)
            .header("connection", "x-hop")
            .header("x-hop", "1");
        ready(Ok(answer
            .header("keep-alive", "timeout=5")
            .body(Full::new(Bytes::from_static(b"hello")))
            .unwrap()))
    })
    .await;
    for (method, length) in [
        ("GET", Some("5")),
        ("HEAD", Some("5")),
        ("NO", None),
        ("SAME", None),
    ] {
        let answer = ask(&mut client, method.parse().unwrap()).0.await.unwrap();
        let mut names: Vec<_> = answer
            .headers()
            .keys()
            .map(http::HeaderName::as_str)
            .collect();
        names.sort_unstable();
        assert_eq!(
            names,
            if length.is_some() {
                &["content-length", "date"][..]
            } else {
                &["date"]
            },
            "{method}"
        );
        assert_eq!(
            answer
                .headers()
                .get("content-length")
                .map(|length| length.to_str().unwrap()),
            length,
            "{method}"
        );
        assert!(
            answer.headers()["date"].to_str().unwrap().ends_with(" GMT"),
            "{method}"
        );
        assert_eq!(answer.body().is_end_stream(), method != "GET", "{method}");
    }
}

/// Gives all tasks many turns.
async fn pause() {
    for _ in 0..10_000 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_client_that_reads_nothing_is_sent_little_and_delays_no_other_stream() {
    const PIECE: usize = 16 << 10;
    const PIECES: usize = 256;
    let (mut client, pieces) = serve_pieces(&narrow(), 1).await;
    let mut unread = ask(&mut client, Method::GET).0.await.unwrap().into_body();
    let writing = tokio::spawn(async move {
        for _ in 0..PIECES {
            pieces
                .send(Ok(Frame::data(Bytes::from(vec![0; PIECE]))))
                .await
                .unwrap();
        }
    });
    pause().await;
    assert!(!writing.is_finished());
    assert_eq!(
        ask(&mut client, Method::GET).0.await.unwrap().status(),
        StatusCode::OK
    );
    let mut length = 0;
    while let Some(data) = unread.data().await {
        let data = data.unwrap();
        length += data.len();
        unread.flow_control().release_capacity(data.len()).unwrap();
    }
    assert_eq!(length, PIECES * PIECE);
}

/// The test's clock advances automatically when all tasks are idle.
#[tokio::test(start_paused = true)]
async fn an_unread_body_times_out() {
    let (mut client, pieces) = serve_pieces(&narrow(), 1).await;
    let mut unread = ask(&mut client, Method::GET).0.await.unwrap().into_body();
    tokio::spawn(async move {
        while pieces
            .send(Ok(Frame::data(Bytes::from(vec![0; 16 << 10]))))
            .await
            .is_ok()
        {}
    });
    let reset = async {
        loop {
            if let Err(error) = unread.data().await.unwrap() {
                return error;
            }
        }
    };
    let reset = tokio::time::timeout(limits().body_timeout * 2, reset)
        .await
        .expect("a stream that is reset in time");
    assert_eq!(reset.reason(), Some(Reason::CANCEL));
}

#[tokio::test]
async fn a_graceful_close_completes_requests_and_refuses_new_ones() {
    let (release, released) = oneshot::channel::<()>();
    let mut released = Some(released);
    let (mut client, end, close) = connect(&client::Builder::new(), move |_, _| {
        let released = released.take().unwrap();
        async move {
            released.await.unwrap();
            Ok(Response::new(Empty::new()))
        }
    })
    .await;
    let (response, _) = ask(&mut client, Method::GET);
    pause().await;
    close.send(()).unwrap();
    pause().await;
    let refused = poll_fn(|cx| client.poll_ready(cx)).await.unwrap_err();
    assert!(
        refused.is_go_away() && refused.reason() == Some(Reason::NO_ERROR),
        "{refused:?}"
    );
    release.send(()).unwrap();
    assert_eq!(response.await.unwrap().status(), StatusCode::OK);
    end.await.unwrap().unwrap();
}
