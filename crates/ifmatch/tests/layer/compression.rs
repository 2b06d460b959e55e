//! tower-http's `CompressionLayer`, inside and outside: two codings never share a strong tag.

use std::convert::Infallible;

use bytes::Bytes;
use http::header::{ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_RANGE, ETAG, RANGE, VARY};
use http::{Request, Response};
use http_body_util::Full;
use ifmatch::ConditionalLayer;
use ifmatch_core::digest::ContentHash;
use tower::{Layer, ServiceBuilder, service_fn};
use tower_http::compression::CompressionLayer;

use crate::support::{Sent, World, ask, request, send};

const GZIP: (&str, &str) = ("accept-encoding", "gzip");

fn text() -> String {
    "the same line again and again\n".repeat(100)
}

fn world() -> World {
    let world = World::with(&[("/a", &text())]);
    world.respond("GET /a", "content-type", "text/plain");
    world
}

/// Properties of both orders.
macro_rules! check {
    ($service:expr) => {{
        let service = $service;
        let plain = ask(&service, "GET /a", &[]).await;
        let coded = ask(&service, "GET /a", &[GZIP]).await;
        assert_eq!(
            plain.tag(),
            ContentHash::of(text().as_bytes()).content_tag().to_string()
        );
        assert_eq!(coded.headers[CONTENT_ENCODING], "gzip");
        assert_ne!(coded.tag(), plain.tag());
        assert_eq!(coded.headers[VARY], "accept-encoding");
        // Each tag matches its own coding only.
        for (tag, accept, status) in [
            (&plain.tag(), "identity", 304),
            (&coded.tag(), "gzip", 304),
            (&plain.tag(), "gzip", 200),
            (&coded.tag(), "identity", 200),
        ] {
            let reply = ask(
                &service,
                "GET /a",
                &[("accept-encoding", accept), ("if-none-match", tag)],
            )
            .await;
            assert_eq!(reply.status.as_u16(), status, "{tag} for {accept}");
            assert_eq!(reply.headers.get_all(VARY).iter().count(), 1);
            assert_eq!(reply.headers[VARY], "accept-encoding");
            if status == 304 {
                assert_eq!(
                    (reply.headers[ETAG].to_str().unwrap(), reply.body.len()),
                    (tag.as_str(), 0)
                );
            }
        }
        // Parts of different codings are never combined.
        let part = [("range", "bytes=0-3"), ("if-range", &coded.tag())];
        assert_eq!(ask(&service, "GET /a", &part).await.status, 200);
        // Either tag allows a write to the resource, once.
        let fields = [
            ("if-match", coded.tag()),
            ("accept-encoding", "gzip".to_owned()),
        ];
        let fields: Vec<_> = fields
            .iter()
            .map(|(name, value)| (*name, value.as_str()))
            .collect();
        assert_eq!(
            send(&service, request("PUT /a", &fields, "two"))
                .await
                .status,
            204
        );
        for tag in [plain.tag(), coded.tag()] {
            assert_eq!(
                send(&service, request("PUT /a", &[("if-match", &tag)], "lost"))
                    .await
                    .status,
                412
            );
        }
    }};
}

#[tokio::test]
async fn compression_inside() {
    check!(ConditionalLayer::new().layer(CompressionLayer::new().layer(world())));
}

#[tokio::test]
async fn compression_inside_with_authority() {
    let layer = ConditionalLayer::builder().authoritative().build();
    check!(layer.layer(CompressionLayer::new().layer(world())));
}

#[tokio::test]
async fn compression_outside() {
    let layer = ConditionalLayer::builder().behind_compression().build();
    check!(
        ServiceBuilder::new()
            .layer(CompressionLayer::new())
            .layer(layer)
            .service(world())
    );
}

#[tokio::test]
async fn compression_outside_with_authority() {
    let layer = ConditionalLayer::builder()
        .authoritative()
        .behind_compression()
        .build();
    check!(
        ServiceBuilder::new()
            .layer(CompressionLayer::new())
            .layer(layer)
            .service(world())
    );
}

#[tokio::test]
async fn a_resumed_download_behind_compression_never_mixes_codings() {
    let layer = ConditionalLayer::builder().behind_compression().build();
    let service = ServiceBuilder::new()
        .layer(CompressionLayer::new())
        .layer(layer)
        .service(world());
    let (plain, coded) = (
        ask(&service, "GET /a", &[]).await.tag(),
        ask(&service, "GET /a", &[GZIP]).await.tag(),
    );
    // Parts aren't compressed, so a condition that names the compressed bytes must not get one.
    for condition in ["if-range", "if-match"] {
        let resume = [GZIP, ("range", "bytes=5-9"), (condition, coded.as_str())];
        let reply = ask(&service, "GET /a", &resume).await;
        assert_eq!(
            (reply.status.as_u16(), reply.tag()),
            (200, coded.clone()),
            "{condition}"
        );
    }
    let resume = [GZIP, ("range", "bytes=5-9"), ("if-range", plain.as_str())];
    let reply = ask(&service, "GET /a", &resume).await;
    assert_eq!((reply.status.as_u16(), reply.tag()), (206, plain));
    assert_eq!(&reply.body[..], &text().as_bytes()[5..=9]);
}

/// The inner service has a tag of its own, and cuts its own parts. The client resumes the compressed download.
#[tokio::test]
async fn a_condition_on_compressed_bytes_gets_them_whole_from_a_service_that_cuts_parts() {
    let inner = service_fn(|request: Request<Sent>| async move {
        let response = Response::builder()
            .header(ETAG, "\"v1\"")
            .header("content-type", "text/plain");
        Ok::<_, Infallible>(if request.headers().contains_key(RANGE) {
            let part = response
                .status(206)
                .header(CONTENT_RANGE, format!("bytes 5-9/{}", text().len()));
            part.body(Full::new(Bytes::from(text()).slice(5..=9)))
                .unwrap()
        } else {
            response.body(Full::from(text())).unwrap()
        })
    });
    let layer = ConditionalLayer::builder().behind_compression().build();
    let service = ServiceBuilder::new()
        .layer(CompressionLayer::new())
        .layer(layer)
        .service(inner);
    let coded = ask(&service, "GET /a", &[GZIP]).await.tag();
    for (tag, status) in [(coded.as_str(), 200), ("\"v1\"", 206), ("\"v0\"", 412)] {
        let reply = ask(
            &service,
            "GET /a",
            &[GZIP, ("range", "bytes=5-9"), ("if-match", tag)],
        )
        .await;
        assert_eq!(reply.status.as_u16(), status, "{tag}");
        assert!(status == 412 || reply.tag() == tag, "{reply:?}");
    }
}

#[tokio::test]
async fn a_part_encoded_inside_is_never_combined_with_another_coding() {
    // The inner service uses one tag for both codings, and sends parts itself.
    let inner = service_fn(|request: Request<Sent>| async move {
        let (coded, range) = (
            request.headers().contains_key(ACCEPT_ENCODING),
            request.headers().contains_key(RANGE),
        );
        let mut response = Response::builder()
            .header(ETAG, "\"v1\"")
            .header(VARY, "accept-encoding");
        let body = if coded { "CODED" } else { "plain" };
        if coded {
            response = response.header(CONTENT_ENCODING, "gzip");
        }
        if range {
            response = response.status(206).header(CONTENT_RANGE, "bytes 2-4/5");
        }
        let body = if range { &body[2..] } else { body };
        Ok::<_, Infallible>(
            response
                .body(Full::new(Bytes::from_static(body.as_bytes())))
                .unwrap(),
        )
    });
    let service = ConditionalLayer::new().layer(inner);
    let (plain, coded) = (
        ask(&service, "GET /a", &[]).await.tag(),
        ask(&service, "GET /a", &[GZIP]).await.tag(),
    );
    let part = ("range", "bytes=2-4");
    for (name, tag, status, body) in [
        ("if-range", &plain, 200, "CODED"),
        ("if-range", &coded, 206, "DED"),
        ("if-match", &plain, 412, ""),
        ("if-match", &coded, 206, "DED"),
        ("if-none-match", &plain, 206, "DED"),
        ("if-none-match", &coded, 304, ""),
    ] {
        let reply = ask(&service, "GET /a", &[GZIP, part, (name, tag)]).await;
        assert_eq!(reply.status.as_u16(), status, "{name}: {tag}");
        assert!(
            status == 412 || (reply.tag(), &reply.body[..]) == (coded.clone(), body.as_bytes()),
            "{reply:?}"
        );
    }
    assert_eq!(
        ask(&service, "GET /a", &[part, ("if-range", &plain)])
            .await
            .body,
        "ain"
    );
    // Without conditions the part is passed on with a weak tag, so it is never combined.
    let reply = ask(&service, "GET /a", &[GZIP, part]).await;
    assert_eq!(
        (reply.status.as_u16(), reply.tag(), &reply.body[..]),
        (206, "W/\"v1\"".to_owned(), &b"DED"[..])
    );
}
