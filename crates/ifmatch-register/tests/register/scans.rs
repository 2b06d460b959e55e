//! Scans: pages, and callers that go away.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use ifmatch_core::record::{Record, Revision};
use ifmatch_register::lanes::{Connect, Pages, Reconnecting, Scans};
use ifmatch_register::{Key, MemoryRegister, Register, RegisterError, Scan};
use tokio::sync::Semaphore;
use tokio::task::yield_now;

const LIMIT: Duration = Duration::from_secs(600);

/// A server that answers when the test allows it.
struct Server {
    records: MemoryRegister,
    connections: AtomicUsize,
    requests: AtomicUsize,
    allowed: Semaphore,
}

impl Connect for Server {
    type Connection = ();
    type Error = RegisterError;

    async fn connect(&self) -> Result<(), RegisterError> {
        self.connections.fetch_add(1, SeqCst);
        Ok(())
    }

    fn has_ended(&self, (): &()) -> bool {
        false
    }
}

struct Connection(Reconnecting<Server>);

impl Pages for Connection {
    async fn page(&mut self, scan: &Scan<'_>) -> Result<Vec<(Key, Record)>, RegisterError> {
        self.0.take().await?;
        let server = Arc::clone(self.0.server());
        server.requests.fetch_add(1, SeqCst);
        server.allowed.acquire().await.unwrap().forget();
        let page = server.records.scan(scan).await?;
        self.0.keep(());
        Ok(page)
    }
}

fn scans(allowed: usize, page: usize) -> (Arc<Server>, Scans<Connection>) {
    let (connections, requests) = Default::default();
    let records = MemoryRegister::unbounded();
    let server = Arc::new(Server { records, connections, requests, allowed: Semaphore::new(allowed) });
    let connection = Connection(Reconnecting::new(Arc::clone(&server)));
    (server, Scans::new(connection, page, LIMIT))
}

#[tokio::test]
async fn a_scan_continues_until_a_short_page() {
    let (server, scans) = scans(100, 3);
    let keys: Vec<Key> = (0..10).map(|number| Key::new(format!("a/{number}")).unwrap()).collect();
    for key in &keys {
        server.records.compare_and_swap(key, Revision::NONE, Some(&Record::absent())).await.unwrap();
    }
    for (after, limit, expected, requests) in
        [(None, 100, &keys[..], 4), (None, 5, &keys[..5], 2), (Some("a/6"), 100, &keys[7..], 2)]
    {
        let before = server.requests.load(SeqCst);
        let found = scans.scan(&Scan { prefix: "a/", after, limit }).await.unwrap();
        assert!(found.iter().map(|(key, _)| key).eq(expected), "{found:?}");
        assert_eq!(server.requests.load(SeqCst) - before, requests);
    }
}

/// Each caller goes away while the server works on its request. The next scan uses the same connection.
#[tokio::test]
async fn callers_that_go_away_cost_no_connection() {
    let (server, scans) = scans(0, 3);
    let scan = Scan { prefix: "", after: None, limit: 100 };
    for number in 1..=5 {
        tokio::select! {
            _ = scans.scan(&scan) => panic!("the server has not answered"),
            () = async { while server.requests.load(SeqCst) < number { yield_now().await } } => {}
        }
        server.allowed.add_permits(1);
    }
    server.allowed.add_permits(1);
    assert_eq!(scans.scan(&scan).await.unwrap(), []);
    assert_eq!(server.connections.load(SeqCst), 1);
}
