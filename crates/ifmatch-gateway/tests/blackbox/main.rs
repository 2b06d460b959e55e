//! Black-box tests of any server of this service, given its URL and credentials.
//!
//! By default, the tests start a gateway on a folder, one on an object store in memory, and one on files;
//! `IFMATCH_SERVER=folder`, `=bucket`, `=memory` or `=file` selects one. `cargo xtask ci` runs them with `bucket`, too. With
//! `IFMATCH_URL` (and `IFMATCH_TABLES_URL`, `IFMATCH_S3_URL`), the tests use a running server, with the name given in
//! `IFMATCH_SERVER`. `IFMATCH_ACCOUNT` is `name:key`, by default the development account; `IFMATCH_TOKEN` is a token
//! with write access. Each run uses its own containers. Known differences between servers are in
//! `tests/data/blackbox/differences.txt`; a case listed there that passes is an error.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stderr,
    reason = "tests fail by panicking, and the harness prints"
)]

mod azure;
mod bad;
mod http;
mod plain;
mod races;
mod s3;
mod scenarios;
mod site;
mod suite;
mod tables;

use std::process::ExitCode;
use std::sync::Arc;

use libtest_mimic::{Arguments, Trial};

use crate::site::{Server, Site};
use crate::suite::Suite;

/// Most cases wait for the server, some for a lease to expire, so there are more threads than processors.
const THREADS: usize = 64;

fn main() -> ExitCode {
    let mut args = Arguments::from_args();
    args.test_threads.get_or_insert(THREADS);
    let servers = Server::of_environment();
    let trials = servers
        .iter()
        .flat_map(|server| cases(Arc::clone(server.site()), !args.list))
        .collect();
    let conclusion = libtest_mimic::run(&args, trials);
    let mut has_panicked = false;
    for server in servers {
        let (name, log) = (server.site().server.clone(), server.stop());
        has_panicked |= log.contains("panicked");
        if log.contains("panicked") || conclusion.has_failed() {
            eprintln!("stderr of the server {name}:\n{log}");
        }
    }
    if has_panicked {
        ExitCode::FAILURE
    } else {
        conclusion.exit_code()
    }
}

/// Returns all cases against one server.
fn cases(site: Arc<Site>, to_be_run: bool) -> Vec<Trial> {
    let mut all = Suite::new(site);
    azure::add(&mut all, to_be_run);
    plain::add(&mut all);
    bad::add(&mut all);
    races::add(&mut all);
    scenarios::add(&mut all);
    s3::add(&mut all);
    tables::add(&mut all);
    all.into_trials()
}
