//! A read returns the bytes that were written.

use std::ops::Range;

use http_body_util::{BodyExt, Collected};
use ifmatch_core::date::HttpDate;
use ifmatch_core::digest::ContentHash;
use ifmatch_core::range::Limits;

use super::{Subject, blob, pattern, put};
use crate::headers::{Append, BlobHeaders, ContentMd5, Copied, FieldText, Tier};
use crate::store::{Opened, Put, Reading, StoreErrorKind};
use crate::tags::Tags;

pub(crate) async fn check(subject: &Subject) {
    a_read_returns_the_written_bytes(subject).await;
    every_write_has_another_tag(subject).await;
    ranges_are_parts_of_one_version(subject).await;
    an_announced_range_is_that_of_the_opened_version(subject).await;
    names_are_kept(subject).await;
    headers_are_kept(subject).await;
}

async fn a_read_returns_the_written_bytes(subject: &Subject) {
    for (name, bytes) in [
        ("empty", pattern(0)),
        ("small", pattern(5)),
        ("longer", pattern(100_000)),
    ] {
        let blob = blob("reading", name);
        assert!(subject.read(&blob).await.is_none());
        let written = subject.write(&blob, bytes.clone()).await;
        assert!(written.created);
        let (info, read) = subject.read(&blob).await.expect("there it is");
        assert_eq!(read, bytes);
        assert_eq!(info.length, bytes.len() as u64);
        assert_eq!(info.tag, written.tag);
        assert!(info.tag.as_ref().is_some_and(|tag| !tag.is_weak()));
        assert!(info.hash.is_none_or(|hash| hash == ContentHash::of(&bytes)));
        assert_eq!(subject.head(&blob).await, Some(info));
        let mut opened = subject
            .store
            .open(&blob, Reading::HEAD)
            .await
            .unwrap()
            .unwrap();
        let body = opened.source.read(None).await.unwrap();
        assert!(body.collect().await.unwrap().to_bytes().is_empty());
    }
}

async fn every_write_has_another_tag(subject: &Subject) {
    let blob = blob("reading", "same");
    let mut tags = Vec::new();
    for bytes in ["a", "b", "a", "a"] {
        let written = subject.write(&blob, bytes).await;
        assert_eq!(written.created, tags.is_empty());
        assert!(!tags.contains(&written.tag), "{tags:?} {written:?}");
        assert_eq!(Some(subject.tag(&blob).await), written.tag);
        tags.push(written.tag);
    }
    subject
        .delete_if(&blob, super::Preconditions::default())
        .await
        .unwrap();
    let again = subject.write(&blob, "a").await;
    assert!(
        again.created && !tags.contains(&again.tag),
        "{tags:?} {again:?}"
    );
}

async fn ranges_are_parts_of_one_version(subject: &Subject) {
    let blob = blob("reading", "ranges");
    let bytes = pattern(300_000);
    subject.write(&blob, bytes.clone()).await;
    for reading in [Reading::RANGES, Reading::WHOLE] {
        let mut opened = subject.store.open(&blob, reading).await.unwrap().unwrap();
        for range in [0..1, 299_999..300_000, 1_000..200_000, 0..300_000] {
            let body = opened.source.read(Some(range.clone())).await.unwrap();
            let part = body.collect().await.unwrap().to_bytes();
            let slice = usize::try_from(range.start).unwrap()..usize::try_from(range.end).unwrap();
            assert_eq!(part, bytes.slice(slice), "{range:?}");
        }
    }
    let mut opened = subject
        .store
        .open(&blob, Reading::RANGES)
        .await
        .unwrap()
        .unwrap();
    subject.write(&blob, vec![b'x'; 300_000]).await;
    match opened.source.read(Some(1_000..2_000)).await {
        Ok(body) => assert_eq!(
            body.collect().await.unwrap().to_bytes(),
            bytes.slice(1_000..2_000)
        ),
        Err(error) => assert_eq!(error.kind(), &StoreErrorKind::Unavailable, "{error}"),
    }
}

async fn an_announced_range_is_that_of_the_opened_version(subject: &Subject) {
    let blob = blob("reading", "announced");
    let bytes = pattern(300_000);
    for (value, range) in [
        ("bytes=0-0", 0..1),
        ("bytes=1000-1999", 1_000..2_000),
        ("bytes=299000-", 299_000..300_000),
        ("bytes=299000-999999", 299_000..300_000),
        ("bytes=-7", 299_993..300_000),
        ("bytes=0-", 0..300_000),
        ("bytes=-300001", 0..300_000),
        ("bytes=299000-9007199254740991", 299_000..300_000),
        ("bytes=299000-18446744073709551614", 299_000..300_000),
        ("bytes=-9007199254740992", 0..300_000),
        ("bytes=-18446744073709551615", 0..300_000),
        ("bytes=9007199254740991-", 5..6),
        ("bytes=9007199254740992-9007199254740993", 5..6),
        ("bytes=18446744073709551615-", 5..6),
        ("bytes=-0", 5..6),
        ("bytes=300000-", 5..6),
        ("bytes=0-4,9-9", 5..6),
    ] {
        let written = subject.write(&blob, bytes.clone()).await;
        let reading = Reading::of_range(value.as_bytes(), Limits::default());
        let open = async || subject.store.open(&blob, reading).await.unwrap().unwrap();
        let mut opened = open().await;
        assert_eq!(
            (&opened.info.tag, opened.info.length),
            (&written.tag, 300_000),
            "{value}"
        );
        let index = |at: u64| usize::try_from(at).expect("a short blob");
        let slice = |range: &Range<u64>| bytes.slice(index(range.start)..index(range.end));
        let read = async |opened: &mut Opened, range: &Range<u64>| {
            opened
                .source
                .read(Some(range.clone()))
                .await?
                .collect()
                .await
                .map(Collected::to_bytes)
        };
        // The announced range, and then any other.
        for range in [range.clone(), 1..4, 0..300_000] {
            assert_eq!(
                read(&mut opened, &range).await.unwrap(),
                slice(&range),
                "{value} {range:?}"
            );
        }
        let mut opened = open().await;
        let whole = opened
            .source
            .read(None)
            .await
            .unwrap()
            .collect()
            .await
            .unwrap()
            .to_bytes();
        assert_eq!(whole, bytes, "{value}");
        let mut opened = open().await;
        subject.write(&blob, "other").await;
        match read(&mut opened, &range).await {
            Ok(read) => assert_eq!(read, slice(&range), "{value}"),
            Err(error) => assert_eq!(
                error.kind(),
                &StoreErrorKind::Unavailable,
                "{value}: {error}"
            ),
        }
    }
    subject.write(&blob, "").await;
    for value in ["bytes=0-", "bytes=-1"] {
        let reading = Reading::of_range(value.as_bytes(), Limits::default());
        let mut opened = subject.store.open(&blob, reading).await.unwrap().unwrap();
        assert_eq!(opened.info.length, 0);
        let whole = opened
            .source
            .read(None)
            .await
            .unwrap()
            .collect()
            .await
            .unwrap()
            .to_bytes();
        assert!(whole.is_empty(), "{value}");
    }
}

async fn names_are_kept(subject: &Subject) {
    let names = [
        "a b",
        "ü/ö",
        "100%",
        "%41",
        "a+b",
        "a~b",
        "x#y",
        "q?r",
        "a&b=c",
        "...",
        "(1)",
        "a;b",
        "日本",
        "[x]",
        "a'b",
        "UPPER",
        "a:b",
        "a@b,c",
        "{x}^`|<>\"*",
    ];
    for name in names {
        subject.write(&blob("names", name), name).await;
    }
    for name in names {
        let (_, bytes) = subject.read(&blob("names", name)).await.expect(name);
        assert_eq!(bytes, name);
    }
}

async fn headers_are_kept(subject: &Subject) {
    let text = |text: &str| FieldText::new(text).expect("valid");
    let headers = BlobHeaders {
        content_type: Some(text("text/plain; charset=utf-8")),
        content_encoding: Some(text("gzip")),
        content_language: Some(text("de")),
        content_disposition: Some(text("attachment; filename=\"a.txt\"")),
        cache_control: Some(text("max-age=60")),
        content_md5: Some(ContentMd5::of(b"hello")),
        metadata: [
            ("owner", "me"),
            ("first-name", "Ada L."),
            ("a_2d", "x"),
            ("ifmatchwrite", "0"),
        ]
        .map(|(name, value)| (name.into(), text(value)))
        .into(),
        checksum: Some(text("crc32:NhCmhg==")),
        append: subject.keeps_headers.then_some(Append {
            blocks: 7,
            sealed: true,
        }),
        block_list: Some(text("7f3a")),
        copied: Some(Copied {
            id: text("7f3b"),
            source: text("http://a/b"),
            length: 5,
            date: HttpDate::from_unix(7),
        }),
        tags: if subject.keeps_headers {
            "state=in%20review".parse().expect("valid")
        } else {
            Tags::default()
        },
        tier: Some(Tier {
            name: text("Cool"),
            changed: Some(HttpDate::from_unix(7)),
        }),
        snapshot: Some(text("\"7f3c\" 7 a%20b")),
        policies: None,
        last_snapshot: None,
        emptying: None,
    };
    let blob = blob("reading", "headers");
    subject
        .store
        .put(
            &blob,
            Put {
                headers: headers.clone(),
                ..put("hello")
            },
        )
        .await
        .unwrap();
    let (info, bytes) = subject.read(&blob).await.expect("there it is");
    assert_eq!(bytes, "hello");
    if subject.keeps_headers {
        assert_eq!(info.headers, headers);
        assert_eq!(
            subject.head(&blob).await.expect("there it is").headers,
            headers
        );
        subject.write(&blob, "other").await;
        let later = subject.head(&blob).await.expect("there it is").headers;
        assert_eq!((later.metadata.len(), later.cache_control), (0, None));
    }
}
