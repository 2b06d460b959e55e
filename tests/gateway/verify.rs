//! `ifmatch verify` and `ifmatch gc` on a folder that a gateway has filled.

use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use futures_util::{StreamExt, stream};
use serde_json::Value;
use support::{Client, Gateway, run};

use crate::serve;

/// Puts a pipe in place of a body, and interrupts the verification of the folder while it reads the pipe.
fn interrupt(data: &str, body: &Path) -> Output {
    let bytes = fs::read(body).unwrap();
    fs::remove_file(body).unwrap();
    assert!(Command::new("mkfifo").arg(body).status().unwrap().success());
    let mut command = Gateway::command();
    command.args(["verify", "--data", data]).stdout(Stdio::piped()).stderr(Stdio::piped());
    let running = command.spawn().unwrap();
    let mut pipe = OpenOptions::new().write(true).open(body).unwrap();
    let pid = running.id().to_string();
    assert!(Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
    let zeros = vec![0; 65_536];
    let closed = loop {
        if let Err(error) = pipe.write_all(&zeros) {
            break error;
        }
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
        client.put(&format!("/docs/{number}"), &[], number.to_string().repeat(20_000)).await.expect(201);
    }
    client.put("/docs/small", &[], "in the index").await.expect(201);
    let refused = run(["verify", "--data", folder.to_str().unwrap()]);
    assert_eq!(refused.status.code(), Some(11), "{refused:#?}");
    assert!(refused.stderr.contains("another process uses the data folder"), "{}", refused.stderr);
    gateway.stop();
    let shards = fs::read_dir(folder.join("bodies")).unwrap().map(|shard| shard.unwrap().path());
    let files: Vec<_> =
        shards.flat_map(|shard| fs::read_dir(shard).unwrap()).map(|file| file.unwrap().path()).collect();
    assert_eq!(files.len(), 4, "{files:?}");
    files
}

#[tokio::test]
async fn damage_is_listed_with_exit_code_3_and_superfluous_files_are_removed() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().to_str().unwrap();
    let files = fill(folder.path()).await;
    let intact = run(["verify", "--data", data]);
    assert_eq!(intact.status.code(), Some(0), "{intact:#?}");
    assert!(intact.stdout.contains("read 5 bodies") && intact.stdout.contains("0 damaged"), "{}", intact.stdout);

    let mut bytes = fs::read(&files[0]).unwrap();
    bytes[1_000] ^= 0x10;
    fs::write(&files[0], bytes).unwrap();
    let superfluous = files[1].with_file_name(format!("{}-{:016x}", "0".repeat(64), 1));
    fs::copy(&files[1], &superfluous).unwrap();
    fs::remove_file(&files[2]).unwrap();
    let damaged = run(["verify", "--data", data, "--json"]);
    assert_eq!(damaged.status.code(), Some(3), "{damaged:#?}");
    let lines: Vec<Value> = damaged.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let files_of = |kind: &str| -> Vec<&str> {
        let of_kind = lines.iter().filter(|line| line["message"] == "damage" && line["kind"] == kind);
        of_kind.map(|line| line["file"].as_str().unwrap()).collect()
    };
    assert_eq!(files_of("changed"), [files[0].to_str().unwrap()]);
    assert_eq!(files_of("missing"), [files[2].to_str().unwrap()]);
    assert_eq!(files_of("superfluous"), [superfluous.to_str().unwrap()]);
    let summary = lines.last().unwrap();
    assert_eq!((&summary["message"], &summary["damaged"]), (&Value::from("summary"), &Value::from(2)), "{summary}");

    let listed = run(["gc", "--data", data, "--dry-run"]);
    assert!(listed.stdout.contains(superfluous.to_str().unwrap()) && superfluous.exists(), "{listed:#?}");
    let removed = run(["gc", "--data", data]);
    assert_eq!(removed.status.code(), Some(0), "{removed:#?}");
    assert!(!superfluous.exists() && files[1].exists());
}

#[tokio::test]
async fn an_interrupted_run_ends_with_130_and_continues() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().to_str().unwrap();
    let files = fill(folder.path()).await;
    let stopped = interrupt(data, &files[0]);
    assert_eq!(stopped.status.code(), Some(130), "{stopped:#?}");
    assert!(String::from_utf8_lossy(&stopped.stderr).contains("continue with --resume"));
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
    let small = (0..1_000).map(|number| client.put(format!("/docs/{number:03}").leak(), &[], "in the index"));
    stream::iter(small).buffer_unordered(32).for_each(async |written| drop(written.expect(201))).await;
    client.put("/docs/!first", &[], "a".repeat(20_000)).await.expect(201);
    client.put("/docs/last", &[], "b".repeat(30_000)).await.expect(201);
    gateway.stop();
    let shards =
        fs::read_dir(folder.path().join("bodies")).unwrap().flat_map(|shard| fs::read_dir(shard.unwrap().path()));
    let (mut first, mut last) = (PathBuf::new(), PathBuf::new());
    for body in shards.flatten().map(Result::unwrap) {
        let of = if body.metadata().unwrap().len() == 20_000 { &mut first } else { &mut last };
        *of = body.path();
    }
    fs::write(&first, "c".repeat(20_000)).unwrap();
    let stopped = interrupt(data, &last);
    assert_eq!(stopped.status.code(), Some(130), "{stopped:#?}");
    assert!(String::from_utf8_lossy(&stopped.stdout).contains("docs/!first: the bytes differ"), "{stopped:#?}");
    let rest = run(["verify", "--data", data, "--resume"]);
    assert_eq!(rest.status.code(), Some(3), "{rest:#?}");
    assert!(rest.stderr.contains("1 of 1002 bodies damaged or missing"), "{rest:#?}");
    assert!(rest.stdout.contains("read 2 bodies") && rest.stdout.contains("1 damaged"), "{rest:#?}");
}

#[tokio::test]
async fn one_body_is_singular_and_a_folder_with_a_url_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().to_str().unwrap();
    let mut gateway = serve(folder.path(), &[]);
    Client::new(gateway.address()).put("/docs/a", &[], "a").await.expect(201);
    let url = gateway.url("/");
    let both = run(["verify", "--data", data, "--url", &url]);
    assert_eq!(both.status.code(), Some(2), "{both:#?}");
    assert!(both.stderr.contains("--data <DIR>' cannot be used with '--url"), "{both:#?}");
    for (args, variable) in [(&["--url", &url][..], "unused"), (&[], data)] {
        if args.is_empty() {
            gateway.stop();
        }
        let output = Gateway::command().arg("verify").args(args).env("IFMATCH_DATA", variable).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{output:#?}");
        assert!(String::from_utf8_lossy(&output.stdout).contains("read 1 body with 1 B"), "{output:#?}");
    }
}

#[test]
fn a_folder_without_a_store_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    for command in ["verify", "gc"] {
        let refused = run([command, "--data", folder.path().to_str().unwrap()]);
        assert_eq!(refused.status.code(), Some(2), "{refused:#?}");
        assert!(refused.stderr.contains("contains no store"), "{}", refused.stderr);
    }
    let missing = run(["verify", "--data", folder.path().join("none").to_str().unwrap()]);
    assert!(missing.stderr.contains("does not exist"), "{}", missing.stderr);
    let wrong = run(["verify", "--data", "x", "--sample", "5"]);
    assert_eq!(wrong.status.code(), Some(2), "{wrong:#?}");
    assert!(wrong.stderr.contains("5%"), "{}", wrong.stderr);
}
