//! The place of bodies: `--cache-dir`, and the memory of the proxy.

use std::fs;
use std::io::Write;
use std::net::TcpStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use support::origin::{Origin, ok};
use support::raw::exchange;
use support::run;

use super::{before, get, status};
use crate::eventually;

fn bodies(folder: &Path) -> usize {
    let names = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name());
    names
        .filter(|name| name.to_string_lossy().starts_with("ifmatch-body-"))
        .count()
}

#[test]
fn large_bodies_are_served_from_the_folder_also_after_a_crash() {
    let large = "0123456789".repeat(10_000);
    let content = large.clone();
    let origin = Origin::start(move |asked| {
        let confirms = asked.head.contains("if-none-match: \"1\"");
        let fields = "cache-control: max-age=600\r\netag: \"1\"\r\n";
        if confirms {
            "HTTP/1.1 304 Not Modified\r\netag: \"1\"\r\n\r\n".into()
        } else {
            ok(fields, &content)
        }
    });
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_str().unwrap();
    let flags = [
        "--cache",
        "1MiB",
        "--cache-body-size",
        "1KiB",
        "--cache-disk",
        "1MiB",
        "--cache-dir",
        path,
    ];
    let mut gateway = before(&origin, &flags);
    assert_eq!(get(&gateway, "/a", "").expect(200).text(), large);
    let hit = eventually("a hit", || {
        Some(get(&gateway, "/a", "").expect(200)).filter(|hit| status(hit).contains("; hit"))
    });
    assert_eq!(hit.text(), large);
    assert_eq!(
        get(&gateway, "/a", "range: bytes=65530-65545\r\n")
            .expect(206)
            .text(),
        &large[65_530..=65_545]
    );
    assert!(bodies(folder.path()) >= 1);

    // Another process can use the folder only afterwards.
    let upstream = origin.url();
    let end = run(
        ["proxy", "--upstream", &upstream, "--listen", "127.0.0.1:0"]
            .iter()
            .chain(&flags),
    );
    assert_eq!(end.status.code(), Some(11), "{end:#?}");
    assert!(end.stderr.contains("--cache-dir"), "{end:#?}");

    gateway.kill();
    let mut gateway = before(&origin, &flags);
    let validated = get(&gateway, "/a", "").expect(200);
    assert_eq!(
        status(&validated),
        "ifmatch; fwd=stale; fwd-status=304; ttl=600"
    );
    assert!(validated.text() == large);
    assert!(status(&get(&gateway, "/a", "").expect(200)).contains("; hit"));

    // A purge outlives the next crash.
    let purge = exchange(
        gateway.address(),
        "DELETE /-/cache?prefix= HTTP/1.1\r\nhost: localhost\r\n\r\n",
    );
    assert_eq!(purge.expect(200).json()["purged"], 1);
    gateway.kill();
    let gateway = before(&origin, &flags);
    assert!(status(&get(&gateway, "/a", "").expect(200)).contains("fwd=uri-miss"));
}

#[test]
fn a_cache_folder_needs_memory() {
    let end = run([
        "proxy",
        "--upstream",
        "http://a",
        "--cache",
        "0",
        "--cache-dir",
        "d",
    ]);
    assert_eq!(end.status.code(), Some(2), "{end:#?}");
    assert!(end.stderr.contains("--cache-dir needs --cache"), "{end:#?}");
}

const CLIENTS: usize = 1_000;

/// Bytes of memory per response that is being sent: see docs/proxy/caching.md.
const PER_CLIENT: u64 = 384 << 10;
/// Bytes of memory per response whose buffers are full, at least. They take 280 KiB.
const PER_FULL_CLIENT: u64 = PER_CLIENT / 2;
/// Bytes of memory of the process itself, with its threads and connections.
const BASE: u64 = 96 << 20;

#[test]
fn slow_clients_of_bodies_that_are_too_long_for_the_memory_take_a_bounded_share() {
    let sent = Arc::new(AtomicU64::new(0));
    let (counter, piece) = (Arc::clone(&sent), vec![b'x'; 64 << 10]);
    let origin = Origin::converse(move |_, stream| {
        let head =
            "HTTP/1.1 200 OK\r\ncache-control: max-age=600\r\ncontent-length: 1073741824\r\n\r\n";
        let mut open = stream.write_all(head.as_bytes()).is_ok();
        while open {
            open = stream.write_all(&piece).is_ok();
            counter.fetch_add(piece.len() as u64, Ordering::Relaxed);
        }
    });
    let most = [
        "--max-connections",
        "2000",
        "--max-requests",
        "2000",
        "--upstream-requests",
        "2000",
    ];
    let patience = [
        "--body-timeout",
        "1h",
        "--connect-timeout",
        "1h",
        "--answer-timeout",
        "1h",
    ];
    let gateway = before(
        &origin,
        &[&["--cache", "16MiB"], &most[..], &patience].concat(),
    );
    let mut clients = Vec::new();
    for path in 0..CLIENTS {
        let mut client = TcpStream::connect(gateway.address()).expect("a connection");
        write!(client, "GET /{path} HTTP/1.1\r\nhost: example.com\r\n\r\n")
            .expect("an open connection");
        clients.push(client);
    }
    eventually("all requests reach the origin", || {
        (origin.asked().len() == CLIENTS).then_some(())
    });
    let cache = (16 << 20) * 2;
    let most = BASE + cache + CLIENTS as u64 * PER_CLIENT;
    // On a busy machine, a pause alone doesn't show it.
    let (mut before, mut quiet) = (0, 0);
    let used = eventually("all buffers are full", || {
        let now = sent.load(Ordering::Relaxed);
        quiet = if now == before { quiet + 1 } else { 0 };
        before = now;
        let used = gateway.memory().peak;
        (used > most || quiet >= 25 && used >= CLIENTS as u64 * PER_FULL_CLIENT).then_some(used)
    });
    assert!(used <= most, "{} MiB of {} MiB", used >> 20, most >> 20);
    drop(clients);
}
