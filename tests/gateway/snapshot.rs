//! Backups of a gateway that goes on serving: `/-/snapshot` and `ifmatch backup`.

use std::collections::HashSet;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

use http::Method;
use serde_json::Value;
use support::{Client, Gateway, run};

use crate::serve;

/// Number of writers. Each writes a pair of blobs in turn.
const WRITERS: u64 = 8;

/// The versions that were sent, and those that were acknowledged.
#[derive(Default)]
struct Log {
    tags: Mutex<HashSet<(String, String)>>,
    writes: AtomicU64,
    stop: AtomicBool,
}

/// Returns the body of a version: too large for the index, or small enough.
fn body(number: u64) -> String {
    format!("{number} ").repeat(if number.is_multiple_of(2) { 2_000 } else { 1 })
}

fn number(body: &str) -> u64 {
    body.split(' ').next().unwrap().parse().unwrap()
}

/// Writes `/c/{writer}-a` and then `/c/{writer}-b` with each number, and sometimes deletes a third blob.
async fn write(client: Client, writer: u64, log: Arc<Log>) {
    for count in 0.. {
        for blob in ["a", "b"] {
            let path = format!("/c/{writer}-{blob}");
            let answer = client.put(&path, &[], body(count)).await;
            log.tags.lock().unwrap().insert((path, answer.etag().to_owned()));
            log.writes.fetch_add(1, SeqCst);
        }
        if count % 3 == 0 {
            let third = format!("/c/{writer}-third");
            client.put(&third, &[], body(2 * count)).await;
            client.delete(&third, &[]).await.expect(204);
        }
        if log.stop.load(SeqCst) {
            return;
        }
    }
}

/// Serves a restored folder, and checks that its blobs are versions of one moment.
async fn check(folder: &Path, log: &Log) {
    let verified = run(["verify", "--data", folder.to_str().unwrap(), "--json"]);
    assert_eq!(verified.status.code(), Some(0), "{verified:#?}");
    let summary: Value = serde_json::from_str(verified.stdout.lines().last().unwrap()).unwrap();
    assert_eq!(summary["superfluous"], 0, "{summary}");
    let restored = serve(folder, &[]);
    let client = Client::new(restored.address());
    for writer in 0..WRITERS {
        let mut numbers = Vec::new();
        for blob in ["a", "b"] {
            let path = format!("/c/{writer}-{blob}");
            let answer = client.get(&path, &[]).await.expect(200);
            assert_eq!(answer.text(), body(number(answer.text())), "{path}");
            numbers.push(number(answer.text()));
            // The last write before the copy may have been acknowledged after it.
            let tag = (path, answer.etag().to_owned());
            let is_known = || log.tags.lock().unwrap().contains(&tag);
            crate::eventually("the acknowledgement of a version", || is_known().then_some(()));
        }
        assert!(numbers[0] == numbers[1] || numbers[0] == numbers[1] + 1, "not of one moment: {numbers:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backup_during_writes_has_all_blobs_as_of_one_moment() {
    let (data, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let backup = other.path().join("backup");
    let mut gateway = serve(data.path(), &[]);
    let client = Client::new(gateway.address());
    let log = Arc::new(Log::default());
    for writer in 0..WRITERS {
        for blob in ["a", "b"] {
            let path = format!("/c/{writer}-{blob}");
            let answer = client.put(&path, &[], body(0)).await.expect(201);
            log.tags.lock().unwrap().insert((path, answer.etag().to_owned()));
        }
    }
    let writers: Vec<_> =
        (0..WRITERS).map(|writer| tokio::spawn(write(client.clone(), writer, Arc::clone(&log)))).collect();
    let url = gateway.url("/");
    for _ in 0..4 {
        // Each backup is of writers that have gone on since the previous one.
        let before = log.writes.load(SeqCst);
        while log.writes.load(SeqCst) < before + 4 * WRITERS {
            tokio::task::yield_now().await;
        }
        let taken = client.request(Method::PUT, "/-/snapshot", &[], "").await.expect(201).json();
        assert_eq!(taken["folder"], data.path().join("snapshot").to_str().unwrap());
        let args = ["backup", "--url", &url, "--data", data.path().to_str().unwrap(), "--to"].map(str::to_owned);
        let args = args.into_iter().chain([backup.to_str().unwrap().to_owned(), "--json".to_owned()]);
        let done = tokio::task::spawn_blocking(move || run(args)).await.unwrap();
        assert_eq!(done.status.code(), Some(0), "{done:#?}");
        let (log, backup) = (Arc::clone(&log), backup.clone());
        tokio::spawn(async move { check(&backup, &log).await }).await.unwrap();
    }
    log.stop.store(true, SeqCst);
    for writer in writers {
        writer.await.unwrap();
    }
    assert!(!data.path().join("snapshot").exists() && !data.path().join("snapshot.new").exists());
    // Removals that were postponed have been carried out.
    gateway.stop();
    let verified = run(["verify", "--data", data.path().to_str().unwrap(), "--json"]);
    let summary: Value = serde_json::from_str(verified.stdout.lines().last().unwrap()).unwrap();
    assert_eq!((&summary["damaged"], &summary["superfluous"]), (&0.into(), &0.into()), "{verified:#?}");
}

/// Sends a signal to a process. Returns `false` if it has ended.
fn signal(name: &str, process: &Child) -> bool {
    Command::new("kill").args([name, &process.id().to_string()]).status().unwrap().success()
}

/// A second snapshot is taken while the first one is copied: its index has a blob with a body that the list of the first one
/// lacks.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backup_of_a_snapshot_that_another_one_replaces_fails() {
    let (data, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let to = other.path().join("backup");
    let gateway = serve(data.path(), &[]);
    let client = Client::new(gateway.address());
    for number in 0..200 {
        client.put(&format!("/c/{number}"), &[], body(2 * number)).await.expect(201);
    }
    let mut command = Gateway::command();
    command.args(["backup", "--url", &gateway.url("/"), "--data"]).arg(data.path()).arg("--to").arg(&to);
    let mut backup = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let has_begun = || std::fs::read_dir(to.join("bodies")).is_ok_and(|mut found| found.next().is_some());
    while !has_begun() && backup.try_wait().unwrap().is_none() {
        tokio::task::yield_now().await;
    }
    signal("-STOP", &backup);
    let is_copied = to.join("index.redb").exists();
    client.put("/c/late", &[], body(400)).await.expect(201);
    client.request(Method::PUT, "/-/snapshot", &[], "").await.expect(201);
    signal("-CONT", &backup);
    let ended = tokio::task::spawn_blocking(|| backup.wait_with_output()).await.unwrap().unwrap();
    if is_copied {
        return eprintln!("the backup was faster than this test");
    }
    let stderr = String::from_utf8_lossy(&ended.stderr);
    assert!(ended.status.code() == Some(1) && stderr.contains("repeat the command"), "{ended:#?}");
    assert!(!to.join("index.redb").exists());
}

#[tokio::test]
async fn snapshots_need_a_write_token_and_a_folder() {
    let data = tempfile::tempdir().unwrap();
    let gateway = serve(data.path(), &["--read-token", "r", "--write-token", "w"]);
    let client = Client::new(gateway.address());
    let send = async |method: Method, token: &str| {
        client.request(method, "/-/snapshot", &[("authorization", token)], "").await.status.as_u16()
    };
    assert_eq!(send(Method::PUT, "Bearer r").await, 403);
    assert_eq!(send(Method::DELETE, "Bearer w").await, 404);
    assert_eq!(send(Method::PUT, "Bearer w").await, 201);
    assert_eq!(send(Method::POST, "Bearer w").await, 405);
    assert_eq!(send(Method::DELETE, "Bearer r").await, 403);
    assert_eq!(send(Method::DELETE, "Bearer w").await, 200);
    let other = data.path().join("other");
    let (url, to) = (gateway.url("/"), data.path().join("to"));
    let args = ["--url", &url, "--token", "w", "--to", to.to_str().unwrap()];
    let wrong = run(["backup", "--data", other.to_str().unwrap()].iter().chain(&args));
    assert_eq!(wrong.status.code(), Some(2), "{wrong:#?}");
    // The snapshot of another gateway, which an interrupted backup has left.
    std::fs::create_dir_all(other.join("snapshot/bodies")).unwrap();
    std::fs::write(other.join("snapshot/index.redb"), "").unwrap();
    let stale = run(["backup", "--data", other.to_str().unwrap()].iter().chain(&args));
    assert_eq!((stale.status.code(), to.join("index.redb").exists()), (Some(2), false), "{stale:#?}");
    let used = run(["backup", "--data", other.to_str().unwrap(), "--to", data.path().to_str().unwrap()]);
    assert_eq!(used.status.code(), Some(11), "{used:#?}");
    assert!(used.stderr.contains("choose another folder with --to"), "{used:#?}");
    let data = data.path().to_str().unwrap();
    let itself = run(["backup", "--data", data, "--to", data]);
    assert_eq!(itself.status.code(), Some(2), "{itself:#?}");
    assert!(itself.stderr.contains("--to is in the data folder"), "{itself:#?}");

    let memory = Gateway::start(["serve", "--store", "memory://"]);
    let answer = Client::new(memory.address()).request(Method::PUT, "/-/snapshot", &[], "").await;
    assert_eq!(answer.status, 404);
}
