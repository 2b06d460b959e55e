//! Tags are written with a blob, and change without a new version.
//!
//! Interleavings that matter:
//!
//! - Several clients change the tags on the condition that they are as they were read: one of them does.
//! - A client appends to a blob, which is a write of all its bytes and header fields, and another one changes the tags while the bytes
//!   arrive: the append names the version that it has read, which is still the current one, and must not write the tags that it had.
//! - A client reads a version and writes on its condition, and another one changes the tags in between: no version was lost, so the write
//!   takes place.

use futures_util::future::join_all;

use crate::headers::BlobHeaders;
use crate::name::BlobPath;
use crate::store::{HeaderChange, Put, Reading, RequestKey, SetHeaders, StoreErrorKind};
use crate::tags::Tags;

use super::{Subject, blob, gated, if_match, kind, pattern, put};

/// Number of races.
const RACES: usize = 1000;

pub(crate) async fn check(subject: &Subject) {
    if !subject.keeps_headers {
        tags_are_refused_without_header_fields(subject).await;
        return;
    }
    tags_are_written_with_a_blob(subject).await;
    if !subject.changes_tags {
        a_change_is_refused(subject).await;
        return;
    }
    for (name, length) in [("small", 5), ("large", 100_000)] {
        a_change_keeps_the_version(subject, name, length).await;
    }
    a_change_is_conditional(subject).await;
    a_write_keeps_tags_that_change_before_it(subject).await;
    if subject.knows_retries {
        a_retry_gets_the_first_answer(subject).await;
    }
    one_change_on_a_condition_wins(subject).await;
}

fn tags(text: &str) -> Tags {
    text.parse().expect("valid tags")
}

fn tagged(bytes: &'static str, text: &str) -> Put {
    Put {
        headers: BlobHeaders {
            tags: tags(text),
            ..BlobHeaders::default()
        },
        ..put(bytes)
    }
}

fn change(text: &str) -> SetHeaders {
    SetHeaders::new(HeaderChange::Tags(tags(text)))
}

fn change_if(condition: &str, text: &str) -> SetHeaders {
    SetHeaders {
        if_tags: Some(condition.parse().expect("a condition")),
        ..change(text)
    }
}

impl Subject {
    async fn tags(&self, blob: &BlobPath) -> Tags {
        self.head(blob).await.unwrap().headers.tags
    }
}

async fn tags_are_refused_without_header_fields(subject: &Subject) {
    let blob = blob("tags", "unsupported");
    assert_eq!(
        kind(subject.store.put(&blob, tagged("1", "a=1")).await),
        StoreErrorKind::Unsupported
    );
    assert!(subject.head(&blob).await.is_none(), "nothing is stored");
}

async fn tags_are_written_with_a_blob(subject: &Subject) {
    let (blob, copy) = (blob("tags", "written"), blob("tags", "copy"));
    subject
        .store
        .put(&blob, tagged("1", "a=1&b=%C3%BC%20%2B"))
        .await
        .unwrap();
    assert_eq!(subject.tags(&blob).await, tags("a=1&b=%C3%BC%20%2B"));
    let fields = HeaderChange::Fields(Box::default());
    subject
        .store
        .set_headers(&blob, SetHeaders::new(fields))
        .await
        .unwrap();
    assert_eq!(
        subject.tags(&blob).await,
        tags("a=1&b=%C3%BC%20%2B"),
        "other fields change without them"
    );
    let opened = subject
        .store
        .open(&blob, Reading::WHOLE)
        .await
        .unwrap()
        .unwrap();
    subject
        .store
        .put(&copy, Put::copying(&blob, opened).await.unwrap())
        .await
        .unwrap();
    assert_eq!(subject.tags(&copy).await, tags("a=1&b=%C3%BC%20%2B"));
    subject.write(&blob, "2").await;
    assert!(
        subject.tags(&blob).await.is_empty(),
        "they belong to the version"
    );
}

async fn a_change_is_refused(subject: &Subject) {
    let blob = blob("tags", "refused");
    subject.store.put(&blob, tagged("1", "a=1")).await.unwrap();
    let before = subject.head(&blob).await.unwrap();
    assert_eq!(
        kind(subject.store.set_headers(&blob, change("a=2")).await),
        StoreErrorKind::Unsupported
    );
    assert_eq!(subject.head(&blob).await.unwrap(), before);
}

async fn a_change_keeps_the_version(subject: &Subject, name: &str, length: usize) {
    let blob = blob("tags", name);
    subject.write(&blob, pattern(length)).await;
    let before = subject.head(&blob).await.unwrap();
    let written = subject
        .store
        .set_headers(&blob, change("a=1"))
        .await
        .unwrap();
    assert_eq!(
        (&written.tag, written.last_modified),
        (&before.tag, before.last_modified)
    );
    let (after, bytes) = subject.read(&blob).await.unwrap();
    assert_eq!(
        (&after.headers.tags, bytes),
        (&tags("a=1"), pattern(length))
    );
    let headers = BlobHeaders {
        tags: Tags::default(),
        ..after.headers
    };
    let (tag, created, generation) = (after.tag, after.created, after.generation);
    assert_eq!(
        (&tag, created, generation, headers),
        (
            &before.tag,
            before.created,
            before.generation,
            before.headers
        )
    );
    assert_eq!(after.last_modified, before.last_modified);
    subject.store.set_headers(&blob, change("")).await.unwrap();
    assert!(subject.tags(&blob).await.is_empty());
    // Whoever has read the version may still write on its condition.
    subject
        .write_if(&blob, if_match(&tag.unwrap()), "next")
        .await
        .unwrap();
}

async fn a_change_is_conditional(subject: &Subject) {
    let (there, absent) = (blob("tags", "conditional"), blob("tags", "absent"));
    assert_eq!(
        kind(subject.store.set_headers(&absent, change("a=1")).await),
        StoreErrorKind::NotFound
    );
    let old = subject.write(&there, "1").await.tag.unwrap();
    subject
        .store
        .put(&there, tagged("2", "state=free"))
        .await
        .unwrap();
    let is_failed =
        |kind: StoreErrorKind| matches!(kind, StoreErrorKind::PreconditionFailed { .. });
    for refused in [
        SetHeaders {
            preconditions: if_match(&old),
            ..change("state=taken")
        },
        change_if("state = 'taken'", "state=free"),
        change_if("missing <> 'x'", "state=free"),
    ] {
        assert!(is_failed(kind(
            subject.store.set_headers(&there, refused).await
        )));
        assert_eq!(subject.tags(&there).await, tags("state=free"));
    }
    subject
        .store
        .set_headers(&there, change_if("state = 'free'", "state=taken"))
        .await
        .unwrap();
    assert_eq!(subject.tags(&there).await, tags("state=taken"));
}

async fn a_write_keeps_tags_that_change_before_it(subject: &Subject) {
    let blob = blob("tags", "kept");
    let tag = subject
        .store
        .put(&blob, tagged("1", "a=old"))
        .await
        .unwrap()
        .tag
        .unwrap();
    let (body, asked, open) = gated("12");
    let stale = BlobHeaders {
        tags: tags("a=old"),
        ..BlobHeaders::default()
    };
    let append = Put {
        preconditions: if_match(&tag),
        headers: stale,
        keeps_tags: true,
        ..Put::new(body)
    };
    let meanwhile = async {
        asked.await.unwrap();
        subject
            .store
            .set_headers(&blob, change("a=new"))
            .await
            .unwrap();
        open.send(()).unwrap();
    };
    let (written, ()) = futures_util::join!(subject.store.put(&blob, append), meanwhile);
    written.unwrap();
    let (info, bytes) = subject.read(&blob).await.unwrap();
    assert_eq!((info.headers.tags, &bytes[..]), (tags("a=new"), &b"12"[..]));
}

async fn a_retry_gets_the_first_answer(subject: &Subject) {
    let blob = blob("tags", "retry");
    subject
        .store
        .put(&blob, tagged("1", "state=free"))
        .await
        .unwrap();
    let request = || SetHeaders {
        request: Some(RequestKey::of(&[b"tags"])),
        ..change_if("state = 'free'", "state=taken")
    };
    let first = subject.store.set_headers(&blob, request()).await.unwrap();
    let again = subject.store.set_headers(&blob, request()).await.unwrap();
    assert_eq!((again.tag, again.is_replay), (first.tag, true));
}

async fn one_change_on_a_condition_wins(subject: &Subject) {
    let blob = blob("tags", "race");
    subject
        .store
        .put(&blob, tagged("1", "round=0"))
        .await
        .unwrap();
    for round in 0..RACES {
        let take = async |writer: usize| {
            let set = change_if(
                &format!("round = '{round}'"),
                &format!("round={}&owner={writer}", round + 1),
            );
            subject.store.set_headers(&blob, set).await
        };
        let results = join_all((0..4).map(take)).await;
        let winners: Vec<_> = (0..4).filter(|writer| results[*writer].is_ok()).collect();
        assert_eq!(winners.len(), 1, "in round {round}: {results:?}");
        assert_eq!(
            subject.tags(&blob).await.get("owner"),
            Some(winners[0].to_string())
        );
    }
}
