//! The register in memory, and lists by pages.

use std::collections::HashMap;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::Method;
use ifmatch_core::EntityTag;
use ifmatch_core::command::{
    Authority, Begin, Command, Commit, Content, Observation, Observed, Outcome, Refusal,
};
use ifmatch_core::precondition::Preconditions;
use ifmatch_core::record::{Record, Revision, Token, Variant};
use ifmatch_register::conformance::{self, RaceSize};
use ifmatch_register::lanes::{Connect, Pages, Reconnecting, Scans};
use ifmatch_register::{
    Driver, DriverError, Key, MemoryRegister, Register, RegisterError, RegisterErrorKind, Scan,
    Wrapper,
};
use ifmatch_runtime::{async_trait, nonce};
use tokio::sync::Semaphore;
use tokio::task::yield_now;

#[tokio::test(flavor = "multi_thread")]
async fn conforms() {
    conformance::run(MemoryRegister::unbounded(), RaceSize::default()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn conforms_through_two_handles() {
    let register = Arc::new(MemoryRegister::unbounded());
    conformance::run_shared(async || Arc::clone(&register), RaceSize::default()).await;
}

#[tokio::test(flavor = "multi_thread")]
#[should_panic(expected = "a second creation conflicts")]
async fn handles_of_two_registers_do_not_conform() {
    conformance::run_shared(async || MemoryRegister::unbounded(), RaceSize::default()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn conforms_behind_a_pointer() {
    conformance::run(Arc::new(MemoryRegister::unbounded()), RaceSize::default()).await;
}

/// A register with a listing frozen at the time its first page was requested.
struct Snapshots {
    records: MemoryRegister,
    listing: Mutex<HashMap<String, Vec<(Key, Record)>>>,
}

#[async_trait]
impl Wrapper for Snapshots {
    fn inner(&self) -> &dyn Register {
        &self.records
    }

    async fn scan(&self, scan: &Scan<'_>) -> Result<Vec<(Key, Record)>, RegisterError> {
        if scan.after.is_none() {
            let all = self
                .records
                .scan(&Scan {
                    limit: usize::MAX,
                    ..*scan
                })
                .await?;
            self.listing
                .lock()
                .unwrap()
                .insert(scan.prefix.to_owned(), all);
        }
        let listing = self.listing.lock().unwrap();
        let all = listing.get(scan.prefix).into_iter().flatten();
        let rest = all.filter(|(key, _)| scan.after.is_none_or(|after| key.as_str() > after));
        Ok(rest.take(scan.limit).cloned().collect())
    }
}

#[tokio::test(flavor = "multi_thread")]
#[should_panic(expected = "a page shows all swaps before its request")]
async fn a_listing_from_a_snapshot_does_not_conform() {
    let register = Snapshots {
        records: MemoryRegister::unbounded(),
        listing: Mutex::default(),
    };
    conformance::run(register, RaceSize::new(2, 1)).await;
}

fn key(number: usize) -> Key {
    Key::new(format!("resource/{number}")).unwrap()
}

async fn begin(driver: &Driver, number: usize) -> Result<Token, DriverError> {
    let begin = Begin::new(
        &Method::PUT,
        &Preconditions::NONE,
        nonce()?,
        Duration::from_secs(600),
    )
    .with_authority(Authority::Register);
    match driver
        .apply(&key(number), &Command::Begin(begin))
        .await?
        .outcome
    {
        Outcome::Granted(grant) => Ok(grant.token),
        other => panic!("{other:?}"),
    }
}

async fn touch(driver: &Driver, number: usize) {
    let token = begin(driver, number).await.unwrap();
    let content = Content::Unknown;
    driver
        .apply(&key(number), &Command::Commit(Commit::new(token, content)))
        .await
        .unwrap();
}

#[tokio::test]
async fn the_capacity_bounds_the_number_of_records() {
    let driver = Driver::new(MemoryRegister::with_capacity(640));
    for number in 0..5_000 {
        touch(&driver, number).await;
    }
    let all = Scan {
        limit: usize::MAX,
        ..Scan::default()
    };
    let held = driver.register().scan(&all).await.unwrap().len();
    assert!((320..=640).contains(&held), "{held} records");
}

#[tokio::test]
async fn writes_in_flight_are_never_evicted_and_a_register_full_of_them_fails() {
    let driver = Driver::new(MemoryRegister::with_capacity(64));
    let mut granted = Vec::new();
    let refused = loop {
        let number = granted.len();
        match begin(&driver, number).await {
            Ok(token) => granted.push(token),
            Err(DriverError::Register(error)) => break error.kind(),
            Err(other) => panic!("{other}"),
        }
        assert!(number < 64, "the capacity is a bound");
    };
    assert_eq!(refused, RegisterErrorKind::Full);
    for (number, token) in granted.into_iter().enumerate() {
        let outcome = driver
            .apply(&key(number), &Command::Abort(token))
            .await
            .unwrap()
            .outcome;
        assert_eq!(outcome, Outcome::Released, "permit {number} is still held");
    }
}

/// Reads and writes of invented resources fill the register. Each record is evicted for the next one.
#[tokio::test]
async fn the_memory_bounds_the_size_of_all_records() {
    let memory = 1 << 20;
    let driver = Driver::new(MemoryRegister::with_memory(memory));
    for number in 0..5_000 {
        touch(&driver, number).await;
    }
    let all = Scan {
        limit: usize::MAX,
        ..Scan::default()
    };
    let held = driver.register().scan(&all).await.unwrap();
    let size: usize = held
        .iter()
        .map(|(key, record)| key.as_str().len() + record.size())
        .sum();
    assert!(
        (memory / 4..=memory).contains(&size),
        "{} records of {size} bytes",
        held.len()
    );
}

/// Writes in flight fill the memory. They stay, can be committed, and no other write begins meanwhile.
#[tokio::test]
async fn memory_full_of_writes_in_flight_takes_no_new_record_and_changes_those_that_it_has() {
    let driver = Driver::new(MemoryRegister::with_memory(64 << 10));
    let (mut granted, mut refused) = (Vec::new(), 0);
    for number in 0..2_000 {
        match begin(&driver, number).await {
            Ok(token) => granted.push((number, token)),
            Err(DriverError::Register(error)) => {
                assert_eq!(error.kind(), RegisterErrorKind::Full);
                refused += 1;
            }
            Err(other) => panic!("{other}"),
        }
    }
    assert!(
        refused > 1_000 && granted.len() >= 64,
        "{} granted, {refused} refused",
        granted.len()
    );
    for (number, token) in granted {
        let commit = Command::Commit(Commit::new(token, Content::Unknown));
        let outcome = driver.apply(&key(number), &commit).await.unwrap().outcome;
        assert!(
            !matches!(outcome, Outcome::Refused(_)),
            "{number}: {outcome:?}"
        );
    }
    begin(&driver, 2_000).await.unwrap();
}

/// A read begins before there is a record. A write follows, and its record is evicted.
/// The result of the read is older than the write and must not be recorded.
#[tokio::test]
async fn a_read_older_than_an_evicted_write_is_not_recorded() {
    let driver = Driver::new(MemoryRegister::with_capacity(1));
    let snapshot = driver
        .load(&key(0))
        .await
        .unwrap()
        .snapshot(driver.now())
        .unwrap();
    touch(&driver, 0).await;
    let mut number = 1;
    while driver
        .register()
        .scan(&Scan {
            prefix: key(0).as_str(),
            after: None,
            limit: 1,
        })
        .await
        .unwrap()
        .len()
        == 1
    {
        touch(&driver, number).await;
        number += 1;
    }
    let observation = Observation::Present {
        variant: Variant::only(),
        tag: Some(EntityTag::strong("old").unwrap()),
        last_modified: None,
    };
    let observed = Observed::new(snapshot, observation, Authority::Register);
    let outcome = driver
        .apply(&key(0), &Command::Observe(observed))
        .await
        .unwrap()
        .outcome;
    assert_eq!(outcome, Outcome::Refused(Refusal::Stale));
}

/// Time limit of a scan, longer than any test.
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
    let server = Arc::new(Server {
        records,
        connections,
        requests,
        allowed: Semaphore::new(allowed),
    });
    let connection = Connection(Reconnecting::new(Arc::clone(&server)));
    (server, Scans::new(connection, page, LIMIT))
}

#[tokio::test]
async fn a_scan_continues_until_a_short_page() {
    let (server, scans) = scans(100, 3);
    let keys: Vec<Key> = (0..10)
        .map(|number| Key::new(format!("a/{number}")).unwrap())
        .collect();
    for key in &keys {
        server
            .records
            .compare_and_swap(key, Revision::NONE, Some(&Record::absent()))
            .await
            .unwrap();
    }
    for (after, limit, expected, requests) in [
        (None, 100, &keys[..], 4),
        (None, 5, &keys[..5], 2),
        (Some("a/6"), 100, &keys[7..], 2),
    ] {
        let before = server.requests.load(SeqCst);
        let found = scans
            .scan(&Scan {
                prefix: "a/",
                after,
                limit,
            })
            .await
            .unwrap();
        assert!(found.iter().map(|(key, _)| key).eq(expected), "{found:?}");
        assert_eq!(server.requests.load(SeqCst) - before, requests);
    }
}

/// Each caller goes away while the server works on its request. The next scan uses the same connection.
#[tokio::test]
async fn callers_that_go_away_cost_no_connection() {
    let (server, scans) = scans(0, 3);
    let scan = Scan {
        prefix: "",
        after: None,
        limit: 100,
    };
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
