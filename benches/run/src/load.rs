//! The load: wrk on a separate core, and the server's CPU time during the run.

use std::path::Path;

use crate::subject::{CLIENT_CORE, Subject};
use xtask::Result;
use xtask::command::Run;

/// Number of persistent connections.
const CONNECTIONS: u32 = 32;

/// Result of one round on a server.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Round {
    /// Requests per second.
    pub(crate) rate: f64,
    /// CPU time per request in microseconds.
    pub(crate) cpu: f64,
}

/// Puts load on a server for a second. Other load on the host changes more slowly than the servers take turns.
pub(crate) fn measure(
    subject: &Subject,
    path: &str,
    fields: &[String],
    dir: &Path,
) -> Result<Round> {
    let wrk = Run::new("taskset", dir)
        .args([
            "-c",
            CLIENT_CORE,
            "wrk",
            "--threads",
            "1",
            "--connections",
            &CONNECTIONS.to_string(),
        ])
        .args(["--duration", "1s"])
        .args(fields.iter().flat_map(|field| ["--header", field]))
        .args([format!("http://{}{path}", subject.address())]);
    run(subject, wrk)
}

/// Runs a program that puts load on a server, and reports as wrk does.
pub(crate) fn run(subject: &Subject, load: Run) -> Result<Round> {
    let before = subject.cpu()?;
    let output = load.output()?;
    let worked = subject.cpu()? - before;
    let (requests, rate) =
        parse(&output).map_err(|reason| format!("{}: {reason}\n{output}", subject.name()))?;
    Ok(Round {
        rate,
        cpu: worked * 1e6 / requests,
    })
}

/// Parses the number of requests and the rate in wrk's report. Failed requests are an error, since they cost less.
fn parse(output: &str) -> std::result::Result<(f64, f64), &'static str> {
    if output.contains("Non-2xx or 3xx") || output.contains("Socket errors") {
        return Err("some requests failed");
    }
    let requests = output
        .lines()
        .find_map(|line| line.trim().split_once(" requests in ")?.0.parse().ok());
    let rate = output
        .lines()
        .find_map(|line| line.strip_prefix("Requests/sec:")?.trim().parse().ok());
    requests
        .zip(rate)
        .filter(|(requests, _)| *requests > 0.0)
        .ok_or("wrk does not report requests")
}

#[cfg(test)]
mod tests {
    use super::*;

    const REPORT: &str = "Running 3s test @ http://127.0.0.1:1/\n  1 threads and 32 connections\n  300000 requests in 3.00s, 51MB read\n";

    #[test]
    fn the_report_is_read() {
        assert_eq!(
            parse(&format!("{REPORT}Requests/sec: 100000.50\n")),
            Ok((300_000.0, 100_000.5))
        );
    }

    #[test]
    fn a_run_with_failures_is_no_measurement() {
        let failed = format!("{REPORT}  Non-2xx or 3xx responses: 4\nRequests/sec: 100000.50\n");
        assert!(parse(&failed).is_err());
        let cut = format!(
            "{REPORT}  Socket errors: connect 0, read 5, write 0, timeout 0\nRequests/sec: 1.0\n"
        );
        assert!(parse(&cut).is_err());
        assert!(parse("  0 requests in 3.00s, 0B read\nRequests/sec: 0.0\n").is_err());
    }
}
