//! The library while the network is cut, the gateway is killed, and its own process is stopped.

use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use ifmatch_client::{Client, ErrorKind, Held, Lock};
use ifmatch_testbed::{Network, Proxy, within};
use support::{Gateway, Process, kill};

/// Far beyond the time that the updates take.
const PATIENCE: Duration = Duration::from_hours(1);
/// Long enough for a holder on a busy machine, which has lost the lock if it is late with a renewal by five seconds.
const TTL: Duration = Duration::from_secs(9);
/// Name of the test that runs itself in other processes, and the variables with which it does.
const STOPPED: &str =
    "client::faults::a_stopped_holder_that_goes_on_writing_changes_nothing_after_the_next_one";
const URL: &str = "IFMATCH_STOPPED_URL";
const NUMBER: &str = "IFMATCH_STOPPED_NUMBER";
/// Number of those processes.
const HOLDERS: usize = 4;
/// Most writes of each.
const WRITES: usize = 500;
/// Begins a line of theirs with the number of writes that were accepted, at the first one and at the end.
const ACCEPTED: &str = "accepted: ";
/// Added by the next holder, more than all that a stopped one adds.
const MILLION: usize = 1_000_000;

fn client(url: &str) -> Client {
    Client::http(url).unwrap().with_patience(PATIENCE)
}

async fn acquire(lock: &Lock) -> Held {
    within("the lock", lock.acquire()).await.unwrap()
}

#[tokio::test]
async fn a_lock_is_lost_before_it_is_taken_over_however_the_network_is_cut() {
    let gateway = Gateway::on_folder(&[]);
    let cut = async |network: Network| {
        let proxy = Proxy::start(gateway.address()).await;
        let lock = |url: &str| client(url).lock(format!("{network:?}")).ttl(TTL);
        let held = acquire(&lock(&format!("http://{}/box", proxy.address()))).await;
        proxy.set(network);
        let direct = lock(&gateway.url("/box"));
        let acquire = async {
            let next = direct.acquire().await.unwrap();
            assert!(held.is_lost(), "two holders: {network:?}");
            next
        };
        let (next, ()) = within("the next holder", async {
            tokio::join!(acquire, held.lost())
        })
        .await;
        assert!(next.fence() > held.fence());
    };
    join_all([Network::Silent, Network::BlackHole, Network::Reset].map(cut)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn updates_go_on_after_the_gateway_was_killed_and_none_is_lost_or_repeated() {
    let mut gateway = Gateway::on_folder(&[]);
    let proxy = Proxy::start(gateway.address()).await;
    let url = format!("http://{}/box", proxy.address());
    let done = Arc::new(AtomicUsize::new(0));
    let writer = |_| {
        let (document, done) = (client(&url).json::<usize>("hits"), Arc::clone(&done));
        tokio::spawn(async move {
            for _ in 0..50 {
                document.update(|count| *count += 1).await.unwrap();
                done.fetch_add(1, Ordering::Relaxed);
            }
        })
    };
    let writers: Vec<_> = (0..8).map(writer).collect();
    for reached in [30, 80, 130, 180] {
        within("the updates before the kill", async {
            while done.load(Ordering::Relaxed) < reached {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        })
        .await;
        // Writes take effect, and their answers are lost with the gateway.
        proxy.set(Network::Silent);
        tokio::time::sleep(Duration::from_millis(50)).await;
        tokio::task::block_in_place(|| gateway.restart());
        proxy.redirect(gateway.address());
        proxy.set(Network::Whole);
    }
    for writer in writers {
        within("the end of a writer", writer).await.unwrap();
    }
    assert_eq!(
        client(&url)
            .json::<usize>("hits")
            .get()
            .await
            .unwrap()
            .unwrap()
            .value,
        400
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_is_still_held_after_the_gateway_was_killed() {
    let mut gateway = Gateway::on_folder(&[]);
    let proxy = Proxy::start(gateway.address()).await;
    let client = client(&format!("http://{}/box", proxy.address()));
    let held = acquire(&client.lock("lock").ttl(PATIENCE)).await;
    tokio::task::block_in_place(|| gateway.restart());
    proxy.redirect(gateway.address());
    let other = client.lock("lock");
    assert!(
        other.acquire_within(TTL).await.unwrap().is_none(),
        "two holders"
    );
    let bill = client.json::<u64>("bill");
    let paid = bill.update_fenced(&held, |sum| *sum += 1);
    within("a fenced update", paid).await.unwrap();
    within("the release", held.release()).await.unwrap();
    assert!(acquire(&other).await.fence() > 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stopped_holder_that_goes_on_writing_changes_nothing_after_the_next_one() {
    if let (Ok(url), Ok(number)) = (std::env::var(URL), std::env::var(NUMBER)) {
        return write_until_lost(&client(&url), &number).await;
    }
    let gateway = Gateway::on_folder(&[]);
    let url = gateway.url("/box");
    let holders = (0..HOLDERS).map(|number| {
        let url = url.clone();
        tokio::spawn(async move { stop_in_the_middle(&url, number).await })
    });
    for holder in join_all(holders).await {
        holder.unwrap();
    }
}

/// Stops a holder that writes all the time, writes as the next holder, and lets the first one continue.
async fn stop_in_the_middle(url: &str, number: usize) {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args([STOPPED, "--exact", "--nocapture"])
        .env(URL, url)
        .env(NUMBER, number.to_string());
    let mut process = Process::start(command.stdin(Stdio::null()));
    let pid = process.id().to_string();
    assert_eq!(
        process.line_after(ACCEPTED),
        "1",
        "the lock was lost before the first write"
    );
    kill("STOP", &pid);
    let (client, key) = (client(url), number.to_string());
    let next = acquire(&client.lock(format!("lock-{key}")).ttl(TTL)).await;
    let sum = client.json::<usize>(key.as_str());
    let written = sum.update_fenced(&next, |sum| *sum += MILLION);
    let written = within("the write of the next holder", written).await;
    kill("CONT", &pid);
    let accepted: usize = process.line_after(ACCEPTED).parse().unwrap();
    let end = process.finished();
    assert!(end.status.success(), "{end:#?}");
    assert_eq!(written.unwrap(), accepted + MILLION);
    assert_eq!(
        sum.get().await.unwrap().unwrap().value,
        accepted + MILLION,
        "a late write was accepted"
    );
}

/// Adds one under a lock until it is lost, and prints how often.
#[expect(clippy::print_stdout, reason = "the first process reads it")]
async fn write_until_lost(client: &Client, number: &str) {
    let held = acquire(&client.lock(format!("lock-{number}")).ttl(TTL)).await;
    let sum = client.json::<usize>(number);
    let mut accepted = 0;
    while accepted < WRITES {
        match sum.update_fenced(&held, |sum| *sum += 1).await {
            Ok(_) => accepted += 1,
            Err(error) => {
                assert_eq!(*error.kind(), ErrorKind::Lost, "{error}");
                break;
            }
        }
        if accepted == 1 {
            println!("\n{ACCEPTED}{accepted}");
        }
    }
    println!("{ACCEPTED}{accepted}");
}
