//! Servers under load: ours beside a bare hyper service with the same header fields, nginx and Varnish, in turns.

use std::fs;
use std::path::Path;
use std::time::Instant;

use crate::Result;
use crate::bench::exchange::Answer;
use crate::bench::report::{self, Cell};
use crate::bench::subject::{Row, Subject};
use crate::bench::{load, peers, programs};
use crate::command::Run;
use crate::step::Tool;
use crate::workspace::Workspace;

const TOOLS: &[Tool] = &[
    Tool { probe: &["which", "wrk"], install: INSTALL },
    Tool { probe: &["nginx", "-v"], install: INSTALL },
    Tool { probe: &["varnishd", "-V"], install: INSTALL },
    Tool { probe: &["taskset", "-c", "0,1", "true"], install: "a machine with two cores" },
];
const INSTALL: &str = "apt-get install -y wrk nginx-light varnish";

const ROWS: &[Row] = &[
    Row { name: "304", file: "1k", len: 1024, revalidates: true },
    Row { name: "200, 1 KiB", file: "1k", len: 1024, revalidates: false },
    Row { name: "200, 64 KiB", file: "64k", len: 65_536, revalidates: false },
];

const GATEWAY: &str = "gateway";
const GATEWAY_TWIN: &str = "hyper, gateway's fields";
const HASHED: &str = "layer, hashing";
const TAGGED: &str = "layer, own tags";
const LAYER_TWIN: &str = "hyper, layer's fields";
const NGINX: &str = "nginx";

/// What is compared with what.
const RATIOS: &[(&str, &str)] = &[
    (GATEWAY, GATEWAY_TWIN),
    (GATEWAY, NGINX),
    (HASHED, LAYER_TWIN),
    (HASHED, NGINX),
    (TAGGED, LAYER_TWIN),
    (TAGGED, NGINX),
];

/// Measures and prints the tables.
pub(crate) fn run(workspace: &Workspace, quick: bool, deadline: Instant) -> Result {
    TOOLS.iter().try_for_each(|tool| tool.require(workspace))?;
    let dir = workspace.target().join("bench");
    if dir.exists() {
        fs::remove_dir_all(&dir)?;
    }
    fs::create_dir_all(&dir)?;
    let subjects = start(workspace, &dir)?;
    let (rounds, seconds) = if quick { (1, 1) } else { (5, 3) };
    let cells = measure(&subjects, rounds, seconds, &dir, deadline)?;
    let names: Vec<&str> = subjects.iter().map(Subject::name).collect();
    print(&names, &cells)
}

/// Starts all servers and has each answer each row, so that caches are full.
fn start(workspace: &Workspace, dir: &Path) -> Result<Vec<Subject>> {
    let (gateway, server) = (programs::gateway(workspace)?, programs::server(workspace)?);
    let ours = |name, kind: &str, fields: &[String]| {
        let command = |run: Run, address: std::net::SocketAddr| {
            run.args([&server]).args([kind, &address.to_string()]).args(fields)
        };
        Subject::start(name, "", command, dir)
    };
    let data = dir.join("data");
    let serve = |run: Run, address: std::net::SocketAddr| {
        run.args([&gateway])
            .args(["serve", "--listen", &address.to_string(), "--listen-tables", "off", "--data"])
            .args([&data])
    };
    let gateway = Subject::start(GATEWAY, "/bench", serve, dir)?;
    for row in &ROWS[1..] {
        gateway.put(row.file, row.len)?;
    }
    let hashed = ours(HASHED, "hashed", &[])?;
    let nginx = peers::nginx(ROWS, dir)?;
    let subjects = vec![
        ours(GATEWAY_TWIN, "bare", &fields(&gateway)?)?,
        gateway,
        ours(LAYER_TWIN, "bare", &fields(&hashed)?)?,
        hashed,
        ours(TAGGED, "tagged", &[])?,
        peers::varnish(&nginx, dir)?,
        nginx,
        peers::nginx_open_files(ROWS, dir)?,
    ];
    for subject in &subjects {
        for row in ROWS.iter().rev() {
            subject.check(row)?;
        }
    }
    Ok(subjects)
}

/// The header fields that a server sends with 200 and with 304, as the bare service takes them.
fn fields(subject: &Subject) -> Result<Vec<String>> {
    let mut fields = Vec::new();
    for row in [&ROWS[1], &ROWS[0]] {
        let Answer { status, fields: sent, .. } = subject.check(row)?;
        // hyper adds these by itself.
        let own = ["date", "content-length", "connection"];
        let kept = sent.into_iter().filter(|(name, _)| !own.contains(&name.as_str()));
        fields.extend(kept.map(|(name, value)| format!("{status} {name}: {value}")));
    }
    Ok(fields)
}

/// The cells, by row and by subject. Each round begins with another server.
fn measure(subjects: &[Subject], rounds: usize, seconds: u32, dir: &Path, deadline: Instant) -> Result<Vec<Vec<Cell>>> {
    let mut cells = vec![vec![Cell::new(); subjects.len()]; ROWS.len()];
    for round in 0..rounds {
        println!("round {} of {rounds}", round + 1);
        for (row, cells) in ROWS.iter().zip(&mut cells) {
            for at in (0..subjects.len()).map(|at| (at + round) % subjects.len()) {
                if Instant::now() > deadline {
                    return Err("the time is over".into());
                }
                let subject = &subjects[at];
                let (path, fields) = (subject.path(row.file), subject.fields(row)?);
                cells[at].push(load::measure(subject, &path, &fields, seconds, dir)?);
                subject.check(row)?;
            }
        }
    }
    Ok(cells)
}

fn print(names: &[&str], cells: &[Vec<Cell>]) -> Result {
    let rows: Vec<&str> = ROWS.iter().map(|row| row.name).collect();
    let at = |name: &str| names.iter().position(|known| *known == name).ok_or("a ratio of unknown servers");
    let pairs = RATIOS.iter().map(|(one, other)| Ok((at(one)?, at(other)?))).collect::<Result<Vec<_>>>()?;
    let ratios: Vec<String> = RATIOS.iter().map(|(one, other)| format!("{one} / {other}")).collect();
    let ratios: Vec<&str> = ratios.iter().map(String::as_str).collect();
    let print = |text: String| println!("{text}");
    print(report::table("requests/s, thousands", &rows, names, |row, column| report::rate(&cells[row][column])));
    print(report::table("server's µs a request", &rows, names, |row, column| report::cpu(&cells[row][column])));
    print(report::table("ratio of requests/s", &rows, &ratios, |row, column| {
        report::ratio(&cells[row][pairs[column].0], &cells[row][pairs[column].1])
    }));
    Ok(())
}
