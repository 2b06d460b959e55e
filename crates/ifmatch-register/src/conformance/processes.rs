//! Two processes that share a register: the test binary starts itself once more.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use super::history::{self, Operation};
use super::workload::{Client, Workload};
use super::{RaceSize, fresh_key};
use crate::register::Register;

/// Environment variable of the second process: the keys' prefix and the register's address.
const SECOND: &str = "IFMATCH_CONFORMANCE_PROCESS";
/// Number of keys that the processes race for.
const KEYS: usize = 3;
/// Begins each line of the second process that has an operation.
const OPERATION: &str = "operation: ";

/// Races two processes on one register, and checks the history of both.
///
/// Runs in the test named `test`, which the second process runs, too. `start` starts the server, in the first process
/// only, and returns its address with a guard that stops it. `open` opens a handle at that address, in each process. Both
/// processes write from before the first operation of the second one until after its last one.
///
/// # Panics
/// Panics if the history isn't linearizable, or the second process fails.
///
/// ```no_run
/// # struct MyServer;
/// # impl MyServer { fn start() -> Self { Self } fn url(&self) -> String { String::new() } }
/// # async fn connect(_url: &str) -> ifmatch_register::MemoryRegister { ifmatch_register::MemoryRegister::unbounded() }
/// use ifmatch_register::conformance::{self, RaceSize};
///
/// // #[tokio::test(flavor = "multi_thread")]
/// async fn two_processes_share_the_register() {
///     let start = async || {
///         let server = MyServer::start();
///         (server.url(), server)
///     };
///     let open = async |url: &str| connect(url).await;
///     conformance::run_in_two_processes("two_processes_share_the_register", start, open, RaceSize::default()).await;
/// }
/// ```
pub async fn run_in_two_processes<R: Register, G>(
    test: &str,
    start: impl AsyncFnOnce() -> (String, G),
    open: impl AsyncFn(&str) -> R,
    size: RaceSize,
) {
    if let Ok(place) = std::env::var(SECOND) {
        let (prefix, address) = place.split_once(' ').expect("the first process sets both");
        let register: Arc<dyn Register> = Arc::new(open(address).await);
        print(&second(&register, &workload(prefix, size), size).await);
        return;
    }
    let (address, _guard) = start().await;
    let (register, prefix) = (Arc::new(open(&address).await), fresh_key("processes"));
    let workload = workload(prefix.as_str(), size);
    let is_over = Arc::new(AtomicBool::new(false));
    let clients: Vec<_> = (0..size.racers)
        .map(|number| {
            let (client, register, is_over) = (
                workload.client(number),
                Arc::clone(&register),
                Arc::clone(&is_over),
            );
            tokio::spawn(async move {
                run_until(client, &*register, |_| is_over.load(Ordering::SeqCst)).await
            })
        })
        .collect();
    let child = spawn(test, &format!("{prefix} {address}"));
    let child = tokio::task::spawn_blocking(move || collect(child))
        .await
        .expect("the second process is read");
    is_over.store(true, Ordering::SeqCst);
    let mut operations = child;
    for client in clients {
        operations.extend(client.await.expect("a client").into_history());
    }
    // Another handle, without anything in memory.
    let mut last = workload.client(2 * size.racers);
    last.load_all(&open(&address).await, now).await;
    operations.extend(last.into_history());
    history::check(&operations).unwrap_or_else(|violation| panic!("{violation}"));
}

fn workload(prefix: &str, size: RaceSize) -> Workload {
    Workload::new(prefix, KEYS, 2 * size.racers + 1)
}

/// Runs the clients of the second process until each has swapped a number of times.
async fn second(
    register: &Arc<dyn Register>,
    workload: &Workload,
    size: RaceSize,
) -> Vec<Operation> {
    let clients: Vec<_> = (0..size.racers)
        .map(|number| {
            let (client, register) = (workload.client(size.racers + number), Arc::clone(register));
            tokio::spawn(async move {
                run_until(client, &*register, |client| client.wins() >= size.rounds).await
            })
        })
        .collect();
    let mut operations = Vec::new();
    for client in clients {
        operations.extend(client.await.expect("a client").into_history());
    }
    operations
}

async fn run_until(
    mut client: Client,
    register: &dyn Register,
    is_over: impl Fn(&Client) -> bool,
) -> Client {
    while !is_over(&client) {
        client.step(register, now).await;
        tokio::task::yield_now().await;
    }
    client
}

fn spawn(test: &str, place: &str) -> Child {
    Command::new(std::env::current_exe().expect("the test's own path"))
        .args([test, "--exact", "--nocapture", "--test-threads=1"])
        .env(SECOND, place)
        .stdout(Stdio::piped())
        .spawn()
        .expect("the test binary starts")
}

/// Reads the operations of the second process until it ends.
fn collect(mut child: Child) -> Vec<Operation> {
    let lines = BufReader::new(child.stdout.take().expect("a pipe"))
        .lines()
        .map_while(Result::ok);
    let operations: Vec<Operation> = lines
        .filter_map(|line| Some(line.strip_prefix(OPERATION)?.parse().expect("an operation")))
        .collect();
    let status = child.wait().expect("the second process ends");
    assert!(status.success(), "the second process fails: {status}");
    assert!(
        !operations.is_empty(),
        "the second process ran no operations: is the name of the test right?"
    );
    operations
}

fn print(operations: &[Operation]) {
    let mut out = std::io::stdout().lock();
    // The harness has written the beginning of a line.
    writeln!(out).expect("the first process reads");
    for operation in operations {
        writeln!(out, "{OPERATION}{operation}").expect("the first process reads");
    }
    out.flush().expect("the first process reads");
}

/// Returns the time in nanoseconds by a clock that all processes of the machine share.
fn now() -> u64 {
    let time = Duration::try_from(clock_gettime(ClockId::Monotonic))
        .expect("a time since the start of the machine");
    u64::try_from(time.as_nanos()).expect("less than 500 years")
}
