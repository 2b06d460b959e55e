//! Guarded writes, to an upstream that ignores conditions.

use std::net::SocketAddr;
use std::sync::{Arc, Barrier, Mutex};
use std::thread;
use std::time::Duration;

use support::Answer;
use support::raw::exchange;

use super::origin::Origin;
use super::{before, get};

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
        super::origin::ok(fields, &shared.lock().unwrap())
    });
    (origin, document)
}

fn put(gateway: SocketAddr, tag: &str, content: &str) -> Answer {
    let length = content.len();
    let head = format!("PUT /doc HTTP/1.1\r\nhost: example.com\r\nif-match: {tag}\r\ncontent-length: {length}\r\n\r\n");
    exchange(gateway, head + content)
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
        writers.into_iter().map(|writer| writer.join().unwrap()).collect()
    });
    let winners: Vec<usize> = (0..8).filter(|at| statuses[*at] == 204).collect();
    assert_eq!(winners.len(), 1, "{statuses:?}");
    assert!(statuses.iter().all(|status| [204, 412].contains(status)), "{statuses:?}");
    assert_eq!(*document.lock().unwrap(), format!("by {}", winners[0]));
    let puts = origin.asked().iter().filter(|asked| asked.head.starts_with("put ")).count();
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
    let spellings =
        [("example.com", "/doc"), ("example.com.", "/doc"), ("Example.com:8080", "/%64oc"), ("example.com", "/./doc")];
    let (address, all) = (gateway.address(), Barrier::new(spellings.len()));
    let write = |(host, path): (&str, &str)| {
        all.wait();
        let head = format!("PUT {path} HTTP/1.1\r\nhost: {host}\r\nif-match: {tag}\r\ncontent-length: 4\r\n\r\n");
        exchange(address, head + "next").status.as_u16()
    };
    let mut statuses: Vec<u16> = thread::scope(|scope| {
        let write = &write;
        let writers: Vec<_> = spellings.into_iter().map(|spelling| scope.spawn(move || write(spelling))).collect();
        writers.into_iter().map(|writer| writer.join().unwrap()).collect()
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
