//! `cargo xtask scoreboard`: runs `ifmatch check --suite` on several servers on this machine, and writes the results to
//! benches/scoreboard.md.

mod page;
mod s3;
mod servers;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use clap::Args;
use serde_json::Value;

pub(crate) use self::s3::s3s_fs_program;
pub(crate) use self::servers::put;
use self::servers::{Part, SERVERS, Started};
use xtask::Result;
use xtask::command::Run;
use xtask::step::Context;
use xtask::workspace::Workspace;

use crate::programs;

/// Time limit, with the build of the gateway and the Worker.
const LIMIT: Duration = Duration::from_hours(2);

/// Options of `cargo xtask scoreboard`.
#[derive(Args)]
pub(crate) struct Options {
    /// Checks only this server, and writes no page. May be repeated.
    #[arg(long, value_name = "SERVER")]
    only: Vec<String>,
    /// Leaves this server out, for example the Worker, whose build takes long. May be repeated.
    #[arg(long, value_name = "SERVER")]
    except: Vec<String>,
    /// Checks the servers for S3 alone, and writes their part of the page.
    #[arg(long)]
    s3: bool,
}

/// The results of one server.
struct Score {
    name: &'static str,
    part: Part,
    version: String,
    /// Output of `ifmatch check --json`.
    report: Value,
}

/// Folders and programs for all servers.
struct Site<'a> {
    context: Context<'a>,
    gateway: PathBuf,
    /// A folder that processes of any user can write.
    folder: PathBuf,
}

/// Checks the selected servers, by default all.
pub(crate) fn run(options: &Options) -> Result {
    let given = || options.only.iter().chain(&options.except);
    if let Some(unknown) = given().find(|name| SERVERS.iter().all(|server| server.name != **name)) {
        let names: Vec<&str> = SERVERS.iter().map(|server| server.name).collect();
        return Err(format!("there is no server `{unknown}`, but {}", names.join(", ")).into());
    }
    let workspace = Workspace::load()?;
    let context = Context {
        workspace: &workspace,
        deadline: Instant::now() + LIMIT,
    };
    let chosen: Vec<_> = SERVERS
        .iter()
        .filter(|server| {
            options.only.is_empty() || options.only.iter().any(|name| name == server.name)
        })
        .filter(|server| options.except.iter().all(|name| name != server.name))
        .filter(|server| !options.s3 || server.part == Part::S3)
        .collect();
    chosen
        .iter()
        .flat_map(|server| server.needs)
        .try_for_each(|tool| tool.require(&workspace))?;
    let gateway = programs::gateway(&workspace)?;
    let folder = std::env::temp_dir().join(format!("ifmatch-scoreboard-{}", std::process::id()));
    let site = Site {
        context,
        gateway,
        folder,
    };
    let scores = chosen
        .iter()
        .map(|server| site.score(server))
        .collect::<Result<Vec<_>>>();
    fs::remove_dir_all(&site.folder)?;
    let scores = scores?;
    for part in [Part::Http, Part::S3] {
        let scores: Vec<_> = scores.iter().filter(|score| score.part == part).collect();
        if !scores.is_empty() {
            println!("\n{}", page::table(part, &scores));
            if options.only.is_empty() {
                page::write(&workspace, part, &scores)?;
            }
        }
    }
    Ok(())
}

impl Site<'_> {
    fn score(&self, server: &servers::Server) -> Result<Score> {
        println!("\n== {}", server.name);
        let folder = self.folder.join(server.name.replace(' ', "-"));
        fs::create_dir_all(folder.join("files"))?;
        Run::new("chmod", &self.folder)
            .args(["-R", "a+rwX", "."])
            .output()?;
        let log = folder.join("output.log");
        let failed = |error| format!("{error}\n{}", fs::read_to_string(&log).unwrap_or_default());
        let started = (server.start)(self, &folder).map_err(failed)?;
        let report = self
            .check(&started)
            .map_err(|error| format!("{}: {error}", server.name))?;
        let version = first_line(&started.version)?;
        Ok(Score {
            name: server.name,
            part: server.part,
            version,
            report,
        })
    }

    fn check(&self, started: &Started) -> Result<Value> {
        let mut command = Command::new(&self.gateway);
        command
            .args(["check", "--suite", "--json"])
            .arg(&started.url);
        for header in started.headers {
            command.args(["--header", header]);
        }
        let output = command.envs(started.env.iter().cloned()).output()?;
        // 3: a server that doesn't honour conditions.
        if !matches!(output.status.code(), Some(0 | 3)) {
            return Err(String::from_utf8_lossy(&output.stderr).into_owned().into());
        }
        Ok(serde_json::from_slice(&output.stdout)?)
    }
}

/// Returns the first line of a command's output, on either stream.
fn first_line(command: &str) -> Result<String> {
    let output = Run::new("sh", Path::new("."))
        .args(["-c", &format!("{{ {command}; }} 2>&1")])
        .output()?;
    Ok(output.lines().next().unwrap_or_default().trim().to_owned())
}
