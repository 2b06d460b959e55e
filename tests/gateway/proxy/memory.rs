//! The memory of the proxy while a thousand slow clients read large bodies.

use std::io::Write;
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::sleep;
use std::time::Duration;

use super::before;
use super::origin::Origin;

const CLIENTS: usize = 1_000;

/// Bytes of memory per response that is being sent: see docs/proxy.md.
const PER_CLIENT: u64 = 384 << 10;
/// Bytes of memory of the process itself, with its threads and connections.
const BASE: u64 = 96 << 20;

#[test]
fn slow_clients_of_bodies_that_are_too_long_for_the_memory_take_a_bounded_share() {
    let sent = Arc::new(AtomicU64::new(0));
    let (counter, piece) = (Arc::clone(&sent), vec![b'x'; 64 << 10]);
    let origin = Origin::converse(move |_, stream| {
        let head = "HTTP/1.1 200 OK\r\ncache-control: max-age=600\r\ncontent-length: 1073741824\r\n\r\n";
        let mut open = stream.write_all(head.as_bytes()).is_ok();
        while open {
            open = stream.write_all(&piece).is_ok();
            counter.fetch_add(piece.len() as u64, Ordering::Relaxed);
        }
    });
    let most = ["--max-connections", "2000", "--max-requests", "2000", "--upstream-requests", "2000"];
    let patience = ["--body-timeout", "1h", "--connect-timeout", "1h", "--answer-timeout", "1h"];
    let gateway = before(&origin, &[&["--cache", "16MiB"], &most[..], &patience].concat());
    let mut clients = Vec::new();
    for path in 0..CLIENTS {
        let mut client = TcpStream::connect(gateway.address()).expect("a connection");
        write!(client, "GET /{path} HTTP/1.1\r\nhost: example.com\r\n\r\n").expect("an open connection");
        clients.push(client);
    }
    crate::eventually("all requests reach the origin", || (origin.asked().len() == CLIENTS).then_some(()));
    // Until all buffers are full.
    let mut before = 0;
    while sent.load(Ordering::Relaxed) != before {
        before = sent.load(Ordering::Relaxed);
        sleep(Duration::from_millis(500));
    }
    let used = gateway.memory().peak;
    let cache = (16 << 20) * 2;
    let most = BASE + cache + CLIENTS as u64 * PER_CLIENT;
    assert!(used <= most, "{} MiB of {} MiB", used >> 20, most >> 20);
    drop(clients);
}
