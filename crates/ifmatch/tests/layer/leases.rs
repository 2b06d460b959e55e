//! Leases: acquisition, protection and end, with Azure's requests.

use std::convert::Infallible;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response};
use http_body_util::Full;
use ifmatch::{Builder, ConditionalLayer, Permit, RequirePreconditions, ResponseBody};
use ifmatch_register::faulty::{Fault, FaultyRegister};
use ifmatch_register::{Engine, Guarantee};
use ifmatch_runtime::Clock;
use tower::{Layer, Service, service_fn};

use crate::support::{
    ManualClock, Reply, Sent, World, ask, builder, durable, request, send, with_authority,
};

const SECOND: Duration = Duration::from_secs(1);
pub(crate) const A: &str = "aaaaaaaa-0000-4000-8000-000000000000";
pub(crate) const B: &str = "bbbbbbbb-0000-4000-8000-000000000000";
const GUID: &str = "936da01f-9abd-4d9d-80c7-02af85c822a8";

/// Returns builders with leases, one for each authority, and their clocks.
pub(crate) fn both() -> [(Builder, ManualClock); 2] {
    [true, false].map(|authoritative| {
        let (builder, clock, _) = builder();
        (with_authority(builder, authoritative).leases(), clock)
    })
}

/// A service in the layer.
pub(crate) trait Layered:
    Service<
        Request<Full<Bytes>>,
        Response = Response<ResponseBody<Full<Bytes>>>,
        Error = Infallible,
    > + Clone
{
}

impl<S> Layered for S where
    S: Service<
            Request<Full<Bytes>>,
            Response = Response<ResponseBody<Full<Bytes>>>,
            Error = Infallible,
        > + Clone
{
}

/// Sends a lease operation on `/a`. The field names are given without `x-ms-`.
pub(crate) async fn lease(service: &impl Layered, fields: &[(&str, &str)]) -> Reply {
    let fields: Vec<_> = fields
        .iter()
        .map(|(name, value)| (format!("x-ms-{name}"), *value))
        .collect();
    let fields: Vec<_> = fields
        .iter()
        .map(|(name, value)| (name.as_str(), *value))
        .collect();
    ask(service, "PUT /a?comp=lease", &fields).await
}

pub(crate) async fn acquire(service: &impl Layered, id: &str, seconds: &str) -> Reply {
    let fields = [
        ("lease-action", "acquire"),
        ("lease-duration", seconds),
        ("proposed-lease-id", id),
    ];
    lease(service, &fields).await
}

pub(crate) async fn act(service: &impl Layered, action: &str, id: &str) -> Reply {
    lease(service, &[("lease-action", action), ("lease-id", id)]).await
}

/// Returns the status and Azure's error code.
pub(crate) fn refusal(reply: &Reply) -> (u16, String) {
    let code = reply.header("x-ms-error-code").unwrap_or_default();
    assert_eq!(
        reply.header("content-type").as_deref(),
        Some("application/problem+json")
    );
    (reply.status.as_u16(), code)
}

pub(crate) fn refused(status: u16, code: &str) -> (u16, String) {
    (status, code.to_owned())
}

pub(crate) async fn put(service: &impl Layered, id: Option<&str>, body: &str) -> Reply {
    let fields: Vec<_> = id.map(|id| ("x-ms-lease-id", id)).into_iter().collect();
    send(service, request("PUT /a", &fields, body)).await
}

#[tokio::test]
async fn a_lease_is_acquired_renewed_changed_broken_and_released() {
    for (builder, clock) in both() {
        let world = World::with(&[("/a", "one")]);
        let service = builder.build().layer(world.clone());
        let tag = ask(&service, "GET /a", &[]).await.tag();
        let acquired = acquire(&service, A, "15").await;
        assert_eq!((acquired.status.as_u16(), acquired.body.len()), (201, 0));
        assert_eq!(acquired.header("x-ms-lease-id").as_deref(), Some(A));
        assert_eq!(
            acquired.tag(),
            tag,
            "lease operations must not change the tag"
        );
        clock.advance(SECOND * 10);
        let renewed = act(&service, "renew", A).await;
        assert_eq!(
            (
                renewed.status.as_u16(),
                renewed.header("x-ms-lease-id").as_deref()
            ),
            (200, Some(A))
        );
        let change = [
            ("lease-action", "change"),
            ("lease-id", A),
            ("proposed-lease-id", B),
        ];
        let changed = lease(&service, &change).await;
        assert_eq!(
            (
                changed.status.as_u16(),
                changed.header("x-ms-lease-id").as_deref()
            ),
            (200, Some(B))
        );
        clock.advance(SECOND * 11);
        assert_eq!(put(&service, Some(B), "two").await.status, 204);
        let broken = lease(
            &service,
            &[("lease-action", "break"), ("lease-break-period", "60")],
        )
        .await;
        assert_eq!(
            (
                broken.status.as_u16(),
                broken.header("x-ms-lease-time").as_deref()
            ),
            (202, Some("4"))
        );
        assert_eq!(broken.header("x-ms-lease-id"), None);
        let released = act(&service, "release", B).await;
        assert_eq!(
            (released.status.as_u16(), released.header("x-ms-lease-id")),
            (200, None)
        );
        assert_eq!(put(&service, None, "three").await.status, 204);
        assert!(
            world.seen().iter().all(|head| head.uri.query().is_none()),
            "no lease operation may reach the handler"
        );
    }
}

#[tokio::test]
async fn reads_and_writes_may_name_the_lease_in_the_plain_field() {
    for (builder, _) in both() {
        let service = builder.build().layer(World::with(&[("/a", "one")]));
        acquire(&service, A, "15").await;
        let write =
            async |fields: &[(&str, &str)]| send(&service, request("PUT /a", fields, "two")).await;
        assert_eq!(
            refusal(&write(&[("lease-id", B)]).await),
            refused(412, "LeaseIdMismatchWithBlobOperation")
        );
        assert_eq!(write(&[("lease-id", A)]).await.status, 204);
        assert_eq!(
            write(&[("lease-id", A), ("x-ms-lease-id", A)]).await.status,
            204
        );
        assert_eq!(
            write(&[("lease-id", A), ("x-ms-lease-id", B)]).await.status,
            400
        );
        assert_eq!(
            ask(&service, "GET /a", &[("lease-id", A)]).await.status,
            200
        );
        assert_eq!(
            ask(&service, "GET /a", &[("lease-id", B)]).await.status,
            412
        );
    }
}

#[tokio::test]
async fn refusals_carry_azures_error_codes() {
    for (builder, clock) in both() {
        let world = World::with(&[("/a", "one")]);
        let service = builder.build().layer(world.clone());
        assert_eq!(
            refusal(&put(&service, Some(A), "x").await),
            refused(412, "LeaseNotPresentWithBlobOperation")
        );
        assert_eq!(
            refusal(&act(&service, "renew", A).await),
            refused(409, "LeaseIdMismatchWithLeaseOperation")
        );
        acquire(&service, A, "15").await;
        assert_eq!(
            refusal(&acquire(&service, B, "15").await),
            refused(409, "LeaseAlreadyPresent")
        );
        let missing = put(&service, None, "x").await;
        assert_eq!(refusal(&missing), refused(412, "LeaseIdMissing"));
        assert_eq!(missing.problem(), "lease-failed");
        assert_eq!(
            refusal(&put(&service, Some(B), "x").await),
            refused(412, "LeaseIdMismatchWithBlobOperation")
        );
        let read = ask(&service, "GET /a", &[("x-ms-lease-id", B)]).await;
        assert_eq!(
            refusal(&read),
            refused(412, "LeaseIdMismatchWithBlobOperation")
        );
        let head = ask(&service, "HEAD /a", &[("x-ms-lease-id", B)]).await;
        assert_eq!((head.status.as_u16(), head.body.len()), (412, 0));
        assert_eq!(
            ask(&service, "GET /a", &[("x-ms-lease-id", &A.to_uppercase())])
                .await
                .status,
            200
        );
        assert_eq!(ask(&service, "GET /a", &[]).await.status, 200);
        clock.advance(SECOND * 15);
        assert_eq!(
            refusal(&put(&service, Some(A), "x").await),
            refused(412, "LeaseLost")
        );
        assert_eq!(
            refusal(&ask(&service, "GET /a", &[("x-ms-lease-id", A)]).await),
            refused(412, "LeaseLost")
        );
        assert_eq!(put(&service, None, "two").await.status, 204);
        assert_eq!(
            refusal(&act(&service, "renew", A).await),
            refused(409, "LeaseIdMismatchWithLeaseOperation")
        );
        assert_eq!(world.runs(&Method::PUT), 1);
    }
}

/// None of them has an effect.
#[tokio::test]
async fn malformed_lease_requests_get_400() {
    let (builder, _, _) = builder();
    let world = World::with(&[("/a", "one")]);
    let service = builder.leases().build().layer(world.clone());
    let acquire = ("lease-action", "acquire");
    let invalid: [&[(&str, &str)]; 14] = [
        &[("lease-action", "steal")],
        &[("lease-action", "")],
        &[acquire, ("lease-duration", "14")],
        &[acquire, ("lease-duration", "61")],
        &[acquire, ("lease-duration", "0")],
        &[acquire, ("lease-duration", "-2")],
        &[acquire, ("lease-duration", "15.5")],
        &[acquire, ("lease-duration", "99999999999999999999")],
        &[acquire, ("lease-duration", "15"), ("lease-duration", "60")],
        &[
            acquire,
            ("lease-duration", "15"),
            ("proposed-lease-id", "mine"),
        ],
        &[("lease-action", "renew"), ("lease-id", "1")],
        &[("lease-action", "renew"), ("lease-id", A), ("lease-id", B)],
        &[("lease-action", "break"), ("lease-break-period", "61")],
        &[("lease-action", "break"), ("lease-break-period", "-1")],
    ];
    for fields in invalid {
        assert_eq!(
            refusal(&lease(&service, fields).await),
            refused(400, "InvalidHeaderValue"),
            "{fields:?}"
        );
    }
    let missing: [&[(&str, &str)]; 6] = [
        &[],
        &[acquire],
        &[("lease-action", "renew")],
        &[("lease-action", "release")],
        &[("lease-action", "change"), ("lease-id", A)],
        &[("lease-action", "change"), ("proposed-lease-id", A)],
    ];
    for fields in missing {
        assert_eq!(
            refusal(&lease(&service, fields).await),
            refused(400, "MissingRequiredHeader"),
            "{fields:?}"
        );
    }
    assert_eq!(
        refusal(&put(&service, Some("mine"), "x").await),
        refused(400, "InvalidHeaderValue")
    );
    let read = ask(&service, "GET /a", &[("x-ms-lease-id", "mine")]).await;
    assert_eq!(refusal(&read), refused(400, "InvalidHeaderValue"));
    assert!(world.seen().is_empty());
    assert_eq!(
        put(&service, None, "two").await.status,
        204,
        "nothing may be leased"
    );
}

#[tokio::test]
async fn leases_are_off_by_default_and_where_they_are_not_selected() {
    let here = |path: &'static str| move |head: &http::request::Parts| head.uri.path() == path;
    let builders = [
        builder().0,
        builder().0.lease_where(here("/b")),
        builder()
            .0
            .leases()
            .guard_where(|head| head.uri.path() != "/a"),
    ];
    for (number, builder) in builders.into_iter().enumerate() {
        let handler = service_fn(|request: Request<Sent>| async move {
            let said = format!(
                "{} {:?}",
                request.uri(),
                request.headers().get("x-ms-lease-id")
            );
            Ok::<_, Infallible>(Response::new(Full::<Bytes>::from(said)))
        });
        let service = builder.build().layer(handler);
        let passed = acquire(&service, "no id", "no number").await;
        assert_eq!(
            (passed.status.as_u16(), &passed.body[..]),
            (200, &b"/a?comp=lease None"[..]),
            "{number}"
        );
        let read = ask(&service, "GET /a", &[("x-ms-lease-id", "no id")]).await;
        assert_eq!(&read.body[..], b"/a Some(\"no id\")");
        assert_eq!(put(&service, Some("no id"), "x").await.status, 200);
    }
}

#[tokio::test]
async fn only_existing_resources_can_be_leased() {
    for (builder, _) in both() {
        let world = World::with(&[("/a", "one")]);
        world.answer("GET /secret", 403);
        let service = builder.build().layer(world.clone());
        let fields = [
            ("x-ms-lease-action", "acquire"),
            ("x-ms-lease-duration", "15"),
        ];
        let absent = ask(&service, "PUT /none?comp=lease", &fields).await;
        assert_eq!(refusal(&absent), refused(404, "ResourceNotFound"));
        assert_eq!(
            send(&service, request("PUT /none", &[], "new"))
                .await
                .status,
            201
        );
        assert_eq!(
            ask(&service, "PUT /none?comp=lease", &fields).await.status,
            201
        );
        let secret = ask(&service, "PUT /secret?comp=lease", &fields).await;
        assert_eq!(
            secret.status, 403,
            "a client that may not read may not lease either"
        );
        assert_eq!(world.runs(&Method::PUT), 1);
    }
}

#[tokio::test]
async fn lease_operations_evaluate_conditions() {
    for (builder, _) in both() {
        let world = World::with(&[("/a", "one")]);
        let policy = RequirePreconditions::for_writes();
        let service = builder
            .require_preconditions(policy)
            .build()
            .layer(world.clone());
        let tag = ask(&service, "GET /a", &[]).await.tag();
        let fields = |tag| {
            [
                ("x-ms-lease-action", "acquire"),
                ("x-ms-lease-duration", "15"),
                ("if-match", tag),
            ]
        };
        let stale = ask(&service, "PUT /a?comp=lease", &fields("\"stale\"")).await;
        assert_eq!(
            (stale.status.as_u16(), stale.problem().as_str()),
            (412, "precondition-failed")
        );
        assert_eq!(
            stale.header("x-ms-error-code"),
            None,
            "the lease is not the reason"
        );
        assert_eq!(
            ask(&service, "PUT /a?comp=lease", &fields(&tag))
                .await
                .status,
            201
        );
        assert_eq!(put(&service, None, "x").await.status, 428);
    }
}

#[tokio::test]
async fn a_retried_acquire_gets_the_same_id() {
    for (builder, clock) in both() {
        let world = World::with(&[("/a", "one")]);
        let service = builder.build().layer(world.clone());
        let fields = [
            ("lease-action", "acquire"),
            ("lease-duration", "15"),
            ("client-request-id", "1"),
        ];
        let first = lease(&service, &fields).await;
        clock.advance(SECOND * 5);
        let again = lease(&service, &fields).await;
        assert_eq!((first.status.as_u16(), again.status.as_u16()), (201, 201));
        let id = first.header("x-ms-lease-id").unwrap();
        assert_eq!(again.header("x-ms-lease-id").as_ref(), Some(&id));
        let other = [
            ("lease-action", "acquire"),
            ("lease-duration", "15"),
            ("client-request-id", "2"),
        ];
        assert_eq!(
            refusal(&lease(&service, &other).await),
            refused(409, "LeaseAlreadyPresent")
        );
        let release = [
            ("lease-action", "release"),
            ("lease-id", &id),
            ("client-request-id", "1"),
        ];
        for _ in 0..2 {
            assert_eq!(lease(&service, &release).await.status, 200);
        }
        // The same request id with other lease ids is another request.
        let other = [
            ("lease-action", "release"),
            ("lease-id", GUID),
            ("client-request-id", "1"),
        ];
        assert_eq!(lease(&service, &other).await.status, 409);
    }
}

#[tokio::test]
async fn the_lease_token_grows_with_every_holder() {
    let (builder, clock, _) = builder();
    let world = World::with(&[("/a", "one")]);
    let service = builder.leases().build().layer(world.clone());
    assert_eq!(put(&service, None, "x").await.status, 204);
    for id in [A, B] {
        assert_eq!(acquire(&service, id, "15").await.status, 201);
        for _ in 0..2 {
            assert_eq!(put(&service, Some(id), "x").await.status, 204);
        }
        clock.advance(SECOND * 15);
    }
    let permits = world
        .seen()
        .into_iter()
        .filter_map(|head| head.extensions.get::<Permit>().cloned());
    let permits: Vec<_> = permits.collect();
    let tokens: Vec<_> = permits.iter().map(Permit::lease_token).collect();
    assert_eq!(
        (tokens[0], tokens[1], tokens[3]),
        (None, tokens[2], tokens[4])
    );
    assert!(tokens[1].unwrap() < tokens[3].unwrap());
    assert!(
        permits
            .iter()
            .all(|permit| permit.lease_token() < Some(permit.fencing_token()))
    );
    let limit = |permit: &Permit| permit.deadline() <= clock.now();
    assert!(
        permits[1..].iter().all(limit),
        "handlers must end before their lease"
    );
}

#[tokio::test]
async fn lease_operations_and_leased_reads_fail_without_the_register() {
    let (builder, _, register) = builder();
    let world = World::with(&[("/a", "one")]);
    let service = builder.leases().build().layer(world.clone());
    acquire(&service, A, "15").await;
    let runs = world.seen().len();
    register.cut(true);
    assert_eq!(acquire(&service, B, "15").await.status, 503);
    assert_eq!(act(&service, "renew", A).await.status, 503);
    assert_eq!(
        ask(&service, "GET /a", &[("x-ms-lease-id", A)])
            .await
            .status,
        503
    );
    assert_eq!(world.seen().len(), runs);
    register.cut(false);
    assert_eq!(act(&service, "renew", A).await.status, 200);
}

#[tokio::test]
async fn the_comp_parameter_is_not_part_of_the_key() {
    let (builder, _, _) = builder();
    let world = World::with(&[("/a", "one")]);
    let keys = ifmatch::key::PathKey::new().with_query();
    let service = builder.key(keys).leases().build().layer(world.clone());
    let fields = [
        ("x-ms-lease-action", "acquire"),
        ("x-ms-lease-duration", "-1"),
        ("x-ms-proposed-lease-id", A),
    ];
    assert_eq!(
        ask(&service, "PUT /a?comp=lease&id=1", &fields)
            .await
            .status,
        201
    );
    assert_eq!(
        refusal(&send(&service, request("PUT /a?id=1", &[], "x")).await),
        refused(412, "LeaseIdMissing")
    );
    assert_eq!(
        send(&service, request("PUT /a?id=2", &[], "x"))
            .await
            .status,
        204
    );
    let probe = world.seen().into_iter().next().unwrap();
    assert_eq!(
        (probe.method, probe.uri.to_string().as_str()),
        (Method::GET, "/a?id=1")
    );
    assert!(
        probe
            .headers
            .keys()
            .all(|name| !name.as_str().starts_with("x-ms-")),
        "{:?}",
        probe.headers
    );
}

#[tokio::test]
async fn a_lease_response_carries_the_date_once_its_second_has_begun() {
    let (builder, clock, _) = builder();
    let world = World::with(&[("/a", "one")]);
    let service = builder
        .authoritative()
        .leases()
        .build()
        .layer(world.clone());
    ask(&service, "GET /a", &[]).await;
    assert_eq!(
        acquire(&service, A, "15").await.header("last-modified"),
        None
    );
    clock.advance(SECOND);
    let renewed = act(&service, "renew", A).await;
    let read = ask(&service, "GET /a", &[]).await;
    assert!(read.header("last-modified").is_some());
    assert_eq!(
        renewed.header("last-modified"),
        read.header("last-modified")
    );
}

#[tokio::test]
async fn two_layers_on_one_register_share_the_lease() {
    let (clock, register) = (ManualClock::default(), durable());
    let world = World::with(&[("/a", "one")]);
    let layer = || {
        ConditionalLayer::builder()
            .register(register.clone())
            .clock(clock.clone())
    };
    let (first, second) = (
        layer().leases().build().layer(world.clone()),
        layer().leases().build().layer(world.clone()),
    );
    assert_eq!(acquire(&first, A, "15").await.status, 201);
    assert_eq!(
        refusal(&acquire(&second, B, "15").await),
        refused(409, "LeaseAlreadyPresent")
    );
    assert_eq!(put(&second, Some(A), "two").await.status, 204);
    let without_leases = layer().build().layer(world.clone());
    assert_eq!(
        refusal(&put(&without_leases, None, "x").await),
        refused(412, "LeaseIdMissing")
    );
}

/// Holders rely on their leases across restarts.
#[tokio::test]
async fn a_register_that_forgets_grants_no_leases_unless_allowed_to() {
    let world = World::with(&[("/a", "one")]);
    let service = ConditionalLayer::builder()
        .leases()
        .build()
        .layer(world.clone());
    let reply = acquire(&service, A, "15").await;
    assert_eq!(
        (reply.status.as_u16(), reply.problem().as_str()),
        (501, "leases-not-kept")
    );
    assert_eq!(
        put(&service, None, "two").await.status,
        204,
        "writes must work without leases"
    );
    let service = ConditionalLayer::builder()
        .ephemeral_leases()
        .build()
        .layer(world);
    assert_eq!(acquire(&service, A, "15").await.status, 201);
    assert_eq!(
        refusal(&put(&service, None, "x").await),
        refused(412, "LeaseIdMissing")
    );
}

/// Returns a register that may lose acknowledged swaps.
fn lossy() -> FaultyRegister {
    let register = FaultyRegister::default();
    register.set_engine(Engine {
        guarantee: Guarantee::UntilFailover,
        ..Engine::default()
    });
    register
}

#[tokio::test]
async fn a_register_that_may_lose_swaps_grants_no_leases_unless_allowed_to() {
    let world = World::with(&[("/a", "one")]);
    let builder = || ConditionalLayer::builder().register(lossy());
    let reply = acquire(&builder().leases().build().layer(world.clone()), A, "15").await;
    assert_eq!(
        (reply.status.as_u16(), reply.problem().as_str()),
        (501, "leases-not-kept")
    );
    let service = builder().ephemeral_leases().build().layer(world);
    assert_eq!(acquire(&service, A, "15").await.status, 201);
}

#[test]
#[should_panic(expected = "the register may lose acknowledged swaps")]
fn a_register_that_may_lose_swaps_is_no_authority() {
    drop(
        ConditionalLayer::builder()
            .register(lossy())
            .authoritative()
            .build(),
    );
}

#[test]
fn a_register_that_may_lose_swaps_is_an_authority_if_the_loss_is_accepted() {
    let builder = ConditionalLayer::builder().register(lossy());
    drop(builder.authoritative().allow_lost_updates().build());
}

#[tokio::test]
async fn an_unanswered_acquire_reports_an_unknown_outcome() {
    let world = World::with(&[("/a", "one")]);
    let register = durable();
    let layer = ConditionalLayer::builder()
        .register(register.clone())
        .authoritative()
        .leases()
        .build();
    let service = layer.layer(world);
    ask(&service, "GET /a", &[]).await;
    register.schedule([Fault::Unanswered {
        done: true,
        then_cut: true,
    }]);
    let lost = acquire(&service, A, "-1").await;
    assert_eq!(
        (lost.status.as_u16(), lost.problem().as_str()),
        (503, "outcome-unknown")
    );
    let down = acquire(&service, B, "-1").await;
    assert_eq!(
        (down.status.as_u16(), down.problem().as_str()),
        (503, "unavailable"),
        "this request changed nothing"
    );
    register.cut(false);
    assert_eq!(
        refusal(&acquire(&service, B, "-1").await),
        refused(409, "LeaseAlreadyPresent"),
        "it is held"
    );
    assert_eq!(acquire(&service, A, "-1").await.status, 201);
}

/// The response to the break was lost, and another client acquired the lease before the retry.
#[tokio::test]
async fn a_retried_break_does_not_affect_the_next_holder() {
    for (builder, _) in both() {
        let world = World::with(&[("/a", "one")]);
        let service = builder.build().layer(world.clone());
        acquire(&service, A, "-1").await;
        let fields = [
            ("lease-action", "break"),
            ("lease-break-period", "0"),
            ("client-request-id", "once"),
        ];
        assert_eq!(lease(&service, &fields).await.status, 202);
        assert_eq!(acquire(&service, B, "-1").await.status, 201);
        let again = lease(&service, &fields).await;
        assert_eq!(
            (
                again.status.as_u16(),
                again.header("x-ms-lease-time").as_deref()
            ),
            (202, Some("0"))
        );
        assert_eq!(put(&service, Some(B), "two").await.status, 204);
    }
}
