//! `ifmatch import`, `ifmatch export` and `ifmatch verify --url` against a gateway, and against servers that interfere.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use http::{Method, Request, Response};
use http_body_util::BodyExt;
use http_body_util::StreamBody;
use http_body_util::combinators::UnsyncBoxBody;
use hyper::body::{Frame, Incoming};
use ifmatch_core::digest::ContentHash;
use serde_json::{Value, json};
use support::{Client, Finished, Gateway, Server, full, kill, run};
use tower::service_fn;

use crate::{eventually, serve};

type Answer = Response<UnsyncBoxBody<Bytes, Box<dyn std::error::Error + Send + Sync>>>;

/// Runs `ifmatch` without blocking the servers of the test.
async fn ifmatch(args: &[&str]) -> Finished {
    let args: Vec<String> = args.iter().map(|arg| (*arg).to_owned()).collect();
    tokio::task::spawn_blocking(move || run(args)).await.unwrap()
}

/// Returns the summary of a run with `--json` that ended with this code.
#[track_caller]
fn summary(finished: &Finished, code: i32) -> Value {
    assert_eq!(finished.status.code(), Some(code), "{finished:#?}");
    let last = serde_json::from_str::<Value>(finished.stdout.lines().last().unwrap()).unwrap();
    assert_eq!(last["message"], "summary", "{last}");
    last
}

/// Returns the kinds of the messages about faults, by blob.
fn faults(finished: &Finished) -> BTreeMap<String, String> {
    let lines = finished.stdout.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let faults = lines.filter(|line| line["message"] == "error" || line["message"] == "damage");
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    faults.map(|line| (text(&line["blob"]), text(&line["kind"]))).collect()
}

/// Returns all files below a folder, with their bytes.
fn files(root: &Path) -> BTreeMap<String, Vec<u8>> {
    let (mut found, mut folders) = (BTreeMap::new(), vec![root.to_owned()]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
            if entry.file_type().unwrap().is_dir() {
                folders.push(entry.path());
            } else if entry.file_type().unwrap().is_file() {
                let name = entry.path().strip_prefix(root).unwrap().to_str().unwrap().to_owned();
                found.insert(name, fs::read(entry.path()).unwrap());
            }
        }
    }
    found
}

/// Writes files with unusual names, and symbolic links to a file and a folder outside.
fn odd_files(root: &Path) -> BTreeMap<String, Vec<u8>> {
    let names = [
        "plain.txt",
        "a b.txt",
        "100%.txt",
        "%2e%2e",
        "%2F",
        "ünï/ö✓.txt",
        "q?u#h.txt",
        "a+b&c=d;e'(!)*,$@:~.txt",
        "empty",
        "deep/er/and/deeper",
        "[x]{y}|^`\"<z>",
        ".hidden",
    ];
    for (number, name) in names.into_iter().enumerate() {
        let path = root.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let bytes = if name == "empty" { Vec::new() } else { vec![u8::try_from(number).unwrap(); number * 40_000 + 1] };
        fs::write(path, bytes).unwrap();
    }
    symlink("/etc/passwd", root.join("link")).unwrap();
    symlink("/etc", root.join("linked")).unwrap();
    files(root)
}

#[tokio::test]
async fn odd_names_round_trip_and_a_second_run_writes_nothing() {
    let folders = tempfile::tempdir().unwrap();
    let (source, target) = (folders.path().join("source"), folders.path().join("target"));
    fs::create_dir(&source).unwrap();
    let sent = odd_files(&source);
    let gateway = Gateway::start(["serve", "--store", "memory://", "--read-token", "r", "--write-token", "w"]);
    let (url, client) = (gateway.url("/docs/20%2026"), Client::new(gateway.address()));
    let (source, target) = (source.to_str().unwrap(), target.to_str().unwrap());
    let import = ["import", source, &url, "--token", "w", "--json"];
    let export = ["export", &url, target, "--token", "r", "--json"];
    let count = sent.len();

    let refused = ifmatch(&["import", source, &url, "--token", "r", "--json"]).await;
    assert_eq!(refused.status.code(), Some(1), "{refused:#?}");
    let first = summary(&ifmatch(&import).await, 0);
    assert_eq!((&first["written"], &first["skipped"]), (&count.into(), &2.into()), "{first}");
    let tags = async || {
        let listing = client.get("/docs", &[("authorization", "Bearer r")]).await.expect(200).json();
        let blobs = listing["blobs"].as_array().unwrap().iter().map(|blob| blob["etag"].clone());
        blobs.collect::<Vec<_>>()
    };
    let written = tags().await;
    let second = summary(&ifmatch(&import).await, 0);
    assert_eq!((&second["written"], &second["unchanged"], &second["bytes"]), (&0.into(), &count.into(), &0.into()));
    assert_eq!((tags().await, written.len()), (written, count));

    assert_eq!(summary(&ifmatch(&export).await, 0)["written"], count);
    assert_eq!(files(Path::new(target)), sent);
    let second = summary(&ifmatch(&export).await, 0);
    assert_eq!((&second["written"], &second["unchanged"], &second["bytes"]), (&0.into(), &count.into(), &0.into()));

    let path = "/docs/20%2026/plain.txt";
    client.put(path, &[("authorization", "Bearer w"), ("content-type", "text/x"), ("x-meta-a", "b")], "?").await;
    assert_eq!(summary(&ifmatch(&export).await, 0)["written"], 1);
    assert_eq!(fs::read(Path::new(target).join("plain.txt")).unwrap(), b"?");
    assert_eq!(summary(&ifmatch(&import).await, 0)["written"], 1);
    let replaced = client.get(path, &[("authorization", "Bearer r")]).await.expect(200);
    assert_eq!((replaced.header("content-type"), replaced.header("x-meta-a")), ("text/x", "b"));
    assert_eq!(replaced.body, sent["plain.txt"]);
}

#[tokio::test]
async fn objects_of_a_store_are_imported() {
    let source = tempfile::tempdir().unwrap();
    // Of a gateway, with a staged block and a table.
    let internal = ["-ifmatch/owner", "-blocks/docs/00/61/61", "-tables.photos/t"];
    for name in ["a b.txt", "deep/er.txt"].into_iter().chain(internal) {
        fs::create_dir_all(source.path().join(name).parent().unwrap()).unwrap();
        fs::write(source.path().join(name), name.repeat(30_000)).unwrap();
    }
    let gateway = Gateway::start(["serve", "--store", "memory://"]);
    let (from, to) = (format!("file://{}", source.path().display()), gateway.url("/docs/new"));
    let import = ["import", &from, &to, "--json"];
    assert_eq!(summary(&ifmatch(&import).await, 0)["written"], 2);
    let second = summary(&ifmatch(&import).await, 0);
    assert_eq!((&second["written"], &second["unchanged"]), (&0.into(), &2.into()), "{second}");
    let client = Client::new(gateway.address());
    assert_eq!(client.get("/docs/new/a%20b.txt", &[]).await.expect(200).body, "a b.txt".repeat(30_000));
    client.get("/docs/new/deep/er.txt", &[]).await.expect(200);
    for wrong in ["ftp://a.example/b", &format!("{from}/missing")] {
        let wrong = ifmatch(&["import", wrong, &to]).await;
        assert_eq!(wrong.status.code(), Some(2), "{wrong:#?}");
    }
    assert!(!source.path().join("missing").exists());
}

/// A server with a fixed listing, and blobs that end early, are damaged, or change before they are written.
async fn interfering(blobs: &'static [&'static str], seen: Arc<Mutex<Vec<String>>>) -> Server {
    let respond = move |request: Request<Incoming>| {
        let seen = Arc::clone(&seen);
        async move {
            let condition = ["if-match", "if-none-match"].map(|name| request.headers().get(name).cloned());
            let condition = condition.into_iter().flatten().next();
            let line = format!("{} {} {condition:?}", request.method(), request.uri().path());
            // Reads the body, so the connection can be used again.
            let (method, path) = (request.method().clone(), request.uri().path().to_owned());
            request.into_body().collect().await.unwrap();
            seen.lock().unwrap().push(line);
            Ok::<_, Infallible>(answer(&method, &path, blobs))
        }
    };
    Server::start(service_fn(respond)).await
}

fn answer(method: &Method, path: &str, blobs: &[&str]) -> Answer {
    let response = Response::builder().header("etag", "\"theirs\"");
    let digest = ContentHash::of(b"0123456789").repr_digest().unwrap();
    match (method, path) {
        (&Method::GET, "/c") => {
            let listed: Vec<Value> = blobs.iter().map(|name| json!({ "name": name, "size": 10 })).collect();
            Response::new(full(json!({ "blobs": listed, "next": null }).to_string()))
        }
        (&Method::PUT, _) => response.status(412).body(full(r#"{"detail":"if-match failed"}"#)).unwrap(),
        (&Method::HEAD, "/c/nohash") => response.header("content-length", 10).body(full("")).unwrap(),
        (&Method::HEAD, _) => {
            response.header("content-length", 10).header("repr-digest", digest).body(full("")).unwrap()
        }
        (_, "/c/damaged") => response.header("repr-digest", digest).body(full("012345678X")).unwrap(),
        (&Method::GET, "/c/nohash") => Response::new(full("0123456789")),
        (_, "/c/stalled") => {
            let first = stream::iter([Ok(Frame::data(Bytes::from("01234")))]).chain(stream::pending());
            let response = response.header("repr-digest", digest).header("content-length", 10);
            response.body(StreamBody::new(first).boxed_unsync()).unwrap()
        }
        _ => response.header("repr-digest", digest).body(full("0123456789")).unwrap(),
    }
}

#[tokio::test]
async fn a_blob_that_another_writer_changes_is_reported_and_not_overwritten() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("old"), "changed!!!").unwrap();
    fs::write(folder.path().join("new"), "1").unwrap();
    let seen = Arc::default();
    let server = interfering(&["old"], Arc::clone(&seen)).await;
    let url = format!("http://{}/c", server.address());
    let conflict = ifmatch(&["import", folder.path().to_str().unwrap(), &url, "--json"]).await;
    assert_eq!(summary(&conflict, 3)["conflicts"], 2);
    assert_eq!(faults(&conflict), [("new", "conflict"), ("old", "conflict")].map(|(a, b)| (a.into(), b.into())).into());
    let mut writes: Vec<String> = seen.lock().unwrap().iter().filter(|line| line.starts_with("PUT")).cloned().collect();
    writes.sort();
    assert_eq!(writes, [r#"PUT /c/new Some("*")"#, r#"PUT /c/old Some("\"theirs\"")"#]);
}

#[tokio::test]
async fn damaged_bytes_and_taken_paths_leave_the_folder_as_it_is() {
    let (folder, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    symlink(outside.path(), folder.path().join("link")).unwrap();
    fs::create_dir_all(folder.path().join("folder/x")).unwrap();
    fs::write(folder.path().join("damaged"), "mine").unwrap();
    symlink(outside.path().join("y"), folder.path().join("file")).unwrap();
    let server = interfering(&["damaged", "file", "folder", "good", "link/x", "good/below"], Arc::default()).await;
    let url = format!("http://{}/c", server.address());
    let export = ["export", &url, folder.path().to_str().unwrap(), "--jobs", "1", "--json"];
    let damaged = ifmatch(&export).await;
    let summary = summary(&damaged, 3);
    assert_eq!((&summary["damaged"], &summary["conflicts"], &summary["written"]), (&1.into(), &4.into(), &1.into()));
    let expected = [("damaged", "mine"), ("good", "0123456789")];
    assert_eq!(files(folder.path()), expected.map(|(name, text)| (name.into(), text.into())).into());
    assert!(fs::read_dir(outside.path()).unwrap().next().is_none());
    assert!(!folder.path().join(".ifmatch-partial").exists());
}

#[tokio::test]
async fn an_export_that_was_killed_or_interrupted_continues_and_leaves_no_part_of_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let seen = Arc::<Mutex<Vec<String>>>::default();
    let server = interfering(&["whole", "stalled"], Arc::clone(&seen)).await;
    let url = format!("http://{}/c", server.address());
    let partial = folder.path().join(".ifmatch-partial");
    for (count, signal, code) in [(1, "KILL", None), (2, "INT", Some(130))] {
        let mut command = Gateway::command();
        command.args(["export", &url]).arg(folder.path()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let running = command.spawn().unwrap();
        let (whole, partial, seen) = (folder.path().join("whole"), partial.clone(), Arc::clone(&seen));
        let has_part = move || {
            // Not the part that the killed process has left.
            let asked = seen.lock().unwrap().iter().filter(|line| line.starts_with("GET /c/stalled")).count();
            if asked < count {
                return None;
            }
            let mut parts = fs::read_dir(&partial).ok()?.flatten();
            (whole.exists() && parts.any(|part| part.metadata().is_ok_and(|part| part.len() == 5))).then_some(())
        };
        tokio::task::spawn_blocking(move || eventually("a part of a file", has_part)).await.unwrap();
        let second = ifmatch(&["export", &url, folder.path().to_str().unwrap()]).await;
        assert_eq!(second.status.code(), Some(11), "{second:#?}");
        kill(signal, &running.id().to_string());
        let ended = running.wait_with_output().unwrap();
        assert_eq!(ended.status.code(), code, "{ended:#?}");
        assert!(!folder.path().join("stalled").exists());
    }
    assert!(!partial.exists());
    let calm = interfering(&["whole", "other", "nohash"], Arc::default()).await;
    let url = format!("http://{}/c", calm.address());
    for (written, unchanged) in [(2, 1), (0, 3)] {
        let rest = ifmatch(&["export", &url, folder.path().to_str().unwrap(), "--json"]).await;
        let rest = summary(&rest, 0);
        assert_eq!((&rest["written"], &rest["unchanged"]), (&written.into(), &unchanged.into()), "{rest}");
    }
}

/// A limit of the size of files stands for a full disk. The whole file is one write, and the last.
#[tokio::test]
async fn a_file_that_cannot_be_written_is_reported_and_gets_no_name() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = Gateway::start(["serve", "--store", "memory://"]);
    Client::new(gateway.address()).put("/docs/a", &[], "a".repeat(5_000)).await.expect(201);
    let mut limited = Command::new("sh");
    limited.args(["-c", r#"trap "" XFSZ; ulimit -f 1; exec "$0" "$@""#]).arg(Gateway::command().get_program());
    limited.args(["export", &gateway.url("/docs"), "--json"]).arg(folder.path());
    let ended = tokio::task::spawn_blocking(move || limited.output()).await.unwrap().unwrap();
    let stdout = String::from_utf8_lossy(&ended.stdout);
    assert_eq!(ended.status.code(), Some(1), "{ended:#?}");
    assert!(stdout.contains("File too large") && stdout.contains(r#""failed":1"#), "{stdout}");
    assert!(files(folder.path()).is_empty());
}

#[tokio::test]
async fn bodies_are_verified_through_a_running_gateway() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = serve(folder.path(), &[]);
    let client = Client::new(gateway.address());
    for number in 0..3 {
        client.put(&format!("/docs/{number}"), &[], number.to_string().repeat(20_000)).await.expect(201);
    }
    client.put("/more/small", &[], "small").await.expect(201);
    client.put("/more/large", &[], "large".repeat(10_000)).await.expect(201);
    let more = ifmatch(&["verify", "--url", &gateway.url("/more"), "--rate", "1GiB", "--json"]).await;
    let more = summary(&more, 0);
    assert_eq!((&more["bodies"], &more["bytes"], &more["without_hash"]), (&2.into(), &50_005.into(), &0.into()));

    // None of these was read before, so none is in the gateway's memory.
    let bodies = files(&folder.path().join("bodies")).into_iter().filter(|(_, bytes)| bytes.len() == 20_000);
    let damaged: Vec<_> = bodies.take(2).collect();
    let path = |number: usize| folder.path().join("bodies").join(&damaged[number].0);
    let mut bytes = damaged[0].1.clone();
    bytes[1_000] ^= 0x10;
    fs::write(path(0), bytes).unwrap();
    fs::remove_file(path(1)).unwrap();
    let blob = |number: usize| format!("docs/{}", char::from(damaged[number].1[0]));
    let found = ifmatch(&["verify", "--url", &gateway.url("/"), "--json"]).await;
    let summary = summary(&found, 3);
    assert_eq!((&summary["damaged"], &summary["bodies"]), (&2.into(), &5.into()), "{summary}");
    assert_eq!(faults(&found).into_keys().collect::<Vec<_>>(), {
        let mut blobs = [blob(0), blob(1)];
        blobs.sort();
        blobs
    });
    let missing = ifmatch(&["verify", "--url", &gateway.url("/missing")]).await;
    assert_eq!(missing.status.code(), Some(1), "{missing:#?}");
    let wrong = ifmatch(&["verify", "--url", "no-url"]).await;
    assert_eq!(wrong.status.code(), Some(2), "{wrong:#?}");
}
