//! Connections between the library's client and services that are written for the case.

use std::future::{pending, poll_fn, ready};
use std::time::Duration;

use h2::client::{self, ResponseFuture, SendRequest};
use h2::{Reason, SendStream};
use http::{HeaderMap, HeaderValue, StatusCode, header};
use http_body::Frame;
use http_body_util::{BodyExt, Collected, Empty, Full};
use metrics::Counter;
use tokio::io::duplex;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

use super::*;
use crate::share::Share;

/// Number of requests that a test client may cancel.
const RECALLS: u32 = 3;

type Hints = Option<Arc<Interjections>>;

fn limits() -> Limits {
    let while_it_lasts = Duration::from_hours(1);
    Limits {
        body_size: u64::MAX,
        header_size: 16 << 10,
        connections: Share { all: 1, per_client: None },
        requests: Share { all: 10, per_client: None },
        streams: 10,
        head_timeout: while_it_lasts,
        body_timeout: while_it_lasts,
        keep_alive: while_it_lasts,
    }
}

/// A client of a connection with this service; the connection's end; and a way to have it say goodbye.
async fn connect<A, F, B>(
    builder: &client::Builder,
    answer: A,
) -> (SendRequest<Bytes>, JoinHandle<Result<(), Error>>, oneshot::Sender<()>)
where
    A: FnMut(Request<StreamBody>, Hints) -> F + Unpin + Send + 'static,
    F: Future<Output = Result<Response<B>, Infallible>> + Send + 'static,
    B: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
{
    let (ours, theirs) = duplex(64 << 10);
    let (goodbye, said) = oneshot::channel();
    let mut said = Some(said);
    let pace = Pace { timeout: limits().body_timeout, slow_readers: Counter::noop() };
    let terms = Terms { interjects: true, pace, admits: || true, recalls: RECALLS };
    let mut connection = Connection::new(&within(&limits()), ours, terms, answer);
    let end = tokio::spawn(poll_fn(move |cx| {
        if let Some(Poll::Ready(Ok(()))) = said.as_mut().map(|said| Pin::new(said).poll(cx)) {
            connection.say(Goodbye::Finish);
            said = None;
        }
        Pin::new(&mut connection).poll(cx)
    }));
    let (client, connection) = builder.handshake(theirs).await.unwrap();
    tokio::spawn(connection);
    (client.ready().await.unwrap(), end, goodbye)
}

async fn serve<F, B>(answer: impl FnMut(Request<StreamBody>, Hints) -> F + Unpin + Send + 'static) -> SendRequest<Bytes>
where
    F: Future<Output = Result<Response<B>, Infallible>> + Send + 'static,
    B: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
{
    let (client, end, goodbye) = connect(&client::Builder::new(), answer).await;
    // Without a goodbye, and whatever becomes of the connection.
    std::mem::forget(goodbye);
    drop(end);
    client
}

fn ask(client: &mut SendRequest<Bytes>, method: Method) -> (ResponseFuture, SendStream<Bytes>) {
    let ends = method != Method::POST;
    let request = Request::builder().method(method).uri("http://example.com/").body(()).unwrap();
    client.send_request(request, ends).unwrap()
}

/// Content that a test sends, piece by piece.
struct Pieces(mpsc::Receiver<Result<Frame<Bytes>, BoxError>>);

impl Body for Pieces {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        self.0.poll_recv(cx)
    }
}

#[tokio::test]
async fn both_sides_talk_at_once_and_end_with_trailers() {
    let mut client = serve(|request, _| ready(Ok(Response::new(request.into_body())))).await;
    let (response, mut send) = ask(&mut client, Method::POST);
    let mut body = response.await.unwrap().into_body();
    for word in ["hello", "again"] {
        send.send_data(Bytes::from_static(word.as_bytes()), false).unwrap();
        assert_eq!(body.data().await.unwrap().unwrap(), word);
    }
    let trailers = HeaderMap::from_iter([(header::ETAG, HeaderValue::from_static("\"x\""))]);
    send.send_trailers(trailers.clone()).unwrap();
    assert!(body.data().await.is_none());
    assert_eq!(body.trailers().await.unwrap(), Some(trailers));
}

#[tokio::test]
async fn a_length_is_a_hint_of_what_is_to_come() {
    let mut client = serve(|request, _| {
        let hint = request.body().size_hint().exact();
        async move {
            let read = request.into_body().collect().await.map(http_body_util::Collected::to_bytes);
            Ok(Response::new(Full::new(Bytes::from(format!("{hint:?} {read:?}")))))
        }
    })
    .await;
    let request = || Request::post("http://example.com/").header("content-length", "5").body(()).unwrap();
    let (response, mut send) = client.send_request(request(), false).unwrap();
    send.send_data(Bytes::from_static(b"hello"), true).unwrap();
    let mut body = response.await.unwrap().into_body();
    assert_eq!(body.data().await.unwrap().unwrap(), "Some(5) Ok(b\"hello\")");
    for content in ["hell", "hello!"] {
        let (response, mut send) = client.send_request(request(), false).unwrap();
        send.send_data(Bytes::from_static(content.as_bytes()), true).unwrap();
        assert_eq!(response.await.unwrap_err().reason(), Some(Reason::PROTOCOL_ERROR), "{content}");
    }
}

#[tokio::test]
async fn a_body_that_is_taken_back_is_not_whole() {
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

/// A service that never answers one request; what says that it has the request; and what ends when its work does.
fn endless() -> (impl FnMut(Request<StreamBody>, Hints) -> Never, oneshot::Receiver<()>, oneshot::Receiver<()>) {
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
async fn a_reset_ends_the_work_on_an_answer() {
    let (answer, has_been_asked, end) = endless();
    let mut client = serve(answer).await;
    let (_response, mut send) = ask(&mut client, Method::POST);
    has_been_asked.await.unwrap();
    send.send_reset(Reason::CANCEL);
    assert!(end.await.is_err());
}

#[tokio::test]
async fn a_client_that_takes_back_all_it_asks_for_is_sent_away() {
    let (begins, mut begun) = mpsc::channel(1);
    let (mut client, end, _goodbye) = connect(&client::Builder::new(), move |_, _| {
        begins.try_send(()).unwrap();
        pending::<Result<Response<Empty<Bytes>>, _>>()
    })
    .await;
    for _ in 0..=RECALLS {
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
    assert!(is_refused, "no work is begun");
    drop(end.await.unwrap());
}

#[tokio::test]
async fn the_end_of_the_connection_ends_the_work_on_its_streams() {
    let (answer, has_been_asked, end) = endless();
    let (mut client, connection, _goodbye) = connect(&client::Builder::new(), answer).await;
    let (_response, _send) = ask(&mut client, Method::GET);
    has_been_asked.await.unwrap();
    connection.abort();
    assert!(end.await.is_err());
}

#[tokio::test]
async fn a_reset_ends_the_work_on_content() {
    let (pieces, body) = mpsc::channel(1);
    let mut body = Some(body);
    let mut client = serve(move |_, _| ready(Ok(Response::new(Pieces(body.take().unwrap()))))).await;
    let (response, mut send) = ask(&mut client, Method::POST);
    let _answer = response.await.unwrap();
    send.send_reset(Reason::CANCEL);
    pieces.closed().await;
}

#[tokio::test]
async fn content_that_breaks_off_is_no_whole_answer() {
    let (pieces, body) = mpsc::channel(2);
    let mut body = Some(body);
    let mut client = serve(move |_, _| ready(Ok(Response::new(Pieces(body.take().unwrap()))))).await;
    let mut body = ask(&mut client, Method::GET).0.await.unwrap().into_body();
    pieces.send(Ok(Frame::data(Bytes::from_static(b"half")))).await.unwrap();
    assert_eq!(body.data().await.unwrap().unwrap(), "half");
    pieces.send(Err("a broken disk".into())).await.unwrap();
    assert_eq!(body.data().await.unwrap().unwrap_err().reason(), Some(Reason::INTERNAL_ERROR));
}

#[tokio::test]
async fn interim_responses_come_in_order_and_before_the_answer() {
    let (turns, mut turn) = mpsc::channel(1);
    let (pieces, body) = mpsc::channel(1);
    let mut body = Some(body);
    let (release, released) = oneshot::channel::<()>();
    let mut released = Some(released);
    let mut client = serve(move |_, hints| {
        turns.try_send(hints.unwrap().open()).unwrap();
        let (body, released) = (body.take().unwrap(), released.take().unwrap());
        async move {
            released.await.unwrap();
            Ok(Response::new(Pieces(body)))
        }
    })
    .await;
    let (mut response, _) = ask(&mut client, Method::GET);
    let turn = turn.recv().await.unwrap();
    for number in [1_u16, 2, 3] {
        let status = if number == 2 { StatusCode::PROCESSING } else { StatusCode::EARLY_HINTS };
        let headers = HeaderMap::from_iter([(header::LINK, HeaderValue::from(number))]);
        turn.say(status, headers.clone());
        let said = poll_fn(|cx| response.poll_informational(cx)).await.unwrap().unwrap();
        assert_eq!((said.status(), said.headers()), (status, &headers));
    }
    release.send(()).unwrap();
    let mut body = response.await.unwrap().into_body();
    // The answer has begun: what comes now has come too late.
    turn.say(StatusCode::EARLY_HINTS, HeaderMap::new());
    pieces.send(Ok(Frame::data(Bytes::from_static(b"hello")))).await.unwrap();
    drop(pieces);
    assert_eq!(body.data().await.unwrap().unwrap(), "hello");
    // The end of the stream, and nothing else.
    assert_eq!(body.data().await.unwrap().unwrap(), "");
    assert!(body.is_end_stream());
}

#[tokio::test]
async fn an_answer_waits_for_what_comes_before_it() {
    let mut client = serve(|_, hints| async move {
        let hints = hints.unwrap();
        hints.open().say(StatusCode::EARLY_HINTS, HeaderMap::new());
        assert!(hints.end_turn());
        hints.settle().await;
        Ok(Response::new(Empty::new()))
    })
    .await;
    let (mut response, _) = ask(&mut client, Method::GET);
    let said = poll_fn(|cx| response.poll_informational(cx)).await.unwrap().unwrap();
    assert_eq!(said.status(), StatusCode::EARLY_HINTS);
    assert_eq!(response.await.unwrap().status(), StatusCode::OK);
}

#[tokio::test]
async fn who_waits_for_leave_to_send_content_gets_it_when_it_is_read() {
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
        let request = Request::put(format!("http://example.com{path}")).header(header::EXPECT, "100-continue");
        client.send_request(request.body(()).unwrap(), false).unwrap()
    };
    let (mut response, mut content) = put("/read");
    let said = poll_fn(|cx| response.poll_informational(cx)).await.unwrap().unwrap();
    assert_eq!((said.status(), said.headers().len()), (StatusCode::CONTINUE, 0));
    content.send_data("hello".into(), true).unwrap();
    let mut answer = response.await.unwrap().into_body();
    assert_eq!(answer.data().await.unwrap().unwrap(), "hello");

    let (mut response, _content) = put("/refused");
    assert!(poll_fn(|cx| response.poll_informational(cx)).await.is_none());
    assert_eq!(response.await.unwrap().status(), StatusCode::OK);
}

#[tokio::test]
async fn a_head_says_what_the_connection_does_not() {
    let mut client = serve(|request, _| {
        let status = match request.method().as_str() {
            "NO" => StatusCode::NO_CONTENT,
            "SAME" => StatusCode::NOT_MODIFIED,
            _ => StatusCode::OK,
        };
        let answer = Response::builder().status(status).header("connection", "x-hop").header("x-hop", "1");
        ready(Ok(answer.header("keep-alive", "timeout=5").body(Full::new(Bytes::from_static(b"hello"))).unwrap()))
    })
    .await;
    for (method, length) in [("GET", Some("5")), ("HEAD", Some("5")), ("NO", None), ("SAME", None)] {
        let answer = ask(&mut client, method.parse().unwrap()).0.await.unwrap();
        let mut names: Vec<_> = answer.headers().keys().map(http::HeaderName::as_str).collect();
        names.sort_unstable();
        assert_eq!(names, if length.is_some() { &["content-length", "date"][..] } else { &["date"] }, "{method}");
        assert_eq!(answer.headers().get("content-length").map(|length| length.to_str().unwrap()), length, "{method}");
        assert!(answer.headers()["date"].to_str().unwrap().ends_with(" GMT"), "{method}");
        assert_eq!(answer.body().is_end_stream(), method != "GET", "{method}");
    }
}

/// Takes what there is of an answer, until nothing has come for many turns of all tasks.
async fn pause() {
    for _ in 0..10_000 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_client_that_reads_nothing_is_sent_little_and_holds_up_nobody() {
    const PIECE: usize = 16 << 10;
    const PIECES: usize = 256;
    let (pieces, body) = mpsc::channel(1);
    let mut body = Some(body);
    let mut builder = client::Builder::new();
    builder.initial_window_size(64 << 10).initial_connection_window_size(1 << 20);
    let (mut client, _end, _goodbye) = connect(&builder, move |_, _| {
        let small = || Pieces(mpsc::channel(1).1);
        ready(Ok(Response::new(body.take().map_or_else(small, Pieces))))
    })
    .await;
    let mut unread = ask(&mut client, Method::GET).0.await.unwrap().into_body();
    let writing = tokio::spawn(async move {
        for _ in 0..PIECES {
            pieces.send(Ok(Frame::data(Bytes::from(vec![0; PIECE])))).await.unwrap();
        }
    });
    pause().await;
    assert!(!writing.is_finished());
    assert_eq!(ask(&mut client, Method::GET).0.await.unwrap().status(), StatusCode::OK);
    let mut length = 0;
    while let Some(data) = unread.data().await {
        let data = data.unwrap();
        length += data.len();
        unread.flow_control().release_capacity(data.len()).unwrap();
    }
    assert_eq!(length, PIECES * PIECE);
}

#[tokio::test]
async fn after_a_goodbye_no_request_is_taken_and_those_that_came_are_answered() {
    let (release, released) = oneshot::channel::<()>();
    let mut released = Some(released);
    let (mut client, end, goodbye) = connect(&client::Builder::new(), move |_, _| {
        let released = released.take().unwrap();
        async move {
            released.await.unwrap();
            Ok(Response::new(Empty::new()))
        }
    })
    .await;
    let (response, _) = ask(&mut client, Method::GET);
    pause().await;
    goodbye.send(()).unwrap();
    pause().await;
    let refused = poll_fn(|cx| client.poll_ready(cx)).await.unwrap_err();
    assert!(refused.is_go_away() && refused.reason() == Some(Reason::NO_ERROR), "{refused:?}");
    release.send(()).unwrap();
    assert_eq!(response.await.unwrap().status(), StatusCode::OK);
    end.await.unwrap().unwrap();
}
