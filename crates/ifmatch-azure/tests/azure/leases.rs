//! Leases of blobs, on the wire. The tables of states are the core's tests.

use std::time::Duration;

use http::Method;

use crate::support::{Client, fixture, lease_id};

async fn acquire(client: &Client, id: &str, seconds: &str) {
    let fields = [("x-ms-lease-duration", seconds), ("x-ms-proposed-lease-id", id)];
    client.lease("/box/a", "acquire", &fields).await.is(201);
}

/// State, status and duration.
async fn state(client: &Client) -> (String, String, String) {
    let answer = client.send(Method::HEAD, "/box/a", &[], "").await.is(200);
    let field = |name: &str| answer.headers.get(name).map_or("", |value| value.to_str().expect("ASCII")).to_owned();
    (field("x-ms-lease-state"), field("x-ms-lease-status"), field("x-ms-lease-duration"))
}

fn is(state: &str, status: &str, duration: &str) -> (String, String, String) {
    (state.into(), status.into(), duration.into())
}

#[tokio::test]
async fn each_action_has_its_status_and_fields_and_changes_no_tag() {
    let fixture = fixture().await;
    let client = &fixture.client;
    let tag = client.upload("/box/a", "x", &[]).await.is(201).tag();
    fixture.clock.advance(Duration::from_secs(10));
    let (one, two) = (lease_id('1'), lease_id('2'));
    let acquired =
        client.lease("/box/a", "acquire", &[("x-ms-lease-duration", "-1"), ("x-ms-proposed-lease-id", &one)]).await;
    assert_eq!(acquired.clone().is(201).field("x-ms-lease-id"), one);
    assert_eq!(state(client).await, is("leased", "locked", "infinite"));
    let renewed = client.lease("/box/a", "renew", &[("x-ms-lease-id", &one)]).await.is(200);
    assert_eq!(renewed.field("x-ms-lease-id"), one);
    let fields = [("x-ms-lease-id", one.as_str()), ("x-ms-proposed-lease-id", &two)];
    let changed = client.lease("/box/a", "change", &fields).await.is(200);
    assert_eq!(changed.field("x-ms-lease-id"), two);
    let broken = client.lease("/box/a", "break", &[("x-ms-lease-break-period", "5")]).await.is(202);
    assert_eq!(broken.field("x-ms-lease-time"), "5");
    assert_eq!(state(client).await, is("breaking", "locked", ""));
    let again = client.lease("/box/a", "break", &[("x-ms-lease-break-period", "0")]).await.is(202);
    assert_eq!(again.field("x-ms-lease-time"), "0");
    assert_eq!(state(client).await, is("broken", "unlocked", ""));
    let released = client.lease("/box/a", "release", &[("x-ms-lease-id", &two)]).await.is(200);
    assert!(!released.headers.contains_key("x-ms-lease-id"));
    assert_eq!(state(client).await, is("available", "unlocked", ""));
    for answer in [acquired, renewed, changed, broken, again, released] {
        assert_eq!((answer.tag(), answer.field("last-modified")), (tag.clone(), "Sun, 13 Sep 2020 12:26:41 GMT"));
    }
}

#[tokio::test]
async fn an_id_is_drawn_where_none_is_proposed() {
    let client = fixture().await.client;
    client.upload("/box/a", "x", &[]).await.is(201);
    let acquired = client.lease("/box/a", "acquire", &[("x-ms-lease-duration", "15")]).await.is(201);
    let id = acquired.field("x-ms-lease-id");
    client.lease("/box/a", "renew", &[("x-ms-lease-id", id)]).await.is(200);
}

#[tokio::test]
async fn ids_are_compared_as_guids() {
    let client = fixture().await.client;
    client.upload("/box/a", "x", &[]).await.is(201);
    acquire(&client, "A0000000-0000-4000-8000-00000000000B", "15").await;
    let spelling = "{0xa0000000,0x0000,0x4000,{0x80,0x00,0x00,0x00,0x00,0x00,0x00,0x0b}}";
    client.upload("/box/a", "y", &[("x-ms-lease-id", spelling)]).await.is(201);
    client.upload("/box/a", "z", &[("x-ms-lease-id", "(a0000000-0000-4000-8000-00000000000b)")]).await.is(201);
}

#[tokio::test]
async fn all_writes_need_the_id_of_a_lease_and_reads_do_not() {
    let client = fixture().await.client;
    client.upload("/box/a", "x", &[]).await.is(201);
    client.put("/box/a?comp=block&blockid=AA==", &[], "y").await.is(201);
    let (id, other) = (lease_id('1'), lease_id('2'));
    acquire(&client, &id, "15").await;
    let list = "<BlockList><Latest>AA==</Latest></BlockList>";
    let writes = [
        (Method::PUT, "/box/a", "", true),
        (Method::PUT, "/box/a?comp=metadata", "", false),
        (Method::PUT, "/box/a?comp=properties", "", false),
        (Method::PUT, "/box/a?comp=block&blockid=AA==", "z", false),
        (Method::PUT, "/box/a?comp=blocklist", list, false),
        (Method::DELETE, "/box/a", "", false),
    ];
    for (given, code) in [(None, "LeaseIdMissing"), (Some(&other), "LeaseIdMismatchWithBlobOperation")] {
        for (method, target, body, is_put) in &writes {
            let kind = is_put.then_some(("x-ms-blob-type", "BlockBlob"));
            let id = given.map(|id| ("x-ms-lease-id", id.as_str()));
            let fields: Vec<(&str, &str)> = kind.into_iter().chain(id).collect();
            client.send(method.clone(), target, &fields, *body).await.refused(412, code);
        }
    }
    for (method, target) in [(Method::GET, "/box/a"), (Method::HEAD, "/box/a"), (Method::GET, "/box/a?comp=blocklist")]
    {
        client.send(method.clone(), target, &[], "").await.is(200);
        client.send(method.clone(), target, &[("x-ms-lease-id", &id)], "").await.is(200);
        let answer = client.send(method, target, &[("x-ms-lease-id", &other)], "").await;
        answer.refused(412, "LeaseIdMismatchWithBlobOperation");
    }
    for (method, target, body, is_put) in writes {
        let kind = is_put.then_some(("x-ms-blob-type", "BlockBlob"));
        let fields: Vec<(&str, &str)> = kind.into_iter().chain([("x-ms-lease-id", id.as_str())]).collect();
        let answer = client.send(method, target, &fields, body).await;
        // The write of the whole blob discards what is staged for it.
        let discarded = target.ends_with("blocklist");
        assert!(answer.status.is_success() || discarded, "{target}: {answer:?}");
    }
}

/// A client that creates what is leased must learn that it is leased, not that it exists.
#[tokio::test]
async fn the_lease_comes_before_the_conditions() {
    let client = fixture().await.client;
    client.upload("/box/a", "x", &[]).await.is(201);
    acquire(&client, &lease_id('1'), "15").await;
    for field in
        [("if-none-match", "*"), ("if-match", "\"stale\""), ("if-modified-since", "Sun, 13 Sep 2026 12:26:40 GMT")]
    {
        client.upload("/box/a", "y", &[field]).await.refused(412, "LeaseIdMissing");
    }
    let both = [("x-ms-lease-id", &*lease_id('1')), ("if-match", "\"stale\"")];
    client.upload("/box/a", "y", &both).await.refused(412, "ConditionNotMet");
}

/// The holder's time ends; somebody else writes, or takes the lease; the holder writes late.
#[tokio::test]
async fn a_late_holder_writes_no_more() {
    let fixture = fixture().await;
    let client = &fixture.client;
    client.upload("/box/a", "x", &[]).await.is(201);
    let (one, two) = (lease_id('1'), lease_id('2'));
    acquire(client, &one, "15").await;
    fixture.clock.advance(Duration::from_secs(16));
    assert_eq!(state(client).await, is("expired", "unlocked", ""));
    client.upload("/box/a", "late", &[("x-ms-lease-id", &one)]).await.refused(412, "LeaseLost");
    acquire(client, &two, "15").await;
    client.upload("/box/a", "late", &[("x-ms-lease-id", &one)]).await.refused(412, "LeaseIdMismatchWithBlobOperation");
    client.lease("/box/a", "renew", &[("x-ms-lease-id", &one)]).await.refused(409, "LeaseIdMismatchWithLeaseOperation");
    let fields = [("x-ms-lease-duration", "15"), ("x-ms-proposed-lease-id", one.as_str())];
    client.lease("/box/a", "acquire", &fields).await.refused(409, "LeaseAlreadyPresent");
    assert_eq!(client.get("/box/a").await.is(200).body, "x");
}

/// A block for a blob that is leased meanwhile: the list that commits it decides.
#[tokio::test]
async fn a_list_is_refused_by_a_lease_that_came_after_its_blocks() {
    let client = fixture().await.client;
    client.upload("/box/a", "x", &[]).await.is(201);
    client.put("/box/a?comp=block&blockid=AA==", &[], "y").await.is(201);
    acquire(&client, &lease_id('1'), "15").await;
    let list = "<BlockList><Latest>AA==</Latest></BlockList>";
    client.put("/box/a?comp=blocklist", &[], list).await.refused(412, "LeaseIdMissing");
    assert_eq!(client.get("/box/a").await.body, "x");
    client.put("/box/a?comp=blocklist", &[("x-ms-lease-id", &lease_id('1'))], list).await.is(201);
    assert_eq!(client.get("/box/a").await.body, "y");
}

#[tokio::test]
async fn of_many_takers_one_has_the_lease() {
    let client = fixture().await.client;
    client.upload("/box/a", "x", &[]).await.is(201);
    let take = |number: u32| {
        let client = client.clone();
        tokio::spawn(async move {
            let id = format!("a0000000-0000-4000-8000-0000000000{number:02}");
            let fields = [("x-ms-lease-duration", "60"), ("x-ms-proposed-lease-id", id.as_str())];
            client.lease("/box/a", "acquire", &fields).await.status.as_u16()
        })
    };
    let mut statuses = Vec::new();
    for taker in (10..18).map(take).collect::<Vec<_>>() {
        statuses.push(taker.await.expect("no panic"));
    }
    statuses.sort_unstable();
    assert_eq!(statuses, [201, 409, 409, 409, 409, 409, 409, 409]);
}
