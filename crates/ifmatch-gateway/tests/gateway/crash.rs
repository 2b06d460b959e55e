//! kill -9 during many writes, repeatedly: acknowledged writes survive, no blob is mixed, and leftovers are removed.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::path::Path;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request};
use ifmatch_core::digest::ContentHash;
use ifmatch_testbed::within;
use support::azure::{Azure, DEVELOPMENT_ACCOUNT, DEVELOPMENT_KEY, Form, Signer, signed};
use support::{Answer, Client, Gateway, full};
use tokio::task::JoinSet;

/// Number of concurrent writers, each with its own blob.
const WRITERS: usize = 100;

/// Largest body that is in the index, in bytes. Larger ones are in files.
const MOST_INLINE: usize = 4 << 10;

/// Number of acknowledged writes in a round before the kill. Others are in flight.
const KILLED_AFTER: [usize; 5] = [0, 1, 25, 80, 160];

/// Allowed contents of a blob: the last acknowledged write, or any later attempt.
#[derive(Default)]
struct Expected {
    /// Body and tag of the last acknowledged write, if any.
    acknowledged: Option<(Bytes, String)>,
    /// Bodies of later writes without a response.
    unanswered: Vec<Bytes>,
}

type Blobs = Arc<Mutex<HashMap<String, Expected>>>;

/// What a writer of one round shares with the others.
struct Round {
    number: usize,
    client: Client,
    blobs: Blobs,
    acknowledged: Arc<AtomicUsize>,
}

#[tokio::test(flavor = "multi_thread")]
async fn kill_9_during_a_hundred_writes() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_str().unwrap().to_owned();
    let mut gateway = tokio::task::block_in_place(|| Gateway::start(["serve", "--data", &path]));
    let blobs = Blobs::default();
    for (number, killed_after) in KILLED_AFTER.into_iter().enumerate() {
        let acknowledged = Arc::<AtomicUsize>::default();
        let write = |client, writer| {
            let round = Round {
                number,
                client,
                blobs: Arc::clone(&blobs),
                acknowledged: Arc::clone(&acknowledged),
            };
            write_until_the_end(round, writer)
        };
        kill_during_writes(&mut gateway, &acknowledged, killed_after, write).await;
        check(
            &Client::new(gateway.address()),
            &blobs,
            folder.path(),
            number,
        )
        .await;
    }
}

/// Writes one blob repeatedly until the process has ended.
async fn write_until_the_end(round: Round, writer: usize) {
    let name = format!("/c/blob-{writer}");
    for turn in 0.. {
        let body = body(round.number, writer, turn);
        let tag = note(&round.blobs, &name, |blob| {
            blob.unanswered.push(body.clone());
            blob.acknowledged.as_ref().map(|(_, tag)| tag.clone())
        });
        // Every other writer uses conditions, and detects if its last write was lost.
        let request = match (writer % 2, tag) {
            (0, _) => Request::builder(),
            (_, None) => Request::builder().header("if-none-match", "*"),
            (_, Some(tag)) => Request::builder().header("if-match", tag),
        };
        let request = request
            .method(Method::PUT)
            .uri(&name)
            .body(full(body.clone()))
            .unwrap();
        let Ok(answer) = round.client.try_send(request).await else {
            return;
        };
        acknowledge(&round.blobs, &name, &answer, body);
        round.acknowledged.fetch_add(1, Relaxed);
    }
}

fn acknowledge(blobs: &Blobs, name: &str, answer: &Answer, body: Bytes) {
    assert!(
        matches!(answer.status.as_u16(), 200 | 201),
        "{name}: {answer:#?}"
    );
    let tag = answer.etag().to_owned();
    note(blobs, name, |blob| {
        *blob = Expected {
            acknowledged: Some((body, tag)),
            unanswered: Vec::new(),
        }
    });
}

fn note<T>(blobs: &Blobs, name: &str, change: impl FnOnce(&mut Expected) -> T) -> T {
    change(blobs.lock().unwrap().entry(name.to_owned()).or_default())
}

/// Returns a unique body, below or above the inline limit.
fn body(round: usize, writer: usize, turn: usize) -> Bytes {
    let size = [1 << 10, 64 << 10, 1 << 20][writer % 3];
    let line = format!("round {round} writer {writer} turn {turn}\n");
    line.bytes().cycle().take(size).collect()
}

/// After a restart, checks that each blob has an allowed content with the right tag, and that nothing else is on disk.
async fn check(client: &Client, blobs: &Blobs, folder: &Path, round: usize) {
    let names: Vec<String> = blobs.lock().unwrap().keys().cloned().collect();
    let mut in_files = 0;
    let mut present = 0;
    for name in names {
        let answer = client.get(&name, &[]).await;
        let found = (answer.status == 200).then(|| {
            (
                answer.body.clone(),
                answer.headers["etag"].to_str().unwrap().to_owned(),
            )
        });
        note(blobs, &name, |blob| {
            one_of(blob, found.as_ref(), &format!("{name} in round {round}"));
        });
        if let Some((body, tag)) = found {
            let hash = ContentHash::of(&body).hex();
            assert!(
                tag.trim_matches('"').starts_with(&hash),
                "{name} in round {round}: {tag} is not of these bytes"
            );
            present += 1;
            in_files += usize::from(body.len() > MOST_INLINE);
        }
    }
    let listed = client.get("/c?limit=1000", &[]).await;
    if present > 0 {
        assert_eq!(
            listed.json()["blobs"].as_array().map(Vec::len),
            Some(present),
            "listing in round {round}"
        );
    }
    assert_eq!(
        files(&folder.join("bodies")),
        in_files,
        "a body for each blob that has one, in round {round}"
    );
    assert_eq!(
        files(&folder.join("tmp")),
        0,
        "nothing half written, in round {round}"
    );
}

/// Checks that the blob is its last acknowledged version or a later attempt, which counts as acknowledged from now on.
fn one_of(blob: &mut Expected, found: Option<&(Bytes, String)>, place: &str) {
    let is_acknowledged = found == blob.acknowledged.as_ref();
    let is_later = found.is_some_and(|(body, _)| blob.unanswered.contains(body));
    assert!(
        is_acknowledged || is_later,
        "{place} is neither the acknowledged version nor a later attempt"
    );
    *blob = Expected {
        acknowledged: found.cloned(),
        unanswered: Vec::new(),
    };
}

/// The number of files below a folder.
fn files(folder: &Path) -> usize {
    let entries = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    entries
        .map(|path| if path.is_dir() { files(&path) } else { 1 })
        .sum()
}

/// A write of the hot blob.
struct HotWrite {
    body: Bytes,
    /// The tag that it replaced, if it had a condition.
    condition: Option<String>,
    /// Steps of a clock that all writers share.
    begun: usize,
    /// `None` without an answer.
    ended: Option<usize>,
}

/// The writes of the hot blob that weren't refused.
#[derive(Clone, Default)]
struct Hot {
    clock: Arc<AtomicUsize>,
    writes: Arc<Mutex<HashMap<Bytes, HotWrite>>>,
}

/// The writers of one blob share swaps, and the kill meets a group of them. All but one write on a condition.
#[tokio::test(flavor = "multi_thread")]
async fn kill_9_during_a_hundred_writes_of_one_blob() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_str().unwrap().to_owned();
    let mut gateway = tokio::task::block_in_place(|| Gateway::start(["serve", "--data", &path]));
    let hot = Hot::default();
    let first = Bytes::from_static(b"first");
    Client::new(gateway.address())
        .put("/c/hot", &[], first.clone())
        .await
        .expect(201);
    let (begun, ended) = (
        hot.clock.fetch_add(1, Relaxed),
        Some(hot.clock.fetch_add(1, Relaxed)),
    );
    hot.writes.lock().unwrap().insert(
        first.clone(),
        HotWrite {
            body: first,
            condition: None,
            begun,
            ended,
        },
    );
    for (round, killed_after) in [10, 5000, 8000].into_iter().enumerate() {
        let write = |client, writer| write_hot_until_the_end(hot.clone(), client, round, writer);
        kill_during_writes(&mut gateway, &hot.clock, killed_after, write).await;
        check_hot(&hot, &Client::new(gateway.address()), round).await;
    }
}

/// Starts writers, kills the gateway once the counter has grown by `killed_after`, and starts it again.
async fn kill_during_writes<F>(
    gateway: &mut Gateway,
    counter: &AtomicUsize,
    killed_after: usize,
    write: impl Fn(Client, usize) -> F,
) where
    F: Future<Output = ()> + Send + 'static,
{
    let client = Client::new(gateway.address());
    let goal = counter.load(Relaxed) + killed_after;
    let mut writers = JoinSet::new();
    for writer in 0..WRITERS {
        writers.spawn(write(client.clone(), writer));
    }
    within("the writes before the kill", async {
        while counter.load(Relaxed) < goal {
            assert!(
                writers.try_join_next().is_none(),
                "a write has failed before the kill"
            );
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    })
    .await;
    // A short pause, so the kill doesn't coincide with the step before a response.
    tokio::time::sleep(Duration::from_millis(7)).await;
    tokio::task::block_in_place(|| gateway.kill());
    writers.join_all().await;
    tokio::task::block_in_place(|| gateway.restart());
}

async fn write_hot_until_the_end(hot: Hot, client: Client, round: usize, writer: usize) {
    for turn in 0.. {
        let mut request = Request::builder();
        let mut condition = None;
        if writer > 0 {
            let Ok(found) = client
                .try_send(Request::get("/c/hot").body(full(Bytes::new())).unwrap())
                .await
            else {
                return;
            };
            condition = (found.status == 200).then(|| found.etag().to_owned());
            request = request.header(
                condition.as_ref().map_or("if-none-match", |_| "if-match"),
                condition.as_deref().unwrap_or("*"),
            );
        }
        let body = Bytes::from(format!("{round} {writer} {turn}"));
        let begun = hot.clock.fetch_add(1, Relaxed);
        let write = HotWrite {
            body: body.clone(),
            condition,
            begun,
            ended: None,
        };
        hot.writes.lock().unwrap().insert(body.clone(), write);
        let request = request
            .method(Method::PUT)
            .uri("/c/hot")
            .body(full(body.clone()))
            .unwrap();
        let Ok(answer) = client.try_send(request).await else {
            return;
        };
        let mut all = hot.writes.lock().unwrap();
        match answer.status.as_u16() {
            200 | 201 => all.get_mut(&body).unwrap().ended = Some(hot.clock.fetch_add(1, Relaxed)),
            412 => drop(all.remove(&body)),
            _ => panic!("{answer:#?}"),
        }
    }
}

/// Checks that the blob is a write that no acknowledged one has followed, and that no version was replaced by two.
async fn check_hot(hot: &Hot, client: &Client, round: usize) {
    let answer = client.get("/c/hot", &[]).await;
    let mut writes = hot.writes.lock().unwrap();
    let now = hot.clock.fetch_add(1, Relaxed);
    let found = writes
        .get_mut(&answer.body)
        .unwrap_or_else(|| panic!("{:?} in round {round}", answer.body));
    let ended = found.ended.unwrap_or(usize::MAX);
    found.ended.get_or_insert(now);
    // The others without an answer have had no effect, or were replaced.
    writes.retain(|_, write| write.ended.is_some());
    let later = writes.values().find(|write| write.begun > ended);
    assert!(
        later.is_none(),
        "{:?} was acknowledged after {:?} in round {round}",
        later.unwrap().body,
        answer.body
    );
    let replaced: Vec<&String> = writes
        .values()
        .filter_map(|write| write.condition.as_ref())
        .collect();
    assert_eq!(
        replaced.iter().collect::<HashSet<_>>().len(),
        replaced.len(),
        "round {round}"
    );
}

/// The appends of one blob.
#[derive(Clone, Default)]
struct Log {
    /// The acknowledged blocks, with their offsets.
    acknowledged: Arc<Mutex<Vec<(usize, String)>>>,
    count: Arc<AtomicUsize>,
}

/// Appends that wait share a write, a sync and a swap, and the kill meets a group of them.
#[tokio::test(flavor = "multi_thread")]
async fn kill_9_during_a_hundred_appends_to_one_blob() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_str().unwrap().to_owned();
    let mut gateway = tokio::task::block_in_place(|| Gateway::start(["serve", "--data", &path]));
    let azure = Azure::development(Client::new(gateway.address()));
    azure.create_container("logs").await.expect(201);
    azure
        .blob(
            Method::PUT,
            "/logs/hot",
            &[("x-ms-blob-type", "AppendBlob"), ("content-length", "0")],
            "",
        )
        .await
        .expect(201);
    let log = Log::default();
    for (round, killed_after) in [10, 1000, 1500].into_iter().enumerate() {
        let write = |client, writer| append_until_the_end(log.clone(), client, round, writer);
        kill_during_writes(&mut gateway, &log.count, killed_after, write).await;
        check_log(&log, &Client::new(gateway.address()), folder.path(), round).await;
    }
}

async fn append_until_the_end(log: Log, client: Client, round: usize, writer: usize) {
    let signer = Signer::new(DEVELOPMENT_ACCOUNT, DEVELOPMENT_KEY);
    for turn in 0.. {
        let length = 20 + writer * 17;
        let block = format!("{:.<length$};", format!("{round}/{writer}/{turn}"));
        let append = signed(
            &signer,
            Form::Blob,
            Method::PUT,
            "/logs/hot?comp=appendblock",
            &[],
            block.clone().into(),
        );
        let Ok(answer) = client.try_send(append.map(full)).await else {
            return;
        };
        let offset = answer
            .expect(201)
            .header("x-ms-blob-append-offset")
            .parse()
            .unwrap();
        log.acknowledged.lock().unwrap().push((offset, block));
        log.count.fetch_add(1, Relaxed);
    }
}

/// Checks that each acknowledged block is at its offset, and no block there twice.
async fn check_log(log: &Log, client: &Client, folder: &Path, round: usize) {
    let answer = client.get("/logs/hot", &[]).await;
    let tag = answer.etag();
    assert!(
        tag.trim_matches('"')
            .starts_with(&ContentHash::of(&answer.body).hex()),
        "round {round}: {tag}"
    );
    let text = std::str::from_utf8(&answer.body).unwrap();
    for (offset, block) in log.acknowledged.lock().unwrap().iter() {
        assert!(
            text.get(*offset..)
                .is_some_and(|rest| rest.starts_with(block)),
            "round {round}: {block} at {offset}"
        );
    }
    let blocks: Vec<&str> = text.split_inclusive(';').collect();
    assert_eq!(
        blocks.iter().collect::<HashSet<_>>().len(),
        blocks.len(),
        "a block is there twice in round {round}"
    );
    let in_files = usize::from(text.len() > MOST_INLINE);
    assert_eq!(
        (files(&folder.join("bodies")), files(&folder.join("tmp"))),
        (in_files, 0),
        "in round {round}, with {} bytes",
        text.len()
    );
}
