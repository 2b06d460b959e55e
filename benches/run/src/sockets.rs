//! Servers under load in turns: the layer and the gateway, a bare hyper service with the same header fields, nginx and Varnish.

use std::path::Path;
use std::time::Instant;

use crate::exchange::Answer;
use crate::peers::{NGINX_TOOL, VARNISH_TOOL};
use crate::rounds::{self, Measured};
use crate::subject::{Row, Subject, TWO_CORES, WRK};
use crate::{cache, peers, programs};
use xtask::Result;
use xtask::command::Run;
use xtask::step::Tool;
use xtask::workspace::Workspace;

const TOOLS: &[Tool] = &[WRK, NGINX_TOOL, VARNISH_TOOL, TWO_CORES];

/// A 304, and a 200 of 1 KiB and of 64 KiB.
const ROWS: &[Row] = cache::ROWS.split_at(3).0;

const GATEWAY: &str = "gateway";
const GATEWAY_TWIN: &str = "hyper, gateway's fields";
const HASHED: &str = "layer, hashing";
const TAGGED: &str = "layer, own tags";
const LAYER_TWIN: &str = "hyper, layer's fields";
const NGINX: &str = "nginx";

/// Compared pairs.
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
    let dir = rounds::folder(workspace)?;
    let subjects = start(workspace, &dir)?;
    let measured = Measured::take(ROWS, &subjects, quick, &dir, deadline)?;
    let pairs = RATIOS
        .iter()
        .map(|(one, other)| Ok((measured.at(one)?, measured.at(other)?)));
    measured.print(&pairs.collect::<Result<Vec<_>>>()?);
    Ok(())
}

/// Starts all servers and fills their caches.
fn start(workspace: &Workspace, dir: &Path) -> Result<Vec<Subject>> {
    let (gateway, server) = (programs::gateway(workspace)?, programs::server(workspace)?);
    let ours = |name, kind: &str, fields: &[String]| {
        let command = |run: Run, address: std::net::SocketAddr| {
            run.args([&server])
                .args([kind, &address.to_string()])
                .args(fields)
        };
        Subject::start(name, "", command, dir)
    };
    let data = dir.join("data");
    let serve = |run: Run, address: std::net::SocketAddr| {
        run.args([&gateway])
            .args([
                "serve",
                "--listen",
                &address.to_string(),
                "--listen-tables",
                "off",
                "--data",
            ])
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
    rounds::warm(ROWS, &subjects)?;
    Ok(subjects)
}

/// Returns the header fields of a server's 200 and 304, as arguments of the bare service.
fn fields(subject: &Subject) -> Result<Vec<String>> {
    let mut fields = Vec::new();
    for row in [&ROWS[1], &ROWS[0]] {
        let Answer {
            status,
            fields: sent,
            ..
        } = subject.check(row)?;
        // hyper adds these itself.
        let own = ["date", "content-length", "connection"];
        let kept = sent
            .into_iter()
            .filter(|(name, _)| !own.contains(&name.as_str()));
        fields.extend(kept.map(|(name, value)| format!("{status} {name}: {value}")));
    }
    Ok(fields)
}
