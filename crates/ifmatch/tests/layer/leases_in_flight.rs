//! Leases and overlapping requests: concurrent acquisitions, leases that end or are broken mid-write.

use std::time::Duration;

use http::{Request, Response, Uri};
use http_body_util::Full;
use ifmatch::Invalidates;
use tower::{Layer, ServiceExt, service_fn};

use crate::leases::{A, B, acquire, act, both, lease, put, refusal, refused};
use crate::support::{Sent, World, ask, builder, ended, request, send, settle};

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test]
async fn one_of_many_acquirers_wins() {
    for (builder, _) in both() {
        let world = World::with(&[("/a", "one")]);
        let service = builder.build().layer(world.clone());
        let acquirers = (0..8).map(|number| {
            let service = service.clone();
            tokio::spawn(async move {
                let id = format!("0000000{number}-0000-4000-8000-000000000000");
                (acquire(&service, &id, "15").await, id)
            })
        });
        let mut winners = Vec::new();
        for acquirer in acquirers.collect::<Vec<_>>() {
            let (reply, id) = acquirer.await.unwrap();
            match reply.status.as_u16() {
                201 => winners.push(id),
                _ => assert_eq!(refusal(&reply), refused(409, "LeaseAlreadyPresent")),
            }
        }
        assert_eq!(winners.len(), 1);
        assert_eq!(put(&service, Some(&winners[0]), "two").await.status, 204);
    }
}

/// The next client gets the lease only once the holder's handler can no longer take effect.
#[tokio::test]
async fn a_handler_is_cancelled_before_its_lease_ends() {
    for (builder, clock) in both() {
        let world = World::with(&[("/a", "one")]);
        let service = builder
            .write_timeout(SECOND * 100)
            .build()
            .layer(world.clone());
        acquire(&service, A, "15").await;
        let slow = tokio::spawn({
            let service = service.clone();
            async move {
                let fields = [("x-ms-lease-id", A), ("x-hold-before", "slow")];
                send(&service, request("PUT /a", &fields, "slow")).await
            }
        });
        world.reached("slow").await;
        assert_eq!(
            refusal(&put(&service, None, "x").await),
            refused(412, "LeaseIdMissing"),
            "the refusal must be immediate"
        );
        clock.advance(SECOND * 11);
        settle().await;
        assert!(!slow.is_finished());
        assert_eq!(
            refusal(&acquire(&service, B, "15").await),
            refused(409, "LeaseAlreadyPresent")
        );
        clock.advance(SECOND);
        let reply = ended("slow", slow).await;
        assert_eq!(
            (reply.status.as_u16(), reply.problem().as_str()),
            (503, "outcome-unknown")
        );
        assert_eq!(
            refusal(&acquire(&service, B, "15").await),
            refused(409, "LeaseAlreadyPresent")
        );
        clock.advance(SECOND * 3);
        world.release("slow");
        assert_eq!(acquire(&service, B, "15").await.status, 201);
        assert_eq!(put(&service, Some(B), "theirs").await.status, 204);
        assert_eq!(
            refusal(&act(&service, "renew", A).await),
            refused(409, "LeaseIdMismatchWithLeaseOperation")
        );
        assert_eq!(world.get("/a").as_deref(), Some("theirs"));
    }
}

#[tokio::test]
async fn a_holder_can_renew_while_its_handler_runs() {
    for (builder, clock) in both() {
        let world = World::with(&[("/a", "one")]);
        let service = builder.build().layer(world.clone());
        acquire(&service, A, "15").await;
        let slow = tokio::spawn({
            let service = service.clone();
            async move {
                let fields = [("x-ms-lease-id", A), ("x-hold-before", "slow")];
                send(&service, request("PUT /a", &fields, "slow")).await
            }
        });
        world.reached("slow").await;
        clock.advance(SECOND * 10);
        let renewed = act(&service, "renew", A).await;
        assert_eq!(
            (renewed.status.as_u16(), renewed.header("etag")),
            (200, None),
            "the tag is unknown during the write"
        );
        world.release("slow");
        assert_eq!(ended("slow", slow).await.status, 204);
        clock.advance(SECOND * 10);
        assert_eq!(put(&service, Some(A), "two").await.status, 204);
    }
}

/// A broken lease no longer locks, but the write under it may still take effect, and blocks the next acquisition.
#[tokio::test]
async fn an_acquire_after_a_break_waits_for_the_write_in_flight() {
    for (builder, _) in both() {
        let world = World::with(&[("/a", "one")]);
        let service = builder.build().layer(world.clone());
        acquire(&service, A, "-1").await;
        let slow = tokio::spawn({
            let service = service.clone();
            async move {
                let fields = [("x-ms-lease-id", A), ("x-hold-before", "slow")];
                send(&service, request("PUT /a", &fields, "slow")).await
            }
        });
        world.reached("slow").await;
        let broken = lease(&service, &[("lease-action", "break")]).await;
        assert_eq!(
            (
                broken.status.as_u16(),
                broken.header("x-ms-lease-time").as_deref()
            ),
            (202, Some("0"))
        );
        let next = tokio::spawn({
            let service = service.clone();
            async move { acquire(&service, B, "15").await }
        });
        settle().await;
        assert!(!next.is_finished());
        world.release("slow");
        assert_eq!(ended("slow", slow).await.status, 204);
        assert_eq!(ended("next", next).await.status, 201);
        assert_eq!(
            refusal(&put(&service, Some(A), "x").await),
            refused(412, "LeaseIdMismatchWithBlobOperation")
        );
        assert_eq!(world.get("/a").as_deref(), Some("slow"));
    }
}

/// Another resource's handler has changed it, so its recorded version is wrong, regardless of its lease.
#[tokio::test]
async fn a_changed_resource_is_invalidated_even_if_it_is_leased() {
    let (builder, _, _) = builder();
    let world = World::with(&[("/a", "one")]);
    let inner = world.clone();
    let handler = service_fn(move |request: Request<Sent>| {
        let world = inner.clone();
        async move {
            if request.uri().path() == "/other" {
                world.set("/a", "two");
                let mut response = Response::new(Full::default());
                response
                    .extensions_mut()
                    .insert(Invalidates(vec![Uri::from_static("/a")]));
                return Ok(response);
            }
            world.oneshot(request).await
        }
    });
    let service = builder.authoritative().leases().build().layer(handler);
    let tag = ask(&service, "GET /a", &[]).await.tag();
    acquire(&service, A, "15").await;
    assert_eq!(
        send(&service, request("POST /other", &[], "")).await.status,
        200
    );
    let stale = [("x-ms-lease-id", A), ("if-match", tag.as_str())];
    assert_eq!(
        send(&service, request("PUT /a", &stale, "lost"))
            .await
            .status,
        412
    );
    assert_eq!(
        ask(&service, "GET /a", &[("if-none-match", &tag)])
            .await
            .status,
        200
    );
    assert_eq!(
        refusal(&put(&service, None, "x").await),
        refused(412, "LeaseIdMissing"),
        "the lease must continue"
    );
}

#[tokio::test]
async fn a_read_that_outlasts_its_lease_gets_412() {
    let (builder, clock, _) = builder();
    let world = World::with(&[("/a", "one")]);
    let service = builder.leases().build().layer(world.clone());
    acquire(&service, A, "15").await;
    let read = tokio::spawn({
        let service = service.clone();
        async move {
            ask(
                &service,
                "GET /a",
                &[("x-ms-lease-id", A), ("x-get-hold-before", "read")],
            )
            .await
        }
    });
    world.reached("read").await;
    clock.advance(SECOND * 15);
    assert_eq!(put(&service, None, "two").await.status, 204);
    world.release("read");
    assert_eq!(
        refusal(&read.await.unwrap()),
        refused(412, "LeaseNotPresentWithBlobOperation")
    );
}
