//! The arguments in the files for Kubernetes start gateways that are ready, over TLS and S3, and that accept writes.

use std::fs;
use std::path::Path;
use std::process::Command;

use ifmatch_testbed::{postgres, s3};
use support::tls::Files;
use support::{Gateway, run_command};
use tokio::task::block_in_place;

const ONE: &str = include_str!("../../packaging/kubernetes/statefulset.yaml");
const SEVERAL: &str = include_str!("../../packaging/kubernetes/gateways.yaml");

/// Returns the arguments of each container.
fn arguments(file: &str) -> Vec<Vec<&str>> {
    let mut lines = file.lines().map(str::trim).peekable();
    let mut all = Vec::new();
    while let Some(line) = lines.next() {
        let Some(list) = line.strip_prefix("args:") else {
            continue;
        };
        let mut arguments: Vec<_> = list.trim().trim_matches(['[', ']']).split(", ").collect();
        arguments.retain(|argument| !argument.is_empty());
        while let Some(argument) = lines.next_if(|line| line.starts_with("- ")) {
            arguments.push(&argument[2..]);
        }
        all.push(arguments);
    }
    all
}

/// The volumes of a container, with the names of the files for Kubernetes.
fn volumes(folder: &Path, certificate: &Files) {
    for volume in ["data", "secrets", "tls"] {
        fs::create_dir(folder.join(volume)).unwrap();
    }
    for (token, text) in [
        ("write.token", "write-token-of-the-test"),
        ("read.token", "read-token-of-the-test"),
    ] {
        fs::write(folder.join("secrets").join(token), text).unwrap();
    }
    for (from, to) in [("cert.pem", "tls.crt"), ("key.pem", "tls.key")] {
        fs::copy(certificate.path(from), folder.join("tls").join(to)).unwrap();
    }
}

/// Returns a command with the arguments of a container, on this machine's folders and ports.
fn command(arguments: &[&str], folder: &Path) -> Command {
    let mut command = Gateway::command();
    for argument in arguments {
        let mut argument = (*argument).to_owned();
        for (there, here) in [
            ("=/", format!("={}/", folder.display())),
            ("s3://my-bucket", "s3://bucket".to_owned()),
        ] {
            argument = argument.replace(there, &here);
        }
        if let Some((flag, _)) = argument.split_once("=0.0.0.0:") {
            argument = format!("{flag}=127.0.0.1:0");
        }
        command.arg(argument);
    }
    command
}

/// Locks a blob by a gateway, as the holder of the write token.
fn lock(scheme: &str, gateway: &Gateway, folder: &Path, certificate: &Files) {
    let mut command = Gateway::command();
    command.args([
        "lock",
        &format!(
            "{scheme}://localhost:{}/docs/leader",
            gateway.address().port()
        ),
    ]);
    command
        .arg("--token-file")
        .arg(folder.join("secrets/write.token"));
    command.arg("--ca").arg(certificate.path("cert.pem"));
    let finished = run_command(command.args(["--", "true"]));
    assert_eq!(finished.status.code(), Some(0), "{}", finished.stderr);
}

#[tokio::test(flavor = "multi_thread")]
async fn several_gateways_start_as_in_the_file_for_kubernetes() {
    let (bucket, register) = (s3::start().await, postgres::start(&[]).await);
    let (folder, certificate) = (tempfile::tempdir().unwrap(), Files::new());
    volumes(folder.path(), &certificate);
    let [migrate, serve] = &arguments(SEVERAL)[..] else {
        panic!("two containers")
    };
    let prepared = |arguments: &[&str]| {
        let mut command = command(arguments, folder.path());
        command
            .env("IFMATCH_REGISTER", register.url())
            .env("IFMATCH_ACCOUNTS", "team:c2VjcmV0LXNlY3JldA==");
        command.envs(bucket.settings());
        command
    };
    block_in_place(|| {
        let migrated = run_command(&mut prepared(migrate));
        assert_eq!(migrated.status.code(), Some(0), "{}", migrated.stderr);
        let mut gateways = [(); 2].map(|()| Gateway::launch(prepared(serve)));
        for gateway in &mut gateways {
            lock("https", gateway, folder.path(), &certificate);
            assert_ne!(gateway.s3().port(), gateway.address().port());
        }
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn one_gateway_starts_as_in_the_file_for_kubernetes() {
    let (folder, certificate) = (tempfile::tempdir().unwrap(), Files::new());
    volumes(folder.path(), &certificate);
    let [serve] = &arguments(ONE)[..] else {
        panic!("one container")
    };
    block_in_place(|| {
        lock(
            "http",
            &Gateway::launch(command(serve, folder.path())),
            folder.path(),
            &certificate,
        );
    });
}
