//! Representations that are too long to hash: their tags are of a revision, and each write changes them.

use ifmatch::RequirePreconditions;
use tower::Layer;

use crate::support::{World, ask, builder, request, send, with_authority};

const LONG: &str = "0123456789";

#[tokio::test]
async fn there_is_no_cliff_at_the_hash_limit() {
    for authoritative in [true, false] {
        for limit in [9, 10] {
            let (builder, _, _) = builder();
            let world = World::with(&[("/a", LONG)]);
            let builder = with_authority(builder, authoritative);
            let builder = builder.require_preconditions(RequirePreconditions::for_writes());
            let service = builder.hash_limit(limit).build().layer(world.clone());
            let first = ask(&service, "GET /a", &[]).await.tag();
            assert_eq!(ask(&service, "GET /a", &[]).await.tag(), first);
            assert_eq!(ask(&service, "HEAD /a", &[]).await.tag(), first);
            assert_eq!(
                ask(&service, "GET /a", &[("if-none-match", &first)])
                    .await
                    .status,
                304
            );
            assert_eq!(
                send(&service, request("PUT /a", &[], "blind")).await.status,
                428
            );
            // The new content has the same length.
            let written = send(
                &service,
                request("PUT /a", &[("if-match", &first)], "abcdefghij"),
            )
            .await;
            assert_eq!(
                written.status, 204,
                "authoritative: {authoritative}, limit: {limit}"
            );
            assert_eq!(ask(&service, "GET /a", &[]).await.tag(), written.tag());
            let lost = send(
                &service,
                request("PUT /a", &[("if-match", &first)], "9876543210"),
            )
            .await;
            assert_eq!(
                (lost.status.as_u16(), world.get("/a").as_deref()),
                (412, Some("abcdefghij"))
            );
            let read = ask(&service, "GET /a", &[("if-none-match", &first)]).await;
            assert_eq!(
                (read.status.as_u16(), &read.body[..]),
                (200, &b"abcdefghij"[..])
            );
            let again = send(
                &service,
                request("PUT /a", &[("if-match", &written.tag())], "third67890"),
            )
            .await;
            assert_eq!(again.status, 204);
        }
    }
}

#[tokio::test]
async fn a_write_back_to_the_same_bytes_is_a_new_version() {
    let (builder, _, _) = builder();
    let world = World::with(&[("/a", LONG)]);
    let service = builder
        .hash_limit(1)
        .get_after_writes(false)
        .build()
        .layer(world.clone());
    let first = ask(&service, "GET /a", &[]).await.tag();
    for text in ["abcdefghij", LONG] {
        assert_eq!(
            send(&service, request("PUT /a", &[("if-match", "*")], text))
                .await
                .status,
            204
        );
    }
    assert_eq!(
        send(&service, request("PUT /a", &[("if-match", &first)], "lost"))
            .await
            .status,
        412
    );
}

#[tokio::test]
async fn a_change_of_the_length_or_date_is_seen_even_if_it_bypasses_the_layer() {
    let (builder, _, _) = builder();
    let world = World::with(&[("/a", LONG)]);
    let service = builder.hash_limit(1).build().layer(world.clone());
    let first = ask(&service, "GET /a", &[]).await.tag();
    world.set("/a", "01234567890");
    assert_eq!(
        send(&service, request("PUT /a", &[("if-match", &first)], "lost"))
            .await
            .status,
        412
    );
    let second = ask(&service, "GET /a", &[]).await.tag();
    world.respond("GET /a", "last-modified", "Sun, 06 Nov 1994 08:49:37 GMT");
    assert_eq!(
        send(
            &service,
            request("PUT /a", &[("if-match", &second)], "lost")
        )
        .await
        .status,
        412
    );
    assert_ne!(ask(&service, "GET /a", &[]).await.tag(), second);
}

#[tokio::test]
async fn readers_of_one_revision_get_one_tag() {
    let (builder, _, _) = builder();
    let world = World::with(&[("/a", LONG)]);
    let service = builder.hash_limit(1).build().layer(world.clone());
    // The record exists, in an unknown state.
    send(&service, request("POST /a", &[], LONG)).await;
    let readers = ["first", "second"].map(|latch| {
        let service = service.clone();
        tokio::spawn(async move {
            ask(&service, "GET /a", &[("x-get-hold-after", latch)])
                .await
                .tag()
        })
    });
    for latch in ["first", "second"] {
        world.reached(latch).await;
    }
    for latch in ["first", "second"] {
        world.release(latch);
    }
    let [first, second] = readers;
    assert_eq!(first.await.unwrap(), second.await.unwrap());
}

#[tokio::test]
async fn a_reader_that_began_before_a_write_gets_no_tag_of_the_new_version() {
    let (builder, _, _) = builder();
    let world = World::with(&[("/a", LONG)]);
    let service = builder.hash_limit(1).build().layer(world.clone());
    let early = tokio::spawn({
        let service = service.clone();
        async move { ask(&service, "GET /a", &[("x-get-hold-after", "early")]).await }
    });
    world.reached("early").await;
    let written = send(&service, request("PUT /a", &[], "abcdefghij"))
        .await
        .tag();
    world.release("early");
    let early = early.await.unwrap();
    assert_eq!(&early.body[..], LONG.as_bytes());
    assert_ne!(early.header("etag"), Some(written));
}

/// The read begins before a write, and finds its bytes: the recorded tag names the bytes before.
#[tokio::test]
async fn a_reader_that_finds_the_bytes_of_a_later_write_does_not_get_the_tag_before_it() {
    for (authoritative, write) in [
        (true, "PUT /a"),
        (false, "PUT /a"),
        (true, "POST /a"),
        (false, "POST /a"),
    ] {
        // Until the write has ended, or only taken effect.
        for ends in [true, false] {
            let (builder, _, _) = builder();
            let world = World::with(&[("/a", LONG)]);
            let builder = with_authority(builder, authoritative);
            let service = builder.hash_limit(1).build().layer(world.clone());
            let first = ask(&service, "GET /a", &[]).await.tag();
            let task =
                |target: &'static str, fields: &'static [(&str, &str)], body: &'static str| {
                    let service = service.clone();
                    tokio::spawn(async move { send(&service, request(target, fields, body)).await })
                };
            let reader = task("GET /a", &[("x-get-hold-before", "reader")], "");
            world.reached("reader").await;
            let mut writer = task(write, &[("x-hold-after", "writer")], "abcdefghij");
            world.reached("writer").await;
            if ends {
                world.release("writer");
                assert_eq!((&mut writer).await.unwrap().status, 204);
            }
            world.release("reader");
            let read = reader.await.unwrap();
            assert_eq!(
                (read.status.as_u16(), &read.body[..]),
                (200, &b"abcdefghij"[..])
            );
            assert_ne!(
                read.header("etag"),
                Some(first),
                "authoritative: {authoritative}, {write}, ended: {ends}"
            );
            if !ends {
                world.release("writer");
                assert_eq!(writer.await.unwrap().status, 204);
            }
        }
    }
}

#[tokio::test]
async fn a_private_representation_shares_no_tag_of_a_revision() {
    let (builder, _, _) = builder();
    let world = World::with(&[("/a", LONG)]);
    world.respond("GET /a", "cache-control", "private");
    let service = builder.hash_limit(1).build().layer(world.clone());
    assert_eq!(ask(&service, "GET /a", &[]).await.header("etag"), None);
    assert_eq!(
        send(&service, request("PUT /a", &[], "abcdefghij"))
            .await
            .header("etag"),
        None
    );
}
