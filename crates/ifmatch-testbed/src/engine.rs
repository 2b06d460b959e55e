//! What each engine with servers of its own must do. [`engine_tests!`](crate::engine_tests) makes a test of each function.
#![allow(missing_docs, reason = "the name of a test is its rule")]

use std::sync::Arc;
use std::time::Duration;

use http::header::{HeaderMap, IF_MATCH, IF_NONE_MATCH};
use http::{HeaderValue, Method};
use ifmatch_core::command::{Command, Content, Outcome, Write};
use ifmatch_core::digest::ContentHash;
use ifmatch_core::precondition::Preconditions;
use ifmatch_core::record::{Record, Revision};
use ifmatch_register::conformance::{self, RaceSize};
use ifmatch_register::{
    ConnectError, ConnectErrorKind, Driver, Key, Register, RegisterError, RegisterErrorKind, Swap,
};

use crate::{Clients, Network, Proxy, Server, within};

/// Pause between attempts at something that a server does after a while.
const PAUSE: Duration = Duration::from_millis(50);

/// An engine: how its servers start, and how a register connects to them.
pub trait Engine {
    /// URLs that are none of this engine's.
    const WRONG_URLS: &[&str];

    /// Starts a server that keeps acknowledged swaps when it is killed, with settings of its own.
    fn start(settings: &'static [&'static str]) -> impl Future<Output = Server>;

    /// Starts a server that a few megabytes of records fill.
    fn start_small() -> impl Future<Output = Server>;

    /// Gives a small server more space, or returns `false` if the engine can't.
    fn enlarge(server: &Server) -> impl Future<Output = bool>;

    /// Connects a register.
    fn connect(url: &str) -> impl Future<Output = Result<Arc<dyn Register>, ConnectError>> + Send;
}

/// Makes tests of the functions of [`engine`](crate::engine) for an [`Engine`](crate::engine::Engine), and of those that are
/// named. Must be at the root of a test program.
#[macro_export]
macro_rules! engine_tests {
    ($engine:ty $(, $more:ident)*) => {
        $crate::engine_tests!(@ $engine: conforms, conforms_through_two_handles, two_processes_share_the_register,
            urls_of_other_servers_are_refused, a_missing_server_is_reported, acknowledged_swaps_survive_kills,
            a_suspended_server_is_used_again, a_network_that_delivers_nothing_is_used_again,
            a_full_server_rejects_swaps_and_shows_records, a_swap_without_an_answer_is_ambiguous_and_never_sent_twice,
            a_driver_resolves_lost_answers $(, $more)*);
    };
    (@ $engine:ty: $($name:ident),*) => {
        $(
            #[tokio::test(flavor = "multi_thread")]
            async fn $name() {
                $crate::engine::$name::<$engine>().await;
            }
        )*
    };
}

/// Connects a register once the server responds: a cluster may still be without a leader.
pub async fn connect<E: Engine>(url: &str) -> Arc<dyn Register> {
    let connected = async {
        loop {
            match E::connect(url).await {
                Ok(register) => return register,
                Err(error) => assert_eq!(error.kind(), ConnectErrorKind::Unreachable, "{error}"),
            }
            tokio::time::sleep(PAUSE).await;
        }
    };
    within(&format!("a connection to {url}"), connected).await
}

/// Returns why a register doesn't connect.
pub async fn refusal<E: Engine>(url: &str) -> (ConnectErrorKind, String) {
    let Err(error) = E::connect(url).await else {
        panic!("{url}: must be refused")
    };
    (error.kind(), error.to_string())
}

/// Returns a write of these bytes.
pub fn write(bytes: impl Into<Vec<u8>>) -> Command<'static> {
    write_if(&Preconditions::NONE, bytes)
}

fn write_if(conditions: &Preconditions, bytes: impl Into<Vec<u8>>) -> Command<'_> {
    let bytes = bytes.into();
    let content = Content::Hashed {
        hash: ContentHash::of(&bytes),
        payload: bytes.into(),
    };
    let nonce = ifmatch_runtime::nonce().expect("randomness");
    Command::Write(Write::new(&Method::PUT, conditions, content, nonce))
}

/// Returns the first record of a resource, with these bytes as its payload.
pub fn created(bytes: impl Into<Vec<u8>>, revision: u64) -> Record {
    Record::absent()
        .apply(&write(bytes), Revision::new(revision).timestamp())
        .next
        .expect("a write")
}

fn key(number: usize) -> Key {
    Key::new(format!("key/{number}")).expect("a short key")
}

/// Creates a record with a payload of 60,000 bytes that doesn't compress.
async fn create(register: &dyn Register, number: usize) -> Result<Swap, RegisterError> {
    let mut random = number as u64 + 1;
    let bytes = (0..60_000).map(|_| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random.to_le_bytes()[0]
    });
    register
        .compare_and_swap(
            &key(number),
            Revision::NONE,
            Some(&created(bytes.collect::<Vec<u8>>(), 1)),
        )
        .await
}

/// Creates records until the server refuses one. Returns their number and the error.
pub async fn fill(register: &dyn Register) -> (usize, RegisterError) {
    let mut written = 0;
    loop {
        match create(register, written).await {
            Ok(swap) => assert_eq!(swap, Swap::Done),
            Err(error) => {
                assert!(written > 0, "the limit is reached in the middle: {error}");
                return (written, error);
            }
        }
        written += 1;
    }
}

/// Checks that the records of [`fill`] are there, and that another one can be created.
pub async fn check_filled(register: &dyn Register, written: usize) {
    let next = async {
        loop {
            match create(register, written).await {
                Ok(swap) => return swap,
                Err(_) => tokio::time::sleep(PAUSE).await,
            }
        }
    };
    // An unacknowledged swap may have taken place.
    let next = within("space for a record", next).await;
    assert!(
        matches!(next, Swap::Done | Swap::Conflict(Some(_))),
        "{next:?}"
    );
    for number in 0..written {
        let found = register
            .load(&key(number))
            .await
            .expect("a server that runs");
        assert!(found.is_some(), "record {number} of {written}");
    }
}

fn size() -> RaceSize {
    RaceSize::new(8, 5)
}

pub async fn conforms<E: Engine>() {
    let server = E::start(&[]).await;
    conformance::run(connect::<E>(&server.url()).await, size()).await;
}

pub async fn conforms_through_two_handles<E: Engine>() {
    let server = E::start(&[]).await;
    conformance::run_shared(async || connect::<E>(&server.url()).await, size()).await;
}

pub async fn two_processes_share_the_register<E: Engine>() {
    let start = async || {
        let server = E::start(&[]).await;
        (server.url(), server)
    };
    let open = async |url: &str| connect::<E>(url).await;
    conformance::run_in_two_processes("two_processes_share_the_register", start, open, size())
        .await;
}

pub async fn urls_of_other_servers_are_refused<E: Engine>() {
    for url in E::WRONG_URLS {
        let (kind, message) = refusal::<E>(url).await;
        assert_eq!(kind, ConnectErrorKind::Url, "{url}: {message}");
    }
}

pub async fn a_missing_server_is_reported<E: Engine>() {
    let mut server = E::start(&[]).await;
    server.kill();
    let (kind, message) = refusal::<E>(&server.url()).await;
    assert_eq!(kind, ConnectErrorKind::Unreachable, "{message}");
}

/// The server is killed in the middle of batches. Acknowledged swaps survive, and unclear ones happen once or not at all.
pub async fn acknowledged_swaps_survive_kills<E: Engine>() {
    let mut server = E::start(&[]).await;
    let register = Arc::new(connect::<E>(&server.url()).await);
    let mut clients = Clients::new("kill", 20, 32);
    for _ in 0..3 {
        clients = clients.run_during(&register, 20, server.restart()).await;
    }
    clients
        .check(&connect::<E>(&server.url()).await)
        .await
        .expect("a linearizable register");
}

pub async fn a_suspended_server_is_used_again<E: Engine>() {
    let server = E::start(&[]).await;
    let register = Arc::new(connect::<E>(&server.url()).await);
    let clients = Clients::new("stop", 3, 8)
        .run_through(&register, || server.pause(), || server.resume())
        .await;
    clients
        .check(&connect::<E>(&server.url()).await)
        .await
        .expect("a linearizable register");
}

pub async fn a_network_that_delivers_nothing_is_used_again<E: Engine>() {
    let (server, proxy, register) = behind_proxy::<E>().await;
    let register = Arc::new(register);
    let mut clients = Clients::new("network", 3, 8);
    for network in [Network::BlackHole, Network::Silent, Network::Reset] {
        clients = clients
            .run_through(
                &register,
                || proxy.set(network),
                || proxy.set(Network::Whole),
            )
            .await;
    }
    clients
        .check(&connect::<E>(&server.url()).await)
        .await
        .expect("a linearizable register");
}

pub async fn a_full_server_rejects_swaps_and_shows_records<E: Engine>() {
    let server = E::start_small().await;
    let register = connect::<E>(&server.url()).await;
    let (written, error) = fill(&*register).await;
    assert_eq!(error.kind(), RegisterErrorKind::Full, "{error}");
    for number in 0..=written {
        let found = register
            .load(&key(number))
            .await
            .expect("loads need no space");
        assert_eq!(
            found.is_some(),
            number < written,
            "record {number} of {written}"
        );
    }
    if E::enlarge(&server).await {
        check_filled(&*register, written).await;
    }
}

/// Other processes use all connections of a server with these settings.
pub async fn check_without_connections<E: Engine>(settings: &'static [&'static str]) {
    let server = E::start(settings).await;
    // One connection. Those for swaps and loads are opened at the first call.
    let register = connect::<E>(&server.url()).await;
    let mut others = Vec::new();
    let all = async {
        while let Ok(other) = E::connect(&server.url()).await {
            others.push(other);
        }
    };
    within("the last connection of the server", all).await;
    // More than the number of failures after which calls fail at once.
    for _ in 0..5 {
        let error = create(&*register, 0)
            .await
            .expect_err("there is no connection");
        assert_eq!(
            error.kind(),
            RegisterErrorKind::Unavailable,
            "nothing was changed: {error}"
        );
        register
            .load(&key(0))
            .await
            .expect_err("there is no connection");
    }
    drop(others);
    let used = async {
        while create(&*register, 0).await.is_err() || register.load(&key(0)).await.is_err() {
            tokio::time::sleep(PAUSE).await;
        }
    };
    within("a connection again", used).await;
}

/// The connection ends with the server's next bytes, which may belong to the response or come before it. The swap takes place
/// or doesn't, but never after another one that expects the same revision.
pub async fn a_swap_without_an_answer_is_ambiguous_and_never_sent_twice<E: Engine>() {
    let (server, proxy, register) = behind_proxy::<E>().await;
    let direct = connect::<E>(&server.url()).await;
    let record = |revision| Record::forgotten(Revision::new(revision));
    let mut ambiguous = 0;
    for number in 0..20 {
        let key = key(number);
        // Opens the connection of the key's lane again.
        let swap = register
            .compare_and_swap(&key, Revision::new(99), None)
            .await
            .expect("a whole network");
        assert_eq!(swap, Swap::Conflict(None));
        proxy.set(Network::CutAfterCommit);
        let first = register
            .compare_and_swap(&key, Revision::NONE, Some(&record(1)))
            .await;
        let second = direct
            .compare_and_swap(&key, Revision::NONE, Some(&record(2)))
            .await
            .expect("a whole network");
        let found = match (first, second) {
            (Ok(first), Swap::Conflict(found)) => {
                assert_eq!(first, Swap::Done);
                found
            }
            (Err(error), second) => {
                assert_eq!(error.kind(), RegisterErrorKind::Ambiguous, "{error}");
                ambiguous += 1;
                if let Swap::Conflict(found) = second {
                    found
                } else {
                    Some(record(2))
                }
            }
            (first, second) => panic!("both took place: {first:?} and {second:?}"),
        };
        proxy.set(Network::Whole);
        assert_eq!(register.load(&key).await.expect("a whole network"), found);
    }
    assert!(ambiguous > 0, "no answer was lost");
}

/// The response of each swap is lost. The driver finds out if its write took place: none is doubled, none denied.
pub async fn a_driver_resolves_lost_answers<E: Engine>() {
    let (server, proxy, register) = behind_proxy::<E>().await;
    let driver = Driver::new(register).assume_absent();
    let direct = Driver::new(connect::<E>(&server.url()).await).assume_absent();
    let (key, mut tag) = (key(0), None);
    for number in 0..50_u64 {
        let condition = match tag {
            Some(tag) => (IF_MATCH, tag),
            None => (IF_NONE_MATCH, HeaderValue::from_static("*")),
        };
        let conditions = Preconditions::from_headers(&HeaderMap::from_iter([condition]));
        let before = direct.load(&key).await.expect("a whole network");
        // Opens the connection of the key's lane again.
        driver
            .register()
            .compare_and_swap(&key, Revision::new(1), None)
            .await
            .expect("a whole network");
        proxy.set(Network::CutAfterCommit);
        let applied = driver
            .apply_to(
                &key,
                Some(before),
                &write_if(&conditions, number.to_be_bytes()),
            )
            .await;
        assert_eq!(proxy.network(), Network::Whole, "no response was lost");
        let applied = applied.expect("the driver asks again");
        assert!(
            matches!(applied.outcome, Outcome::Written(_)),
            "a false refusal: {:?}",
            applied.outcome
        );
        let after = direct.load(&key).await.expect("a whole network");
        assert_eq!(applied.after, after, "the write took place once");
        let version = after.settled(direct.now()).expect("no write is in flight");
        tag = Some(version.tags().first().expect("it has a tag").to_header());
    }
}

/// Starts a server behind a proxy, and connects a register through it.
pub async fn behind_proxy<E: Engine>() -> (Server, Proxy, Arc<dyn Register>) {
    let server = E::start(&[]).await;
    let proxy = Proxy::start(server.address()).await;
    let register = connect::<E>(&server.url_at(proxy.address())).await;
    (server, proxy, register)
}
