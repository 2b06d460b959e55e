//! The layer's cost per request, in instructions, beside the bare service and a layer of tower-http.

use xtask::Result;
use xtask::command::Run;
use xtask::workspace::Workspace;

use crate::programs;

/// Requests of the shorter and of the longer run. The difference leaves out the start, and what the first requests set up.
const COUNTS: (u64, u64) = (1_000, 3_000);

/// Services of benches/layer, with their names in the table.
const SERVICES: [(&str, &str); 5] = [
    ("bare", "bare"),
    ("set-header", "`SetResponseHeaderLayer`"),
    ("hashing", "the layer, hashing"),
    ("versions", "the layer, handlers check versions"),
    ("authoritative", "the layer, authoritative"),
];

/// Requests of benches/layer, with their names in the table.
const KINDS: [(&str, &str); 4] = [
    ("get", "GET: 200"),
    (
        "not-modified",
        "GET with If-None-Match: 304, or the bare 200",
    ),
    ("put", "PUT with If-Match"),
    ("connection", "a connection's first GET"),
];

/// Measures, and prints the table of benches/benchmarks.md.
pub(crate) fn run(workspace: &Workspace) -> Result {
    let program = programs::layer(workspace)?;
    let count = |service: &str, kind: &str, requests: u64| -> Result<u64> {
        let report = Run::new("valgrind", workspace.root())
            .args([
                "--tool=callgrind",
                "--callgrind-out-file=/dev/null",
                "--log-fd=1",
            ])
            .args([&program])
            .args([service, kind, &requests.to_string()])
            .output()?;
        let collected = report
            .lines()
            .find_map(|line| line.split_once("Collected : "))
            .map(|(_, number)| number.trim());
        collected
            .and_then(|number| number.parse().ok())
            .ok_or_else(|| {
                format!("valgrind counted no instructions of {service}, {kind}: {report}").into()
            })
    };
    println!(
        "| instructions per request | {} |",
        KINDS.map(|(_, title)| title).join(" | ")
    );
    println!("|---{}|", "|---".repeat(KINDS.len()));
    for (service, title) in SERVICES {
        let cells = KINDS.map(|(kind, _)| -> Result<String> {
            let (short, long) = (
                count(service, kind, COUNTS.0)?,
                count(service, kind, COUNTS.1)?,
            );
            Ok(((long - short) / (COUNTS.1 - COUNTS.0)).to_string())
        });
        println!(
            "| {title} | {} |",
            cells.into_iter().collect::<Result<Vec<_>>>()?.join(" | ")
        );
    }
    Ok(())
}
