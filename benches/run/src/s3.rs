//! Reads and conditional writes of 1 KiB: the dialect of S3 compared with the plain dialect, s3s-fs and moto.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Instant;

use crate::rounds::{self, Measured};
use crate::subject::{CLIENT_CORE, Subject, TWO_CORES};
use crate::{load, programs, scoreboard};
use xtask::Result;
use xtask::command::Run;
use xtask::listening;
use xtask::sdk::{self, ACCOUNT, KEY};
use xtask::step::{Context, Tool};
use xtask::workspace::Workspace;

const TOOLS: &[Tool] = &[sdk::PYTHON, TWO_CORES];

const PLAIN: &str = "gateway, plain";
const S3: &str = "gateway, S3";
const S3S_FS: &str = "s3s-fs";
const MOTO: &str = "moto";

/// The access key and the secret key of s3s-fs.
const S3S_FS_KEYS: (&str, &str) = ("key", "secret");

/// Compared pairs.
const RATIOS: &[(&str, &str)] = &[(S3, PLAIN), (S3, S3S_FS), (S3, MOTO)];
/// Name of each row, and the word of benches/s3 for it.
const ROWS: [(&str, &str); 2] = [("GET", "get"), ("PUT with If-Match", "put")];

/// Measures and prints the tables. Only the gateway waits for the disk, and only moto keeps its objects in memory.
pub(crate) fn run(workspace: &Workspace, quick: bool, deadline: Instant) -> Result {
    TOOLS.iter().try_for_each(|tool| tool.require(workspace))?;
    let program = programs::s3(workspace)?;
    let dir = rounds::folder(workspace)?;
    let subjects = start(workspace, &dir, deadline)?;
    let measured = Measured::each(
        ROWS.map(|(name, _)| name).to_vec(),
        &subjects,
        quick,
        deadline,
        |row, subject| {
            let dialect = if subject.name() == PLAIN {
                "plain"
            } else {
                "s3"
            };
            let (key, secret) = if subject.name() == S3S_FS {
                S3S_FS_KEYS
            } else {
                (ACCOUNT, KEY)
            };
            let run = Run::new("taskset", &dir)
                .args(["-c", CLIENT_CORE])
                .args([&program]);
            load::run(
                subject,
                run.args([
                    ROWS[row].1,
                    dialect,
                    &subject.address().to_string(),
                    key,
                    secret,
                ]),
            )
        },
    )?;
    let pairs = RATIOS
        .iter()
        .map(|(one, other)| Ok((measured.at(one)?, measured.at(other)?)));
    measured.print(&pairs.collect::<Result<Vec<_>>>()?);
    Ok(())
}

fn start(workspace: &Workspace, dir: &Path, deadline: Instant) -> Result<Vec<Subject>> {
    let context = Context {
        workspace,
        deadline,
    };
    let gateway = programs::gateway(workspace)?;
    let serve = |run: Run, data: &str| {
        run.args([&gateway]).args([
            "serve",
            "--listen-tables",
            "off",
            "--console",
            "off",
            "--data",
            data,
        ])
    };
    let plain = |run: Run, address: SocketAddr| {
        serve(run, "plain").args(["--listen", &address.to_string()])
    };
    let blobs = listening::free_address()?;
    let s3 = |run: Run, address: SocketAddr| {
        serve(run, "s3").args([
            "--listen",
            &blobs.to_string(),
            "--listen-s3",
            &address.to_string(),
        ])
    };
    let s3s_fs = scoreboard::s3s_fs_program(&context)?;
    fs::create_dir_all(dir.join("files/bench"))?;
    let filesystem = |run: Run, address: SocketAddr| {
        let (host, port) = (address.ip().to_string(), address.port().to_string());
        let run = run.args([&s3s_fs]).args(["--host", &host, "--port", &port]);
        let (key, secret) = S3S_FS_KEYS;
        run.args(["--access-key", key, "--secret-key", secret, "files"])
    };
    let python = sdk::python(
        &context,
        &workspace.target().join("scoreboard"),
        "tests/scoreboard/requirements.txt",
    )?;
    let emulate = |run: Run, address: SocketAddr| {
        let (host, port) = (address.ip().to_string(), address.port().to_string());
        run.args([&python])
            .args(["-m", "moto.server", "-H", &host, "-p", &port])
    };
    let subjects = vec![
        Subject::start(PLAIN, "/bench", plain, dir)?,
        Subject::start(S3, "/bench", s3, dir)?,
        Subject::start(S3S_FS, "/bench", filesystem, dir)?,
        Subject::start(MOTO, "/bench", emulate, dir)?,
    ];
    // The first blob creates the container.
    for address in [subjects[0].address(), blobs] {
        scoreboard::put(address, "/bench/first")?;
    }
    scoreboard::put(subjects[3].address(), "/bench")?;
    Ok(subjects)
}
