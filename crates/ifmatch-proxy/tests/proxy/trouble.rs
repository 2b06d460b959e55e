//! Upstreams that are unreachable, slow, close early or send invalid HTTP.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http_body::{Body, Frame};
use http_body_util::Full;
use ifmatch_proxy::{Balance, ForwardedClient, HealthCheck, Proxy, ProxyErrorKind, Upstream};
use tokio::net::TcpSocket;
use tower::ServiceExt;

use crate::support::{Origin, Step, ask, content, get, proxy_of, refused, until, upstream_of};

const EMPTY: &str = "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";

/// Returns a URL that refuses connections, and the socket that reserves its port: bound, but not listening.
fn closed_address() -> (TcpSocket, String) {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let url = format!("http://{}", socket.local_addr().unwrap());
    (socket, url)
}

fn post() -> Request<Full<Bytes>> {
    Request::post("/").body(Full::from("order")).unwrap()
}

#[tokio::test]
async fn an_unreachable_server_is_skipped() {
    let origin = Origin::start(vec![Step::Send(EMPTY); 4]).await;
    let (_socket, closed) = closed_address();
    let upstream = Upstream::parse(&[&closed, &format!("http://{}", origin.address)]).unwrap();
    let proxy = proxy_of(upstream);
    for _ in 0..4 {
        ask(&proxy, get("/")).await.unwrap();
    }
    let alone = proxy_of(Upstream::parse(&[&closed]).unwrap());
    let error = refused(&alone, get("/")).await;
    assert_eq!(
        (error.kind(), error.problem().status().as_u16()),
        (ProxyErrorKind::Unreachable, 502)
    );
}

#[tokio::test]
async fn a_get_is_retried_once_and_a_post_never() {
    let origin = Origin::start(vec![Step::Close(""), Step::Send(EMPTY), Step::Close("")]).await;
    let proxy = origin.proxy();
    ask(&proxy, get("/")).await.unwrap();
    assert_eq!(origin.requests().len(), 2);
    assert_eq!(refused(&proxy, post()).await.kind(), ProxyErrorKind::Broken);
    assert_eq!(origin.requests().len(), 3);
}

#[tokio::test]
async fn a_safe_request_that_a_server_fails_goes_to_the_next_one_and_a_write_does_not() {
    const BUSY: &str = "HTTP/1.1 503 Service Unavailable\r\ncontent-length: 4\r\n\r\nbusy";
    let put = |name: &str, value: &str| {
        Request::put("/")
            .header(name, value)
            .body(Full::from("order"))
            .unwrap()
    };
    let delete = || {
        Request::delete("/")
            .header("host", "example.com")
            .body(Full::default())
            .unwrap()
    };
    // Round robin: the first request goes to the first server.
    for (request, first, expected, counts) in [
        (get("/"), vec![Step::Send(BUSY)], Ok(200), [1, 1]),
        (
            get("/"),
            vec![Step::Close(""), Step::Close("")],
            Ok(200),
            [2, 1],
        ),
        (
            get("/"),
            vec![Step::Close("nonsense\r\n\r\n"), Step::Send(BUSY)],
            Ok(200),
            [2, 1],
        ),
        (
            put("host", "example.com"),
            vec![Step::Send(BUSY)],
            Ok(503),
            [1, 0],
        ),
        (
            put("if-match", "\"1\""),
            vec![Step::Close("")],
            Err(ProxyErrorKind::Broken),
            [1, 0],
        ),
        (
            delete(),
            vec![Step::Close("")],
            Err(ProxyErrorKind::Broken),
            [1, 0],
        ),
        (post(), vec![Step::Send(BUSY)], Ok(503), [1, 0]),
    ] {
        let shown = format!("{request:?} {counts:?}");
        let servers = [
            Origin::start(first).await,
            Origin::start(vec![Step::Send(EMPTY); 4]).await,
        ];
        let upstream = upstream_of(&servers.each_ref());
        let proxy = proxy_of(upstream);
        let answer = ask(&proxy, request)
            .await
            .map(|answer| answer.status().as_u16())
            .map_err(|error| error.kind());
        assert_eq!(answer, expected, "{shown}");
        assert_eq!(
            servers.map(|server| server.requests().len()),
            counts,
            "{shown}"
        );
    }
    // The last server's response is returned, with its content, and the slots are free again.
    let busy = Origin::start(vec![Step::Send(BUSY); 9]).await;
    let upstream = upstream_of(&[&busy; 5]).limit(1, 0);
    let proxy = proxy_of(upstream);
    let answer = ask(&proxy, get("/")).await.unwrap();
    assert_eq!(
        (
            answer.status().as_u16(),
            content(answer).await.unwrap().as_str()
        ),
        (503, "busy")
    );
    assert_eq!(busy.requests().len(), 3);
    assert_eq!(
        proxy.upstreams()[0]
            .servers
            .iter()
            .map(|server| server.requests)
            .sum::<u64>(),
        0
    );
}

/// The only live server is busy, and says so. Whichever server is asked first, the client learns that.
#[tokio::test]
async fn the_response_of_a_busy_server_comes_before_the_error_of_one_that_is_down() {
    const BUSY: &str =
        "HTTP/1.1 503 Service Unavailable\r\nretry-after: 7\r\ncontent-length: 4\r\n\r\nbusy";
    let origin = Origin::start(vec![Step::Send(BUSY); 4]).await;
    let ((_socket, down), live) = (closed_address(), format!("http://{}", origin.address));
    let proxy = proxy_of(Upstream::parse(&[&down, &live]).unwrap());
    for request in 1..=4 {
        let response = ask(&proxy, get("/")).await.unwrap();
        assert_eq!(
            (
                response.status().as_u16(),
                &response.headers()["retry-after"]
            ),
            (503, &"7".parse().unwrap())
        );
        assert_eq!(content(response).await.as_deref(), Ok("busy"));
        assert_eq!(
            origin.requests().len(),
            request,
            "each asks the live server once"
        );
    }
}

/// It would hold the slot of the first server meanwhile, perhaps one that a request at the other server waits for.
#[tokio::test]
async fn a_request_that_a_server_has_failed_does_not_wait_for_a_slot_at_another() {
    const BUSY: &str = "HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\n\r\n";
    let (busy, hanging) = (
        Origin::start(vec![Step::Send(BUSY); 9]).await,
        Origin::start(vec![Step::Wait; 9]).await,
    );
    let upstream = upstream_of(&[&hanging, &busy]).limit(1, 9);
    let proxy = Proxy::builder()
        .connect_timeout(Duration::from_hours(1))
        .route("/", upstream)
        .unwrap()
        .build()
        .unwrap();
    let waiting = tokio::spawn({
        let proxy = proxy.clone();
        async move { ask(&proxy, get("/")).await.map(|_| ()) }
    });
    until("the first request", || !hanging.requests().is_empty()).await;
    let answer = tokio::time::timeout(Duration::from_mins(1), ask(&proxy, get("/"))).await;
    assert_eq!(
        answer.expect("an answer without a wait").unwrap().status(),
        503
    );
    waiting.abort();
}

#[tokio::test]
async fn a_truncated_response_ends_with_an_error() {
    for cut in [
        "HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhello",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n",
    ] {
        let origin = Origin::start(vec![Step::Close(cut)]).await;
        let response = ask(&origin.proxy(), get("/")).await.unwrap();
        assert!(content(response).await.is_err(), "{cut}");
    }
}

/// hyper's parser decides most of these. If a version of it accepted one, bytes of this response could become the next one's.
#[tokio::test]
async fn a_response_whose_end_or_fields_are_ambiguous_is_rejected() {
    for wrong in [
        "HTTP/1.1 200 OK\r\ncontent-length: 5\r\ncontent-length: 6\r\n\r\nhello!",
        "HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\n",
        "HTTP/1.1 200 OK\r\ncontent-length: 5, 6\r\n\r\nhello!",
        "HTTP/1.1 200 OK\r\ncontent-length: 5\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: gzip\r\n\r\nhello",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: gzip, chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked, gzip\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked, chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: identity\r\ncontent-length: 5\r\n\r\nhello",
        "HTTP/1.0 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
        "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: x\r\n\r\nhello",
        "HTTP/1.1 200 OK\r\nx: a\rset-cookie: b\r\n\r\n",
    ] {
        let origin = Origin::start(vec![Step::Close(wrong)]).await;
        let error = refused(&origin.proxy(), post()).await;
        assert_eq!(error.kind(), ProxyErrorKind::Broken, "{wrong}: {error}");
    }
}

#[tokio::test]
async fn bytes_after_a_response_are_ignored() {
    const TWO: &str = "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhelloHTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nevil";
    const NEXT: &str = "HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nnext";
    const BODILESS: &str = "HTTP/1.1 204 No Content\r\ncontent-length: 42\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nevil";
    for first in [TWO, BODILESS] {
        let origin = Origin::start(vec![Step::Send(first), Step::Send(NEXT)]).await;
        let proxy = origin.proxy();
        let response = ask(&proxy, get("/")).await.unwrap();
        assert!(
            response.status() == 200 || !response.headers().contains_key("content-length"),
            "{first}"
        );
        let _ = content(response).await;
        assert_eq!(
            content(ask(&proxy, get("/next")).await.unwrap())
                .await
                .unwrap(),
            "next",
            "{first}"
        );
    }
}

#[tokio::test]
async fn endless_headers_are_rejected() {
    let endless = format!(
        "HTTP/1.1 200 OK\r\n{}",
        "x-filler: 0123456789\r\n".repeat(1 << 16)
    );
    let origin = Origin::start(vec![Step::Close(endless.leak())]).await;
    assert_eq!(
        refused(&origin.proxy(), post()).await.kind(),
        ProxyErrorKind::Broken
    );
}

#[tokio::test]
async fn a_silent_upstream_times_out() {
    let origin = Origin::start(vec![Step::Wait]).await;
    let proxy = origin
        .builder()
        .answer_timeout(Duration::from_millis(50))
        .build()
        .unwrap();
    let error = refused(&proxy, get("/")).await;
    assert_eq!(
        (error.kind(), error.problem().status().as_u16()),
        (ProxyErrorKind::Timeout, 504)
    );
    let origin = Origin::start(vec![Step::Send(
        "HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhel",
    )])
    .await;
    let proxy = origin
        .builder()
        .answer_timeout(Duration::from_millis(50))
        .build()
        .unwrap();
    let response = ask(&proxy, get("/")).await.unwrap();
    assert!(content(response).await.is_err());
}

/// Content without an end.
struct Endless;

impl Body for Endless {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(&[0; 16 * 1024])))))
    }
}

#[tokio::test]
async fn an_upstream_that_stops_reading_times_out() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let upstream =
        Upstream::parse(&[format!("http://{}", listener.local_addr().unwrap())]).unwrap();
    let upload = async {
        let builder = Proxy::builder()
            .route("/", upstream)
            .unwrap()
            .answer_timeout(Duration::from_millis(50));
        builder
            .build()
            .unwrap()
            .oneshot(Request::put("/").body(Endless).unwrap())
            .await
    };
    let answer = tokio::time::timeout(Duration::from_secs(30), upload).await;
    let error = answer.expect("an end").expect_err("no response");
    assert_eq!(
        (error.kind(), error.is_in_doubt()),
        (ProxyErrorKind::Timeout, true)
    );
    drop(listener);
}

#[tokio::test]
async fn unsupported_requests_are_rejected() {
    let origin = Origin::start(vec![]).await;
    let tunnel = Request::connect("example.com:443")
        .body(Full::default())
        .unwrap();
    assert_eq!(
        refused(&origin.proxy(), tunnel).await.kind(),
        ProxyErrorKind::Unsupported
    );
    let server = Request::options("*").body(Full::default()).unwrap();
    assert_eq!(
        refused(&origin.proxy(), server).await.kind(),
        ProxyErrorKind::Unsupported
    );
    let images = Proxy::builder()
        .route("/images", origin.upstream())
        .unwrap()
        .build()
        .unwrap();
    assert_eq!(
        refused(&images, get("/other")).await.kind(),
        ProxyErrorKind::NoRoute
    );
    let error = refused(&images, get("/images/%2e%2e/other")).await;
    assert_eq!(
        (error.kind(), error.problem().status().as_u16()),
        (ProxyErrorKind::AmbiguousPath, 400)
    );
    assert_eq!(origin.requests().len(), 0);
}

#[tokio::test]
async fn content_goes_to_the_next_server_if_one_is_unreachable() {
    let origin = Origin::start(vec![Step::Send(EMPTY); 4]).await;
    let ((_first, before), (_second, after)) = (closed_address(), closed_address());
    let addresses = [before, format!("http://{}", origin.address), after];
    let proxy = proxy_of(Upstream::parse(&addresses).unwrap());
    for _ in 0..4 {
        ask(&proxy, post()).await.unwrap();
    }
    assert_eq!(origin.requests().len(), 4);
    for request in origin.requests() {
        assert!(request.ends_with("\r\n\r\norder"), "{request}");
    }
}

#[tokio::test]
async fn a_hanging_server_uses_only_its_own_slots() {
    let hanging = Origin::start(vec![Step::Wait; 100]).await;
    let other = Origin::start(vec![Step::Send(EMPTY); 100]).await;
    let proxy = Proxy::builder()
        .route("/hang", hanging.upstream().limit(2, 1))
        .unwrap()
        .route("/", other.upstream().limit(2, 1))
        .unwrap()
        .connect_timeout(Duration::from_hours(1))
        .build()
        .unwrap();
    let hang = || {
        let proxy = proxy.clone();
        tokio::spawn(async move { ask(&proxy, get("/hang")).await.map(|_| ()) })
    };
    let mut waiting: Vec<_> = (0..3).map(|_| hang()).collect();
    until("two requests", || hanging.requests().len() == 2).await;
    // Two requests are at the server, and one is queued; the next one is rejected.
    let error = loop {
        let mut next = hang();
        tokio::select! {
            result = &mut next => break result.unwrap().expect_err("nothing answers"),
            () = tokio::time::sleep(Duration::from_millis(20)) => waiting.push(next),
        }
    };
    assert_eq!(
        (error.kind(), error.problem().status().as_u16()),
        (ProxyErrorKind::Overloaded, 503)
    );
    assert_eq!(error.problem().to_response().headers()["retry-after"], "1");
    ask(&proxy, get("/")).await.unwrap();
    // A freed slot goes to the waiting request.
    waiting.swap_remove(0).abort();
    until("the third request", || hanging.requests().len() == 3).await;
    for task in waiting {
        task.abort();
    }
}

#[tokio::test]
async fn a_slot_is_released_when_the_response_has_been_read() {
    let origin = Origin::start(vec![
        Step::Send(
            "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello"
        );
        3
    ])
    .await;
    let proxy = proxy_of(origin.upstream().limit(1, 0));
    let first = ask(&proxy, get("/1")).await.unwrap();
    assert_eq!(
        refused(&proxy, get("/2")).await.kind(),
        ProxyErrorKind::Overloaded
    );
    assert_eq!(content(first).await.unwrap(), "hello");
    drop(ask(&proxy, get("/3")).await.unwrap());
    ask(&proxy, get("/4")).await.unwrap();
}

#[tokio::test]
async fn an_unhealthy_server_is_avoided_while_another_one_hangs() {
    const SICK: &str = "HTTP/1.1 500 No\r\ncontent-length: 0\r\n\r\n";
    let sick = Origin::start(vec![Step::Send(SICK); 100_000]).await;
    let well = Origin::start(vec![Step::Send(EMPTY); 100_000]).await;
    let hanging = Origin::start(vec![Step::Wait]).await;
    let check = HealthCheck {
        interval: Duration::from_millis(10),
        timeout: Duration::from_hours(1),
        ..HealthCheck::of("/health")
    };
    let proxy = Proxy::builder()
        .route("/hang", hanging.upstream())
        .unwrap()
        .route("/", upstream_of(&[&sick, &well]))
        .unwrap()
        .health_check(check)
        .build()
        .unwrap();
    let checks = tokio::spawn(proxy.clone().watch_health());
    // The second check of a server follows the verdict of the first.
    until("two checks of each server that responds", || {
        !hanging.requests().is_empty()
            && [&sick, &well]
                .iter()
                .all(|origin| origin.requests().len() >= 2)
    })
    .await;
    for _ in 0..30 {
        assert!(
            ask(&proxy, get("/page"))
                .await
                .unwrap()
                .status()
                .is_success()
        );
    }
    let pages = |origin: &Origin| {
        origin
            .requests()
            .iter()
            .filter(|request| request.starts_with("GET /page "))
            .count()
    };
    assert_eq!([pages(&well), pages(&sick)], [30, 0]);
    checks.abort();
}

#[tokio::test]
async fn a_server_that_hangs_is_left_alone() {
    let hanging = Origin::start(vec![Step::Wait; 9]).await;
    let other = Origin::start(vec![Step::Send(EMPTY); 9]).await;
    let build = || {
        let breaker = |upstream: Upstream| upstream.breaker(2, Duration::from_hours(1));
        let backup = format!("http://{} backup", other.address);
        let both = Upstream::parse(&[format!("http://{}", hanging.address), backup]).unwrap();
        let builder = Proxy::builder()
            .route("/alone", breaker(hanging.upstream()))
            .unwrap();
        let builder = builder.route("/both", breaker(both)).unwrap();
        builder
            .connect_timeout(Duration::from_hours(1))
            .answer_timeout(Duration::from_millis(50))
            .build()
            .unwrap()
    };
    let proxy = build();
    for path in ["/alone/1", "/alone/2", "/both/1", "/both/2"] {
        assert_eq!(
            refused(&proxy, get(path)).await.kind(),
            ProxyErrorKind::Timeout
        );
    }
    for _ in 0..2 {
        let error = refused(&proxy, get("/alone")).await;
        assert_eq!(
            (error.kind(), error.is_in_doubt()),
            (ProxyErrorKind::Unavailable, false)
        );
        let response = error.problem().to_response();
        assert_eq!(response.status(), 503);
        assert_eq!(response.headers()["retry-after"], "3600");
        assert_eq!(ask(&proxy, get("/both")).await.unwrap().status(), 200);
        let states = proxy.upstreams();
        let server = &states
            .iter()
            .find(|state| state.route == "/alone")
            .unwrap()
            .servers[0];
        assert_eq!((server.healthy, server.breaker_open), (false, true));
        // A reload changes nothing.
        proxy.replace(build());
    }
    assert_eq!((hanging.requests().len(), other.requests().len()), (4, 2));
}

#[tokio::test]
async fn a_server_that_responds_again_gets_requests_again() {
    let broken = [
        Step::Close("no HTTP\r\n\r\n"),
        Step::Close(""),
        Step::Close(""),
        Step::Close(""),
    ];
    let steps = [broken.as_slice(), &[Step::Send(EMPTY); 2]].concat();
    let origin = Origin::start(steps).await;
    let upstream = origin.upstream().breaker(2, Duration::from_hours(1));
    let proxy = proxy_of(upstream);
    // Of a safe method, a broken response is retried once.
    assert_eq!(
        refused(&proxy, get("/")).await.kind(),
        ProxyErrorKind::Broken
    );
    assert_eq!(
        refused(&proxy, get("/other")).await.kind(),
        ProxyErrorKind::Broken
    );
    // It is skipped now, but no other server can take the request.
    assert!(proxy.upstreams()[0].servers[0].breaker_open);
    assert_eq!(ask(&proxy, get("/")).await.unwrap().status(), 200);
    assert!(!proxy.upstreams()[0].servers[0].breaker_open);
    assert_eq!(ask(&proxy, get("/")).await.unwrap().status(), 200);
    assert_eq!(origin.requests().len(), 6);
}

#[tokio::test]
async fn one_client_leaves_slots_to_others_even_after_it_has_left() {
    let origin = Origin::start([&[Step::Wait][..], &[Step::Send(EMPTY); 2]].concat()).await;
    let proxy = proxy_of(origin.upstream().limit(2, 0));
    let from = |last: u8| {
        let mut request = get("/");
        let address = ([192, 0, 2, last], 4711).into();
        request.extensions_mut().insert(ForwardedClient {
            address,
            secure: false,
            interim: None,
        });
        request
    };
    let slow = tokio::spawn({
        let (proxy, request) = (proxy.clone(), from(1));
        async move { ask(&proxy, request).await.map(|_| ()) }
    });
    until("the first request", || !origin.requests().is_empty()).await;
    assert_eq!(
        refused(&proxy, from(1)).await.kind(),
        ProxyErrorKind::Overloaded
    );
    assert_eq!(ask(&proxy, from(2)).await.unwrap().status(), 200);
    slow.abort();
}

#[tokio::test]
async fn a_server_that_answers_errors_at_once_does_not_win_least_connections() {
    const BUSY: &str = "HTTP/1.1 503 Busy\r\ncontent-length: 0\r\n\r\n";
    let busy = Origin::start(vec![Step::Send(BUSY); 99]).await;
    let good = Origin::start(vec![Step::Send(EMPTY); 99]).await;
    let upstream = upstream_of(&[&busy, &good])
        .balance(Balance::LeastConnections)
        .breaker(3, Duration::from_hours(1));
    let proxy = proxy_of(upstream);
    // A response is held back, so the good server always has more requests in progress.
    let mut held = Vec::new();
    for number in 0..30 {
        let response = ask(&proxy, get(&format!("/{number}"))).await.unwrap();
        if response.status() == 200 {
            held.push(response);
        }
    }
    assert_eq!(busy.requests().len(), 3);
    assert_eq!(held.len(), 30, "the next server got the others");
}
