//! The servers for S3, each with the bucket `box`, and the environment of a client.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use super::Site;
use super::servers::{self, Started, put, started, version};
use xtask::command::Run;
use xtask::sdk::{ACCOUNT, KEY};
use xtask::step::Context;
use xtask::{Result, listening, npm};

/// Folder of the lock file of s3rver.
const S3RVER: &str = "tests/scoreboard";
/// Version of s3s-fs, which is built from its source.
const S3S_FS: &str = "s3s-fs@0.14.1";

pub(super) fn gateway(site: &Site<'_>, folder: &Path) -> Result<Started> {
    serve(site, folder, |run| run.args(["--data", "files"]))
}

/// The gateway in front of a server that ignores conditions.
pub(super) fn before_s3rver(site: &Site<'_>, folder: &Path) -> Result<Started> {
    let behind = s3rver(site, folder)?;
    let started = serve(site, folder, |run| {
        let run = run.args(["--store", "s3://box/blobs", "--data", "records"]);
        behind
            .env
            .iter()
            .fold(run, |run, (name, value)| run.env(name, value))
    })?;
    Ok(Started {
        running: behind.running.into_iter().chain(started.running).collect(),
        ..started
    })
}

fn serve(site: &Site<'_>, folder: &Path, store: impl FnOnce(Run) -> Run) -> Result<Started> {
    let (blobs, objects) = (listening::free_address()?, listening::free_address()?);
    let run = Run::new(&site.gateway, folder).args(["serve", "--listen", &blobs.to_string()]);
    let run = run.args([
        "--listen-tables",
        "off",
        "--console",
        "off",
        "--listen-s3",
        &objects.to_string(),
    ]);
    let mut running = store(run).start_with_log(&folder.join("output.log"))?;
    listening::wait("ifmatch", blobs, || running.still_runs())?;
    let started = started(
        "ifmatch for S3",
        objects,
        "",
        &version(&site.gateway),
        vec![running],
    )?;
    // The first blob creates the bucket.
    put(blobs, "/box/first")?;
    Ok(of_bucket(started, objects, ACCOUNT, KEY))
}

pub(super) fn moto(site: &Site<'_>, folder: &Path) -> Result<Started> {
    let moto = servers::moto(site, folder)?;
    let address = moto
        .url
        .trim_start_matches("http://")
        .trim_end_matches("/box")
        .parse()?;
    Ok(of_bucket(
        Started {
            headers: &[],
            ..moto
        },
        address,
        "any",
        "any",
    ))
}

pub(super) fn s3rver(site: &Site<'_>, folder: &Path) -> Result<Started> {
    npm::require(site.context.workspace, S3RVER, site.context.deadline)?;
    let package = site
        .context
        .workspace
        .root()
        .join(S3RVER)
        .join("node_modules/s3rver");
    let address = listening::free_address()?;
    let (host, port) = (address.ip().to_string(), address.port().to_string());
    let run = Run::new("node", folder).args([package.join("bin/s3rver.js")]);
    let run = run.args([
        "--directory",
        "files",
        "--address",
        &host,
        "--port",
        &port,
        "--configure-bucket",
        "box",
    ]);
    let version = format!(
        "node --print \"'s3rver ' + require('{}').version\"",
        package.join("package.json").display()
    );
    let started = started(
        "s3rver",
        address,
        "",
        &version,
        vec![run.start_with_log(&folder.join("output.log"))?],
    )?;
    Ok(of_bucket(started, address, "S3RVER", "S3RVER"))
}

/// Builds s3s-fs, and returns its program.
pub(crate) fn s3s_fs_program(context: &Context<'_>) -> Result<PathBuf> {
    let root = context.workspace.target().join("scoreboard/s3s-fs");
    let install = [
        "install",
        "--quiet",
        "--locked",
        S3S_FS,
        "--features",
        "binary",
        "--root",
    ];
    Run::new("cargo", context.workspace.root())
        .args(install)
        .args([&root])
        .passes(context.deadline)?;
    Ok(root.join("bin/s3s-fs"))
}

pub(super) fn s3s_fs(site: &Site<'_>, folder: &Path) -> Result<Started> {
    let program = s3s_fs_program(&site.context)?;
    fs::create_dir_all(folder.join("files/box"))?;
    let address = listening::free_address()?;
    let (host, port) = (address.ip().to_string(), address.port().to_string());
    let run = Run::new(program, folder).args(["--host", &host, "--port", &port]);
    let run = run.args(["--access-key", "key", "--secret-key", "secret", "files"]);
    let running = vec![run.start_with_log(&folder.join("output.log"))?];
    let started = started("s3s-fs", address, "", &format!("echo {S3S_FS}"), running)?;
    Ok(of_bucket(started, address, "key", "secret"))
}

fn of_bucket(started: Started, address: SocketAddr, key: &str, secret: &str) -> Started {
    let env = vec![
        ("AWS_ENDPOINT", format!("http://{address}")),
        ("AWS_ALLOW_HTTP", "true".to_owned()),
        ("AWS_ACCESS_KEY_ID", key.to_owned()),
        ("AWS_SECRET_ACCESS_KEY", secret.to_owned()),
        ("AWS_REGION", "us-east-1".to_owned()),
    ];
    Started {
        url: "s3://box".to_owned(),
        env,
        ..started
    }
}
