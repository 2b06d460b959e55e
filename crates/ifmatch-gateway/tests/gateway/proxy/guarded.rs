//! Guarded writes, and responses that the cache shares with other clients.

use std::net::SocketAddr;
use std::sync::{Arc, Barrier, Mutex};
use std::thread;
use std::time::Duration;

use support::origin::{Asked, Origin, ok};
use support::raw::exchange;
use support::{Answer, Gateway};

use super::{before, get, is_hit, store};
use crate::eventually;

/// An origin with one document, which each PUT replaces.
fn forgetful() -> (Origin, Arc<Mutex<String>>) {
    forgetful_with("")
}

/// An origin with these fields in every response.
fn forgetful_with(fields: &'static str) -> (Origin, Arc<Mutex<String>>) {
    let document = Arc::new(Mutex::new("first".to_owned()));
    let shared = Arc::clone(&document);
    let origin = Origin::start(move |asked| {
        if asked.head.starts_with("put ") {
            // A window for another write.
            thread::sleep(Duration::from_millis(20));
            *shared.lock().unwrap() = String::from_utf8(asked.content.clone()).unwrap();
            return format!("HTTP/1.1 204 No Content\r\n{fields}\r\n");
        }
        ok(fields, &shared.lock().unwrap())
    });
    (origin, document)
}

fn put(address: SocketAddr, tag: &str, content: &str) -> Answer {
    let length = content.len();
    let head = format!(
        "PUT /doc HTTP/1.1\r\nhost: example.com\r\nif-match: {tag}\r\ncontent-length: {length}\r\n\r\n"
    );
    exchange(address, head + content)
}

#[test]
fn one_of_several_conditional_writers_wins() {
    let (origin, document) = forgetful();
    let gateway = before(&origin, &["--guard-writes"]);
    let tag = get(&gateway, "/doc", "").expect(200).etag().to_owned();
    let (address, all) = (gateway.address(), Barrier::new(8));
    let write = |at: usize| {
        all.wait();
        put(address, &tag, &format!("by {at}")).status.as_u16()
    };
    let statuses: Vec<u16> = thread::scope(|scope| {
        let write = &write;
        let writers: Vec<_> = (0..8).map(|at| scope.spawn(move || write(at))).collect();
        writers
            .into_iter()
            .map(|writer| writer.join().unwrap())
            .collect()
    });
    let winners: Vec<usize> = (0..8).filter(|at| statuses[*at] == 204).collect();
    assert_eq!(winners.len(), 1, "{statuses:?}");
    assert!(
        statuses.iter().all(|status| [204, 412].contains(status)),
        "{statuses:?}"
    );
    assert_eq!(*document.lock().unwrap(), format!("by {}", winners[0]));
    let puts = origin
        .asked()
        .iter()
        .filter(|asked| asked.head.starts_with("put "))
        .count();
    assert_eq!(puts, 1);

    // The next client reads the new version and writes again.
    let read = get(&gateway, "/doc", "").expect(200);
    assert_eq!(read.text(), format!("by {}", winners[0]));
    put(address, read.etag(), "next").expect(204);
    assert_eq!(get(&gateway, "/doc", "").expect(200).text(), "next");
}

/// The route takes them for one host, and the upstream for one path.
#[test]
fn one_of_several_writers_with_different_spellings_wins() {
    let (origin, document) = forgetful();
    let gateway = before(&origin, &["--guard-writes"]);
    let tag = get(&gateway, "/doc", "").expect(200).etag().to_owned();
    let spellings = [
        ("example.com", "/doc"),
        ("example.com.", "/doc"),
        ("Example.com:8080", "/%64oc"),
        ("example.com", "/./doc"),
    ];
    let (address, all) = (gateway.address(), Barrier::new(spellings.len()));
    let write = |(host, path): (&str, &str)| {
        all.wait();
        let head = format!(
            "PUT {path} HTTP/1.1\r\nhost: {host}\r\nif-match: {tag}\r\ncontent-length: 4\r\n\r\n"
        );
        exchange(address, head + "next").status.as_u16()
    };
    let mut statuses: Vec<u16> = thread::scope(|scope| {
        let write = &write;
        let writers: Vec<_> = spellings
            .into_iter()
            .map(|spelling| scope.spawn(move || write(spelling)))
            .collect();
        writers
            .into_iter()
            .map(|writer| writer.join().unwrap())
            .collect()
    });
    statuses.sort_unstable();
    assert_eq!(statuses, [204, 412, 412, 412]);
    assert_eq!(*document.lock().unwrap(), "next");
}

/// As nginx does for two versions of the same length in one second.
#[test]
fn an_upstream_with_one_tag_for_two_versions_loses_no_update() {
    let (origin, document) = forgetful_with("etag: \"of-a-second\"\r\n");
    let gateway = before(&origin, &["--guard-writes"]);
    let read = get(&gateway, "/doc", "").expect(200);
    let anna = put(gateway.address(), read.etag(), "by Anna").expect(204);
    assert!(!anna.headers.contains_key("etag"), "{anna:?}");
    put(gateway.address(), read.etag(), "by Bert").expect(412);
    assert_eq!(*document.lock().unwrap(), "by Anna");
    let again = get(&gateway, "/doc", "").expect(200);
    assert_ne!(again.etag(), read.etag());
    put(gateway.address(), again.etag(), "by Bert").expect(204);
}

#[test]
fn without_guard_writes_the_upstream_handles_conditions() {
    let (origin, document) = forgetful();
    let gateway = before(&origin, &[]);
    let read = get(&gateway, "/doc", "").expect(200);
    assert!(!read.headers.contains_key("etag"), "{read:?}");
    put(gateway.address(), "\"stale\"", "anything").expect(204);
    assert_eq!(*document.lock().unwrap(), "anything");
    let asked = origin.asked();
    assert_eq!(asked[1].field("if-match"), Some("\"stale\""));
}

/// An origin that sends these fields in each response.
fn origin(fields: &'static str) -> Origin {
    Origin::start(move |_| ok(fields, "hello"))
}

/// Sends several requests, each of which reaches the origin.
#[track_caller]
fn assert_is_not_shared(origin: &Origin, gateway: &Gateway) {
    for count in 1..=5 {
        get(gateway, "/a", "").expect(200);
        assert_eq!(origin.asked().len(), count);
    }
}

#[test]
fn responses_that_vary_by_client_address_are_not_shared() {
    for fields in [
        "cache-control: max-age=600\r\nvary: x-forwarded-for\r\n",
        "cache-control: max-age=600\r\nvary: via\r\n",
    ] {
        for flags in [&[][..], &["--trust-forwarded"]] {
            let origin = origin(fields);
            assert_is_not_shared(&origin, &before(&origin, flags));
        }
    }
}

#[test]
fn responses_that_vary_by_a_forwarded_field_are_shared() {
    let fields = "cache-control: max-age=600\r\nvary: x-forwarded-host\r\n";
    let trusted = origin(fields);
    store(&before(&trusted, &["--trust-forwarded"]), "/a");
    let dropped = origin(fields);
    assert_is_not_shared(&dropped, &before(&dropped, &[]));
}

#[test]
fn cookies_are_shared_only_by_a_flag() {
    let fields = "cache-control: max-age=600\r\nset-cookie: a=b\r\n";
    let own = origin(fields);
    assert_is_not_shared(&own, &before(&own, &[]));
    let shared = origin(fields);
    store(&before(&shared, &["--share-cookies"]), "/a");
}

#[test]
fn lifetimes_are_guessed_unless_disabled() {
    let fields = "last-modified: Sun, 06 Nov 1994 08:49:37 GMT\r\n";
    let guessed = origin(fields);
    store(&before(&guessed, &[]), "/a");
    let asked = origin(fields);
    assert_is_not_shared(&asked, &before(&asked, &["--guess-lifetimes=false"]));
}

#[test]
fn responses_without_a_lifetime_get_one_only_by_a_flag() {
    let own = origin("");
    assert_is_not_shared(&own, &before(&own, &[]));
    for flags in [
        &["--default-ttl", "1m"][..],
        &["--default-ttl", "1m", "--guess-lifetimes=false"],
    ] {
        let shared = origin("");
        store(&before(&shared, flags), "/a");
    }
}

#[test]
fn clients_can_bypass_the_cache_unless_a_flag_forbids_it() {
    let origin = origin("cache-control: max-age=600\r\n");
    for (flags, expected) in [(&[][..], false), (&["--ignore-client-cache-control"], true)] {
        let gateway = before(&origin, flags);
        store(&gateway, "/a");
        assert_eq!(
            is_hit(&get(&gateway, "/a", "cache-control: no-cache\r\n")),
            expected,
            "{flags:?}"
        );
    }
}

#[test]
fn stale_responses_are_used_while_revalidated_only_by_a_flag() {
    // Stale after a second.
    let fields = |asked: &Asked| {
        let strict = if asked.head.contains("/strict") {
            ", must-revalidate"
        } else {
            ""
        };
        ok(
            &format!("cache-control: max-age=1{strict}\r\nage: 0\r\n"),
            "hello",
        )
    };
    for (flags, path, expected) in [
        (&[][..], "/a", false),
        (&["--stale-while-revalidate", "1h"], "/a", true),
        (&["--stale-while-revalidate", "1h"], "/strict", false),
    ] {
        let origin = Origin::start(fields);
        let gateway = before(&origin, flags);
        store(&gateway, path);
        thread::sleep(Duration::from_millis(1_500));
        assert_eq!(
            is_hit(&get(&gateway, path, "")),
            expected,
            "{flags:?} {path}"
        );
        // The stale response was revalidated, in the background or before its use.
        let asked = eventually("a second request", || {
            Some(origin.asked()).filter(|asked| asked.len() > 1)
        });
        assert!(
            asked
                .iter()
                .all(|asked| asked.head.starts_with(&format!("get {path}"))),
            "{asked:?}"
        );
    }
}

#[test]
fn dropped_fields_do_not_evict_responses() {
    let origin = origin("cache-control: max-age=600\r\n");
    let gateway = before(&origin, &[]);
    store(&gateway, "/a");
    for at in 0..300 {
        assert!(
            is_hit(&get(
                &gateway,
                "/a",
                &format!("x-forwarded-host: h{at}.example\r\n")
            )),
            "{at}"
        );
    }
}

#[test]
fn an_incomplete_write_invalidates_nothing() {
    let origin = origin("cache-control: max-age=600\r\n");
    let gateway = before(&origin, &["--max-body-size", "10"]);
    store(&gateway, "/a");
    let head = "POST /a HTTP/1.1\r\nhost: example.com\r\ntransfer-encoding: chunked\r\n\r\n";
    let answer = exchange(
        gateway.address(),
        format!("{head}15\r\nmore than ten letters\r\n0\r\n\r\n"),
    );
    assert!(answer.status.is_client_error(), "{answer:?}");
    assert!(is_hit(&get(&gateway, "/a", "")));
    let whole = "PUT /a HTTP/1.1\r\nhost: example.com\r\ncontent-length: 1\r\n\r\nx";
    exchange(gateway.address(), whole).expect(200);
    assert!(!is_hit(&get(&gateway, "/a", "")));
}
