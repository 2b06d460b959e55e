//! Backups of a gateway that goes on serving, and `ifmatch verify` and `gc` on its folder.

use std::collections::HashSet;
use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex};

use futures_util::{StreamExt, stream};
use http::Method;
use ifmatch_testbed::within;
use serde_json::Value;
use support::{Client, Gateway, kill, run};

use crate::{eventually, serve};

/// Number of writers. Each writes a pair of blobs in turn.
const WRITERS: u64 = 8;

/// What the writers have done, and when they stop.
#[derive(Default)]
struct Log {
    /// The path and the tag of each acknowledged version.
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
            log.tags
                .lock()
                .unwrap()
                .insert((path, answer.etag().to_owned()));
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
    assert_eq!(summary["orphaned"], 0, "{summary}");
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
            eventually("the acknowledgement of a version", || {
                is_known().then_some(())
            });
        }
        assert!(
            numbers[0] == numbers[1] || numbers[0] == numbers[1] + 1,
            "not of one moment: {numbers:?}"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backup_during_writes_has_all_blobs_of_one_moment() {
    let (data, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let backup = other.path().join("backup");
    let mut gateway = serve(data.path(), &[]);
    let client = Client::new(gateway.address());
    let log = Arc::new(Log::default());
    for writer in 0..WRITERS {
        for blob in ["a", "b"] {
            let path = format!("/c/{writer}-{blob}");
            let answer = client.put(&path, &[], body(0)).await.expect(201);
            log.tags
                .lock()
                .unwrap()
                .insert((path, answer.etag().to_owned()));
        }
    }
    let writers: Vec<_> = (0..WRITERS)
        .map(|writer| tokio::spawn(write(client.clone(), writer, Arc::clone(&log))))
        .collect();
    let url = gateway.url("/");
    for _ in 0..4 {
        // Each backup is of writers that have gone on since the previous one.
        let before = log.writes.load(SeqCst);
        within("more writes", async {
            while log.writes.load(SeqCst) < before + 4 * WRITERS {
                tokio::task::yield_now().await;
            }
        })
        .await;
        let taken = client
            .request(Method::PUT, "/-/snapshot", &[], "")
            .await
            .expect(201)
            .json();
        assert_eq!(
            taken["folder"],
            data.path().join("snapshot").to_str().unwrap()
        );
        let args = [
            "backup",
            "--url",
            &url,
            "--data",
            data.path().to_str().unwrap(),
            "--to",
        ]
        .map(str::to_owned);
        let args = args
            .into_iter()
            .chain([backup.to_str().unwrap().to_owned(), "--json".to_owned()]);
        let done = tokio::task::spawn_blocking(move || run(args))
            .await
            .unwrap();
        assert_eq!(done.status.code(), Some(0), "{done:#?}");
        let (log, backup) = (Arc::clone(&log), backup.clone());
        tokio::spawn(async move { check(&backup, &log).await })
            .await
            .unwrap();
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
    assert_eq!(
        (&summary["damaged"], &summary["orphaned"]),
        (&0.into(), &0.into()),
        "{verified:#?}"
    );
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
        client
            .put(&format!("/c/{number}"), &[], body(2 * number))
            .await
            .expect(201);
    }
    let index = to.join("index.redb");
    // A backup may be faster than its signal.
    for late in 0..20 {
        let mut command = Gateway::command();
        command
            .args(["backup", "--url", &gateway.url("/"), "--data"])
            .arg(data.path())
            .arg("--to")
            .arg(&to);
        let backup = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let pid = backup.id().to_string();
        let has_begun =
            || fs::read_dir(to.join("bodies")).is_ok_and(|mut found| found.next().is_some());
        within("a copied body", async {
            while !has_begun() {
                tokio::task::yield_now().await;
            }
        })
        .await;
        // The process is there, at least as a zombie, until it is waited for.
        kill("STOP", &pid);
        let was_faster = index.exists();
        let path = format!("/c/late-{late}");
        client.put(&path, &[], body(400)).await.expect(201);
        client
            .request(Method::PUT, "/-/snapshot", &[], "")
            .await
            .expect(201);
        kill("CONT", &pid);
        let ended = tokio::task::spawn_blocking(|| backup.wait_with_output())
            .await
            .unwrap()
            .unwrap();
        if was_faster {
            fs::remove_dir_all(&to).unwrap();
            continue;
        }
        let stderr = String::from_utf8_lossy(&ended.stderr);
        assert!(
            ended.status.code() == Some(1) && stderr.contains("Run the command again"),
            "{ended:#?}"
        );
        assert!(!index.exists());
        return;
    }
    panic!("each backup was faster than its signal");
}

#[tokio::test]
async fn snapshots_need_a_write_token_and_a_folder() {
    let data = tempfile::tempdir().unwrap();
    let gateway = serve(data.path(), &["--read-token", "r", "--write-token", "w"]);
    let client = Client::new(gateway.address());
    let send = async |method: Method, token: &str| {
        client
            .request(method, "/-/snapshot", &[("authorization", token)], "")
            .await
            .status
            .as_u16()
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
    let wrong = run(["backup", "--data", other.to_str().unwrap()]
        .iter()
        .chain(&args));
    assert_eq!(wrong.status.code(), Some(2), "{wrong:#?}");
    // The snapshot of another gateway, which an interrupted backup has left.
    fs::create_dir_all(other.join("snapshot/bodies")).unwrap();
    fs::write(other.join("snapshot/index.redb"), "").unwrap();
    let stale = run(["backup", "--data", other.to_str().unwrap()]
        .iter()
        .chain(&args));
    assert_eq!(
        (stale.status.code(), to.join("index.redb").exists()),
        (Some(2), false),
        "{stale:#?}"
    );
    let used = run([
        "backup",
        "--data",
        other.to_str().unwrap(),
        "--to",
        data.path().to_str().unwrap(),
    ]);
    assert_eq!(used.status.code(), Some(11), "{used:#?}");
    assert!(
        used.stderr.contains("choose another folder with --to"),
        "{used:#?}"
    );
    let data = data.path().to_str().unwrap();
    let itself = run(["backup", "--data", data, "--to", data]);
    assert_eq!(itself.status.code(), Some(2), "{itself:#?}");
    assert!(
        itself.stderr.contains("--to is inside the data folder"),
        "{itself:#?}"
    );

    let memory = Gateway::start(["serve", "--store", "memory://"]);
    let answer = Client::new(memory.address())
        .request(Method::PUT, "/-/snapshot", &[], "")
        .await;
    assert_eq!(answer.status, 404);
}

/// Puts a pipe in place of a body, and interrupts the verification of the folder while it reads the pipe.
fn interrupt(data: &str, body: &Path) -> Output {
    let bytes = fs::read(body).unwrap();
    fs::remove_file(body).unwrap();
    assert!(Command::new("mkfifo").arg(body).status().unwrap().success());
    let mut command = Gateway::command();
    command
        .args(["verify", "--data", data])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let running = command.spawn().unwrap();
    let mut pipe = OpenOptions::new().write(true).open(body).unwrap();
    let pid = running.id().to_string();
    kill("INT", &pid);
    // Byte by byte, since the verification ends with the last byte that belongs to the body.
    let closed = loop {
        if let Err(error) = pipe.write_all(&[0]) {
            break error;
        }
        std::thread::sleep(std::time::Duration::from_millis(1));
    };
    assert_eq!(closed.kind(), ErrorKind::BrokenPipe, "{closed}");
    fs::remove_file(body).unwrap();
    fs::write(body, bytes).unwrap();
    running.wait_with_output().unwrap()
}

/// Fills a folder with four blobs in files, and returns the files. Also checks that a folder in use is refused.
async fn fill(folder: &Path) -> Vec<PathBuf> {
    let mut gateway = serve(folder, &[]);
    let client = Client::new(gateway.address());
    for number in 0..4 {
        client
            .put(
                &format!("/docs/{number}"),
                &[],
                number.to_string().repeat(20_000),
            )
            .await
            .expect(201);
    }
    client
        .put("/docs/small", &[], "in the index")
        .await
        .expect(201);
    let refused = run(["verify", "--data", folder.to_str().unwrap()]);
    assert_eq!(refused.status.code(), Some(11), "{refused:#?}");
    assert!(
        refused
            .stderr
            .contains("another process uses the data folder"),
        "{}",
        refused.stderr
    );
    gateway.stop();
    let shards = fs::read_dir(folder.join("bodies"))
        .unwrap()
        .map(|shard| shard.unwrap().path());
    let files: Vec<_> = shards
        .flat_map(|shard| fs::read_dir(shard).unwrap())
        .map(|file| file.unwrap().path())
        .collect();
    assert_eq!(files.len(), 4, "{files:?}");
    files
}

#[tokio::test]
async fn damage_is_listed_with_exit_code_3_and_orphaned_files_are_removed() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().to_str().unwrap();
    let files = fill(folder.path()).await;
    let intact = run(["verify", "--data", data]);
    assert_eq!(intact.status.code(), Some(0), "{intact:#?}");
    assert!(
        intact.stdout.contains("read 5 bodies") && intact.stdout.contains("0 damaged"),
        "{}",
        intact.stdout
    );

    let mut bytes = fs::read(&files[0]).unwrap();
    bytes[1_000] ^= 0x10;
    fs::write(&files[0], bytes).unwrap();
    let orphaned = files[1].with_file_name(format!("{}-{:016x}", "0".repeat(64), 1));
    fs::copy(&files[1], &orphaned).unwrap();
    fs::remove_file(&files[2]).unwrap();
    let damaged = run(["verify", "--data", data, "--json"]);
    assert_eq!(damaged.status.code(), Some(3), "{damaged:#?}");
    let lines: Vec<Value> = damaged
        .stdout
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let files_of = |kind: &str| -> Vec<&str> {
        let of_kind = lines
            .iter()
            .filter(|line| line["message"] == "damage" && line["kind"] == kind);
        of_kind.map(|line| line["file"].as_str().unwrap()).collect()
    };
    assert_eq!(files_of("changed"), [files[0].to_str().unwrap()]);
    assert_eq!(files_of("missing"), [files[2].to_str().unwrap()]);
    assert_eq!(files_of("orphaned"), [orphaned.to_str().unwrap()]);
    let summary = lines.last().unwrap();
    assert_eq!(
        (&summary["message"], &summary["damaged"]),
        (&Value::from("summary"), &Value::from(2)),
        "{summary}"
    );

    let listed = run(["gc", "--data", data, "--dry-run"]);
    assert!(
        listed.stdout.contains(orphaned.to_str().unwrap()) && orphaned.exists(),
        "{listed:#?}"
    );
    let removed = run(["gc", "--data", data]);
    assert_eq!(removed.status.code(), Some(0), "{removed:#?}");
    assert!(!orphaned.exists() && files[1].exists());
}

#[tokio::test]
async fn an_interrupted_run_ends_with_130_and_continues() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().to_str().unwrap();
    let files = fill(folder.path()).await;
    let stopped = interrupt(data, &files[0]);
    assert_eq!(stopped.status.code(), Some(130), "{stopped:#?}");
    assert!(String::from_utf8_lossy(&stopped.stderr).contains("Continue with --resume"));
    let rest = run(["verify", "--data", data, "--resume"]);
    assert_eq!(rest.status.code(), Some(0), "{rest:#?}");
    assert!(rest.stdout.contains("0 damaged"), "{}", rest.stdout);
}

/// The first run ends in the second thousand of blobs, and the damage is in the first.
#[tokio::test]
async fn a_continued_run_ends_with_the_damage_found_before() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().to_str().unwrap();
    let mut gateway = serve(folder.path(), &[]);
    let client = Client::new(gateway.address());
    let small = (0..1_000)
        .map(|number| client.put(format!("/docs/{number:03}").leak(), &[], "in the index"));
    stream::iter(small)
        .buffer_unordered(32)
        .for_each(async |written| drop(written.expect(201)))
        .await;
    client
        .put("/docs/!first", &[], "a".repeat(20_000))
        .await
        .expect(201);
    client
        .put("/docs/last", &[], "b".repeat(30_000))
        .await
        .expect(201);
    gateway.stop();
    let shards = fs::read_dir(folder.path().join("bodies"))
        .unwrap()
        .flat_map(|shard| fs::read_dir(shard.unwrap().path()));
    let (mut first, mut last) = (PathBuf::new(), PathBuf::new());
    for body in shards.flatten().map(Result::unwrap) {
        let of = if body.metadata().unwrap().len() == 20_000 {
            &mut first
        } else {
            &mut last
        };
        *of = body.path();
    }
    fs::write(&first, "c".repeat(20_000)).unwrap();
    let stopped = interrupt(data, &last);
    assert_eq!(stopped.status.code(), Some(130), "{stopped:#?}");
    assert!(
        String::from_utf8_lossy(&stopped.stdout).contains("docs/!first: the bytes differ"),
        "{stopped:#?}"
    );
    let rest = run(["verify", "--data", data, "--resume"]);
    assert_eq!(rest.status.code(), Some(3), "{rest:#?}");
    assert!(
        rest.stderr.contains("1 of 1002 bodies damaged or missing"),
        "{rest:#?}"
    );
    // The last one is read while others still are, so the place to continue at depends on the machine.
    let read = rest
        .stdout
        .split(' ')
        .nth(1)
        .and_then(|number| number.parse::<u32>().ok())
        .expect("a number");
    assert!(
        (2..1_002).contains(&read) && rest.stdout.contains("1 damaged"),
        "{rest:#?}"
    );
}

#[tokio::test]
async fn one_body_is_singular_and_the_folder_may_be_a_variable() {
    let folder = tempfile::tempdir().unwrap();
    let mut gateway = serve(folder.path(), &[]);
    Client::new(gateway.address())
        .put("/docs/a", &[], "a")
        .await
        .expect(201);
    gateway.stop();
    let output = Gateway::command()
        .arg("verify")
        .env("IFMATCH_DATA", folder.path())
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:#?}");
    assert!(
        String::from_utf8_lossy(&output.stdout).contains("read 1 body (1 B)"),
        "{output:#?}"
    );
}

#[test]
fn a_folder_without_a_store_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    for command in ["verify", "gc"] {
        let refused = run([command, "--data", folder.path().to_str().unwrap()]);
        assert_eq!(refused.status.code(), Some(2), "{refused:#?}");
        assert!(
            refused.stderr.contains("is not a data folder"),
            "{}",
            refused.stderr
        );
    }
    let missing = run([
        "verify",
        "--data",
        folder.path().join("none").to_str().unwrap(),
    ]);
    assert!(
        missing.stderr.contains("no such folder"),
        "{}",
        missing.stderr
    );
    let wrong = run(["verify", "--data", "x", "--sample", "5"]);
    assert_eq!(wrong.status.code(), Some(2), "{wrong:#?}");
    assert!(wrong.stderr.contains("5%"), "{}", wrong.stderr);
}
