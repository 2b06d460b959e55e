//! Reads of a remembered version that the register immediately confirms as current: only an identical response skips
//! recording.

use bytes::Bytes;
use http::{Method, Request, Response};
use http_body_util::Full;
use ifmatch::{ConditionalLayer, ConditionalService};
use tower::{Layer, service_fn};

use crate::support::{Sent, World, ask, request, send};

const TAG: &str = "\"own\"";

/// A service with its own tag for `/a`.
fn world() -> World {
    let world = World::with(&[("/a", "one")]);
    world.respond("GET /a", "etag", TAG);
    world.respond("GET /a", "cache-control", "no-cache");
    world
}

fn layered(world: &World) -> ConditionalService<World> {
    ConditionalLayer::builder()
        .authoritative()
        .build()
        .layer(world.clone())
}

#[tokio::test]
async fn the_response_is_the_same_as_before() {
    let world = world();
    let service = layered(&world);
    let first = ask(&service, "GET /a", &[]).await;
    for fields in [
        &[][..],
        &[("if-none-match", "\"other\"")],
        &[("if-match", TAG)],
        &[("range", "bytes=0-1")],
    ] {
        let reply = ask(&service, "GET /a", fields).await;
        assert_eq!(
            (reply.status.as_u16(), reply.tag(), &reply.body[..]),
            (200, TAG.to_owned(), &b"one"[..])
        );
        assert_eq!(reply.header("cache-control"), first.header("cache-control"));
        let head = ask(&service, "HEAD /a", fields).await;
        assert_eq!(
            (head.status.as_u16(), head.tag(), &head.body[..]),
            (200, TAG.to_owned(), &b""[..])
        );
        assert_eq!(
            head.header("content-length").as_deref(),
            Some("3"),
            "{fields:?}"
        );
    }
    assert!(
        world
            .seen()
            .iter()
            .all(|head| head.method == Method::GET && !head.headers.contains_key("if-match"))
    );
    assert_eq!(
        ask(&service, "GET /a", &[("if-match", "\"other\"")])
            .await
            .status,
        412
    );
    let runs = world.runs(&Method::GET);
    assert_eq!(
        ask(&service, "GET /a", &[("if-none-match", TAG)])
            .await
            .status,
        304
    );
    assert_eq!(world.runs(&Method::GET), runs);
}

#[tokio::test]
async fn a_different_tag_is_recorded() {
    let world = world();
    let service = layered(&world);
    ask(&service, "GET /a", &[]).await;
    world.respond("GET /a", "etag", "\"new\"");
    assert_eq!(ask(&service, "GET /a", &[]).await.tag(), "\"new\"");
    assert_eq!(
        ask(&service, "GET /a", &[("if-none-match", "\"new\"")])
            .await
            .status,
        304
    );
    assert_eq!(
        ask(&service, "GET /a", &[("if-none-match", TAG)])
            .await
            .status,
        200
    );
    assert_eq!(
        send(&service, request("PUT /a", &[("if-match", TAG)], "two"))
            .await
            .status,
        412
    );
    assert_eq!(
        send(
            &service,
            request("PUT /a", &[("if-match", "\"new\"")], "two")
        )
        .await
        .status,
        204
    );
}

#[tokio::test]
async fn the_same_tag_of_another_variant_is_recorded_for_that_variant() {
    let world = world();
    let service = layered(&world);
    ask(&service, "GET /a", &[]).await;
    world.respond("GET /a", "vary", "accept-language");
    assert_eq!(
        ask(&service, "GET /a", &[("accept-language", "de")])
            .await
            .tag(),
        TAG
    );
    // From now on, languages select different variants.
    let runs = world.runs(&Method::GET);
    let french = [("accept-language", "fr"), ("if-none-match", TAG)];
    assert_eq!(ask(&service, "GET /a", &french).await.status, 304);
    assert_eq!(world.runs(&Method::GET), runs + 1);
}

#[tokio::test]
async fn a_304_has_the_fields_of_a_later_200() {
    let world = world();
    let service = layered(&world);
    ask(&service, "GET /a", &[]).await;
    world.respond("GET /a", "cache-control", "max-age=60");
    ask(&service, "GET /a", &[]).await;
    let reply = ask(&service, "GET /a", &[("if-none-match", TAG)]).await;
    assert_eq!(
        (
            reply.status.as_u16(),
            reply.header("cache-control").as_deref()
        ),
        (304, Some("max-age=60"))
    );
}

#[tokio::test]
async fn an_encoded_response_never_gets_the_remembered_tag() {
    let world = world();
    let service = layered(&world);
    ask(&service, "GET /a", &[]).await;
    world.respond("GET /a", "content-encoding", "gzip");
    assert_ne!(ask(&service, "GET /a", &[]).await.tag(), TAG);
}

#[tokio::test]
async fn a_deleted_resource_gets_404() {
    let world = world();
    let service = layered(&world);
    ask(&service, "GET /a", &[]).await;
    world.answer("GET /a", 404);
    assert_eq!(ask(&service, "GET /a", &[]).await.status, 404);
    assert_eq!(
        ask(&service, "GET /a", &[("if-none-match", TAG)])
            .await
            .status,
        404
    );
}

#[tokio::test]
async fn a_read_that_began_before_a_write_does_not_undo_it() {
    let world = world();
    let service = layered(&world);
    ask(&service, "GET /a", &[]).await;
    // The reader has seen the old state or the new one.
    for (hold, tag) in [
        ("x-get-hold-after", "\"two\""),
        ("x-get-hold-before", "\"three\""),
    ] {
        let reader = tokio::spawn({
            let service = service.clone();
            async move { ask(&service, "GET /a", &[(hold, "read")]).await }
        });
        world.reached("read").await;
        world.respond("PUT /a", "etag", tag);
        assert_eq!(
            send(&service, request("PUT /a", &[], tag)).await.status,
            204
        );
        world.respond("GET /a", "etag", tag);
        world.release("read");
        reader.await.unwrap();
        let runs = world.runs(&Method::GET);
        assert_eq!(
            ask(&service, "GET /a", &[("if-none-match", TAG)])
                .await
                .tag(),
            tag
        );
        assert_eq!(world.runs(&Method::GET), runs + 1);
        assert_eq!(
            ask(&service, "GET /a", &[("if-none-match", tag)])
                .await
                .status,
            304
        );
    }
}

#[tokio::test]
async fn conditions_are_evaluated_on_the_whole_if_a_part_has_no_tag() {
    let inner = service_fn(|request: Request<Sent>| async move {
        let response = Response::builder();
        let (response, body) = if request.headers().contains_key("range") {
            (
                response.status(206).header("content-range", "bytes 0-0/3"),
                "o",
            )
        } else {
            (response.header("etag", TAG), "one")
        };
        response.body(Full::<Bytes>::from(body))
    });
    let service = ConditionalLayer::builder()
        .authoritative()
        .build()
        .layer(inner);
    ask(&service, "GET /a", &[]).await;
    let part = ("range", "bytes=0-0");
    assert_eq!(ask(&service, "GET /a", &[part]).await.status, 206);
    assert_eq!(
        ask(&service, "GET /a", &[part, ("if-match", TAG)])
            .await
            .status,
        200
    );
    assert_eq!(
        ask(&service, "GET /a", &[part, ("if-match", "\"other\"")])
            .await
            .status,
        412
    );
}
