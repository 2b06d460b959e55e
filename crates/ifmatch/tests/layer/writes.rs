//! Guarded writes: grants, refusals, and the request that the handler receives.

use std::convert::Infallible;
use std::time::Duration;

use bytes::Bytes;
use http::header::{IF_MATCH, IF_NONE_MATCH};
use http::{HeaderName, Method, Request, Response};
use http_body_util::Full;
use ifmatch::{Builder, ConditionalLayer, Invalidates, Permit, RequirePreconditions};
use tower::{Layer, ServiceBuilder, service_fn};

use crate::support::{
    ManualClock, Sent, World, ask, builder, durable, ended, request, send, settle,
};

const SECOND: Duration = Duration::from_secs(1);

/// Both authorities must give the same responses as long as all writes pass through the layer.
fn both() -> [Builder; 2] {
    [builder().0, builder().0.authoritative()]
}

#[tokio::test]
async fn one_of_two_writers_with_the_same_tag_wins() {
    for builder in both() {
        let world = World::with(&[("/a", "one")]);
        let service = builder.build().layer(world.clone());
        let tag = ask(&service, "GET /a", &[]).await.tag();
        let first = tokio::spawn({
            let (service, tag) = (service.clone(), tag.clone());
            async move {
                let fields = [("if-match", tag.as_str()), ("x-hold-before", "first")];
                send(&service, request("PUT /a", &fields, "first")).await
            }
        });
        world.reached("first").await;
        let second = tokio::spawn({
            let (service, tag) = (service.clone(), tag.clone());
            async move { send(&service, request("PUT /a", &[("if-match", &tag)], "second")).await }
        });
        settle().await;
        assert!(!second.is_finished());
        world.release("first");
        assert_eq!(first.await.unwrap().status, 204);
        let lost = second.await.unwrap();
        assert_eq!(
            (lost.status.as_u16(), lost.problem().as_str()),
            (412, "precondition-failed")
        );
        assert_eq!(world.get("/a").as_deref(), Some("first"));
        assert_eq!(lost.tag(), ask(&service, "GET /a", &[]).await.tag());
    }
}

#[tokio::test]
async fn one_of_many_creators_wins() {
    for builder in both() {
        let world = World::default();
        let service = builder.build().layer(world.clone());
        let creators = (0..20).map(|number| {
            let service = service.clone();
            tokio::spawn(async move {
                send(
                    &service,
                    request("PUT /a", &[("if-none-match", "*")], &number.to_string()),
                )
                .await
            })
        });
        let mut statuses = Vec::new();
        for creator in creators.collect::<Vec<_>>() {
            statuses.push(creator.await.unwrap().status.as_u16());
        }
        statuses.sort_unstable();
        assert_eq!(statuses[0], 201);
        assert!(
            statuses[1..].iter().all(|status| *status == 412),
            "{statuses:?}"
        );
        assert_eq!(world.runs(&Method::PUT), 1);
    }
}

#[tokio::test]
async fn a_write_with_a_false_condition_never_passes() {
    for builder in both() {
        let world = World::with(&[("/a", "one"), ("/weak", "one")]);
        world.respond("GET /weak", "etag", "W/\"1\"");
        let service = builder.build().layer(world.clone());
        let tag = ask(&service, "GET /a", &[]).await.tag();
        let unquoted = tag.trim_matches('"');
        let weak = format!("W/{tag}");
        let cases: [(&str, &str, &str); 8] = [
            ("PUT /a", "if-match", unquoted),
            ("PUT /a", "if-match", &weak),
            ("PUT /a", "if-match", ""),
            ("PUT /a", "if-match", "\"other\""),
            ("PUT /a", "if-none-match", &tag),
            ("PUT /weak", "if-match", "W/\"1\""),
            ("PUT /none", "if-match", "*"),
            ("DELETE /none", "if-match", &tag),
        ];
        for (line, name, value) in cases {
            let reply = send(&service, request(line, &[(name, value)], "two")).await;
            assert_eq!(reply.status, 412, "{line} {name}: {value}");
        }
        assert_eq!(world.runs(&Method::PUT) + world.runs(&Method::DELETE), 0);
        let two_lines = [("if-match", "\"other\""), ("if-match", tag.as_str())];
        assert_eq!(
            send(&service, request("PUT /a", &two_lines, "two"))
                .await
                .status,
            204
        );
    }
}

#[tokio::test]
async fn a_malformed_date_is_ignored_and_an_early_date_fails() {
    let (builder, _, _) = builder();
    let world = World::with(&[("/a", "one")]);
    let service = builder.build().layer(world.clone());
    let early = [("if-unmodified-since", "Wed, 31 Dec 1969 23:59:59 GMT")];
    assert_eq!(
        send(&service, request("PUT /a", &early, "two"))
            .await
            .status,
        412
    );
    let malformed = [("if-unmodified-since", "yesterday")];
    assert_eq!(
        send(&service, request("PUT /a", &malformed, "two"))
            .await
            .status,
        204
    );
}

#[tokio::test]
async fn if_unmodified_since_loses_no_update_within_a_second() {
    for builder in both() {
        let clock = ManualClock::default();
        let world = World::with(&[("/a", "one")]);
        let service = builder.clock(clock.clone()).build().layer(world.clone());
        assert_eq!(
            ask(&service, "GET /a", &[]).await.header("last-modified"),
            None
        );
        clock.advance(SECOND);
        let date = ask(&service, "GET /a", &[])
            .await
            .header("last-modified")
            .unwrap();
        let fields = [("if-unmodified-since", date.as_str())];
        assert_eq!(
            send(&service, request("PUT /a", &fields, "two"))
                .await
                .status,
            204
        );
        assert_eq!(
            send(&service, request("PUT /a", &fields, "three"))
                .await
                .status,
            412
        );
        assert_eq!(world.get("/a").as_deref(), Some("two"));
    }
}

#[tokio::test]
async fn a_resource_too_long_to_hash_is_guarded_by_its_own_date() {
    let (builder, _, _) = builder();
    let world = World::with(&[("/a", "one")]);
    let dates = [
        "Sun, 06 Nov 1994 08:49:37 GMT",
        "Sun, 06 Nov 1994 08:49:36 GMT",
        "Sun, 06 Nov 1994 08:49:38 GMT",
    ];
    world.respond("GET /a", "last-modified", dates[0]);
    let service = builder.hash_limit(1).build().layer(world.clone());
    let read = ask(&service, "GET /a", &[]).await;
    assert_eq!(read.header("last-modified").as_deref(), Some(dates[0]));
    let held = [("if-unmodified-since", dates[0])];
    let refused = [held[0], ("x-end", "422")];
    for _ in 0..2 {
        assert_eq!(
            send(&service, request("PUT /a", &refused, "two"))
                .await
                .status,
            422
        );
    }
    // A change that the layer doesn't see, for example a file with an older date.
    for date in &dates[1..] {
        world.respond("GET /a", "last-modified", date);
        assert_eq!(
            send(&service, request("PUT /a", &held, "two")).await.status,
            412,
            "{date}"
        );
    }
}

#[tokio::test]
async fn an_authoritative_register_needs_no_probe_for_a_known_version() {
    let (builder, _, _) = builder();
    let world = World::with(&[("/a", "one")]);
    let service = builder
        .authoritative()
        .get_after_writes(false)
        .build()
        .layer(world.clone());
    let tag = ask(&service, "GET /a", &[]).await.tag();
    assert_eq!(
        send(&service, request("PUT /a", &[("if-match", &tag)], "two"))
            .await
            .status,
        204
    );
    assert_eq!(world.runs(&Method::GET), 1);
    // The handler gave no tag, so the next conditional write probes.
    assert_eq!(
        send(&service, request("PUT /a", &[("if-match", &tag)], "three"))
            .await
            .status,
        412
    );
    assert_eq!(world.runs(&Method::GET), 2);
}

#[tokio::test]
async fn an_unseen_change_fails_the_write_without_authority() {
    let (builder, _, _) = builder();
    let world = World::with(&[("/a", "one")]);
    let service = builder.build().layer(world.clone());
    let tag = ask(&service, "GET /a", &[]).await.tag();
    world.set("/a", "foreign");
    assert_eq!(
        send(&service, request("PUT /a", &[("if-match", &tag)], "two"))
            .await
            .status,
        412
    );
    assert_eq!(world.get("/a").as_deref(), Some("foreign"));
}

#[tokio::test]
async fn a_write_between_probe_and_permit_invalidates_the_probe() {
    let (clock, register) = (ManualClock::default(), durable());
    let world = World::with(&[("/a", "one")]);
    let process = || {
        ConditionalLayer::builder()
            .register(register.clone())
            .clock(clock.clone())
            .build()
    };
    let (here, there) = (
        process().layer(world.clone()),
        process().layer(world.clone()),
    );
    let tag = ask(&here, "GET /a", &[]).await.tag();
    let slow = tokio::spawn({
        let (here, tag) = (here.clone(), tag.clone());
        async move {
            let fields = [("if-match", tag.as_str()), ("x-get-hold-after", "probe")];
            send(&here, request("PUT /a", &fields, "slow")).await
        }
    });
    world.reached("probe").await;
    assert_eq!(
        send(&there, request("PUT /a", &[("if-match", &tag)], "fast"))
            .await
            .status,
        204
    );
    world.release("probe");
    world.reached("probe").await;
    world.release("probe");
    assert_eq!(ended("slow", slow).await.status, 412);
    assert_eq!(world.get("/a").as_deref(), Some("fast"));
}

#[tokio::test]
async fn the_handler_gets_a_permit_and_no_tags() {
    for builder in both() {
        let world = World::with(&[("/a", "one")]);
        let service = builder.build().layer(world.clone());
        let tag = ask(&service, "GET /a", &[]).await.tag();
        send(
            &service,
            request(
                "PUT /a",
                &[("if-match", &tag), ("if-modified-since", "x")],
                "two",
            ),
        )
        .await;
        send(&service, request("PUT /a", &[], "three")).await;
        send(
            &service,
            request("PUT /new", &[("if-none-match", "*")], "four"),
        )
        .await;
        let writes: Vec<_> = world
            .seen()
            .into_iter()
            .filter(|head| head.method == Method::PUT)
            .collect();
        let permits: Vec<_> = writes
            .iter()
            .map(|head| head.extensions.get::<Permit>().unwrap())
            .collect();
        assert_eq!(permits[0].current_tags()[0].to_string(), tag);
        assert!(permits[0].fencing_token() < permits[1].fencing_token());
        assert!(
            !writes[0].headers.contains_key(IF_MATCH)
                && !writes[0].headers.contains_key("if-modified-since")
        );
        assert_eq!(writes[2].headers[IF_NONE_MATCH], "*");
    }
}

#[tokio::test]
async fn a_probe_carries_no_fields_of_the_write() {
    let (builder, _, _) = builder();
    let world = World::with(&[("/a", "one")]);
    let service = builder.build().layer(world.clone());
    let tag = ask(&service, "GET /a", &[]).await.tag();
    let fields = [
        ("if-match", tag.as_str()),
        ("content-type", "text/plain"),
        ("content-length", "3"),
        ("expect", "100-continue"),
        ("range", "bytes=0-0"),
        ("idempotency-key", "7"),
        ("x-http-method-override", "PUT"),
        ("authorization", "Bearer x"),
    ];
    assert_eq!(
        send(&service, request("PUT /a", &fields, "two"))
            .await
            .status,
        204
    );
    let probe = world
        .seen()
        .into_iter()
        .filter(|head| head.method == Method::GET)
        .nth(1)
        .unwrap();
    let names: Vec<_> = probe.headers.keys().map(HeaderName::as_str).collect();
    assert_eq!(names, ["authorization"]);
}

#[tokio::test]
async fn a_tag_of_another_variant_is_probed_as_that_variant() {
    let (builder, _, _) = builder();
    let world = World::with(&[("/a", "one")]);
    world.respond("GET /a", "vary", "accept-encoding");
    let service = builder.build().layer(world.clone());
    let tag = ask(&service, "GET /a?full", &[("accept-encoding", "gzip")])
        .await
        .tag();
    assert_eq!(
        send(&service, request("PUT /a", &[("if-match", &tag)], "two"))
            .await
            .status,
        204
    );
    let probe = world
        .seen()
        .into_iter()
        .filter(|head| head.method == Method::GET)
        .nth(1)
        .unwrap();
    assert_eq!(
        (
            probe.uri.to_string().as_str(),
            &probe.headers["accept-encoding"]
        ),
        ("/a?full", &"gzip".parse().unwrap())
    );
}

#[tokio::test]
async fn the_response_to_the_probe_decides_the_write() {
    // The status of GET, and the response to a conditional PUT.
    for (get, condition, expected) in [
        (401, "if-match", 401),
        (403, "if-match", 403),
        (429, "if-match", 429),
        (308, "if-match", 308),
        (404, "if-match", 412),
        (410, "if-match", 412),
        (410, "if-none-match", 204),
        (405, "if-match", 412),
        (405, "if-none-match", 412),
        (303, "if-none-match", 412),
        (500, "if-match", 503),
        (503, "if-none-match", 503),
    ] {
        let (builder, _, _) = builder();
        let world = World::with(&[("/a", "one")]);
        world.answer("GET /a", get);
        let service = builder.build().layer(world.clone());
        let value = if condition == "if-match" {
            "\"x\""
        } else {
            "*"
        };
        let reply = send(&service, request("PUT /a", &[(condition, value)], "two")).await;
        assert_eq!(reply.status.as_u16(), expected, "GET {get}, {condition}");
        assert_eq!(world.runs(&Method::PUT), usize::from(expected == 204));
    }
}

#[tokio::test]
async fn a_condition_can_be_required() {
    let (builder, _, _) = builder();
    let world = World::with(&[("/a", "one"), ("/free", "one")]);
    let builder = builder.require_preconditions(RequirePreconditions::for_writes());
    let service = builder
        .require_where(|head| head.uri.path() != "/free")
        .build()
        .layer(world.clone());
    for line in ["PUT /a", "PATCH /a", "DELETE /a"] {
        let reply = send(&service, request(line, &[], "two")).await;
        assert_eq!(
            (reply.status.as_u16(), reply.problem().as_str()),
            (428, "precondition-required"),
            "{line}"
        );
    }
    assert_eq!(world.seen().len(), 0);
    assert_eq!(
        send(&service, request("PUT /free", &[], "two"))
            .await
            .status,
        204
    );
    let tag = ask(&service, "GET /a", &[]).await.tag();
    assert_eq!(
        send(&service, request("PUT /a", &[("if-match", &tag)], "two"))
            .await
            .status,
        204
    );
}

#[tokio::test]
async fn the_handlers_tag_is_the_current_tag() {
    let (builder, _, _) = builder();
    let world = World::with(&[("/a", "one")]);
    world.respond("GET /a", "etag", "\"v1\"");
    world.respond("PUT /a", "etag", "\"v2\"");
    world.respond("PUT /a", "last-modified", "Sun, 06 Nov 1994 08:49:37 GMT");
    let service = builder.authoritative().build().layer(world.clone());
    let written = send(
        &service,
        request("PUT /a", &[("if-match", "\"v1\"")], "two"),
    )
    .await;
    assert_eq!(
        (written.tag().as_str(), written.header("last-modified")),
        ("\"v2\"", None)
    );
    let runs = world.runs(&Method::GET);
    assert_eq!(
        send(
            &service,
            request("PUT /a", &[("if-match", "\"v1\"")], "lost")
        )
        .await
        .status,
        412
    );
    assert_eq!(
        send(
            &service,
            request("PUT /a", &[("if-match", "\"v2\"")], "three")
        )
        .await
        .status,
        204
    );
    assert_eq!(world.runs(&Method::GET), runs);
}

#[tokio::test]
async fn a_weak_tag_from_the_handler_is_not_recorded() {
    let (builder, _, _) = builder();
    let world = World::with(&[("/a", "one")]);
    world.respond("PUT /a", "etag", "W/\"v2\"");
    world.respond("GET /a", "etag", "\"v2\"");
    let service = builder.authoritative().build().layer(world.clone());
    assert_eq!(
        send(&service, request("PUT /a", &[], "two")).await.tag(),
        "W/\"v2\""
    );
    assert_eq!(
        send(
            &service,
            request("PUT /a", &[("if-match", "W/\"v2\"")], "lost")
        )
        .await
        .status,
        412
    );
    assert_eq!(
        send(
            &service,
            request("PUT /a", &[("if-match", "\"v2\"")], "three")
        )
        .await
        .status,
        204
    );
}

#[tokio::test]
async fn a_returned_representation_is_hashed_and_the_request_body_never_is() {
    let (builder, _, _) = builder();
    let inner = service_fn(|request: Request<Sent>| async move {
        let mut response = Response::new(Full::<Bytes>::from("stored"));
        if request.headers().contains_key("x-locate") {
            response
                .headers_mut()
                .insert("content-location", "/a".parse().unwrap());
        }
        Ok::<_, Infallible>(response)
    });
    let service = builder
        .guard_where(|_| true)
        .get_after_writes(false)
        .build()
        .layer(inner);
    let located = send(&service, request("POST /a", &[("x-locate", "1")], "sent")).await;
    assert_eq!(located.tag(), ask(&service, "GET /a", &[]).await.tag());
    assert_eq!(
        send(&service, request("PUT /a", &[], "stored"))
            .await
            .header("etag"),
        None
    );
}

#[tokio::test]
async fn other_resources_named_by_a_write_are_invalidated() {
    let (builder, _, _) = builder();
    let world = World::with(&[("/list", "one"), ("/list/1", "x"), ("/also", "y")]);
    world.respond("POST /list", "location", "/list/1");
    let inner = ServiceBuilder::new()
        .map_response(|mut response: Response<_>| {
            response
                .extensions_mut()
                .insert(Invalidates(vec!["/also".parse().unwrap()]));
            response
        })
        .service(world.clone());
    let service = builder.authoritative().build().layer(inner);
    let mut tags = Vec::new();
    for path in ["/list/1", "/also"] {
        tags.push(ask(&service, &format!("GET {path}"), &[]).await.tag());
    }
    assert_eq!(
        send(&service, request("POST /list", &[], "two"))
            .await
            .status,
        204
    );
    world.set("/list/1", "changed");
    world.set("/also", "changed");
    for (path, tag) in ["/list/1", "/also"].iter().zip(&tags) {
        let reply = ask(&service, &format!("GET {path}"), &[("if-none-match", tag)]).await;
        assert_eq!(reply.status, 200, "{path}");
    }
}

#[tokio::test]
async fn two_spellings_of_a_path_are_one_resource() {
    let (builder, _, _) = builder();
    let world = World::with(&[("/a", "one")]);
    let service = builder
        .lock_timeout(Duration::ZERO)
        .build()
        .layer(world.clone());
    let first = tokio::spawn({
        let service = service.clone();
        async move {
            send(
                &service,
                request("PUT /a", &[("x-hold-before", "first")], "two"),
            )
            .await
        }
    });
    world.reached("first").await;
    assert_eq!(
        send(&service, request("PUT /%61", &[], "three"))
            .await
            .status,
        409
    );
    assert_eq!(
        send(&service, request("PUT /a%2Fb", &[], "three"))
            .await
            .status,
        201
    );
    world.release("first");
    assert_eq!(first.await.unwrap().status, 204);
}
